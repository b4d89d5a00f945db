//! Recordings, and how they are asked.

use hindsight_lab::{Done, Scene, words};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A recording of `accounts.c`, and what that printed: the address of its total, and the total.
pub struct Accounts {
    pub scene: Scene,
    pub trace: PathBuf,
    pub address: String,
    pub total: i64,
    /// How often an account's balance could be divided by seven.
    pub refused: i64,
}

pub fn accounts() -> Accounts {
    let scene = Scene::new();
    let program = scene.compile("accounts.c", &["-g", "-O1"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert_eq!(done.status.code(), Some(3), "{}", done.messages());
    let text = done.text();
    let (address, total) = text.trim().split_once(' ').unwrap();
    let mut balances = [0; 4];
    let mut pay = |i: i64| {
        let balance = &mut balances[i as usize % 4];
        *balance += i;
        *balance % 7 == 0
    };
    Accounts {
        refused: (0..200).filter(|i| pay(*i)).count() as i64,
        address: address.into(),
        total: total.parse().unwrap(),
        scene,
        trace,
    }
}

/// The command that answers. It is the executable with the engine; see `outside` for how `hindsight` hands over.
pub fn command(scene: &Scene, args: &[&str]) -> Command {
    let mut command = scene.command(env!("CARGO_BIN_EXE_hindsight-sql"));
    command.arg("sql").args(args);
    command
}

/// What a question answers, in any form.
pub fn asked(scene: &Scene, trace: &Path, args: &[&str]) -> Done {
    let mut all = vec![trace.to_str().unwrap()];
    all.extend(args);
    scene.run(&mut command(scene, &all))
}

/// The rows that answer a question.
pub fn rows(scene: &Scene, trace: &Path, question: &str) -> Vec<Value> {
    let done = asked(scene, trace, &[question, "--json"]);
    assert!(done.status.success(), "{question}: {}", done.messages());
    match serde_json::from_slice(&done.stdout) {
        Ok(Value::Array(rows)) => rows,
        other => panic!("{question}: {other:?} from {}", done.text()),
    }
}

/// Recordings of `accounts.c` that are called `a` (200 payments), `b` (50) and `fails`, which ends before the first one.
pub struct Several {
    pub scene: Scene,
}

pub fn several() -> Several {
    let scene = Scene::new();
    let program = scene.compile("accounts.c", &["-g", "-O1"]);
    for (name, payments, status) in [
        ("a", "200", Some(3)),
        ("b", "50", Some(3)),
        ("fails", "-1", None),
    ] {
        let trace = scene.path(&format!("{name}.hst"));
        let done = scene.run(&mut scene.recording(&trace, &words(&program, &[payments])));
        assert_eq!(done.status.code(), status, "{}", done.messages());
    }
    Several { scene }
}

impl Several {
    /// What a question about recordings answers. All words stand on the command line as they are.
    pub fn asked(&self, args: &[&str]) -> Done {
        self.scene.run(&mut command(&self.scene, args))
    }

    /// The rows that answer a question about recordings.
    pub fn rows(&self, recordings: &[&str], question: &str) -> Vec<Value> {
        let done = self.asked(&[recordings, &[question, "--json"]].concat());
        assert!(done.status.success(), "{question}: {}", done.messages());
        match serde_json::from_slice(&done.stdout) {
            Ok(Value::Array(rows)) => rows,
            other => panic!("{question}: {other:?} from {}", done.text()),
        }
    }

    /// The message of a question that has no answer.
    pub fn wrong(&self, args: &[&str]) -> String {
        let done = self.asked(args);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {}", done.text());
        done.messages()
    }
}

impl Accounts {
    pub fn rows(&self, question: &str) -> Vec<Value> {
        rows(&self.scene, &self.trace, question)
    }

    /// The only row that answers a question.
    pub fn row(&self, question: &str) -> Value {
        let rows = self.rows(question);
        assert_eq!(rows.len(), 1, "{question}: {rows:?}");
        rows.into_iter().next().unwrap()
    }

    /// The message of a question that has no answer.
    pub fn wrong(&self, question: &str) -> String {
        let done = asked(&self.scene, &self.trace, &[question]);
        assert_eq!(done.status.code(), Some(2), "{question}: {}", done.text());
        done.messages()
    }
}
