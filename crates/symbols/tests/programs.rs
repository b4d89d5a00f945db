//! Compiles programs and looks at them.

use hindsight_symbols::{Class, DebugPaths, Location, Module, Registers, Space};
use object::{Object, ObjectSegment};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const SOURCE: &str = r#"
static inline __attribute__((always_inline)) int twice(int inner)
{
    return inner * 2 + *(volatile int *)&inner;
}

struct point { long x, y; };

__attribute__((noinline)) long area(struct point *p, int scale)
{
    long local[4] = { p->x, p->y, scale, twice(scale) };
    return local[0] * local[1] * local[2] + local[3];
}

int main(void)
{
    struct point p = { 3, 4 };
    return area(&p, 5) & 0x7f;
}
"#;

const SHOP: &str = r#"#include <string>
namespace shop {
int sold[4];
struct Till { static inline int sum = 0; static inline int add(int x); };
static inline __attribute__((always_inline)) int twice(int x) { int y = x * 2; return y + sold[x & 3]; }
namespace { inline __attribute__((always_inline)) int odd(int x) { return twice(x) + 1; } }
inline __attribute__((always_inline)) int Till::add(int x) { return sum += odd(x); }
__attribute__((noinline)) int compute(int n)
{
    static int calls;
    int s = 0;
    for (int i = 0; i < n; i++)
        s += Till::add(i) + calls++;
    return s;
}
template <class T> __attribute__((noinline)) T biggest(const T *v)
{
    return v[0] > v[1] ? v[0] : v[1];
}
__attribute__((noinline)) std::string label(int n)
{
    return std::string(n, 'x');
}
static __attribute__((noinline)) int hidden(int x) { return compute(x) + sold[2]; }
}
int main(int argc, char **)
{
    return shop::hidden(argc) + shop::biggest(&argc - argc % 2) + shop::label(argc).size();
}
"#;

/// A C++ program with namespaces and classes.
fn shop(dir: &Path) -> Module {
    std::fs::write(dir.join("shop.cpp"), SHOP).unwrap();
    run(dir, "g++ -w -O1 -g -std=c++17 -o shop shop.cpp");
    let path = dir.join("shop");
    let data = std::fs::read(&path).unwrap();
    Module::parse(path.to_str().unwrap(), data, &DebugPaths::none()).unwrap()
}

fn run(dir: &Path, command: &str) {
    let status = Command::new("sh")
        .arg("-c")
        .arg(command)
        .current_dir(dir)
        .status();
    assert!(status.unwrap().success(), "{command}");
}

/// Compiles the program in `dir` as `name` with these options.
fn compile(dir: &Path, name: &str, options: &str) -> Vec<u8> {
    std::fs::write(dir.join("point.c"), SOURCE).unwrap();
    run(dir, &format!("gcc {options} -g -o {name} point.c"));
    std::fs::read(dir.join(name)).unwrap()
}

fn module(dir: &Path, name: &str, options: &str) -> Module {
    let path = dir.join(name);
    let data = compile(dir, name, options);
    Module::parse(path.to_str().unwrap(), data, &DebugPaths::none()).unwrap()
}

/// Registers of a thread at an address, with this stack pointer.
fn at(rip: u64, rsp: u64) -> Registers {
    let mut r = Registers {
        rip,
        ..Default::default()
    };
    r.gpr[4] = rsp;
    r
}

#[test]
fn functions_lines_and_inlined_frames() {
    let dir = tempfile::tempdir().unwrap();
    let m = module(dir.path(), "a", "-O1");
    let area = m.find("area")[0].clone();
    assert_eq!(m.function(area.addr + 3).unwrap().0.name, "area");
    let frames = m.frames(area.addr);
    let last = frames.last().unwrap();
    assert_eq!(last.function.as_deref(), Some("area"));
    let source = last.source.as_ref().unwrap();
    assert!(source.file.ends_with("point.c"), "{source:?}");
    // The first row of several may be empty.
    assert!((10..=11).contains(&source.line));

    // Line 4 exists only inlined.
    let inside = m.addresses_of_line("point.c", 4);
    assert!(!inside.is_empty());
    let frames = m.frames(inside[0]);
    let names: Vec<_> = frames
        .iter()
        .map(|f| f.function.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["twice", "area"]);
    assert_eq!(
        frames.iter().map(|f| f.inlined).collect::<Vec<_>>(),
        [true, false]
    );
    assert!(m.addresses_of_line("int.c", 4).is_empty());
}

#[test]
fn variables_of_a_function_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let m = module(dir.path(), "a", "-O0 -fcf-protection=none");
    let area = m.find("area")[0].addr;
    let bias = 0x7000_0000_0000;
    // After `push rbp; mov rbp, rsp`, the frame's address is rbp + 16.
    let body = m.addresses_of_line("point.c", 11)[0];
    assert!(body > area);
    let mut registers = Registers {
        rip: body + bias,
        ..Default::default()
    };
    registers.gpr[5] = 0x8000;
    registers.gpr[4] = 0x7f00;
    let found = m.variables(&registers, None, bias, &mut |_| None).unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|v| (v.name.as_str(), v.type_name.as_str(), v.size, v.parameter))
        .collect();
    assert_eq!(
        names,
        [
            ("p", "struct point *", Some(8), true),
            ("scale", "int", Some(4), true),
            ("local", "long int[4]", Some(32), false),
        ]
    );
    for v in &found {
        let Location::Memory(at) = v.location else {
            panic!("{v:?}");
        };
        assert!((0x7f00..0x8000).contains(&at), "{v:?}");
    }
}

#[test]
fn variables_of_namespaces_and_classes_are_not_local() {
    let dir = tempfile::tempdir().unwrap();
    let m = shop(dir.path());
    for line in m.addresses_of_line("shop.cpp", 5) {
        let registers = Registers {
            rip: line,
            ..Default::default()
        };
        let found = m.variables(&registers, None, 0, &mut |_| None).unwrap();
        let names: Vec<_> = found.iter().map(|v| v.name.as_str()).collect();
        for wanted in ["n", "calls", "s", "i", "x", "y"] {
            assert!(names.contains(&wanted), "{wanted} in {names:?}");
        }
        for other in ["sold", "sum"] {
            assert!(!names.contains(&other), "{names:?}");
        }
    }
    let main = m.find("main")[0].addr;
    let registers = Registers {
        rip: main,
        ..Default::default()
    };
    let found = m.variables(&registers, None, 0, &mut |_| None).unwrap();
    let names: Vec<_> = found.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["argc"]);
}

#[test]
fn functions_without_linkage_name_have_their_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let m = shop(dir.path());
    let inside = m.addresses_of_line("shop.cpp", 5);
    assert!(!inside.is_empty());
    for at in inside {
        let frames = m.frames(at);
        let names: Vec<_> = frames
            .iter()
            .map(|f| f.function.as_deref().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "shop::twice",
                "shop::(anonymous namespace)::odd",
                "shop::Till::add(int)",
                "shop::compute(int)"
            ]
        );
    }
    // It is not inlined, and other files cannot call it.
    let hidden = m.functions().iter().find(|f| f.name.contains("hidden"));
    let frames = m.frames(hidden.unwrap().addr);
    let name = frames[0].function.as_deref().unwrap();
    assert!(name.starts_with("shop::hidden"), "{name}");
}

#[test]
fn functions_are_found_without_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let m = shop(dir.path());
    let one = |name: &str| {
        let found = m.find(name);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0].demangled()
    };
    assert_eq!(one("compute"), "shop::compute(int)");
    assert_eq!(one("shop::compute"), "shop::compute(int)");
    assert_eq!(one("biggest"), one("shop::biggest<int>"));
    assert_eq!(one("label"), "shop::label[abi:cxx11](int)");
    assert!(m.find("hop::compute").is_empty());
    assert!(m.find("shop").is_empty());
}

#[test]
fn names_stand_for_functions_and_variables() {
    let dir = tempfile::tempdir().unwrap();
    let m = Arc::new(shop(dir.path()));
    let mut space = Space::new();
    assert!(space.map(&m, 0x5000_0000, 1 << 20, 0));
    let bias = space.mappings()[0].bias;
    for (asked, name, size, line) in [
        ("compute", "shop::compute(int)", None, 8),
        ("shop!shop::compute", "shop::compute(int)", None, 8),
        ("biggest", "int shop::biggest<int>(int const*)", None, 16),
        ("sold", "sold", Some(16), 3),
        ("sum", "sum", Some(4), 4),
    ] {
        let found = space.symbols(asked);
        assert_eq!(found.len(), 1, "{asked}: {found:?}");
        let s = &found[0];
        assert_eq!(s.name, name);
        assert_eq!(s.address, s.file_address.wrapping_add(bias));
        assert!(s.size > Some(0) && size.is_none_or(|n| s.size == Some(n)));
        let source = s.source.as_ref().unwrap();
        assert_eq!(source.file, dir.path().join("shop.cpp").to_str().unwrap());
        assert_eq!(source.line, line, "{asked}");
    }
    // What is always inlined is nowhere. Local variables do not count.
    for nothing in ["twice", "s", "other!compute", "till"] {
        assert!(space.symbols(nothing).is_empty(), "{nothing}");
    }
}

#[test]
fn data_belongs_to_no_function() {
    let dir = tempfile::tempdir().unwrap();
    let m = shop(dir.path());
    // The last function of a C program, `_fini`, says no size.
    let last = m.functions().last().unwrap();
    assert_eq!(last.size, 0, "{last:?}");
    assert_eq!(m.function(last.addr + 1).unwrap().0.name, last.name);
    let data = m.global("sold").unwrap().addr;
    assert!(data > last.addr);
    assert_eq!(m.function(data), None);
}

#[test]
fn separate_debug_files_are_found_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    compile(d, "a", "-O1");
    run(
        d,
        "objcopy --only-keep-debug a a.debug && strip -o b a && objcopy --add-gnu-debuglink=a.debug b",
    );
    let data = std::fs::read(d.join("b")).unwrap();
    let path = d.join("b");
    let open =
        |paths: &DebugPaths| Module::parse(path.to_str().unwrap(), data.clone(), paths).unwrap();
    // Found by its path below a folder of debug files.
    let below = d.join("all").join(d.strip_prefix("/").unwrap());
    std::fs::create_dir_all(&below).unwrap();
    std::fs::copy(d.join("a.debug"), below.join("a.debug")).unwrap();
    let paths = DebugPaths(vec![d.join("all")]);
    let m = open(&paths);
    let area = m.find("area")[0].addr;
    assert!((10..=11).contains(&m.line(area).unwrap().line));

    // Found by its build id.
    let id = Command::new("sh")
        .arg("-c")
        .arg("readelf -n b | sed -n 's/.*Build ID: //p'")
        .current_dir(d)
        .output()
        .unwrap();
    let id = String::from_utf8(id.stdout).unwrap();
    let (first, rest) = id.trim().split_at(2);
    run(
        d,
        &format!("mkdir -p g/.build-id/{first}; mv a.debug g/.build-id/{first}/{rest}.debug"),
    );
    std::fs::remove_file(below.join("a.debug")).unwrap();
    assert!(!open(&paths).has_lines());
    let m = open(&DebugPaths(vec![d.join("g")]));
    assert!(m.has_lines());

    // Another file with that name is not taken.
    std::fs::write(below.join("a.debug"), compile(d, "other", "-O0")).unwrap();
    assert!(!open(&paths).has_lines());
}

#[test]
fn backtrace_without_frame_pointers() {
    let dir = tempfile::tempdir().unwrap();
    let m = Arc::new(module(dir.path(), "a", "-O2 -fomit-frame-pointer"));
    let text = m.find("area")[0].addr & !0xfff;
    let offset = (0..1 << 20)
        .find(|o| m.address_of_offset(*o) == Some(text))
        .unwrap();
    let mut space = Space::new();
    let bias = 0x5555_0000_0000;
    assert!(space.map(&m, text + bias, 0x1000, offset));
    let [area] = space.find("a!area")[..] else {
        panic!("not one function");
    };
    assert_eq!(space.find("area"), [area]);
    assert_eq!(space.location(area + 1).unwrap().to_string(), "a!area+0x1");
    // At the first instruction, the return address is on top of the stack.
    let main = m.find("main")[0].addr + bias;
    let mut read = |at: u64| (at == 0x9000).then_some(main + 20);
    let stack = space.backtrace(&at(area, 0x9000), &mut read, 10);
    let names: Vec<_> = stack
        .iter()
        .map(|f| {
            f.location
                .as_ref()
                .unwrap()
                .function
                .as_ref()
                .unwrap()
                .0
                .clone()
        })
        .collect();
    assert_eq!(names, ["area", "main"]);
    assert_eq!(stack[0].cfa, Some(0x9008));
    space.unmap(text + bias, 0x1000);
    assert_eq!(space.location(area), None);
}

/// A clone that the compiler made of a function does not have that function's parameters.
#[test]
fn clones_do_not_take_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let source = "volatile int k;
        static __attribute__((noinline)) int scaled(int by, int x) { return x * by + k; }
        __attribute__((noinline)) int plain(int x) { return scaled(3, x) + scaled(3, k); }
        int main(void) { return plain(k); }";
    std::fs::write(dir.path().join("clone.c"), source).unwrap();
    run(dir.path(), "gcc -O2 -g -o clone clone.c");
    let data = std::fs::read(dir.path().join("clone")).unwrap();
    let m = Module::parse("clone", data, &DebugPaths::none()).unwrap();
    let all = m.functions().iter();
    for f in all.filter(|f| f.name.starts_with("scaled") || f.name == "plain") {
        let found = m.signature(f.addr).unwrap().unwrap();
        let parts = found.parameters.iter().chain(&found.result);
        let known: Vec<bool> = parts.map(|p| p.class == Class::Integer).collect();
        assert!(
            known.len() > 1 && known.iter().all(|k| *k == (f.name == "plain")),
            "{f:?} {found:?}"
        );
    }
    assert_eq!(m.find("scaled.constprop.0").len(), 1);
}

/// Some linkers begin a segment in the page of the file in which another ends. That page is then mapped for both.
#[test]
fn all_parts_of_a_file_have_one_bias() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("point.c"), SOURCE).unwrap();
    let rust = "pub mod shop { #[inline(never)] pub fn twice(x: usize) -> usize { x * 2 } }
        fn main() { println!(\"{}\", shop::twice(std::env::args().count())) }";
    std::fs::write(dir.path().join("r.rs"), rust).unwrap();
    for command in [
        "gcc -o p point.c",
        "gcc -no-pie -Wl,-z,noseparate-code -Wl,-z,max-page-size=4096 -o p point.c",
        "rustc -o p r.rs",
    ] {
        run(dir.path(), command);
        let data = std::fs::read(dir.path().join("p")).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let segments: Vec<_> = (file.segments().map(|s| (s.address(), s.file_range()))).collect();
        let m = Arc::new(Module::parse("p", data.clone(), &DebugPaths::none()).unwrap());
        let bias = 0x5555_0000_0000;
        let mut space = Space::new();
        for (address, (offset, len)) in &segments {
            let (start, end) = (address & !0xfff, (address + len).next_multiple_of(4096));
            assert!(space.map(&m, start + bias, end - start, offset & !0xfff));
        }
        assert_eq!(space.mappings().len(), segments.len());
        let biases: Vec<u64> = space.mappings().iter().map(|m| m.bias).collect();
        assert!(biases.iter().all(|b| *b == bias), "{command}: {biases:x?}");
        // The part with the code alone: the other parts do not help.
        let main = m.find("main")[0].addr;
        let (address, (offset, len)) = segments.iter().rfind(|s| s.0 <= main).unwrap();
        let (start, end) = (address & !0xfff, (address + len).next_multiple_of(4096));
        let mut space = Space::new();
        assert!(space.map(&m, start + bias, end - start, offset & !0xfff));
        let place = space.location(main + bias).unwrap();
        assert_eq!(place.addr, main, "{command}: {place}");
    }
}

/// A damaged file gives an error, or fewer symbols.
#[test]
fn damaged_files() {
    let dir = tempfile::tempdir().unwrap();
    let data = compile(dir.path(), "a", "-O1");
    let good = Module::parse("a", data.clone(), &DebugPaths::none()).unwrap();
    let area = good.find("area")[0].addr;
    let mut seed = 1u64;
    let mut parsed = 0;
    for round in 0..400 {
        let mut bad = data.clone();
        for _ in 0..=round % 20 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (seed >> 33) as usize % bad.len();
            bad[at] = (seed >> 20) as u8;
        }
        if round % 5 == 0 {
            bad.truncate((seed >> 30) as usize % data.len());
        }
        let Ok(m) = Module::parse("a", bad, &DebugPaths::none()) else {
            continue;
        };
        parsed += 1;
        m.frames(area);
        m.find("area");
        m.addresses_of_line("point.c", 11);
        let _ = m.signature(area);
        m.globals_called("area");
        let registers = Registers {
            rip: area,
            ..Default::default()
        };
        let _ = m.variables(&registers, None, 0, &mut |_| Some(0));
        let mut space = Space::new();
        let m = Arc::new(m);
        space.map(&m, 0x1000, 0x1000, 0x1000);
        space.backtrace(&at(0x1100, 0x9000), &mut |_| Some(0x1104), 10);
    }
    assert!(parsed > 50, "{parsed}");
}
