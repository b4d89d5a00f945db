//! Names of threads and processes: `p1a.2b`, `2b`, `-1`.

use crate::encoding::{number, split};
use std::fmt;
use std::num::NonZeroUsize;

/// The number by which a client knows a thread.
pub type Tid = NonZeroUsize;

/// One of several, or one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Id {
    /// All (`-1`).
    All,
    /// Any (`0`).
    Any,
    /// This one.
    Is(NonZeroUsize),
}

impl Id {
    fn parse(text: &[u8]) -> Option<Id> {
        if text == b"-1" {
            return Some(Id::All);
        }
        let n = usize::try_from(number(text)?).ok()?;
        Some(NonZeroUsize::new(n).map_or(Id::Any, Id::Is))
    }

    fn one(self) -> Option<NonZeroUsize> {
        match self {
            Id::Is(n) => Some(n),
            Id::All | Id::Any => None,
        }
    }
}

/// What a client calls threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadName {
    /// The process, if the client names one: it must know that there are several.
    pub process: Option<Id>,
    pub thread: Id,
}

impl ThreadName {
    pub(crate) fn parse(text: &[u8]) -> Option<ThreadName> {
        let Some(both) = text.strip_prefix(b"p") else {
            let thread = Id::parse(text)?;
            return Some(ThreadName {
                process: None,
                thread,
            });
        };
        // All threads of a process may be left out.
        let (process, thread) = split(both, b'.').unwrap_or((both, b"-1"));
        Some(ThreadName {
            process: Some(Id::parse(process)?),
            thread: Id::parse(thread)?,
        })
    }

    /// The process, if this names one.
    pub fn pid(&self) -> Option<u64> {
        Some(self.process?.one()?.get() as u64)
    }

    /// The thread, if this names one.
    pub fn tid(&self) -> Option<Tid> {
        self.thread.one()
    }
}

/// What a server calls a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// Its process, for clients that know that there are several.
    pub process: Option<u64>,
    pub thread: Tid,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(process) = self.process {
            write!(f, "p{process:x}.")?;
        }
        write!(f, "{:x}", self.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_name_processes() {
        let name = |text| ThreadName::parse(text).unwrap();
        assert_eq!(name(b"p1a.-1").pid(), Some(0x1a));
        assert_eq!(name(b"p1a").pid(), Some(0x1a));
        for none in [&b"p-1.-1"[..], b"p0.0", b"1a", b"-1"] {
            assert_eq!(name(none).pid(), None);
        }
        assert_eq!(name(b"p1a.2b").tid(), Tid::new(0x2b));
        assert_eq!(name(b"2b").tid(), Tid::new(0x2b));
        for none in [&b"p1a.-1"[..], b"p1a.0", b"p1a", b"-1", b"0"] {
            assert_eq!(name(none).tid(), None);
        }
        for bad in [&b""[..], b"p", b"p.1", b"p1.", b"x", b"-2", b"p1.1.1"] {
            assert_eq!(ThreadName::parse(bad), None);
        }
    }

    #[test]
    fn labels_have_their_process() {
        let thread = Tid::new(0x2b).unwrap();
        let label = |process| Label { process, thread }.to_string();
        assert_eq!(
            (label(Some(0x1a)), label(None)),
            ("p1a.2b".into(), "2b".into())
        );
    }
}
