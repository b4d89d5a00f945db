//! A program that runs until it has come to a place. A debug register of the processor stops it, so nothing in its memory is
//! changed.
//!
//! Only its first thread is traced. Processes that it makes run freely.

use crate::thread::ptrace;
use crate::tracee::{Ended, Halt, halt_of};
use crate::{Mapping, Process, Regs, Thread};
use std::ffi::OsStr;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a debug register watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched {
    /// It stops before the instruction at this address.
    Instruction(u64),
    /// It stops behind an instruction that reads or writes the eight bytes at this address, a multiple of eight.
    Word(u64),
}

/// Why the program stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It has come to what is watched.
    Hit,
    /// It has loaded another program.
    Loaded,
    /// It is over.
    Ended(Ended),
}

/// A program that was started. It ends when this is dropped.
pub struct Guided {
    thread: Thread,
    process: Process,
    /// A signal that it gets when it goes on.
    signal: i32,
    leaves: bool,
}

/// The flag with which the processor does not stop before the next instruction.
const RESUME: u64 = 1 << 16;
/// `si_code` of a stop that debug registers caused.
const TRAP_HWBKPT: i32 = 4;
/// Register 0 is in use.
const ON: usize = 1;
/// It watches eight bytes that are read or written.
const ACCESS: usize = 0b1011 << 16;

/// Where the kernel shows a debug register.
fn debug_register(n: usize) -> usize {
    offset_of!(libc::user, u_debugreg) + n * size_of::<u64>()
}

impl Guided {
    /// Starts a program with these arguments, of which the first is its name. It stands before its first instruction. It has the
    /// environment, the folder and the descriptors of this process, and addresses that are the same each time. If it is `aside`,
    /// its output goes to the standard error.
    ///
    /// # Errors
    /// It cannot be started or traced.
    pub fn start(program: &Path, args: &[impl AsRef<OsStr>], aside: bool) -> io::Result<Guided> {
        let mut command = Command::new(program);
        if let Some((name, rest)) = args.split_first() {
            command.arg0(name).args(rest);
        }
        if aside {
            command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
        }
        let trace = || {
            // SAFETY: plain system calls, which access no memory.
            let done = unsafe {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0)
            };
            match done {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: the closure only makes system calls.
        let child = unsafe { command.pre_exec(trace) }.spawn()?;
        let pid = child.id() as i32;
        // It stops once it is loaded.
        if let Halt::Ended(_) = halt_of(pid)? {
            return Err(io::Error::other("it ended before it began"));
        }
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
        ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as usize)?;
        Ok(Guided {
            thread: Thread::traced(pid, pid),
            process: Process::open(pid)?,
            signal: 0,
            leaves: false,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.thread.tid()
    }

    /// Its registers.
    ///
    /// # Errors
    /// It is gone.
    pub fn regs(&self) -> io::Result<Regs> {
        self.thread.regs()
    }

    /// What it has mapped.
    ///
    /// # Errors
    /// It is gone.
    pub fn mappings(&self) -> io::Result<Vec<Mapping>> {
        self.process.mappings()
    }

    /// Watches something, and nothing else. What stands at the place where the program is does not stop it now.
    ///
    /// # Errors
    /// The kernel gives no debug registers, or the address is not the program's.
    pub fn watch(&self, what: Option<Watched>) -> io::Result<()> {
        let set = |n, value| {
            ptrace(libc::PTRACE_POKEUSER, self.pid(), debug_register(n), value).map(|_| ())
        };
        set(7, 0)?;
        match what {
            None => Ok(()),
            Some(Watched::Instruction(at)) => {
                let mut regs = self.regs()?;
                if regs.rip == at {
                    regs.eflags |= RESUME;
                    self.thread.set_regs(&regs)?;
                }
                set(0, at as usize)?;
                set(7, ON)
            }
            Some(Watched::Word(at)) => {
                set(0, at as usize)?;
                set(7, ON | ACCESS)
            }
        }
    }

    /// Lets it run until something happens. It gets all signals that are sent to it.
    ///
    /// # Errors
    /// It is gone.
    pub fn go_on(&mut self) -> io::Result<Event> {
        loop {
            self.thread.go_on(std::mem::take(&mut self.signal));
            match halt_of(self.pid())? {
                Halt::Ended(end) => {
                    self.leaves = true;
                    return Ok(Event::Ended(end));
                }
                Halt::Loaded => return Ok(Event::Loaded),
                Halt::Signal(s) if s.number == libc::SIGTRAP && s.code == TRAP_HWBKPT => {
                    return Ok(Event::Hit);
                }
                Halt::Signal(s) => self.signal = s.number,
                _ => {}
            }
        }
    }

    /// Stops tracing it, so that a debugger can. It stands still until one lets it go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn leave(mut self) -> io::Result<i32> {
        self.watch(None)?;
        let pid = self.pid();
        ptrace(libc::PTRACE_DETACH, pid, 0, libc::SIGSTOP as usize)?;
        self.leaves = true;
        Ok(pid)
    }
}

impl Drop for Guided {
    fn drop(&mut self) {
        if !self.leaves {
            self.thread.kill();
            // No other process may wait for it.
            while !matches!(halt_of(self.pid()), Ok(Halt::Ended(_)) | Err(_)) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shell's entry is met once, and the program ends with its status behind it.
    #[test]
    fn a_program_is_led_to_an_instruction_and_a_word() {
        let mut p = Guided::start(Path::new("/bin/sh"), &["sh", "-c", "exit 7"], true).unwrap();
        let elf = std::fs::read("/bin/sh").unwrap();
        let entry = u64::from_le_bytes(elf[24..32].try_into().unwrap());
        let real = std::fs::canonicalize("/bin/sh").unwrap();
        let base = |p: &Guided| {
            let all = p.mappings().unwrap();
            let of = all.iter().filter(|m| Path::new(&m.name) == real);
            of.map(|m| m.start).min().unwrap()
        };
        let at = base(&p) + entry;
        p.watch(Some(Watched::Instruction(at))).unwrap();
        assert_eq!(p.go_on().unwrap(), Event::Hit);
        let regs = p.regs().unwrap();
        assert_eq!(regs.rip, at);
        // The number of arguments, which the program reads.
        p.watch(Some(Watched::Word(regs.rsp / 8 * 8))).unwrap();
        assert_eq!(p.go_on().unwrap(), Event::Hit);
        let behind = p.regs().unwrap().rip;
        assert!((at + 1..at + 64).contains(&behind), "{behind:#x}");
        p.watch(Some(Watched::Instruction(at))).unwrap();
        assert_eq!(p.go_on().unwrap(), Event::Ended(Ended::Status(7)));
    }

    #[test]
    fn one_that_is_left_stands_still_and_one_that_is_dropped_ends() {
        let start = || Guided::start(Path::new("/bin/sleep"), &["sleep", "1000"], true).unwrap();
        let stands = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let p = start();
        let pid = p.pid();
        drop(p);
        assert!(stands(pid).is_err());
        let pid = start().leave().unwrap();
        let begin = std::time::Instant::now();
        while !stands(pid).unwrap().contains(") T ") {
            assert!(begin.elapsed().as_secs() < 60);
            std::thread::yield_now();
        }
        // SAFETY: a plain system call; the process is this test's own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let _ = crate::halt_of(pid);
    }
}
