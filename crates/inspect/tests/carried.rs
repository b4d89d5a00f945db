//! Values that are carried over calls that were not recorded. A recording of the same run without gaps tells whether they are true.

use hindsight_inspect::{Carried, Carrier, Declarations, Inspector, Rule};
use hindsight_lab::Scene;
use hindsight_timeline::{Cancel, Cursor, Filter, Ground, Options, ThreadId, Timeline};
use std::path::{Path, PathBuf};

/// Records the program, always at the same addresses, with `options`.
fn record(scene: &Scene, name: &str, options: &[&str], program: &Path) -> PathBuf {
    let trace = scene.path(name);
    let mut command = scene.hindsight(&["record", "--quiet", "-o"]);
    command
        .arg(&trace)
        .args(options)
        .args(["--", "setarch", "-R"])
        .arg(program);
    let done = scene.run(&mut command);
    assert!(done.status.success(), "{}", done.messages());
    trace
}

struct Run {
    inspector: Inspector,
    cursor: Cursor,
    image: u32,
    thread: ThreadId,
    stages: Vec<hindsight_timeline::Call>,
}

impl Run {
    fn open(trace: &Path) -> Run {
        let timeline = Timeline::open(trace, Options::default()).unwrap();
        let image = timeline.processes().unwrap().last().unwrap().image;
        let threads = timeline.threads().unwrap();
        let thread = threads.iter().find(|t| t.image == image).unwrap().id;
        let mut inspector = Inspector::new(timeline.clone());
        let stage = inspector.functions(image, "carried!stage").unwrap()[0].0;
        let filter = Filter {
            image: Some(image),
            ..Filter::default()
        };
        let stages = timeline.calls(stage, &filter, &Cancel::new()).unwrap();
        assert_eq!(stages.len(), 11);
        let cursor = timeline.cursor().unwrap();
        Run {
            inspector,
            cursor,
            image,
            thread,
            stages,
        }
    }

    fn variable(&mut self, name: &str) -> u64 {
        let all = self
            .inspector
            .symbols(&self.cursor, &format!("carried!{name}"));
        all.unwrap()[0].address
    }

    /// What a variable points to.
    fn pointee(&mut self, name: &str) -> u64 {
        let at = self.variable(name);
        let bytes = self.cursor.memory(at, 8).unwrap();
        match bytes.whole() {
            Some(b) => u64::from_le_bytes(b.try_into().unwrap()),
            None => {
                let found = self.carried(at, 8, false);
                u64::from_le_bytes(found[0].bytes[..].try_into().unwrap())
            }
        }
    }

    /// Whether the word at an address points to anything that is mapped.
    fn points(&mut self, address: u64) -> bool {
        let word = self.cursor.known_memory(address, 8).unwrap().whole();
        let word = word.map(|w| u64::from_le_bytes(w.try_into().unwrap()));
        let position = self.cursor.position().unwrap();
        let list = self
            .cursor
            .timeline()
            .mappings(self.image, position)
            .unwrap();
        word.is_some_and(|w| list.iter().any(|m| m.start <= w && w < m.end))
    }

    fn carried(&mut self, address: u64, len: usize, straight: bool) -> Vec<Carried> {
        let m = self.cursor.memory(address, len).unwrap();
        let before = self.cursor.position().unwrap();
        let mut carrier = Carrier::new(Declarations::usual(), straight);
        let found = self
            .inspector
            .carried(&mut self.cursor, &[&m], &mut carrier)
            .unwrap();
        assert_eq!(self.cursor.position().unwrap(), before);
        for c in &found {
            // What is known is known.
            let from = (c.address - address) as usize;
            assert!(
                m.bytes[from..from + c.bytes.len()]
                    .iter()
                    .all(Option::is_none)
            );
        }
        found
    }

    /// What of a variable is known or carried at a stage, as text; `?` for what is not.
    fn text(&mut self, stage: usize, address: impl Fn(&mut Run) -> u64, len: usize) -> String {
        let call = self.stages[stage].clone();
        self.cursor.seek_call(&call).unwrap();
        let at = address(self);
        let m = self.cursor.memory(at, len).unwrap();
        let mut out: Vec<u8> = m
            .bytes
            .iter()
            .map(|b| b.map_or(b'?', |k| k.value))
            .collect();
        for c in self.carried(at, len, false) {
            assert_eq!(c.rule(), Rule::Declared);
            let from = (c.address - at) as usize;
            out[from..from + c.bytes.len()].copy_from_slice(&c.bytes);
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

const TEXT: &str = "key=value;other=1";

#[test]
fn what_functions_do_not_write_is_carried_over_their_calls() {
    let scene = Scene::new();
    let program = scene.compile("carried.c", &["-O1", "-fno-builtin", "-Wl,-z,lazy"]);
    let trace = record(&scene, "part.hst", &["--only-module", "carried"], &program);
    let mut run = Run::open(&trace);
    let unknown = |n: usize| "?".repeat(n);
    let text = |r: &mut Run| r.variable("text");
    for stage in 0..=6 {
        assert_eq!(run.text(stage, text, 17), TEXT, "stage {stage}");
    }
    // The compiled expression has changed; before, it is known.
    let counted: String = (0..16u8).map(char::from).collect();
    assert_eq!(run.text(1, |r| r.variable("compiled"), 16), counted);
    assert_eq!(run.text(2, |r| r.variable("compiled"), 16), unknown(16));
    // The same for what is written through the second parameter.
    assert_eq!(run.text(3, |r| r.variable("number"), 6), "12 and");
    assert_eq!(run.text(2, |r| r.variable("end"), 8), counted[..8]);
    assert_eq!(run.text(3, |r| r.variable("end"), 8), unknown(8));
    // Memory that was given out, until a call may allocate; the stack always.
    assert_eq!(run.text(1, |r| r.pointee("block"), 16), counted);
    assert_eq!(run.text(2, |r| r.pointee("block"), 16), unknown(16));
    assert_eq!(run.text(4, |r| r.pointee("local"), 15), "on the stack...");
    // A copy is known as soon as it is made, since it is read later.
    assert_eq!(run.text(4, |r| r.variable("copy"), 18), unknown(18));
    assert_eq!(run.text(5, |r| r.variable("copy"), 17), TEXT);
    let at = run.variable("copy");
    let found = run.carried(at, 17, false);
    assert!(found.len() == 1 && found[0].over.len() == 1 && found[0].ground == Ground::Exposed);
    // `%n` writes, and a function that calls back is not declared.
    for stage in [7, 8] {
        assert_eq!(run.text(stage, text, 17), unknown(17), "stage {stage}");
    }
    // What is assumed is shown as that.
    let at = run.variable("text");
    let assumed = run.carried(at, 17, true);
    assert!(!assumed.is_empty() && assumed.iter().all(|c| c.rule() == Rule::Straight));
}

#[test]
fn variables_and_frames_are_carried() {
    let scene = Scene::new();
    let program = scene.compile("carried.c", &["-O0", "-g", "-fno-builtin"]);
    let trace = record(&scene, "part.hst", &["--only-module", "carried"], &program);
    let mut run = Run::open(&trace);
    let mut carrier = Carrier::new(Declarations::usual(), false);
    let name = |f: &hindsight_inspect::symbols::CallFrame| {
        let function = f.frames.first().and_then(|f| f.function.clone());
        function.unwrap_or_default()
    };

    let (cursor, inspector) = (&mut run.cursor, &mut run.inspector);
    cursor.seek_call(&run.stages[10]).unwrap();
    let position = cursor.position().unwrap();
    let known = inspector.backtrace(cursor).unwrap();
    assert_eq!(
        known.iter().map(name).collect::<Vec<_>>(),
        ["stage", "deep"]
    );
    let (more, from) = inspector
        .backtrace_carried(cursor, &known, &mut carrier)
        .unwrap();
    assert_eq!(more.first().map(name).as_deref(), Some("main"));
    assert!(!from.is_empty() && from.iter().all(|c| c.rule() == Rule::Declared));
    // Of a variable, only what is carried is marked.
    for (variable, value) in [("n", "41"), ("kept", "42")] {
        let find = |all: Vec<hindsight_inspect::Value>| {
            all.into_iter()
                .find(|v| v.variable.name == variable)
                .unwrap()
        };
        let plain = find(inspector.variables(cursor, 1).unwrap());
        assert_eq!((plain.text.as_str(), &plain.carried), ("?", &None));
        let more = inspector.variables_carried(cursor, 1, &mut carrier);
        let more = find(more.unwrap());
        assert_eq!((more.text, more.bytes), (plain.text, plain.bytes));
        let carried = more.carried.unwrap();
        assert_eq!((carried.text.as_str(), carried.bytes.len()), (value, 4));
        let from = &carried.from[..];
        assert!(from.len() == 1 && from[0].bytes.len() == 4, "{from:?}");
    }
    assert_eq!(cursor.position().unwrap(), position);

    // What is known needs nothing that is carried, and elsewhere other things are carried.
    cursor.seek_call(&run.stages[0]).unwrap();
    let all = inspector
        .variables_carried(cursor, 1, &mut carrier)
        .unwrap();
    let here = all.iter().find(|v| v.variable.name == "here").unwrap();
    assert_eq!(
        (here.text.as_str(), &here.carried),
        ("\"on the stack...\"", &None)
    );
    // `qsort` is not declared.
    cursor.seek_call(&run.stages[8]).unwrap();
    let mut text = |straight: bool| {
        let mut carrier = Carrier::new(Declarations::usual(), straight);
        let all = inspector
            .variables_carried(cursor, 1, &mut carrier)
            .unwrap();
        let other = all
            .into_iter()
            .find(|v| v.variable.name == "other")
            .unwrap();
        assert_eq!(other.text, "?");
        other.carried
    };
    assert_eq!(text(false), None);
    let assumed = text(true).unwrap();
    assert!(assumed.text.starts_with("0x") && assumed.from[0].rule() == Rule::Straight);
}

#[test]
fn what_is_carried_is_true() {
    let scene = Scene::new();
    let (mut compared, mut same) = (0, 0);
    for options in [
        &["-O1", "-fno-builtin"][..],
        &["-O0", "-fno-plt"],
        &["-O2", "-no-pie", "-Wl,-z,now"],
    ] {
        let program = scene.compile("carried.c", options);
        let mut part = Run::open(&record(
            &scene,
            "part.hst",
            &["--only-module", "carried"],
            &program,
        ));
        let mut whole = Run::open(&record(&scene, "whole.hst", &[], &program));
        let timeline = part.cursor.timeline().clone();
        let mut count = timeline.thread(part.thread).map(|_| 0).unwrap();
        while let Some(gap) = timeline
            .gap_after(part.thread, count)
            .unwrap()
            .filter(|g| g.to != u64::MAX)
        {
            count = gap.to;
            part.cursor.seek_count(part.thread, count).unwrap();
            whole.cursor.seek_count(whole.thread, count).unwrap();
            let (here, there) = (
                part.cursor.registers().unwrap(),
                whole.cursor.registers().unwrap(),
            );
            if here.rip != there.rip {
                // Before the first instruction of the program's own file, the loader may do something else.
                continue;
            }
            same += 1;
            let position = part.cursor.position().unwrap();
            let mut look = Vec::new();
            for m in timeline.mappings(part.image, position).unwrap() {
                let own = m.path.ends_with("/carried") || m.path == "[heap]";
                match m.path.as_str() {
                    "[stack]" => look.push((here.gpr[hindsight_timeline::regs::RSP], 1024)),
                    _ if own && m.prot & 2 != 0 => {
                        look.push((m.start, (m.end - m.start).min(8192) as usize))
                    }
                    _ => {}
                }
            }
            for (address, len) in look {
                for c in part.carried(address, len, false) {
                    let truth = whole.cursor.memory(c.address, c.bytes.len()).unwrap();
                    for (i, (value, true_one)) in c.bytes.iter().zip(&truth.bytes).enumerate() {
                        let word = (c.address + i as u64) & !7;
                        // Libraries lie elsewhere in the other run.
                        if let Some(k) = true_one
                            && !whole.points(word)
                        {
                            let at = c.address + i as u64;
                            assert_eq!(*value, k.value, "{at:#x} at {position}: {:?}", c.over);
                            compared += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(
        same > 30 && compared > 1000,
        "{same} places, {compared} bytes"
    );
}
