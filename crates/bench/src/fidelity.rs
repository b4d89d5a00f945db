//! Runs ordinary commands natively and recorded, with the same inputs in the same directory. Compares
//! everything that they leave: output, messages, exit status and files. Then replays and verifies the
//! recordings.

use crate::folder::{FolderState, same_content};
use crate::hindsight::{Hindsight, tail};
use crate::process::{ExitStatus, Spec, argv, run};
use crate::table::markdown;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One command to compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    pub package: String,
    pub line: String,
    argv: Vec<String>,
    stdin: Option<String>,
}

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

/// Reads a list of commands: lines of `package: words`. `< FILE` gives the standard input.
pub fn parse(text: &str) -> io::Result<Vec<Case>> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|l| {
            let bad = || io::Error::other(format!("cannot read the line: {l}"));
            let (package, line) = l.split_once(':').ok_or_else(bad)?;
            // Dollar signs belong to the commands, so nothing is expanded.
            let mut argv = shlex::split(line).ok_or_else(bad)?;
            let mut stdin = None;
            if let Some(at) = argv.iter().position(|w| w == "<") {
                stdin = Some(argv.get(at + 1).ok_or_else(bad)?.clone());
                argv.drain(at..at + 2);
            }
            if argv.is_empty() {
                return Err(bad());
            }
            Ok(Case {
                package: package.trim().into(),
                line: line.trim().into(),
                argv,
                stdin,
            })
        })
        .collect()
}

/// The cases whose lines contain `text`. Fails if none does.
pub fn containing(mut cases: Vec<Case>, text: &str) -> io::Result<Vec<Case>> {
    cases.retain(|c| c.line.contains(text));
    match cases.is_empty() {
        true => Err(io::Error::other(format!(
            "--only: no command of the list contains \"{text}\""
        ))),
        false => Ok(cases),
    }
}

/// Takes every `n`-th case. About `count` cases remain, from all parts of the list.
pub fn sample(cases: Vec<Case>, count: usize) -> Vec<Case> {
    let step = cases.len().div_ceil(count.max(1)).max(1);
    cases.into_iter().step_by(step).collect()
}

/// A directory with the inputs. Commands run in copies of it.
pub struct Ground {
    dir: PathBuf,
    cc1: String,
}

impl Ground {
    /// Prepares the inputs of the commands below `dir`.
    pub fn prepare(dir: &Path) -> io::Result<Ground> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fidelity");
        let inputs = dir.join("inputs");
        command(
            Command::new("cp")
                .arg("-r")
                .arg(source.join("files"))
                .arg(&inputs),
        )?;
        command(
            Command::new("sh")
                .arg(source.join("prepare.sh"))
                .current_dir(&inputs),
        )?;
        let cc1 = Command::new("gcc")
            .arg("-print-prog-name=cc1")
            .output()?
            .stdout;
        Ok(Ground {
            dir: dir.into(),
            cc1: String::from_utf8_lossy(&cc1).trim().into(),
        })
    }

    fn fresh(&self) -> io::Result<PathBuf> {
        let work = self.dir.join("work");
        command(Command::new("rm").arg("-rf").arg(&work))?;
        command(
            Command::new("cp")
                .arg("-a")
                .arg(self.dir.join("inputs"))
                .arg(&work),
        )?;
        Ok(work)
    }

    /// Runs one command both ways and compares.
    pub fn check(&self, tool: &Hindsight, case: &Case) -> Outcome {
        let mut outcome = Outcome {
            package: case.package.clone(),
            line: case.line.clone(),
            instructions: 0,
            end: None,
            miss: None,
        };
        if let Err(e) = self.compare(tool, case, &mut outcome) {
            outcome.miss = Some(e.to_string());
        }
        outcome
    }

    fn compare(&self, tool: &Hindsight, case: &Case, outcome: &mut Outcome) -> io::Result<()> {
        let trace = self.dir.join("trace.hst");
        let _ = std::fs::remove_file(&trace);
        let (native_end, native_files) = self.run_once(case, "native", &|s| s.clone())?;
        outcome.end = Some(native_end);
        let (end, files) = self.run_once(case, "record", &|s| tool.recorded(s, &trace))?;
        let miss = |m: String| Err(io::Error::other(m));
        let messages = self.dir.join("record.err");
        if end != native_end {
            return miss(format!("{end}, natively {native_end}: {}", tail(&messages)));
        }
        for stream in ["out", "err"] {
            let file = |name: &str| self.dir.join(format!("{name}.{stream}"));
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
        &self,
        case: &Case,
        name: &str,
        wrap: &dyn Fn(&Spec) -> Spec,
    ) -> io::Result<(ExitStatus, FolderState)> {
        let work = self.fresh()?;
        let words: Vec<&str> = case
            .argv
            .iter()
            .map(|w| if w == "CC1" { &self.cc1 } else { w.as_str() })
            .collect();
        let spec = Spec {
            argv: argv(&words),
            cwd: work.clone(),
            stdin: case.stdin.as_ref().map(|f| work.join(f)),
            stdout: Some(self.dir.join(format!("{name}.out"))),
            stderr: Some(self.dir.join(format!("{name}.err"))),
            // A command finds what earlier commands of the same program left.
            cache: Some(self.dir.join("cache")),
            store: None,
            limit: LIMIT,
        };
        let done = run(&wrap(&spec))?;
        Ok((done.end, FolderState::take(&work)?))
    }
}

fn command(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{command:?}: {status}")))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_no_command_is_refused() {
        let cases = || parse("p: a 'b c'\nq: d\n").unwrap();
        assert_eq!(containing(cases(), "").unwrap().len(), 2);
        assert_eq!(containing(cases(), "b c").unwrap().len(), 1);
        let refused = containing(cases(), "x").err().unwrap().to_string();
        assert!(refused.contains("\"x\""), "{refused}");
    }

    #[test]
    fn reads_the_list() {
        let cases = parse("# c\n\np: a 'b c' < in\nq: d\n").unwrap();
        assert_eq!(cases[0].argv, ["a", "b c"]);
        assert_eq!(cases[0].stdin.as_deref(), Some("in"));
        assert_eq!(cases.len(), 2);
        assert!(parse("no colon here").is_err());
        assert!(parse(include_str!("../fidelity/cases.txt")).unwrap().len() > 45);
    }

    #[test]
    fn samples_evenly() {
        let cases: Vec<Case> = parse(&"p: x\n".repeat(100)).unwrap();
        assert_eq!(sample(cases.clone(), 25).len(), 25);
        assert_eq!(sample(cases, 1000).len(), 100);
    }
}
