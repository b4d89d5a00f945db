//! What a process does with signals, and what its threads block.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::ProcessState;
use super::history::{Did, History, Past, bytes, word};
use crate::Result;
use hindsight_timeline::regs::RSP;
use hindsight_timeline::{Cursor, ThreadId};
use libc::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where the mask stands above the stack pointer, when a handler returns to the kernel.
const MASK_IN_FRAME: u64 = 40 + 256;
/// SIGKILL and SIGSTOP.
const UNBLOCKABLE: u64 = 1 << (SIGKILL - 1) | 1 << (SIGSTOP - 1);
/// The most makers of makers that are followed back.
const MAKERS: usize = 1 << 16;

/// What a process does with a signal, in the kernel's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Action {
    /// The signal's number.
    pub signal: u32,
    /// The handler's address; 0: what is usual; 1: it is ignored.
    pub handler: u64,
    /// `sa_flags`.
    pub flags: u64,
    /// Where handlers return to.
    pub restorer: u64,
    /// What is blocked meanwhile.
    pub mask: u64,
}

/// The actions at the instant.
pub fn actions(history: &History, cursor: &mut Cursor, state: &mut ProcessState) -> Result<()> {
    let mut now: BTreeMap<u32, Action> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    for (i, (by_exec, past)) in history.generations.iter().enumerate() {
        if *by_exec && i > 0 {
            // The next program has no handlers.
            now.retain(|_, a| a.handler == 1);
        }
        // Of each signal only the last call counts, unless a delivery has reset the action.
        let mut last: BTreeMap<u32, &Past> = BTreeMap::new();
        let mut reset: BTreeMap<u32, usize> = BTreeMap::new();
        for (n, p) in past.iter().enumerate() {
            match p.what {
                Did::Call {
                    number: SYS_rt_sigaction,
                    args,
                    ..
                } if args[1] != 0 => {
                    last.insert(args[0] as u32, p);
                    reset.remove(&(args[0] as u32));
                }
                Did::Signal(s) => {
                    reset.insert(s.into(), n);
                }
                _ => {}
            }
        }
        for (signal, p) in last {
            let Did::Call { args, .. } = p.what else {
                continue;
            };
            match bytes(cursor, p, args[1], 32)? {
                Some(b) => {
                    let action = action(signal, &b);
                    unknown.remove(&signal);
                    now.insert(signal, action);
                }
                None => {
                    now.remove(&signal);
                    unknown.insert(signal);
                }
            }
        }
        for signal in reset.keys() {
            if now
                .get(signal)
                .is_some_and(|a| a.flags & SA_RESETHAND as u32 as u64 != 0)
            {
                now.remove(signal);
            }
        }
    }
    for signal in unknown {
        let name = hindsight_timeline::signal_name(signal.into());
        state
            .refused
            .push(format!("what it does on {name} is not known"));
    }
    state.actions = now.into_values().collect();
    Ok(())
}

/// The signals that a thread blocks at the instant. `None`: they are not known.
pub fn blocked(history: &History, cursor: &mut Cursor, thread: ThreadId) -> Result<Option<u64>> {
    // From where on the mask is known, and the way from there: the own past, then that of who made the thread, and so on.
    let mut way: Vec<Past> = history.of(thread).copied().collect();
    let mut of = thread;
    for _ in 0..MAKERS {
        if way.iter().any(is_absolute) {
            break;
        }
        let Some(maker) = history.maker(of) else {
            break;
        };
        let before = |p: &&Past| p.thread == maker.thread && p.position < maker.position;
        let mut longer: Vec<Past> = history.all().filter(before).copied().collect();
        longer.append(&mut way);
        (way, of) = (longer, maker.thread);
    }
    // A program that was loaded has the mask of the one before.
    if !way.iter().any(is_absolute) {
        let first = way.first().map(|p| p.position);
        let before = history
            .all()
            .filter(|p| first.is_none_or(|f| p.position < f));
        let mut longer: Vec<Past> = before.copied().collect();
        longer.append(&mut way);
        way = longer;
    }
    let from = way.iter().rposition(is_absolute).unwrap_or(0);
    // What it began with is not known, and seldom anything else.
    let mut mask = Some(0);
    for (i, p) in way.iter().enumerate().skip(from) {
        mask = after(history, cursor, mask, p, i.checked_sub(1).map(|i| &way[i]))?;
    }
    Ok(mask.map(|m| m & !UNBLOCKABLE))
}

/// Whether the mask behind it does not depend on the one before.
fn is_absolute(p: &Past) -> bool {
    match p.what {
        Did::Call {
            number: SYS_rt_sigreturn,
            ..
        } => true,
        Did::Call {
            number: SYS_rt_sigprocmask,
            args,
            ..
        } => args[0] as i32 == SIG_SETMASK && args[1] != 0,
        _ => false,
    }
}

/// The mask behind something that happened.
fn after(
    history: &History,
    cursor: &mut Cursor,
    mask: Option<u64>,
    p: &Past,
    before: Option<&Past>,
) -> Result<Option<u64>> {
    let set = |b: Option<Vec<u8>>| b.map(|b| word(&b, 0));
    Ok(match p.what {
        Did::Call {
            number: SYS_rt_sigreturn,
            ..
        } => {
            cursor.seek_count(p.thread, p.count)?;
            let sp = cursor.registers()?.gpr[RSP];
            set(bytes(cursor, p, sp.wrapping_add(MASK_IN_FRAME), 8)?)
        }
        Did::Call {
            number: SYS_rt_sigprocmask,
            args,
            ..
        } if args[1] != 0 => {
            let set = set(bytes(cursor, p, args[1], 8)?);
            match args[0] as i32 {
                SIG_BLOCK => mask.zip(set).map(|(m, s)| m | s),
                SIG_UNBLOCK => mask.zip(set).map(|(m, s)| m & !s),
                _ => set,
            }
        }
        Did::Signal(signal) => {
            // A call that waits with a mask of its own, and was ended by the signal.
            let waited = match before.filter(|b| b.thread == p.thread && p.count <= b.count + 1) {
                Some(b) => waits_with(cursor, b)?,
                None => None,
            };
            let action = match last_action(history, cursor, p, signal)? {
                Chosen::Handler(action) => action,
                Chosen::Usual => return Ok(mask),
                Chosen::Unknown => return Ok(None),
            };
            let own = match action.flags & SA_NODEFER as u64 {
                0 => 1 << (u32::from(signal).max(1) - 1).min(63),
                _ => 0,
            };
            waited.unwrap_or(mask).map(|m| m | action.mask | own)
        }
        _ => mask,
    })
}

/// The mask with which a call waits, if it has one of its own; `Some(None)`: that is not known.
fn waits_with(cursor: &mut Cursor, p: &Past) -> Result<Option<Option<u64>>> {
    let Did::Call { number, args, .. } = p.what else {
        return Ok(None);
    };
    let at = match number {
        SYS_rt_sigsuspend => args[0],
        SYS_ppoll => args[3],
        SYS_epoll_pwait | SYS_epoll_pwait2 => args[4],
        // The address stands in memory.
        SYS_pselect6 if args[5] != 0 => match bytes(cursor, p, args[5], 8)? {
            Some(b) => word(&b, 0),
            None => return Ok(Some(None)),
        },
        _ => 0,
    };
    match at {
        0 => Ok(None),
        at => Ok(Some(bytes(cursor, p, at, 8)?.map(|b| word(&b, 0)))),
    }
}

/// What a process does with a signal.
enum Chosen {
    Handler(Action),
    /// It has no handler.
    Usual,
    Unknown,
}

/// The action that a signal met.
fn last_action(history: &History, cursor: &mut Cursor, p: &Past, signal: u8) -> Result<Chosen> {
    let chosen = history.since_loaded().rev().find(|c| {
        c.position < p.position
            && matches!(c.what, Did::Call { number: SYS_rt_sigaction, args, .. }
                if args[0] as u8 == signal && args[1] != 0)
    });
    let Some(c) = chosen else {
        return Ok(Chosen::Usual);
    };
    let Did::Call { args, .. } = c.what else {
        return Ok(Chosen::Unknown);
    };
    Ok(match bytes(cursor, c, args[1], 32)? {
        None => Chosen::Unknown,
        Some(b) if word(&b, 0) <= 1 => Chosen::Usual,
        Some(b) => Chosen::Handler(action(signal.into(), &b)),
    })
}

/// `struct sigaction` as the kernel has it.
fn action(signal: u32, b: &[u8]) -> Action {
    Action {
        signal,
        handler: word(b, 0),
        flags: word(b, 8),
        restorer: word(b, 16),
        mask: word(b, 24),
    }
}
