//! Calls that the kernel does. All of them go through [`Rerun::run_call`], which looks at them for the last time.

use super::calls::Made;
use super::memory::is_private;
use super::{After, Done, Error, Rerun};
use crate::plan::class::{Class, flags, is_lasting, opens_to_change};
use crate::plan::gate::{REQUESTS, may_run};
use crate::plan::script::is_asked_by_path;
use crate::plan::table::FileId;
use hindsight_remote::{Regs, halt_of};
use libc::*;

/// What is done about a call that concerns a file of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Here {
    /// The kernel does it.
    Pass,
    /// It is told this error, or that it was done.
    Told(i32),
    /// It is an effect that is not done.
    NotDone,
    /// The kernel opens a file.
    Open,
    /// What is mapped is looked at.
    Map,
}

/// What is done about a call on a file of this machine, or, with `is_memory`, on memory that the program has made (`memfd`)
/// or a pipe. `by_path`: the call names the file by its path.
fn here(number: u64, a: &[u64; 6], class: Class, (by_path, is_memory): (bool, bool)) -> Here {
    match (class, number as i64) {
        (Class::Open, _) if opens_to_change(number, a) => Here::Told(EROFS),
        (Class::Open, _) => Here::Open,
        (Class::Map, _) => Here::Map,
        (Class::Read, SYS_read | SYS_pread64 | SYS_readv | SYS_preadv | SYS_preadv2) => Here::Pass,
        (Class::Read, _) => Here::Told(ENOTSOCK),
        (Class::Write, SYS_write | SYS_pwrite64 | SYS_writev | SYS_pwritev | SYS_pwritev2)
            if is_memory =>
        {
            Here::Pass
        }
        (Class::Write, SYS_sendto | SYS_sendmsg) => Here::Told(ENOTSOCK),
        (Class::Write, _) => Here::Told(EBADF),
        (Class::Effect, SYS_ftruncate | SYS_fallocate) if is_memory => Here::Pass,
        (Class::Effect, SYS_fcntl) if a[1] as i32 == F_ADD_SEALS && is_memory => Here::Pass,
        // Nothing is changed that is read as it is here, and programs may know that.
        (Class::Effect, _) if by_path && is_lasting(number, a) => Here::Told(EROFS),
        (Class::Effect, _) => Here::NotDone,
        (Class::Query, SYS_ioctl) if !REQUESTS.contains(&(a[1] as u32)) => Here::Told(ENOTTY),
        (Class::Query, _) => Here::Pass,
        (Class::Input, SYS_getdents | SYS_getdents64 | SYS_fchdir) => Here::Pass,
        (Class::Input, SYS_getsockname | SYS_getpeername | SYS_getsockopt | SYS_connect) => {
            Here::Told(ENOTSOCK)
        }
        // Copies from file to file. Programs read and write instead.
        _ => Here::Told(EINVAL),
    }
}

impl Rerun<'_> {
    /// Deals with a call that is about a file of this machine: it belongs to the program, or is not recorded. `None`: it is
    /// about something else.
    pub fn of_this_machine(&mut self, pid: i32, made: &Made, r: Regs) -> Done<Option<()>> {
        let file = made.file().filter(|f| self.is_kernels(*f));
        let is_here = |t: &Vec<u8>| !t.is_empty() && self.files.is_here(t);
        let by_path = is_asked_by_path(made.class) && made.texts.iter().flatten().any(is_here);
        if !by_path && (file.is_none() || made.class == Class::Open) {
            return Ok(None);
        }
        let is_memory = !by_path && file.is_some_and(|f| self.memory.contains(&f));
        match here(made.number, &made.args, made.class, (by_path, is_memory)) {
            Here::Pass => match self.may_pass(pid, made) {
                true => self.pass(pid),
                false => self.answer(pid, -EINVAL as i64 as u64),
            },
            Here::Told(e) => self.answer(pid, -e as i64 as u64),
            Here::NotDone => {
                self.lasting_here(made);
                self.answer(pid, 0)
            }
            Here::Open if !self.is_settled(pid, made) => self.answer(pid, -EACCES as i64 as u64),
            Here::Open => self.open_here(pid, After::Open(Box::new(r), None, true), r),
            Here::Map => self.map(pid, made, r),
        }
        .map(Some)
    }

    /// An effect on a file of this machine: whether the recorded program did the same is not looked at.
    fn lasting_here(&mut self, made: &Made) {
        if is_lasting(made.number, &made.args) {
            self.lasting(made);
        }
    }

    /// Whether the kernel does what concerns an open file: it is memory, or its content is that of this machine.
    pub fn is_kernels(&self, file: FileId) -> bool {
        self.files.own.contains(&file) || self.foreign.get(&file).is_some_and(|f| f.is_real)
    }

    /// Whether a call is one that the kernel may do.
    pub fn may_pass(&mut self, pid: i32, made: &Made) -> bool {
        let tid = self.process(pid).task.thread.tid();
        may_run(made.number, &made.args, (pid, tid))
    }

    /// The kernel does a call.
    pub fn pass(&mut self, pid: i32) -> Done {
        self.run_call(pid, None)
    }

    /// The kernel does a call, and then something is done about its result.
    pub fn pass_and(&mut self, pid: i32, after: After) -> Done {
        self.run_call(pid, Some(after))
    }

    /// Whether no other process can change the path that was looked at. Programs seldom have paths in memory that they share.
    pub fn is_settled(&self, pid: i32, made: &Made) -> bool {
        if !self.shares {
            return true;
        }
        let at = match made.number as i64 {
            SYS_open | SYS_execve => made.args[0],
            _ => made.args[1],
        };
        // With the zero byte behind it.
        let len = |t: &Vec<u8>| t.len() as u64 + 1;
        let text = made.given.as_ref();
        text.is_some_and(|t| is_private(pid, at, len(t)))
    }

    /// The kernel opens a file for reading. It waits for nobody, whatever lies there. No other process does anything until it
    /// has: paths through `/proc` may depend on them.
    pub fn open_here(&mut self, pid: i32, after: After, r: Regs) -> Done {
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let how = (flags(r.orig_rax, &args) | O_NONBLOCK | O_NOCTTY) as u64;
        let mut new = r;
        match r.orig_rax as i64 {
            SYS_open => new.rsi = how,
            _ => new.rdx = how,
        }
        self.process(pid).task.thread.set_regs(&new)?;
        self.pass_and(pid, after)?;
        let tid = self.process(pid).task.thread.tid();
        let halt = halt_of(tid)?;
        self.halted(tid, halt)
    }

    /// Lets the kernel do the call that stands in the registers.
    pub fn run_call(&mut self, pid: i32, after: Option<After>) -> Done {
        let p = self.process(pid);
        let r = p.task.thread.regs()?;
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        if !may_run(r.orig_rax, &args, (pid, p.task.thread.tid())) {
            let name = hindsight_timeline::syscall_name(r.orig_rax);
            let what = format!("the program would have made a call that may not be made: {name}");
            return Err(Error::Limit(what).into());
        }
        if after.is_some() {
            p.task.after = after;
            p.task.thread.step_call(0);
        } else {
            p.task.thread.go_on(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::class::class_now;
    use hindsight_timeline::{syscall_name, syscall_number};

    /// What the kernel does with files of this machine. Whoever adds a call says so here.
    #[test]
    fn few_calls_concern_files_of_this_machine() {
        let passes = |n: &u64| {
            let class = class_now(*n, &[0; 6]);
            let asked =
                class.is_matched() && here(*n, &[0; 6], class, (false, false)) == Here::Pass;
            asked && may_run(*n, &[0; 6], (1, 1))
        };
        let other = |name: &str| {
            let n = syscall_number(name).unwrap();
            here(n, &[0; 6], class_now(n, &[0; 6]), (false, true))
        };
        let names: Vec<String> = (0..1000).filter(passes).map(syscall_name).collect();
        assert_eq!(names.join("\n"), include_str!("pass/calls.txt").trim_end());
        for name in [
            "sendfile",
            "splice",
            "copy_file_range",
            "sendmsg",
            "connect",
        ] {
            assert!(matches!(other(name), Here::Told(_)), "{name}");
        }
        let unlink = syscall_number("unlink").unwrap();
        let by_path = here(unlink, &[0; 6], Class::Effect, (true, false));
        assert_eq!(by_path, Here::Told(EROFS));
        for name in ["write", "ftruncate", "pwritev"] {
            assert_eq!(other(name), Here::Pass, "{name}");
        }
    }
}
