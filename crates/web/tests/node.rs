//! What Node is told of a recording is what this machine is told of it: other processors, another window, no threads, no files.

use hindsight_events::Event;
use hindsight_fuzz::made::{Made, header, program, program_in, start, summary};
use hindsight_lab::{Scene, words};
use hindsight_trace::ModuleHash;
use hindsight_web::Session;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The module, built for this test if it is not yet as its sources are.
fn module() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let done = Command::new("scripts/web").current_dir(root).output();
        let done = done.expect("scripts/web");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "cannot build the module: {said}");
        PathBuf::from(String::from_utf8(done.stdout).unwrap().trim())
    })
}

/// What Node prints for these questions, and how long each took.
fn in_node(scene: &Scene, recording: &Path, questions: &[Json]) -> (Vec<Json>, String) {
    let asked = scene.path("questions");
    let lines: Vec<String> = questions.iter().map(Json::to_string).collect();
    std::fs::write(&asked, lines.join("\n")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ask.mjs");
    let mut node = scene.command("node");
    node.arg(script).arg(module()).arg(recording).arg(&asked);
    let done = scene.run(&mut node);
    let messages = done.messages();
    assert!(done.status.success(), "node: {messages}");
    let text = done.text();
    let lines = text.lines().map(|l| serde_json::from_str(l).expect(l));
    (lines.collect(), messages)
}

/// The same, answered here: by the native processor where there is one, in a window of address space.
fn here(recording: &Path, questions: &[Json]) -> Vec<Json> {
    let (session, said) = Session::open(std::fs::read(recording).unwrap());
    let mut all = vec![said];
    if let Some(mut session) = session {
        all.extend(
            questions
                .iter()
                .map(|q| session.ask(q.to_string().as_bytes())),
        );
    }
    let result = |said: String| {
        let mut said: Json = serde_json::from_str(&said).unwrap();
        match said.get_mut("result") {
            Some(result) => result.take(),
            None => said,
        }
    };
    all.into_iter().map(result).collect()
}

/// Without what processors may differ in: the manuals leave some flags undefined. And why memory is known depends on what was
/// asked before.
fn known(mut answer: Json) -> Json {
    if let Some(registers) = answer.get_mut("registers") {
        registers["rflags"].take();
    }
    if let Some(grounds) = answer.get_mut("grounds") {
        grounds.take();
    }
    answer
}

fn compare(scene: &Scene, recording: &Path, questions: &[Json]) -> Vec<Json> {
    let (there, _) = in_node(scene, recording, questions);
    let here = here(recording, questions);
    assert_eq!(there.len(), here.len());
    let asked = [json!("open")];
    for ((q, a), b) in asked.iter().chain(questions).zip(&there).zip(here) {
        assert!(a["error"].is_null() && b["error"].is_null(), "{q}: {a} {b}");
        assert_eq!(known(a.clone()), known(b), "{q}");
    }
    there
}

fn recorded(scene: &Scene, source: &str, options: &[&str], args: &[&str]) -> PathBuf {
    let program = scene.compile(source, options);
    let (done, trace) = scene.record(&words(&program, args));
    assert!(done.status.success(), "{}", done.messages());
    trace
}

/// Questions that suit any recording. Memory is asked for around the stack pointer at the end.
fn questions(stack: &str) -> Vec<Json> {
    let near = |by: u64| {
        let at = u64::from_str_radix(stack.trim_start_matches("0x"), 16).unwrap();
        format!("{:#x}", at.wrapping_sub(by))
    };
    vec![
        json!({"ask": "info"}),
        json!({"ask": "at", "at": "begin"}),
        json!({"ask": "at", "at": "33%"}),
        json!({"ask": "memory", "at": "end", "address": near(64), "length": 512}),
        json!({"ask": "memory", "at": "50%", "address": near(256), "length": 512}),
        json!({"ask": "memory", "at": "50%", "address": "0x10", "length": 16}),
        json!({"ask": "writes", "at": "end", "address": stack, "length": 64, "most": 5}),
        json!({"ask": "writes", "at": "60%", "address": near(128), "length": 256, "most": 20}),
        json!({"ask": "step", "at": "end", "direction": "backward", "count": 100}),
        json!({"ask": "step", "direction": "forward", "count": 40}),
        json!({"ask": "step", "direction": "backward"}),
        json!({"ask": "step", "at": "70%", "direction": "backward", "count": 100}),
        json!({"ask": "at", "at": "end"}),
    ]
}

fn stack_pointer(recording: &Path) -> String {
    let all = here(recording, &[json!({"ask": "at", "at": "end"})]);
    all[1]["registers"]["rsp"].as_str().unwrap().to_owned()
}

#[test]
fn node_is_told_the_same() {
    let scene = Scene::new();
    let trace = recorded(&scene, "travel.c", &["-O1"], &["3"]);
    let stack = stack_pointer(&trace);
    let all = compare(&scene, &trace, &questions(&stack));
    // The command line says the same.
    let at = scene.run(scene.hindsight(&["at", "--json"]).arg(&trace).arg("end"));
    let at: Json = serde_json::from_str(&at.text()).unwrap();
    assert_eq!(all.last().unwrap()["registers"], at["registers"]);
    // There is something to see.
    let unknown = &all[6]["bytes"];
    assert_eq!(unknown.as_array().unwrap(), &[const { Json::Null }; 16]);
    assert!(all[4]["bytes"].as_array().unwrap().iter().any(Json::is_u64));
    assert_eq!(all[7].as_array().unwrap().len(), 5);
    assert_eq!(
        (&all[9]["steps"], &all[11]["steps"]),
        (&json!(100), &json!(1))
    );
}

/// Threads, whose reads are checked, and processes.
#[test]
fn node_is_told_the_same_of_threads_and_processes() {
    let scene = Scene::new();
    let trace = recorded(&scene, "meeting.c", &["-O1", "-pthread"], &["rwlock"]);
    compare(&scene, &trace, &questions(&stack_pointer(&trace)));
    let script = "echo one; ls / | tr a-z A-Z; echo two";
    let argv = ["sh", "-c", script].map(std::ffi::OsString::from);
    let (done, trace) = scene.record(&argv);
    assert!(done.status.success(), "{}", done.messages());
    compare(&scene, &trace, &questions(&stack_pointer(&trace)));
}

#[test]
fn questions_that_do_not_fit_are_errors_and_nothing_else() {
    let scene = Scene::new();
    let trace = recorded(&scene, "hello.c", &[], &[]);
    let wrong = [
        json!({"ask": "nothing"}),
        json!({"ask": "at", "at": "nowhere"}),
        json!({"ask": "at", "at": {"thread": 99, "count": 1}}),
        json!({"ask": "memory", "address": "0x1000", "length": 1 << 20}),
        json!({"ask": "memory"}),
        json!({"ask": "step", "count": 0}),
        json!({"ask": "at", "misspelt": 1}),
    ];
    let right = json!({"ask": "at", "at": "end"});
    let (there, _) = in_node(&scene, &trace, &[&wrong[..], &[right]].concat());
    let here = here(&trace, &wrong);
    assert_eq!(there[..=wrong.len()], here);
    assert!(there[1..=wrong.len()].iter().all(|a| !a["error"].is_null()));
    assert!(there[wrong.len() + 1]["here"]["position"].is_string());
}

/// Damage is an error in words, or shows where a question needs what is damaged. Nothing panics.
#[test]
fn damaged_recordings_end_in_errors() {
    let scene = Scene::new();
    let trace = recorded(&scene, "hello.c", &[], &[]);
    let whole = std::fs::read(&trace).unwrap();
    let damaged = scene.path("damaged.hst");
    let asked = [
        json!({"ask": "at", "at": "50%"}),
        json!({"ask": "step", "at": "end", "direction": "backward", "count": 100}),
        json!({"ask": "writes", "at": "end", "address": "0x7ffffffde000", "length": 4096}),
    ];
    let mut errors = 0;
    for (n, at) in (0..10).map(|n| (n, whole.len() * (2 * n + 1) / 20)) {
        let mut bytes = whole.clone();
        match n % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 0x55,
        }
        std::fs::write(&damaged, bytes).unwrap();
        let (all, _) = in_node(&scene, &damaged, &asked);
        for answer in all.iter().filter(|a| !a["error"].is_null()) {
            errors += 1;
            assert_ne!(answer["error"]["kind"], "failed", "{answer}");
        }
    }
    assert!(errors > 0, "nothing was damaged");
    std::fs::write(&damaged, b"this is no recording").unwrap();
    let (all, _) = in_node(&scene, &damaged, &asked);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0]["error"]["message"], "this is not a Hindsight trace");
}

/// mov [rdi], rdi; add rdi, 4096; dec rcx; jnz back
const TOUCH: &[u8] = &[
    0x48, 0x89, 0x3f, 0x48, 0x81, 0xc7, 0x00, 0x10, 0x00, 0x00, 0x48, 0xff, 0xc9, 0x75, 0xf1,
];
/// jmp to itself
const LOOP: &[u8] = &[0xeb, 0xfe];

/// A recording whose program touches all of its window, and one that lays out files and moves them about.
#[test]
fn recordings_that_want_all_memory_end_in_errors() {
    let scene = Scene::new();
    let pages = 1u64 << 20;
    let touched = program(TOUCH, &start(pages, 0), &[], &[], 4 * pages, summary());
    let mut made = Made::new(&header());
    made.module("/lib/small.so", ModuleHash::of(b"hello"), 5);
    made.piece(0, 0, 5, b"hello");
    let (module, offset, gib) = (0, 0, 1u64 << 30);
    let file = |addr| Event::FileOf {
        addr,
        len: gib,
        module,
        offset,
    };
    let (from, to, len) = (0, 3 << 30, gib - 4096);
    let events = [
        (0, file(0)),
        (0, file(gib)),
        (0, Event::Move { from, to, len }),
    ];
    program_in(&mut made, LOOP, &start(0, 0), &[], &events, 10);
    let laid = made.finish(&[(1, 1), (2, 1)], summary());
    let asked = [
        json!({"ask": "step", "at": "end", "direction": "backward", "count": 3}),
        json!({"ask": "writes", "at": "end", "address": "0x1000", "length": 64}),
    ];
    let path = scene.path("made.hst");
    for (bytes, what) in [(touched, "more memory"), (laid, "too large")] {
        std::fs::write(&path, bytes).unwrap();
        let (all, _) = in_node(&scene, &path, &asked);
        for answer in &all[1..] {
            let message = answer["error"]["message"].as_str();
            assert!(message.is_some_and(|m| m.contains(what)), "{answer}");
            assert_ne!(answer["error"]["kind"], "failed", "{answer}");
        }
    }
}
