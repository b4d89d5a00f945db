//! Records ordinary programs, and runs each again with its own recording. It must agree to the end: every call matches, and output
//! and end are the recorded ones.

use crate::commands::{Case, Ground};
use crate::hindsight::{Hindsight, tail};
use crate::process::{ExitStatus, Spec, run};
use crate::servers::{self, Server};
use crate::stats::median;
use crate::table::markdown;
use crate::workload::installed;
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Longest time for a program, natively, recorded or again.
const LIMIT: Duration = Duration::from_secs(300);

/// So many of so many must agree.
const GOAL: (usize, usize) = (38, 40);

/// The load of a server is one of so many parts of that which is measured.
const PART: u32 = 300;

/// What became of one program.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub package: String,
    pub line: String,
    /// Why it was left out.
    pub skipped: Option<String>,
    /// Seconds of each run: native ones, and those with the recording.
    pub native: Vec<f64>,
    pub again: Vec<f64>,
    /// Calls that matched, in the last round.
    pub matched: u64,
    /// Rounds in which all agreed.
    pub agreed: u32,
    pub rounds: u32,
    /// What the first round that does not agree says.
    pub miss: Option<String>,
}

impl Outcome {
    fn agrees(&self) -> bool {
        self.skipped.is_none() && self.miss.is_none()
    }
}

/// A command, and the server that it needs.
struct Program<'a> {
    case: &'a Case,
    server: Option<Server>,
    /// It is the server itself.
    is_server: bool,
}

/// What a program does when it is run again.
struct Again {
    seconds: f64,
    matched: u64,
    /// `None`: it agrees.
    miss: Option<String>,
}

/// Records a program, and runs it again, so many times.
pub fn check(ground: &Ground, tool: &Hindsight, case: &Case, rounds: u32) -> Outcome {
    let mut outcome = Outcome {
        package: case.package.clone(),
        line: case.line.clone(),
        skipped: None,
        native: Vec::new(),
        again: Vec::new(),
        matched: 0,
        agreed: 0,
        rounds,
        miss: None,
    };
    let program = match Program::find(ground, case) {
        Ok(program) => program,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            outcome.skipped = Some(e.to_string());
            return outcome;
        }
        Err(e) => {
            outcome.miss = Some(e.to_string());
            return outcome;
        }
    };
    for _ in 0..rounds {
        let again = program.round(ground, tool, &mut outcome.native);
        let miss = match again {
            Ok(again) => {
                outcome.again.push(again.seconds);
                outcome.matched = again.matched;
                again.miss
            }
            Err(e) => Some(e.to_string()),
        };
        match miss {
            None => outcome.agreed += 1,
            Some(miss) => outcome.miss = outcome.miss.or(Some(miss)),
        }
    }
    outcome
}

impl<'a> Program<'a> {
    /// Finds what a command needs. The error is `NotFound` if that is not installed.
    fn find(ground: &Ground, case: &'a Case) -> io::Result<Program<'a>> {
        let (server, program) = match case.argv[0].strip_prefix('@') {
            None => (None, case.argv.first()),
            Some(name) => {
                let server = servers::make(name, ground.dir(), PART)?;
                (Some(server), case.argv.get(1))
            }
        };
        let program = program.ok_or_else(|| io::Error::other("no command follows the server"))?;
        // Others are made by `prepare.sh`, or stand for commands that were looked for.
        let is_name = !program.contains('/') && !["CC1", "SERVER", "LOAD"].contains(&&**program);
        if is_name {
            installed(&[program])?;
        }
        Ok(Program {
            case,
            is_server: server.is_some() && program == "SERVER",
            server,
        })
    }

    /// The words of the command.
    fn words(&self, spec: &Spec) -> Vec<OsString> {
        let Some(server) = &self.server else {
            return spec.argv.clone();
        };
        let words = self.case.argv[1..].iter();
        let whole = |w: &String| match w.as_str() {
            "SERVER" => server.argv.clone(),
            "LOAD" => server.load.clone(),
            w => vec![w.replace("PORT", &server.port).into()],
        };
        words.flat_map(whole).collect()
    }

    /// Runs a command with what it needs. How long it took, and how it ended.
    fn run(&self, ground: &Ground, spec: &Spec) -> io::Result<(f64, ExitStatus)> {
        let command = || run(spec).map(|done| (done.wall, done.end));
        match &self.server {
            None => command(),
            Some(server) if self.is_server => {
                let began = std::time::Instant::now();
                servers::load(server, &spec.argv, ground.dir())?;
                Ok((began.elapsed().as_secs_f64(), ExitStatus::Exit(0)))
            }
            Some(server) => servers::while_up(server, &server.argv, ground.dir(), command),
        }
    }

    /// Runs it natively, records it, and runs it again.
    fn round(&self, ground: &Ground, tool: &Hindsight, native: &mut Vec<f64>) -> io::Result<Again> {
        let trace = ground.beside("trace.hst");
        let _ = std::fs::remove_file(&trace);
        let fresh = |name: &str| -> io::Result<Spec> {
            let spec = ground.spec(self.case, name, LIMIT)?;
            Ok(Spec {
                argv: self.words(&spec),
                ..spec
            })
        };
        let (seconds, end) = self.run(ground, &fresh("native")?)?;
        native.push(seconds);
        let (_, recorded) = self.run(ground, &tool.recorded(&fresh("record")?, &trace))?;
        if recorded != end {
            let said = tail(&ground.beside("record.err"));
            let what = format!("recorded: {recorded}, natively {end}: {said}");
            return Err(io::Error::other(what));
        }
        again(ground, tool, &trace)
    }
}

/// Runs a recorded program again.
fn again(ground: &Ground, tool: &Hindsight, trace: &Path) -> io::Result<Again> {
    let (out, err) = (ground.beside("again.out"), ground.beside("again.err"));
    let words = ["rerun", "--json"].map(OsString::from);
    let done = run(&Spec {
        argv: ([tool.program.clone().into()].into_iter())
            .chain(words)
            .chain([trace.into()])
            .collect(),
        cwd: "/".into(),
        stdout: Some(out.clone()),
        stderr: Some(err.clone()),
        limit: LIMIT,
        ..Spec::default()
    })?;
    let report = std::fs::read(&out)?;
    let Ok(report) = serde_json::from_slice::<Value>(&report) else {
        let said = tail(&err);
        return Err(io::Error::other(format!("refused, {}: {said}", done.end)));
    };
    Ok(Again {
        seconds: done.wall,
        matched: report["matched"].as_u64().unwrap_or(0),
        miss: (report["agrees"] != true).then(|| differs(&report)),
    })
}

/// What a report says of a program that does not agree.
fn differs(report: &Value) -> String {
    let mut parts = vec![report["verdict"].as_str().unwrap_or("?").to_owned()];
    let mut put = |name: &str, value: &Value| {
        let is_nothing =
            value.is_null() || value == 0 || value.as_array().is_some_and(Vec::is_empty);
        if !is_nothing {
            parts.push(format!("{name} {value}"));
        }
    };
    for name in [
        "why",
        "added",
        "left_out",
        "effects_not_done",
        "output_unknown",
    ] {
        put(name, &report[name]);
    }
    put("now", &report["divergence"]["now"]["call"]);
    put("recorded", &report["divergence"]["recorded"]["call"]);
    put("output", &report["outputs"]);
    parts.join("; ")
}

/// The outcomes as a table.
pub fn table(outcomes: &[Outcome]) -> String {
    let head = [
        "program",
        "package",
        "native, s",
        "again, s",
        "times",
        "calls",
        "result",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for o in outcomes {
        // Long texts are cut. A failure is printed in full when it happens.
        let cut = |s: &str| s.chars().take(60).collect::<String>().replace('|', "\\|");
        let (native, again) = (median(&o.native), median(&o.again));
        let result = match (&o.skipped, &o.miss) {
            (Some(why), _) => format!("skipped: {why}"),
            (None, None) => "agrees".into(),
            (None, Some(miss)) => format!("{} of {} rounds: {}", o.agreed, o.rounds, cut(miss)),
        };
        let number = |n: f64, is_known: bool| match is_known {
            true => format!("{n:.2}"),
            false => String::new(),
        };
        let known = !o.again.is_empty();
        rows.push(vec![
            cut(&o.line),
            o.package.clone(),
            number(native, !o.native.is_empty()),
            number(again, known),
            number(again / native, known),
            o.matched.to_string(),
            result,
        ]);
    }
    markdown(&rows)
}

/// One line about all, and whether enough agree.
pub fn summary(outcomes: &[Outcome]) -> (String, bool) {
    let agreed = outcomes.iter().filter(|o| o.agrees()).count();
    let ran = outcomes.iter().filter(|o| o.skipped.is_none()).count();
    let mut text = format!("{agreed} of {ran} programs agree to the end");
    let skipped: Vec<&str> = (outcomes.iter())
        .filter(|o| o.skipped.is_some())
        .map(|o| o.package.as_str())
        .collect();
    if !skipped.is_empty() {
        let names = skipped.join(", ");
        text += &format!("; {} SKIPPED, not installed: {names}", skipped.len());
        text += " (scripts/setup --all installs them)";
    }
    let (most, of) = GOAL;
    (text, ran > 0 && agreed * of >= ran * most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::parse;

    fn outcome(skipped: bool, miss: bool) -> Outcome {
        Outcome {
            package: "p".into(),
            line: "l".into(),
            skipped: skipped.then(|| "gone".into()),
            native: vec![1.0],
            again: vec![2.0],
            matched: 1,
            agreed: u32::from(!miss),
            rounds: 1,
            miss: miss.then(|| "other".into()),
        }
    }

    #[test]
    fn thirty_eight_of_forty_suffice_and_what_is_skipped_does_not_count() {
        let of = |good: usize, bad: usize, skipped: usize| {
            let good = vec![outcome(false, false); good];
            let bad = vec![outcome(false, true); bad];
            let all = [good, bad, vec![outcome(true, false); skipped]].concat();
            summary(&all)
        };
        assert!(of(38, 2, 0).1 && of(5, 0, 3).1);
        assert!(!of(37, 3, 0).1 && !of(4, 1, 0).1 && !of(0, 0, 3).1);
        let said = of(38, 2, 2).0;
        assert!(
            said.starts_with("38 of 40") && said.contains("2 SKIPPED"),
            "{said}"
        );
    }

    #[test]
    fn the_list_has_forty_programs_and_servers_have_commands() {
        let cases = parse(include_str!("../rerun/cases.txt")).unwrap();
        assert!(cases.len() >= 40);
        for case in cases.iter().filter(|c| c.argv[0].starts_with('@')) {
            assert!(
                servers::NAMES.contains(&&case.argv[0][1..]),
                "{}",
                case.line
            );
            assert!(case.argv.len() > 1, "{}", case.line);
        }
    }
}
