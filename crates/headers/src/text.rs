//! What was derived, as a file of declarations.

use crate::{Derived, Found, Ground, Outcome};
use std::fmt::Write;

/// What goes into a file of declarations.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The beginning of the name of the file that has the functions: `libz.so`.
    pub library: String,
    /// Declarations that rest on less than this stand as comments.
    pub ground: Ground,
    /// Functions that get no declaration are not spoken of.
    pub is_brief: bool,
}

impl Found {
    /// The text of a file of declarations. `head` stands at its beginning as a comment.
    pub fn text(&self, choice: &Choice, head: &str) -> String {
        let mut out = String::new();
        for line in head.lines() {
            comment(&mut out, line);
        }
        let _ = write!(out, "\n[{}]", choice.library);
        let mut last = "";
        for f in &self.functions {
            if choice.is_brief && !f.counts(choice.ground) {
                continue;
            }
            if f.header != last {
                out.push('\n');
                comment(&mut out, &f.header);
                last = &f.header;
            }
            match (&f.outcome, f.text()) {
                (Outcome::Declared { reasons, .. }, Some(text)) => {
                    let reasons = reasons.join("; ");
                    match f.counts(choice.ground) {
                        true => {
                            let _ = writeln!(out, "{text}  # {reasons}");
                        }
                        false => comment(&mut out, &format!("perhaps {text}: {reasons}")),
                    }
                }
                (Outcome::LeftOut(why), _) => comment(&mut out, &format!("{}: {why}", f.symbol)),
                _ => {}
            }
        }
        if !choice.is_brief && !self.faults.is_empty() {
            out.push('\n');
            comment(&mut out, "Not understood:");
            for fault in &self.faults {
                comment(&mut out, &fault.to_string());
            }
        }
        out
    }

    /// How many functions get a declaration.
    pub fn count(&self, ground: Ground) -> usize {
        self.functions.iter().filter(|f| f.counts(ground)).count()
    }
}

impl Derived {
    /// Whether it has a declaration that rests on this or on more.
    fn counts(&self, least: Ground) -> bool {
        matches!(&self.outcome, Outcome::Declared { ground, .. } if *ground <= least)
            // An `asm` label may be any text.
            && self.symbol.chars().all(|c| c.is_alphanumeric() || "_.$@".contains(c))
    }
}

/// A line of a comment. Names of files may have any characters.
fn comment(out: &mut String, line: &str) {
    let line: String = (line.chars())
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    let _ = writeln!(out, "{}", format!("# {line}").trim_end());
}
