//! Instructions whose effect on other state, or whose way over several steps, a single random case does not show.

use hindsight_interp::{Code, Fault, Interpreter, Memory, Ran};
use hindsight_isa::VecState;
use hindsight_isa::xsave::Layout;

/// A page that begins at address zero.
struct Page([u8; 4096]);

impl Memory for Page {
    fn load<const N: usize>(&mut self, addr: u64) -> [u8; N] {
        let mut out = [0; N];
        self.read(addr, &mut out);
        out
    }

    fn store<const N: usize>(&mut self, addr: u64, bytes: [u8; N]) {
        self.write(addr, &bytes);
    }

    fn read(&mut self, addr: u64, buf: &mut [u8]) {
        buf.copy_from_slice(&self.0[addr as usize..][..buf.len()]);
    }

    fn saved(&mut self, _: u64, _: u64) {}

    fn write(&mut self, addr: u64, buf: &[u8]) {
        self.0[addr as usize..][..buf.len()].copy_from_slice(buf);
    }
}

/// Code at address zero.
struct Bytes<'a>(&'a [u8]);

impl Code for Bytes<'_> {
    fn fetch(&self, addr: u64, buf: &mut [u8]) -> usize {
        let rest = self.0.get(addr as usize..).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        n
    }
}

/// Registers as a process has them at first, with these values in the x87's stack from st(0) on.
fn stack(values: &[(u64, u16)]) -> VecState {
    let n = values.len();
    let mut v = VecState {
        fsw: ((8 - n as u16) & 7) << 11,
        ftw: !(0xffu16 >> n) as u8,
        ..VecState::default()
    };
    for (st, (significand, head)) in v.st.iter_mut().zip(values) {
        st[..8].copy_from_slice(&significand.to_le_bytes());
        st[8..10].copy_from_slice(&head.to_le_bytes());
    }
    v
}

/// What st(i) holds: significand, and sign with exponent.
fn value(v: &VecState, i: usize) -> (u64, u16) {
    let st = &v.st[i];
    (
        u64::from_le_bytes(std::array::from_fn(|i| st[i])),
        u16::from_le_bytes([st[8], st[9]]),
    )
}

/// Executes so many instructions. Returns the registers behind them, and how it ended.
fn run(code: &[u8], instructions: u64, v: &VecState, memory: &mut Page) -> (VecState, Ran) {
    let mut interpreter = Interpreter::new();
    interpreter.set_vectors(v);
    let (_, ran) = interpreter.run(memory, &Bytes(code), instructions);
    (interpreter.vectors(), ran)
}

const ONE: (u64, u16) = (1 << 63, 0x3fff);

#[test]
fn an_mmx_instruction_fills_the_stack_and_emms_empties_it() {
    let mut memory = Page([0; 4096]);
    memory.0[64..72].copy_from_slice(&0x0102_0304_0506_07ffu64.to_le_bytes());
    // movq mm3, [64]; paddb mm3, mm3; emms
    let code = [
        0x0f, 0x6f, 0x1c, 0x25, 64, 0, 0, 0, 0x0f, 0xfc, 0xdb, 0x0f, 0x77,
    ];
    let (v, ran) = run(&code, 2, &stack(&[ONE]), &mut memory);
    assert_eq!(ran, Ran::Done);
    assert_eq!(value(&v, 3), (0x0204_0608_0a0c_0efe, 0xffff));
    assert_eq!((v.fsw >> 11 & 7, v.ftw), (0, 0xff));
    // What stood at the top is register 7.
    assert_eq!(value(&v, 7), ONE);
    let (v, ran) = run(&code, 3, &stack(&[ONE]), &mut memory);
    assert_eq!((ran, v.fsw >> 11 & 7, v.ftw), (Ran::Done, 0, 0));
}

#[test]
fn a_partial_remainder_is_complete_after_some_steps() {
    // 2^100 and 3.
    let three = (3 << 62, 0x4000);
    let mut v = stack(&[(1 << 63, 0x3fff + 100), three]);
    let mut steps = 0;
    loop {
        let (next, ran) = run(&[0xd9, 0xf8], 1, &v, &mut Page([0; 4096]));
        assert_eq!(ran, Ran::Done);
        (v, steps) = (next, steps + 1);
        if v.fsw & 0x400 == 0 {
            break;
        }
    }
    assert_eq!((steps, value(&v, 0), value(&v, 1)), (2, ONE, three));
}

/// `xrstor` takes mask registers from where the recorded processor has them.
#[test]
fn an_area_is_read_as_its_processor_lays_it_out() {
    for layout in [
        Layout::INTEL,
        Layout::of(0xe7, [576, 832, 896, 1408]).unwrap(),
    ] {
        let at = layout.offset(5).unwrap();
        let mut memory = Page([0; 4096]);
        memory.0[512] = 0x20;
        memory.0[at..at + 8].copy_from_slice(&0x1122_3344_5566_7788u64.to_le_bytes());
        let mut interpreter = Interpreter::new();
        interpreter.set_layout(layout);
        // mov eax, 0xe7; xrstor [0]
        let code = [0xb8, 0xe7, 0, 0, 0, 0x0f, 0xae, 0x2c, 0x25, 0, 0, 0, 0];
        let (_, ran) = interpreter.run(&mut memory, &Bytes(&code), 2);
        let v = interpreter.vectors();
        assert_eq!((ran, v.k[0]), (Ran::Done, 0x1122_3344_5566_7788));
        assert_eq!(v.k[1..], [0; 7]);
    }
}

/// A result that is out of range has its exponent moved by 24576 in a register, and is not stored in memory. The exception waits.
#[test]
fn results_out_of_range_wait_where_that_is_not_masked() {
    let mut memory = Page([7; 4096]);
    let with = |fcw, values: &[(u64, u16)]| VecState {
        fcw,
        ..stack(values)
    };
    let huge = (1 << 63, 0x7ff0);
    // fmul st0, st0
    let (v, ran) = run(&[0xd8, 0xc8], 1, &with(0x377, &[huge]), &mut memory);
    assert_eq!((ran, v.fsw & 0x80ff), (Ran::Done, 0x8088));
    let exponent = 0x3fff + 2 * (0x7ff0 - 0x3fff) - 24576;
    assert_eq!(value(&v, 0), (1 << 63, exponent));
    // fmul st0, st0: what is tiny is no less exact.
    let tiny = (1 << 63, 0x10);
    let (v, ran) = run(&[0xd8, 0xc8], 1, &with(0x36f, &[tiny]), &mut memory);
    assert_eq!((ran, v.fsw & 0x80ff), (Ran::Done, 0x8090));
    let exponent = 0x20 + 24576 - 0x3fff;
    assert_eq!(value(&v, 0), (1 << 63, exponent));
    // fstp dword [64]
    let code = [0xd9, 0x1c, 0x25, 64, 0, 0, 0];
    let (v, ran) = run(&code, 1, &with(0x377, &[huge]), &mut memory);
    assert_eq!((ran, v.fsw & 0x80ff, v.ftw), (Ran::Done, 0x8088, 0x80));
    assert_eq!((memory.0[64], value(&v, 0)), (7, huge));
    // fscale: not even the other exponent reaches that far.
    let far = (0x8000 << 48, 0x3fff + 16);
    let (v, ran) = run(&[0xd9, 0xfd], 1, &with(0x377, &[huge, far]), &mut memory);
    assert_eq!((ran, v.fsw & 0x80ff), (Ran::Done, 0x80a8));
    assert_eq!(value(&v, 0), (1 << 63, 0x7fff));
}

#[test]
fn packed_decimals_come_back() {
    let mut memory = Page([0; 4096]);
    let digits = [0x78, 0x56, 0x34, 0x12, 0x90, 0x78, 0x56, 0x34, 0x12, 0x80];
    memory.0[64..74].copy_from_slice(&digits);
    // fbld [64]; fbstp [128]
    let code = [
        0xdf, 0x24, 0x25, 64, 0, 0, 0, 0xdf, 0x34, 0x25, 128, 0, 0, 0,
    ];
    let (v, ran) = run(&code, 2, &stack(&[]), &mut memory);
    assert_eq!((ran, v.ftw), (Ran::Done, 0));
    assert_eq!(memory.0[128..138], digits);
    // What has 19 digits has no such form. That is an invalid operation.
    let (v, ran) = run(&code[7..], 1, &stack(&[(1 << 63, 0x403e)]), &mut memory);
    assert_eq!((ran, v.fsw & 0x3f), (Ran::Done, 1));
    assert_eq!(memory.0[128..138], [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff]);
}

#[test]
fn half_precision_is_rounded_with_its_own_limits() {
    // vcvtps2ph xmm1, xmm0, 4: as MXCSR says, which is to nearest.
    let code = [0xc4, 0xe3, 0x79, 0x1d, 0xc1, 4];
    let mut v = stack(&[]);
    // MXCSR wants zeros for tiny results. Halves have denormals anyway.
    v.mxcsr = 0x9fc0;
    let tiny = f32::from_bits((127 - 24) << 23);
    for (i, x) in [65519.0, 65520.0, tiny, tiny / 2.0].iter().enumerate() {
        v.zmm[0][4 * i..4 * i + 4].copy_from_slice(&x.to_bits().to_le_bytes());
    }
    let (v, ran) = run(&code, 1, &v, &mut Page([0; 4096]));
    assert_eq!(ran, Ran::Done);
    let halves = v.zmm[1].as_chunks::<2>().0[..5].iter();
    let halves: Vec<u16> = halves.map(|h| u16::from_le_bytes(*h)).collect();
    assert_eq!(halves, [0x7bff, 0x7c00, 1, 0, 0]);
    // Overflow, underflow, inexact results.
    assert_eq!(v.mxcsr & 0x3f, 0x38);
}

#[test]
fn approximations_are_refused_with_the_reason() {
    // fsin; rcpps xmm0, xmm0
    for (code, name) in [(&[0xd9, 0xfe][..], "Fsin"), (&[0x0f, 0x53, 0xc0], "Rcpps")] {
        let (_, ran) = run(code, 1, &stack(&[ONE]), &mut Page([0; 4096]));
        let Ran::Fault(fault) = ran else {
            panic!("{name} was executed");
        };
        assert_eq!(fault, Fault::Approximate(name.to_string()));
        let reason = "whose results differ between processors";
        let text = format!("the interpreter does not support {name}, {reason}");
        assert_eq!(fault.to_string(), text);
    }
}
