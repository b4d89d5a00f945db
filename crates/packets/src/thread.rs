//! `H`, `T`, `qC`, `qfThreadInfo`, `qThreadExtraInfo` and `qGetTLSAddr`: threads.

use crate::encoding::number;
use crate::error::Parsed;
use crate::{Answer, Label, Malformed, ThreadName};

/// A question about threads, or a choice among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thread {
    /// `Hg`: what follows is about this thread.
    Choose(ThreadName),
    /// `Hc`: runs and steps that name no thread are about this one.
    ChooseToRun(ThreadName),
    /// `T`: whether a thread lives.
    IsAlive(ThreadName),
    /// `qC`: which thread is chosen.
    Current,
    /// `qfThreadInfo`: all threads. [`Thread::list`] is the answer.
    List,
    /// `qsThreadInfo`: the threads that the last list left out. There are none: [`Thread::end_of_list`].
    ListMore,
    /// `qThreadExtraInfo`: a text about a thread, as [`Answer::hex`].
    Describe(ThreadName),
    /// `qGetTLSAddr`: where a thread has its own copy of a variable, as [`Answer::number`].
    LocalAddress {
        thread: ThreadName,
        /// Of the variable in the file's part.
        offset: u64,
        /// What the list of libraries says of the file in `lm`; 0 for the program.
        file: u64,
    },
}

impl Thread {
    /// Answers `qfThreadInfo`.
    pub fn list(threads: &[Label]) -> Answer {
        let names: Vec<String> = threads.iter().map(Label::to_string).collect();
        Answer::text(format!("m{}", names.join(",")))
    }

    /// Answers `qsThreadInfo`.
    pub fn end_of_list() -> Answer {
        Answer::text("l")
    }

    /// Answers `qC`.
    pub fn current(thread: Label) -> Answer {
        Answer::text(format!("QC{thread}"))
    }
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Thread> {
    let name = |text: &[u8], kind| ThreadName::parse(text).ok_or(Malformed(kind));
    Ok(Some(match packet {
        [b'H', b'g', rest @ ..] => Thread::Choose(name(rest, "Hg")?),
        [b'H', b'c', rest @ ..] => Thread::ChooseToRun(name(rest, "Hc")?),
        [b'T', rest @ ..] => Thread::IsAlive(name(rest, "T")?),
        b"qC" => Thread::Current,
        b"qfThreadInfo" => Thread::List,
        b"qsThreadInfo" => Thread::ListMore,
        _ => {
            if let Some(rest) = packet.strip_prefix(b"qThreadExtraInfo,") {
                Thread::Describe(name(rest, "qThreadExtraInfo")?)
            } else if let Some(rest) = packet.strip_prefix(b"qGetTLSAddr:") {
                local(rest).ok_or(Malformed("qGetTLSAddr"))?
            } else {
                return Ok(None);
            }
        }
    }))
}

/// `THREAD,OFFSET,FILE`.
fn local(rest: &[u8]) -> Option<Thread> {
    let mut parts = rest.split(|b| *b == b',');
    let (thread, offset, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Thread::LocalAddress {
        thread: ThreadName::parse(thread)?,
        offset: number(offset)?,
        file: number(file)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tid;

    #[test]
    fn threads_are_named() {
        let name = |text| ThreadName::parse(text).unwrap();
        let one = |packet| parse(packet).unwrap().unwrap();
        assert_eq!(one(b"Hgp1.2"), Thread::Choose(name(b"p1.2")));
        assert_eq!(one(b"Hc-1"), Thread::ChooseToRun(name(b"-1")));
        assert_eq!(one(b"T2"), Thread::IsAlive(name(b"2")));
        let described = Thread::Describe(name(b"p1.2"));
        assert_eq!(one(b"qThreadExtraInfo,p1.2"), described);
        let local = Thread::LocalAddress {
            thread: name(b"p1a.1b"),
            offset: 16,
            file: 0x7f00,
        };
        assert_eq!(one(b"qGetTLSAddr:p1a.1b,10,7f00"), local);
        assert_eq!(parse(b"Hx1"), Ok(None));
        for bad in [
            &b"Hg"[..],
            b"T",
            b"Hcx",
            b"qGetTLSAddr:",
            b"qGetTLSAddr:1b,10",
            b"qGetTLSAddr:1b,x,0",
            b"qGetTLSAddr:\xff,0,0",
        ] {
            assert!(parse(bad).is_err());
        }
    }

    #[test]
    fn lists_have_commas() {
        let label = |n| Label {
            process: Some(1),
            thread: Tid::new(n).unwrap(),
        };
        let list = Thread::list(&[label(1), label(2)]);
        assert_eq!(list, Answer::text("mp1.1,p1.2"));
        assert_eq!(Thread::current(label(1)), Answer::text("QCp1.1"));
    }
}
