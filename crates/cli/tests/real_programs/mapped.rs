//! Files in a program's memory. The recording has what the program saw, whatever becomes of the file's name later. That
//! also holds for files that only the program could find.

use hindsight_lab::{Done, LIMIT, Scene, await_stopped, collector_of, kill, words};
use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Nobody can think that a file this old is being written.
const OLD: Duration = Duration::from_secs(100_000);

fn write_old(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    let times = FileTimes::new().set_modified(SystemTime::now() - OLD);
    File::options()
        .write(true)
        .open(path)
        .and_then(|f| f.set_times(times))
        .unwrap();
}

/// Records `mapped.c`, which maps a file while the collector is stopped. `change` changes the file before the collector
/// can look at it. Returns what the run left, and the trace.
fn mapped_while(scene: &Scene, change: impl Fn(&Path)) -> (Done, PathBuf) {
    let program = scene.compile("mapped.c", &[]);
    let (file, trace) = (scene.path("file"), scene.path("trace.hst"));
    write_old(&file, &[b'a'; 20_000]);
    let mut record = scene.recording(&trace, &words(&program, &["later", "file"]));
    let mut running = scene.start(record.stdin(Stdio::piped()));
    assert_eq!(running.first_line(), "ready");
    let mut input = running.input();
    let collector = collector_of(running.id());
    kill(collector, libc::SIGSTOP);
    await_stopped(collector, true);
    input.write_all(b"\n").unwrap();
    let started = Instant::now();
    while !scene.path("marker").exists() {
        assert!(started.elapsed() < LIMIT, "it does not map the file");
        std::thread::sleep(Duration::from_millis(5));
    }
    change(&file);
    kill(collector, libc::SIGCONT);
    input.write_all(b"\n").unwrap();
    (running.finish(), trace)
}

/// What `mapped.c` prints for a file with these bytes.
fn sum(bytes: &[u8]) -> String {
    let add = |s: u64, b: &u8| s.wrapping_mul(31).wrapping_add(*b as u64);
    format!("ready\n{:x}\n", bytes.iter().fold(0, add))
}

#[test]
fn a_file_that_is_replaced_or_removed_once_it_is_mapped() {
    let replace = |file: &Path| {
        let new = file.with_extension("new");
        write_old(&new, &[b'b'; 20_000]);
        fs::rename(new, file).unwrap();
    };
    let remove = |file: &Path| fs::remove_file(file).unwrap();
    for change in [&replace as &dyn Fn(&Path), &remove] {
        let scene = Scene::new();
        let (done, trace) = mapped_while(&scene, change);
        assert_eq!(done.text(), sum(&[b'a'; 20_000]), "{}", done.messages());
        assert_eq!(done.messages(), "");
        scene.must_verify(&trace);
    }
}

#[test]
fn a_file_that_is_written_before_its_content_was_taken() {
    let scene = Scene::new();
    let (done, trace) = mapped_while(&scene, |file| {
        let mut f = File::options().write(true).open(file).unwrap();
        f.write_all(b"changed").unwrap();
    });
    assert!(done.status.success());
    let said = done.messages();
    assert!(
        said.contains("cannot read") && said.contains("/file:"),
        "{said}"
    );
    let info = scene.info(&trace);
    let streams = info["streams"].as_array().unwrap();
    assert!(streams.iter().any(|s| s["lost_files"] == 1), "{info}");
    let verified = scene.verify(&trace);
    assert!(!verified.status.success());
    let why = verified.text() + &verified.messages();
    assert!(
        why.contains("the content of") && why.contains("file"),
        "{why}"
    );
}

#[test]
fn files_that_come_and_go_within_a_tick_of_the_clock() {
    let scene = Scene::new();
    let program = scene.compile("mapped.c", &[]);
    let done = scene.same(&words(&program, &["many"]));
    assert!(done.status.success());
}

#[test]
fn a_mapped_file_stays_the_programs_own() {
    let scene = Scene::new();
    let program = scene.compile("mapped.c", &[]);
    write_old(&scene.path("file"), &[b'x'; 5000]);
    let done = scene.same(&words(&program, &["own", "file"]));
    assert!(done.status.success());
}

/// In a mount namespace of its own, a program has files that nobody else finds. It can unmount them when it is done. In
/// a network namespace of its own, it cannot reach the collector over the network.
#[test]
fn files_that_only_the_program_finds() {
    let own = Command::new("unshare").args(["-rmn", "true"]).status();
    if !own.is_ok_and(|s| s.success()) {
        eprintln!("skipped: namespaces cannot be made here");
        return;
    }
    for flags in ["-rm", "-rmn"] {
        let scene = Scene::new();
        let program = scene.compile("mapped.c", &[]);
        let script = format!(
            "mkdir -p only && mount -t tmpfs none only && cp {} only/program && cp /bin/echo only && \
             head -c 9000 /dev/zero > only/data && only/echo said && only/program own only/data && \
             umount only && ls only",
            program.display()
        );
        let done = scene.same(&["unshare", flags, "sh", "-c", &script]);
        assert!(done.status.success(), "{flags}: {}", done.messages());
        assert!(done.text().starts_with("said\n"), "{}", done.text());
    }
}

/// Processor seconds of a command, with all processes for which it waits.
fn processor_time(scene: &Scene, command: &mut Command) -> f64 {
    let program = command.get_program().to_owned();
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut shell = scene.command("/bin/bash");
    shell.args(["-c", r#"TIMEFORMAT="%U %S"; time "$@" > /dev/null"#, "bash"]);
    let done = scene.run(shell.arg(program).args(args));
    assert!(done.status.success(), "{}", done.messages());
    let said = done.messages();
    let last = said.lines().last().unwrap();
    last.split(' ').map(|t| t.parse::<f64>().unwrap()).sum()
}

/// Four times as many mappings take about four times as long. If each were compared with all others, it would be
/// sixteen times.
#[test]
fn very_many_mappings() {
    let scene = Scene::new();
    let program = scene.compile("fragments.c", &[]);
    for kind in ["private", "shared", "alternating", "guards", "pieces"] {
        let trace = scene.path("trace.hst");
        let took = [6_000, 24_000].map(|n: u32| {
            let argv = words(&program, &[kind, &n.to_string()]);
            let record = processor_time(&scene, &mut scene.recording(&trace, &argv));
            let mut verify = scene.hindsight(&["replay", "--verify"]);
            [record, processor_time(&scene, verify.arg(&trace))]
        });
        for (what, (few, many)) in ["record", "verify"]
            .iter()
            .zip(took[0].iter().zip(&took[1]))
        {
            // A very short time says nothing.
            let few = few.max(0.05);
            assert!(*many < 9.0 * few, "{kind}: {what}: {few} s, {many} s");
        }
    }
}

#[test]
fn mappings_at_random() {
    let scene = Scene::new();
    let program = scene.compile("fragments.c", &[]);
    for args in [
        ["random", "5000"],
        ["alternating", "300"],
        ["pieces", "300"],
    ] {
        scene.same(&words(&program, &args));
        let trace = scene.path("trace.hst");
        let info = scene.info(&trace);
        let quiet = |s: &serde_json::Value| s["regime"]["quiet"] == true;
        assert!(
            info["streams"].as_array().unwrap().iter().any(quiet),
            "{args:?}: {info}"
        );
    }
}
