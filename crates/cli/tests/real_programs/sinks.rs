//! Where traces can go: pipes, sockets, full disks.

use hindsight_lab::{Scene, words};
use std::fs;

#[test]
fn standard_output() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    // The program's output would mix with the trace. So this one writes to stderr only.
    let mut command = scene.hindsight(&["record", "--quiet", "-o", "-", "--"]);
    let done = scene.run(command.arg(&program).args(["2", "9"]));
    assert_eq!(
        (done.status.code(), done.messages().as_str()),
        (Some(9), "done\n")
    );
    let trace = scene.path("piped.hst");
    fs::write(&trace, &done.stdout).unwrap();
    scene.must_verify(&trace);
}

#[test]
fn another_process_over_tcp() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    let trace = scene.path("received.hst");
    let address = free_address();
    let mut receive = scene.hindsight(&["receive", "--listen", &address, "-o"]);
    let receiver = scene.start(receive.arg(&trace));
    wait_for_listener(&address);
    let mut record = scene.hindsight(&["record", "--quiet", "-o", &format!("tcp:{address}"), "--"]);
    let done = scene.run(record.arg(&program).args(["2", "3"]));
    assert_eq!(done.status.code(), Some(3), "{}", done.messages());
    let received = receiver.finish();
    assert_eq!(received.status.code(), Some(0), "{}", received.messages());
    scene.must_verify(&trace);
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Waits until somebody listens. It does not connect, because the receiver takes one connection only.
fn wait_for_listener(address: &str) {
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    let line = format!(":{port:04X} 00000000:0000 0A");
    for _ in 0..2000 {
        if fs::read_to_string("/proc/net/tcp").unwrap().contains(&line) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("nobody listens on {address}");
}

#[test]
fn nothing_is_run_when_the_device_is_full_from_the_start() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    let done = scene.run(&mut scene.recording("/dev/full".as_ref(), &words(&program, &["8", "6"])));
    assert_eq!(done.status.code(), Some(125));
    let messages = done.messages();
    assert!(!messages.contains("done\n"), "{messages}");
    assert!(messages.contains("No space left"), "{messages}");
}

#[test]
fn a_file_that_may_not_grow_does_not_stop_the_program() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    let hindsight = env!("CARGO_BIN_EXE_hindsight");
    // The limit counts blocks of 512 bytes. The hard limit must leave room for the memory shared with the program.
    let line = r#"ulimit -S -f 20000; exec "$@""#;
    let args = [
        "-c",
        line,
        "sh",
        hindsight,
        "record",
        "-o",
        "small.hst",
        "--",
    ];
    let done = scene.run(
        scene
            .command("/bin/sh")
            .args(args)
            .arg(&program)
            .args(["20", "6"]),
    );
    let messages = done.messages();
    assert_eq!(done.status.code(), Some(6), "{messages}");
    assert!(messages.contains("done\n"), "{messages}");
    assert_eq!(
        messages.matches("cannot be written").count(),
        1,
        "{messages}"
    );
    // What is not known of the trace is not reported.
    assert!(messages.contains("what could be written"), "{messages}");
    assert!(!messages.contains("bit per instruction"), "{messages}");
    let trace = scene.path("small.hst");
    assert_eq!(fs::metadata(&trace).unwrap().len(), 20_000 * 512);
    assert_eq!(scene.info(&trace)["complete"], false);
    scene.must_verify(&trace);
}

#[test]
fn a_reader_that_goes_away_leaves_a_readable_beginning() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    let line = r#""$@" | head -c 5000000 > head.hst"#;
    let hindsight = env!("CARGO_BIN_EXE_hindsight");
    let args = [
        "-c", line, "sh", hindsight, "record", "--quiet", "-o", "-", "--",
    ];
    let done = scene.run(
        scene
            .command("/bin/sh")
            .args(args)
            .arg(&program)
            .args(["8", "6"]),
    );
    let messages = done.messages();
    assert!(
        messages.contains("done\n"),
        "the program did not end normally: {messages}"
    );
    let trace = scene.path("head.hst");
    assert_eq!(fs::metadata(&trace).unwrap().len(), 5_000_000);
    scene.info(&trace);
    scene.must_verify(&trace);
}

#[test]
fn the_store_serves_commands_without_a_file() {
    let scene = Scene::new();
    let program = scene.compile("hello.c", &[]);
    let done = scene.run(
        scene
            .hindsight(&["record", "--quiet", "--"])
            .arg(&program)
            .arg("4"),
    );
    assert_eq!(done.status.code(), Some(4), "{}", done.messages());
    for args in [&["info"][..], &["ls"], &["replay", "--verify"]] {
        let done = scene.run(&mut scene.hindsight(args));
        assert_eq!(done.status.code(), Some(0), "{args:?}: {}", done.messages());
        assert!(
            args[0] == "replay" || done.text().contains("hello"),
            "{args:?}: {}",
            done.text()
        );
    }
}
