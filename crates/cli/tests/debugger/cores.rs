//! `hindsight core`: core dumps, as gdb reads them, compared with what the recording says.

use crate::common::{compile, expect, record};
use hindsight_lab::{Scene, hex};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const CRASH: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
long table[4] = { 11, 22, 33, 44 };
static int deep(int n, int *p) { int here = n * 3; if (n == 0) { *p = here; return 0; } return deep(n - 1, p) + here; }
int main(void) {
    char *heap = malloc(100);
    strcpy(heap, "on the heap");
    table[2] = 77;
    double half = 0.5;
    write(1, heap, 3);
    table[3] = half * 10;
    return deep(3, (int *) 0x18);
}
"#;

const TWO: &str = r#"
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
int ready; int shared = 5; char *both;
static void *waits(void *p) { int mine = 42; both[100] = mine; __atomic_exchange_n(&ready, 1, 5); for (;;) pause(); return p + mine; }
int main(void) {
    pthread_t t;
    both = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    both[4096] = 9;
    pthread_create(&t, 0, waits, 0);
    while (!__atomic_fetch_add(&ready, 0, 5)) usleep(1000);
    shared = 6;
    __builtin_trap();
}
"#;

/// Has a block that nobody touches while it is recorded. Of a process with one thread the recorder may state all memory.
const FOREVER: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char *block, used[64] = "x";
static void *waits(void *p) { for (;;) pause(); }
int main(void) {
    pthread_t t;
    block = memset(malloc(64), 'u', 64);
    pthread_create(&t, 0, waits, 0);
    puts("began");
    fflush(stdout);
    for (;;) { used[7] += block ? 1 : 2; usleep(1000); }
}
"#;

/// Makes a core dump of a place.
fn core(s: &Scene, trace: &Path, place: &[&str]) -> PathBuf {
    let out = s.path("made.core");
    let _ = std::fs::remove_file(&out);
    let done = s.run((s.hindsight(&["core", "-o"]).arg(&out).arg(trace)).args(place));
    assert!(done.status.success(), "{}", done.messages());
    out
}

/// What gdb prints for these commands, with a core dump and perhaps the program.
fn gdb(s: &Scene, files: &[&Path], script: &str) -> String {
    let file = s.path("core.gdb");
    std::fs::write(&file, script).unwrap();
    let mut command = s.command("sh");
    let options = [
        "-nx",
        "-q",
        "-iex",
        "set debuginfod enabled off",
        "-ex",
        "set width 0",
    ];
    command
        .args(["-c", "exec gdb \"$@\" 2>&1", "sh"])
        .args(options);
    let files = files.iter().map(|f| f.as_os_str());
    let mut all: Vec<&OsStr> = files.collect();
    if all.len() == 1 {
        all.insert(0, OsStr::new("-c"));
    }
    command.args(all).stdin(File::open(&file).unwrap());
    s.run(&mut command).text()
}

/// The last number that gdb printed in hexadecimal.
fn printed(out: &str) -> u64 {
    let last = out.split("= 0x").last().unwrap();
    u64::from_str_radix(last.split_whitespace().next().unwrap(), 16).unwrap()
}

/// The answer of a command for scripts.
fn json(s: &Scene, command: &str, trace: &Path, words: &[&str]) -> Value {
    let done = s.run(s.hindsight(&[command, "--json"]).arg(trace).args(words));
    assert!(done.status.success(), "{}", done.messages());
    serde_json::from_slice(&done.stdout).unwrap()
}

/// A core dump, read by its format's definition.
struct Dump {
    bytes: Vec<u8>,
    /// Kind, offset, address, length in the file and in memory.
    segments: Vec<[u64; 5]>,
}

impl Dump {
    fn read(path: &Path) -> Dump {
        let bytes = std::fs::read(path).unwrap();
        let n = |at: usize, len: usize| number(&bytes[at..at + len]);
        assert_eq!((&bytes[..4], n(16, 2)), (b"\x7fELF".as_slice(), 4));
        let (table, count) = (n(32, 8) as usize, n(56, 2) as usize);
        let one = |i: usize| {
            let at = table + 56 * i;
            [
                n(at, 4),
                n(at + 8, 8),
                n(at + 16, 8),
                n(at + 32, 8),
                n(at + 40, 8),
            ]
        };
        let segments = (0..count).map(one).collect();
        Dump { bytes, segments }
    }

    /// The byte at an address, if the dump has it.
    fn byte(&self, address: u64) -> Option<u8> {
        let load = self.segments.iter().filter(|s| s[0] == 1);
        let mut here = load.filter(|s| s[2] <= address && address - s[2] < s[4]);
        let s = here.next()?;
        assert_eq!(s[3], s[4], "debuggers would show zeros");
        assert!(here.next().is_none(), "{address:#x} is there twice");
        Some(self.bytes[(s[1] + address - s[2]) as usize])
    }

    /// Kinds and contents of the notes.
    fn notes(&self) -> Vec<(u64, &[u8])> {
        let note = self.segments.iter().find(|s| s[0] == 4).unwrap();
        let mut rest = &self.bytes[note[1] as usize..][..note[3] as usize];
        let mut out = Vec::new();
        while !rest.is_empty() {
            let word = |i: usize| number(&rest[4 * i..4 * i + 4]) as usize;
            let (name, len, kind) = (word(0).next_multiple_of(4), word(1), word(2) as u64);
            let content = &rest[12 + name..];
            out.push((kind, &content[..len]));
            rest = &content[len.next_multiple_of(4)..];
        }
        out
    }

    /// The dump must have exactly the bytes that the recording knows.
    fn has_what_is_known(
        &self,
        s: &Scene,
        trace: &Path,
        place: &str,
        address: u64,
        len: u64,
    ) -> usize {
        let words = [place, &format!("{address:#x}"), &len.to_string()];
        let m = json(s, "mem", trace, &words);
        let bytes = m["bytes"].as_array().unwrap();
        for (i, want) in bytes.iter().enumerate() {
            let want = want.as_u64().map(|b| b as u8);
            assert_eq!(self.byte(address + i as u64), want, "{address:#x}+{i}");
        }
        bytes.iter().filter(|b| b.is_null()).count()
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// The general registers that a note has must be those of `at`.
fn same_registers(status: &[u8], at: &Value) {
    let names =
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi - rip - - rsp - fs_base gs_base";
    for (i, name) in names.split(' ').enumerate().filter(|(_, n)| *n != "-") {
        let at = hex(&at["registers"][name]).unwrap();
        assert_eq!(number(&status[112 + 8 * i..][..8]), at, "{name}");
    }
}

#[test]
fn a_core_of_a_crash_is_read_by_gdb() {
    let s = Scene::new();
    let trace = record(&s, CRASH, &[]);
    let core = core(&s, &trace, &[]);
    let program = s.path("program");
    assert_eq!(core.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let out = gdb(
        &s,
        &[&program, &core],
        "print $_siginfo.si_signo\nprint $_siginfo._sifields._sigfault.si_addr\nbacktrace\nprint table\n\
         frame 4\nprint heap\nprint half\nprint $xmm0.v2_double[0] + 1\ninfo sharedlibrary\nx/1xb 0x18\n",
    );
    expect(
        &out,
        &[
            "terminated with signal SIGSEGV",
            "deep (n=0, p=0x18)",
            "$1 = 11",
            "$2 = (void *) 0x18",
            "#0 ",
            "deep (n=0, p=0x18)",
            "#3 ",
            "deep (n=3, p=0x18)",
            "main ()",
            "{11, 22, 77, 5}",
            "\"on the heap\"",
            "= 0.5",
            "libc.so",
            "Cannot access memory",
        ],
    );
    assert!(!out.contains("may not match"), "{out}");

    let dump = Dump::read(&core);
    let at = json(&s, "at", &trace, &["crash"]);
    let notes = dump.notes();
    let of = |kind| notes.iter().find(|n| n.0 == kind).unwrap().1;
    same_registers(of(1), &at);
    // Status, process, signal, auxiliary vector, files, x87 and vectors.
    for (kind, len) in [
        (1, 336),
        (3, 136),
        (0x5349_4749, 128),
        (2, 512),
        (0x202, 2688),
    ] {
        assert_eq!(of(kind).len(), len, "{kind:#x}");
    }
    let base = |name: &str| hex(&at["registers"][name]).unwrap();
    for address in [base("rsp") & !7, base("rip") & !0xfff, base("fs_base")] {
        dump.has_what_is_known(&s, &trace, "crash", address, 4096);
    }
}

#[test]
fn a_core_has_all_threads_and_only_what_is_known() {
    let s = Scene::new();
    // What the loader does at a first call is no part of the thread's stack that all tools can unwind.
    let trace = record(&s, TWO, &["-Wl,-z,now"]);
    let core = core(&s, &trace, &["crash"]);
    let program = s.path("program");
    let script = "info threads\nthread apply all backtrace\nprint shared\nprint both[100]\nprint both[4096]\n\
                  print/x (long) both\n";
    let out = gdb(&s, &[&program, &core], script);
    expect(&out, &["SIGILL", "main ()", "* 1", "2 "]);
    // The thread of the place comes first, and the other waits.
    expect(
        &out,
        &["Thread 2 ", "waits (p=0x0)", "Thread 1 ", "main ()"],
    );
    expect(&out, &["= 6", "= 42", "= 9"]);
    let dump = Dump::read(&core);
    let threads = dump.notes().iter().filter(|n| n.0 == 1).count();
    assert_eq!(threads, 2);
    let both = printed(&out);
    dump.has_what_is_known(&s, &trace, "crash", both, 8192);
    let at = json(&s, "at", &trace, &["crash"]);
    same_registers(dump.notes()[0].1, &at);
    let rsp = hex(&at["registers"]["rsp"]).unwrap();
    dump.has_what_is_known(&s, &trace, "crash", rsp & !0xfff, 4096);
}

#[test]
fn a_core_is_made_in_the_middle_and_without_debug_information() {
    let s = Scene::new();
    let program = compile(&s, "program", CRASH, &["-s"]);
    let trace = s.record(&[&program]).1;
    for place in ["begin", "syscall:write", "50%"] {
        let core = core(&s, &trace, &[place]);
        let at = json(&s, "at", &trace, &[place]);
        let dump = Dump::read(&core);
        same_registers(dump.notes()[0].1, &at);
        assert!(
            dump.notes().iter().all(|n| n.0 != 0x5349_4749),
            "{place}: no signal"
        );
        let rip = at["registers"]["rip"].as_str().unwrap().to_string();
        let show = "print/x (long) $rip\nx/2i $rip\nbacktrace\n";
        // Without the program: its code is in the core.
        let out = gdb(&s, &[&core], show);
        let short = format!(
            "= 0x{}",
            rip.trim_start_matches("0x").trim_start_matches('0')
        );
        expect(&out, &[&short, "=> "]);
        assert!(!out.contains("terminated with signal"), "{out}");
        if place == "syscall:write" {
            let out = gdb(&s, &[&program, &core], show);
            expect(&out, &["#0 ", "write", "#1 "]);
            dump.has_what_is_known(&s, &trace, place, hex(&at["registers"]["rsi"]).unwrap(), 64);
        }
    }
}

#[test]
fn a_core_of_an_attached_recording_leaves_out_what_is_not_known() {
    let s = Scene::new();
    let program = compile(&s, "program", FOREVER, &["-no-pie"]);
    let running = s.start(&mut s.command(&program));
    running.first_line();
    let (trace, pid) = (s.path("attached.hst"), running.id().to_string());
    let mut recording = s.hindsight(&["attach", &pid, "--for", "0.3", "-o"]);
    let done = s.run(recording.arg(&trace));
    assert!(done.status.success(), "{}", done.messages());
    running.signal_group(libc::SIGKILL);
    let core = core(&s, &trace, &["end"]);
    let script = "print (long) block > 0\nprint block[0]\nx/1i main\nprint/x (long) block\n";
    let out = gdb(&s, &[&program, &core], script);
    expect(&out, &["= 1", "Cannot access memory", "<main>"]);
    let dump = Dump::read(&core);
    let at = json(&s, "at", &trace, &["end"]);
    same_registers(dump.notes()[0].1, &at);
    let unknown = dump.has_what_is_known(&s, &trace, "end", printed(&out), 64);
    assert_eq!(unknown, 64);
    dump.has_what_is_known(&s, &trace, "end", 0x40_4000, 4096);
}

#[test]
fn a_core_is_made_whole_or_not_at_all() {
    let s = Scene::new();
    let trace = record(&s, CRASH, &[]);
    let (kept, link, target) = (s.path("kept"), s.path("link"), s.path("target"));
    std::fs::write(&kept, "mine").unwrap();
    symlink(&target, &link).unwrap();
    let fails = |out: &Path, place: &str, why: &str| {
        let done = s.run(s.hindsight(&["core", "-o"]).arg(out).arg(&trace).arg(place));
        assert_eq!(done.status.code(), Some(2));
        assert!(done.messages().contains(why), "{}", done.messages());
    };
    fails(&kept, "crash", "exists");
    fails(&link, "crash", "exists");
    fails(Path::new("-"), "crash", "name a file");
    fails(&s.path("none"), "event:99999", "event:99999");
    assert_eq!(std::fs::read(&kept).unwrap(), b"mine");
    assert!(!target.exists() && !s.path("none").exists());
}
