//! `hindsight maps`, compared with what the program itself read in `/proc/self/maps`.

use hindsight_lab::Scene;
use serde_json::Value;
use std::path::Path;

/// A line of `maps` without device and inode: start, end, rights, offset, name.
type Line = (u64, u64, String, u64, String);

fn parse(text: &str) -> Vec<Line> {
    let hex = |t: &str| u64::from_str_radix(t, 16).unwrap();
    let one = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let name = words.get(5..).unwrap_or_default().join(" ");
        let rights = words[1].to_string();
        (hex(start), hex(end), rights, hex(words[2]), name)
    };
    let all = text.lines().map(one);
    all.filter(|l| l.4 != "[vsyscall]").collect()
}

/// The stack's first address is left out.
fn but_stack(lines: &[Line]) -> Vec<Line> {
    let mut lines = lines.to_vec();
    let stack = lines.iter_mut().find(|l| l.4 == "[stack]").unwrap();
    stack.0 = 0;
    lines
}

fn says(s: &Scene, trace: &Path, words: &[&str]) -> String {
    let done = s.run(s.hindsight(&["maps"]).arg(trace).args(words));
    assert!(done.status.success(), "{words:?}: {}", done.messages());
    done.text()
}

#[test]
fn mappings_are_those_that_the_program_sees() {
    let s = Scene::new();
    let program = s.compile("mappings.c", &["-g", "-O0"]);
    for depth in [&[][..], &["1000"]] {
        let argv: Vec<_> = std::iter::once(program.as_os_str())
            .chain(depth.iter().map(AsRef::as_ref))
            .collect();
        let (done, trace) = s.record(&argv);
        assert!(done.status.success(), "{}", done.messages());
        let shown = done.text();
        let (before, after) = shown.split_once("\n\n").unwrap();
        for (place, seen) in [("syscall:getppid", before), ("end", after.trim_end())] {
            let (text, seen) = (says(&s, &trace, &[place]), parse(seen));
            let told = parse(&text);
            assert_eq!(but_stack(&told), but_stack(&seen), "{depth:?} {place}");
            // The program used more of its stack before.
            let start = |l: &[Line]| l.iter().find(|l| l.4 == "[stack]").unwrap().0;
            let (told, seen) = (start(&told), start(&seen));
            assert!(seen <= told, "{place}: {told:#x} {seen:#x}");
            assert!(!depth.is_empty() || seen == told, "{place}: {told:#x}");
        }
    }
}

#[test]
fn one_mapping_is_found_by_an_address() {
    let s = Scene::new();
    let program = s.compile("mappings.c", &["-g", "-O0"]);
    let (done, trace) = s.record(&[program.as_os_str()]);
    assert!(done.status.success(), "{}", done.messages());
    let find = |address: &str| says(&s, &trace, &["syscall:getppid", "--address", address]);
    // Device and inode of a file are not known. Memory without a file has none.
    let path = program.to_str().unwrap();
    let global = find("&counter");
    assert_eq!(global.lines().count(), 1, "{global}");
    assert!(global.contains(" ?     ? "), "{global}");
    assert!(global.trim_end().ends_with(path), "{global}");
    let stack = find("$rsp");
    assert!(stack.contains(" rw-p 00000000 00:00 0 "), "{stack}");
    assert!(stack.contains("[stack]"), "{stack}");

    let json = |words: &[&str]| -> Value {
        let words = [&["syscall:getppid", "--json"], words].concat();
        serde_json::from_str(&says(&s, &trace, &words)).unwrap()
    };
    let all = json(&[]);
    let all = all["mappings"].as_array().unwrap();
    let text = says(&s, &trace, &["syscall:getppid"]);
    assert_eq!(all.len(), text.lines().count());
    for m in all {
        // Both ends: the first address is in it, the end is not.
        let one = json(&["--address", m["start"].as_str().unwrap()]);
        assert_eq!(one["mappings"].as_array().unwrap(), std::slice::from_ref(m));
        let of_file = m["rights"].as_str().unwrap().ends_with('s')
            || m["path"].as_str().unwrap().starts_with('/');
        assert_eq!(m["inode"].is_null(), of_file, "{m}");
    }
    let end = all.last().unwrap()["end"].as_str().unwrap();
    let mut none = s.hindsight(&["maps", "--json", "--address", end]);
    let none = s.run(none.arg(&trace));
    assert_eq!(none.status.code(), Some(2), "{}", none.text());
    assert!(none.text().is_empty());
    let said = none.messages();
    assert!(said.contains("no mapping is known that has 0x"), "{said}");
}

/// Threads and a child, which both end the quiet regime, get memory. All prints what is mapped then.
const THREADS_AND_A_CHILD: &str = r#"
import os, threading
mine = [bytearray(10 << 20)]
def run(): mine.append(bytearray(20 << 20)); all.wait()
all = threading.Barrier(5)
threads = [threading.Thread(target=run) for _ in range(4)]
for t in threads: t.start()
all.wait()
print(open("/proc/self/maps").read(), flush=True)
for t in threads: t.join()
child = os.fork()
if child == 0:
    mine.append(bytearray(30 << 20))
    print(open("/proc/self/maps").read(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"#;

/// Where the program leaves addresses open, the recorder keeps their low 32 bits apart in both regimes. The kernel's own mappings
/// are where the kernel puts them. In the checked regime these meet the program's now and then, so one of three runs has to do.
#[test]
fn memory_of_threads_and_children_has_low_bits_of_its_own() {
    let s = Scene::new();
    for regime in ["quiet", "checked"] {
        let tries = if regime == "quiet" { 1 } else { 3 };
        let found: Vec<_> = (0..tries).map_while(|_| collision(&s, regime)).collect();
        assert!(found.len() < tries, "{regime}: {found:#?}");
    }
}

/// Two mappings of the program that share low bits, in a recording in a regime.
fn collision(s: &Scene, regime: &str) -> Option<String> {
    let low = |at: u64| at % (1 << 32);
    let mut command = s.hindsight(&["record", "--quiet", "--regime", regime, "-o"]);
    command.arg(s.path("trace.hst")).arg("--");
    let done = s.run(command.args(["/usr/bin/python3", "-c", THREADS_AND_A_CHILD]));
    assert!(done.status.success(), "{}", done.messages());
    let text = done.text();
    let lists: Vec<&str> = text.split("\n\n").filter(|l| !l.is_empty()).collect();
    assert_eq!(lists.len(), 2, "{text}");
    for list in lists {
        let mut all = parse(list);
        all.retain(|l| l.2 != "---p" && !l.4.starts_with("[v") && l.4 != "[stack]");
        assert!(all.iter().any(|l| l.1 - l.0 >= 10 << 20), "{list}");
        all.sort_by_key(|l| low(l.0));
        for pair in all.windows(2) {
            let len = pair[0].1 - pair[0].0;
            let room = low(pair[1].0) - low(pair[0].0);
            if len > room {
                return Some(format!("{pair:x?}\n{list}"));
            }
        }
    }
    None
}
