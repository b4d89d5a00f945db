//! Answers are those of the commands.

use super::client::{Client, command, crash};
use hindsight_lab::Scene;
use serde_json::{Value as Json, json};

#[test]
fn they_are_those_of_the_commands() {
    let (s, trace) = crash();
    let file = trace.to_str().unwrap();
    let mut c = Client::new(&s, &trace);
    let mut at = c.ask("at", json!({"at": "crash"}));
    let here = at.as_object_mut().unwrap().remove("here").unwrap();
    let said = command(&s, &["at", "--json", "--instructions", "5", file, "crash"]);
    assert_eq!(at, said);
    // A later question can begin there.
    assert_eq!(c.ask("registers", json!({"at": here})), said["registers"]);
    assert_eq!(c.ask("stack", json!({"at": here})), said["stack"]);
    assert_eq!(c.ask("variables", json!({"at": here})), said["variables"]);
    let carried = json!({"at": here, "carried": true});
    assert_eq!(c.ask("variables", carried), said["variables"]);
    assert_eq!(c.ask("code", json!({"at": here})), said["code"]);
    let caller = command(&s, &["at", "--json", "--frame", "1", file, "crash"]);
    let frame = json!({"at": here, "frame": 1});
    assert_eq!(c.ask("registers", frame.clone()), caller["registers"]);
    assert_eq!(c.ask("variables", frame), caller["variables"]);

    let info = command(&s, &["info", "--json", file]);
    assert_eq!(c.ask("info", json!({})), info);
    let maps = command(&s, &["maps", "--json", file, "crash"]);
    assert_eq!(c.ask("maps", json!({"at": "crash"})), maps["mappings"]);
    let symbols = command(&s, &["symbol", "--json", file, "sum", "0x401136"]);
    let names = json!({"names": ["sum", "0x401136"]});
    assert_eq!(c.ask("symbol", names), symbols["answers"]);
    let memory = command(&s, &["mem", "--json", file, "crash", "nodes", "64"]);
    let ask = json!({"at": "crash", "address": "nodes", "length": 64, "candidates": true, "carried": true});
    assert_eq!(c.ask("memory", ask), memory);

    let events = command(
        &s,
        &["events", "--json", "--time", "--kind", "syscall", file],
    );
    let ask = json!({"kinds": ["syscall"], "arguments": true, "time": true});
    assert_eq!(Json::from(c.list("events", ask, 7)), events);
    let calls = command(&s, &["calls", "--json", file, "sum"]);
    let ask = json!({"function": "sum", "arguments": true});
    let mut listed = c.list("calls", ask, 1);
    for call in &mut listed {
        let here = call.as_object_mut().unwrap().remove("here").unwrap();
        assert_eq!(here["count"], call["count"]);
    }
    assert_eq!(Json::from(listed), calls["calls"]);
    let writes = command(
        &s,
        &["writes", "--json", "--count", "0", file, "nodes[2].next"],
    );
    let ask = json!({"at": "end", "address": "nodes[2].next"});
    assert_eq!(Json::from(c.list("writes", ask, 1)), writes);
    let mut output = c.list("output", json!({}), 5);
    for t in &mut output {
        assert_eq!(t.as_object_mut().unwrap().remove("from").unwrap(), 0);
    }
    assert_eq!(Json::from(output), command(&s, &["output", "--json", file]));
    assert_eq!(c.end(), Some(0));
}

#[test]
fn what_is_carried_is_told_to_those_who_ask_for_it() {
    let s = Scene::new();
    let program = s.compile("carried.c", &["-O0", "-g", "-fno-builtin"]);
    let trace = s.path("part.hst");
    let mut record = s.hindsight(&["record", "--quiet", "--only-module", "carried", "-o"]);
    let done = s.run(record.arg(&trace).arg("--").arg(&program));
    assert!(done.status.success(), "{}", done.messages());
    let mut c = Client::new(&s, &trace);
    let calls = c.list("calls", json!({"function": "stage"}), 100);
    let last = calls.last().unwrap();
    let kept = |variables: &Json| {
        let mut all = variables.as_array().unwrap().iter();
        all.find(|v| v["name"] == "kept").unwrap().clone()
    };

    let place = last["position"].as_str().unwrap();
    let frame = ["--frame", "1", "--assume", "declared"];
    let words = [
        &["at", "--json", trace.to_str().unwrap(), place][..],
        &frame,
    ]
    .concat();
    let said = command(&s, &words);
    assert_eq!(kept(&said["variables"])["carried"]["text"], "42");
    assert_ne!(said["stack_carried"], Json::Null);
    let ask = json!({"at": last["here"], "frame": 1, "carried": true});
    let mut at = c.ask("at", ask.clone());
    at.as_object_mut().unwrap().remove("here").unwrap();
    assert_eq!(at, said);
    assert_eq!(c.ask("variables", ask), said["variables"]);
    // Nobody else gets it.
    let ask = json!({"at": last["here"], "frame": 1});
    let at = c.ask("at", ask.clone());
    assert_eq!(kept(&at["variables"])["carried"], Json::Null);
    assert_eq!(at["stack_carried"], Json::Null);
    assert_eq!(c.ask("variables", ask), at["variables"]);
}

#[test]
fn what_is_not_known_is_null() {
    let (s, trace) = crash();
    let mut c = Client::new(&s, &trace);
    let memory = c.ask("memory", json!({"at": "crash", "address": 16, "length": 4}));
    assert_eq!(memory["bytes"], json!([null, null, null, null]));
    assert_eq!(memory["grounds"][0]["ground"], Json::Null);
    let value = c.ask("evaluate", json!({"at": "crash", "expression": "*n"}));
    assert_eq!(value["number"], Json::Null);
    assert!(value["text"].as_str().unwrap().contains('?'), "{value}");
    let value = c.ask("evaluate", json!({"at": "crash", "expression": "s"}));
    assert_eq!(value, json!({"text": "6", "number": 6}));
    let vectors = c.ask("registers", json!({"at": "crash", "vectors": true}));
    assert_eq!(vectors["zmm31"].as_str().unwrap().len(), 128);
    let range = c.ask("range", json!({}));
    assert_eq!(range["begin"]["count"], 0);
    let threads = c.ask("threads", json!({}));
    assert_eq!(threads[0]["signal"], libc::SIGSEGV);
    assert_eq!(threads[0]["end_count"], range["end"]["count"]);
    let processes = c.ask("processes", json!({}));
    assert_eq!(processes[0]["threads"], json!([threads[0]["thread"]]));
    let modules = c.ask("modules", json!({"image": 1}));
    let paths = modules.as_array().unwrap().iter();
    assert!(paths.filter(|m| m["path"] == json!(s.path("list"))).count() == 1);
    let near = c.ask("symbol", json!({"names": ["summ"]}));
    assert_eq!(near[0]["similar"], json!(["sum"]));
}

#[test]
fn errors_have_kinds_and_the_session_goes_on() {
    let (s, trace) = crash();
    let mut c = Client::new(&s, &trace);
    let mut fails = |ask: &str, fields: Json, kind: &str, part: &str| {
        let (found, message) = c.fail(ask, fields);
        assert_eq!(found, kind, "{ask}: {message}");
        assert!(message.contains(part), "{ask}: {message}");
    };
    fails("nothing", json!({}), "request", "there are info");
    fails("at", json!({"att": "crash"}), "request", "att");
    fails("memory", json!({}), "request", "address");
    let none = json!({"address": 0, "length": 0});
    fails("memory", none, "request", "at least one byte");
    let long = json!({"address": 0, "length": 1u64 << 30});
    fails("memory", long, "request", "at most");
    fails("at", json!({"at": "nowhere"}), "place", "is no place");
    fails("at", json!({"at": "0:FFFFFF"}), "place", "no position");
    fails("at", json!({"thread": 99}), "place", "no thread 99");
    let late = json!({"at": {"thread": 2, "count": 1u64 << 40}});
    fails("at", late, "place", "no instant");
    let both = json!({"at": {"thread": 2, "count": 0}, "image": 1});
    fails("at", both, "request", "image");
    fails(
        "modules",
        json!({"image": 9}),
        "place",
        "no program image 9",
    );
    let entered = json!({"at": {"thread": 2, "count": 5, "entered": "0x401162"}});
    fails("registers", entered, "place", "no signal handler");
    let wrong = json!({"expression": "nodes[2].nxt"});
    fails("evaluate", wrong, "expression", "nxt");
    fails("calls", json!({"function": "summ"}), "name", "sum");
    fails("run", json!({"breakpoints": ["summ"]}), "name", "sum");
    fails("run", json!({"signals": ["SIGNONE"]}), "name", "SIGNONE");
    fails("run", json!({"registers": ["eax"]}), "name", "eax");
    fails("events", json!({"kinds": ["rain"]}), "name", "rain");
    let unknown = json!({"watchpoints": [{"address": 16, "changes": true}]});
    fails("run", unknown, "unsupported", "not known");
    fails("step", json!({"by": "mile"}), "request", "mile");
    fails("next", json!({"list": 5}), "place", "no list 5");
    assert_eq!(c.ask("close", json!({"list": 5})), json!({"closed": false}));
    assert_eq!(c.ask("range", json!({}))["begin"]["position"], "0:0");
}
