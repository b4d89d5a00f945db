//! Long answers come in pages.

use super::client::{Client, crash};
use hindsight_lab::Scene;
use serde_json::json;

#[test]
fn lists_are_independent_and_bounded() {
    let (s, trace) = crash();
    let mut c = Client::new(&s, &trace);
    let all = c.list("events", json!({}), 10_000);
    let [a, b] = [(); 2].map(|()| c.ask("events", json!({}))["list"].clone());
    let mut take = |list: &serde_json::Value| {
        let id = c.send("next", json!({"list": list, "count": 2}));
        c.answer(id).0
    };
    assert_eq!((take(&a), take(&b)), (all[..2].to_vec(), all[..2].to_vec()));
    assert_eq!(take(&a), all[2..4]);
    assert_eq!(
        c.ask("close", json!({ "list": a })),
        json!({"closed": true})
    );
    assert_eq!(c.fail("next", json!({ "list": a })).0, "place");
    for _ in 0..63 {
        c.ask("events", json!({}));
    }
    assert_eq!(c.fail("events", json!({})).0, "busy");
    c.ask("close", json!({ "list": b }));
    c.ask("events", json!({}));
    let syscalls = c.fail("events", json!({"syscalls": ["nothing"]}));
    assert_eq!(syscalls.0, "busy");
}

#[test]
fn state_points_are_a_list() {
    let s = Scene::new();
    let (program, out) = (s.compile("states.c", &["-pthread"]), s.path("out"));
    let (_, trace) = s.record(&[program.as_os_str(), out.as_os_str()]);
    let mut c = Client::new(&s, &trace);
    let all = c.list("states", json!({}), 3);
    let named: Vec<_> = (all.iter())
        .map(|p| (p["number"].clone(), p["name"].clone()))
        .collect();
    let wanted = [
        (1, "filled"),
        (2, "changed"),
        (3, "changed"),
        (4, "changed"),
    ];
    assert_eq!(named, wanted.map(|(n, name)| (json!(n), json!(name))));
    let at = c.ask("find", json!({"at": "state:changed:3"}));
    assert_eq!(at["position"], all[3]["position"]);
    assert_eq!(c.fail("states", json!({"image": 9})).0, "place");
}

#[test]
fn what_was_written_comes_in_pieces() {
    let s = Scene::new();
    let work = "head -c 300000 /dev/zero | tr '\\0' x > f; dd if=f bs=300000 status=none; printf '\\377\\0z'";
    let (done, trace) = s.record(&["/bin/sh", "-c", work]);
    let mut c = Client::new(&s, &trace);
    let all = c.list("output", json!({}), 100);
    assert_eq!(c.list("output", json!({}), 1), all);
    let mut written = Vec::new();
    for t in all {
        assert_eq!(t["fd"], 1, "{t}");
        let before = written.len();
        match (t["text"].as_str(), t["bytes"].as_array()) {
            (Some(text), None) => written.extend(text.bytes()),
            (None, Some(b)) => written.extend(b.iter().map(|b| b.as_u64().unwrap() as u8)),
            other => panic!("{other:?}"),
        }
        let n = (written.len() - before) as u64;
        assert!(n <= 1 << 16);
        assert!(t["from"].as_u64().unwrap() + n <= t["length"].as_u64().unwrap());
    }
    assert!(written == done.stdout, "{} bytes", written.len());
}

#[test]
fn a_page_ends_within_what_a_call_wrote() {
    let s = Scene::new();
    let work = "head -c 3000000 /dev/zero | tr '\\0' x > f; dd if=f bs=3000000 iflag=fullblock status=none";
    let (_, trace) = s.record(&["/bin/sh", "-c", work]);
    let mut c = Client::new(&s, &trace);
    let list = c.ask("output", json!({}));
    assert_eq!(list["total"], 1);
    let mut lengths = Vec::new();
    for done in [false, false, true] {
        let id = c.send("next", json!({"list": list["list"], "count": 10_000}));
        let (items, line) = c.answer(id);
        assert_eq!(line["result"]["done"], done, "{line}");
        let of = |t: &serde_json::Value| t["text"].as_str().unwrap().len();
        lengths.push(items.iter().map(of).sum::<usize>());
    }
    assert_eq!(lengths.iter().sum::<usize>(), 3_000_000, "{lengths:?}");
    assert!(
        lengths.iter().all(|n| *n <= (1 << 20) + (1 << 16)),
        "{lengths:?}"
    );
}

#[test]
fn calls_say_where_they_begin() {
    let (s, trace) = crash();
    let mut c = Client::new(&s, &trace);
    for call in c.list("calls", json!({"function": "sum"}), 10) {
        assert_eq!(call["here"]["position"], call["position"]);
        let cpu = c.ask("registers", json!({"at": call["here"]}));
        assert_eq!(cpu["rip"], call["address"]);
    }
}
