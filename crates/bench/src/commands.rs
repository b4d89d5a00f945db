//! Lists of ordinary commands, and the directory with inputs in which they run.

use crate::process::{Spec, argv};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One command of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// The Debian package that has its program.
    pub package: String,
    /// The command as the list has it.
    pub line: String,
    /// Its words.
    pub argv: Vec<String>,
    /// The file that it has as its standard input.
    pub stdin: Option<String>,
}

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
    /// Prepares the inputs of the commands below `dir`. Each of the folders of this crate has some: `files`, which are copied, and
    /// `prepare.sh`, which makes others.
    pub fn prepare(dir: &Path, folders: &[&str]) -> io::Result<Ground> {
        let inputs = dir.join("inputs");
        std::fs::create_dir(&inputs)?;
        for folder in folders {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            command(
                Command::new("cp")
                    .arg("-rL")
                    .arg(source.join("files/."))
                    .arg(&inputs),
            )?;
            command(
                Command::new("sh")
                    .arg(source.join("prepare.sh"))
                    .current_dir(&inputs),
            )?;
        }
        let cc1 = Command::new("gcc")
            .arg("-print-prog-name=cc1")
            .output()?
            .stdout;
        Ok(Ground {
            dir: dir.into(),
            cc1: String::from_utf8_lossy(&cc1).trim().into(),
        })
    }

    /// Where all of this lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file beside the directories in which commands run.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A command in a fresh copy of the directory. What it prints goes to files beside that, which are named after `name`.
    pub fn spec(&self, case: &Case, name: &str, limit: Duration) -> io::Result<Spec> {
        let work = self.dir.join("work");
        command(Command::new("rm").arg("-rf").arg(&work))?;
        command(
            Command::new("cp")
                .arg("-a")
                .arg(self.dir.join("inputs"))
                .arg(&work),
        )?;
        let words = case.argv.iter();
        let words: Vec<&str> = words
            .map(|w| if w == "CC1" { &self.cc1 } else { w.as_str() })
            .collect();
        Ok(Spec {
            argv: argv(&words),
            stdin: case.stdin.as_ref().map(|f| work.join(f)),
            stdout: Some(self.beside(&format!("{name}.out"))),
            stderr: Some(self.beside(&format!("{name}.err"))),
            // A command finds what earlier commands of the same program left.
            cache: Some(self.dir.join("cache")),
            store: None,
            cwd: work,
            limit,
        })
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
