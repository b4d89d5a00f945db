use super::*;

const HIGH: u64 = 0x7f00_0000_1230;
/// The code is `inc rax; add rbx, [rip+16]; jne +5`.
const CODE: &[u8] = &[
    0x48, 0xff, 0xc0, 0x48, 0x03, 0x1d, 0x10, 0, 0, 0, 0x75, 0x05,
];
/// The code behind it is `xor eax, eax; ret`.
const BEHIND: &[u8] = &[0x31, 0xc0, 0xc3];

/// A damaged entry does no harm: the block is translated anew.
#[test]
fn spoiled_blocks_are_made_anew() {
    let library = Arc::new(Library::default());
    let key = Key { pc: HIGH, limit: 0 };
    let translated = || {
        let mut pieces = [(0, HIGH, CODE), (0, HIGH + CODE.len() as u64, BEHIND)];
        let code = Arc::new(crate::Code::new(&mut pieces).unwrap());
        let mut cpu = Cpu::new(code, Predictor::WINDOW, Observe::Not).unwrap();
        let mut native =
            Native::new(Predictor::WINDOW, &crate::Choice::Native.into(), &mut cpu).unwrap();
        native.library = Some(Arc::clone(&library));
        cpu.rip = HIGH;
        native.translate(&mut cpu, key).unwrap();
        let (_, at) = native.cache.find(key).unwrap();
        assert!(native.cache.range().contains(&at));
        native.translator.block.hot.clone()
    };
    let good = translated();
    assert_eq!((translated(), library.counts()), (good.clone(), (1, 1)));
    // `inc rax` becomes `syscall`. The last match is in the executed bytes, not in the copy of the
    // source.
    let (inc, syscall) = ([0x48, 0xff, 0xc0], [0x0f, 0x05, 0x90]);
    assert_eq!(library.spoil(inc, syscall), 1);
    assert_eq!(translated(), good);
    assert!(good.windows(3).any(|w| w == inc));
}
