//! Processes begin, load other programs, and end.

use super::memory::ProcessMemory;
use super::places::Heap;
use super::watch::Quiet;
use super::{After, Done, Error, Finish, Finished, Process, Rerun, Task, Trouble};
use crate::plan::class::{Class, LIMITS, UNSEEN};
use crate::plan::compare::Compare;
use crate::plan::script::Script;
use crate::plan::table::Table;
use crate::wire::{Blob, Call, End, Image};
use hindsight_guard::regular::{self, Links};
use hindsight_remote::{Launch, Thread, filter, launch};
use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries of the auxiliary vector: nothing, the kernel's code, random bytes.
const AT_NULL: u64 = 0;
const AT_IGNORE: u64 = 1;
const AT_RANDOM: u64 = 25;
const AT_SYSINFO_EHDR: u64 = 33;
/// Words at the beginning of a program that are looked at.
const WORDS: u64 = 1 << 16;

/// Files that tell where a process has its memory.
const ADDRESSES: [&str; 4] = [
    "/proc/self/maps",
    "/proc/self/smaps",
    "/proc/self/auxv",
    "/proc/self/mem",
];

/// Files that tell the loader which code to load. What a recording says of them is not followed.
const CODE: [&str; 2] = ["/etc/ld.so.preload", "/etc/ld.so.cache"];

/// Words that may stand in front of a script: its interpreter, and an argument.
const INTERPRETER: usize = 3;

/// Recorded output, and output now, wait for each other up to so many bytes.
const WAITING: usize = if cfg!(test) { 1 << 20 } else { 1 << 28 };
/// A recording may have so many processes, with each program that they loaded, and threads.
const PROCESSES: usize = 10_000;
/// So many threads a process may have had.
const THREADS: usize = 512;
/// Recorded calls may take so many bytes of memory, besides what they moved.
const CALLS: usize = if cfg!(test) { 1 << 22 } else { 3 << 28 };

/// Bytes that are still to be read, or may be read again, may be so many, of all processes.
const RECEIVED: usize = if cfg!(test) { 1 << 23 } else { 1 << 30 };

/// Variables that tell the loader which code to load. What a recording says of them is not followed.
const LOADER: [&[u8]; 2] = [b"LD_", b"GLIBC_TUNABLES="];

impl Rerun<'_> {
    /// Starts the program.
    pub fn start(&mut self, rules: OwnedFd) -> Result<(), Error> {
        let images = self.begin.images.iter();
        let all = images.map(|i| 1 + i.guests.len() + i.others.len());
        if all.fold(0, usize::saturating_add) > PROCESSES {
            let what = format!("the recording has more than {PROCESSES} processes and threads");
            return Err(Error::Limit(what));
        }
        let image = self.begin.images.iter().find(|i| i.parent == 0).cloned();
        let image = image.ok_or_else(|| Error::Limit("the recording has no program".into()))?;
        if !image.is_whole {
            return Err(Error::Limit(
                "the recording does not begin where its program does, so the program cannot be run from there".into(),
            ));
        }
        self.check(&image)?;
        let folder = PathBuf::from(OsStr::from_bytes(&self.begin.folder));
        let folder = Some(folder).filter(|f| f.is_dir());
        if folder.is_none() {
            let note = "the recorded working directory is not here";
            self.note(note.into());
        }
        let program = self.program()?;
        self.tally.is_recorded = self.is_recorded(&program);
        self.files.folder = OsStr::from_bytes(&self.begin.folder).into();
        // Who reads the program's own file gets the one that runs.
        let recorded = (self.files.folder).join(OsStr::from_bytes(&self.begin.program));
        self.files.here = vec![recorded, program.clone()];
        // What tells of addresses, which are others now.
        self.files.here.extend(ADDRESSES.map(PathBuf::from));
        self.files.here.extend(CODE.map(PathBuf::from));
        self.files.here.extend(self.options.here.iter().cloned());
        let text = |b: &[u8]| {
            CString::new(b).map_err(|_| Error::Limit("an argument has a zero byte".into()))
        };
        let args = self.arguments();
        let args = args.iter().map(|a| text(a)).collect::<Result<_, _>>()?;
        let env = self.environment();
        let env = env.iter().map(|a| text(a)).collect::<Result<_, _>>()?;
        let start = Launch {
            program: text(program.as_os_str().as_bytes())?,
            args,
            env,
            folder: folder.map(|f| text(f.as_os_str().as_bytes())).transpose()?,
            filter: filter(UNSEEN, LIMITS),
            rules: Some(rules),
        };
        let shown = hindsight_text::bytes(program.as_os_str().as_bytes()).to_string();
        let thread = launch(&start).map_err(|e| Error::Start(shown, e))?;
        let pid = thread.tid();
        self.main = pid;
        self.time = self.begin.started;
        self.taken.insert(image.thread);
        self.add(pid, image, Script::new(Table::new()), Table::new())?;
        for (id, name) in ["standard input", "standard output", "standard error"]
            .into_iter()
            .enumerate()
        {
            self.names.insert(id as u32, name.into());
        }
        let p = self.process(pid);
        p.task.is_new = false;
        self.prepare(pid)?;
        self.process(pid).task.thread.go_on(0);
        Ok(())
    }

    /// The program, as an absolute path.
    fn program(&self) -> Result<PathBuf, Error> {
        let program = match &self.options.program {
            Some(p) => p.clone(),
            None => self.recorded_program(),
        };
        if program.components().count() > 1 || program.is_absolute() {
            let shown = program.display().to_string();
            // The working directory will be another one.
            return std::path::absolute(&program).map_err(|e| Error::Start(shown, e));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .map(|d| d.join(&program))
            .find(|p| p.is_file());
        found.ok_or_else(|| {
            let e = std::io::Error::from_raw_os_error(libc::ENOENT);
            Error::Start(program.display().to_string(), e)
        })
    }

    /// Where the recorded program was. A path leads from the folder in which it was started.
    fn recorded_program(&self) -> PathBuf {
        let program = Path::new(OsStr::from_bytes(&self.begin.program));
        match program.components().count() {
            0 | 1 => program.into(),
            _ => Path::new(OsStr::from_bytes(&self.begin.folder)).join(program),
        }
    }

    fn arguments(&self) -> Vec<Vec<u8>> {
        // The kernel has put the interpreter of a script before it, and will again.
        let script = (self.begin.args.iter().take(INTERPRETER))
            .position(|a| *a == self.begin.program)
            .filter(|n| *n > 0 && is_script(&self.files.folder, &self.begin.program));
        let recorded = &self.begin.args[script.unwrap_or(0)..];
        let Some(args) = &self.options.args else {
            return recorded.to_vec();
        };
        let bytes = |s: &OsString| s.as_bytes().to_vec();
        let name = self
            .options
            .program
            .as_ref()
            .map(|p| p.as_os_str().to_owned());
        let name = name.as_ref().map(bytes);
        let name = name
            .or_else(|| recorded.first().cloned())
            .unwrap_or_default();
        [name].into_iter().chain(args.iter().map(bytes)).collect()
    }

    /// The recorded environment. What the loader is told comes from here.
    fn environment(&self) -> Vec<Vec<u8>> {
        let of_loader = |v: &[u8]| LOADER.iter().any(|l| v.starts_with(l));
        let recorded = self.begin.env.iter().filter(|v| !of_loader(v));
        let own = std::env::vars_os()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        recorded
            .cloned()
            .chain(own.filter(|v| of_loader(v)))
            .collect()
    }

    /// Refuses an image of which nothing is recorded, or that had more threads than are run.
    fn check(&self, image: &Image) -> Result<(), Error> {
        if image.thread == 0 {
            let what = "the recording has nothing of a process";
            return Err(Error::Limit(what.into()));
        }
        match image.others.len() < THREADS {
            true => Ok(()),
            false => Err(Error::Limit(format!(
                "a recorded process had more than {THREADS} threads"
            ))),
        }
    }

    fn add(&mut self, pid: i32, image: Image, script: Script, table: Table) -> Result<(), Error> {
        let memory = ProcessMemory::of(pid).map_err(Error::Trace)?;
        self.pids.insert(image.pid, pid);
        let process = Process {
            task: Task::new(Thread::of_child(pid), image.pid),
            others: Vec::new(),
            turns: 0,
            was_ended: false,
            memory,
            pid: image.pid,
            script,
            image,
            table,
            places: HashMap::new(),
            outputs: Compare::default(),
            overdue: None,
            quiet: Quiet::default(),
            calls_before: 0,
            heap: Heap::New,
            events: HashMap::new(),
            fault: None,
            asked: 0,
        };
        self.processes.insert(pid, process);
        self.owners.insert(pid, pid);
        Ok(())
    }

    /// A process has made another one.
    pub fn made(&mut self, pid: i32, child: i32) -> Done {
        let p = self.process(pid);
        let Some(After::Fork(slot)) = p.task.after else {
            return Err(Error::Limit("a process was made unexpectedly".into()).into());
        };
        if p.script.slot(slot).class == Class::Thread {
            return self.made_thread(pid, child, slot);
        }
        let (slot, parent, table) = (p.script.slot(slot), p.image.number, p.table.clone());
        let recorded = slot.call.result.unwrap_or(0) as i32;
        let its = slot.table.clone().unwrap_or_default();
        let (events, heap) = (p.events.clone(), p.heap);
        let image = self.begin.images.iter().find(|i| {
            let is = i.pid == recorded && i.parent == parent && !i.by_exec;
            is && !self.taken.contains(&i.thread)
        });
        // It may run in the other one's memory. Then it belongs to the same image.
        let guest = || {
            let host = self.begin.images.iter().find(|i| i.number == parent)?;
            let is_it = |i: &Image| i.pid == recorded && !self.taken.contains(&i.thread);
            host.of_guests().find(is_it)
        };
        let Some(image) = image.cloned().or_else(guest) else {
            let what = "it starts a process of which nothing is recorded";
            return Err(Error::Limit(what.into()).into());
        };
        self.check(&image)?;
        self.taken.insert(image.thread);
        self.add(child, image, Script::new(its), table)?;
        let id_at = self.child_id(pid)?;
        let p = self.process(child);
        (p.events, p.heap) = (events, heap);
        p.task.id_at = id_at;
        if self.early.remove(&child) {
            self.begin_child(child)?;
        }
        self.process(pid).task.thread.step_call(0);
        Ok(())
    }

    /// Where the kernel writes the id of a process that this one makes, in the new one's memory.
    fn child_id(&mut self, pid: i32) -> std::io::Result<Option<u64>> {
        let p = self.process(pid);
        let r = p.task.thread.regs()?;
        let (flags, at) = match r.orig_rax as i64 {
            libc::SYS_clone => (r.rdi, Some(r.r10)),
            _ => (0, None),
        };
        let sets = flags as i32 & libc::CLONE_CHILD_SETTID != 0;
        Ok(at.filter(|_| sets))
    }

    /// A new process runs for the first time.
    pub fn begin_child(&mut self, pid: i32) -> Done {
        let p = self.process(pid);
        p.task.is_new = false;
        if let Some(at) = p.task.id_at {
            p.memory.write(at, &p.task.tid.to_le_bytes())?;
        }
        p.task.thread.go_on(0);
        Ok(())
    }

    /// A process has loaded another program.
    pub fn loaded(&mut self, pid: i32) -> Done {
        let (number, recorded) = {
            let p = self.process(pid);
            p.memory.reopen()?;
            p.table.exec();
            p.events.clear();
            p.heap = Heap::New;
            (p.image.number, p.pid)
        };
        let Some(next) = self.next_program(number, recorded) else {
            let what = "it loads a program of which nothing is recorded";
            return Err(Error::Limit(what.into()).into());
        };
        self.check(&next)?;
        self.taken.insert(next.thread);
        let p = self.process(pid);
        p.calls_before = p.calls_before.saturating_add(p.image.calls);
        p.image = next;
        p.script.next_program();
        self.prepare(pid)?;
        self.process(pid).task.thread.go_on(0);
        Ok(())
    }

    /// Changes what the kernel told a program that has just been loaded: it has none of the kernel's code, so that it asks
    /// the kernel for the time, and it has the recorded random bytes.
    fn prepare(&mut self, pid: i32) -> Result<(), Error> {
        let p = self.process(pid);
        let at = p.task.thread.regs()?.rsp;
        let words = (0..WORDS).map_while(|n| p.memory.word(at.wrapping_add(8 * n)));
        // The number of arguments, the arguments, and the environment. Behind each list stands a zero.
        let mut zeros = words.enumerate().skip(1).filter(|w| w.1 == 0);
        let Some((end, _)) = zeros.nth(1) else {
            let what = format!("the program has more than {WORDS} arguments and variables");
            return Err(Error::Limit(what));
        };
        let mut entry = at.wrapping_add(8 * (end as u64 + 1));
        while let (Some(kind), Some(value)) =
            (p.memory.word(entry), p.memory.word(entry.wrapping_add(8)))
        {
            match kind {
                AT_NULL => break,
                AT_SYSINFO_EHDR => p.memory.write(entry, &AT_IGNORE.to_le_bytes())?,
                AT_RANDOM => {
                    if let Some(random) = p.image.random {
                        p.memory.write(value, &random)?;
                    }
                }
                _ => {}
            }
            entry = entry.wrapping_add(16);
        }
        Ok(())
    }

    /// Counts what a process has left out, and compares its output. It has ended, or is left.
    pub fn close(&mut self, pid: i32, end: End) -> Done {
        // Its number may soon be that of another process, so nothing is done to it any more.
        let Some(mut p) = self.processes.remove(&pid) else {
            return Ok(());
        };
        self.owners.retain(|_, owner| *owner != pid);
        self.free.remove(&pid);
        p.outputs.now_is_over();
        let recorded = p.image.end;
        let gone = !matches!(recorded, End::Status(0) | End::Exec) && end != recorded;
        // What follows in the recording is needed to compare the output. Of a process that was stopped it says nothing.
        if !gone || self.ended.is_some() || end != End::Unknown {
            self.rest(&p.image, &mut p.script, &mut p.outputs)?;
        }
        p.outputs.recorded_is_over();
        let fails = matches!(end, End::Signal(_)) || matches!(end, End::Status(n) if n != 0);
        if pid != self.main && fails && end != recorded && !self.left.contains(&pid) {
            self.tally.failures += 1;
            let seen = p.pid;
            self.note(format!("process {seen}: {end} in place of {recorded}"));
        }
        let reached = p.script.reached();
        let all = p.calls_before.saturating_add(p.image.calls);
        let fully = end == p.image.end && p.script.is_done() && p.script.is_loaded();
        let came = if fully {
            all
        } else {
            (reached as u64).min(all)
        };
        let t = &mut self.tally;
        t.reached.0 = t.reached.0.saturating_add(came);
        t.reached.1 = t.reached.1.saturating_add(all);
        let until = match gone {
            // The recorded failure is gone: what the program did right before it need not happen.
            true => reached,
            false => usize::MAX,
        };
        t.left_out += p.script.left_out(until).count() as u64;
        self.left_out(&p.script);
        self.finished.push(Finished {
            pid: p.pid,
            is_main: pid == self.main,
            outputs: p.outputs,
            fault: p.fault,
        });
        Ok(())
    }

    /// Loads all that is left of a recorded process, with the programs that it loaded.
    pub fn rest(
        &mut self,
        image: &Image,
        script: &mut Script,
        outputs: &mut Compare,
    ) -> Result<(), Error> {
        let mut image = image.clone();
        loop {
            self.check(&image)?;
            while !script.is_loaded() {
                let mut calls = self.next_calls(image.thread)?;
                // Nobody reads any more.
                calls.iter_mut().for_each(|c| c.received = Blob::default());
                script.load(calls, &mut self.files, outputs);
            }
            let Some(next) = self.next_program(image.number, image.pid) else {
                break;
            };
            self.taken.insert(next.thread);
            script.next_program();
            image = next;
        }
        let left = script.not_made().map(|(pid, table)| (pid, table.clone()));
        self.not_made.extend(left);
        Ok(())
    }

    /// The program that a recorded process loaded next, if nothing stands for it yet.
    fn next_program(&self, number: u32, pid: i32) -> Option<Image> {
        let is_next = |i: &&Image| {
            i.by_exec && i.parent == number && i.pid == pid && !self.taken.contains(&i.thread)
        };
        self.begin.images.iter().find(is_next).cloned()
    }

    /// Loads more of what a process did.
    pub fn load(&mut self, pid: i32) -> Done {
        let thread = self.process(pid).image.thread;
        let calls = self.next_calls(thread)?;
        let Some(p) = self.processes.get_mut(&pid) else {
            return Ok(());
        };
        let late = p.script.load(calls, &mut self.files, &mut p.outputs);
        p.script.forget();
        if p.script.is_loaded() && p.image.end != End::Exec {
            p.outputs.recorded_is_over();
        }
        too_much(&p.outputs)?;
        self.keep_few()?;
        self.send_late(pid, &late);
        Ok(())
    }

    /// Forgets what has been read if the processes keep too much, and ends the run if that does not suffice.
    fn keep_few(&mut self) -> Result<(), Error> {
        let kept = |run: &Self| {
            let all = run.processes.values().map(|p| p.script.kept());
            all.fold(0, usize::saturating_add)
        };
        if kept(self) <= RECEIVED {
            return Ok(());
        }
        let all = self.processes.values_mut();
        all.for_each(|p| p.script.forget_until(0));
        match kept(self) > RECEIVED {
            true => Err(Error::Limit(format!(
                "more than {} MiB of recorded input have not been read yet",
                RECEIVED >> 20
            ))),
            false => Ok(()),
        }
    }

    /// The next recorded calls of a thread.
    pub fn next_calls(&mut self, thread: u32) -> Result<Vec<Call>, Error> {
        let calls = self.recording.calls(thread).map_err(Error::Recording)?;
        for c in &calls {
            self.weight = self
                .weight
                .saturating_add(c.size() - c.received.len() - c.sent.len());
        }
        match self.weight > CALLS {
            true => Err(Error::Limit(format!(
                "the recorded calls take more than {} MiB of memory",
                CALLS >> 20
            ))),
            false => Ok(calls),
        }
    }

    /// What a process does that the recording does not go on to.
    pub fn cut(&self) -> Trouble {
        Trouble::Finish(Finish::Cut)
    }
}

/// Ends the run if too much output waits to be compared.
pub fn too_much(outputs: &Compare) -> Done {
    if outputs.waiting() <= WAITING {
        return Ok(());
    }
    let most = WAITING >> 20;
    let why = format!("more than {most} MiB of output wait to be compared");
    Err(Trouble::Finish(Finish::TooFar(why)))
}

/// Whether a file begins with the name of its interpreter.
fn is_script(folder: &Path, path: &[u8]) -> bool {
    let path = folder.join(OsStr::from_bytes(path));
    let mut begin = [0; 2];
    let file = regular::open(path, Links::Follow);
    file.is_ok_and(|mut f| f.read_exact(&mut begin).is_ok()) && begin == *b"#!"
}

/// Where the kernel shows itself and reading changes nothing.
const SHOWN: [&str; 4] = [
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
];
/// What changes there, or is taken, when it is read.
const TAKEN: [&str; 2] = ["/proc/kmsg", "/proc/sys/fs/binfmt_misc"];

/// Whether the kernel shows itself at a path, and reading might change something.
pub fn may_act(path: &Path) -> bool {
    if !regular::is_of_kernel(path).unwrap_or(false) {
        return false;
    }
    let within = |real: &Path, list: &[&str]| list.iter().any(|p| real.starts_with(p));
    let is_shown = |real: PathBuf| within(&real, &SHOWN) && !within(&real, &TAKEN);
    !path.canonicalize().is_ok_and(is_shown)
}

/// Whether a path is a file that can be read and does not notice that, or a folder. Nothing is opened.
pub fn is_readable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    let is_one = fs::metadata(path).is_ok_and(|m| m.is_file() || m.is_dir());
    // SAFETY: the name ends with a zero byte.
    is_one && !may_act(path) && unsafe { libc::access(name.as_ptr(), libc::R_OK) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_shows_is_read_if_that_changes_nothing() {
        for path in [
            "/proc/stat",
            "/proc/self/status",
            "/proc",
            "/etc/passwd",
            "/etc",
        ] {
            assert!(is_readable(Path::new(path)), "{path}");
        }
        assert!(!is_readable(Path::new("/proc/kmsg")));
        assert!(may_act(Path::new("/proc/self/ns/pid")) && may_act(Path::new("/proc/kmsg")));
        assert!(!may_act(Path::new("/dev/null")));
        // Not everywhere is there what shows the devices.
        for (path, shown) in [
            ("/sys/devices/system/cpu/online", true),
            ("/sys/kernel", false),
        ] {
            assert!(
                !Path::new(path).exists() || is_readable(Path::new(path)) == shown,
                "{path}"
            );
        }
    }
}
