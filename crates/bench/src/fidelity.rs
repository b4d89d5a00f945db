//! Runs ordinary commands natively and recorded, with the same inputs in the same directory. Compares
//! everything that they leave: output, messages, exit status and files. Then replays and verifies the
//! recordings.

use crate::commands::{Case, Ground};
use crate::folder::{FolderState, same_content};
use crate::hindsight::{Hindsight, tail};
use crate::process::{ExitStatus, Spec, run};
use crate::table::markdown;
use serde::Serialize;
use std::io;
use std::time::Duration;

/// The result for one command.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub package: String,
    pub line: String,
    /// Number of recorded instructions; 0 if unknown.
    pub instructions: u64,
    /// How the native run ended.
    pub end: Option<ExitStatus>,
    /// What differs. `None` if all was the same and verified.
    pub miss: Option<String>,
}

const LIMIT: Duration = Duration::from_secs(120);

/// Runs one command both ways and compares.
pub fn check(ground: &Ground, tool: &Hindsight, case: &Case) -> Outcome {
    let mut outcome = Outcome {
        package: case.package.clone(),
        line: case.line.clone(),
        instructions: 0,
        end: None,
        miss: None,
    };
    if let Err(e) = compare(ground, tool, case, &mut outcome) {
        outcome.miss = Some(e.to_string());
    }
    outcome
}

fn compare(
    ground: &Ground,
    tool: &Hindsight,
    case: &Case,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let trace = ground.beside("trace.hst");
    let _ = std::fs::remove_file(&trace);
    let (native_end, native_files) = run_once(ground, case, "native", &|s| s.clone())?;
    outcome.end = Some(native_end);
    let (end, files) = run_once(ground, case, "record", &|s| tool.recorded(s, &trace))?;
    let miss = |m: String| Err(io::Error::other(m));
    let messages = ground.beside("record.err");
    if end != native_end {
        return miss(format!("{end}, natively {native_end}: {}", tail(&messages)));
    }
    for stream in ["out", "err"] {
        let file = |name: &str| ground.beside(&format!("{name}.{stream}"));
        if !same_content(&file("native"), &file("record"))? {
            return miss(format!("std{stream} differs: {}", tail(&file("record"))));
        }
    }
    if let Some(name) = native_files.difference(&files) {
        return miss(format!("file {} differs", name.display()));
    }
    tool.verify(&trace, 1, LIMIT)?;
    outcome.instructions = tool.facts(&trace)?.instructions;
    Ok(())
}

fn run_once(
    ground: &Ground,
    case: &Case,
    name: &str,
    wrap: &dyn Fn(&Spec) -> Spec,
) -> io::Result<(ExitStatus, FolderState)> {
    let spec = ground.spec(case, name, LIMIT)?;
    let done = run(&wrap(&spec))?;
    Ok((done.end, FolderState::take(&spec.cwd)?))
}

/// The outcomes as a table. With `misses_only`, only the failed ones.
pub fn table(outcomes: &[Outcome], misses_only: bool) -> String {
    let mut rows = vec![
        ["command", "package", "instructions", "ends with", "result"]
            .map(String::from)
            .to_vec(),
    ];
    for o in outcomes.iter().filter(|o| !misses_only || o.miss.is_some()) {
        // Long texts are cut. A failure is printed in full when it happens.
        let cut = |s: &str| s.chars().take(60).collect::<String>().replace('|', "\\|");
        let line = cut(&o.line);
        let result = o.miss.as_deref().map_or("same, verified".into(), cut);
        let end = o.end.map_or(String::new(), |e| e.to_string());
        rows.push(vec![
            line,
            o.package.clone(),
            o.instructions.to_string(),
            end,
            result,
        ]);
    }
    markdown(&rows)
}
