//! What is told at the end.

mod order;

pub(crate) use order::Control;

use crate::plan::compare::{Difference, Stream};
use crate::plan::table::FileId;
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
            Verdict::TooFar => "it is not known what became of the failure",
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
    /// Changes of files that the recorded program did not make. They were not made, and the program was told that they were.
    pub not_done: u64,
    /// Recorded changes of files that the program did not ask for.
    pub unmade: u64,
    /// Bytes of the recorded output that are not known, and so not compared.
    pub unknown: u64,
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
    /// A process of it had several threads.
    pub threads: bool,
    /// It is the recorded program, with what it got and read.
    pub is_recorded: bool,
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
            && self.not_done == 0
            && self.unknown == 0
    }
}

/// What else a run gave out, or left out, than the recorded one.
#[derive(Clone, Copy, Default, Debug)]
pub struct Changes {
    /// Changes of files that were not recorded.
    pub added: u64,
    /// Bytes written to files that the recorded program did not write.
    pub elsewhere: u64,
    /// Recorded changes of files that were not asked for.
    pub left_out: u64,
    /// Processes that did not come to an end.
    pub killed: u64,
    /// Processes, besides the first one, that failed otherwise than recorded.
    pub failures: u64,
}

/// What decides the verdict.
pub struct Facts<'a> {
    pub recorded: End,
    pub now: End,
    /// What all processes wrote, by open file; the first process comes first.
    pub outputs: Vec<(FileId, &'a Stream)>,
    /// The functions in which the two failed.
    pub functions: (Option<String>, Option<String>),
    /// Names of the two programs, as they may stand before their messages.
    pub names: Vec<Vec<u8>>,
    pub changes: Changes,
}

/// Standard output and standard error.
const STDOUT: FileId = 1;
const STDERR: FileId = 2;

fn is_failure(end: End) -> bool {
    !matches!(end, End::Status(0))
}

/// What became of the failure, and why that is said.
pub fn decide(f: &Facts) -> (Verdict, Option<String>) {
    // Of a program of which nothing is recorded the end is not known either.
    if matches!(f.recorded, End::Unknown | End::Exec) {
        let why = "the recording does not say how the program ended";
        return (Verdict::TooFar, Some(why.into()));
    }
    match is_failure(f.now) {
        true => failing(f),
        false => ending_well(f),
    }
}

/// The program ended with status 0.
fn ending_well(f: &Facts) -> (Verdict, Option<String>) {
    let failed = is_failure(f.recorded);
    let c = f.changes;
    // What was written before the failure must be there. More may follow, and what told of the failure is gone.
    let fine = |(file, s): &(FileId, &Stream)| match failed {
        true => *file == STDERR || s.is_complete(),
        false => s.is_same(),
    };
    let other = |why: Option<String>| (Verdict::OtherOutput, why);
    if !f.outputs.iter().all(fine) {
        return other(None);
    }
    if c.left_out > 0 {
        let why = format!("{} recorded effects were left out", c.left_out);
        return other(Some(why));
    }
    if c.killed > 0 {
        return other(Some("a process of it did not come to an end".into()));
    }
    if c.failures > 0 {
        return other(Some("a process of it failed otherwise".into()));
    }
    if !failed && c.added > 0 {
        let why = format!("{} effects are not in the recording", c.added);
        return other(Some(why));
    }
    if !failed && c.elsewhere > 0 {
        let why = format!(
            "{} bytes went to files that are not in the recording",
            c.elsewhere
        );
        return other(Some(why));
    }
    let counted = f
        .outputs
        .iter()
        .filter(|(file, _)| !failed || *file != STDERR);
    let uncompared = counted.fold(0u64, |n, (_, s)| n.saturating_add(s.uncompared));
    if uncompared > 0 {
        let why = format!("{uncompared} bytes of the recorded output are not known");
        return (Verdict::TooFar, Some(why));
    }
    (Verdict::Same, None)
}

/// The program failed.
fn failing(f: &Facts) -> (Verdict, Option<String>) {
    let stream = |file| f.outputs.iter().find(|s| s.0 == file).map(|s| s.1);
    let differs = |file| stream(file).is_some_and(|s| s.differs());
    let same = |file| stream(file).is_none_or(|s| s.is_same());
    if f.recorded != f.now {
        let why = format!("{} in place of {}", f.now, f.recorded);
        return (Verdict::OtherFailure, Some(why));
    }
    let crashes = matches!(f.now, End::Signal(n) if n != libc::SIGABRT);
    let mut is_decided = false;
    if let (Some(a), Some(b)) = (&f.functions.0, &f.functions.1)
        && crashes
    {
        if a != b {
            let why = format!("it fails in {b}, and not in {a}");
            return (Verdict::OtherFailure, Some(why));
        }
        is_decided = true;
    }
    let unknown = |file| stream(file).map_or(0, |s| s.uncompared);
    let said = stream(STDERR).filter(|s| s.recorded_len > 0 || s.now_len > 0);
    let unknown = match (is_decided, f.now) {
        (true, _) => 0,
        (false, End::Status(_)) if said.is_none() => unknown(STDOUT),
        _ => unknown(STDERR),
    };
    if unknown > 0 {
        let why = format!("{unknown} bytes of what the recorded program said are not known");
        return (Verdict::TooFar, Some(why));
    }
    if same(STDOUT) && same(STDERR) && f.functions.0 == f.functions.1 {
        return (Verdict::SameFailure, None);
    }
    // The last line tells what the failure is. Numbers of lines and addresses in it may change.
    if let Some(s) = said {
        let (a, b) = s.last_lines();
        if message(&a, &f.names) != message(&b, &f.names) {
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
fn message(line: &[u8], names: &[Vec<u8>]) -> Vec<u8> {
    // An assertion says what did not hold, behind file, line and function.
    let mark = b"Assertion `";
    if let Some(at) = line.windows(mark.len()).position(|w| w == mark) {
        return line[at..].to_vec();
    }
    let named = |name: &Vec<u8>| {
        let rest = line.strip_prefix(name.as_slice())?;
        rest.starts_with(b":").then_some(rest)
    };
    let line = names.iter().find_map(named).unwrap_or(line);
    let mut out = Vec::new();
    for b in line {
        match b {
            b'0'..=b'9' if out.last() == Some(&b'#') => {}
            b'0'..=b'9' => out.push(b'#'),
            b => out.push(*b),
        }
    }
    out
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
    use crate::plan::compare::Compare;

    fn outputs(list: &[(u32, &str, &str)]) -> Compare {
        let mut c = Compare::default();
        for (file, recorded, now) in list {
            c.recorded(*file, recorded.as_bytes(), &[], &[]);
            c.now(*file, now.as_bytes());
        }
        c
    }

    fn decided(recorded: End, now: End, all: &[&Compare], changes: Changes) -> Verdict {
        let facts = Facts {
            recorded,
            now,
            outputs: all.iter().flat_map(|c| c.streams()).collect(),
            functions: (None, None),
            names: vec![b"p".to_vec(), b"q".to_vec()],
            changes,
        };
        decide(&facts).0
    }

    fn verdict(recorded: End, now: End, list: &[(u32, &str, &str)]) -> Verdict {
        decided(recorded, now, &[&outputs(list)], Changes::default())
    }

    #[test]
    fn all_processes_count() {
        let (fine, crash) = (End::Status(0), End::Signal(11));
        let (a, b) = (outputs(&[(1, "a", "a")]), outputs(&[(1, "b", "c")]));
        for recorded in [fine, crash] {
            let of = |all: &[&Compare]| decided(recorded, fine, all, Changes::default());
            assert_eq!(of(&[&a]), Verdict::Same);
            assert_eq!(of(&[&a, &b]), Verdict::OtherOutput);
        }
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let (fine, crash) = (End::Status(0), End::Signal(11));
        let none = Changes::default();
        let mut c = outputs(&[(1, "a", "a")]);
        for end in [End::Unknown, End::Exec] {
            assert_eq!(decided(end, fine, &[&c], none), Verdict::TooFar);
            assert_eq!(decided(end, crash, &[&c], none), Verdict::TooFar);
        }
        c.recorded(1, b"\0", &[(0, 1)], &[]);
        c.now(1, b"x");
        assert_eq!(decided(fine, fine, &[&c], none), Verdict::TooFar);
        // What it printed tells what the failure is if nothing else does.
        let one = End::Status(1);
        assert_eq!(decided(one, one, &[&c], none), Verdict::TooFar);
        let mut c = outputs(&[(2, "a", "a")]);
        c.recorded(2, b"\0", &[(0, 1)], &[]);
        c.now(2, b"x");
        for end in [crash, one] {
            assert_eq!(decided(end, end, &[&c], none), Verdict::TooFar);
        }
        let facts = Facts {
            recorded: crash,
            now: crash,
            outputs: c.streams().collect(),
            functions: (Some("f".into()), Some("f".into())),
            names: Vec::new(),
            changes: none,
        };
        assert_eq!(decide(&facts).0, Verdict::SameFailure);
        let c = outputs(&[(1, "a", "a")]);
        let with = |change: fn(&mut Changes)| {
            let mut all = Changes::default();
            change(&mut all);
            [fine, crash].map(|recorded| decided(recorded, fine, &[&c], all))
        };
        let (same, other) = (Verdict::Same, Verdict::OtherOutput);
        // More than was recorded may follow behind a failure, and nothing may be missing.
        assert_eq!(with(|c| c.added = 1), [other, same]);
        assert_eq!(with(|c| c.elsewhere = 1), [other, same]);
        assert_eq!(with(|c| c.left_out = 1), [other, other]);
        assert_eq!(with(|c| c.killed = 1), [other, other]);
        assert_eq!(with(|c| c.failures = 1), [other, other]);
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
        let now = |text| verdict(one, one, &[(2, py, text), (1, "", "x")]);
        assert_eq!(now("TypeError: x\n"), Verdict::OtherFailure);
        assert_eq!(now("ValueError: 'a'\n"), Verdict::OtherFailure);
        assert_eq!(now("KeyError: 'a'\n"), Verdict::SameFailure);
        assert_eq!(
            verdict(one, one, &[(2, "p: line 3: bad\n", "q: line 4: bad\n")]),
            Verdict::SameFailure
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
        let facts = |a: Option<&str>, b: Option<&str>| Facts {
            recorded: End::Signal(11),
            now: End::Signal(11),
            outputs: Vec::new(),
            functions: (a.map(Into::into), b.map(Into::into)),
            names: Vec::new(),
            changes: Changes::default(),
        };
        assert_eq!(decide(&facts(Some("f"), Some("f"))).0, Verdict::SameFailure);
        assert_eq!(
            decide(&facts(Some("f"), Some("g"))).0,
            Verdict::OtherFailure
        );
        assert_eq!(decide(&facts(Some("f"), None)).0, Verdict::SameFailure);
    }
}
