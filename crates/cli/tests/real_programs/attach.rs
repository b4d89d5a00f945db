//! `hindsight attach` and `detach`: the program notices neither.

use hindsight_lab::{LIMIT, Scene, end, kill, words};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs a program natively, and once more while it is recorded `times` times for a fraction of a second. Output and end
/// must be the same, and the recordings must verify. `began`: the program prints a line first.
fn visits(scene: &Scene, command: impl Fn() -> Command, began: bool, times: u32) -> Vec<PathBuf> {
    let native = scene.run(&mut command());
    let running = scene.start(&mut command());
    if began {
        running.first_line();
    }
    let mut traces = Vec::new();
    for i in 0..times {
        std::thread::sleep(Duration::from_millis(100));
        let trace = scene.path(&format!("visit{i}.hst"));
        let pid = running.id().to_string();
        let done = scene.run(
            scene
                .hindsight(&["attach", &pid, "--for", "0.3", "-o"])
                .arg(&trace),
        );
        // On a slow machine the program may be over before the last visit.
        if i > 0 && done.messages().contains("ended") {
            break;
        }
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        assert!(
            done.messages().contains("recording process"),
            "{}",
            done.messages()
        );
        nothing_left(&pid);
        traces.push(trace);
    }
    let done = running.finish();
    assert_eq!(done.text(), native.text(), "{}", done.messages());
    assert_eq!(end(done.status), end(native.status));
    for (i, t) in traces.iter().enumerate() {
        scene.must_verify(t);
        let info = scene.info(t);
        let over = i > 0 && info["ending"]["exit"] == 0;
        assert!(over || info.to_string().contains("detached"), "{info}");
    }
    traces
}

/// Nothing of the recorder is in the address space any more. The last thread clears up after it has said that it
/// leaves, so this waits for it.
fn nothing_left(pid: &str) {
    let tried = Instant::now();
    loop {
        let left = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let part = |l: &str| ("680000000000".."700000000000").contains(&&l[..12]);
        let ours = |l: &str| part(l) || l.contains("hindsight");
        if !left.lines().any(ours) {
            return;
        }
        assert!(tried.elapsed() < LIMIT, "{left}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the kernel says this about a process.
fn await_status(pid: &str, line: &str) {
    let began = Instant::now();
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        if status.lines().any(|l| l.starts_with(line)) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "not {line}: {status}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn threads_in_all_kinds_of_waits_notice_nothing() {
    let scene = Scene::new();
    let program = scene.compile("attach_threads.c", &[]);
    let command = || {
        let mut c = scene.command(&program);
        c.arg("4");
        c
    };
    let traces = visits(&scene, command, true, 3);
    // The main thread, three workers, five that wait, and those that come and go.
    let info = scene.info(&traces[0]);
    let streams = info["streams"].as_array().unwrap().len();
    assert!(streams > 9, "{streams}");
}

#[test]
fn signals_stay_as_they_are() {
    let scene = Scene::new();
    let program = scene.compile("attach_signals.c", &[]);
    let command = || {
        let mut c = scene.command(&program);
        c.arg("2.5");
        c
    };
    visits(&scene, command, true, 4);
}

#[test]
fn a_computation_and_a_script_go_on() {
    let scene = Scene::new();
    let sql = "with recursive c(x) as (select 1 union all select x+1 from c where x<12000000) \
               select sum(x*x%7), count(*) from c;";
    let sqlite = || {
        let mut c = scene.command("sqlite3");
        c.args([":memory:", sql]);
        c
    };
    visits(&scene, sqlite, false, 2);
    let script = "import time\nfor i in range(40):\n print(i, sum(range(i * 1000)), flush=True)\n time.sleep(0.05)";
    let python = || {
        let mut c = scene.command("/usr/bin/python3");
        c.args(["-c", script]);
        c
    };
    visits(&scene, python, true, 3);
}

/// A shell that waits in `read`. The children that it starts later are recorded too, to the end.
#[test]
fn a_waiting_shell_is_recorded_to_its_end() {
    let scene = Scene::new();
    let fifo = scene.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let script = "echo running; read x < fifo; echo got $x $((x * x)); ls -d / | cat; exit 5";
    let shell = scene.start(scene.command("bash").args(["-c", script]));
    shell.first_line();
    let trace = scene.path("shell.hst");
    let pid = shell.id().to_string();
    let recording = scene.start(scene.hindsight(&["attach", &pid, "-o"]).arg(&trace));
    recording.first_message();
    std::fs::write(&fifo, "12\n").unwrap();
    let done = shell.finish();
    assert_eq!(done.text(), "running\ngot 12 144\n/\n");
    assert_eq!(done.status.code(), Some(5));
    let done = recording.finish();
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    scene.must_verify(&trace);
    let info = scene.info(&trace).to_string();
    assert!(
        info.contains("\"exit\":5") && info.contains("cat"),
        "{info}"
    );
}

/// A program that was recorded from its beginning goes on by itself. The kernel manages its heap again.
#[test]
fn a_recorded_program_is_left() {
    let scene = Scene::new();
    let script = "import os, time\nprint(os.getpid(), flush=True)\nlist = []\nfor i in range(30):\n \
                  list.append([str(j) for j in range(3000)])\n time.sleep(0.05)\nprint(len(list), list[29][2999])";
    let trace = scene.path("left.hst");
    let running = scene.start(&mut scene.recording(&trace, &["/usr/bin/python3", "-c", script]));
    let pid = running.first_line();
    let done = scene.run(&mut scene.hindsight(&["detach", &pid]));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(
        maps.contains("[heap]") && !maps.contains("hindsight-rings"),
        "{maps}"
    );
    let again = scene.run(&mut scene.hindsight(&["detach", &pid]));
    assert_eq!(again.status.code(), Some(2));
    assert!(
        again.messages().contains("not recorded"),
        "{}",
        again.messages()
    );
    let done = running.finish();
    assert_eq!(done.text(), format!("{pid}\n30 2999\n"));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    scene.must_verify(&trace);
    assert!(scene.info(&trace).to_string().contains("detached"));
}

/// Something else may be mapped below a thread's stack. It must be unchanged when the process is left.
#[test]
fn what_is_below_a_small_stack_stays() {
    let scene = Scene::new();
    let program = scene.compile("small_stack.c", &["-O2"]);
    let trace = scene.path("small.hst");
    let running = scene.start(&mut scene.recording(&trace, &[&program]));
    let pid = running.first_line();
    await_status(&pid, "State:\tS");
    let done = scene.run(&mut scene.hindsight(&["detach", &pid]));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    nothing_left(&pid);
    let done = running.finish();
    assert_eq!(done.text(), format!("{pid}\n0 0\n"));
    assert!(scene.info(&trace).to_string().contains("detached"));
}

/// Process `pid` must be refused, for a reason that contains `why`.
fn refused(scene: &Scene, pid: &str, why: &str) {
    let trace = scene.path("refused.hst");
    let done = scene.run(scene.hindsight(&["attach", pid, "-o"]).arg(&trace));
    assert_eq!(done.status.code(), Some(125), "{}", done.messages());
    assert!(done.messages().contains(why), "{}", done.messages());
    assert!(!Path::new(&trace).exists());
}

#[test]
fn awkward_moments() {
    let scene = Scene::new();
    let program = scene.compile("attach_corners.c", &[]);
    // In a handler on another stack, and while threads come and go.
    for how in ["handler", "churn"] {
        let command = || {
            let mut c = scene.command(&program);
            c.arg(how);
            c
        };
        visits(&scene, command, true, 2);
    }
    // While a child of `vfork` runs, attaching waits for its end.
    let waiting = scene.start(scene.command(&program).arg("vfork"));
    waiting.first_line();
    let (trace, pid) = (scene.path("vfork.hst"), waiting.id().to_string());
    let done = scene.run(scene.hindsight(&["attach", &pid, "-o"]).arg(&trace));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    assert_eq!(waiting.finish().text(), "running\nchild 3\n");
    scene.must_verify(&trace);
    assert_eq!(scene.info(&trace)["ending"]["exit"], 0);
}

#[test]
fn static_programs_and_stopped_ones() {
    let scene = Scene::new();
    let program = scene.compile("attach_corners.c", &["-static"]);
    for how in ["computes", "churn"] {
        let command = || {
            let mut c = scene.command(&program);
            c.arg(how);
            c
        };
        visits(&scene, command, true, 2);
    }
    let stopped = scene.start(scene.command(&program).arg("computes"));
    stopped.first_line();
    kill(stopped.id(), libc::SIGSTOP);
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", stopped.id())).unwrap();
        stat[stat.rfind(')').unwrap() + 2..].chars().next()
    };
    while state() != Some('T') {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (trace, pid) = (scene.path("stopped.hst"), stopped.id().to_string());
    let done = scene.run(
        scene
            .hindsight(&["attach", &pid, "--for", "0.2", "-o"])
            .arg(&trace),
    );
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    assert_eq!(state(), Some('T'), "it is stopped still");
    kill(stopped.id(), libc::SIGCONT);
    let done = stopped.finish();
    assert_eq!(
        (done.text(), done.status.code()),
        ("running\n1\n".into(), Some(0))
    );
    // The program executed nothing meanwhile.
    assert_eq!(scene.verify(&trace).status.code(), Some(3));
}

#[test]
fn states_that_cannot_be_recorded_are_said() {
    let scene = Scene::new();
    let program = scene.compile("attach_corners.c", &[]);
    let filter = "has a filter for system calls";
    for (how, state, why, says, status) in [
        ("filter", "Seccomp:\t2", filter, "-1 ENOTTY", 0),
        ("strict", "Seccomp:\t2", filter, "still here", 0),
        (
            "leader",
            "State:\tZ",
            "its first thread has ended",
            "the last one",
            4,
        ),
    ] {
        let running = scene.start(scene.command(&program).arg(how));
        running.first_line();
        await_status(&running.id().to_string(), state);
        refused(&scene, &running.id().to_string(), why);
        let done = running.finish();
        assert_eq!(done.text(), format!("running\n{says}\n"));
        assert_eq!(done.status.code(), Some(status), "{}", done.messages());
    }
    // Another process traces it already.
    let mut strace = scene.command("strace");
    strace
        .args(["-f", "-o", "/dev/null"])
        .arg(&program)
        .arg("computes");
    let traced = scene.start(&mut strace);
    traced.first_line();
    let children = format!("/proc/{0}/task/{0}/children", traced.id());
    let child = std::fs::read_to_string(children).unwrap();
    refused(&scene, child.trim(), "is already traced, by process");
    assert_eq!(traced.finish().text(), "running\n1\n");
    // A program for the 32-bit architecture that never ends: `jmp .`.
    let narrow = scene.path("narrow");
    std::fs::write(&narrow, narrow_program()).unwrap();
    std::fs::set_permissions(&narrow, PermissionsExt::from_mode(0o755)).unwrap();
    // Only where the kernel runs programs of this kind.
    if let Ok(mut child) = scene.command(&narrow).spawn() {
        refused(&scene, &child.id().to_string(), "runs a 32-bit program");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The kernel can have system calls of a program become signals. It would do that with the recorder's, and cannot be told
/// to do it from elsewhere.
#[test]
fn system_calls_as_signals() {
    let scene = Scene::new();
    let program = scene.compile("attach_corners.c", &[]);
    // The kernel says of others that they do it, from 6.4 on.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|n| n.parse().ok())
        .collect();
    if numbers >= vec![6, 4] {
        let running = scene.start(scene.command(&program).arg("dispatched"));
        refused(
            &scene,
            &running.first_line(),
            "gets system calls as signals",
        );
        let done = running.finish();
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        assert!(done.text().ends_with("\ndone\n"), "{}", done.text());
    }
    let trace = scene.path("dispatched.hst");
    let running = scene.start(&mut scene.recording(&trace, &words(&program, &["dispatched"])));
    let pid = running.first_line();
    let done = scene.run(&mut scene.hindsight(&["detach", &pid]));
    assert_ne!(done.status.code(), Some(0));
    let done = running.finish();
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    assert!(
        done.messages()
            .contains("it has asked for system calls as signals"),
        "{}",
        done.messages()
    );
    assert_eq!(done.text(), format!("{pid}\ndone\n"));
    scene.must_verify(&trace);
}

/// An ELF file of one page for the 32-bit architecture.
fn narrow_program() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    for (value, len) in [
        (2u32, 2), // an executable
        (3, 2),    // for the 80386
        (1, 4),
        (BASE + 84, 4), // its entry
        (52, 4),        // its program headers
        (0, 4),
        (0, 4),
        (52, 2),
        (32, 2),
        (1, 2),
        (0, 2),
        (0, 2),
        (0, 2),
        // one segment: file and memory of 86 bytes, readable and executable
        (1, 4),
        (0, 4),
        (BASE, 4),
        (BASE, 4),
        (86, 4),
        (86, 4),
        (5, 4),
        (0x1000, 4),
    ] {
        file.extend_from_slice(&value.to_le_bytes()[..len]);
    }
    file.extend_from_slice(&[0xeb, 0xfe]);
    file
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let scene = Scene::new();
    let refused = |pid: &str, why: &str| refused(&scene, pid, why);
    refused("2147483647", "there is no process");
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|c| c.trim() == "kthreadd") {
        refused("2", "a thread of the kernel");
    }
    let mut gone = Command::new("true").spawn().unwrap();
    await_status(&gone.id().to_string(), "State:\tZ");
    refused(&gone.id().to_string(), "has ended");
    gone.wait().unwrap();
    // The program has no room for another descriptor. It goes on as if nothing had happened.
    let script = "ulimit -n 3; echo running; while ((SECONDS < 2)); do :; done; echo end";
    let small = scene.start(scene.command("bash").args(["-c", script]));
    small.first_line();
    refused(&small.id().to_string(), "cannot open another file");
    let done = small.finish();
    assert_eq!(
        (done.text(), done.status.code()),
        ("running\nend\n".into(), Some(0))
    );
    // It is being recorded already.
    let trace = scene.path("once.hst");
    let script = "echo $$; sleep 1; echo end";
    let running = scene.start(&mut scene.recording(&trace, &["bash", "-c", script]));
    refused(&running.first_line(), "recorded already");
    assert!(running.finish().text().ends_with("end\n"));
}
