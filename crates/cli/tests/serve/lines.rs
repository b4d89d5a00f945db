//! Lines that are no requests, requests that are cancelled, and ends of sessions.

use super::client::{Client, crash};
use hindsight_lab::{Scene, await_end, children, kill};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[test]
fn what_is_no_request_is_an_error() {
    let (s, trace) = crash();
    let mut c = Client::new(&s, &trace);
    let long = format!("{{\"id\":1,\"ask\":\"{}\"}}", "x".repeat(1 << 20));
    let lines = [
        "what",
        "[]",
        "{}",
        "{\"id\":{},\"ask\":\"range\"}",
        "{\"cancel\":1,\"id\":2}",
        &"[".repeat(100_000),
        "{\"id\":1,\"ask\":\"ra\u{1}nge\"}",
        &long,
    ];
    for line in lines {
        c.write(line);
        let answer = c.read();
        assert_eq!(answer["id"], json!(null), "{answer}");
        assert_eq!(answer["error"]["kind"], "malformed", "{answer}");
    }
    // Nothing of what was long is left, and empty lines are nothing.
    c.write("");
    assert_eq!(c.ask("range", json!({}))["begin"]["count"], 0);
    // An id may be text. What is cancelled but not there does not matter.
    c.write("{\"cancel\":17}");
    c.write("{\"id\":\"a\",\"ask\":\"range\"}");
    assert_eq!(c.read()["id"], "a");
    assert_eq!(c.end(), Some(0));
}

/// A recording in which a search takes long.
fn long() -> (Scene, PathBuf) {
    let s = Scene::new();
    let work = "BEGIN { for (i = 0; i < 3000000; i++) s += i; print s }";
    let (_, trace) = s.record(&["awk", work]);
    (s, trace)
}

#[test]
fn requests_can_be_cancelled() {
    let (s, trace) = long();
    let mut c = Client::new(&s, &trace);
    let slow = |c: &mut Client| c.send("step", json!({"at": "50%", "count": 1_000_000}));
    let id = slow(&mut c);
    // What waits behind it is cancelled, too.
    let waits = c.send("range", json!({}));
    c.write(&format!("{{\"cancel\":{waits}}}"));
    std::thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    c.write(&format!("{{\"cancel\":{id}}}"));
    assert_eq!(c.answer(id).1["error"]["kind"], "cancelled");
    assert!(asked.elapsed() < Duration::from_secs(5), "{asked:?}");
    assert_eq!(c.answer(waits).1["error"]["kind"], "cancelled");
    // The signal that Ctrl-C sends.
    let id = slow(&mut c);
    std::thread::sleep(Duration::from_millis(300));
    assert!(kill(c.child.id() as i32, libc::SIGINT));
    assert_eq!(c.answer(id).1["error"]["kind"], "cancelled");
    // While nothing is asked, it does nothing.
    assert!(kill(c.child.id() as i32, libc::SIGINT));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(c.ask("range", json!({}))["begin"]["count"], 0);
    // No more than so many wait.
    let id = slow(&mut c);
    std::thread::sleep(Duration::from_millis(300));
    let others: Vec<u64> = (0..66).map(|_| c.send("range", json!({}))).collect();
    for busy in &others[64..] {
        assert_eq!(c.answer(*busy).1["error"]["kind"], "busy");
    }
    c.write(&format!("{{\"cancel\":{id}}}"));
    assert_eq!(c.answer(id).1["error"]["kind"], "cancelled");
    for other in &others[..64] {
        assert!(c.answer(*other).1.get("result").is_some());
    }
    assert_eq!(c.end(), Some(0));
}

#[test]
fn it_ends_with_its_client() {
    let (s, trace) = long();
    for killed in [false, true] {
        let mut c = Client::new(&s, &trace);
        let [(player, _)] = children(c.child.id() as i32)[..] else {
            panic!("not one process plays");
        };
        c.send(
            "run",
            json!({"at": "end", "direction": "backward", "registers": ["gs_base"],
                   "watchpoints": [{"address": "0x10", "access": "any"}]}),
        );
        std::thread::sleep(Duration::from_millis(300));
        match killed {
            true => c.child.kill().unwrap(),
            // It is amid a search, and nobody reads the answer any more.
            false => {
                c.input = None;
                drop(std::mem::replace(&mut c.lines, empty()));
            }
        }
        c.child.wait().unwrap();
        await_end(player);
    }
}

/// Lines of a process that says nothing.
fn empty() -> std::io::Lines<std::io::BufReader<std::process::ChildStdout>> {
    use std::io::BufRead;
    let mut quiet = std::process::Command::new("/bin/true")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    quiet.wait().unwrap();
    std::io::BufReader::new(quiet.stdout.take().unwrap()).lines()
}
