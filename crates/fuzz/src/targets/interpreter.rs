//! Code of programs, as the interpreter executes it.

use crate::Rng;
use hindsight_interp::{Code, Interpreter, Memory, Ran};
use hindsight_isa::regs::RCX;
use hindsight_isa::string::StringOp;
use hindsight_isa::{CpuState, VecState};

const PC: u64 = 0x40_0ff0;
/// Longest code.
const MOST: usize = 400;
/// Most instructions of a run.
const STEPS: u64 = 300;
/// A string instruction may repeat so often here. It ends by itself after some more, which takes long.
const REPEATED: u64 = 4096;

pub fn seeds() -> Vec<Vec<u8>> {
    let blocks: [&[u8]; 6] = [
        // mov, add with memory, jnz
        &[0x48, 0x89, 0x0f, 0x48, 0x03, 0x44, 0xce, 0xf8, 0x75, 0xf4],
        // fld1; fadd st, st; fstp [rsp]; rep movsb
        &[0xd9, 0xe8, 0xd8, 0xc0, 0xdd, 0x1c, 0x24, 0xf3, 0xa4],
        // vpaddd zmm with a mask; kmovw; tzcnt
        &[
            0x62, 0xf1, 0x75, 0x49, 0xfe, 0x17, 0xc5, 0xf8, 0x92, 0xc8, 0xf3, 0x0f, 0xbc, 0xc0,
        ],
        // xrstor [rsi]; fxrstor [rsi]; xsavec [rdi]
        &[0x0f, 0xae, 0x2e, 0x0f, 0xae, 0x0e, 0x0f, 0xc7, 0x27],
        // lock cmpxchg; div; idiv; call; ret
        &[
            0xf0, 0x48, 0x0f, 0xb1, 0x37, 0xf7, 0xf1, 0x48, 0xf7, 0xfb, 0xe8, 0, 0, 0, 0, 0xc3,
        ],
        // vfmadd231ps; vgatherdps; pcmpistri
        &[
            0xc4, 0xe2, 0x75, 0xb8, 0xc2, 0xc4, 0xe2, 0x75, 0x92, 0x04, 0x96, 0x66, 0x0f, 0x3a,
            0x63, 0xc1, 0x0c,
        ],
    ];
    // The first byte chooses the registers.
    let all = blocks.iter().enumerate();
    all.map(|(i, b)| [&[i as u8][..], b].concat()).collect()
}

/// 64 KiB, again and again.
#[derive(PartialEq, Eq)]
struct Small(Vec<u8>);

impl Memory for Small {
    fn load<const N: usize>(&mut self, addr: u64) -> [u8; N] {
        std::array::from_fn(|i| self.0[addr.wrapping_add(i as u64) as u16 as usize])
    }

    fn store<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        self.write(addr, &bytes);
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) {
        for (i, b) in buf.iter_mut().enumerate() {
            *b = self.0[addr.wrapping_add(i as u64) as u16 as usize];
        }
    }

    fn write(&mut self, addr: u64, buf: &[u8]) {
        for (i, b) in buf.iter().enumerate() {
            self.0[addr.wrapping_add(i as u64) as u16 as usize] = *b;
        }
    }

    fn saved(&mut self, _: u64, _: u64) {}
}

struct At<'a>(&'a [u8]);

impl Code for At<'_> {
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> usize {
        let from = usize::try_from(addr.wrapping_sub(PC)).unwrap_or(usize::MAX);
        let rest = self.0.get(from..).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        n
    }
}

/// A processor and its memory, in a state that follows from a number.
fn begin(seed: u8) -> (Interpreter<Small>, Small) {
    let mut rng = Rng(seed as u64 + 1);
    let mut it = Interpreter::new();
    let mut cpu = CpuState {
        rip: PC,
        rflags: 0x202 | rng.u64() & 0x8d5,
        ..CpuState::default()
    };
    cpu.gpr.fill_with(|| rng.u64() >> (rng.u64() % 64));
    let mut v = VecState::default();
    for register in &mut v.zmm {
        register.fill_with(|| rng.u64() as u8);
    }
    v.k.fill_with(|| rng.u64());
    v.mxcsr = 0x1f80 | (rng.u64() as u32 & 0xe07f);
    it.set_registers(&cpu);
    it.set_vectors(&v);
    let memory = (0..1 << 16).map(|_| rng.u64() as u8).collect();
    (it, Small(memory))
}

/// Whatever the code is, the interpreter ends. Instruction by instruction it comes to the same as at one go.
pub fn run(bytes: &[u8]) {
    let Some((seed, code)) = bytes.split_first() else {
        return;
    };
    let code = At(&code[..code.len().min(MOST)]);
    let (mut it, mut memory) = begin(*seed);
    let mut done = 0;
    let mut ended = Ran::Done;
    while done < STEPS && ended == Ran::Done {
        let mut next = [0; 15];
        let n = code.fetch(it.rip(), &mut next);
        let string = StringOp::decode(&next[..n]).is_some();
        if string && it.registers().gpr[RCX] > REPEATED {
            break;
        }
        let one;
        (one, ended) = it.run(&mut memory, &code, 1);
        assert_eq!(one, (ended == Ran::Done) as u64);
        done += one;
    }
    let (mut whole, mut other) = begin(*seed);
    // With a fault at its end, if there is one.
    let more = (ended != Ran::Done) as u64;
    let (at_once, fault) = whole.run(&mut other, &code, done + more);
    assert_eq!((at_once, &fault), (done, &ended));
    assert_eq!(whole.registers(), it.registers());
    assert_eq!(whole.vectors(), it.vectors());
    assert!(other == memory, "memory differs");
}
