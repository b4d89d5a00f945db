//! `hindsight origin`: values whose way through a program is known.

use hindsight_lab::Scene;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What the program reads, every byte another one.
fn content() -> Vec<u8> {
    (1..65).collect()
}

/// Records the program. The last loops have so many turns.
fn recorded(s: &Scene, turns: &str) -> PathBuf {
    let program = s.compile("origins.c", &["-O1", "-g"]);
    let file = s.path("origins.data");
    std::fs::write(&file, content()).unwrap();
    let argv = [program.as_os_str(), file.as_os_str(), turns.as_ref()];
    let (done, trace) = s.record(&argv);
    assert_eq!(done.text(), "10\n", "{}", done.messages());
    trace
}

fn origin(s: &Scene, trace: &Path, what: &str, options: &[&str]) -> Vec<Value> {
    let mut c = s.hindsight(&["origin", "--json", "--all"]);
    c.args(options).arg(trace).args(["end", what]);
    let done = s.run(&mut c);
    assert!(done.status.success(), "{what}: {}", done.messages());
    let all: Value = serde_json::from_str(&done.text()).unwrap();
    let pieces = all["pieces"].as_array().unwrap().clone();
    // Each byte is in one piece.
    let mut next = 0;
    for p in &pieces {
        assert_eq!(p["first"], next, "{what}: {pieces:#?}");
        next += p["length"].as_u64().unwrap();
    }
    assert_eq!(next, all["length"].as_u64().unwrap(), "{what}");
    pieces
}

/// For each byte: the byte of the file that it is, or else the kind of its origin.
fn bytes(what: &str, pieces: &[Value]) -> Vec<Result<u64, String>> {
    let mut out = Vec::new();
    for p in pieces {
        let o = &p["origin"];
        let kind = o["kind"].as_str().unwrap();
        for i in 0..p["length"].as_u64().unwrap() {
            out.push(match kind {
                "read" => {
                    assert!(o["file"].as_str().unwrap().ends_with("origins.data"));
                    let at = o["offset"].as_u64().unwrap() + i;
                    let value = &p["bytes"][i as usize];
                    assert_eq!(value, content()[at as usize], "{what}: {p:#}");
                    Ok(at)
                }
                _ => Err(kind.to_owned()),
            });
        }
    }
    out
}

fn file(range: std::ops::Range<u64>) -> Vec<Result<u64, String>> {
    range.map(Ok).collect()
}

fn kind(kind: &str, len: usize) -> Vec<Result<u64, String>> {
    vec![Err(kind.to_owned()); len]
}

/// How a piece's way goes, one word for each hop.
fn ways(p: &Value) -> Vec<&str> {
    let way = p["way"].as_array().unwrap().iter();
    way.map(|h| h["how"].as_str().unwrap()).collect()
}

#[test]
fn values_are_followed_to_where_they_came_from() {
    let s = Scene::new();
    let trace = recorded(&s, "1000");
    let shown = |what: &str| bytes(what, &origin(&s, &trace, what, &[]));
    assert_eq!(shown("copied"), file(0..64));
    assert_eq!(shown("by_bytes"), file(0..16));
    let text = [file(16..31), kind("fresh", 1)].concat();
    assert_eq!(shown("by_string"), text);
    assert_eq!(shown("by_words"), file(0..64));
    assert_eq!(shown("through_registers"), file(0..8));
    let vectors = [file(8..16), file(0..8)].concat();
    assert_eq!(shown("through_vectors"), vectors);
    let extended = [file(1..2), kind("constant", 7)].concat();
    assert_eq!(shown("extended"), extended);
    let sign = [file(1..2), kind("computed", 7)].concat();
    assert_eq!(shown("sign"), sign);
    let swapped: Vec<_> = file(0..8).into_iter().rev().collect();
    assert_eq!(shown("swapped"), swapped);
    assert_eq!(shown("chosen"), file(0..8));
    assert_eq!(shown("sum"), kind("computed", 8));
    assert_eq!(shown("constant"), kind("file", 8));
    assert_eq!(shown("written_constant"), kind("constant", 8));
    assert_eq!(shown("never"), kind("fresh", 16));
    assert_eq!(shown("result"), kind("result", 8));
    assert_eq!(shown("compared"), kind("computed", 1));
    assert_eq!(shown("absorbed"), kind("computed", 8));
    assert_eq!(shown("left_by_call"), kind("untold", 8));
    // The first element is a copy of what was read. Behind that, elements are put together of parts of others.
    let overlapped = shown("overlapped");
    assert_eq!(overlapped[..4], file(0..4));
    assert_eq!(overlapped[4..20], kind("computed", 16));
    // Another process may have written there.
    assert_eq!(shown("shared"), kind("untold", 8));
    let pieces = [file(8..12), kind("constant", 4)].concat();
    assert_eq!(shown("pieces"), pieces);

    // All 16 are copies of one byte.
    let filled = origin(&s, &trace, "filled", &[]);
    assert_eq!(
        (filled.len(), &filled[0]["origin"]["offset"]),
        (1, &3.into())
    );
    let sum = origin(&s, &trace, "sum", &[]);
    let from = sum[0]["origin"]["from"].as_array().unwrap();
    let of = |i: usize| from[i]["bytes"].as_array().unwrap().clone();
    let want = |r: std::ops::Range<usize>| -> Vec<Value> {
        content()[r].iter().map(|b| (*b).into()).collect()
    };
    assert_eq!((of(0), of(1)), (want(0..8), want(8..16)));
    let result = origin(&s, &trace, "result", &[]);
    let call = result[0]["origin"]["call"].as_str().unwrap();
    assert!(call.starts_with("getpid()"), "{call}");
    let argument = origin(&s, &trace, "argument", &[]);
    assert_eq!(argument[0]["origin"]["kind"], "argument", "{argument:#?}");
    assert_eq!(argument[0]["origin"]["index"], 1);
}

#[test]
fn values_are_followed_through_the_kernel() {
    let s = Scene::new();
    let trace = recorded(&s, "1000");
    let moved = origin(&s, &trace, "moved", &[]);
    assert_eq!(bytes("moved", &moved), file(0..8));
    assert!(ways(&moved[0]).contains(&"moved"), "{moved:#?}");
    // The handler's first instruction is its own, not the one that it interrupts.
    let handler = origin(&s, &trace, "in_handler", &[]);
    assert_eq!(bytes("in_handler", &handler), file(16..24));
    for hop in handler[0]["way"].as_array().unwrap() {
        let function = hop["point"]["frames"][0]["function"]
            .as_str()
            .unwrap_or_default();
        assert!(["handler", "main"].contains(&function), "{hop:#}");
    }
    // Two calls wrote what one read.
    let pipe = origin(&s, &trace, "through_pipe", &[]);
    assert_eq!(bytes("through_pipe", &pipe), file(0..8));
    assert_eq!(
        pipe.iter()
            .map(|p| p["length"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [3, 5]
    );
    assert!(pipe.iter().all(|p| ways(p)[0] == "channel"), "{pipe:#?}");
    let again = origin(&s, &trace, "through_file", &[]);
    assert_eq!(bytes("through_file", &again), file(4..12));
    assert!(ways(&again[0]).contains(&"channel"), "{again:#?}");
    // The child read it from memory that its parent had filled.
    let child = origin(&s, &trace, "through_child", &[]);
    assert_eq!(bytes("through_child", &child), file(8..16));
    let threads = child[0]["way"].as_array().unwrap().iter();
    let threads: std::collections::HashSet<u64> = threads
        .map(|h| h["point"]["thread"].as_u64().unwrap())
        .collect();
    assert_eq!(threads.len(), 2, "{child:#?}");
    // A handler ran while the value was in a register.
    let signal = origin(&s, &trace, "through_signal", &[]);
    assert_eq!(bytes("through_signal", &signal), file(0..8));
    let saved = ways(&signal[0]).iter().filter(|h| **h == "signal").count();
    assert_eq!(saved, 2, "{signal:#?}");
}

#[test]
fn the_way_may_be_long() {
    let s = Scene::new();
    let trace = recorded(&s, "200000");
    let many = origin(&s, &trace, "many[23]", &[]);
    assert_eq!(bytes("many[23]", &many), file(0..8));
    assert!(ways(&many[0]).len() > 40, "{many:#?}");
    // Nothing else was done to the register for longer than is looked at instruction by instruction.
    let far = origin(&s, &trace, "far", &[]);
    assert_eq!(bytes("far", &far), file(0..8));

    let short = origin(&s, &trace, "many[23]", &["--hops", "5"]);
    assert_eq!(bytes("many[23]", &short), kind("further", 8));
    assert_eq!(short[0]["hops"], 5);
}

#[test]
fn people_see_the_way_and_where_it_ends() {
    let s = Scene::new();
    let trace = recorded(&s, "1000");
    let mut c = s.hindsight(&["origin"]);
    let done = s.run(c.arg(&trace).args(["end", "many[23]"]));
    let text = done.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("the value is 0x"), "{text}");
    assert!(lines[1].contains("mov"), "{text}");
    assert!(lines.iter().any(|l| l.trim().ends_with(" more")), "{text}");
    let last = lines.last().unwrap();
    assert!(
        last.contains("byte 0 of") && last.contains("read(3,"),
        "{text}"
    );

    for (words, why) in [
        (&["end", "copied", "5000"][..], "at most 4096 bytes"),
        (&["end", "copied", "0"], "at least one byte"),
        (&["end", "nothing_has_this_name"], "nothing_has_this_name"),
        (&["nowhere", "copied"], "nowhere"),
    ] {
        let mut c = s.hindsight(&["origin"]);
        let done = s.run(c.arg(&trace).args(words));
        assert_eq!(done.status.code(), Some(2), "{}", done.messages());
        assert!(done.messages().contains(why), "{}", done.messages());
    }
}
