//! Which part of a program is recorded.

use hindsight_events::ring::Header;
use hindsight_events::select::{Function, MOST, Rule, SELECT_LEN, What, put};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// The part of a program that is recorded. By default all of it.
///
/// Modules are named by path, file name, or file name up to `.so`, with `*` and `?`; `[vdso]` and `[anonymous]` (code that
/// is made at run time) are names too. Functions are `name`, `module!name`, or `module+0x123` with an address as `nm`
/// shows it. What is not recorded runs as plain code.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Selection {
    /// Only the code of modules that match one of these. Empty: of all modules.
    pub only_modules: Vec<String>,
    /// Not the code of modules that match one of these, even if they match one of the others.
    pub skip_modules: Vec<String>,
    /// Each thread only from where it enters one of these functions until it returns, or to where it enters one of
    /// [`Selection::to`]. Empty: from the beginning.
    pub from: Vec<String>,
    /// Each thread only to where it enters one of these functions.
    pub to: Vec<String>,
    /// Nothing until the program asks for it (`hindsight.h`, or the crate `hindsight-mark`).
    pub start_stopped: bool,
}

/// Why a [`Selection`] cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The choices do not fit into what the recorder has room for.
    #[error(
        "there are too many modules and functions to choose (at most {MOST}, of {SELECT_LEN} bytes in all)"
    )]
    TooMany,
    /// A module's pattern is empty, or has a byte of value 0.
    #[error("{0}: expected a path or file name, with `*` and `?` for what may be anything")]
    Module(String),
    /// A function is written in another way.
    #[error("{0}: a function is `name`, `module!name` or `module+0x123`")]
    Function(String),
}

/// A choice that chose nothing. As text, it is a sentence for a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Unmatched {
    /// No module whose code was executed matches.
    Module {
        /// The pattern.
        pattern: String,
        /// Nothing else was to be recorded.
        only: bool,
    },
    /// No module whose code was executed has the function.
    Function {
        /// The function, as it was given.
        function: String,
        /// Nothing was to be recorded before it.
        only: bool,
    },
    /// The function is there, but was never called.
    NeverCalled {
        /// The function, as it was given.
        function: String,
        /// Nothing was to be recorded before it.
        only: bool,
    },
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let only = match self {
            Unmatched::Module { pattern, only } => {
                write!(f, "no module whose code was executed matches {pattern}")?;
                only
            }
            Unmatched::Function { function, only } => {
                write!(
                    f,
                    "no module whose code was executed has a function {function}"
                )?;
                only
            }
            Unmatched::NeverCalled { function, only } => {
                write!(f, "{function} was never called")?;
                only
            }
        };
        f.write_str(if *only {
            "; it chose nothing to record"
        } else {
            ""
        })
    }
}

impl Selection {
    /// The rules, in the order of their bits.
    fn rules(&self) -> Vec<(What, &str)> {
        let lists = [
            (What::Only, &self.only_modules),
            (What::Skip, &self.skip_modules),
            (What::From, &self.from),
            (What::To, &self.to),
        ];
        let all = lists
            .iter()
            .flat_map(|(what, list)| list.iter().map(|text| (*what, text.as_str())));
        all.chain(self.start_stopped.then_some((What::Stopped, "")))
            .collect()
    }

    /// Writes the rules for the recorder.
    pub(crate) fn fill(&self, block: &mut [u8; SELECT_LEN]) -> Result<(), SelectionError> {
        let mut at = 0;
        for (what, text) in self.rules() {
            match what {
                What::Only | What::Skip if text.is_empty() || text.contains('\0') => {
                    return Err(SelectionError::Module(text.into()));
                }
                What::From | What::To if Function::parse(text.as_bytes()).is_none() => {
                    return Err(SelectionError::Function(text.into()));
                }
                _ => {}
            }
            let text = text.as_bytes();
            at = put(block, at, Rule { what, text }).ok_or(SelectionError::TooMany)?;
        }
        Ok(())
    }

    /// The rules as options of the command line, which is how the trace names them.
    pub(crate) fn options(&self) -> Vec<String> {
        let option = |(what, text): (What, &str)| {
            let name = match what {
                What::Only => "--only-module ",
                What::Skip => "--skip-module ",
                What::From => "--from ",
                What::To => "--to ",
                What::Stopped => "--start-stopped",
            };
            format!("{name}{text}")
        };
        self.rules().into_iter().map(option).collect()
    }

    /// The rules that found nothing, as the recorder has noted in the shared memory.
    pub(crate) fn unmatched(&self, header: &Header) -> Vec<Unmatched> {
        let (matched, reached) = (header.matched.load(Relaxed), header.reached.load(Relaxed));
        let mut out = Vec::new();
        for (i, (what, text)) in self.rules().into_iter().enumerate() {
            let has = |bits: u64| bits >> i & 1 != 0;
            let only = matches!(what, What::Only | What::From);
            let text = || text.to_owned();
            match what {
                What::Only | What::Skip if !has(matched) => out.push(Unmatched::Module {
                    pattern: text(),
                    only,
                }),
                What::From | What::To if !has(matched) => out.push(Unmatched::Function {
                    function: text(),
                    only,
                }),
                What::From | What::To if !has(reached) => out.push(Unmatched::NeverCalled {
                    function: text(),
                    only,
                }),
                _ => {}
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chose_nothing_is_said() {
        let function = || "main".to_owned();
        let never = Unmatched::NeverCalled {
            function: function(),
            only: true,
        };
        assert_eq!(
            never.to_string(),
            "main was never called; it chose nothing to record"
        );
        let none = Unmatched::Function {
            function: function(),
            only: false,
        };
        assert_eq!(
            none.to_string(),
            "no module whose code was executed has a function main"
        );
    }

    #[test]
    fn too_many_and_malformed_choices_are_refused() {
        let mut block = [0; SELECT_LEN];
        let mut chosen = Selection {
            only_modules: vec!["libc".into(); MOST],
            ..Selection::default()
        };
        assert_eq!(chosen.fill(&mut block), Ok(()));
        let wrong = Selection {
            from: vec!["!".into()],
            ..Selection::default()
        };
        let error = Err(SelectionError::Function("!".into()));
        assert_eq!(wrong.fill(&mut [0; SELECT_LEN]), error);
        chosen.from.push("main".into());
        assert_eq!(chosen.fill(&mut block), Err(SelectionError::TooMany));
    }
}
