//! Programs with planted bugs, and what is made of them: nothing, the right fix, a wrong one, and the right one among edits that have
//! nothing to do with it.

use crate::{Scene, programs};
use std::fs;
use std::process::Command;

/// A program with a bug.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// Its file below `programs/rerun`.
    pub source: &'static str,
    /// The kind of the bug.
    pub kind: &'static str,
    /// What it reads.
    pub input: &'static str,
    /// How it fails: its status, or the signal.
    pub end: (Option<i32>, Option<i32>),
}

/// What is made of a program, by the number that is `FIX` in its source.
pub const FIXES: [&str; 4] = ["as it is", "right fix", "wrong fix", "among edits"];

const SEGV: (Option<i32>, Option<i32>) = (None, Some(libc::SIGSEGV));
const ABRT: (Option<i32>, Option<i32>) = (None, Some(libc::SIGABRT));

const fn bug(
    source: &'static str,
    kind: &'static str,
    input: &'static str,
    end: (Option<i32>, Option<i32>),
) -> Planted {
    Planted {
        source,
        kind,
        input,
        end,
    }
}

/// All programs.
pub const PLANTED: [Planted; 14] = [
    bug(
        "null.c",
        "a null pointer",
        "one: 1\ntwo: 22\nthree\nfour: 4444\n",
        SEGV,
    ),
    bug("assertion.c", "an assertion", "10\n-5\n-20\n7\n", ABRT),
    bug(
        "threads/hands.c",
        "an assertion in one of two threads",
        "10\n-5\n-20\n7\n",
        ABRT,
    ),
    bug(
        "divide.c",
        "a division by zero",
        "4\n6\n=\n=\n8\n=\n",
        (None, Some(libc::SIGFPE)),
    ),
    bug(
        "message.c",
        "a message and a status",
        "4\n-1\n+6\n",
        (Some(2), None),
    ),
    bug(
        "twice.c",
        "memory given back twice",
        "one\n-\n-\ntwo\n",
        ABRT,
    ),
    bug("deep.c", "an endless recursion", "1 2\n2 3\n3 1\n", SEGV),
    bug(
        "hang.c",
        "an endless loop",
        "0\n",
        (None, Some(libc::SIGALRM)),
    ),
    bug(
        "large.c",
        "a size that is too large",
        "100\n-5\n200\n",
        (Some(1), None),
    ),
    bug(
        "smashed.c",
        "an overwritten stack",
        "short\na name that is much too long to fit anywhere at all\nlast\n",
        ABRT,
    ),
    bug(
        "range.cpp",
        "an exception that nobody catches",
        "0\n2\n3\n1\n",
        ABRT,
    ),
    bug(
        "bounds.rs",
        "a panic in Rust",
        "a b\nc d\ne\nf g\n",
        (Some(101), None),
    ),
    bug(
        "missing.py",
        "an exception in Python",
        "one\ntwo\nthree\none\n",
        (Some(1), None),
    ),
    bug(
        "extension/words.c",
        "a null pointer in an extension of Python",
        "a b\nc d e\nf\ng hh\n",
        SEGV,
    ),
];

/// The program whose source has this name.
///
/// # Panics
/// If there is none.
pub fn planted(source: &str) -> Planted {
    let found = PLANTED.into_iter().find(|p| p.source == source);
    found.unwrap_or_else(|| panic!("no program with a bug has the name {source}"))
}

/// Whether a verdict is right about what was made of a program.
pub fn is_right(fix: usize, verdict: &str) -> bool {
    match fix {
        0 => verdict == "same-failure",
        // It fails as before, or otherwise.
        2 => ["same-failure", "other-failure"].contains(&verdict),
        _ => verdict == "no-failure",
    }
}

impl Planted {
    /// Puts the input in its place.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn put_input(&self, s: &Scene) {
        fs::write(s.path("input"), self.input).unwrap();
    }

    /// Makes the program, by the number of what is made of it. Returns the command that runs it in the scene's folder.
    ///
    /// # Panics
    /// If there is no compiler for it.
    pub fn build(&self, s: &Scene, fix: usize) -> Vec<String> {
        let (stem, kind) = self.source.rsplit_once('.').unwrap_or((self.source, ""));
        let stem = stem.rsplit('/').next().unwrap_or(stem);
        let own = s.path(&format!("{stem}-{fix}")).display().to_string();
        let input = || "input".to_owned();
        let source = programs().join("rerun").join(self.source);
        match kind {
            "rs" => {
                let mut rustc = Command::new("rustc");
                rustc.args(["-O", "-g", "--edition", "2024", "-o", &own]);
                let status = rustc.arg(source).env("FIX", fix.to_string()).status();
                assert!(status.expect("rustc").success());
                vec![own, input()]
            }
            "py" => {
                let text = fs::read_to_string(source).unwrap();
                let text = text.replace("FIX = 0", &format!("FIX = {fix}"));
                fs::write(&own, text).unwrap();
                vec!["/usr/bin/python3".into(), own, input()]
            }
            _ if self.source.starts_with("extension/") => {
                // The module is built again in its place.
                let built = s.compile(
                    &format!("rerun/{}", self.source),
                    &[
                        &format!("-DFIX={fix}"),
                        "-O1",
                        "-shared",
                        "-fPIC",
                        &python_headers(),
                    ],
                );
                fs::rename(built, s.path(&format!("{stem}.so"))).unwrap();
                fs::copy(source.with_file_name("count.py"), s.path("count.py")).unwrap();
                let words = ["/usr/bin/python3", "count.py"];
                words
                    .map(String::from)
                    .into_iter()
                    .chain([input()])
                    .collect()
            }
            _ => {
                let built = s.compile(
                    &format!("rerun/{}", self.source),
                    &[&format!("-DFIX={fix}"), "-O1", "-fstack-protector-all"],
                );
                fs::rename(built, &own).unwrap();
                vec![own, input()]
            }
        }
    }
}

/// The option that tells the compiler where the headers of Python are.
fn python_headers() -> String {
    let code = "import sysconfig; print(sysconfig.get_path('include'))";
    let done = Command::new("/usr/bin/python3").args(["-c", code]).output();
    let out = done.expect("python3").stdout;
    format!("-I{}", String::from_utf8_lossy(&out).trim())
}
