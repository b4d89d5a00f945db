//! What threads wait for, and whom.
//!
//! A thread that waits stands in front of its system call. Who holds what it waits for is said only where memory that is
//! known says so: mutexes and locks of glibc have their owner in them.

use crate::{Inspector, Result};
use hindsight_symbols::CallFrame;
use hindsight_timeline::{
    Cursor, Ending, Filter, Kind, KindOf, Position, Thread, Timeline, syscall_name,
};
use std::fmt;

/// Where glibc has the owner of a mutex, from the word that is waited on.
const MUTEX_OWNER: u64 = 8;
/// Where it has the writer of a lock for readers and writers, from the two words that are waited on.
const LOCK_WRITER: [u64; 2] = [16, 12];
/// Commands of futexes, and what is no part of them.
const FUTEX_FLAGS: u64 = 128 | 256;
const FUTEX_WAIT: u64 = 0;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAIT_REQUEUE_PI: u64 = 11;
const FUTEX_LOCK_PI2: u64 = 13;
/// The thread in the word of such a futex.
const OWNER_OF_WORD: u32 = 0x3fff_ffff;
/// Bytes behind the base of FS in which glibc has the id of a thread, which who joins it waits on.
const DESCRIPTOR: u64 = 0x1000;
/// `struct pollfd`, and how many of them are looked at.
const POLLFD: u64 = 8;
const MOST: u64 = 64;
/// Longest path that is shown.
const PATH: usize = 256;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    Mutex,
    /// For readers and a writer.
    ReadWrite,
}

/// What a thread waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum For {
    /// It does not wait: its next instruction is none that calls the kernel.
    Nothing,
    /// A lock, held by this thread (its id), if that is known.
    Lock {
        lock: Lock,
        address: u64,
        holder: Option<i32>,
    },
    /// The end of this thread (its id).
    Thread(i32),
    /// Somebody who signals a condition variable.
    Condition(u64),
    /// Somebody who posts a semaphore.
    Semaphore(u64),
    /// Others who come to a barrier.
    Barrier(u64),
    /// Somebody who wakes up who waits on a word: it is not known what that is part of.
    Word(u64),
    /// Descriptors, each with what it is as far as that is known; whether these are all.
    Descriptors(Vec<(i32, Option<String>)>, bool),
    /// The end of a child: of this one, or of any of them.
    Child(Option<i32>, Vec<i32>),
    /// A signal.
    Signal,
    /// Time that goes by.
    Time,
    /// A system call of which no more is known.
    Kernel,
}

/// A thread and what it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    pub thread: Thread,
    /// Where it stands.
    pub position: Position,
    /// The name of the system call that it is in, or is about to do.
    pub call: Option<String>,
    pub what: For,
    pub stack: Vec<CallFrame>,
}

impl Wait {
    /// The id of the thread or process that it waits for, if that is known.
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

/// What all threads wait for that live where the cursor is, its process's first. The cursor goes elsewhere.
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
        let calls = cursor.peek(r.rip, 2)?.whole().as_deref() == Some(&SYSCALL[..]);
        let question = Question {
            timeline: &timeline,
            live: &live,
            thread,
            here,
            args: [7, 6, 2, 10, 8, 9].map(|n| r.gpr[n]),
            stack: &stack,
        };
        let call = calls.then(|| syscall_name(r.gpr[0]));
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
        // Its process ended as a whole, or a parent saw that it was killed.
        let ended = exits.iter().any(|e| {
            let by = threads.iter().find(|o| o.id == e.thread);
            e.position <= here && by.is_some_and(|b| b.image == t.image && b.pid == t.pid)
        });
        let seen = matches!(t.ending, Ending::Signal(_)) && Some(t.pid) != program;
        if !(over && (ended || seen)) {
            let count = timeline.count_at(t.id, here)?.unwrap_or(t.from);
            out.push((t.clone(), count));
        }
    }
    Ok(out)
}

/// What one thread waits for.
struct Question<'q> {
    timeline: &'q Timeline,
    live: &'q [(Thread, u64)],
    thread: &'q Thread,
    /// What is asked about: others may have changed memory since the thread began to wait.
    here: Position,
    args: [u64; 6],
    stack: &'q [CallFrame],
}

impl Question<'_> {
    fn answer(&self, cursor: &mut Cursor, call: &str) -> Result<For> {
        let fd = self.args[0] as i32;
        Ok(match call {
            "futex" => self.futex(cursor)?,
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "write" | "pwrite64"
            | "writev" | "pwritev" | "pwritev2" | "recvfrom" | "recvmsg" | "recvmmsg"
            | "sendto" | "sendmsg" | "sendmmsg" | "accept" | "accept4" | "connect" | "flock"
            | "fcntl" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "splice" | "sendfile"
            | "ioctl" | "fsync" => {
                let what = self.opened(cursor, fd)?;
                For::Descriptors(vec![(fd, what)], true)
            }
            "poll" | "ppoll" if self.args[1] == 0 => For::Time,
            "poll" | "ppoll" => self.polled(cursor)?,
            "select" | "pselect6" => self.selected(cursor)?,
            "wait4" => match fd {
                1.. => For::Child(Some(fd), Vec::new()),
                _ => For::Child(None, self.children()?),
            },
            // P_PID; all others are several.
            "waitid" => match (self.args[0], self.args[1] as i32) {
                (1, pid) => For::Child(Some(pid), Vec::new()),
                _ => For::Child(None, self.children()?),
            },
            "pause" | "rt_sigsuspend" | "rt_sigtimedwait" => For::Signal,
            "nanosleep" | "clock_nanosleep" => For::Time,
            _ => For::Kernel,
        })
    }

    /// Goes where memory of the thread's process is what it was `here`: to the thread of it that came last.
    fn settle(&self, cursor: &mut Cursor) -> Result<()> {
        let mut last = None;
        for (t, count) in self
            .live
            .iter()
            .filter(|(t, _)| t.image == self.thread.image)
        {
            let position = self.timeline.position(t.id, *count)?;
            if last.is_none_or(|(p, _, _)| p < position) {
                last = Some((position, t.id, *count));
            }
        }
        if let Some((_, thread, count)) = last {
            cursor.seek_count(thread, count)?;
        }
        Ok(())
    }

    fn bytes(&self, cursor: &mut Cursor, address: u64, len: usize) -> Result<Option<Vec<u8>>> {
        Ok(cursor.memory(address, len)?.whole())
    }

    fn number(&self, cursor: &mut Cursor, address: u64) -> Result<Option<u32>> {
        let bytes = self.bytes(cursor, address, 4)?;
        Ok(bytes.and_then(|b| Some(u32::from_le_bytes(b.try_into().ok()?))))
    }

    /// The thread that a word of memory names, if there is such a thread.
    fn named(&self, cursor: &mut Cursor, address: u64, mask: u32) -> Result<Option<i32>> {
        let tid = self.number(cursor, address)?.map(|n| (n & mask) as i32);
        Ok(tid.filter(|tid| *tid != 0 && self.live.iter().any(|(t, _)| t.tid == *tid)))
    }

    /// Whether a function with this in its name has called.
    fn is_in(&self, name: &str) -> bool {
        let mut frames = self.stack.iter().take(8).flat_map(|f| {
            let place = f.place.as_ref().and_then(|p| p.function.as_ref());
            let inner = f.frames.iter().filter_map(|f| f.function.as_deref());
            inner.chain(place.map(|f| f.0.as_str()))
        });
        frames.any(|f| f.contains(name))
    }

    fn futex(&self, cursor: &mut Cursor) -> Result<For> {
        let [address, op, value, ..] = self.args;
        let op = op & !FUTEX_FLAGS;
        self.settle(cursor)?;
        if matches!(op, FUTEX_LOCK_PI | FUTEX_LOCK_PI2) {
            let holder = self.named(cursor, address, OWNER_OF_WORD)?;
            let lock = Lock::Mutex;
            return Ok(For::Lock {
                lock,
                address,
                holder,
            });
        }
        if !matches!(op, FUTEX_WAIT | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI) {
            return Ok(For::Kernel);
        }
        if let Some(tid) = self.joined(cursor, address, value as i32)? {
            return Ok(For::Thread(tid));
        }
        // While it waits for a condition a thread takes a mutex only at the end.
        if self.is_in("lll_lock_wait") || self.is_in("pthread_mutex_") {
            return Ok(For::Lock {
                lock: Lock::Mutex,
                address,
                holder: self.named(cursor, address.wrapping_add(MUTEX_OWNER), !0)?,
            });
        }
        if self.is_in("pthread_rwlock_") {
            let mut holder = None;
            for at in LOCK_WRITER {
                if holder.is_none() {
                    holder = self.named(cursor, address.wrapping_add(at), !0)?;
                }
            }
            return Ok(For::Lock {
                lock: Lock::ReadWrite,
                address,
                holder,
            });
        }
        Ok(if self.is_in("pthread_cond_") || self.is_in("cnd_wait") {
            For::Condition(address)
        } else if self.is_in("sem_wait") || self.is_in("new_sem_") || self.is_in("sem_timedwait") {
            For::Semaphore(address)
        } else if self.is_in("pthread_barrier_wait") {
            For::Barrier(address)
        } else {
            For::Word(address)
        })
    }

    /// The thread whose end is waited for by a wait on this word: the kernel clears it then.
    fn joined(&self, cursor: &mut Cursor, address: u64, value: i32) -> Result<Option<i32>> {
        for (t, _) in self.live {
            if t.tid != value || t.image != self.thread.image || t.id == self.thread.id {
                continue;
            }
            let Some((r, _)) = cursor.registers_of(t.id)? else {
                continue;
            };
            if (r.fs_base..r.fs_base.saturating_add(DESCRIPTOR)).contains(&address) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The recorded children of the thread's process that live.
    fn children(&self) -> Result<Vec<i32>> {
        let images = self.timeline.processes()?;
        let own = |image: u32| images.iter().find(|p| p.image == image);
        // The image of the process in which the child was made, whatever that has executed since.
        let parent = |pid: i32| {
            let first = images.iter().find(|p| p.pid == pid && !p.by_exec)?;
            own(first.parent).map(|p| p.pid)
        };
        let mut out: Vec<i32> = self.live.iter().map(|(t, _)| t.pid).collect();
        out.retain(|pid| *pid != self.thread.pid && parent(*pid) == Some(self.thread.pid));
        out.sort_unstable();
        out.dedup();
        Ok(out)
    }

    fn polled(&self, cursor: &mut Cursor) -> Result<For> {
        self.settle(cursor)?;
        let n = self.args[1].min(MOST);
        let mut list = Vec::new();
        for i in 0..n {
            let at = self.args[0].wrapping_add(i * POLLFD);
            if let Some(fd) = self.number(cursor, at)?.map(|fd| fd as i32) {
                list.push(fd);
            }
        }
        let all = list.len() as u64 == self.args[1];
        self.described(cursor, list, all)
    }

    fn selected(&self, cursor: &mut Cursor) -> Result<For> {
        self.settle(cursor)?;
        let highest = self.args[0].min(1024);
        let (mut list, mut all) = (Vec::new(), true);
        for set in self.args[1..4].iter().filter(|a| **a != 0) {
            match self.bytes(cursor, *set, highest.div_ceil(8) as usize)? {
                Some(bits) => list.extend(
                    (0..highest as i32).filter(|fd| bits[*fd as usize / 8] >> (fd % 8) & 1 != 0),
                ),
                None => all = false,
            }
        }
        list.sort_unstable();
        list.dedup();
        if list.is_empty() && all {
            return Ok(For::Time);
        }
        self.described(cursor, list, all)
    }

    fn described(&self, cursor: &mut Cursor, list: Vec<i32>, all: bool) -> Result<For> {
        let mut out = Vec::new();
        for fd in list.into_iter().filter(|fd| *fd >= 0) {
            out.push((fd, self.opened(cursor, fd)?));
        }
        Ok(For::Descriptors(out, all))
    }

    /// What a descriptor is, if the thread's process opened it itself: a file by its path, others by the call that made them.
    fn opened(&self, cursor: &mut Cursor, fd: i32) -> Result<Option<String>> {
        let all = self.timeline.events(&Filter {
            image: Some(self.thread.image),
            until: Some(self.here),
            kinds: vec![KindOf::Syscall],
            ..Filter::default()
        })?;
        for h in all.iter().rev() {
            let Kind::Syscall {
                number,
                args,
                result: Some(result),
            } = h.kind
            else {
                continue;
            };
            let name = syscall_name(number);
            let path = match name.as_str() {
                "pipe" | "pipe2" | "socketpair" if result == 0 => {
                    let ends = if name == "socketpair" {
                        args[3]
                    } else {
                        args[0]
                    };
                    cursor.seek_count(h.thread, h.count + 1)?;
                    let pair = self.bytes(cursor, ends, 8)?.unwrap_or_default();
                    let end = pair.chunks_exact(4).position(|e| e == fd.to_le_bytes());
                    match (name.as_str(), end) {
                        (_, None) => continue,
                        ("socketpair", _) => return Ok(Some("of a socketpair".into())),
                        (_, Some(0)) => return Ok(Some("the reading end of a pipe".into())),
                        _ => return Ok(Some("the writing end of a pipe".into())),
                    }
                }
                "close" if args[0] as i32 == fd => return Ok(None),
                _ if result as i64 != i64::from(fd) => continue,
                "open" | "creat" => args[0],
                "openat" | "openat2" => args[1],
                "socket" | "accept" | "accept4" | "eventfd" | "eventfd2" | "timerfd_create"
                | "signalfd" | "signalfd4" | "epoll_create" | "epoll_create1" | "inotify_init"
                | "inotify_init1" | "pidfd_open" | "memfd_create" | "dup" | "dup2" | "dup3" => {
                    return Ok(Some(format!("made by {name} at {}", h.position)));
                }
                _ => continue,
            };
            cursor.seek_count(h.thread, h.count)?;
            let known = cursor.memory(path, PATH)?.prefix();
            let end = known.iter().position(|b| *b == 0);
            return Ok(end.map(|n| String::from_utf8_lossy(&known[..n]).into_owned()));
        }
        Ok(None)
    }
}
