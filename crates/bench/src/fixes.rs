//! Programs with planted bugs. Each is recorded where it fails, and run again with what is made of it: nothing, the right fix, a wrong
//! one, and the right one among unrelated edits. The verdict must say what became of the failure.

use crate::hindsight::Hindsight;
use crate::table::markdown;
use hindsight_lab::planted::{FIXES, PLANTED, Planted, is_right};
use hindsight_lab::{Scene, end};
use serde_json::Value;
use std::fs;
use std::io;

/// So many verdicts of so many must be right.
const GOAL: (usize, usize) = (28, 30);

/// Runs all whose file or bug contains `only`, and prints a table. Returns whether enough verdicts about fixes are right, and all
/// about programs as they are.
///
/// # Errors
/// No program is chosen, or one cannot be recorded where it fails.
pub fn run(tool: &Hindsight, only: &str) -> io::Result<bool> {
    let mut head = vec!["program", "bug"];
    head.extend(FIXES);
    let mut rows = vec![head.into_iter().map(String::from).collect()];
    let (mut right, mut all, mut same) = (0, 0, true);
    let is_chosen = |p: &&Planted| [p.source, p.kind].iter().any(|t| t.contains(only));
    for p in PLANTED.iter().filter(is_chosen) {
        let verdicts = verdicts(tool, p)?;
        let mut row = vec![p.source.to_owned(), p.kind.to_owned()];
        for (fix, verdict) in verdicts.into_iter().enumerate() {
            let good = is_right(fix, &verdict);
            match fix {
                0 => same &= good,
                _ => {
                    all += 1;
                    right += usize::from(good);
                }
            }
            row.push(match good {
                true => verdict,
                false => format!("WRONG: {verdict}"),
            });
        }
        rows.push(row);
    }
    if all == 0 {
        let what = format!("--only: no program's file or bug contains \"{only}\"");
        return Err(io::Error::other(what));
    }
    println!(
        "{}\n{right} of {all} verdicts on fixes are right",
        markdown(&rows)
    );
    let (most, of) = GOAL;
    Ok(same && right * of >= all * most)
}

/// The verdicts on what is made of a program.
fn verdicts(tool: &Hindsight, p: &Planted) -> io::Result<Vec<String>> {
    let s = Scene::new();
    let trace = s.path("bug.hst");
    p.put_input(&s);
    let own = p.build(&s, 0);
    let words: Vec<_> = own.iter().map(Into::into).collect();
    let words = tool.recorded_words(&words, Some(&trace));
    let done = s.run(s.command(&words[0]).args(&words[1..]));
    if end(done.status) != p.end {
        let what = format!(
            "{} does not fail as it should: {}",
            p.source,
            done.messages()
        );
        return Err(io::Error::other(what));
    }
    // What is there now is something else.
    fs::write(s.path("input"), "nothing\n")?;
    let verdict = |fix: usize| {
        let words = match fix {
            0 => own.clone(),
            _ => p.build(&s, fix),
        };
        let mut command = s.command(&tool.program);
        command.args(["rerun", "--json"]).arg(&trace);
        let done = s.run(command.arg("--").args(words));
        let report: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
        let verdict = report["verdict"].as_str();
        verdict.map_or_else(|| format!("refused: {}", done.messages()), String::from)
    };
    Ok((0..FIXES.len()).map(verdict).collect())
}
