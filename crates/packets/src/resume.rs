//! `vCont`, `c`, `s`, `C`, `S`, `bc` and `bs`: runs and steps.
//!
//! The answer to all but `vCont?` is a [`crate::Stop`], once the program has stopped.

use crate::encoding::{number, numbers, split};
use crate::error::Parsed;
use crate::{Answer, Id, Malformed, ThreadName};

/// A run or a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resume {
    /// `vCont?`: which actions are known. [`Resume::known_actions`] is the answer.
    Ask,
    /// `vCont`: what each thread does. There is at least one.
    Actions(Vec<Action>),
    /// `c`, `s`, `C` or `S`: for the threads that `Hc` named.
    Plain {
        steps: bool,
        /// The program is to go on here.
        address: Option<u64>,
    },
    /// `bc` or `bs`
    Back { steps: bool },
}

/// What a thread does, or all that no other action names. Signals that a client gives along are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    pub kind: ActionKind,
    /// `None`: all threads.
    pub thread: Option<ThreadName>,
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionKind {
    Continue,
    Step,
    /// It steps as long as it is from the first of these addresses to before the second.
    Range(u64, u64),
}

impl Resume {
    /// Answers `vCont?`.
    pub fn known_actions() -> Answer {
        Answer::text("vCont;c;C;s;S;r")
    }
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Resume> {
    if packet == b"vCont?" {
        return Ok(Some(Resume::Ask));
    }
    if let Some(list) = packet.strip_prefix(b"vCont;") {
        let actions: Option<_> = list.split(|b| *b == b';').map(action).collect();
        return Ok(Some(Resume::Actions(actions.ok_or(Malformed("vCont"))?)));
    }
    let (Some(kind), rest) = (packet.first(), packet.get(1..).unwrap_or_default()) else {
        return Ok(None);
    };
    Ok(Some(match (kind, rest) {
        (b'b', b"c") => Resume::Back { steps: false },
        (b'b', b"s") => Resume::Back { steps: true },
        (b'c', _) => plain(false, rest).ok_or(Malformed("c"))?,
        (b's', _) => plain(true, rest).ok_or(Malformed("s"))?,
        (b'C', _) => with_signal(false, rest).ok_or(Malformed("C"))?,
        (b'S', _) => with_signal(true, rest).ok_or(Malformed("S"))?,
        _ => return Ok(None),
    }))
}

fn plain(steps: bool, address: &[u8]) -> Option<Resume> {
    let address = match address {
        [] => None,
        digits => Some(number(digits)?),
    };
    Some(Resume::Plain { steps, address })
}

fn with_signal(steps: bool, rest: &[u8]) -> Option<Resume> {
    let (signal, address) = split(rest, b';').unwrap_or((rest, b""));
    signal_number(signal)?;
    plain(steps, address)
}

fn signal_number(digits: &[u8]) -> Option<u8> {
    u8::try_from(number(digits)?).ok()
}

fn action(text: &[u8]) -> Option<Action> {
    let (kind, thread) = match split(text, b':') {
        Some((kind, thread)) => (kind, Some(ThreadName::parse(thread)?)),
        None => (text, None),
    };
    let kind = match kind {
        b"c" => ActionKind::Continue,
        b"s" => ActionKind::Step,
        [b'C', signal @ ..] => signal_number(signal).map(|_| ActionKind::Continue)?,
        [b'S', signal @ ..] => signal_number(signal).map(|_| ActionKind::Step)?,
        [b'r', range @ ..] => {
            let (from, to) = numbers(range, b',')?;
            ActionKind::Range(from, to)
        }
        _ => return None,
    };
    // No client names any thread and means one.
    let thread = thread.map(|t| match t.thread {
        Id::Any => ThreadName {
            thread: Id::All,
            ..t
        },
        _ => t,
    });
    Some(Action { kind, thread })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_name_threads() {
        let name = |text| Some(ThreadName::parse(text).unwrap());
        let of = |kind, thread| Action { kind, thread };
        let parsed = |list: &[Action]| Ok(Some(Resume::Actions(list.to_vec())));
        assert_eq!(
            parse(b"vCont;s:p1.1;c"),
            parsed(&[
                of(ActionKind::Step, name(b"p1.1")),
                of(ActionKind::Continue, None)
            ])
        );
        assert_eq!(
            parse(b"vCont;r10,20:1;C05:0"),
            parsed(&[
                of(ActionKind::Range(16, 32), name(b"1")),
                of(ActionKind::Continue, name(b"-1"))
            ])
        );
        for bad in [
            &b"vCont;"[..],
            b"vCont;c;",
            b"vCont;t",
            b"vCont;c:",
            b"vCont;r1:1",
            b"vCont;C",
            b"vCont;S100:1",
        ] {
            assert_eq!(parse(bad), Err(Malformed("vCont")));
        }
        assert_eq!(parse(b"vContx"), Ok(None));
    }

    #[test]
    fn plain_ones_may_have_signal_and_address() {
        let plain = |steps, address| Ok(Some(Resume::Plain { steps, address }));
        assert_eq!(parse(b"c"), plain(false, None));
        assert_eq!(parse(b"s10"), plain(true, Some(16)));
        assert_eq!(parse(b"C05"), plain(false, None));
        assert_eq!(parse(b"S05;10"), plain(true, Some(16)));
        assert_eq!(parse(b"bs"), Ok(Some(Resume::Back { steps: true })));
        assert_eq!(parse(b"bx"), Ok(None));
        for bad in [&b"cx"[..], b"C", b"S5;"] {
            assert_eq!(parse(bad).is_err(), bad != b"S5;");
        }
    }
}
