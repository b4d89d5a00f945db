//! Programs that are started to be traced, with all processes that they start.
//!
//! A filter decides which system calls stop a process: the others cost nothing. Everything belongs to the thread that has
//! started the program.

use crate::Thread;
use crate::thread::ptrace;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null;
use std::time::{Duration, Instant};

const LANDLOCK_RESTRICT_SELF: i64 = 446;
const EVENT_SECCOMP: i32 = libc::PTRACE_EVENT_SECCOMP;

/// A program to be started.
pub struct Launch {
    /// The file.
    pub program: CString,
    pub args: Vec<CString>,
    pub env: Vec<CString>,
    /// The working directory. `None`: that of this process.
    pub folder: Option<CString>,
    /// Which system calls stop it (see [`filter`]).
    pub filter: Vec<libc::sock_filter>,
    /// Landlock's rules that it obeys.
    pub rules: Option<OwnedFd>,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Status(i32),
    Signal(i32),
}

/// A signal that is about to be delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalSent {
    pub number: i32,
    /// `si_code`.
    pub code: i32,
    /// Who sent it, if a process did.
    pub sender: i32,
}

/// Why a traced process stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// It is about to make a system call that the filter does not let pass.
    Call,
    /// A system call has returned (see [`Thread::step_call`]).
    Returned,
    /// It has made this process, which stands still too.
    Made(i32),
    /// It has loaded another program.
    Loaded,
    /// A signal is about to be delivered.
    Signal(SignalSent),
    /// It is over, and does not exist any more.
    Ended(Ended),
    /// It stopped for another reason.
    Other,
}

/// A filter that stops a process at all system calls but these. Calls of other architectures end it. `limits` are calls of `pass`
/// at which it stops if an argument's low half is at least a number: the call, the argument, and the number.
pub fn filter(pass: &[i64], limits: &[(i64, u32, u32)]) -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const X86_64: u32 = 0xc000_003e;
    /// Numbers of another kind of calls (x32) begin here.
    const X32: u32 = 0x4000_0000;
    const NR: u32 = 0;
    const ARCH: u32 = 4;
    /// The low half of the first argument.
    const FIRST: u32 = 16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let (allow, trace, kill) = (
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(RETURN, libc::SECCOMP_RET_TRACE, 0, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
    );
    let mut out = vec![
        step(LOAD, ARCH, 0, 0),
        step(EQUAL, X86_64, 1, 0),
        kill,
        step(LOAD, NR, 0, 0),
        step(ABOVE, X32, 0, 1),
        kill,
    ];
    for (nr, argument, least) in limits {
        out.extend([
            step(EQUAL, *nr as u32, 0, 4),
            step(LOAD, FIRST + 8 * argument, 0, 0),
            step(ABOVE, *least, 0, 1),
            trace,
            allow,
        ]);
    }
    for nr in pass {
        out.extend([step(EQUAL, *nr as u32, 0, 1), allow]);
    }
    out.push(trace);
    out
}

/// Starts a program. It has a session of its own, sees addresses that are the same each time, and reads and writes
/// `/dev/null`. Its first stop is that of the program loaded.
///
/// # Errors
/// The program cannot be started.
pub fn launch(l: &Launch) -> io::Result<Thread> {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|s| s.as_ptr()).chain([null()]).collect()
    };
    let (args, env) = (pointers(&l.args), pointers(&l.env));
    let filter = libc::sock_fprog {
        len: l.filter.len() as u16,
        filter: l.filter.as_ptr().cast_mut(),
    };
    let folder = l.folder.as_ref().map_or(null(), |f| f.as_ptr());
    let rules = l.rules.as_ref().map_or(-1, |r| r.as_raw_fd());
    // SAFETY: the child only makes system calls, with memory that was made before, until it executes or ends.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: as above; all pointers are to memory of this function.
        0 => unsafe { begin(l, &args, &env, &filter, folder, rules) },
        _ => {}
    }
    let t = Thread::traced(pid, pid);
    // It stops itself, so that it is ready for the filter.
    wait_for(pid)?;
    let options = libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACESYSGOOD;
    ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as usize)?;
    t.go_on(0);
    loop {
        match next_halt()? {
            (p, Halt::Loaded) if p == pid => return Ok(t),
            (p, Halt::Ended(Ended::Status(n))) if p == pid && n > 0 => {
                return Err(io::Error::from_raw_os_error(n));
            }
            (p, Halt::Ended(_)) if p == pid => {
                return Err(io::Error::other("it ended before it began"));
            }
            _ => t.go_on(0),
        }
    }
}

/// What the child does. It ends with the number of an error.
///
/// # Safety
/// For a child that has just been forked. The pointers must be valid, and lists end with a null pointer.
unsafe fn begin(
    l: &Launch,
    args: &[*const libc::c_char],
    env: &[*const libc::c_char],
    filter: &libc::sock_fprog,
    folder: *const libc::c_char,
    rules: i32,
) -> ! {
    // SAFETY: these are plain system calls; what they point to is valid by this function's contract.
    unsafe {
        let check = |done: bool| {
            if !done {
                let e = *libc::__errno_location();
                libc::_exit(e.clamp(1, 255));
            }
        };
        libc::setsid();
        libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        if !folder.is_null() {
            check(libc::chdir(folder) == 0);
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        check(null >= 0);
        for fd in 0..3 {
            check(libc::dup2(null, fd) == fd);
        }
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        if rules >= 0 {
            check(libc::syscall(LANDLOCK_RESTRICT_SELF, rules, 0) == 0);
        }
        check(libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) == 0);
        // The program finds signals as a shell would leave them.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let none: u64 = 0;
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &none,
            std::ptr::null_mut::<u64>(),
            8,
        );
        check(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0);
        libc::raise(libc::SIGSTOP);
        check(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, filter) == 0);
        libc::execve(l.program.as_ptr(), args.as_ptr(), env.as_ptr());
        check(false);
        libc::_exit(1)
    }
}

fn wait_for(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: the kernel fills in the status.
    match unsafe { libc::waitpid(pid, &mut status, libc::__WALL) } {
        -1 => Err(io::Error::last_os_error()),
        _ if libc::WIFSTOPPED(status) => Ok(status),
        _ => Err(io::Error::other("it ended before it began")),
    }
}

/// So long it is asked again and again whether something has happened, before the processor is given away for longer.
const SHORT: Duration = Duration::from_micros(50);
/// No longer is slept at a time.
const LONG: Duration = Duration::from_millis(5);

/// Waits for any process that this thread traces to stand still, or to end.
///
/// # Errors
/// There is none.
pub fn next_halt() -> io::Result<(i32, Halt)> {
    let (pid, status) = wait(-1, 0)?.ok_or(io::ErrorKind::TimedOut)?;
    halt(pid, status)
}

/// Waits for this process to stand still, or to end, whatever others do.
///
/// # Errors
/// It is none that this thread traces.
pub fn halt_of(pid: i32) -> io::Result<Halt> {
    let (pid, status) = wait(pid, 0)?.ok_or(io::ErrorKind::TimedOut)?;
    Ok(halt(pid, status)?.1)
}

/// Like [`next_halt`], for so long. `None`: nothing has happened until then.
///
/// # Errors
/// There is no process.
pub fn next_halt_within(longest: Duration) -> io::Result<Option<(i32, Halt)>> {
    let begin = Instant::now();
    loop {
        if let Some((pid, status)) = wait(-1, libc::WNOHANG)? {
            return halt(pid, status).map(Some);
        }
        let waited = begin.elapsed();
        if waited >= longest {
            return Ok(None);
        }
        match waited < SHORT {
            true => std::thread::yield_now(),
            // It is noticed late by a part of the time that it took.
            false => std::thread::sleep((waited / 8).clamp(SHORT, LONG)),
        }
    }
}

/// A process that this thread traces, and its status. -1: any.
fn wait(which: i32, flags: i32) -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel fills in the status.
        match unsafe { libc::waitpid(which, &mut status, libc::__WALL | libc::__WNOTHREAD | flags) }
        {
            -1 => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
            0 => return Ok(None),
            pid => return Ok(Some((pid, status))),
        }
    }
}

fn halt(pid: i32, status: i32) -> io::Result<(i32, Halt)> {
    if libc::WIFEXITED(status) {
        return Ok((pid, Halt::Ended(Ended::Status(libc::WEXITSTATUS(status)))));
    }
    if libc::WIFSIGNALED(status) {
        return Ok((pid, Halt::Ended(Ended::Signal(libc::WTERMSIG(status)))));
    }
    let signal = libc::WSTOPSIG(status);
    let halt = match status >> 16 {
        EVENT_SECCOMP => Halt::Call,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            let mut child: libc::c_ulong = 0;
            ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &raw mut child as usize)?;
            Halt::Made(child as i32)
        }
        libc::PTRACE_EVENT_EXEC => Halt::Loaded,
        0 if signal == libc::SIGTRAP | 0x80 => Halt::Returned,
        0 => sent(pid, signal),
        _ => Halt::Other,
    };
    Ok((pid, halt))
}

fn sent(pid: i32, number: i32) -> Halt {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // It fails if the whole process was stopped.
    if ptrace(libc::PTRACE_GETSIGINFO, pid, 0, info.as_mut_ptr() as usize).is_err() {
        return Halt::Other;
    }
    // SAFETY: zero is a valid value, and the kernel has filled it in. The sender is there whatever the kind is.
    let (code, sender) = unsafe {
        let info = info.assume_init();
        (info.si_code, info.si_pid())
    };
    Halt::Signal(SignalSent {
        number,
        code,
        sender,
    })
}

impl Thread {
    /// The first thread of a process that a traced one has made.
    pub fn of_child(pid: i32) -> Thread {
        Thread::traced(pid, pid)
    }

    /// Another thread of a traced process, which one of its threads has made.
    pub fn of_process(pid: i32, tid: i32) -> Thread {
        Thread::traced(pid, tid)
    }

    /// Whether a traced thread stands still. It does so no more once something ends its process.
    pub fn stands(&self) -> bool {
        let text = std::fs::read(format!("/proc/{}/stat", self.tid())).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        (text.rsplit_once(") ")).is_some_and(|(_, behind)| behind.starts_with('t'))
    }

    /// The list of locks that others get if a traced thread ends while it holds them (`set_robust_list`).
    pub fn robust_list(&self) -> Option<u64> {
        let (mut head, mut len) = (0u64, 0usize);
        // SAFETY: the kernel writes a pointer and a length to where these pointers lead, which is memory of their sizes.
        let r = unsafe {
            libc::syscall(
                libc::SYS_get_robust_list,
                self.tid(),
                &raw mut head,
                &raw mut len,
            )
        };
        (r == 0 && head != 0).then_some(head)
    }

    /// What the kernel says of a traced process: whether it sleeps, and how much processor time it has used, in ticks.
    /// `None`: it is gone.
    pub fn activity(&self) -> Option<(bool, u64)> {
        let text = std::fs::read(format!("/proc/{}/stat", self.tid())).ok()?;
        let text = String::from_utf8_lossy(&text);
        // The program's name stands in parentheses, and may have any characters.
        let (_, behind) = text.rsplit_once(") ")?;
        let mut fields = behind.split(' ');
        let sleeps = fields.next()? == "S";
        let mut ticks = fields.skip(10).map(|f| f.parse::<u64>().ok());
        let used = ticks.next()??.saturating_add(ticks.next()??);
        Some((sleeps, used))
    }

    /// Ends a traced process.
    pub fn kill(&self) {
        // SAFETY: a plain system call that accesses no memory.
        unsafe { libc::kill(self.tid(), libc::SIGKILL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program is stopped at calls that may matter, and one of them is answered for it.
    #[test]
    fn calls_are_answered_in_the_kernels_place() {
        let c = |s: &str| CString::new(s).unwrap();
        let launch = Launch {
            program: c("/bin/sh"),
            args: vec![c("sh"), c("-c"), c("kill -9 1; exit $?")],
            env: Vec::new(),
            folder: None,
            filter: filter(&[libc::SYS_brk, libc::SYS_exit_group], &[]),
            rules: None,
        };
        let t = super::launch(&launch).unwrap();
        let (mut kills, mut others) = (0, 0);
        t.go_on(0);
        let status = loop {
            let (pid, halt) = next_halt().unwrap();
            assert_eq!(pid, t.tid());
            match halt {
                Halt::Call => {
                    let mut r = t.regs().unwrap();
                    assert!(r.orig_rax as i64 != libc::SYS_brk);
                    if r.orig_rax as i64 == libc::SYS_kill {
                        kills += 1;
                        (r.orig_rax, r.rax) = (u64::MAX, 0);
                        t.set_regs(&r).unwrap();
                    } else {
                        others += 1;
                    }
                    t.go_on(0);
                }
                Halt::Signal(s) => t.go_on(s.number),
                Halt::Ended(end) => break end,
                _ => t.go_on(0),
            }
        };
        assert_eq!((status, kills), (Ended::Status(0), 1));
        assert!(others > 5);
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let launch = Launch {
            program: CString::new("/nonexistent").unwrap(),
            args: Vec::new(),
            env: Vec::new(),
            folder: None,
            filter: filter(&[], &[]),
            rules: None,
        };
        let e = super::launch(&launch).err().unwrap();
        assert_eq!(e.raw_os_error(), Some(libc::ENOENT));
    }
}
