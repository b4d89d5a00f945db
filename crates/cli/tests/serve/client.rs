//! A client as a program would have one.

use hindsight_lab::Scene;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A session with a recording.
pub struct Client {
    pub child: Child,
    pub input: Option<ChildStdin>,
    pub lines: Lines<BufReader<ChildStdout>>,
    last: u64,
}

impl Client {
    pub fn new(s: &Scene, trace: &Path) -> Client {
        let mut command = s.hindsight(&["serve"]);
        command.arg(trace);
        let mut child = (command.stdin(Stdio::piped()).stdout(Stdio::piped()))
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = Client {
            input: child.stdin.take(),
            child,
            lines,
            last: 0,
        };
        let ready = client.read();
        assert_eq!(ready["ready"]["protocol"], 1, "{ready}");
        client
    }

    pub fn read(&mut self) -> Json {
        let line = self.lines.next().expect("an answer").unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Sends a request; its id.
    pub fn send(&mut self, ask: &str, fields: Json) -> u64 {
        self.last += 1;
        let mut request = fields;
        request["id"] = self.last.into();
        request["ask"] = ask.into();
        self.write(&request.to_string());
        self.last
    }

    /// The answer to a request: what it was given piece by piece, and the last line.
    pub fn answer(&mut self, id: u64) -> (Vec<Json>, Json) {
        let mut items = Vec::new();
        loop {
            let mut line = self.read();
            if line.get("progress").is_some() {
                continue;
            }
            assert_eq!(line["id"], id, "{line}");
            if let Some(some) = line.get_mut("items") {
                items.append(some.as_array_mut().unwrap());
            } else {
                return (items, line);
            }
        }
    }

    /// Asks; the result.
    pub fn ask(&mut self, ask: &str, fields: Json) -> Json {
        let id = self.send(ask, fields.clone());
        let (_, mut line) = self.answer(id);
        assert!(line.get("error").is_none(), "{ask} {fields}: {line}");
        line["result"].take()
    }

    /// Asks what has no answer; kind and message of the error.
    pub fn fail(&mut self, ask: &str, fields: Json) -> (String, String) {
        let id = self.send(ask, fields.clone());
        let (_, line) = self.answer(id);
        let text = |name: &str| line["error"][name].as_str().map(String::from);
        let both = text("kind").zip(text("message"));
        both.unwrap_or_else(|| panic!("{ask} {fields}: {line}"))
    }

    /// Opens a list and takes all of it in pages of this length.
    pub fn list(&mut self, ask: &str, fields: Json, page: u64) -> Vec<Json> {
        let list = self.ask(ask, fields);
        let mut all = Vec::new();
        loop {
            let id = self.send("next", json!({"list": list["list"], "count": page}));
            let (items, line) = self.answer(id);
            assert!(items.len() as u64 <= page, "{line}");
            all.extend(items);
            if line["result"]["done"] == true {
                if let Some(total) = list["total"].as_u64() {
                    assert!(all.len() as u64 >= total, "{list}");
                }
                return all;
            }
        }
    }

    /// Ends the session as clients do; its exit status.
    pub fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        assert!(self.lines.next().is_none());
        self.child.wait().unwrap().code()
    }
}

/// What a command says for scripts.
pub fn command(s: &Scene, words: &[&str]) -> Json {
    let done = s.run(&mut s.hindsight(words));
    assert_eq!(
        done.status.code(),
        Some(0),
        "{words:?}: {}",
        done.messages()
    );
    serde_json::from_slice(&done.stdout).unwrap()
}

/// A recording of `scripts/list.c`, which crashes.
pub fn crash() -> (Scene, std::path::PathBuf) {
    let s = Scene::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/list.c");
    let program = s.path("list");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-g", "-O0", "-no-pie", "-o"]).arg(&program);
    assert!(gcc.arg(source).status().unwrap().success());
    let (_, trace) = s.record(&[program]);
    (s, trace)
}
