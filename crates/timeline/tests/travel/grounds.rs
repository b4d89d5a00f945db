//! Memory that was not accessed before, memory for which threads race, and memory of forked processes.

use hindsight_lab::{Scene, hex};
use hindsight_timeline::{Direction, Filter, Ground, Kind, KindOf, Options, Scope, Timeline};

fn record(s: &Scene, source: &str, name: &str) -> Timeline {
    // Most of these tests need what is not known. In the quiet regime more is known.
    record_in("checked", s, source, name)
}

fn record_in(regime: &str, s: &Scene, source: &str, name: &str) -> Timeline {
    let file = s.path(&format!("{name}.c"));
    std::fs::write(&file, source).unwrap();
    let program = s.path(name);
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O0", "-w", "-pthread", "-o"])
        .arg(&program)
        .arg(&file);
    assert!(gcc.status().unwrap().success());
    let trace = s.path(&format!("{name}.hst"));
    // Much of what the kernel writes is not to be recorded either.
    let mut command = s.hindsight(&["record", "--quiet", "--data-limit", "4096"]);
    command.args(["--regime", regime, "-o"]);
    let run = s.run(command.arg(&trace).arg("--").arg(&program));
    assert!(run.status.success(), "{}", run.messages());
    Timeline::open(&trace, Options::default()).unwrap()
}

/// The calls of `close` that programs make to tell addresses: events and arguments.
fn calls(t: &Timeline) -> Vec<(hindsight_timeline::Happening, [u64; 6])> {
    let filter = Filter {
        kinds: vec![KindOf::Syscall],
        syscalls: vec![3],
        ..Filter::default()
    };
    let list = t.events(&filter).unwrap().into_iter();
    let said = list.filter_map(|h| match h.kind {
        Kind::Syscall { args, .. } if args[0] as i32 == -77 => Some((h, args)),
        _ => None,
    });
    said.collect()
}

#[test]
fn what_is_read_later_and_what_files_say() {
    let s = Scene::new();
    let t = record(
        &s,
        r#"
        #include <unistd.h>
        #include <sys/syscall.h>
        static const char fixed[64] = "never read by anybody";
        static char later[8000], unseen[4096];
        int main() {
            int p[2];
            pipe(p);
            char long_one[8000];
            for (int i = 0; i < 8000; i++)
                long_one[i] = i % 100;
            write(p[1], long_one, 8000);
            read(p[0], later, 8000);
            syscall(SYS_close, -77, fixed, later, unseen);
            volatile int wait = 3;
            volatile char *l = later;
            return l[5042] == 42 ? 0 : 1;
        }"#,
        "later",
    );
    let (h, args) = calls(&t)[0].clone();
    let mut c = t.cursor().unwrap();
    // The instant after the call.
    c.seek_count(h.thread, h.count + 1).unwrap();
    let fixed = c.memory(args[1], 21).unwrap();
    assert_eq!(fixed.whole().unwrap(), b"never read by anybody");
    assert!(
        fixed
            .bytes
            .iter()
            .all(|b| b.unwrap().ground == Ground::Module)
    );
    // What the kernel wrote is recorded up to a limit. Beyond the limit it shows when it is read.
    let byte = |c: &mut hindsight_timeline::Cursor, i: u64| {
        let m = c.memory(args[2] + i, 1).unwrap();
        m.bytes[0].map(|b| (b.value, b.ground))
    };
    assert_eq!(byte(&mut c, 142), Some((42, Ground::Read)));
    assert_eq!(byte(&mut c, 5042), Some((42, Ground::Exposed)));
    assert_eq!(byte(&mut c, 6000), None);
    // Nobody has changed this since the program was loaded.
    let unseen = c.memory(args[3] + 1000, 8).unwrap();
    assert_eq!(unseen.whole().unwrap(), [0; 8]);
    let what_it_is = unseen.bytes[0].unwrap().ground;
    assert_eq!(what_it_is, Ground::Fresh);
    // Before the call, the bytes that it wrote are not known, unless somebody read them.
    c.seek_count(h.thread, h.count).unwrap();
    assert_eq!(byte(&mut c, 142), Some((42, Ground::Read)));
    assert_eq!(byte(&mut c, 5042), None);
}

#[test]
fn the_quiet_regime_knows_what_was_never_accessed() {
    let s = Scene::new();
    let t = record_in(
        "quiet",
        &s,
        r#"
        #include <fcntl.h>
        #include <unistd.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        static char initial[64] = "initial";
        static char unseen[65536];
        int main() {
            long anon = MAP_PRIVATE | MAP_ANONYMOUS;
            char *fresh = mmap(0, 8192, PROT_READ | PROT_WRITE, anon, -1, 0);
            char *again = mmap(0, 8192, PROT_READ | PROT_WRITE, anon, -1, 0);
            again[9] = 'x';
            int zero = open("/dev/zero", O_RDONLY);
            read(zero, fresh + 100, 3);
            mmap(again, 8192, PROT_READ | PROT_WRITE, anon | MAP_FIXED, -1, 0);
            again[10] = 'y';
            syscall(SYS_close, -77, initial, unseen, fresh, again);
            munmap(fresh, 8192);
            syscall(SYS_close, -77, initial, unseen, fresh, again);
            return 0;
        }"#,
        "fresh",
    );
    let list = calls(&t);
    let mut c = t.cursor().unwrap();
    c.seek(list[0].0.position).unwrap();
    let args = list[0].1;
    let look = |c: &mut hindsight_timeline::Cursor, at: u64, len: usize, ground: Ground| {
        let m = c.memory(at, len).unwrap();
        assert!(
            m.bytes
                .iter()
                .all(|b| b.is_some_and(|b| b.ground == ground)),
            "{m:?}"
        );
        m.whole().unwrap()
    };
    assert_eq!(look(&mut c, args[1], 8, Ground::Module), b"initial\0");
    assert_eq!(look(&mut c, args[2] + 32768, 64, Ground::Fresh), [0; 64]);
    assert_eq!(look(&mut c, args[3] + 4096, 9, Ground::Fresh), [0; 9]);
    // What the kernel wrote.
    assert_eq!(look(&mut c, args[3] + 100, 3, Ground::Read), [0; 3]);
    // The bytes from before the new mapping are gone. Bytes that were written since are there.
    let gone = c.memory(args[4] + 9, 1).unwrap().bytes[0];
    assert!(gone.is_none_or(|b| b.value == 0), "{gone:?}");
    assert_eq!(look(&mut c, args[4] + 10, 1, Ground::Written), b"y");
    // Unmapped memory has no value.
    c.seek(list[1].0.position).unwrap();
    assert_eq!(c.memory(args[3] + 4096, 9).unwrap().bytes, [None; 9]);
}

#[test]
fn nothing_is_known_of_the_ends_of_the_address_space() {
    let s = Scene::new();
    let t = record(&s, "int main() { return 0; }", "ends");
    let mut c = t.cursor().unwrap();
    c.seek(t.range().unwrap().1).unwrap();
    for address in [0, 1, u64::MAX, u64::MAX - 7, u64::MAX - 15, u64::MAX - 8191] {
        for len in [1, 8, 64, 4096] {
            let all = [
                c.memory(address, len).unwrap(),
                c.known_memory(address, len).unwrap(),
            ];
            for m in all {
                assert_eq!(m.bytes, vec![None; len], "{len} at {address:#x}");
            }
        }
    }
}

#[test]
fn what_a_program_begins_with_is_known_at_its_first_instant() {
    let s = Scene::new();
    let source =
        "int data[3000] = { 7 }; int zeros[3000]; int main() { return data[0] + zeros[0] - 7; }";
    for regime in ["quiet", "checked"] {
        let t = record_in(regime, &s, source, regime);
        let mut c = t.cursor().unwrap();
        let rsp = c.registers().unwrap().gpr[4];
        // The number of arguments.
        let stack = c.memory(rsp, 8).unwrap().whole();
        assert_eq!(stack, Some(1u64.to_le_bytes().to_vec()), "{regime}");
        // After an instruction that writes nothing, the known bytes must be the same.
        let m = c.memory(rsp - 64, 4096).unwrap();
        c.step(Direction::Forward, Scope::Thread).unwrap();
        let after = c.memory(rsp - 64, 4096).unwrap();
        for (a, b) in m.bytes.iter().zip(&after.bytes) {
            if let (Some(a), Some(b)) = (a, b) {
                assert_eq!(a.value, b.value);
            }
        }
    }
}

#[test]
fn races_show_candidates_and_order_shows_the_last_writer() {
    let s = Scene::new();
    let t = record(
        &s,
        r#"
        #include <pthread.h>
        #include <unistd.h>
        #include <sys/syscall.h>
        static volatile long raced, ordered, ready, go;
        static void *other(void *x) {
            ready = 1;
            while (!go);
            ordered = 5;
            for (int i = 0; i < 200000; i++) raced = 1000 + i;
            return 0;
        }
        int main() {
            pthread_t a;
            ordered = 4;
            pthread_create(&a, 0, other, 0);
            go = 1;
            while (!ready);
            for (int i = 0; i < 200000; i++) raced = i;
            pthread_join(a, 0);
            raced;
            syscall(SYS_close, -77, &raced, &ordered);
            return 0;
        }"#,
        "race",
    );
    let (h, args) = calls(&t)[0].clone();
    let mut c = t.cursor().unwrap();
    c.seek(h.position).unwrap();
    // After the join, the order is known.
    let m = c.memory(args[2], 8).unwrap();
    assert_eq!(m.whole().unwrap(), 5u64.to_le_bytes());
    assert!(m.candidates.is_empty() && m.unnamed.is_empty(), "{m:?}");
    let w = c.last_write(args[2], 8).unwrap().unwrap();
    assert_ne!(w.thread, h.thread);
    // In the middle of the other thread's loop, it is not.
    let threads = t.threads().unwrap();
    let other = threads.iter().find(|x| x.id == w.thread).unwrap();
    c.seek_count(other.id, w.count + 1000).unwrap();
    let m = c.memory(args[1], 8).unwrap();
    let longest = t
        .segments(h.thread)
        .unwrap()
        .max_by_key(|s| s.to - s.from)
        .unwrap();
    let mine = t.segment(other.id, w.count + 1000).unwrap();
    assert!(
        !longest.before(&mine) && !mine.before(&longest),
        "both loops ran at the same time: {longest:?} {mine:?}"
    );
    assert!(!m.candidates.is_empty(), "{m:?}");
    assert_eq!(m.candidates[0].thread, h.thread);
    // Four of its values are candidates. It is also said that it wrote others.
    assert!(m.candidates.iter().filter(|c| c.thread == h.thread).count() <= 4);
    let others = m.unnamed.iter().filter(|u| u.thread == h.thread);
    let others: Vec<(u64, u64)> = others.map(|u| (u.address, u.len)).collect();
    assert_eq!(others, [(args[1], 8)]);
    let place = format!("{}", c.position().unwrap());
    let ask = |json: &[&str]| {
        let mut mem = s.hindsight(&["mem"]);
        mem.args(json).arg(s.path("race.hst")).arg(&place);
        s.run(mem.args([args[1].to_string().as_str(), "8"]))
    };
    let text = String::from_utf8(ask(&[]).stdout).unwrap();
    assert!(text.contains("may have written other values too"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&ask(&["--json"]).stdout).unwrap();
    assert_eq!(hex(&json["unnamed"][0]["address"]), Some(args[1]), "{json}");
}

#[test]
fn a_forked_process_begins_with_its_parents_memory() {
    let s = Scene::new();
    let t = record(
        &s,
        r#"
        #include <unistd.h>
        #include <sys/wait.h>
        #include <sys/syscall.h>
        static long value, kept;
        int main() {
            value = 11;
            kept = 12;
            if (fork() == 0) {
                value = 21;
                syscall(SYS_close, -77, &value, &kept);
                _exit(0);
            }
            wait(0);
            return 0;
        }"#,
        "fork",
    );
    let (h, args) = calls(&t)[0].clone();
    let mut c = t.cursor().unwrap();
    c.seek(h.position).unwrap();
    assert_eq!(c.image(), 2);
    assert_eq!(
        c.memory(args[1], 8).unwrap().whole().unwrap(),
        21u64.to_le_bytes()
    );
    assert_eq!(
        c.memory(args[2], 8).unwrap().whole().unwrap(),
        12u64.to_le_bytes()
    );
}

#[test]
fn an_address_is_mapped_again_and_again() {
    let s = Scene::new();
    let t = record_in(
        "quiet",
        &s,
        r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int main() {
            char *p = (char *) 0x10000000, text[4096] = "from the file", c;
            int kind = MAP_PRIVATE | MAP_FIXED;
            mmap(p, 8192, 7, kind | MAP_ANONYMOUS, -1, 0);
            strcpy(p, "first");
            close(-77);
            munmap(p, 8192);
            mmap(p, 8192, 7, kind | MAP_ANONYMOUS, -1, 0);
            close(-77);
            strcpy(p, "second");
            // A file that is open for writing ends the quiet regime with its mapping.
            int f = open("file", O_RDWR | O_CREAT, 0600);
            write(f, text, sizeof text);
            close(-77);
            mmap(p, 4096, 7, kind, f, 0);
            close(-77);
            c = *(volatile char *) p;
            close(-77);
            return c != 'f';
        }
        "#,
        "again",
    );
    let mut c = t.cursor().unwrap();
    let said = calls(&t);
    let wanted = [&b"first\0"[..], &[0; 6], b"second", b"from t", b"from t"];
    assert_eq!(said.len(), wanted.len());
    for (i, ((h, _), wanted)) in said.iter().zip(wanted).enumerate() {
        c.seek(h.position).unwrap();
        let bytes = c.memory(0x10000000, 6).unwrap();
        let known: Vec<u8> = bytes.prefix();
        assert_eq!(known, wanted[..known.len()], "at {i}");
        assert!(known.len() == 6 || i == 3, "at {i}: {known:?}");
        let maps = t.mappings(c.image(), h.position).unwrap();
        let there = maps.iter().find(|m| m.start == 0x10000000).unwrap();
        assert_eq!(there.path.is_empty(), i < 3, "at {i}: {}", there.path);
    }
}

#[test]
fn a_later_mapping_is_not_taken_for_what_another_call_did() {
    let s = Scene::new();
    let t = record_in(
        "quiet",
        &s,
        r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        static int make(const char *name, char what) {
            char text[8192];
            int f = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
            memset(text, what, sizeof text);
            write(f, text, sizeof text);
            close(f);
            return open(name, O_RDONLY);
        }
        int main() {
            int a = make("a", 'A'), b = make("b", 'B'), kind = MAP_PRIVATE | MAP_FIXED;
            char *p = (char *) 0x10000000, *from = (char *) 0x20000000, *to = (char *) 0x40000000, *m = (char *) 0x30000000;
            mmap(p, 8192, 7, kind, a, 0);
            mprotect(p, 8192, 5);
            close(-77);
            mmap(p, 8192, 5, kind, b, 0);
            close(-77);
            // What is between the two places of a mapping that is moved.
            mmap(from, 8192, 3, kind | MAP_ANONYMOUS, -1, 0);
            mmap(m, 8192, 5, kind, a, 0);
            mremap(from, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            close(-77);
            mmap(m, 8192, 5, kind, b, 0);
            close(-77);
            return 0;
        }
        "#,
        "later",
    );
    let mut c = t.cursor().unwrap();
    let said = calls(&t);
    let wanted = [
        (0x10000000, b'A'),
        (0x10000000, b'B'),
        (0x30000000, b'A'),
        (0x30000000, b'B'),
    ];
    assert_eq!(said.len(), wanted.len());
    for ((h, _), (address, what)) in said.iter().zip(wanted) {
        c.seek(h.position).unwrap();
        let known: Vec<u8> = c.memory(address, 16).unwrap().prefix();
        assert_eq!(known, [what; 16], "{address:#x} at {}", h.position);
    }
}

/// What the kernel wrote while memory was told, in a program that later maps memory whose addresses have the same low 32
/// bits.
#[test]
fn what_was_told_stays_known_where_addresses_share_their_low_bits() {
    let s = Scene::new();
    let t = record_in(
        "quiet",
        &s,
        r#"
        #define _GNU_SOURCE
        #include <stdint.h>
        #include <string.h>
        #include <unistd.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        static char *alike(char *p, size_t size) {
            for (uint64_t n = 1; n < 200; n++) {
                char *far = mmap((char *)((uintptr_t)p & ~4095ul) - (n << 32), size, 3,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                if (far != MAP_FAILED)
                    return far;
            }
            _exit(1);
        }
        int main(int n, char **arguments) {
            char *told = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            told[0] = 1;
            int p[2];
            pipe(p);
            write(p[1], "from the kernel", 16);
            read(p[0], told + 64, 16);
            syscall(SYS_close, -77, told + 64, arguments[0]);
            char *far = alike(told, 4096), *above = alike(arguments[0], 4096);
            memset(far, 'x', 4096);
            memset(above, 'y', 4096);
            syscall(SYS_close, -77, told + 64, arguments[0]);
            return 0;
        }
        "#,
        "low",
    );
    let left =
        |h: &hindsight_timeline::Happening| matches!(&h.kind, Kind::Regime { quiet: false, .. });
    let regimes = t.events(&Filter::default()).unwrap();
    assert!(regimes.iter().any(left), "{regimes:?}");
    let name = s.path("low").to_str().unwrap().as_bytes()[..8].to_vec();
    for (h, args) in calls(&t) {
        let mut c = t.cursor().unwrap();
        c.seek_count(h.thread, h.count).unwrap();
        let bytes = |c: &mut hindsight_timeline::Cursor, at| -> Vec<Option<u8>> {
            let m = c.memory(at, 8).unwrap();
            m.bytes.iter().map(|b| b.map(|b| b.value)).collect()
        };
        let some = |b: &[u8]| b.iter().map(|b| Some(*b)).collect::<Vec<_>>();
        assert_eq!(bytes(&mut c, args[1]), some(b"from the"), "{h:?}");
        assert_eq!(bytes(&mut c, args[2]), some(&name), "{h:?}");
    }
}

/// What nobody accessed, in a program whose threads access memory with the same low 32 bits.
#[test]
fn what_no_thread_accessed_is_known_where_addresses_share_their_low_bits() {
    let s = Scene::new();
    let t = record(
        &s,
        r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <stdint.h>
        #include <string.h>
        #include <unistd.h>
        #include <sys/mman.h>
        #include <sys/syscall.h>
        static char *fresh, *far;
        static const char constant[4096] __attribute__((aligned(4096))) = "from the file";
        static char *alike(const char *p, size_t size) {
            for (uint64_t n = 1; n < 200; n++) {
                char *at = mmap((char *)((uintptr_t)p - (n << 32)), size, 3,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                if (at != MAP_FAILED)
                    return at;
            }
            _exit(1);
        }
        static void *run(void *n) {
            // One of them has written far memory, the other one near memory.
            if (n) memset(far, 'x', 64); else memset(fresh + 64, 'z', 64);
            return n;
        }
        int main(void) {
            fresh = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            far = alike(fresh, 4096);
            char *high = alike(constant, 4096);
            memset(high, 'y', 4096);
            pthread_t t[2];
            for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, run, (void *) i);
            for (long i = 0; i < 2; i++) pthread_join(t[i], 0);
            syscall(SYS_close, -77, fresh, constant, far);
            return 0;
        }
        "#,
        "alike",
    );
    let (h, args) = calls(&t).remove(0);
    let mut c = t.cursor().unwrap();
    c.seek_count(h.thread, h.count).unwrap();
    let mut is = |at: u64, want: [u8; 8]| {
        let m = c.memory(at, 8).unwrap();
        let known: Vec<Option<u8>> = m.bytes.iter().map(|b| b.map(|b| b.value)).collect();
        assert_eq!(known, want.map(Some), "{at:#x} at {}", h.position);
    };
    is(args[1], [0; 8]);
    is(args[1] + 64, [b'z'; 8]);
    is(args[1] + 128, [0; 8]);
    is(args[2], *b"from the");
    is(args[3], [b'x'; 8]);
    is(args[3] + 64, [0; 8]);
}

/// The quiet regime ends before all that the program begins with is told, since a descriptor lets the kernel write to memory in ways
/// that are not known. What was not told is not taken for zeros.
#[test]
fn what_the_beginning_did_not_tell_is_not_known() {
    const DIRECT: &str = "
import os, sys
try: fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
except OSError: sys.exit(77)
os.set_inheritable(fd, True)
os.execv(sys.argv[2], sys.argv[2:])
";
    let s = Scene::new();
    let source = r#"
        #include <string.h>
        #include <unistd.h>
        #include <sys/syscall.h>
        int main(int n, char **arguments) {
            // Far from what looks for the ends of texts.
            syscall(SYS_close, -77, arguments[1] + 400, arguments[0]);
            return 0;
        }
    "#;
    let usual = record_in("quiet", &s, source, "begins");
    assert_eq!(calls(&usual).len(), 1);
    let argument = "letters.".repeat(100);
    let (program, trace) = (s.path("begins"), s.path("direct.hst"));
    let mut command = s.command("/usr/bin/python3");
    command.args(["-c", DIRECT]).arg(s.path("begins.c"));
    command.arg(s.hindsight::<&str>(&[]).get_program());
    command
        .args(["record", "--quiet", "-o"])
        .arg(&trace)
        .arg("--");
    let run = s.run(command.arg(&program).arg(&argument));
    if run.status.code() == Some(77) {
        eprintln!("not tried: this file system has no direct access");
        return;
    }
    assert!(run.status.success(), "{}", run.messages());
    let t = Timeline::open(&trace, Options::default()).unwrap();
    let left =
        |h: &hindsight_timeline::Happening| matches!(&h.kind, Kind::Regime { quiet: false, .. });
    let regimes = t.events(&Filter::default()).unwrap();
    assert!(regimes.iter().any(left), "{regimes:?}");
    let (h, args) = calls(&t).remove(0);
    let mut c = t.cursor().unwrap();
    c.seek_count(h.thread, h.count).unwrap();
    let m = c.memory(args[1], 8).unwrap();
    for (b, want) in m.bytes.iter().zip(b"letters.") {
        assert!(b.is_none_or(|b| b.value == *want), "{:?}", m.bytes);
    }
}
