//! What kind of a difference a parting is.

use super::Work;
use crate::cause::At;
use crate::code::FUNCTION;
use crate::course::Parting;
use crate::model::Kind;
use crate::stream::Item;
use crate::{Both, Result};
use hindsight_timeline::{Kind as Event, Thread, signal_name, syscall_name};
use iced_x86::FlowControl;

/// Calls by which a program gets memory, waits or looks around, and does nothing that others see.
const PRIVATE: [&str; 14] = [
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "wait4",
    "waitid",
    "poll",
    "ppoll",
    "nanosleep",
    "clock_nanosleep",
    "rt_sigprocmask",
    "getrandom",
];
impl Work<'_> {
    /// Whether a call that only one recording has means more than that memory lies elsewhere, or that somebody was faster.
    pub(super) fn says_something(&self, side: usize, n: usize) -> bool {
        let event = self.pair.events.each[side].get(n).map(|h| &h.kind);
        match event {
            Some(Event::Syscall { number, .. }) => {
                !PRIVATE.contains(&syscall_name(*number).as_str())
            }
            _ => true,
        }
    }

    /// Whether they part in, or come from, a file that is another build in the other recording: only functions are compared.
    pub(super) fn is_rebuilt(&self, p: &Parting) -> bool {
        let all = p.next.iter().flatten().chain(&p.before);
        self.codes.rebuilt && all.into_iter().any(|i| i.len == 0 && i.key & FUNCTION != 0)
    }

    /// Whether they part at an event, and not at a branch.
    pub(super) fn is_event(&self, p: &Parting) -> bool {
        let event = |i: &Item| i.lone().is_some() || i.pair().is_some();
        p.next.iter().flatten().any(event)
    }

    /// The signals with which they part, if they do.
    pub(super) fn signals(&self, p: &Parting) -> Result<Option<Both<Option<String>>>> {
        let name = |s: usize| {
            let number = p.next[s]?.lone();
            let pair = p.next[s]?.pair().map(|n| self.pair.events.pairs[n][s]);
            let h = self.pair.events.each[s].get(number.or(pair)?)?;
            match h.kind {
                Event::Signal { number, .. } => Some(signal_name(number.into())),
                _ => None,
            }
        };
        let names = [name(0), name(1)];
        Ok(names.iter().any(Option::is_some).then_some(names))
    }

    /// Whether an instruction raised one of these signals.
    pub(super) fn raised(&self, p: &Parting) -> bool {
        let raised = |s: usize| {
            let item = p.next[s]?;
            let pair = item.pair().map(|n| self.pair.events.pairs[n][s]);
            let h = self.pair.events.each[s].get(item.lone().or(pair)?)?;
            Some(h.kind.is_exception())
        };
        (0..2).any(|s| raised(s) == Some(true))
    }

    pub(super) fn kind(&mut self, p: &Parting, last: Option<At>) -> Result<Kind> {
        if let Some(signals) = self.signals(p)? {
            return Ok(Kind::Signal { signals });
        }
        if p.next.iter().any(Option::is_none) {
            let how = |t: &Thread| t.ending.to_string();
            return Ok(Kind::End {
                endings: [0, 1].map(|s| how(&self.pair.threads[s])),
            });
        }
        if self.is_event(p) {
            let mut calls = [None, None];
            for (s, call) in calls.iter_mut().enumerate() {
                let lone = p.next[s].and_then(|i| i.lone());
                let h = lone.and_then(|n| self.pair.events.each[s].get(n));
                *call = h.map(|h| self.sides[s].text(h)).transpose()?;
            }
            return Ok(Kind::Call { calls });
        }
        let rebuilt = self.is_rebuilt(p);
        if rebuilt {
            let mut names = [None, None];
            for (s, name) in names.iter_mut().enumerate() {
                let count = p.next[s].map_or(p.at[s], |i| i.count);
                let point = self.sides[s].point(self.ids[s], count)?;
                *name = point.location.and_then(|l| Some(l.function?.0));
            }
            return Ok(Kind::Function { names });
        }
        let Some(at) = last else {
            return Ok(Kind::Other);
        };
        let Some(step) = self.causes.instruction(0, at[0])? else {
            return Ok(Kind::Other);
        };
        Ok(match step.flow_control() {
            FlowControl::ConditionalBranch => {
                let mut taken = [false; 2];
                for s in 0..2 {
                    let next = self.sides[s].point(self.ids[s], p.at[s])?;
                    let step = self.causes.instruction(s, at[s])?;
                    taken[s] = step.is_some_and(|i| i.next_ip() != next.pc);
                }
                Kind::Branch { taken }
            }
            FlowControl::Next | FlowControl::Interrupt => Kind::Other,
            _ => Kind::Target,
        })
    }
}
