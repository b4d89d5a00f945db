//! Open files. Numbers of descriptors are the kernel's, so each open file of the program has a real descriptor. It leads to the
//! file, if that may be read here, and otherwise to something that stands for it.

use super::answer::restore;
use super::calls::Made;
use super::processes::{is_readable, may_act};
use super::{After, Done, Error, FOREIGN, Rerun};
use crate::plan::class::{Class, class, flags, makes_new, opens_to_change};
use crate::plan::names::is_made_up;
use crate::plan::table::FileId;
use crate::wire::Call;
use hindsight_guard::regular::{self, Links};
use hindsight_remote::Regs;
use libc::*;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No larger files are compared with what was recorded of them.
const COMPARED: u64 = 1 << 28;
/// Contents of mapped files are kept up to so many bytes.
const CONTENTS: usize = 1 << 29;

impl Rerun<'_> {
    /// A file is opened by its path.
    pub fn open(&mut self, pid: i32, made: &Made, slot: Option<usize>, r: Regs) -> Done {
        if slot.is_none() && self.is_taken(made) {
            return self.answer(pid, -EEXIST as i64 as u64);
        }
        let flags = flags(made.number, &made.args);
        let folder = match made.number as i64 {
            SYS_openat => made.args[0] as i32,
            _ => AT_FDCWD,
        };
        let path = made.given.as_ref();
        let path = path.map(|p| self.resolved(pid, folder, p));
        let written = opens_to_change(made.number, &made.args);
        let here =
            !written && path.as_deref().is_some_and(is_readable) && self.is_settled(pid, made);
        let after = |slot, here| After::Open(Box::new(r), slot, here);
        let on_exec = flags & O_CLOEXEC != 0;
        match slot {
            Some(slot) => {
                if self.ends_in(pid, slot)? {
                    return Ok(());
                }
                self.send(pid, slot);
                let s = self.process(pid).script.slot(slot);
                let Some(result) = s.call.result else {
                    return Err(self.cut());
                };
                if (result as i64) < 0 {
                    return self.answer(pid, result);
                }
                if s.call.library && !here {
                    let name = path.unwrap_or_default();
                    let what = format!(
                        "{} is not on this machine, and the program needs its code",
                        name.display()
                    );
                    return Err(Error::Limit(what).into());
                }
                match here {
                    true => self.open_here(pid, after(Some(slot), true), r),
                    false => self.placeholder(pid, on_exec, after(Some(slot), false)),
                }
            }
            None if here || (!written && path.is_some()) => {
                self.tally.here += 1;
                self.added(pid, made, "this machine answered")?;
                if here {
                    return self.open_here(pid, after(None, true), r);
                }
                if path.as_deref().is_some_and(may_act) {
                    return self.answer(pid, -EACCES as i64 as u64);
                }
                let there = path.map_or(Ok(()), |p| fs::metadata(p).map(drop));
                match there.err().and_then(|e| e.raw_os_error()) {
                    Some(e) => self.answer(pid, -e as i64 as u64),
                    // Devices, and files of others.
                    None => self.placeholder(pid, on_exec, after(None, false)),
                }
            }
            None => {
                self.lasting(made);
                self.added(pid, made, "it writes nowhere")?;
                self.placeholder(pid, on_exec, after(None, false))
            }
        }
    }

    /// Whether a file is to be made anew that the program has made already, under a name that it made up. It is told so, and
    /// makes up another one. No file is really made, so the kernel does not know.
    pub fn is_taken(&self, made: &Made) -> bool {
        let is_new = makes_new(made.number, &made.args);
        is_new && (made.given.as_ref()).is_some_and(|name| self.made_up.contains(name))
    }

    /// The recorded call that made a file, or a folder, whose name was made up. The name is another one now, and stands for the
    /// recorded one from here on.
    pub fn renamed(&mut self, pid: i32, made: &Made) -> Done<Option<usize>> {
        let Some(Some(path)) = made.texts.first().cloned() else {
            return Ok(None);
        };
        if self.is_taken(made) {
            return Ok(None);
        }
        let is_like = |call: &Call| {
            let recorded = call.texts.first().cloned().flatten();
            class(call.number, &call.args) == made.class
                && makes_new(call.number, &call.args)
                && recorded.is_some_and(|r| is_made_up(&path, &r))
        };
        let p = self.process(pid);
        let Some(slot) = p.script.like(p.task.lane, &is_like) else {
            return Ok(None);
        };
        if let Some(Some(name)) = p.script.slot(slot).call.texts.first().cloned() {
            self.made_up.extend(made.given.clone());
            self.renamed.insert(path, name);
        }
        self.agree(pid, slot, made)?;
        Ok(Some(slot))
    }

    /// Where a path leads.
    fn resolved(&mut self, pid: i32, folder: i32, path: &[u8]) -> PathBuf {
        let path = own_files(pid, Path::new(OsStr::from_bytes(path)));
        let base = match folder {
            AT_FDCWD => format!("/proc/{pid}/cwd"),
            fd => format!("/proc/{pid}/fd/{fd}"),
        };
        // An absolute path replaces what stands before.
        let base = fs::read_link(&base).unwrap_or(base.into());
        base.join(path)
    }

    /// A file was opened, or a descriptor was made in its place.
    pub fn has_opened(
        &mut self,
        pid: i32,
        before: Regs,
        slot: Option<usize>,
        (r, here): (Regs, bool),
    ) -> Done {
        let p = self.process(pid);
        if (r.rax as i64) < 0 {
            if slot.is_some() {
                let e = std::io::Error::from_raw_os_error(-(r.rax as i64) as i32);
                let what = format!("a file that the program read cannot be opened here: {e}");
                return Err(Error::Limit(what).into());
            }
            return Ok(restore(p, before, r.rax)?);
        }
        // What was looked at by its path may have become something else.
        let opened = PathBuf::from(format!("/proc/{pid}/fd/{}", r.rax));
        let is_one = fs::metadata(&opened).is_ok_and(|m| m.is_file() || m.is_dir());
        if here && (!is_one || may_act(&opened)) {
            let what = "what the program opened is no file and no folder any more";
            return Err(Error::Limit(what.into()).into());
        }
        let p = self.process(pid);
        let args = [
            before.rdi, before.rsi, before.rdx, before.r10, before.r8, before.r9,
        ];
        let text_at = match before.orig_rax as i64 {
            SYS_open | SYS_creat => before.rdi,
            _ => before.rsi,
        };
        let name = p.memory.text(text_at);
        let recorded = slot.and_then(|s| p.script.slot(s).made.first().copied());
        let id = match recorded {
            Some(id) => id,
            None => self.foreign(here),
        };
        if here {
            self.real.insert(id);
        }
        if slot.is_none() && name.as_deref() == Some(b"/dev/null") {
            self.memory.insert(id);
        }
        if let Some(name) = name {
            self.names
                .insert(id, hindsight_text::bytes(&name).to_string());
        }
        let p = self.process(pid);
        (p.table).apply(before.orig_rax, &args, Some(r.rax), None, &mut || id);
        Ok(restore(p, before, r.rax)?)
    }

    /// A call that makes descriptors of another kind.
    pub fn make(&mut self, pid: i32, made: &Made, slot: Option<usize>, r: Regs) -> Done {
        let result = slot.map(|s| self.process(pid).script.slot(s).call.result);
        if let Some(slot) = slot {
            if self.ends_in(pid, slot)? {
                return Ok(());
            }
            self.send(pid, slot);
        }
        match result {
            Some(Some(r)) if (r as i64) < 0 => return self.answer(pid, r),
            Some(None) => return Err(self.cut()),
            Some(Some(_)) => {}
            None => match made.number as i64 {
                SYS_accept | SYS_accept4 => return Err(self.nothing(pid, made)),
                _ => self.added(pid, made, "it was made here")?,
            },
        }
        let after = After::Make(Box::new(r), slot);
        if Self::is_made_here(made.number, made.class) {
            return self.pass_and(pid, after);
        }
        // Whether the next program gets it stands in the flags, which are the same for all.
        let flags = match made.number as i64 {
            SYS_socket | SYS_timerfd_create | SYS_eventfd2 => made.args[1],
            SYS_accept4 | SYS_signalfd4 => made.args[3],
            SYS_epoll_create1 | SYS_inotify_init1 => made.args[0],
            SYS_pidfd_open => O_CLOEXEC as u64,
            _ => 0,
        };
        self.placeholder(pid, flags as i32 & O_CLOEXEC != 0, after)
    }

    /// Descriptors were made.
    pub fn has_made(&mut self, pid: i32, before: Regs, slot: Option<usize>, r: Regs) -> Done {
        let number = before.orig_rax;
        let args = [
            before.rdi, before.rsi, before.rdx, before.r10, before.r8, before.r9,
        ];
        if (r.rax as i64) < 0 {
            return Ok(restore(self.process(pid), before, r.rax)?);
        }
        let p = self.process(pid);
        let pair_at = match number as i64 {
            SYS_pipe | SYS_pipe2 => before.rdi,
            _ => before.r10,
        };
        let pair = p.memory.word(pair_at).map(|w| [w as i32, (w >> 32) as i32]);
        let mut known = match slot {
            Some(s) => p.script.slot(s).made.clone(),
            None => Vec::new(),
        };
        // Descriptors that lead to nothing recorded are the kernel's if it has made them.
        let own = Self::is_made_here(number, Class::Make);
        // Real sockets might lead out of the program.
        let real = own && number as i64 != SYS_socketpair;
        let spare = [self.foreign(real), self.foreign(real)];
        known.extend(spare);
        let mut known = known.into_iter();
        let p = self.process(pid);
        (p.table).apply(number, &args, Some(r.rax), pair, &mut || {
            known.next().unwrap_or(FOREIGN)
        });
        if let Some(slot) = slot
            && !own
        {
            let made = Made {
                number,
                args,
                texts: Vec::new(),
                given: None,
                class: Class::Make,
                key: self.process(pid).script.slot(slot).key.clone(),
            };
            self.copy(pid, &made, slot, 0)?;
        }
        let name = hindsight_timeline::syscall_name(number);
        let files: Vec<FileId> = match slot {
            Some(s) => self.process(pid).script.slot(s).made.clone(),
            None => Vec::new(),
        };
        if number as i64 == SYS_memfd_create {
            self.memory.extend(&files);
        }
        // What is written to a socket goes to others.
        if !matches!(number as i64, SYS_socket | SYS_accept | SYS_accept4) {
            self.memory.extend(spare);
        }
        for id in files {
            let name = match name.as_str() {
                "pipe" | "pipe2" => "a pipe",
                "socket" | "socketpair" | "accept" | "accept4" => "a socket",
                other => other,
            };
            self.names.insert(id, name.into());
        }
        Ok(restore(self.process(pid), before, r.rax)?)
    }

    /// A file is mapped.
    pub fn map(&mut self, pid: i32, made: &Made, r: Regs) -> Done {
        let flags = made.args[3] as i32;
        self.shares |= flags & MAP_SHARED != 0;
        let p = self.process(pid);
        let Some(file) = p.table.find(made.args[4] as i32) else {
            return self.place(pid, made, r);
        };
        // Whoever writes the file changes that memory too, also where it is not shared.
        self.shares |= self.memory.contains(&file);
        let kernels =
            self.files.own.contains(&file) || self.foreign.get(&file).is_some_and(|f| f.is_real);
        if kernels {
            return self.place(pid, made, r);
        }
        if flags & MAP_SHARED != 0 && made.args[2] as i32 & PROT_WRITE != 0 {
            return Err(self.refused(pid, made, "it shares the memory of a file"));
        }
        let Some(content) = self.changed(pid, made.args[4] as i32, file)? else {
            return self.place(pid, made, r);
        };
        if made.args[2] as i32 & PROT_EXEC != 0 {
            return Err(self.refused(pid, made, "it would execute the recorded content of a file"));
        }
        let from = usize::try_from(made.args[5])
            .unwrap_or(usize::MAX)
            .min(content.len());
        let to = from
            .saturating_add(made.args[1] as usize)
            .min(content.len());
        let bytes = content[from..to].to_vec();
        let mut new = r;
        new.r10 =
            ((flags & !(MAP_SHARED | MAP_SHARED_VALIDATE)) | MAP_PRIVATE | MAP_ANONYMOUS) as u64;
        (new.r8, new.r9) = (u64::MAX, 0);
        new.rdi = self.place_of(pid, made)?.unwrap_or(new.rdi);
        self.process(pid).task.thread.set_regs(&new)?;
        self.pass_and(pid, After::Map(Box::new(r), bytes))
    }

    /// What a file held when the recorded process mapped it, if that had read it before.
    fn was_mapped(&mut self, pid: i32, file: FileId) -> Done<Option<Arc<[u8]>>> {
        loop {
            let script = &self.process(pid).script;
            match script.mapped.content(file) {
                Some(content) => {
                    self.process(pid).script.mapped.take(file);
                    return Ok(content);
                }
                None if script.wants_more() => self.load(pid)?,
                None => return Ok(None),
            }
        }
    }

    /// The recorded content of a mapped file, if the file is not here or has another one.
    fn changed(&mut self, pid: i32, fd: i32, file: FileId) -> Done<Option<Vec<u8>>> {
        let is_real = self.real.contains(&file);
        let path = match is_real {
            true => fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok(),
            false => {
                let name = self.names.get(&file).cloned().unwrap_or_default();
                Some(self.resolved(pid, AT_FDCWD, name.as_bytes()))
            }
        };
        let Some(path) = path else { return Ok(None) };
        if let Some(known) = self.was_mapped(pid, file)? {
            return Ok(Some(known.to_vec()));
        }
        let key = path.as_os_str().as_bytes().to_vec();
        if let Some(known) = self.contents.get(&key) {
            return Ok(known.clone());
        }
        let recorded = self.recording.content(&key).map_err(Error::Recording)?;
        let same = |recorded: &Vec<u8>| {
            let now = || regular::read(&path, Links::Follow, COMPARED);
            is_real && now().is_ok_and(|b| b == *recorded)
        };
        let shown = hindsight_text::bytes(&key).to_string();
        let content = match recorded {
            Some(r) if same(&r) => None,
            Some(r) => {
                let note = format!("{shown} is not what it was: it is mapped as it was recorded");
                self.note(note);
                self.kept = self.kept.saturating_add(r.len());
                if self.kept > CONTENTS {
                    let what = format!(
                        "the program maps more than {} MiB of files that have changed",
                        CONTENTS >> 20
                    );
                    return Err(Error::Limit(what).into());
                }
                Some(r)
            }
            None if is_real => None,
            None => {
                let what = format!("the program maps {shown}, which is neither here nor recorded");
                return Err(Error::Limit(what).into());
            }
        };
        self.contents.insert(key, content.clone());
        Ok(content)
    }
}

/// A path that the program `pid` names, as others name it: what the kernel shows of itself to each process is another thing for
/// each.
fn own_files(pid: i32, path: &Path) -> PathBuf {
    let own = [
        ("/proc/self", ""),
        ("/proc/thread-self", ""),
        ("/dev/fd", "fd"),
        ("/dev/stdin", "fd/0"),
        ("/dev/stdout", "fd/1"),
        ("/dev/stderr", "fd/2"),
    ];
    let found = own.iter().find_map(|(name, its)| {
        let rest = path.strip_prefix(name).ok()?;
        let mut out = PathBuf::from(format!("/proc/{pid}"));
        // Nothing behind it would become a slash.
        [Path::new(its), rest]
            .into_iter()
            .filter(|p| !p.as_os_str().is_empty())
            .for_each(|p| out.push(p));
        Some(out)
    });
    found.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_are_those_of_the_program() {
        let of = |p: &str| own_files(7, Path::new(p)).display().to_string();
        assert_eq!(of("/proc/self/maps"), "/proc/7/maps");
        assert_eq!(of("/dev/fd/3"), "/proc/7/fd/3");
        assert_eq!(of("/dev/stdin"), "/proc/7/fd/0");
        assert_eq!(of("/proc/selfish"), "/proc/selfish");
        assert_eq!(of("a/b"), "a/b");
    }
}
