//! What is told at the end.

use crate::plan::compare::{Compare, Difference};
use crate::wire::End;

/// What became of the recorded failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No failure, and the output is the recorded one, as far as that goes.
    Same,
    /// The recorded failure happened again.
    SameFailure,
    /// The program failed in another way.
    OtherFailure,
    /// No failure, and the output is another one.
    OtherOutput,
    /// The program asked for what the recording does not have.
    TooFar,
}

impl Verdict {
    /// The exit status of the command.
    pub fn status(self) -> i32 {
        match self {
            Verdict::Same => 0,
            Verdict::SameFailure => 1,
            Verdict::OtherFailure => 3,
            Verdict::OtherOutput => 4,
            Verdict::TooFar => 5,
        }
    }

    /// One word for scripts.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Same => "no-failure",
            Verdict::SameFailure => "same-failure",
            Verdict::OtherFailure => "other-failure",
            Verdict::OtherOutput => "other-output",
            Verdict::TooFar => "diverged",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Same => "no failure, and the same output",
            Verdict::SameFailure => "the same failure",
            Verdict::OtherFailure => "another failure",
            Verdict::OtherOutput => "no failure, but other output",
            Verdict::TooFar => "the program went too far away from the recording",
        })
    }
}

/// A call of one of the two programs. All texts are as they are: who shows them escapes them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Side {
    /// Its position in the recording. `None`: it was made now.
    pub position: Option<String>,
    /// The process id that the program sees.
    pub pid: i32,
    /// The call, with its arguments.
    pub call: String,
    /// The call stack, the innermost function first.
    pub stack: Vec<String>,
}

/// The first call that does not match.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Divergence {
    /// The recorded call that was expected. `None`: the recorded process made no more.
    pub recorded: Option<Side>,
    /// What the program did.
    pub now: Side,
    /// The recorded side of the last call that agreed.
    pub last: Option<Side>,
    /// What was done about it.
    pub then: String,
}

/// Where the output differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputDifference {
    /// The process id that the program sees.
    pub pid: i32,
    /// What it was written to.
    pub to: String,
    /// How many bytes are the same before.
    pub at: u64,
    /// The line that the recorded program wrote. Empty: it wrote nothing more.
    pub recorded: Vec<u8>,
    /// The line that the program wrote now. Empty: it wrote nothing more.
    pub now: Vec<u8>,
}

/// What is told at the end.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// What became of the failure.
    pub verdict: Verdict,
    /// How the recorded program ended.
    pub recorded: End,
    /// How this one ended. `None`: it was stopped.
    pub now: Option<End>,
    /// Why it was stopped, or why the verdict is what it is.
    pub why: Option<String>,
    /// Percent of the recorded calls that it came to.
    pub percent: f64,
    /// Calls that were answered from the recording, or compared with it.
    pub matched: u64,
    /// Calls that the recorded program did not make.
    pub added: u64,
    /// Calls that only the recorded program made.
    pub left_out: u64,
    /// Calls that this machine has answered, since the recording could not.
    pub answered_here: u64,
    /// The first call that did not match.
    pub divergence: Option<Divergence>,
    /// Where output differs, for each process and file.
    pub outputs: Vec<OutputDifference>,
    /// Where the recorded program failed: the function, if it is known.
    pub failed_at: Option<String>,
    /// Where this one failed.
    pub fails_at: Option<String>,
    /// What else is to be said.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether the program did all that the recorded one did, and nothing else.
    pub fn agrees(&self) -> bool {
        self.divergence.is_none()
            && self.outputs.is_empty()
            && self.now == Some(self.recorded)
            && self.left_out == 0
    }
}

/// What decides the verdict.
pub struct Facts<'a> {
    pub recorded: End,
    pub now: End,
    /// What the first process wrote.
    pub outputs: &'a Compare,
    /// The functions in which the two failed.
    pub functions: (Option<&'a str>, Option<&'a str>),
}

/// Standard output and standard error.
const STDOUT: u32 = 1;
const STDERR: u32 = 2;

fn is_failure(end: End) -> bool {
    !matches!(end, End::Status(0))
}

/// What became of the failure, and why that is said.
pub fn decide(f: &Facts) -> (Verdict, Option<String>) {
    let stream = |file| f.outputs.stream(file);
    let differs = |file| stream(file).is_some_and(|s| s.differs());
    let same = |file| stream(file).is_none_or(|s| s.is_same());
    let failed = is_failure(f.recorded);
    if !is_failure(f.now) {
        // What was written before the failure must be there. More may follow, and what told of the failure is gone.
        let fine = match failed {
            true => !differs(STDOUT) && stream(STDOUT).is_none_or(|s| s.is_complete()),
            false => f.outputs.streams().all(|(_, s)| s.is_same()),
        };
        return match fine {
            true => (Verdict::Same, None),
            false => (Verdict::OtherOutput, None),
        };
    }
    if f.recorded != f.now {
        let why = format!("{} in place of {}", f.now, f.recorded);
        return (Verdict::OtherFailure, Some(why));
    }
    if same(STDOUT) && same(STDERR) && f.functions.0 == f.functions.1 {
        return (Verdict::SameFailure, None);
    }
    if let (Some(a), Some(b)) = f.functions
        && a != b
        && matches!(f.now, End::Signal(n) if n != libc::SIGABRT)
    {
        let why = format!("it fails in {b}, and not in {a}");
        return (Verdict::OtherFailure, Some(why));
    }
    // The last line tells what the failure is. Numbers of lines and addresses in it may change.
    if let Some(s) = stream(STDERR).filter(|s| s.recorded_len > 0 || s.now_len > 0) {
        let (a, b) = s.last_lines();
        if message(&a) != message(&b) {
            let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
            let why = format!("it says \"{}\", and not \"{}\"", text(&b), text(&a));
            return (Verdict::OtherFailure, Some(why));
        }
        return (Verdict::SameFailure, None);
    }
    // A status without a message: what was printed is all there is.
    match f.now {
        End::Status(_) if differs(STDOUT) => (Verdict::OtherOutput, None),
        _ => (Verdict::SameFailure, None),
    }
}

/// A message without its numbers, and without the name of the program before it.
fn message(line: &[u8]) -> Vec<u8> {
    // An assertion says what did not hold, behind file, line and function.
    let mark = b"Assertion `";
    if let Some(at) = line.windows(mark.len()).position(|w| w == mark) {
        return line[at..].to_vec();
    }
    let mut out = Vec::new();
    for b in line {
        match b {
            b'0'..=b'9' if out.last() == Some(&b'#') => {}
            b'0'..=b'9' => out.push(b'#'),
            b => out.push(*b),
        }
    }
    let name = out.iter().position(|b| *b == b':').unwrap_or(0);
    match out[..name].contains(&b' ') {
        true => out,
        false => out.split_off(name),
    }
}

/// A difference of output in words.
pub fn output(pid: i32, to: String, d: Difference) -> OutputDifference {
    OutputDifference {
        pid,
        to,
        at: d.at,
        recorded: d.recorded,
        now: d.now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(list: &[(u32, &str, &str)]) -> Compare {
        let mut c = Compare::default();
        for (file, recorded, now) in list {
            c.recorded(*file, recorded.as_bytes(), &[]);
            c.now(*file, now.as_bytes());
        }
        c
    }

    fn verdict(recorded: End, now: End, list: &[(u32, &str, &str)]) -> Verdict {
        let facts = Facts {
            recorded,
            now,
            outputs: &outputs(list),
            functions: (None, None),
        };
        decide(&facts).0
    }

    #[test]
    fn a_failure_that_is_gone_leaves_what_was_printed_before() {
        let (crash, fine) = (End::Signal(11), End::Status(0));
        assert_eq!(
            verdict(crash, fine, &[(1, "1\n2\n", "1\n2\n3\n")]),
            Verdict::Same
        );
        assert_eq!(
            verdict(crash, fine, &[(1, "1\n2\n", "1\n3\n")]),
            Verdict::OtherOutput
        );
        assert_eq!(
            verdict(crash, fine, &[(1, "1\n2\n", "1\n")]),
            Verdict::OtherOutput
        );
        assert_eq!(
            verdict(fine, fine, &[(1, "1\n", "1\n2\n")]),
            Verdict::OtherOutput
        );
        assert_eq!(verdict(fine, fine, &[(1, "1\n", "1\n")]), Verdict::Same);
    }

    #[test]
    fn failures_are_told_apart() {
        let abort = End::Signal(6);
        let a = "p: p.c:10: f: Assertion `x > 0' failed.\n";
        let same = "q: q.c:12: g: Assertion `x > 0' failed.\n";
        let other = "p: p.c:10: f: Assertion `x > 1' failed.\n";
        assert_eq!(verdict(abort, abort, &[(2, a, same)]), Verdict::SameFailure);
        assert_eq!(verdict(abort, abort, &[(2, a, a)]), Verdict::SameFailure);
        assert_eq!(
            verdict(abort, abort, &[(2, a, other)]),
            Verdict::OtherFailure
        );
        assert_eq!(verdict(abort, End::Signal(11), &[]), Verdict::OtherFailure);
        assert_eq!(
            verdict(End::Status(0), End::Status(1), &[]),
            Verdict::OtherFailure
        );
        let (one, py) = (End::Status(1), "KeyError: 'a'\n");
        assert_eq!(
            verdict(one, one, &[(2, py, "TypeError: x\n")]),
            Verdict::OtherFailure
        );
        assert_eq!(
            verdict(one, one, &[(2, py, py), (1, "a", "b")]),
            Verdict::SameFailure
        );
        assert_eq!(
            verdict(one, one, &[(1, "a\n", "b\n")]),
            Verdict::OtherOutput
        );
    }

    #[test]
    fn crashes_in_other_functions_are_others() {
        let outputs = Compare::default();
        let facts = |a, b| Facts {
            recorded: End::Signal(11),
            now: End::Signal(11),
            outputs: &outputs,
            functions: (a, b),
        };
        assert_eq!(decide(&facts(Some("f"), Some("f"))).0, Verdict::SameFailure);
        assert_eq!(
            decide(&facts(Some("f"), Some("g"))).0,
            Verdict::OtherFailure
        );
        assert_eq!(decide(&facts(Some("f"), None)).0, Verdict::SameFailure);
    }
}
