//! Steps, runs and searches.

use super::client::{Client, crash};
use hindsight_lab::{Scene, words};
use serde_json::{Value as Json, json};

#[test]
fn forwards_and_backwards() {
    let (s, trace) = crash();
    let mut c = Client::new(&s, &trace);
    let range = c.ask("range", json!({}));
    let note = c.ask("run", json!({"at": "begin", "breakpoints": ["note"]}));
    assert_eq!(
        (&note["reason"], &note["number"]),
        (&json!("breakpoint"), &json!(0))
    );
    let here = &note["here"];
    let v = c.ask("evaluate", json!({"at": here, "expression": "text"}));
    assert_eq!(v["number"], 0x1234);
    // From there to the end of the function, and to the line behind the call.
    let out = c.ask("step", json!({"at": here, "by": "out"}));
    let caller = c.ask("stack", json!({"at": out["here"]}));
    assert_eq!(caller[0]["frames"][0]["function"], "main");
    let back = c.ask(
        "step",
        json!({"at": out["here"], "by": "over", "direction": "backward"}),
    );
    let call = c.ask(
        "step",
        json!({"at": here, "by": "out", "direction": "backward"}),
    );
    assert_eq!(back["here"], call["here"]);
    let one = c.ask("step", json!({"at": here, "count": 3}));
    let count = |j: &Json| j["here"]["count"].as_u64().unwrap();
    assert_eq!(count(&one), count(&note) + 3);
    let end = c.ask("step", json!({"at": "end", "count": 3}));
    assert_eq!(
        (&end["reason"], &end["here"]),
        (&json!("end"), &range["end"])
    );
    // All ways lead to the same write.
    let write = json!({"address": "nodes[2].next", "length": 8});
    let mut ask = write.clone();
    ask["at"] = "crash".into();
    ask["direction"] = "backward".into();
    let found = c.ask("access", ask);
    let back = c.ask(
        "run",
        json!({"at": "crash", "direction": "backward", "watchpoints": [write]}),
    );
    assert_eq!(back["reason"], "watchpoint");
    assert_eq!(back["here"]["count"], found["count"]);
    let mut changes = write.clone();
    changes["changes"] = true.into();
    let forward = c.ask("run", json!({"at": here, "watchpoints": [changes]}));
    assert_eq!(forward["access_count"], found["count"]);
    let first = c.ask("access", json!({"at": here, "address": "nodes[2].next"}));
    assert_eq!(first["count"], found["count"]);
    assert_eq!(
        c.ask("access", json!({"at": "crash", "address": 16})),
        Json::Null
    );
    // Events stop too.
    let call = c.ask("run", json!({"at": "begin", "syscalls": ["write"]}));
    assert_eq!(
        (&call["reason"], &call["name"]),
        (&json!("syscall"), &json!("write"))
    );
    let done = c.ask("run", json!({"at": call["here"], "syscalls": true}));
    assert_eq!(
        (&done["reason"], &done["result"]),
        (&json!("syscall-return"), &json!(3))
    );
    let signal = c.ask("run", json!({"at": "begin", "signals": ["SIGSEGV"]}));
    assert_eq!(signal["name"], "SIGSEGV");
    let second = c.ask("run", json!({"at": here, "calls": ["sum"]}));
    let first = c.ask(
        "run",
        json!({"at": here, "direction": "backward", "calls": ["sum"]}),
    );
    assert!(count(&first) < count(&note) && count(&note) < count(&second));
    let given = c.ask("run", json!({"at": first["here"], "returns": ["sum"]}));
    assert_eq!(
        (&given["reason"], &given["rax"]),
        (&json!("return"), &json!("0xa"))
    );
}

/// At the entry of a handler registers differ from those of the same instant before. An answer names which of the two.
#[test]
fn entries_of_handlers_are_instants_of_their_own() {
    let s = Scene::new();
    let program = s.compile("handlers.c", &["-O0"]);
    let (_, trace) = s.record(&words(&program, &[]));
    let mut c = Client::new(&s, &trace);
    let signals = c.list("events", json!({"kinds": ["exception"]}), 100);
    let mut entered = 0;
    for signal in signals.iter().take(8) {
        let at = json!({"thread": signal["thread"], "count": signal["count"]});
        let before = c.ask("registers", json!({ "at": at }));
        // One instruction of the handler is executed; the first one is before it.
        let step = c.ask("step", json!({ "at": at }));
        let place = c.ask("at", json!({ "at": step["here"] }))["place"].take();
        let handler = c.ask("symbol", json!({"names": [place["function"]]}));
        let first = &handler[0]["symbols"][0]["address"];
        let back = c.ask(
            "run",
            json!({"at": step["here"], "direction": "backward", "breakpoints": [first]}),
        );
        let here = &back["here"];
        assert_eq!(
            (&here["count"], &here["entered"]),
            (&signal["count"], first),
            "{back}"
        );
        let inside = c.ask("registers", json!({ "at": here }));
        assert_ne!(inside["rip"], before["rip"]);
        // From elsewhere it is found again.
        c.ask("registers", json!({"at": "begin"}));
        assert_eq!(c.ask("registers", json!({ "at": here })), inside);
        assert_eq!(c.ask("registers", json!({ "at": at })), before);
        entered += 1;
    }
    assert_eq!(entered, 8);
}
