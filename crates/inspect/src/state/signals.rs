//! What a process does with signals, and what its threads block.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::ProcessState;
use super::history::{History, Origin};
use super::past::{Did, Past, bytes, word};
use crate::Result;
use hindsight_syscalls::abi::*;
use hindsight_timeline::regs::RSP;
use hindsight_timeline::{Cursor, ThreadId};
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
        // What the program was told of those that it had not chosen: what it began with.
        let mut asked: BTreeMap<u32, &Past> = BTreeMap::new();
        for (n, p) in past.iter().enumerate() {
            match p.what {
                Did::Call {
                    number: __NR_rt_sigaction,
                    args,
                    ..
                } if args[1] != 0 => {
                    last.insert(args[0] as u32, p);
                    reset.remove(&(args[0] as u32));
                }
                Did::Call {
                    number: __NR_rt_sigaction,
                    args,
                    ..
                } if args[2] != 0 && !last.contains_key(&(args[0] as u32)) => {
                    asked.entry(args[0] as u32).or_insert(p);
                }
                Did::Signal(s) => {
                    reset.insert(s.into(), n);
                }
                _ => {}
            }
        }
        for (signal, p) in asked {
            let Did::Call { args, .. } = p.what else {
                continue;
            };
            let unchosen = !now.contains_key(&signal) && !unknown.contains(&signal);
            if let Some(b) = answer(cursor, p, args[2], 32)?.filter(|_| unchosen) {
                now.insert(signal, action(signal, &b));
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
    // The way back from the instant to where the mask is known: the own past, then that of who made the thread or loaded its
    // program, and so on.
    let mut way: Vec<(usize, Past)> = Vec::new();
    let (mut of, mut generation, mut until) = (thread, history.last(), None);
    let mut mask = None;
    'back: for _ in 0..MAKERS {
        let past = history.generations.get(generation);
        let own = past.iter().flat_map(|g| g.1.iter().rev());
        let before = |p: &&Past| p.thread == of && until.is_none_or(|count| p.count < count);
        for p in own.filter(before) {
            way.push((generation, *p));
            if is_absolute(cursor, p)? {
                break 'back;
            }
        }
        match history.origin(of, generation) {
            Origin::Made(g, p) | Origin::Loaded(g, p) => {
                (of, generation, until) = (p.thread, g, Some(p.count));
            }
            // What it began with is not known, and seldom anything else.
            Origin::First => {
                mask = Some(0);
                break;
            }
            Origin::Unknown => break,
        }
    }
    way.reverse();
    for (i, p) in way.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &way[i].1);
        mask = after(history, cursor, mask, p, before)?;
    }
    Ok(mask.map(|m| m & !UNBLOCKABLE))
}

/// Whether the mask behind it does not depend on what is known of the one before.
fn is_absolute(cursor: &mut Cursor, p: &Past) -> Result<bool> {
    Ok(match p.what {
        Did::Call {
            number: __NR_rt_sigreturn,
            ..
        } => true,
        Did::Call {
            number: __NR_rt_sigprocmask,
            args,
            ..
        } => {
            args[0] as i32 == SIG_SETMASK && args[1] != 0
                || answer(cursor, p, args[2], 8)?.is_some()
        }
        _ => false,
    })
}

/// What a call said that it found before, if it was asked and all of that is known.
fn answer(cursor: &mut Cursor, p: &Past, at: u64, len: usize) -> Result<Option<Vec<u8>>> {
    if at == 0 {
        return Ok(None);
    }
    let found = cursor.around_call((p.thread, p.count), (at, len), true)?;
    let whole: Option<Vec<u8>> = found.into_iter().collect();
    Ok(whole.filter(|b| b.len() == len))
}

/// The mask behind something that happened.
fn after(
    history: &History,
    cursor: &mut Cursor,
    mask: Option<u64>,
    (generation, p): &(usize, Past),
    before: Option<&Past>,
) -> Result<Option<u64>> {
    let set = |b: Option<Vec<u8>>| b.map(|b| word(&b, 0));
    Ok(match p.what {
        Did::Call {
            number: __NR_rt_sigreturn,
            ..
        } => {
            cursor.seek_count(p.thread, p.count)?;
            let sp = cursor.registers()?.gpr[RSP];
            set(bytes(cursor, p, sp.wrapping_add(MASK_IN_FRAME), 8)?)
        }
        Did::Call {
            number: __NR_rt_sigprocmask,
            args,
            ..
        } => {
            let mask = set(answer(cursor, p, args[2], 8)?).or(mask);
            if args[1] == 0 {
                return Ok(mask);
            }
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
            let action = match last_action(history, cursor, (*generation, p), signal)? {
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
        __NR_rt_sigsuspend => args[0],
        __NR_ppoll => args[3],
        __NR_epoll_pwait | __NR_epoll_pwait2 => args[4],
        // The address stands in memory.
        __NR_pselect6 if args[5] != 0 => match bytes(cursor, p, args[5], 8)? {
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
fn last_action(
    history: &History,
    cursor: &mut Cursor,
    (generation, p): (usize, &Past),
    signal: u8,
) -> Result<Chosen> {
    let chosen = history.since_loaded(generation).rev().find(|c| {
        c.position < p.position
            && matches!(c.what, Did::Call { number: __NR_rt_sigaction, args, .. }
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
