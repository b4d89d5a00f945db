//! Trees of processes: what is recorded of each, and what `info` shows.

use hindsight_lab::{Scene, end, words};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn shell(script: &str) -> [String; 3] {
    ["/bin/sh", "-c", script].map(String::from)
}

/// The images of a recording.
fn images(scene: &Scene, trace: &Path) -> Vec<Value> {
    let info = scene.info(trace);
    assert_eq!(info["complete"], true);
    info["images"].as_array().unwrap().clone()
}

/// The image whose command begins with `command` and that ended with `ended`.
fn find<'a>(images: &'a [Value], command: &str, ended: &str) -> &'a Value {
    let is =
        |i: &&Value| i["command"].as_str().unwrap().starts_with(command) && i["ended"] == ended;
    images
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("no {command} with {ended} in {images:#?}"))
}

#[test]
fn children_and_threads() {
    for name in ["forks.c", "threads.c"] {
        let scene = Scene::new();
        let program = scene.compile(name, &[]);
        scene.same(&words(&program, &[]));
    }
}

#[test]
fn the_tree_is_shown() {
    let scene = Scene::new();
    let script = "(exit 3); /bin/echo one two; (exec /bin/cat /dev/null); exec /bin/true";
    let (done, trace) = scene.record(&shell(script));
    assert_eq!(
        (end(done.status), done.text().as_str()),
        ((Some(0), None), "one two\n")
    );
    scene.must_verify(&trace);
    let all = images(&scene, &trace);
    let root = find(&all, "/bin/sh", "executed another program");
    assert_eq!((&root["image"], &root["parent"]), (&1.into(), &0.into()));
    for (command, ended, by) in [
        ("/bin/sh", "exit status 3", "fork"),
        ("/bin/echo one two", "exit status 0", "exec"),
        ("/bin/true", "exit status 0", "exec"),
    ] {
        let i = find(&all, command, ended);
        assert_eq!(
            (&i["parent"], &i["by"]),
            (&1.into(), &by.into()),
            "{command}"
        );
        assert!(i["instructions"].as_u64().unwrap() > 100);
    }
    assert_eq!(find(&all, "/bin/true", "exit status 0")["pid"], root["pid"]);
    let cat = find(&all, "/bin/cat /dev/null", "exit status 0");
    let shell = &all[all
        .iter()
        .position(|i| i["image"] == cat["parent"])
        .unwrap()];
    assert_eq!(shell["parent"], 1);
    let text = scene.run(scene.hindsight(&["info"]).arg(&trace)).text();
    let echo = find(&all, "/bin/echo", "exit status 0");
    let line = format!(
        "  {} (exec) {}: 1 thread",
        echo["pid"],
        echo["command"].as_str().unwrap()
    );
    assert!(text.contains(&line), "{text}");
}

#[test]
fn what_outlives_the_program_is_waited_for() {
    let scene = Scene::new();
    let script = "(sleep 1; echo late; exit 4) & echo early; exit 5";
    let (done, trace) = scene.record(&shell(script));
    assert_eq!(done.status.code(), Some(5));
    assert_eq!(done.text(), "early\nlate\n");
    scene.must_verify(&trace);
    let all = images(&scene, &trace);
    find(&all, "/bin/sh", "exit status 4");
    assert_eq!(scene.info(&trace)["ending"]["exit"], 5);
}

#[test]
fn the_killed_are_named() {
    let scene = Scene::new();
    // A child that is waited for, and the program itself.
    let script = "sleep 100 & p=$!; sleep 0.2; kill -9 $p; wait $p; echo $?; kill -9 $$";
    let (done, trace) = scene.record(&shell(script));
    assert_eq!(
        end(done.status),
        (None, Some(libc::SIGKILL)),
        "{}",
        done.messages()
    );
    assert_eq!(done.text(), "137\n");
    scene.must_verify(&trace);
    let all = images(&scene, &trace);
    find(&all, "sleep 100", "killed");
    find(&all, "sleep 0.2", "exit status 0");
    find(&all, "/bin/sh", "killed");
}

#[test]
fn children_may_be_left_out() {
    let scene = Scene::new();
    let trace: PathBuf = scene.path("none.hst");
    let mut command = scene.hindsight(&["record", "-q", "--children", "none", "-o"]);
    command.arg(&trace).args(shell(
        "/bin/echo one; (echo two); sleep 1000 >/dev/null 2>&1 & exit 6",
    ));
    // Nobody waits for processes that are not recorded. `finish` has a limit.
    let running = scene.start(&mut command);
    let group = running.id();
    let done = running.finish();
    // SAFETY: a plain system call; the group is the test's own.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    assert_eq!(done.status.code(), Some(6), "{}", done.messages());
    assert_eq!(done.text(), "one\ntwo\n");
    scene.must_verify(&trace);
    assert_eq!(images(&scene, &trace).len(), 1);
}

#[test]
fn a_child_that_is_not_supported_does_not_end_the_rest() {
    let scene = Scene::new();
    let program = scene.compile("odd.c", &[]);
    let script = format!("{}; echo status $?", program.display());
    let (done, trace) = scene.record(&shell(&script));
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(done.text(), "status 125\n");
    let all = images(&scene, &trace);
    let odd = find(&all, program.to_str().unwrap(), "not recorded further");
    for part in [&format!("process {}:", odd["pid"])[..], "cd 80", "odd_one+"] {
        assert!(
            done.messages().contains(part),
            "{part}: {}",
            done.messages()
        );
    }
    scene.must_verify(&trace);
}

#[test]
fn children_that_share_memory_leave_nothing() {
    let scene = Scene::new();
    let program = scene.compile("spawns.c", &[]);
    let done = scene.same(&words(&program, &["share"]));
    assert!(done.text().contains("as before"), "{}", done.text());
}

#[test]
fn a_child_outlives_a_parent_that_was_killed_in_the_fork() {
    let scene = Scene::new();
    let program = scene.compile("spawns.c", &[]);
    for us in ["1000", "4000", "9000", "20000"] {
        let (done, trace) = scene.record(&words(&program, &["orphan", us]));
        assert_eq!(end(done.status), (None, Some(libc::SIGKILL)));
        // Every child that began also ended.
        let count = |c| done.text().matches(c).count();
        assert_eq!(count("b"), count("d"), "{}", done.messages());
        scene.must_verify(&trace);
        assert_eq!(scene.info(&trace)["complete"], true);
    }
}

#[test]
fn nobody_waits_for_children_that_were_killed_before_they_began() {
    let scene = Scene::new();
    let program = scene.compile("spawns.c", &[]);
    let times = (0..3).map(|_| {
        let done = scene.same(&words(&program, &["newborn"]));
        assert_eq!(done.text(), "9\n".repeat(9));
        scene.info(&scene.path("trace.hst"))["wall_ms"]
            .as_u64()
            .unwrap()
    });
    // For a child that it does not know, the collector would wait two seconds.
    let least = times.min().unwrap();
    assert!(least < 1900, "{least} ms");
}

#[test]
fn programs_of_another_architecture_are_marked() {
    let scene = Scene::new();
    let (source, object, program) = (scene.path("i.s"), scene.path("i.o"), scene.path("i386"));
    let text = ".globl _start\n_start: movl $1, %eax\n movl $6, %ebx\n int $0x80\n";
    std::fs::write(&source, text).unwrap();
    let tool = |name: &str, args: &[&std::ffi::OsStr]| {
        let done = scene.run(scene.command(name).args(args));
        assert!(done.status.success(), "{}", done.messages());
    };
    let o = "-o".as_ref();
    tool(
        "as",
        &["--32".as_ref(), source.as_ref(), o, object.as_ref()],
    );
    let form: [&std::ffi::OsStr; 2] = ["-m".as_ref(), "elf_i386".as_ref()];
    tool(
        "ld",
        &[form[0], form[1], object.as_ref(), o, program.as_ref()],
    );
    let spawns = scene.compile("spawns.c", &[]);
    let done = scene.same(&words(&spawns, &["spawn", program.to_str().unwrap()]));
    // On a kernel that cannot run it, both fail.
    if done.text().starts_with("0 600\n") {
        let all = images(&scene, &scene.path("trace.hst"));
        let marked = |by: &str| {
            let is = |i: &&Value| {
                i["by"] == by
                    && i["message"]
                        .as_str()
                        .unwrap()
                        .contains("i386 runs unrecorded")
            };
            all.iter().filter(is).count()
        };
        assert_eq!((marked("vfork"), marked("fork")), (1, 1), "{all:#?}");
    }
}

/// A recorded debugger sees its programs as they are natively.
#[test]
fn what_a_recorded_program_traces_runs_natively() {
    let scene = Scene::new();
    let tracer = scene.compile("tracer.c", &[]);
    for how in ["asks", "vfork", "seized"] {
        let done = scene.same(&words(&tracer, &[how]));
        assert!(done.text().contains("ended: 0"), "{how}: {}", done.text());
        let all = images(&scene, &scene.path("trace.hst"));
        let marked = |i: &Value| {
            let message = i["message"].as_str().unwrap_or_default();
            // A process with memory of its own is left before it is traced.
            match how {
                "vfork" => {
                    message.contains("echo runs unrecorded: another recorded process traces it")
                }
                _ => message == "another recorded process traces it",
            }
        };
        assert!(all.iter().any(marked), "{how}: {all:#?}");
    }
}

#[test]
fn what_a_recorded_program_attaches_to_goes_on_natively() {
    let scene = Scene::new();
    let tracer = scene.compile("tracer.c", &[]);
    let done = scene.same(&words(&tracer, &["attached"]));
    let text = done.text();
    assert!(text.contains("its program: 1\n"), "{text}");
    assert!(
        text.contains("in the loop: 1\n") && text.contains("ended: 500\n"),
        "{text}"
    );
    let all = images(&scene, &scene.path("trace.hst"));
    let left = |i: &Value| {
        i["message"] == "another recorded process traces it"
            && i["instructions"].as_u64().unwrap() > 100_000
    };
    assert!(all.iter().any(left), "{all:#?}");
}

#[test]
fn a_copy_that_is_traced_shows_its_own_registers() {
    let scene = Scene::new();
    let tracer = scene.compile("forked_tracee.c", &[]);
    for how in ["attach", "seize", "young", "asks"] {
        let done = scene.same(&words(&tracer, &[how]));
        let text = done.text();
        assert!(
            text.contains("now: first, rbx 1234567, the same 1 1"),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_rest_is_traced_as_it_is() {
    let scene = Scene::new();
    let tracer = scene.compile("tracer.c", &[]);
    let (done, _) = scene.record(&words(&tracer, &["waits"]));
    assert_eq!(done.text(), "seize: 0\nended: 700\n", "{}", done.messages());
    assert!(
        done.messages().contains("cannot be interrupted"),
        "{}",
        done.messages()
    );
}

#[test]
fn what_the_shortest_program_was_called_with_is_known() {
    let scene = Scene::new();
    let script = "for i in 1 2 3 4 5 6 7 8; do /bin/true $i 'and more'; done";
    let (done, trace) = scene.record(&shell(script));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let all = images(&scene, &trace);
    for i in 1..=8 {
        let command = format!("/bin/true {i} 'and more'");
        assert!(all.iter().any(|i| i["command"] == command), "{all:#?}");
    }
}
