//! Runs that take too long are ended and kept. It is shown what they wait for.

use hindsight_lab::{Done, Scene, await_end};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// What `waits --json` says of the end of a recording.
fn waits(scene: &Scene, trace: &Path) -> Value {
    let done = scene.run(scene.hindsight(&["waits", "--json"]).arg(trace));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    serde_json::from_slice(&done.stdout).unwrap()
}

/// The threads that wait for something of this kind.
fn of_kind(waits: &Value, kind: &str) -> Vec<Value> {
    let all = waits["threads"].as_array().unwrap().iter();
    all.filter(|t| t["waits_for"]["kind"] == kind)
        .cloned()
        .collect()
}

/// Runs a program that hangs in this way, and ends it after three seconds.
fn stand(scene: &Scene, program: &Path, how: &str, trace: &Path) -> Done {
    let mut c = scene.hindsight(&["record", "--timeout", "3s", "-o"]);
    let done = scene.run(c.arg(trace).arg("--").arg(program).arg(how));
    assert_eq!(done.status.code(), Some(124), "{how}: {}", done.messages());
    let told = done.messages().contains("it took longer than 3s");
    assert!(told, "{how}: {}", done.messages());
    scene.must_verify(trace);
    done
}

#[test]
fn a_deadlock_is_found_kept_and_explained() {
    let scene = Scene::new();
    let program = scene.compile("deadlock.c", &[]);
    let trace = scene.path("dead.hst");
    let mut c = scene.hindsight(&[
        "record",
        "--retry",
        "until-failure",
        "--timeout",
        "8s",
        "-o",
    ]);
    let done = scene.run(c.arg(&trace).arg("--").arg(&program).arg("count"));
    let messages = done.messages();
    assert_eq!(done.status.code(), Some(124), "{messages}");
    assert_eq!(fs::read_to_string(scene.path("count")).unwrap(), "2\n");
    for words in [
        "run 2: it took longer than 8s",
        "waits for the mutex at",
        "they wait for each other",
        "pthread_mutex_lock",
        "left at",
        "waits for the end of thread",
    ] {
        assert!(messages.contains(words), "{words}: {messages}");
    }
    assert_eq!(done.text(), "", "the report is no output of the program");
    scene.must_verify(&trace);
    let waits = waits(&scene, &trace);
    let two = of_kind(&waits, "mutex");
    assert_eq!(two.len(), 2, "{waits}");
    assert_eq!(two[0]["waits_for"]["holder"], two[1]["tid"], "{waits}");
    assert_eq!(two[1]["waits_for"]["holder"], two[0]["tid"], "{waits}");
    assert_eq!(waits["circle"].as_array().map(Vec::len), Some(2), "{waits}");
    let joins = of_kind(&waits, "thread");
    assert_eq!(joins.len(), 1, "{waits}");
    assert!(two.iter().any(|t| t["tid"] == joins[0]["waits_for"]["tid"]));
}

#[test]
fn what_stands_for_ever_is_ended_and_says_what_for() {
    let scene = Scene::new();
    let program = scene.compile("stands.c", &[]);
    let trace = scene.path("stands.hst");
    stand(&scene, &program, "sleep", &trace);
    assert_eq!(of_kind(&waits(&scene, &trace), "time").len(), 1);

    // A process and its child, which wait for each other.
    stand(&scene, &program, "pipe", &trace);
    let all = waits(&scene, &trace);
    let (parent, child) = (of_kind(&all, "child"), of_kind(&all, "descriptors"));
    assert_eq!((parent.len(), child.len()), (1, 1), "{all}");
    assert_eq!(parent[0]["waits_for"]["live"][0], child[0]["pid"], "{all}");
    let pid = child[0]["pid"].as_i64().unwrap() as i32;
    await_end(pid);

    stand(&scene, &program, "lock", &trace);
    let all = waits(&scene, &trace);
    let (reader, main) = (of_kind(&all, "read-write lock"), of_kind(&all, "thread"));
    assert_eq!((reader.len(), main.len()), (1, 1), "{all}");
    assert_eq!(reader[0]["waits_for"]["holder"], main[0]["tid"], "{all}");
}

/// A loop that never enters the recorder has no events.
#[test]
fn what_computes_for_ever_is_ended_where_it_is() {
    let scene = Scene::new();
    let program = scene.compile("spins.c", &[]);
    let trace = scene.path("spins.hst");
    let done = stand(&scene, &program, "threads", &trace);
    let messages = done.messages();
    for words in ["does not wait", " spin at ", "wait_for_ever at "] {
        assert!(messages.contains(words), "{words}: {messages}");
    }
    assert_eq!(of_kind(&waits(&scene, &trace), "nothing").len(), 1);
}

#[test]
fn a_time_that_is_not_reached_changes_nothing() {
    let scene = Scene::new();
    let program = scene.compile("noise.c", &[]);
    let trace = scene.path("noise.hst");
    let mut c = scene.hindsight(&["record", "--timeout", "10m", "-o"]);
    let done = scene.run(c.arg(&trace).arg("--").arg(&program).args(["1", "3"]));
    assert_eq!(done.status.code(), Some(3), "{}", done.messages());
    assert!(!done.messages().contains("took longer"));
    scene.must_verify(&trace);
    // Only a hang is to be kept, and there is none.
    fs::remove_file(&trace).unwrap();
    let mut c = scene.hindsight(&["record", "--timeout", "10m", "--keep-on", "hang", "-o"]);
    let done = scene.run(c.arg(&trace).arg("--").arg(&program).args(["1", "3"]));
    assert_eq!(done.status.code(), Some(3), "{}", done.messages());
    assert!(!trace.exists(), "{}", done.messages());
}
