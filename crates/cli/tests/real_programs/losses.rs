//! Nothing is lost. Whatever is killed, held up or cut off, the trace opens, says what it holds, and verifies to its
//! end.
//!
//! Moments and victims are random. `HINDSIGHT_LOSS_SEED` is the first seed; a failure names its own.
//! `HINDSIGHT_LOSS_ROUNDS` is the number of rounds of each test.

use hindsight_lab::{
    LIMIT, Running, Scene, await_end, children, collector_of, is_witness, kill, share, words,
};
use hindsight_random::Rng;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn pause(random: &mut Rng, least: u64, most: u64) {
    std::thread::sleep(Duration::from_millis(least + random.below(most - least)));
}

/// The rounds of a test: as many as the environment says, or `usual`.
fn rounds(usual: u64) -> impl Iterator<Item = (u64, Rng)> {
    let setting = |name: &str, usual| std::env::var(name).map_or(usual, |v| v.parse().unwrap());
    let first = setting("HINDSIGHT_LOSS_SEED", 1);
    let seeds = first..first + setting("HINDSIGHT_LOSS_ROUNDS", usual);
    share(seeds, 2).into_iter().map(|seed| {
        // Shown if the test fails.
        println!("HINDSIGHT_LOSS_SEED={seed} HINDSIGHT_LOSS_ROUNDS=1");
        (seed, Rng(seed))
    })
}

const PYTHON: &str = r#"
import hashlib, os, subprocess, threading
def work():
    while True:
        block = os.urandom(1 << 16)
        for _ in range(20): block = hashlib.sha256(block).digest() * 2000
for _ in range(3): threading.Thread(target=work, daemon=True).start()
while True: subprocess.run(["ls", "-l", "/usr/bin"], stdout=subprocess.DEVNULL)
"#;

const MAKEFILE: &str = "all: a.o b.o c.o d.o e.o f.o\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n";

const PIPELINE: &str = "seq 1 20000 | sort -r | tr 0-9 a-j | gzip -c | cksum";

const SQL: &str = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n \
    where i < 20000) insert into t select i, hex(randomblob(20)) from n; create index x on t(b); \
    select count(*), max(b) from t where b like '%7%'; drop table t;";

/// Work of several processes and threads: lines for a shell, with their files in `scene`. They can be repeated.
fn loads(scene: &Scene) -> [String; 5] {
    fs::create_dir(scene.path("src")).unwrap();
    fs::write(scene.path("src/Makefile"), MAKEFILE).unwrap();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\nint {name}(int n) {{ int s = 0; \
             for (int i = 0; i < n; i++) s += rand() ^ i; return printf(\"%d\", s); }}\n"
        );
        fs::write(scene.path(&format!("src/{name}.c")), text).unwrap();
    }
    fs::write(scene.path("load.py"), PYTHON).unwrap();
    fs::write(scene.path("load.sql"), SQL).unwrap();
    scene.compile("mixed.c", &[]);
    scene.compile("noise.c", &[]);
    let forever = |line: &str| format!("while :; do {line}; done");
    [
        forever("make -s -j2 -C src; rm -f src/*.o"),
        forever(PIPELINE),
        "exec python3 load.py".into(),
        forever("sqlite3 made.db < load.sql & sqlite3 :memory: < load.sql; wait"),
        forever(
            "./mixed & ./noise 1; head -c 2000000 /dev/urandom | pigz -p3 | pigz -dc | wc -c; wait",
        ),
    ]
}

/// The processes of a group that are recorded. Its leader records them. What the leader has just made belongs to the group, too,
/// until it is somewhere else (the collector), has a name (the witness), or executes a program. Until then it has the leader's name.
fn members(group: i32) -> Vec<i32> {
    let one = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let name = &stat[stat.find('(')? + 1..stat.rfind(')')?];
        let fields: Vec<&str> = stat[stat.rfind(')')? + 2..].split(' ').collect();
        let of: i32 = fields[2].parse().ok()?;
        let other = pid != group && !is_witness(pid) && name != "hindsight";
        (of == group && other && fields[0] != "Z").then_some(pid)
    };
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|e| one(e.ok()?)).collect()
}

/// Kills all processes of the group but its leader.
fn kill_members(group: i32) {
    let started = Instant::now();
    loop {
        let left = members(group);
        if left.is_empty() {
            return;
        }
        assert!(started.elapsed() < LIMIT, "{left:?}");
        for pid in left {
            kill(pid, libc::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts to record a program, and waits until it exists.
fn begin<S: AsRef<OsStr>>(scene: &Scene, trace: &Path, argv: &[S]) -> Running {
    let _ = fs::remove_file(trace);
    let running = scene.start(&mut scene.recording(trace, argv));
    let started = Instant::now();
    while members(running.id()).is_empty() {
        assert!(started.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(2));
    }
    running
}

/// The same with a line for a shell.
fn start(scene: &Scene, trace: &Path, line: &str) -> Running {
    begin(scene, trace, &["sh", "-c", line])
}

/// The trace opens, says how it ended, and verifies to the end of what it has. Returns what `info` says.
fn opens_and_verifies(scene: &Scene, trace: &Path, complete: bool) -> Value {
    let info = scene.info(trace);
    assert_eq!(info["complete"], complete, "{}", info["completeness"]);
    assert_eq!(info["ending"].is_null(), !complete, "{info}");
    let done = scene.verify(trace);
    // Everything may have been lost.
    let nothing = !complete && info["instructions"] == 0;
    let expected = if nothing { 3 } else { 0 };
    assert_eq!(done.status.code(), Some(expected), "{}", done.messages());
    info
}

#[test]
fn when_any_process_of_the_tree_is_killed() {
    let scene = Scene::new();
    let loads = loads(&scene);
    let trace = scene.path("trace.hst");
    for (seed, mut random) in rounds(5) {
        let running = start(&scene, &trace, &loads[seed as usize % loads.len()]);
        pause(&mut random, 100, 1000);
        for _ in 0..1 + random.below(4) {
            let all = members(running.id());
            if !all.is_empty() {
                let victim = all[random.below(all.len() as u64) as usize];
                kill(victim, libc::SIGKILL);
            }
            pause(&mut random, 0, 100);
        }
        kill_members(running.id());
        let done = running.finish();
        let info = opens_and_verifies(&scene, &trace, true);
        // It ended as the shell did, or the program that replaced it.
        let ending = &info["ending"];
        match (done.status.code(), done.status.signal()) {
            (Some(code), _) => assert_eq!(ending["exit"], code, "{ending}"),
            (_, signal) => assert_eq!(ending["signal"], signal.unwrap(), "{ending}"),
        }
    }
}

#[test]
fn when_the_collector_is_killed() {
    let scene = Scene::new();
    let loads = loads(&scene);
    let trace = scene.path("trace.hst");
    for (seed, mut random) in rounds(5) {
        let running = start(&scene, &trace, &loads[seed as usize % loads.len()]);
        pause(&mut random, 30, 1200);
        assert!(kill(collector_of(running.id()), libc::SIGKILL));
        // A program that needs the collector says so and ends. Each of these soon does.
        for pid in members(running.id()) {
            await_end(pid);
        }
        let messages = running.messages();
        assert!(messages.contains("the collector is gone"), "{messages}");
        if fs::metadata(&trace).is_ok_and(|m| m.len() > 0) {
            opens_and_verifies(&scene, &trace, false);
        }
    }
}

#[test]
fn when_everything_is_killed_at_once() {
    let scene = Scene::new();
    let loads = loads(&scene);
    let trace = scene.path("trace.hst");
    for (seed, mut random) in rounds(3) {
        let mut running = start(&scene, &trace, &loads[seed as usize % loads.len()]);
        pause(&mut random, 200, 1500);
        kill(collector_of(running.id()), libc::SIGKILL);
        running.signal_group(libc::SIGKILL);
        running.reap();
        kill_members(running.id());
        if fs::metadata(&trace).is_ok_and(|m| m.len() > 0) {
            opens_and_verifies(&scene, &trace, false);
        }
    }
}

/// A memory control group with a limit, if this system lets the test make one.
struct Confined(PathBuf);

impl Confined {
    fn new(limit: u64) -> Option<Confined> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |want: &str| {
            let mut lines = own.lines().map(|l| l.splitn(3, ':'));
            lines.find_map(|mut l| (l.nth(1)? == want).then(|| l.next()).flatten())
        };
        let name = format!("hindsight-test-{}", std::process::id());
        let places = [
            ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("", "/sys/fs/cgroup", "memory.max"),
        ];
        places.iter().find_map(|(controller, root, file)| {
            let path = PathBuf::from(format!("{root}{}/{name}", of(controller)?));
            fs::create_dir(&path).ok()?;
            let confined = Confined(path);
            fs::write(confined.0.join(file), limit.to_string()).ok()?;
            Some(confined)
        })
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Resident memory of a process in KiB: all of it, and the part that is not shared.
pub fn memory(pid: i32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let row = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some((row("VmRSS:")?, row("RssAnon:")?))
}

#[test]
fn when_the_memory_is_used_up() {
    const LIMIT: u64 = 300 << 20;
    let scene = Scene::new();
    let text = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let trace = scene.path("trace.hst");
    let confined = Confined::new(LIMIT);
    let running = match &confined {
        Some(c) => {
            let line = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", c.0.display());
            let record = scene.recording(&trace, &["python3", "-c", text]);
            let mut shell = scene.command("/bin/sh");
            shell.args(["-c", &line, "sh"]).arg(record.get_program());
            scene.start(shell.args(record.get_args()))
        }
        // Without it, the test does what the kernel would do.
        None => scene.start(&mut scene.recording(&trace, &["python3", "-c", text])),
    };
    let group = running.id();
    while confined.is_none() {
        let big = |pid: &i32| memory(*pid).is_some_and(|(all, _)| all > LIMIT >> 10);
        if let Some(pid) = members(group).into_iter().find(big) {
            kill(pid, libc::SIGKILL);
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let done = running.finish();
    assert_eq!(
        done.status.signal(),
        Some(libc::SIGKILL),
        "{}",
        done.messages()
    );
    let info = opens_and_verifies(&scene, &trace, true);
    assert_eq!(info["ending"]["signal"], libc::SIGKILL);
}

#[test]
fn when_the_disk_is_full() {
    let scene = Scene::new();
    loads(&scene);
    let line = "rm -f src/*.o; make -s -j2 -C src; ls src/*.o | wc -l; ./noise 1; exit 7";
    let hindsight = env!("CARGO_BIN_EXE_hindsight");
    // A file system of its own where that is allowed. Otherwise a limit for this process.
    let own = Command::new("unshare").args(["-rm", "true"]).status();
    let own = own.is_ok_and(|s| s.success());
    fs::create_dir(scene.path("disk")).unwrap();
    for (_, mut random) in rounds(3) {
        // The size must be a multiple of a page.
        let kib = 700 + 4 * random.below(1000);
        let script = match own {
            true => format!(
                "mount -t tmpfs -o size={kib}k none disk && {{ {hindsight} record -q -o disk/t.hst \
                 -- sh -c '{line}'; status=$?; cp disk/t.hst full.hst; exit $status; }}"
            ),
            false => format!(
                "ulimit -S -f {}; exec {hindsight} record -q -o full.hst -- sh -c '{line}'",
                kib * 2
            ),
        };
        let mut shell = match own {
            true => {
                let mut c = scene.command("unshare");
                c.args(["-rm", "sh"]);
                c
            }
            false => scene.command("sh"),
        };
        let done = scene.run(shell.args(["-c", &script]));
        // The program goes on to its end.
        let messages = done.messages();
        assert_eq!(done.status.code(), Some(7), "{messages}");
        assert_eq!(done.text(), "6\n");
        assert_eq!(
            messages.matches("cannot be written").count(),
            1,
            "{messages}"
        );
        let trace = scene.path("full.hst");
        let len = fs::metadata(&trace).unwrap().len();
        assert!(
            len <= kib << 10 && len > (kib << 10) - 5000,
            "{len} of {kib} KiB"
        );
        opens_and_verifies(&scene, &trace, false);
    }
}

#[test]
fn when_the_reader_of_a_stream_is_slow_or_goes_away() {
    let scene = Scene::new();
    loads(&scene);
    let hindsight = env!("CARGO_BIN_EXE_hindsight");
    // The program's output must not mix with the trace.
    let line = "./noise 8 & ./noise 8 & rm -f src/*.o; make -s -j2 -C src >&2; wait; exit 3";
    for (_, mut random) in rounds(2) {
        let (some, more) = (1 + random.below(40), 1 + random.below(100));
        let slow = format!(
            "{{ {hindsight} record -q -o - -- sh -c '{line}'; echo $? > status; }} | \
             {{ head -c {some}0000; sleep 1.5; head -c {more}0000; sleep 2; cat; }} > slow.hst"
        );
        let done = scene.run(scene.command("sh").args(["-c", &slow]));
        assert_eq!(done.messages(), "done\ndone\n");
        assert_eq!(fs::read_to_string(scene.path("status")).unwrap(), "3\n");
        opens_and_verifies(&scene, &scene.path("slow.hst"), true);

        let gone = format!(
            "{{ {hindsight} record -q -o - -- sh -c '{line}'; echo $? > status; }} | \
             {{ head -c {more}0000; sleep 0.5; head -c {some}1111; }} > gone.hst"
        );
        let done = scene.run(scene.command("sh").args(["-c", &gone]));
        let messages = done.messages();
        assert_eq!(messages.matches("done\n").count(), 2, "{messages}");
        assert_eq!(
            messages.matches("cannot be written").count(),
            1,
            "{messages}"
        );
        assert_eq!(fs::read_to_string(scene.path("status")).unwrap(), "3\n");
        opens_and_verifies(&scene, &scene.path("gone.hst"), false);
    }
}

/// Stops the collector for some time under load, or the whole group, as a key does.
fn stands_still(everybody: bool, seconds: u64) {
    let scene = Scene::new();
    loads(&scene);
    let trace = scene.path("trace.hst");
    // A program that is stopped while it reads random numbers gets fewer. `head` asks again.
    let line = "head -c 6000000 /dev/urandom | cksum | wc -w >&2 & ./mixed & \
         make -s -j2 -C src; wait; ls src/*.o | wc -l; exit 5";
    let running = start(&scene, &trace, line);
    let group = running.id();
    let of = if everybody {
        -group
    } else {
        collector_of(group)
    };
    std::thread::sleep(Duration::from_millis(150));
    assert!(kill(of, libc::SIGSTOP));
    std::thread::sleep(Duration::from_secs(seconds));
    if !everybody {
        assert!(!members(group).is_empty(), "nobody waits for the collector");
    }
    assert!(kill(of, libc::SIGCONT));
    let done = running.finish();
    assert_eq!(done.status.code(), Some(5), "{}", done.messages());
    assert_eq!((done.text(), done.messages()), ("6\n".into(), "2\n".into()));
    let info = opens_and_verifies(&scene, &trace, true);
    let lost = info["streams"].as_array().unwrap().iter();
    assert_eq!(lost.filter(|s| s["lost"] == true).count(), 0, "{info}");
}

#[test]
fn when_the_rings_are_full_for_seconds() {
    stands_still(false, 3);
}

#[test]
fn when_the_collector_stands_still_for_long() {
    stands_still(false, 13);
}

#[test]
fn when_everybody_stands_still_for_long() {
    stands_still(true, 13);
}

#[test]
fn when_the_trace_is_cut() {
    let scene = Scene::new();
    loads(&scene);
    let line = "make -s -j2 -C src; ls src | sort | wc -l; ./noise 1";
    let (done, trace) = scene.record(&["sh", "-c", line]);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let bytes = fs::read(trace).unwrap();
    let first = 64 + u32::from_le_bytes(bytes[40..44].try_into().unwrap()) as u64;
    let cut = scene.path("cut.hst");
    for (_, mut random) in rounds(8) {
        let len = first + random.below(bytes.len() as u64 - first);
        fs::write(&cut, &bytes[..len as usize]).unwrap();
        let info = opens_and_verifies(&scene, &cut, false);
        let said = info["completeness"].as_str().unwrap();
        assert!(
            said.starts_with("cut: ") || said.starts_with("unfinished: "),
            "{said}"
        );
    }
}

#[test]
fn and_nothing_is_kept_in_memory_of_those_who_have_left() {
    let scene = Scene::new();
    let comers = scene.compile("comers.c", &[]);
    let trace = scene.path("trace.hst");
    const THREADS: usize = 10_000;
    const PROCESSES: usize = 1500;
    let args = [THREADS, PROCESSES].map(|n| n.to_string());
    let args = words(&comers, &args.each_ref().map(String::as_str));
    let running = begin(&scene, &trace, &args);
    let front = running.id();
    let (collector, mut program) = (collector_of(front), None);
    // The largest sizes of collector and program, in each tenth of the work.
    let mut most = [[0; 2]; 10];
    let mut done = 0;
    while done < 10 {
        program = program.or_else(|| {
            let mut all = children(front).into_iter().map(|(pid, _)| pid);
            all.find(|pid| *pid != collector && !is_witness(*pid))
        });
        for (i, pid) in [Some(collector), program].into_iter().enumerate() {
            if let Some((_, own)) = pid.and_then(memory) {
                most[done][i] = own.max(most[done][i]);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
        let ended = members(front).is_empty();
        done = running.so_far().lines().count();
        assert!(
            !ended || done == 10,
            "it ended early: {}",
            running.messages()
        );
    }
    let done = running.finish();
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    println!("KiB of collector and program: {most:?}");
    for i in 0..2 {
        let of = |tenths: &[[u64; 2]]| tenths.iter().map(|t| t[i]).max().unwrap();
        let (early, late) = (of(&most[1..4]), of(&most[7..]));
        // A summary of each stream that was never freed took 10 MiB here with twice as many.
        assert!(early > 500 && late < early + 2000, "{most:?}");
    }
    let info = scene.info(&trace);
    assert_eq!(info["complete"], true);
    // The program, and each process.
    assert_eq!(info["threads"], THREADS + PROCESSES + 1);
    let of = |what: &str| info[what].as_array().unwrap().len();
    assert_eq!(of("images"), PROCESSES + 1);
    assert_eq!(of("streams"), THREADS + 2 * (PROCESSES + 1));
}
