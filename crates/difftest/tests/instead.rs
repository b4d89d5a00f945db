//! Instructions of AVX-512 for which those of AVX2 stand: random sequences, by translated code of a machine without AVX-512, and by
//! the interpreter. In a process of its own: what is left out is left out for all machines. The variables of the environment are
//! those of `instructions.rs`.

use hindsight_difftest::confined::without_avx512;
use hindsight_difftest::generate::{encode, generate};
use hindsight_difftest::memory::Region;
use hindsight_difftest::setting;
use hindsight_events::{EndKind, Event};
use hindsight_isa::{CpuState, Lacking, Predictor, VecState};
use hindsight_random::Rng;
use hindsight_replay::{AccessKind, Choice, Code, Machine, Stop, differing, leave_out};
use hindsight_sample::{PC, encode as events, event, key_frame};
use hindsight_translate::lacks;
use iced_x86::{Code as Encoding, Instruction, Mnemonic, Register};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most instructions of a sequence.
const LONGEST: u64 = 12;

/// At least so many encodings have others that stand for them.
const KNOWN: usize = 190;

/// Instructions that translated code executes, although the machine lacks them.
struct Maker {
    lacking: Lacking,
    codes: Vec<Encoding>,
    seen: BTreeSet<Encoding>,
}

impl Maker {
    fn is_replaced(&self, i: &Instruction) -> bool {
        self.lacking.concerns(i) && !lacks(&self.lacking, i)
    }

    fn make(&mut self, rng: &mut Rng, region: &Region, pc: u64) -> Option<(Vec<u8>, Instruction)> {
        let code = rng.pick(&self.codes);
        let i = shaped(generate(code, rng, region, pc)?, rng);
        let (bytes, i) = encode(&i, pc)?;
        // No instruction with such an address is translated.
        let segment = matches!(i.memory_segment(), Register::FS | Register::GS);
        let short = [i.memory_base(), i.memory_index()].map(|r| r.is_gpr32());
        if !self.is_replaced(&i) || segment && short != [false; 2] {
            return None;
        }
        self.seen.insert(i.code());
        Some((bytes, i))
    }
}

/// Few different values, so that comparisons find what is equal. zmm0 to zmm15 hold nothing that the machine has no room for.
fn vectors(rng: &mut Rng) -> VecState {
    let mut v = VecState::default();
    for (n, z) in v.zmm.iter_mut().enumerate() {
        let len = if n < 16 { 32 } else { 64 };
        let few = rng.one_in(2);
        z[..len].fill_with(|| match few {
            true => rng.pick(&[0, 0, 1, 0x80, 0xff]),
            false => rng.u64() as u8,
        });
    }
    v.k.fill_with(|| match rng.below(4) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX >> rng.below(64),
        _ => rng.u64(),
    });
    v
}

/// What the program may have in its memory.
const MEMORY: u64 = 0x5000;
const HELD: [u8; 512] = {
    let mut held = [0; 512];
    let mut n = 0;
    while n < 512 {
        held[n] = n as u8 / 3;
        n += 1;
    }
    held
};
/// It begins so many bytes before what addresses are made of.
const BEFORE: u64 = 128;

/// Plays code from these registers on.
struct Start<'a> {
    code: &'a [u8],
    cpu: CpuState,
    vec: VecState,
    observing: bool,
    /// The window has this many cells.
    predictor: Predictor,
    end: u64,
}

impl Start<'_> {
    fn machine(&self, choice: Choice) -> Machine<'static> {
        let code = Arc::new(Code::new(&mut [(0, PC, self.code)]).unwrap());
        let mut m = match self.observing {
            true => Machine::observing(choice, code).unwrap(),
            false => Machine::with(choice, code, self.predictor).unwrap(),
        };
        let memory = Event::Memory {
            addr: MEMORY - BEFORE,
            bytes: &HELD,
        };
        let exit = Event::End {
            kind: EndKind::Exit,
            code: 0,
            message: b"",
        };
        let list = [
            key_frame(0, self.cpu, self.vec),
            event(0, memory),
            event(self.end + 1, exit),
        ];
        let list = vec![events(&list)];
        m.from_keyframe(Box::new(list.into_iter())).unwrap();
        m
    }
}

fn held(m: &Machine) -> [u8; HELD.len()] {
    let mut out = [0; HELD.len()];
    m.read_window(MEMORY - BEFORE, &mut out);
    out
}

fn marks(m: &Machine, kind: AccessKind) -> [u8; 512] {
    let mut out = [0; 512];
    m.read_marks(kind, MEMORY - BEFORE, &mut out);
    out
}

impl Maker {
    /// Of these encodings, the ones of which some form is replaced.
    fn of(codes: Vec<Encoding>, rng: &mut Rng, region: &Region) -> Maker {
        let mut maker = Maker {
            lacking: without_avx512(),
            codes: codes.clone(),
            seen: BTreeSet::new(),
        };
        maker.codes = codes
            .into_iter()
            .filter(|code| {
                (0..40).any(|_| {
                    let made = generate(*code, rng, region, PC).map(|i| shaped(i, rng));
                    made.is_some_and(|i| maker.is_replaced(&i))
                })
            })
            .collect();
        maker
    }
}

/// Operations that programs use are more frequent than others.
fn shaped(mut i: Instruction, rng: &mut Rng) -> Instruction {
    match i.mnemonic() {
        Mnemonic::Vpcmpub | Mnemonic::Vpcmpud => i.set_immediate8(rng.below(8) as u8),
        Mnemonic::Vpternlogd | Mnemonic::Vpternlogq => {
            i.set_immediate8(rng.pick(&[0xfe, 0xde, 0xf6]));
        }
        _ => {}
    }
    i
}

#[test]
fn what_stands_for_an_instruction_does_the_same() {
    leave_out(&["avx512f"]).unwrap();
    let budget = Duration::from_secs(setting("HINDSIGHT_DIFF_SECONDS").unwrap_or(10));
    let mut rng = Rng(setting("HINDSIGHT_DIFF_SEED").unwrap_or(7));
    let codes = hindsight_difftest::chosen();
    let region = Region {
        data: MEMORY,
        code: PC,
    };
    let mut maker = Maker::of(codes, &mut rng, &region);
    let begin = Instant::now();
    let mut compared = 0u64;
    while begin.elapsed() < budget {
        let mut code = Vec::new();
        let (mut n, mut masked) = (0, false);
        while n < LONGEST {
            if let Some((bytes, i)) = maker.make(&mut rng, &region, PC + code.len() as u64) {
                masked |= i.op_mask() != Register::None;
                code.extend(bytes);
                n += 1;
                if rng.one_in(3) {
                    // lahf; seto cl. Flags that nothing needs are not kept.
                    code.extend([0x9f, 0x0f, 0x90, 0xc1]);
                    n += 2;
                }
            }
        }
        // nop: behind the last one.
        code.push(0x90);
        let mut cpu = CpuState {
            rip: PC,
            rflags: rng.u64() & 0xcd5,
            ..CpuState::default()
        };
        cpu.gpr.fill_with(|| MEMORY + rng.below(64));
        let start = Start {
            code: &code,
            cpu,
            vec: vectors(&mut rng),
            observing: rng.one_in(2),
            predictor: rng.pick(&[Predictor::WINDOW, Predictor { bits: 16 }]),
            end: n,
        };
        let mut mixed = start.machine(Choice::Native);
        let mut other = start.machine(Choice::Interpreter);
        let step = rng.below(4) + 1;
        let mut pos = 0;
        while pos < n {
            pos = (pos + step).min(n);
            for m in [&mut mixed, &mut other] {
                assert_eq!(m.run_to(pos).unwrap(), Stop::Position, "{code:x?}");
            }
            let [a, b] = [&mixed, &other].map(|m| (m.registers(), m.vectors()));
            let found = differing((&a.0, &a.1), (&b.0, &b.1));
            assert_eq!(found, None, "at {pos} of {code:x?}");
            let [a, b] = [&mixed, &other].map(held);
            assert_eq!(a, b, "memory at {pos} of {code:x?}");
        }
        if start.observing {
            let of = |kind| [&mixed, &other].map(|m| marks(m, kind));
            let [a, b] = of(AccessKind::Writes);
            assert_eq!(a, b, "writes of {code:x?}");
            // Under a mask, the interpreter reads the whole operand.
            let [a, b] = of(AccessKind::Reads);
            let more = a.iter().zip(&b).any(|(a, b)| *a != 0 && *b == 0);
            assert!(!more && (masked || a == b), "reads of {code:x?}");
        }
        compared += n;
    }
    println!("{compared} instructions, {} encodings", maker.seen.len());
    let all = std::env::var_os("HINDSIGHT_DIFF_CODE").is_none();
    assert!(!all || maker.seen.len() >= KNOWN, "{}", maker.seen.len());
}
