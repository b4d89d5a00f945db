use crate::rseq::Rseq;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4211;
const PTRACE_EVENT_STOP: i32 = 128;
const NT_PRSTATUS: usize = 1;

/// The status of a stop at a system call's entry or end (see [`Thread::step_call`]).
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// General-purpose registers in the layout of `ptrace`.
#[derive(Clone, Copy)]
pub struct Regs(libc::user_regs_struct);

impl Regs {
    pub fn zeroed() -> Regs {
        // SAFETY: the structure holds only integers.
        Regs(unsafe { MaybeUninit::zeroed().assume_init() })
    }
}

impl Deref for Regs {
    type Target = libc::user_regs_struct;
    fn deref(&self) -> &libc::user_regs_struct {
        &self.0
    }
}

impl DerefMut for Regs {
    fn deref_mut(&mut self) -> &mut libc::user_regs_struct {
        &mut self.0
    }
}

/// The result of waiting for a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It still runs.
    Running,
    /// It was interrupted.
    Interrupted,
    /// It stopped with its whole process (`SIGSTOP` and the like).
    Halted,
    /// This signal is about to be delivered.
    Signal(i32),
    /// It enters or leaves a system call (see [`Thread::step_call`]).
    Call,
    /// It has ended.
    Gone,
}

/// A thread that the calling thread traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thread {
    pid: i32,
    tid: i32,
}

pub(crate) fn ptrace(request: libc::c_uint, tid: i32, addr: usize, data: usize) -> io::Result<i64> {
    // SAFETY: callers pass addresses of memory that the request reads or writes, or numbers.
    let r = unsafe { libc::ptrace(request, tid, addr, data) };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r)
    }
}

impl Thread {
    /// Begins to trace a thread of process `pid`. The thread continues to run.
    pub fn seize(pid: i32, tid: i32) -> io::Result<Thread> {
        Thread::seize_with(pid, tid, libc::PTRACE_O_TRACESYSGOOD)
    }

    /// The same with options of `ptrace`.
    pub(crate) fn seize_with(pid: i32, tid: i32, options: i32) -> io::Result<Thread> {
        ptrace(libc::PTRACE_SEIZE, tid, 0, options as usize)?;
        Ok(Thread { pid, tid })
    }

    /// A thread that is traced already: a child of a traced process.
    pub(crate) fn traced(pid: i32, tid: i32) -> Thread {
        Thread { pid, tid }
    }

    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Asks the thread to stop as soon as it can.
    pub fn interrupt(&self) {
        let _ = ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0);
    }

    /// The thread's state at this moment. The end of a process's first thread is left for its parent to see.
    pub fn poll(&self) -> Stop {
        let first = self.tid == self.pid;
        let ends = if first { 0 } else { libc::WEXITED };
        let flags = libc::WSTOPPED | ends | libc::__WALL | libc::WNOHANG;
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the pointer is valid and zero is a valid value. The fields that are read belong to this
        // kind of result.
        let (r, code, status, who) = unsafe {
            let r = libc::waitid(
                libc::P_PID,
                self.tid as libc::id_t,
                info.as_mut_ptr(),
                flags,
            );
            let i = info.assume_init();
            (r, i.si_code, i.si_status(), i.si_pid())
        };
        if r < 0 {
            return Stop::Gone;
        }
        if who == 0 {
            let gone = crate::Status::of_thread(self.pid, self.tid).is_ok_and(|s| s.has_ended());
            return if first && gone {
                Stop::Gone
            } else {
                Stop::Running
            };
        }
        match code {
            libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED => Stop::Gone,
            _ if status == CALL_STOP => Stop::Call,
            _ if status == PTRACE_EVENT_STOP << 8 | libc::SIGTRAP => Stop::Interrupted,
            _ if status >> 8 == PTRACE_EVENT_STOP => Stop::Halted,
            _ => Stop::Signal(status & 0x7f),
        }
    }

    /// The registers of a stopped thread. Fails if the thread runs code that is not 64-bit.
    pub fn regs(&self) -> io::Result<Regs> {
        let mut r = Regs::zeroed();
        let mut iov = libc::iovec {
            iov_base: (&raw mut r.0).cast(),
            iov_len: size_of::<libc::user_regs_struct>(),
        };
        ptrace(
            libc::PTRACE_GETREGSET,
            self.tid,
            NT_PRSTATUS,
            &raw mut iov as usize,
        )?;
        if iov.iov_len != size_of::<libc::user_regs_struct>() {
            return Err(io::Error::from_raw_os_error(libc::ENOEXEC));
        }
        Ok(r)
    }

    /// Sets the registers of a stopped thread.
    pub fn set_regs(&self, r: &Regs) -> io::Result<()> {
        let mut copy = r.0;
        let mut iov = libc::iovec {
            iov_base: (&raw mut copy).cast(),
            iov_len: size_of::<libc::user_regs_struct>(),
        };
        ptrace(
            libc::PTRACE_SETREGSET,
            self.tid,
            NT_PRSTATUS,
            &raw mut iov as usize,
        )
        .map(drop)
    }

    /// The signals that a stopped thread blocks. Calls that wait with another mask do not count.
    pub fn mask(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        ptrace(libc::PTRACE_GETSIGMASK, self.tid, 8, &raw mut mask as usize)?;
        Ok(mask)
    }

    /// Sets the signals that a stopped thread blocks.
    pub fn set_mask(&self, mask: u64) -> io::Result<()> {
        ptrace(
            libc::PTRACE_SETSIGMASK,
            self.tid,
            8,
            &raw const mask as usize,
        )
        .map(drop)
    }

    /// The area of restartable sequences that a stopped thread has registered.
    pub fn rseq(&self) -> Option<Rseq> {
        let mut words = [0u32; 6];
        ptrace(
            PTRACE_GET_RSEQ_CONFIGURATION,
            self.tid,
            size_of_val(&words),
            words.as_mut_ptr() as usize,
        )
        .ok()?;
        let addr = words[0] as u64 | (words[1] as u64) << 32;
        (addr != 0).then_some(Rseq {
            addr,
            len: words[2],
            sig: words[3],
        })
    }

    /// Whether system calls of a stopped thread become signals (`PR_SET_SYSCALL_USER_DISPATCH`). Kernels before 6.4 do not
    /// say.
    pub fn dispatches(&self) -> bool {
        // Mode, selector, start and length.
        let mut words = [0u64; 4];
        ptrace(
            PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG,
            self.tid,
            size_of_val(&words),
            words.as_mut_ptr() as usize,
        )
        .is_ok_and(|_| words[0] != 0)
    }

    /// Lets a stopped thread continue, and delivers `signal` to it (0: none).
    pub fn go_on(&self, signal: i32) {
        let _ = ptrace(libc::PTRACE_CONT, self.tid, 0, signal as usize);
    }

    /// Lets a stopped thread continue to the next entry or end of a system call.
    pub fn step_call(&self, signal: i32) {
        let _ = ptrace(libc::PTRACE_SYSCALL, self.tid, 0, signal as usize);
    }

    /// Lets a stopped thread continue, and traces it no longer.
    pub fn release(&self) {
        let _ = ptrace(libc::PTRACE_DETACH, self.tid, 0, 0);
    }

    /// Sends the thread a signal that carries `SI_QUEUE`.
    pub fn queue(&self, signal: i32) {
        let mut info = [0u64; 16];
        const SI_QUEUE: i32 = -1;
        info[0] = signal as u64;
        info[1] = SI_QUEUE as u32 as u64;
        // SAFETY: these are 128 bytes of a valid `siginfo_t`, which the kernel only reads.
        unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                self.pid,
                self.tid,
                signal,
                info.as_ptr(),
            )
        };
    }
}
