//! Many threads, and how they end.

use hindsight_lab::{Scene, end, words};
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn thousands_live_at_once() {
    let scene = Scene::new();
    let program = scene.compile("crowd.c", &[]);
    scene.same(&words(&program, &["live", "5000"]));
    let info = scene.info(&scene.path("trace.hst"));
    assert_eq!(info["threads"], 5001);
}

#[test]
fn thousands_come_and_go() {
    let scene = Scene::new();
    let program = scene.compile("crowd.c", &[]);
    scene.same(&words(&program, &["short", "4000"]));
    let info = scene.info(&scene.path("trace.hst"));
    assert_eq!(info["threads"], 4005);
    // A new thread uses what an ended one has left.
    assert!(info["peak_rss_kib"].as_u64().unwrap() < 100 << 10);
}

#[test]
fn sanitizers_find_what_they_find() {
    let scene = Scene::new();
    for (of, ways) in [
        (
            "thread",
            [("clean", ""), ("race", "ThreadSanitizer: data race")],
        ),
        (
            "address",
            [
                ("overflow", "AddressSanitizer: heap-buffer-overflow"),
                ("leak", "LeakSanitizer: detected memory leaks"),
            ],
        ),
    ] {
        let program = scene.compile("sanitized.c", &[&format!("-fsanitize={of}")]);
        for (how, found) in ways {
            let argv = words(&program, &[how]);
            let native = scene.native(&argv);
            let (done, trace) = scene.record(&argv);
            // The rest of the messages has process ids.
            for d in [&native, &done] {
                let messages = d.messages();
                assert_eq!(d.text(), "8000\n", "{how}: {messages}");
                assert!(messages.contains(found), "{how}: {messages}");
                assert_eq!(messages.is_empty(), found.is_empty(), "{how}: {messages}");
            }
            assert_eq!(end(done.status), end(native.status), "{how}");
            scene.must_verify(&trace);
        }
    }
}

#[test]
fn the_first_may_leave_before_the_others() {
    let scene = Scene::new();
    let program = scene.compile("crowd.c", &[]);
    scene.same(&words(&program, &["leave"]));
}

#[test]
fn a_process_may_end_while_its_threads_begin_and_end() {
    let scene = Scene::new();
    let program = scene.compile("crowd.c", &[]);
    for wait in ["0", "1", "7", "20", "50"] {
        let (done, trace) = scene.record(&words(&program, &["race", wait]));
        assert_eq!(end(done.status), (Some(7), None), "{}", done.messages());
        scene.must_verify(&trace);
        assert_eq!(scene.info(&trace)["ending"]["exit"], 7);
    }
}

#[test]
fn a_slow_reader_makes_the_threads_wait() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    let mut command = scene.hindsight(&["record", "--quiet", "-o", "-", "--"]);
    command.arg(&program).arg("16");
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stream = child.stdout.take().unwrap();
    // Rings and pipe are full long before that.
    std::thread::sleep(Duration::from_secs(3));
    assert!(child.try_wait().unwrap().is_none());
    let mut trace = std::fs::File::create(scene.path("slow.hst")).unwrap();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = stream.read(&mut buffer).unwrap();
        if n == 0 {
            break;
        }
        trace.write_all(&buffer[..n]).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    scene.must_verify(&scene.path("slow.hst"));
    assert_eq!(scene.info(&scene.path("slow.hst"))["complete"], true);
}
