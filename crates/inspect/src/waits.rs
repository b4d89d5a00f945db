//! What threads wait for, and for whom.
//!
//! A waiting thread stands before its system call. Memory may tell who holds what it waits for: mutexes and locks of
//! glibc contain their owner. Without that, the holder is not known.

mod question;

use crate::{Inspector, Result};
use hindsight_symbols::CallFrame;
use hindsight_timeline::regs::{RAX, SYSCALL_ARGUMENTS};
use hindsight_timeline::{
    Cursor, Ending, Filter, KindOf, Position, Thread, Timeline, syscall_name,
};
use question::Question;
use std::fmt;

/// The instruction that calls the kernel.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// A mutex.
    Mutex,
    /// A lock for readers and a writer.
    ReadWrite,
}

/// What a thread waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum For {
    /// It does not wait: its next instruction does not call the kernel.
    Nothing,
    /// A lock. The holder is a thread id, if it is known.
    Lock {
        /// Its kind.
        lock: Lock,
        /// The address of the word on which the thread waits.
        address: u64,
        /// The id of the thread that holds it, if that is known.
        holder: Option<i32>,
    },
    /// The end of the thread with this id.
    Thread(i32),
    /// Somebody who signals a condition variable.
    Condition(u64),
    /// Somebody who posts a semaphore.
    Semaphore(u64),
    /// Others who come to a barrier.
    Barrier(u64),
    /// Somebody who wakes the waiters of a word. It is not known to what the word belongs.
    Word(u64),
    /// Descriptors, each with what it is, if that is known. The flag says whether the list is complete.
    Descriptors(Vec<(i32, Option<String>)>, bool),
    /// The end of a child: of the first one, or of any in the list.
    Child(Option<i32>, Vec<i32>),
    /// A signal.
    Signal,
    /// Time that passes.
    Time,
    /// A system call of which nothing else is known.
    Kernel,
}

/// A thread and what it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The thread.
    pub thread: Thread,
    /// Where the thread stands.
    pub position: Position,
    /// The name of the system call that it is in, or is about to make.
    pub call: Option<String>,
    /// What it waits for.
    pub what: For,
    /// Its call stack, innermost frame first.
    pub stack: Vec<CallFrame>,
}

impl Wait {
    /// The id of the thread or process for which it waits, if that is known.
    pub fn whom(&self) -> Option<i32> {
        match &self.what {
            For::Lock { holder, .. } => *holder,
            For::Thread(tid) => Some(*tid),
            For::Child(child, _) => *child,
            _ => None,
        }
    }
}

impl fmt::Display for For {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            For::Nothing => write!(f, "does not wait"),
            For::Lock {
                lock,
                address,
                holder,
            } => {
                let name = match lock {
                    Lock::Mutex => "mutex",
                    Lock::ReadWrite => "read-write lock",
                };
                write!(f, "waits for the {name} at {address:#x}, ")?;
                match holder {
                    Some(tid) => write!(f, "which thread {tid} holds"),
                    None => write!(f, "whose holder is not known"),
                }
            }
            For::Thread(tid) => write!(f, "waits for the end of thread {tid}"),
            For::Condition(a) => write!(
                f,
                "waits for the condition variable at {a:#x}; who is to signal it is not known"
            ),
            For::Semaphore(a) => write!(
                f,
                "waits for the semaphore at {a:#x}; who is to post it is not known"
            ),
            For::Barrier(a) => write!(
                f,
                "waits at the barrier at {a:#x}; who is to come is not known"
            ),
            For::Word(a) => write!(
                f,
                "waits on the word at {a:#x}; what it is part of, and who is to wake it, is not known"
            ),
            For::Descriptors(list, all) => {
                let mut names = list.iter().map(|(fd, what)| match what {
                    Some(what) => format!("{fd} ({what})"),
                    None => fd.to_string(),
                });
                match names.next() {
                    None => write!(f, "waits for descriptors that are not known"),
                    Some(first) => {
                        let many = if list.len() > 1 { "s" } else { "" };
                        write!(f, "waits for descriptor{many} {first}")?;
                        names.try_for_each(|n| write!(f, ", {n}"))?;
                        f.write_str(if *all {
                            ""
                        } else {
                            ", and others that are not known"
                        })
                    }
                }
            }
            For::Child(Some(pid), _) => write!(f, "waits for process {pid}"),
            For::Child(None, live) if live.is_empty() => {
                write!(f, "waits for a child; none that lives is recorded")
            }
            For::Child(None, live) => {
                let live: Vec<String> = live.iter().map(i32::to_string).collect();
                write!(
                    f,
                    "waits for a child; recorded ones that live: {}",
                    live.join(", ")
                )
            }
            For::Signal => write!(f, "waits for a signal"),
            For::Time => write!(f, "waits for time to go by"),
            For::Kernel => write!(f, "is in the kernel; what it waits for is not known"),
        }
    }
}

/// What all threads wait for that live at the cursor. Those of the cursor's process come first. The cursor moves.
pub fn waits(inspector: &mut Inspector, cursor: &mut Cursor) -> Result<Vec<Wait>> {
    let timeline = cursor.timeline().clone();
    let (here, image) = (cursor.position()?, cursor.image());
    let live = living(&timeline, here)?;
    let mut order: Vec<&(Thread, u64)> = live.iter().collect();
    order.sort_by_key(|(t, _)| (t.image != image, t.image, t.id));
    let mut out = Vec::new();
    for (thread, count) in order {
        cursor.seek_count(thread.id, *count)?;
        let position = cursor.position()?;
        let stack = inspector.backtrace(cursor)?;
        let r = cursor.registers()?;
        let calls = cursor.known_memory(r.rip, 2)?.whole().as_deref() == Some(&SYSCALL[..]);
        let question = Question {
            timeline: &timeline,
            live: &live,
            thread,
            here,
            args: SYSCALL_ARGUMENTS.map(|n| r.gpr[n]),
            stack: &stack,
        };
        let call = calls.then(|| syscall_name(r.gpr[RAX]));
        let what = match &call {
            Some(name) => question.answer(cursor, name)?,
            None => For::Nothing,
        };
        out.push(Wait {
            thread: thread.clone(),
            position,
            call,
            what,
            stack,
        });
    }
    Ok(out)
}

/// The threads that live at a position, with the instructions that they have completed.
fn living(timeline: &Timeline, here: Position) -> Result<Vec<(Thread, u64)>> {
    let threads = timeline.threads()?;
    let program = threads.iter().find(|t| t.image == 1).map(|t| t.pid);
    let exits = timeline.events(&Filter {
        kinds: vec![KindOf::Syscall],
        syscalls: hindsight_timeline::syscall_number("exit_group")
            .into_iter()
            .collect(),
        ..Filter::default()
    })?;
    let mut out = Vec::new();
    for t in &threads {
        if !timeline.is_alive(t.id, here)? {
            continue;
        }
        let over = t.last <= here;
        // Its process ended as a whole, or its parent saw that it was killed.
        let ended = exits.iter().any(|e| {
            let by = threads.iter().find(|o| o.id == e.thread);
            e.position <= here && by.is_some_and(|b| b.image == t.image && b.pid == t.pid)
        });
        let seen = matches!(t.ending, Ending::Signal(_)) && Some(t.pid) != program;
        if !(over && (ended || seen)) {
            let count = timeline.returned_at(t.id, here)?.unwrap_or(t.from);
            out.push((t.clone(), count));
        }
    }
    Ok(out)
}
