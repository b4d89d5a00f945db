//! Finds what one thread waits for, from its system call and from memory.

use super::{For, Lock};
use crate::Result;
use hindsight_symbols::CallFrame;
use hindsight_timeline::{
    Cursor, Filter, Kind, KindOf, Position, Registers, Thread, Timeline, syscall_name,
};

/// The offset of a mutex's owner in glibc, from the word on which threads wait.
const MUTEX_OWNER: u64 = 8;
/// The offset of the writer of a lock for readers and writers, from each of the two words on which threads wait.
const LOCK_WRITER: [u64; 2] = [16, 12];
/// Commands of futexes, after these flags are removed.
const FUTEX_FLAGS: u64 = 128 | 256;
const FUTEX_WAIT: u64 = 0;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_WAIT_REQUEUE_PI: u64 = 11;
const FUTEX_LOCK_PI2: u64 = 13;
/// The thread id in the word of a futex with owner.
const OWNER_OF_WORD: u32 = 0x3fff_ffff;
/// glibc stores a thread's id within this many bytes from the base of FS. A thread that joins it waits on that word.
const DESCRIPTOR: u64 = 0x1000;
/// Size of `struct pollfd`, and how many of them are looked at.
const POLLFD: u64 = 8;
const MOST: u64 = 64;
/// The longest path that is shown, in bytes.
const PATH: usize = 256;

/// What one thread waits for.
pub struct Question<'q> {
    pub timeline: &'q Timeline,
    pub live: &'q [(Thread, u64)],
    pub thread: &'q Thread,
    /// The position of the question. Others may have changed memory since the thread began to wait.
    pub here: Position,
    pub args: [u64; 6],
    pub stack: &'q [CallFrame],
}

impl Question<'_> {
    /// What the thread waits for in a system call with this name.
    pub fn answer(&self, cursor: &mut Cursor, call: &str) -> Result<For> {
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
            // `P_PID`. All other kinds mean several children.
            "waitid" => match (self.args[0], self.args[1] as i32) {
                (1, pid) => For::Child(Some(pid), Vec::new()),
                _ => For::Child(None, self.children()?),
            },
            "pause" | "rt_sigsuspend" | "rt_sigtimedwait" => For::Signal,
            "nanosleep" | "clock_nanosleep" => For::Time,
            _ => For::Kernel,
        })
    }

    /// Goes to where the memory of the thread's process is as it was at `here`: to the thread of it that did something
    /// last.
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

    /// The thread that a word of memory names, if there is one with that id.
    fn named(&self, cursor: &mut Cursor, address: u64, mask: u32) -> Result<Option<i32>> {
        let tid = self.number(cursor, address)?.map(|n| (n & mask) as i32);
        Ok(tid.filter(|tid| *tid != 0 && self.live.iter().any(|(t, _)| t.tid == *tid)))
    }

    /// Whether a function with this in its name is on the stack.
    fn is_in(&self, name: &str) -> bool {
        let mut frames = self.stack.iter().take(8).flat_map(|f| {
            let place = f.location.as_ref().and_then(|p| p.function.as_ref());
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
        // A thread that waits for a condition takes a mutex only at the end of the wait.
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

    /// The thread whose end a wait on this word awaits: the kernel clears the word at the end.
    fn joined(&self, cursor: &mut Cursor, address: u64, value: i32) -> Result<Option<i32>> {
        for (t, _) in self.live {
            if t.tid != value || t.image != self.thread.image || t.id == self.thread.id {
                continue;
            }
            let Some(Registers { general: r, .. }) = cursor.registers_of(t.id)? else {
                continue;
            };
            if (r.fs_base..r.fs_base.saturating_add(DESCRIPTOR)).contains(&address) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The recorded, living children of the thread's process.
    fn children(&self) -> Result<Vec<i32>> {
        let images = self.timeline.processes()?;
        let own = |image: u32| images.iter().find(|p| p.image == image);
        // The program image of the process that created the child, whatever that process has executed since.
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

    /// What a descriptor is, if the thread's process opened it itself. A file is shown by its path, others by the call
    /// that made them.
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
