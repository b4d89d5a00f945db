//! Circular recordings, and which recordings are kept.

use crate::losses::memory;
use hindsight_lab::{Done, Scene, collector_of, end, kill, words};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Records with `options` into `trace`.
fn record(scene: &Scene, options: &[&str], trace: &Path, program: &Path, args: &[&str]) -> Done {
    let _ = fs::remove_file(trace);
    let mut c = scene.hindsight(&["record"]);
    c.args(options).arg("-o").arg(trace).arg("--");
    scene.run(c.args(words(program, args)))
}

/// Every thread begins where the recording still has it. Something was dropped: a part of a thread, or whole threads.
fn check_ring(info: &Value) {
    assert!(info["ring"]["instructions"].as_u64().unwrap() > 0, "{info}");
    let dropped = info["dropped"].as_array().unwrap();
    let position = |d: &Value| d["first_position"].as_u64();
    let whole = info["ring"]["threads"].as_u64() > Some(0);
    assert!(
        whole || dropped.iter().any(|d| position(d) > Some(0)),
        "{info}"
    );
}

#[test]
fn the_end_is_kept_of_a_failure_and_nothing_of_a_success() {
    let scene = Scene::new();
    let program = scene.compile("mixed.c", &[]);
    for place in [&["--ring=4M"][..], &["--ring=4M", "--ring-on-disk"]] {
        let trace = scene.path("ring.hst");
        let done = record(&scene, place, &trace, &program, &["7"]);
        assert_eq!(done.status.code(), Some(7), "{}", done.messages());
        scene.must_verify(&trace);
        let info = scene.info(&trace);
        check_ring(&info);
        // The limit is for the threads' streams. What the collector had not yet cut comes on top.
        let bytes = info["stream_bytes"].as_u64().unwrap();
        assert!((1 << 20..8 << 20).contains(&bytes), "{bytes}");
        let done = record(&scene, place, &trace, &program, &[]);
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        assert!(!trace.exists() && done.messages().contains("not kept"));
    }
}

/// Key frames of a ring restate all memory: the one on which another would build may be gone.
#[test]
fn a_quiet_program_begins_at_any_key_frame_that_is_left() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    let trace = scene.path("ring.hst");
    let regime = ["--quiet", "--regime", "quiet"];
    let options = [&regime[..], &["--restate-every", "200000", "--ring=1M"]].concat();
    let done = record(&scene, &options, &trace, &program, &["4", "3"]);
    assert_eq!(done.status.code(), Some(3), "{}", done.messages());
    scene.must_verify(&trace);
    check_ring(&scene.info(&trace));
}

/// What waits in queues may fill a small ring before the thread is asked for a key frame. So it makes some by itself.
#[test]
fn a_small_ring_keeps_something_however_fast_it_is_filled() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    let trace = scene.path("ring.hst");
    for run in 0..12 {
        let done = record(
            &scene,
            &["--quiet", "--ring=1M"],
            &trace,
            &program,
            &["4", "3"],
        );
        assert_eq!(done.status.code(), Some(3), "{}", done.messages());
        scene.must_verify(&trace);
        let info = scene.info(&trace);
        assert!(info["instructions"].as_u64() > Some(0), "{run}: {info}");
        check_ring(&info);
    }
}

#[test]
fn processes_of_the_past_are_forgotten() {
    let scene = Scene::new();
    scene.compile("noise.c", &[]);
    let script = "for i in 1 2 3 4 5 6 7 8 9; do ./noise 2; done; (exit 5); ./noise 3 6";
    let trace = scene.path("tree.hst");
    let mut c = scene.hindsight(&["record", "--ring", "4M", "-o"]);
    let done = scene.run(c.arg(&trace).args(["--", "sh", "-c", script]));
    assert_eq!(done.status.code(), Some(6), "{}", done.messages());
    scene.must_verify(&trace);
    let info = scene.info(&trace);
    check_ring(&info);
    let images = info["images"].as_array().unwrap();
    assert!((2..9).contains(&images.len()), "{info}");
    let last = images.last().unwrap();
    assert_eq!(
        (&last["command"], &last["by"]),
        (&"./noise 3 6".into(), &"exec".into())
    );
}

#[test]
fn what_a_ring_holds_can_be_had_while_it_goes_on() {
    let scene = Scene::new();
    let program = scene.compile("endless.c", &[]);
    let trace = scene.path("end.hst");
    let mut c = scene.hindsight(&["record", "--quiet", "--ring", "1s", "-o"]);
    let running = scene.start(c.arg(&trace).arg("--").arg(&program));
    let pid: i32 = running.first_line().parse().unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    // By the id of the program, and by that of the recording process.
    for (i, wanted) in [pid, running.id()].into_iter().enumerate() {
        let dump = scene.path(&format!("dump{i}.hst"));
        let mut c = scene.hindsight(&["dump", &wanted.to_string(), "--json", "-o"]);
        let done = scene.run(c.arg(&dump));
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(
            told["complete"] == true && told["instructions"].as_u64() > Some(0),
            "{told}"
        );
        scene.must_verify(&dump);
        let info = scene.info(&dump);
        check_ring(&info);
        assert_eq!(info["ring"]["running"], true);
        assert_eq!(info["complete"], true);
    }
    assert!(kill(pid, libc::SIGKILL));
    let done = running.finish();
    assert_eq!(end(done.status), (None, Some(libc::SIGKILL)));
    scene.must_verify(&trace);
    assert_eq!(scene.info(&trace)["ring"]["running"], false);
    let done = scene.run(&mut scene.hindsight(&["dump", &pid.to_string()]));
    assert_eq!(done.status.code(), Some(2), "{}", done.messages());
}

/// The program reads gigabytes that nobody can predict, many times what the ring holds.
#[test]
fn a_ring_goes_on_in_flat_memory_and_one_can_travel_in_each_dump() {
    let scene = Scene::new();
    let program = scene.compile("endless.c", &[]);
    let mut c = scene.hindsight(&["record", "--quiet", "--ring", "4M", "-o"]);
    let trace = scene.path("end.hst");
    let running = scene.start(c.arg(&trace).arg("--").arg(&program));
    let pid: i32 = running.first_line().parse().unwrap();
    let collector = collector_of(running.id());
    let (mut most, mut last) = (Vec::new(), 0);
    for n in 0..8 {
        std::thread::sleep(Duration::from_millis(500));
        let dump = scene.path(&format!("{n}.hst"));
        let mut c = scene.hindsight(&["dump", &pid.to_string(), "-o"]);
        let done = scene.run(c.arg(&dump));
        assert!(done.status.success(), "{}", done.messages());
        let count = |place: &str| {
            let done = scene.run(scene.hindsight(&["at", "--json"]).arg(&dump).arg(place));
            assert!(done.status.success(), "{place}: {}", done.messages());
            let at: Value = serde_json::from_slice(&done.stdout).unwrap();
            assert!(at["stack"].to_string().contains("main"), "{at}");
            at["instructions"].as_u64().unwrap()
        };
        let [begin, middle, end] = ["begin", "50%", "end"].map(count);
        assert!(
            0 < begin && begin < middle && middle < end,
            "{begin} {middle} {end}"
        );
        assert!(end > last, "{end} {last}");
        last = end;
        check_ring(&scene.info(&dump));
        most.push(memory(collector).unwrap().1);
    }
    println!("KiB of the collector: {most:?}");
    let of = |some: &[u64]| some.iter().copied().max().unwrap();
    assert!(of(&most[4..]) < of(&most[1..4]) + 8000, "{most:?}");
    assert!(kill(pid, libc::SIGKILL));
    assert_eq!(end(running.finish().status), (None, Some(libc::SIGKILL)));
}

/// A loop that never enters the recorder has no events. What a ring holds of it still grows.
#[test]
fn what_only_computes_is_counted_to_where_it_is() {
    let scene = Scene::new();
    let program = scene.compile("spins.c", &["-pthread"]);
    for args in [&[][..], &["threads"]] {
        let trace = scene.path("end.hst");
        let mut c = scene.hindsight(&["record", "--quiet", "--ring", "64M", "-o"]);
        let running = scene.start(c.arg(&trace).arg("--").args(words(&program, args)));
        let pid: i32 = running.first_line().parse().unwrap();
        let dump = scene.path("dump.hst");
        let held = || {
            let mut c = scene.hindsight(&["dump", &pid.to_string(), "--json", "-o"]);
            let done = scene.run(c.arg(&dump));
            assert_eq!(done.status.code(), Some(0), "{}", done.messages());
            let told: Value = serde_json::from_slice(&done.stdout).unwrap();
            told["instructions"].as_u64().unwrap()
        };
        let (first, began) = (held(), Instant::now());
        // The loop has about five instructions.
        while held() < first + 10_000_000 {
            assert!(began.elapsed() < Duration::from_secs(60), "{first}");
        }
        scene.must_verify(&dump);
        let mut c = scene.hindsight(&["backtrace", "--threads"]);
        let stacks = scene.run(c.arg(&dump).arg("end")).text();
        assert!(stacks.contains(" spin at "), "{stacks}");
        if !args.is_empty() {
            assert!(stacks.contains(" wait_for_ever at "), "{stacks}");
        }
        assert!(kill(pid, 0), "{}", running.so_far());
        assert!(kill(pid, libc::SIGKILL));
        assert_eq!(end(running.finish().status), (None, Some(libc::SIGKILL)));
    }
}

#[test]
fn recordings_are_kept_as_asked() {
    let scene = Scene::new();
    let noise = scene.compile("noise.c", &[]);
    let crash = scene.compile("crash.c", &[]);
    let trace = scene.path("kept.hst");
    for (option, program, args, kept) in [
        ("failure", &noise, &["1", "3"][..], true),
        ("failure", &noise, &["1"], false),
        ("crash", &noise, &["1", "3"], false),
        ("crash", &crash, &["read"], true),
        ("signal=SEGV", &crash, &["read"], true),
        ("signal=6", &crash, &["read"], false),
        ("always", &noise, &["1"], true),
    ] {
        let native = scene.native(&words(program, args));
        let done = record(&scene, &["--keep-on", option], &trace, program, args);
        assert_eq!(end(done.status), end(native.status), "{option}");
        assert_eq!(trace.exists(), kept, "{option}: {}", done.messages());
    }
}

#[test]
fn a_program_runs_again_until_it_fails() {
    let scene = Scene::new();
    let script = r#"n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; echo run $n
        test $n -lt 3 || exit 9"#;
    let run = |retry: &str| {
        let mut c = scene.hindsight(&["record", "--retry", retry, "--", "sh", "-c", script]);
        scene.run(&mut c)
    };
    let stored = || {
        let all = fs::read_dir(scene.path("store")).unwrap();
        let named = all.map(|e| e.unwrap().path());
        named.filter(|p| p.extension().is_some()).count()
    };
    let done = run("2");
    assert_eq!(
        (done.status.code(), stored()),
        (Some(0), 0),
        "{}",
        done.messages()
    );
    let done = run("until-failure");
    assert_eq!(
        (done.status.code(), stored()),
        (Some(9), 1),
        "{}",
        done.messages()
    );
    assert_eq!(done.text(), "run 2\nrun 3\n");
    assert!(
        done.messages().contains("run 2: exit status 9"),
        "{}",
        done.messages()
    );
    // What was written to a pipe cannot be taken back.
    let mut c = scene.hindsight(&["record", "--retry", "2", "-o", "-", "--", "true"]);
    assert_eq!(scene.run(&mut c).status.code(), Some(125));
}

/// Ctrl-C ends all further runs, whenever it comes, and whatever the program does with it.
#[test]
fn an_interrupted_retry_keeps_what_was_kept_before() {
    let scene = Scene::new();
    // An earlier search has kept this one.
    let mut c = scene.hindsight(&["record", "--retry", "2", "--", "sh", "-c", "exit 9"]);
    assert_eq!(scene.run(&mut c).status.code(), Some(9));
    let stored = || {
        let all = fs::read_dir(scene.path("store")).unwrap();
        let named = all.map(|e| e.unwrap().path());
        let mut named: Vec<_> = named.filter(|p| p.extension().is_some()).collect();
        named.sort();
        named
    };
    let kept = stored();
    assert_eq!(kept.len(), 1, "{kept:?}");
    // One program dies of the signal. The other ends as if nothing had happened. The moment does not matter.
    for (script, more) in [
        ("echo run; sleep 0.02", 1),
        ("trap 'exit 0' INT; echo run; sleep 0.02; sleep 0.02", 0),
    ] {
        for pause in [0, 7, 31] {
            let before = stored();
            let mut c = scene.hindsight(&["record", "--retry", "100000", "--", "sh", "-c", script]);
            let running = scene.start(&mut c);
            while running.so_far().lines().count() < 2 {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(Duration::from_millis(pause));
            running.signal_group(libc::SIGINT);
            let done = running.finish();
            let says = done.messages();
            // A shell shows this as 130.
            assert_eq!(
                end(done.status),
                (None, Some(libc::SIGINT)),
                "{script}: {says}"
            );
            let now = stored();
            assert!(before.iter().all(|p| now.contains(p)), "{script}: {says}");
            assert!(now.len() <= before.len() + more, "{script}: {says}");
            for new in now.iter().filter(|p| !before.contains(p)) {
                scene.must_verify(new);
            }
        }
    }
    let one = &kept[0];
    let info = scene.info(one);
    assert_eq!(info["ending"]["exit"], 9, "{info}");
    scene.must_verify(one);
}
