//! Files under their names, and what calls say of what is open.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use super::calls::ERRORS;
use super::contents::Known;
use super::files::Files;
use super::open::Stat;
use super::past::word;
use hindsight_syscalls::abi::*;
use hindsight_timeline::{Cursor, Named, Result, Told, What};
use std::collections::{BTreeSet, HashSet};

/// Flags that `fcntl` may change, and that are given again.
const CHANGEABLE: i32 = O_APPEND | O_NONBLOCK | O_DIRECT;
/// Flags that `fcntl` may change, and that are not.
const NOT_AGAIN: i32 = O_ASYNC | O_NOATIME;
/// Commands of `fcntl` that leave nothing behind but what is followed here or in the timeline.
const COMMANDS: [u32; 12] = [
    F_DUPFD,
    F_DUPFD_CLOEXEC,
    F_GETFD,
    F_SETFD,
    F_GETFL,
    F_GETLK,
    F_OFD_GETLK,
    F_GETOWN,
    F_GETLEASE,
    F_GETPIPE_SZ,
    F_GET_SEALS,
    F_GETSIG,
];
/// How `flock` fails once it has given up an old lock: others have the new one, or a signal came (`ERESTARTSYS` as the kernel
/// has it inside, too).
const LOST: [i32; 3] = [EWOULDBLOCK, EINTR, 512];
const LOCKS: [u32; 4] = [F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW];
/// Requests of `ioctl` that only ask, or that the timeline follows.
const REQUESTS: [u32; 9] = [
    TCGETS, TCGETS2, TIOCGWINSZ, TIOCGPGRP, TIOCGSID, FIONREAD, FIOCLEX, FIONCLEX, FIONBIO,
];
/// Files that are no regular ones, whatever else is in `/dev`.
const DEVICES: [&[u8]; 8] = [
    b"/dev/null",
    b"/dev/zero",
    b"/dev/full",
    b"/dev/random",
    b"/dev/urandom",
    b"/dev/tty",
    b"/dev/console",
    b"/dev/ptmx",
];
/// More comparisons of files with each other are not made.
const MOST_PAIRS: usize = 1 << 22;

/// A file, whatever names it has.
#[derive(Default)]
pub(super) struct Inode {
    pub known: Known,
    /// `None`: it has none.
    pub path: Option<Vec<u8>>,
    /// What it is without a name, in words.
    pub what: String,
    /// Why its content may be another.
    pub unsure: Option<String>,
    /// An opening that is recorded has made it, so it is no file that existed before.
    pub is_made: bool,
    /// It was mapped so that memory may change it.
    pub is_mapped: bool,
    /// Where the last read ended.
    pub read_to: u64,
}

impl Inode {
    pub fn doubt(&mut self, why: &str) {
        if self.unsure.is_none() {
            self.unsure = Some(why.into());
        }
    }
}

/// One or several openings through which something was written.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Writer {
    inode: Option<usize>,
    identity: Option<(u64, u64)>,
    /// It has made the file.
    makes: bool,
}

impl Files<'_> {
    /// What is found under paths changed.
    pub(super) fn named(&mut self, n: &Named) {
        let number = n.number;
        if number != __NR_truncate {
            self.renamed.note(n);
        }
        if number == __NR_rmdir || number == __NR_unlinkat && n.args[2] as i32 & AT_REMOVEDIR != 0 {
            return;
        }
        let links = [__NR_link, __NR_linkat].contains(&number);
        let swaps = number == __NR_renameat2 && n.args[4] & !1 != 0;
        let Some(path) = n.path.as_ref().filter(|_| !links && !swaps) else {
            let why = "a file got a second name, or one that is not known";
            self.blind.get_or_insert(why.into());
            return;
        };
        if number == __NR_truncate {
            match self.names.get(path) {
                Some(i) => self.resized(*i, n.args[1]),
                None => drop(
                    self.blind
                        .get_or_insert("a file was truncated by its path".into()),
                ),
            }
            return;
        }
        if !n.gives_name {
            self.gone(path);
            return;
        }
        let below = |p: &Vec<u8>| p.starts_with(path) && p.get(path.len()) == Some(&b'/');
        let folder = self.paths.iter().any(below);
        let Some(to) = n.to.as_ref().filter(|_| !folder) else {
            let why = "a folder was renamed, or a file got a name that is not known";
            self.blind.get_or_insert(why.into());
            return;
        };
        self.gone(to);
        if let Some(i) = self.gone(path) {
            self.names.insert(to.clone(), i);
            self.inodes[i].path = Some(to.clone());
        }
    }

    /// There is no such name any more.
    fn gone(&mut self, path: &[u8]) -> Option<usize> {
        let i = self.names.remove(path)?;
        self.inodes[i].path = None;
        self.inodes[i].what = format!("{}, which was deleted", hindsight_text::bytes(path));
        Some(i)
    }

    fn resized(&mut self, i: usize, len: u64) {
        let known = &mut self.inodes[i].known;
        let old = known.size;
        known.cut(len);
        // What is new in it is zero.
        if let Some(old) = old.filter(|o| *o < len && len - o <= 1 << 24) {
            known.put(old, &vec![Some(0); (len - old) as usize]);
        }
    }

    /// A file may have been written to through another of its names. Whoever cannot be told from another file by what the
    /// kernel said of both is in doubt.
    pub(super) fn doubt(&mut self) {
        let identity = |s: &Stat| (s.device, s.inode);
        let writers: HashSet<Writer> = self
            .wrote
            .iter()
            .map(|(number, makes)| Writer {
                inode: self.opened.get(number).copied(),
                identity: self.stats.get(number).map(identity),
                makes: *makes,
            })
            .collect();
        // The openings of one path are those of one file only if the kernel said so.
        let mut identities = vec![None; self.inodes.len()];
        let mut openings = vec![BTreeSet::new(); self.inodes.len()];
        let mut count = vec![0u32; self.inodes.len()];
        for (number, i) in &self.opened {
            let told = self.stats.get(number).map(identity);
            openings[*i].insert(told);
            count[*i] += 1;
            identities[*i] = told;
        }
        for (i, inode) in self.inodes.iter_mut().enumerate() {
            if count[i] > 1 && (openings[i].len() > 1 || openings[i].contains(&None)) {
                identities[i] = None;
                inode.doubt(
                    "its path was opened several times, and may have led to different files",
                );
            }
        }
        if self.inodes.len().saturating_mul(writers.len()) > MOST_PAIRS {
            self.blind
                .get_or_insert("too many files were written to".into());
        }
        let blind = self.blind.clone();
        for (i, inode) in self.inodes.iter_mut().enumerate() {
            if let Some(why) = &blind {
                inode.doubt(why);
                continue;
            }
            let other = writers.iter().filter(|w| w.inode != Some(i)).any(|w| {
                let told = matches!((w.identity, identities[i]), (Some(a), Some(b)) if a != b);
                // Two files that were made are two.
                let apart = told || w.makes && inode.is_made;
                !apart
            });
            if other {
                inode.doubt(
                    "other files were written to, of which one may be this one under another name",
                );
            }
        }
    }

    /// A call about a descriptor has succeeded, or has failed to take a lock.
    pub(super) fn told(&mut self, cursor: &mut Cursor, t: &Told) -> Result<()> {
        let file = t.file.number;
        let inode = self.opened.get(&file).copied();
        let mut memory = |at: u64, len: usize, behind: bool| {
            cursor
                .around_call((t.thread, t.count), (at, len), behind)
                .map(|b| {
                    let whole: Option<Vec<u8>> = b.into_iter().collect();
                    whole.filter(|b| b.len() == len)
                })
        };
        match (t.number, inode) {
            (__NR_fstat, _) => {
                let stat = memory(t.args[1], 144, true)?;
                self.stat(t, stat.and_then(|b| Stat::of_stat(&b)));
            }
            (__NR_newfstatat, _) if is_of_descriptor(t, &mut memory, t.args[3])? => {
                let stat = memory(t.args[2], 144, true)?;
                self.stat(t, stat.and_then(|b| Stat::of_stat(&b)));
            }
            (__NR_statx, _) if is_of_descriptor(t, &mut memory, t.args[2])? => {
                // Device and inode are told in any case.
                let stat = memory(t.args[4], 256, true)?;
                let basic =
                    |b: &Vec<u8>| word(b, 0) as u32 & STATX_BASIC_STATS == STATX_BASIC_STATS;
                self.stat(t, stat.filter(basic).and_then(|b| Stat::of_statx(&b)));
            }
            (__NR_ftruncate, _) => {
                self.wrote.entry(file).or_insert(false);
                if let Some(i) = inode {
                    self.resized(i, t.args[1]);
                }
            }
            (__NR_fallocate, _) => {
                self.wrote.entry(file).or_insert(false);
                self.doubt_inode(file, "`fallocate` changed it");
            }
            (__NR_lseek, Some(i)) if (t.args[1], t.args[2] as i32) == (0, SEEK_END) => {
                self.inodes[i].known.size = Some(t.result);
            }
            (__NR_read, Some(i)) if t.result == 0 && t.args[2] > 0 => {
                let end = self.inodes[i].read_to;
                if t.file.place() == Some(end) {
                    self.inodes[i].known.size = Some(end);
                }
            }
            (__NR_getdents64 | __NR_getdents, _) => drop(self.read.insert(file)),
            (__NR_signalfd | __NR_signalfd4, _) => {
                let set = memory(t.args[1], 8, false)?;
                self.signals.remove(&file);
                self.signals.extend(set.map(|b| (file, word(&b, 0))));
                if t.number == __NR_signalfd4 && t.args[0] as i32 == -1 {
                    self.flags.insert(file, t.args[3] as i32 & SFD_NONBLOCK);
                }
            }
            (__NR_fcntl, _) => self.controlled(t, &mut memory)?,
            (__NR_ioctl, _) if t.args[1] as u32 == FIONBIO => {
                let on = memory(t.args[2], 4, false)?.is_none_or(|b| b != [0; 4]);
                let given = self.given(t);
                self.flags
                    .insert(file, given & !O_NONBLOCK | if on { O_NONBLOCK } else { 0 });
            }
            (__NR_ioctl, _) if !REQUESTS.contains(&(t.args[1] as u32)) => {
                self.odd(t, format!("what `ioctl` {:#x} did", t.args[1] as u32));
                // Terminals have requests of their own, which change no file.
                let of_terminal = t.args[1] >> 8 & 0xff == u64::from(b'T');
                if !of_terminal && may_write(&t.file.what) && !is_no_file(&t.file.what) {
                    let began = t.file.what == What::Inherited;
                    self.wrote.entry(file).or_insert(began);
                }
                self.doubt_inode(file, "`ioctl` may have changed it");
            }
            // The kernel gives the old lock up before it looks whether the new one can be had.
            (__NR_flock, _) if t.result >= ERRORS => {
                if LOST.contains(&(t.result.wrapping_neg() as i32)) {
                    self.locks.remove(&file);
                }
            }
            (__NR_flock, _) => match t.args[1] as i32 & !LOCK_NB {
                LOCK_UN => drop(self.locks.remove(&file)),
                how => drop(self.locks.insert(file, how == LOCK_EX)),
            },
            _ => self.made(t),
        }
        Ok(())
    }

    /// What begins empty, or with what the call says.
    fn made(&mut self, t: &Told) {
        let file = t.file.number;
        match t.number {
            __NR_memfd_create => {
                let mut inode = Inode {
                    what: "a file in memory (`memfd_create`)".into(),
                    is_made: true,
                    ..Inode::default()
                };
                inode.known.size = Some(0);
                if t.args[1] as u32 & !MFD_CLOEXEC != 0 {
                    inode.doubt("it was made with flags that are not given again");
                }
                self.inodes.push(inode);
                self.opened.insert(file, self.inodes.len() - 1);
                self.flags.insert(file, O_RDWR);
                self.wrote.insert(file, true);
            }
            __NR_eventfd | __NR_eventfd2 => {
                let given = t.number == __NR_eventfd2;
                let flags = if given { t.args[1] as i32 } else { 0 };
                let value = (Some(t.args[0] & 0xffff_ffff), flags & EFD_SEMAPHORE != 0);
                self.counters.insert(file, value);
                self.flags
                    .insert(file, flags & (EFD_NONBLOCK | EFD_SEMAPHORE));
            }
            _ => {}
        }
    }

    /// What the kernel said of a file.
    fn stat(&mut self, t: &Told, stat: Option<Stat>) {
        let file = t.file.number;
        match stat {
            Some(s) => drop(self.stats.insert(file, s)),
            None => drop(self.stats.remove(&file)),
        }
        if let Some(i) = self.opened.get(&file) {
            self.inodes[*i].known.size = stat.map(|s| s.size);
        }
    }

    /// The flags that an open file has.
    fn given(&self, t: &Told) -> i32 {
        let flags = self.flags.get(&t.file.number).copied();
        flags.or(t.file.flags()).unwrap_or(0)
    }

    /// Notes what nobody does again.
    fn odd(&mut self, t: &Told, what: String) {
        let all = self.odd.entry(t.file.number).or_default();
        // A program can think of many.
        if all.len() < 16 {
            all.insert(what);
        }
    }

    fn controlled(
        &mut self,
        t: &Told,
        memory: &mut dyn FnMut(u64, usize, bool) -> Result<Option<Vec<u8>>>,
    ) -> Result<()> {
        match t.args[1] as u32 {
            F_SETFL => {
                let given = self.given(t);
                let chosen = t.args[2] as i32;
                self.flags
                    .insert(t.file.number, given & !CHANGEABLE | chosen & CHANGEABLE);
                if chosen & NOT_AGAIN != 0 {
                    self.odd(t, "`O_ASYNC` or `O_NOATIME`".into());
                }
            }
            command if LOCKS.contains(&command) => {
                let lock = memory(t.args[2], 32, false)?;
                let unlocks =
                    lock.is_some_and(|b| u32::from(u16::from_le_bytes([b[0], b[1]])) == F_UNLCK);
                if !unlocks {
                    self.odd(
                        t,
                        "a lock of `fcntl` that it had taken: it has none now".into(),
                    );
                }
            }
            command if COMMANDS.contains(&command) => {}
            command => self.odd(t, format!("what `fcntl` {command} chose")),
        }
        Ok(())
    }
}

/// Whether a call asks about the descriptor itself, and not about a path from there on.
fn is_of_descriptor(
    t: &Told,
    memory: &mut dyn FnMut(u64, usize, bool) -> Result<Option<Vec<u8>>>,
    flags: u64,
) -> Result<bool> {
    if flags as i32 & AT_EMPTY_PATH == 0 {
        return Ok(false);
    }
    let path = t.args[1];
    Ok(path == 0 || memory(path, 1, false)?.is_some_and(|b| b == [0]))
}

/// Whether something could be written there, as far as it is known.
pub(super) fn may_write(what: &What) -> bool {
    match what {
        What::File { writes, .. } => *writes,
        What::Other(_) | What::Inherited | What::Unknown => true,
        _ => false,
    }
}

/// Whether what is written there goes to no file that could be another one under another name.
pub(super) fn is_no_file(what: &What) -> bool {
    match what {
        What::File {
            path: Some(path), ..
        } => {
            DEVICES.contains(&path.as_slice())
                || path.starts_with(b"/dev/pts/") && plain(path) == *path
        }
        What::File { path: None, .. } | What::Inherited | What::Unknown => false,
        What::Other(what) => *what != "memfd",
        _ => true,
    }
}

/// A path without empty parts, `.` and `..`, as it is if none of its parts is a link.
pub fn plain(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut out = Vec::new();
    for part in parts {
        out.push(b'/');
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_are_no_files() {
        let is = |path: &str| {
            is_no_file(&What::File {
                path: Some(path.into()),
                writes: true,
                folder: false,
            })
        };
        assert!(is("/dev/null") && is("/dev/pts/3"));
        for file in [
            "/dev/../tmp/a",
            "/dev/shm/a",
            "/dev/a",
            "/dev/pts/../../a",
            "/dev/fd/3",
        ] {
            assert!(!is(file), "{file}");
        }
        assert_eq!(plain(b"/dev/.././/proc/self/fd/7"), b"/proc/self/fd/7");
    }
}
