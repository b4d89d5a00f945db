//! Recordings that were made to waste memory or time. Each command must end, within bounds, with an answer or an error.

mod random;
mod watch;

use hindsight_events::Event;
use hindsight_fuzz::made::*;
use hindsight_trace::chunk::{ChunkHeader, Kind};
use hindsight_trace::{Header, ModuleHash, StreamKind, Summary, Text};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use watch::*;

/// Each command that reads a recording, for a file.
fn commands(file: &Path) -> Vec<Vec<String>> {
    let f = file.to_str().unwrap();
    let all: &[&[&str]] = &[
        &["info", f],
        &["info", "--json", f],
        &["ls"],
        &["events", f],
        &["at", f, "begin"],
        &["at", f, "end"],
        &["at", f, "end", "--assume", "straight"],
        &["backtrace", "--threads", f, "end"],
        &["calls", f, "main"],
        &["mem", f, "end", "0x10000", "64"],
        &["output", f],
        &["output", "--raw", "--fd", "a", f],
        &["data", f],
        &["data", "--raw", "--in", "--fd", "0", f],
        &["audit", f],
        &["audit", "--extract", "taken", f],
        &["rerun", "--quiet", f, "/bin/true"],
        &["resume", "--dry-run", f, "end"],
        &["maps", f, "end"],
        &["symbol", f, "0x10000", "main"],
        &["writes", f, "0x10000", "8"],
        &["breakpath", f, "end"],
        &["breakpath", "--limit", "1", f, "end"],
        &["breakpath", "--gdb", f, "end"],
        &["breakpath", "--run", f, "end"],
        &["breakpath", "--candidates", "lines", f, "end"],
        &["origin", f, "end", "0x10000", "8"],
        &["origin", f, "end", "$rsp", "64"],
        &["diff", f, f],
        &["diff", "--exact", "--all", f, f],
        &["replay", "--verify", f],
        &["replay", "--verify", "--processor", "interpreter", f],
        &["replay", "--verify", "--check-order", "--jobs", "2", f],
        &["index", f],
        &["export", "-o", "exported", f],
        &["gdbserver", "--stdio", f],
        &["serve", f],
        &["replay", f, "--", "-batch"],
    ];
    let owned = |c: &&[&str]| c.iter().map(|a| a.to_string()).collect();
    all.iter().map(owned).collect()
}

/// Runs all commands on a file. None may exceed the bounds. Returns what they said.
fn all(home: &Home, name: &str, bytes: &[u8]) -> Vec<(String, Done)> {
    let file = home.write(&format!("store/{name}.hst"), bytes);
    let mut out = Vec::new();
    for c in commands(&file) {
        let done = home.run(&c);
        let what = c.join(" ");
        assert!(
            done.kib <= MOST_KIB,
            "{name}: {what} had {} KiB: {done:?}",
            done.kib
        );
        // gdb has statuses of its own, and so have the verdicts of `rerun`. A signal or a panic would be ours.
        let code = done.code();
        assert!(
            code.is_some_and(|c| c <= 5),
            "{name}: {what} ended oddly: {done:?}"
        );
        assert!(
            !done.output.contains("panicked"),
            "{name}: {what}: {done:?}"
        );
        let _ = std::fs::remove_file(home.path("exported"));
        let _ = std::fs::remove_dir_all(home.path("taken"));
        out.push((what, done));
    }
    std::fs::remove_file(file).unwrap();
    out
}

/// What a command said.
fn said<'a>(all: &'a [(String, Done)], command: &str) -> &'a Done {
    let mut found = all.iter().filter(|(what, _)| what.starts_with(command));
    &found.next().unwrap().1
}

/// mov [rdi], rdi; add rdi, 4096; dec rcx; jnz
const TOUCH: &[u8] = &[
    0x48, 0x89, 0x3f, 0x48, 0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, 0x48, 0xff, 0xc9, 0x75, 0xf1,
];
/// jmp to itself
const LOOP: &[u8] = &[0xeb, 0xfe];

#[test]
fn a_window_that_is_touched_everywhere_is_an_error() {
    let home = Home::new();
    let pages = 1u64 << 20;
    let bytes = |s| program(TOUCH, &start(pages, 0), &[], &[], 4 * pages, s);
    let answers = all(&home, "touch", &bytes(summary()));
    for command in ["replay --verify", "index"] {
        let done = said(&answers, command);
        assert_eq!(done.code(), Some(2), "{done:?}");
        assert!(done.output.contains("--max-memory"), "{done:?}");
    }
    // A user who trusts the recording allows more. A recording of a program with that much memory gets more, too.
    let small = 1u64 << 16;
    let few = |s| program(TOUCH, &start(small, 0), &[], &[], 4 * small, s);
    let file = home.write("few.hst", &few(summary()));
    let file = file.to_str().unwrap();
    let verify = |more: &[&str]| home.run(&[&["replay", "--verify", file], more].concat());
    let done = verify(&[]);
    assert_eq!(done.code(), Some(0), "{done:?}");
    let done = verify(&["--max-memory", "128M"]);
    assert_eq!(done.code(), Some(2), "{done:?}");
    assert!(done.output.contains("more than 128.0 MiB"), "{done:?}");
    assert!(done.kib < 192 << 10, "{done:?}");
    assert_eq!(verify(&["--max-memory", "1G"]).code(), Some(0));
    assert_eq!(verify(&["--max-memory", "1"]).code(), Some(2));
}

#[test]
fn what_a_recording_says_that_it_needed_is_allowed() {
    let home = Home::new();
    let pages = (3u64 << 29) / 4096;
    let said = Summary {
        peak_memory_kib: 3 << 19,
        ..summary()
    };
    let bytes = |s| program(TOUCH, &start(pages, 0), &[], &[], 4 * pages, s);
    for (s, status) in [(summary(), 2), (said, 0)] {
        let file = home.write("touch.hst", &bytes(s));
        let done = home.run(&["replay", "--verify", file.to_str().unwrap()]);
        assert_eq!(done.code(), Some(status), "{done:?}");
    }
}

#[test]
fn what_is_laid_out_takes_memory_only_where_it_is_not_zero() {
    let home = Home::new();
    let mut made = Made::new(&header());
    let hash = ModuleHash::of(b"hello");
    made.module("/lib/small.so", hash, 5);
    made.piece(0, 0, 5, b"hello");
    let gib = 1u64 << 30;
    let mut events = Vec::new();
    for i in 0..2 {
        let (addr, len) = (i << 30, gib);
        events.push((
            0,
            Event::FileOf {
                addr,
                len,
                module: 0,
                offset: 0,
            },
        ));
    }
    events.push((
        0,
        Event::Move {
            from: 0,
            to: 3 << 30,
            len: gib - 4096,
        },
    ));
    program_in(&mut made, LOOP, &start(0, 0), &[], &events, 10);
    let bytes = made.finish(&[(1, 1), (2, 1)], summary());
    let file = home.write("laid.hst", &bytes);
    for c in [&["replay", "--verify"][..], &["index"]] {
        let done = home.run(&[c, &[file.to_str().unwrap()]].concat());
        assert_eq!(done.code(), Some(0), "{done:?}");
        assert!(done.kib < 512 << 10, "{done:?}");
    }
}

#[test]
fn more_instructions_than_time_are_refused() {
    let home = Home::new();
    for (name, end) in [("endless", 1 << 60), ("long", 1 << 40)] {
        let bytes = program(LOOP, &start(0, 0), &[], &[], end, summary());
        for (what, done) in all(&home, name, &bytes) {
            let fails = !["info", "ls", "export"].iter().any(|c| what.starts_with(c));
            assert_eq!(
                done.code(),
                Some(if fails { 2 } else { 0 }),
                "{what}: {done:?}"
            );
            let refused = done.output.contains("which no processor can");
            assert_eq!(refused, fails, "{what}: {done:?}");
        }
    }
    // A cut recording does not say how long it took. The events do, if they say anything.
    let whole = |time: Option<u64>| {
        let until = time.map(|until| (0, Event::Time { since: 0, until }));
        let events: Vec<_> = until.into_iter().collect();
        program(LOOP, &start(0, 0), &[], &events, 1 << 40, summary())
    };
    for (time, refused) in [
        (None, true),
        (Some(1000), true),
        (Some(3_600_000_000), false),
    ] {
        let whole = whole(time);
        let summary = chunks(&whole).pop().unwrap().0;
        let cut = whole.len() - 64 - summary.stored_len as usize;
        let file = home.write("cut.hst", &whole[..cut]);
        let done = home.run(&["events", file.to_str().unwrap()]);
        assert_eq!(done.code(), Some(if refused { 2 } else { 0 }), "{done:?}");
    }
    // A loop of some minutes is replayed.
    let bytes = |end, wall_ms| {
        let s = Summary {
            wall_ms,
            ..summary()
        };
        program(LOOP, &start(0, 0), &[], &[], end, s)
    };
    let file = home.write("loop.hst", &bytes(200_000_000, 0));
    let done = home.run(&["replay", "--verify", file.to_str().unwrap()]);
    assert_eq!(done.code(), Some(0), "{done:?}");
    // A recording that says that it took years is replayed until somebody stops it.
    let file = home.write("years.hst", &bytes(1 << 60, 1 << 40));
    let file = file.to_str().unwrap();
    for c in [
        &["replay", "--verify", file][..],
        &["replay", "--verify", "--jobs", "1", file],
        &["index", file],
        &["at", file, "end"],
        &["writes", file, "0x10000", "8"],
        &["origin", file, "end", "0x10000", "8"],
        &["calls", file, "0x400000"],
    ] {
        let started = home.start(c);
        std::thread::sleep(Duration::from_millis(700));
        // SAFETY: sends a signal to a process that has not been waited for.
        unsafe { libc::kill(started.0, libc::SIGINT) };
        // Without Ctrl-C it would not end in anybody's lifetime.
        let done = wait(started, PATIENCE, "Ctrl-C");
        assert_eq!(done.signal(), Some(libc::SIGINT), "{c:?}: {done:?}");
    }
}

#[test]
fn descriptions_are_not_longer_than_a_recordings() {
    let home = Home::new();
    let many = Header {
        argv: vec![Text::default(); 3 << 20],
        ..header()
    };
    let answers = all(&home, "arguments", &Made::new(&many).bytes);
    assert_eq!(said(&answers, "info").code(), Some(2));
    assert!(said(&answers, "info").kib < 512 << 10, "{answers:?}");

    let repeated = |len: usize, n: usize| {
        let mut made = Made::new(&header());
        let begin = made.bytes.len();
        made.module("x".repeat(len).as_str(), ModuleHash::of(b"x"), 1);
        let one = made.bytes.split_off(begin);
        made.bytes.extend(one.repeat(n));
        made
    };
    let made = repeated(60 << 20, 100);
    let answers = all(&home, "paths", &made.bytes);
    assert!(said(&answers, "info").kib < 512 << 10, "{answers:?}");

    // Each of these has the largest allowed length. All together have more than that.
    let made = repeated(1_000_000, 3000);
    let answers = all(&home, "more_paths", &made.bytes);
    let info = said(&answers, "info");
    assert!(info.output.contains("damaged at byte"), "{}", info.status);
    assert!(info.kib < 512 << 10 && said(&answers, "ls").kib < 256 << 10);
}

#[test]
fn modules_are_unpacked_as_far_as_they_are_stored() {
    let home = Home::new();
    let mut made = Made::new(&header());
    let (size, step) = (1000u64 << 20, 1 << 20);
    // All of it is zeros, under the name of something else. Nobody may try to find that out.
    let zeros = chunk(ChunkHeader::blank(Kind::Piece), &vec![0; step]);
    let paths = ["/x/a.so", "/x/b.so", "/x/c.so", "/x/d.so"];
    for (m, path) in paths.iter().enumerate() {
        made.module(*path, ModuleHash([m as u8; 16]), size);
        let mut h = header_of(&zeros);
        for i in 0..size / step as u64 {
            (h.sequence, h.first_pos, h.last_pos) = (i as u32, i * step as u64, size);
            made.bytes.extend(h.to_bytes());
            made.bytes.extend_from_slice(&zeros[64..]);
        }
    }
    let maps: Vec<_> = paths
        .iter()
        .enumerate()
        .map(|(m, path)| {
            let addr = PC + ((m as u64) << 32);
            let map = Event::Map {
                addr,
                len: size,
                prot: 5,
                flags: 2,
                offset: 0,
                object: 0,
                path: path.as_bytes(),
            };
            (0, map)
        })
        .collect();
    program_in(&mut made, LOOP, &start(0, 0), &maps, &[], 10);
    let bytes = made.finish(&[(1, 1), (2, 1)], summary());
    assert!(bytes.len() < 2 << 20);
    all(&home, "modules", &bytes);
}

fn header_of(chunk: &[u8]) -> hindsight_trace::chunk::ChunkHeader {
    hindsight_trace::chunk::ChunkHeader::from_bytes(chunk.first_chunk().unwrap(), 64).unwrap()
}

#[test]
fn paths_of_a_recording_lead_to_files_only() {
    let home = Home::new();
    let pipe = home.pipe("pipe");
    let paths = [
        "/dev/zero",
        "/dev/tty",
        "/proc/self/mem",
        "/",
        pipe.to_str().unwrap(),
    ];
    let mut made = Made::new(&header());
    for (i, path) in paths.iter().enumerate() {
        // The name does not match the stored content, so this machine's file is asked for.
        made.module(*path, ModuleHash::of(&[i as u8]), 5);
        made.piece(0, 0, 5, b"other");
    }
    let maps: Vec<_> = paths
        .iter()
        .enumerate()
        .map(|(i, path)| {
            let addr = PC + ((i as u64) << 20);
            let map = Event::Map {
                addr,
                len: 4096,
                prot: 5,
                flags: 2,
                offset: 0,
                object: 0,
                path: path.as_bytes(),
            };
            (0, map)
        })
        .collect();
    program_in(&mut made, LOOP, &start(0, 0), &maps, &[], 10);
    let bytes = made.finish(&[(1, 1), (2, 1)], summary());
    all(&home, "paths", &bytes);
    // The files beside a recording may be anything, too.
    for (index, marks) in [("x.hsx", "x.hst.marks"), ("x.hst.marks", "x.hsx")] {
        let home = Home::new();
        home.pipe(&format!("store/{index}"));
        std::os::unix::fs::symlink("/dev/zero", home.path(&format!("store/{marks}"))).unwrap();
        home.pipe("store/files");
        all(&home, "x", &bytes);
    }
    // So may the recording itself.
    for command in commands(&pipe) {
        let done = home.run(&command);
        let code = if command[0] == "ls" { 0 } else { 2 };
        assert_eq!(done.code(), Some(code), "{command:?}: {done:?}");
    }
}

#[test]
fn many_of_anything_end_in_bounds() {
    let home = Home::new();
    // Threads and processes that only begin. Each is a child of the one before.
    let mut made = Made::new(&header());
    for i in 1..20_000 {
        made.begin(2 * i, StreamKind::Image, i, i - 1);
        made.begin(2 * i + 1, StreamKind::Thread, i, i - 1);
    }
    all(&home, "processes", &made.bytes);

    // System calls that compress well: half a gigabyte of them in few bytes.
    let calls: Vec<_> = (0..60_000)
        .map(|_| {
            (
                0,
                Event::Syscall {
                    nr: 0,
                    args: [0; 6],
                },
            )
        })
        .collect();
    let mut made = Made::new(&header());
    program_in(&mut made, LOOP, &start(0, 0), &[], &[], 10);
    let begin = made.bytes.len();
    assert_eq!(made.events(2, 1, &calls), 2);
    let one = made.bytes.split_off(begin);
    for n in 1..400 {
        let mut h = header_of(&one);
        h.sequence = n;
        made.bytes.extend(h.to_bytes());
        made.bytes.extend_from_slice(&one[64..]);
    }
    all(&home, "calls", &made.finish(&[(1, 1), (2, 400)], summary()));

    // Mappings.
    let path = b"/x/y.so";
    let maps: Vec<_> = (0..40_000u64)
        .map(|i| {
            let map = Event::Map {
                addr: ((i * 0x9e37_79b9) % (1 << 34)) << 12,
                len: 0x3000,
                prot: 5,
                flags: 2,
                offset: 0,
                object: 0,
                path,
            };
            (0, map)
        })
        .collect();
    let bytes = program(LOOP, &start(0, 0), &maps, &[], 10, summary());
    all(&home, "mappings", &bytes);

    // Mappings and gaps of impossible sizes.
    let huge: Vec<_> = (0..100u64)
        .flat_map(|i| {
            let map = Event::Map {
                addr: i << 40,
                len: u64::MAX - (i << 40),
                prot: 7,
                flags: 1,
                offset: u64::MAX,
                object: i,
                path,
            };
            let unmap = Event::Unmap {
                addr: i << 41,
                len: u64::MAX,
            };
            [(0, map), (0, unmap)]
        })
        .collect();
    let events = [
        (
            3,
            Event::Zero {
                addr: 5,
                len: u64::MAX,
            },
        ),
        (
            3,
            Event::Changed {
                addr: 5,
                len: u64::MAX,
            },
        ),
    ];
    let bytes = program(LOOP, &start(0, 0), &huge, &events, 10, summary());
    all(&home, "huge", &bytes);

    // One instruction that goes over all memory.
    let store: &[u8] = &[0xf3, 0xaa, 0xeb, 0xfe];
    let bytes = program(store, &start(1 << 45, 0x1000), &[], &[], 10, summary());
    all(&home, "string", &bytes);
}

#[test]
fn nothing_is_taken_out_elsewhere_and_nothing_strange_is_compared() {
    let home = Home::new();
    let secret = home.write("secret", b"hello");
    let pipe = home.pipe("pipe");
    let outside = home.path("outside");
    std::fs::create_dir(home.path("taken")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, home.path("taken/link")).unwrap();
    std::os::unix::fs::symlink(outside.join("new"), home.path("taken/dangling")).unwrap();
    let text = |p: &std::path::PathBuf| p.to_str().unwrap().to_string();
    let names = [
        "../outside/a".into(),
        "/../outside/a".into(),
        "/x/../../outside/a".into(),
        "/link/a".into(),
        "/dangling".into(),
        "////".into(),
        "/good/name".into(),
        "/dev/zero".into(),
        text(&secret),
        text(&pipe),
        format!("/{}", "x".repeat(300)),
        format!("/{}", "long/".repeat(900)),
    ];
    let mut made = Made::new(&header());
    let hash = ModuleHash::of(b"hello");
    for name in &names {
        made.module(name.as_str(), hash, 5);
    }
    made.piece(0, 0, 5, b"hello");
    // No text.
    made.module(&b"/no/\xff"[..], hash, 5);
    // Only its first half is there.
    made.module("/half", ModuleHash::of(b"half"), 2 << 20);
    made.piece(0, 0, 2 << 20, &vec![7; 1 << 20]);
    let zeros = ModuleHash::of(b"");
    made.module("/bomb", zeros, 1 << 30);
    program_in(&mut made, LOOP, &start(0, 0), &[], &[], 10);
    let bytes = made.finish(&[(1, 1), (2, 1)], summary());
    let file = home.write("hostile.hst", &bytes);
    let file = file.to_str().unwrap();
    let done = home.run(&["audit", "--extract", "taken", file]);
    assert_eq!(done.code(), Some(2), "{done:?}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{done:?}");
    assert_eq!(
        std::fs::read(home.path("taken/good/name")).unwrap(),
        b"hello"
    );
    let below = home
        .path("taken")
        .join(text(&secret).trim_start_matches('/'));
    assert_eq!(std::fs::read(below).unwrap(), b"hello");
    assert!(done.output.contains("leads out of the folder"), "{done:?}");
    assert!(!home.path("taken/bomb").exists());
    // Of what is damaged, nothing stays.
    assert!(done.output.contains("only its beginning"), "{done:?}");
    let half = std::fs::metadata(home.path("taken/half")).unwrap();
    assert_eq!(half.len(), 0, "{done:?}");
    let json = home.run(&["audit", "--extract", "other", "--json", file]);
    assert_eq!(json.code(), Some(2), "{json:?}");
    assert!(!json.output.contains("panicked"), "{json:?}");
    let strange = std::path::Path::new(std::ffi::OsStr::from_bytes(b"other/no/\xff"));
    assert_eq!(
        std::fs::read(home.path("").join(strange)).unwrap(),
        b"hello"
    );
    // Only what is a regular file here is compared: the others are neither read nor waited for.
    let state = |name: &str| {
        let lines = done.output.lines();
        let mut of = lines.filter(|l| l.ends_with(&format!("  {name}")));
        let line = of.next().unwrap_or_else(|| panic!("{name}: {done:?}"));
        line.split(' ').next().unwrap().to_string()
    };
    assert_eq!(state(&text(&secret)), "same");
    assert_eq!(state(&text(&pipe)), "unknown");
    assert_eq!(state("/dev/zero"), "unknown");
    assert_eq!(state("/good/name"), "missing");
    assert_eq!(state("../outside/a"), "unknown");
}

#[test]
fn what_is_damaged_counts_when_it_is_taken_out() {
    let home = Home::new();
    let mut made = Made::new(&header());
    for i in 0..300 {
        let name = format!("/half{i}");
        made.module(name.as_str(), ModuleHash::of(b"half"), 2 << 20);
    }
    made.piece(0, 0, 2 << 20, &vec![7; 1 << 20]);
    program_in(&mut made, LOOP, &start(0, 0), &[], &[], 10);
    let bytes = made.finish(&[(1, 1), (2, 1)], summary());
    let file = home.write("halves.hst", &bytes);
    let done = home.run(&["audit", "--extract", "taken", file.to_str().unwrap()]);
    assert_eq!(done.code(), Some(2), "{done:?}");
    assert!(
        done.output.contains("far larger than the recording"),
        "{done:?}"
    );
    // Of each, one MiB was written before the damage was met.
    let all = std::fs::read_dir(home.path("taken")).unwrap();
    let lens: Vec<u64> = all.map(|f| f.unwrap().metadata().unwrap().len()).collect();
    assert!((200..257).contains(&lens.len()), "{}", lens.len());
    assert!(lens.iter().all(|len| *len == 0));
}
