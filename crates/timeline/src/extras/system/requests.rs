//! Calls whose arguments depend on the request.

use super::names::names;
use super::text::{address, bits, known, one, signal};
use super::{Call, shapes};
use crate::Result;
use hindsight_syscalls::abi;
use hindsight_syscalls::{Set, Shape};

/// The operation on a futex, with its flags.
pub fn futex(op: u64) -> String {
    const PRIVATE: u64 = 128;
    const REALTIME: u64 = 256;
    let op = op as u32 as u64;
    let mut out = one(op & !(PRIVATE | REALTIME), names(Set::FutexOp));
    if op & PRIVATE != 0 {
        out += "_PRIVATE";
    }
    if op & REALTIME != 0 {
        out += "|FUTEX_CLOCK_REALTIME";
    }
    out
}

/// How `statx` looks at a file: as `stat` does, unless the flags say otherwise.
pub fn statx(v: u64) -> String {
    let flags = v as u32 as u64;
    let sync = (abi::AT_STATX_FORCE_SYNC | abi::AT_STATX_DONT_SYNC) as u64;
    let named = bits(flags, names(Set::StatxFlags));
    match (flags & sync, flags) {
        (0, 0) => "AT_STATX_SYNC_AS_STAT".into(),
        (0, _) => format!("AT_STATX_SYNC_AS_STAT|{named}"),
        _ => named,
    }
}

/// The type of a socket: a number and flags.
pub fn socket_type(v: u64) -> String {
    let kind = one(v & 0xf, &names(Set::SocketType)[..4]);
    match bits(v as u32 as u64 & !0xf, &names(Set::SocketType)[4..]).as_str() {
        "0" => kind,
        rest => format!("{kind}|{rest}"),
    }
}

/// A protocol. It has a name only in the families of the internet.
pub fn protocol(family: u64, v: u64) -> String {
    match family as i32 {
        abi::AF_INET | abi::AF_INET6 => one(v as u32 as u64, names(Set::Protocol)),
        abi::AF_NETLINK if v == 0 => "NETLINK_ROUTE".into(),
        _ => (v as i32).to_string(),
    }
}

/// An option of a socket, at a level.
pub fn option_name(level: u64, v: u64) -> String {
    const TCP: [(u64, &str); 12] = [
        (1, "TCP_NODELAY"),
        (2, "TCP_MAXSEG"),
        (3, "TCP_CORK"),
        (4, "TCP_KEEPIDLE"),
        (5, "TCP_KEEPINTVL"),
        (6, "TCP_KEEPCNT"),
        (9, "TCP_DEFER_ACCEPT"),
        (11, "TCP_INFO"),
        (12, "TCP_QUICKACK"),
        (13, "TCP_CONGESTION"),
        (18, "TCP_USER_TIMEOUT"),
        (23, "TCP_FASTOPEN"),
    ];
    const IPV6: [(u64, &str); 1] = [(26, "IPV6_V6ONLY")];
    const IP: [(u64, &str); 2] = [(1, "IP_TOS"), (11, "IP_RECVERR")];
    let v = v as u32 as u64;
    match level {
        1 => one(v, names(Set::OptionName)),
        6 => one(v, &TCP),
        0 => one(v, &IP),
        41 => one(v, &IPV6),
        _ => v.to_string(),
    }
}

impl Call<'_> {
    /// An argument whose meaning depends on the request. `None`: the request has no such argument.
    pub(super) fn requested(&mut self, i: usize) -> Result<Option<String>> {
        let v = self.args[i];
        match self.name.as_str() {
            "ioctl" => self.ioctl(v),
            "fcntl" => self.fcntl(v),
            "msgctl" => self.msgctl(v).map(Some),
            "arch_prctl" => Ok(Some(match self.args[0] {
                0x1003 | 0x1004 if !self.failed() => self.shape(v, Shape::Hex, true)?,
                _ => format!("{v:#x}"),
            })),
            "prctl" => self.prctl(i, v),
            "futex" => self.futex(i, v),
            // The new address, if one is given.
            "mremap" if self.args[3] & abi::MREMAP_FIXED as u64 == 0 => Ok(None),
            _ => Ok(Some(address(v))),
        }
    }

    fn ioctl(&mut self, v: u64) -> Result<Option<String>> {
        let request = self.args[1] as u32;
        let done = !self.failed();
        Ok(Some(match request {
            abi::FIONBIO | abi::TIOCSPGRP => self.shape(v, Shape::Int, false)?,
            abi::FIONREAD | abi::TIOCGPGRP if done => self.shape(v, Shape::Int, true)?,
            abi::TIOCGWINSZ if done => self.shape(v, Shape::Winsize, true)?,
            abi::TIOCSWINSZ => self.shape(v, Shape::Winsize, false)?,
            abi::FIOCLEX | abi::FIONCLEX => return Ok(None),
            _ => format!("{v:#x}"),
        }))
    }

    fn fcntl(&mut self, v: u64) -> Result<Option<String>> {
        Ok(match self.args[1] as u32 {
            abi::F_GETFD | abi::F_GETFL | abi::F_GETOWN | abi::F_GETPIPE_SZ | abi::F_GET_SEALS => {
                None
            }
            abi::F_SETFD => Some(bits(v, &[(1, "FD_CLOEXEC")])),
            abi::F_SETFL => Some(shapes::open_flags(v as u32 as u64)),
            abi::F_DUPFD | abi::F_DUPFD_CLOEXEC | abi::F_SETPIPE_SZ | abi::F_SETOWN => {
                Some((v as i32).to_string())
            }
            abi::F_SETLK | abi::F_SETLKW | abi::F_OFD_SETLK | abi::F_OFD_SETLKW => {
                Some(self.lock(v, false)?)
            }
            abi::F_GETLK | abi::F_OFD_GETLK if !self.failed() => Some(self.lock(v, true)?),
            _ => Some(format!("{v:#x}")),
        })
    }

    /// A lock on a part of a file.
    fn lock(&mut self, at: u64, behind: bool) -> Result<String> {
        const KINDS: [(u64, &str); 3] = [(0, "F_RDLCK"), (1, "F_WRLCK"), (2, "F_UNLCK")];
        let b = self.seen.read(at, 32, behind)?;
        let field = |at: usize, len: usize| -> Option<u64> {
            b[at..at + len]
                .iter()
                .rev()
                .try_fold(0, |n, b| b.map(|b| n << 8 | b as u64))
        };
        let Some(kind) = field(0, 2) else {
            return Ok(address(at));
        };
        let signed = |v: Option<u64>| known(v, |v| (v as i64).to_string());
        let pid = match behind {
            true => format!(
                ", l_pid={}",
                known(field(24, 4), |p| (p as i32).to_string())
            ),
            false => String::new(),
        };
        Ok(format!(
            "{{l_type={}, l_whence={}, l_start={}, l_len={}{pid}}}",
            one(kind, &KINDS),
            known(field(2, 2), |w| one(w, names(Set::Whence))),
            signed(field(8, 8)),
            signed(field(16, 8))
        ))
    }

    fn prctl(&mut self, i: usize, v: u64) -> Result<Option<String>> {
        // The number of arguments that follow, and the first of them in words.
        let (more, shown) = match self.args[0] as u32 {
            abi::PR_SET_NAME => (1, None),
            abi::PR_SET_PDEATHSIG => (1, Some(signal(v))),
            abi::PR_GET_NAME if !self.failed() => (1, None),
            abi::PR_GET_DUMPABLE | abi::PR_GET_SECCOMP | abi::PR_GET_TIMERSLACK => (0, None),
            abi::PR_SET_DUMPABLE => (
                1,
                Some(one(v, &[(0, "SUID_DUMP_DISABLE"), (1, "SUID_DUMP_USER")])),
            ),
            abi::PR_SET_TIMERSLACK | abi::PR_SET_CHILD_SUBREAPER => (1, Some(v.to_string())),
            abi::PR_SET_NO_NEW_PRIVS | abi::PR_GET_NO_NEW_PRIVS => {
                (4, Some(if v == 0 { "0".into() } else { v.to_string() }))
            }
            _ => (4, Some(format!("{v:#x}"))),
        };
        if i > more {
            return Ok(None);
        }
        match shown {
            Some(text) => Ok(Some(text)),
            None => {
                let behind = self.args[0] as u32 == abi::PR_GET_NAME;
                let b = self.seen.read(v, 16, behind)?;
                let end = b.iter().position(|b| *b == Some(0)).unwrap_or(b.len());
                let known = super::some(&b[..end]);
                Ok(Some(known.map_or(address(v), |b| super::quoted(b, false))))
            }
        }
    }

    fn futex(&mut self, i: usize, v: u64) -> Result<Option<String>> {
        let number = |v: u64| (v as u32).to_string();
        let mask = |v: u64| one(v as u32 as u64, &[(0xffff_ffff, "FUTEX_BITSET_MATCH_ANY")]);
        Ok(match (self.args[1] as i32 & 0x7f, i) {
            (abi::FUTEX_WAIT | abi::FUTEX_LOCK_PI | 13, 3) => {
                Some(self.shape(v, Shape::Timespec, false)?)
            }
            (abi::FUTEX_WAIT_BITSET, 3) => Some(self.shape(v, Shape::Timespec, false)?),
            (abi::FUTEX_WAIT_BITSET, 4) => Some(mask(self.args[5])),
            (abi::FUTEX_WAKE_BITSET, 3) => Some(mask(self.args[5])),
            (abi::FUTEX_REQUEUE | abi::FUTEX_CMP_REQUEUE | abi::FUTEX_WAKE_OP, 3) => {
                Some(number(v))
            }
            (abi::FUTEX_REQUEUE | abi::FUTEX_CMP_REQUEUE | abi::FUTEX_WAKE_OP, 4) => {
                Some(address(v))
            }
            (abi::FUTEX_CMP_REQUEUE, 5) => Some(number(v)),
            (abi::FUTEX_WAKE_OP, 5) => Some(format!("{:#x}", v as u32)),
            _ => None,
        })
    }

    /// The arguments of `clone` with their names. The flags say which of them it has.
    pub(super) fn clone_arguments(&mut self) -> Result<Vec<String>> {
        let [flags, stack, parent, child, tls, _] = self.args;
        let has = |bit: i32| flags & bit as u32 as u64 != 0;
        let (signal_bits, rest) = (flags & 0xff, flags & !0xff);
        let mut all: Vec<String> = Vec::new();
        if rest != 0 {
            all.push(bits(rest as u32 as u64, names(Set::CloneFlags)));
        }
        if signal_bits != 0 || rest == 0 {
            all.push(signal(signal_bits));
        }
        let mut out = vec![
            format!("child_stack={}", address(stack)),
            format!("flags={}", all.join("|")),
        ];
        if has(abi::CLONE_PARENT_SETTID) {
            let told = match self.failed() {
                true => None,
                false => self.word(parent, true)?,
            };
            out.push(format!(
                "parent_tid={}",
                told.map_or(address(parent), |t| format!("[{t}]"))
            ));
        }
        if has(abi::CLONE_SETTLS) {
            out.push(format!("tls={}", address(tls)));
        }
        if has(abi::CLONE_CHILD_SETTID) || has(abi::CLONE_CHILD_CLEARTID) {
            out.push(format!("child_tidptr={}", address(child)));
        }
        Ok(out)
    }

    /// The arguments of `clone3`, with the thread's id if that was written.
    pub(super) fn made(&mut self, before: String) -> Result<String> {
        let at = self.args[0];
        let (flags, parent) = (self.pointer(at)?, self.pointer(at.wrapping_add(24))?);
        let (Some(flags), Some(parent)) = (flags, parent) else {
            return Ok(before);
        };
        if flags & abi::CLONE_PARENT_SETTID as u64 == 0 {
            return Ok(before);
        }
        Ok(match self.word(parent, true)? {
            Some(tid) => format!("{before} => {{parent_tid=[{tid}]}}"),
            None => before,
        })
    }

    /// The text that follows a result.
    pub(super) fn result_in_words(&mut self, r: u64) -> Result<String> {
        Ok(match self.name.as_str() {
            "poll" | "ppoll" | "select" | "pselect6" if r == 0 => " (Timeout)".into(),
            "poll" | "ppoll" => match self.polled(self.args[0], self.args[1], true)? {
                Some(list) => format!(" ([{}])", list.join(", ")),
                None => String::new(),
            },
            "select" | "pselect6" => {
                let mut parts = Vec::new();
                for (i, name) in ["in", "out", "except"].into_iter().enumerate() {
                    let set = self.descriptors(self.args[1 + i], true)?;
                    // Empty sets are left out.
                    if set.starts_with('[') && set != "[]" {
                        parts.push(format!("{name} {set}"));
                    }
                }
                if self.args[4] != 0 {
                    let shape = match self.name == "select" {
                        true => Shape::Timeval,
                        false => Shape::Timespec,
                    };
                    parts.push(format!("left {}", self.shape(self.args[4], shape, true)?));
                }
                match parts.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", parts.join(", ")),
                }
            }
            "sched_getscheduler" => format!(" ({})", one(r, names(Set::Scheduler))),
            "fcntl" => match self.args[1] as u32 {
                abi::F_GETFL => format!(" (flags {})", shapes::open_flags(r)),
                abi::F_GETFD if r & 1 != 0 => " (flags FD_CLOEXEC)".into(),
                _ => String::new(),
            },
            _ => String::new(),
        })
    }
}
