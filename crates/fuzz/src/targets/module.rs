//! Executable files.

use hindsight_symbols::{DebugPaths, Module, Registers, Space};
use std::process::Command;
use std::sync::Arc;

const SOURCE: &str = r#"
struct point { long x, y; double weight; union { int small; char text[8]; } either; };
enum kind { FIRST, SECOND = 7 };
struct point points[4];
static inline __attribute__((always_inline)) int twice(int inner) { return inner * 2 + *(volatile int *)&inner; }
__attribute__((noinline)) long area(struct point *p, int scale, enum kind k)
{
    long local[4] = { p->x, p->y, scale, twice(scale) };
    for (int i = 0; i < 4; i++) { int sum = local[i] + k; local[i] = sum; }
    return local[0] * local[1] * local[2] + local[3];
}
void _start(void) { points[0].x = area(&points[1], 5, SECOND); for (;;); }
"#;

pub fn seeds() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("made.c"), SOURCE).unwrap();
    let compile = |flags: &[&str]| {
        let done = Command::new("gcc")
            .args(["-nostdlib", "-static", "-o", "made", "made.c"])
            .args(flags)
            .current_dir(folder.path())
            .status()
            .expect("gcc makes the examples");
        assert!(done.success());
        std::fs::read(folder.path().join("made")).unwrap()
    };
    let all = [
        &["-g", "-O0"][..],
        &["-g", "-O2"],
        &["-g", "-O1", "-gdwarf-4"],
        &["-O2", "-s"],
    ];
    all.into_iter().map(compile).collect()
}

pub fn run(bytes: &[u8]) {
    let Ok(m) = Module::parse("made", bytes.to_vec(), &DebugPaths::none()) else {
        return;
    };
    let m = Arc::new(m);
    let functions: Vec<u64> = m.functions().iter().take(8).map(|f| f.addr).collect();
    let mut read = |a: u64| (!a.is_multiple_of(3)).then_some(a ^ 0x1234);
    for addr in functions.iter().copied().chain([m.entry()]) {
        let registers = Registers {
            rip: addr.wrapping_add(4),
            gpr: [addr; 16],
            ..Registers::default()
        };
        m.function(addr);
        m.frames(addr);
        m.line(addr);
        m.bytes(addr, 16);
        if let Ok(Some(s)) = m.signature(addr) {
            let _ = m.arguments((addr, &s), &registers, &registers, 0, &mut read);
        }
        if let Ok(all) = m.variables(&registers, None, 0, &mut read) {
            assert!(all.len() <= bytes.len());
        }
    }
    for name in ["area", "points", "twice", "made.c", ""] {
        m.find(name);
        m.global(name);
    }
    m.addresses_of_line("made.c", 6);
    assert!(m.short_names().count() <= bytes.len());
    let mut space = Space::new();
    let start = m.entry() & !4095;
    space.map(&m, start, 1 << 16, 0);
    let registers = Registers {
        rip: m.entry(),
        gpr: [start; 16],
        ..Registers::default()
    };
    assert!(space.backtrace(&registers, &mut read, 50).len() <= 50);
    space.location(m.entry());
}
