//! A process that is made to become another one: it stands still before the first instruction of its program.

use crate::process::{Process, wait};
use crate::thread::{Stop, Thread};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null;
use std::time::{Duration, Instant};

/// More descriptors than this process has for itself.
const MORE: u64 = 64;
/// What threads of a process share.
const TOGETHER: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;
/// It may not choose the id, or the id is taken, or this kernel has no `clone3`: another way is there.
const OTHERWISE: [i32; 4] = [libc::EPERM, libc::EEXIST, libc::EINVAL, libc::ENOSYS];
/// Longest time until the program is loaded.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is started, and with which descriptors.
pub struct Still {
    /// A descriptor of the program's file, perhaps only as a name (`O_PATH`). None of its instructions are executed.
    pub program: RawFd,
    /// The program's arguments, its name first.
    pub arguments: Vec<CString>,
    /// A descriptor of the working directory, perhaps only as a name. `None`: that of this process.
    pub folder: Option<RawFd>,
    /// Descriptors of this process, and the numbers that they get there. It has no others.
    pub descriptors: Vec<(RawFd, RawFd)>,
    /// The process id that it gets, if this process may choose that and the id is free. It gets another one otherwise.
    pub pid: i32,
}

/// Starts a process that stands still where its program has been loaded and has done nothing. This thread traces it. It is
/// killed if this process ends before it has let it go.
///
/// # Errors
/// - A descriptor's number is beyond what this process may have.
/// - The program or the folder cannot be used.
pub fn start_still(still: &Still) -> io::Result<Process> {
    let arguments: Vec<*const libc::c_char> = still
        .arguments
        .iter()
        .map(|a| a.as_ptr())
        .chain([null()])
        .collect();
    let mut sorted = still.descriptors.clone();
    sorted.sort_by_key(|d| d.1);
    let mut kept = vec![-1; sorted.len()];
    let (gate_out, gate_in) = pipe()?;
    let room = Room::for_descriptors(&sorted)?;
    let environment = [null()];
    let pid = fork_as(still.pid)?;
    if pid == 0 {
        // SAFETY: this is the child; all pointers are to memory of this function, and lists end with a null pointer.
        unsafe {
            begin(
                still.program,
                &arguments,
                &environment,
                still.folder.unwrap_or(-1),
                (&sorted, &mut kept, &room),
                (gate_out.as_raw_fd(), gate_in.as_raw_fd()),
            )
        }
    }
    drop(gate_out);
    let thread = loaded(pid, gate_in).inspect_err(|_| end(pid))?;
    match thread {
        Some(thread) => Process::with_thread(pid, thread).inspect_err(|_| end(pid)),
        None => Err(status_of(pid)),
    }
}

/// Traces a child that waits for a byte, and lets it go until its program is loaded. `None`: it has ended before.
fn loaded(pid: i32, gate_in: OwnedFd) -> io::Result<Option<Thread>> {
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
    let thread = Thread::seize_with(pid, pid, options)?;
    File::from(gate_in).write_all(&[1])?;
    let until = Instant::now() + PATIENCE;
    loop {
        match wait(thread, until) {
            // The event of a program that is loaded. The call that did it has not returned yet.
            Stop::Signal(libc::SIGTRAP) => thread.step_call(0),
            Stop::Call => return Ok(Some(thread)),
            Stop::Signal(s) => thread.go_on(s),
            Stop::Interrupted | Stop::Halted => thread.go_on(0),
            Stop::Gone => return Ok(None),
            Stop::Running => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Ends a child and takes its status. Whoever traces its threads gets each of their ends first: before that the kernel does not
/// tell that of the process.
pub fn end(pid: i32) {
    let threads: Vec<i32> = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(all) => all
            .filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok())
            .collect(),
        Err(_) => Vec::new(),
    };
    // SAFETY: plain system calls that access no memory.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        for tid in threads.into_iter().filter(|t| *t != pid) {
            // It fails at once for a thread that this one does not trace.
            libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL);
        }
        libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL);
    }
}

/// Stops a process, as SIGSTOP does. None of its threads, which are traced and stand still, executes anything before that: each of
/// them gets the signal.
pub fn halt(process: &Process) {
    for t in process.threads() {
        // SAFETY: a plain system call that accesses no memory.
        unsafe { libc::syscall(libc::SYS_tgkill, process.pid(), t.tid(), libc::SIGSTOP) };
    }
}

/// Arguments of `clone3`: its first ten words (`struct clone_args`). The new thread or process gets the one id at an address.
fn clone_arguments(flags: u64, signal: i32, id: u64) -> [u64; 10] {
    [flags, 0, 0, 0, signal as u64, 0, 0, 0, id, 1]
}

impl Process {
    /// Makes the stopped thread `maker` make another one, with the system call instruction at `at`. It stands still before it
    /// executes anything, and this thread traces it. It shares all that threads of a process share, and blocks the same
    /// signals. Eighty-eight bytes at `room` are overwritten. The new thread gets the id `tid` if this process may choose that
    /// and it is free. It gets another one otherwise.
    ///
    /// # Errors
    /// The kernel refuses it, or memory is out of reach.
    pub fn make_thread(
        &mut self,
        (maker, at): (Thread, u64),
        room: u64,
        tid: i32,
    ) -> io::Result<Thread> {
        // Who makes it is traced, so it is traced, too, and stops at once.
        let flags = (TOGETHER | libc::CLONE_PTRACE) as u64;
        let args = clone_arguments(flags, 0, room + 80);
        let bytes: Vec<u8> = args.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.write(room, &bytes)?;
        self.write(room + 80, &i64::from(tid).to_le_bytes())?;
        let with_id = [room, bytes.len() as u64, 0, 0, 0, 0];
        let made = self.call(maker, at, (libc::SYS_clone3, with_id));
        let made = match made {
            Ok(made) => made,
            Err(e) if !OTHERWISE.contains(&e.raw_os_error().unwrap_or(0)) => return Err(e),
            Err(_) => self.call(maker, at, (libc::SYS_clone, [flags, 0, 0, 0, 0, 0]))?,
        };
        let new = Thread::traced(self.pid(), made as i32);
        match wait(new, Instant::now() + PATIENCE) {
            Stop::Interrupted | Stop::Halted => Ok(self.with(new)),
            Stop::Running => Err(io::ErrorKind::TimedOut.into()),
            _ => Err(io::Error::other("a thread ended when it began")),
        }
    }
}

/// Why a child has ended before its program began.
fn status_of(pid: i32) -> io::Error {
    let mut status = 0;
    // SAFETY: the kernel fills in the status.
    let got = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
    match got == pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0 {
        true => io::Error::from_raw_os_error(libc::WEXITSTATUS(status)),
        false => io::Error::other("it ended before it began"),
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills in two descriptors, which belong to nobody else.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// How far descriptors may go (RLIMIT_NOFILE).
struct Room {
    /// What it is, and what the child has until it has its descriptors.
    was: libc::rlimit,
    meanwhile: libc::rlimit,
}

impl Room {
    /// Room for these descriptors, which are in order of their numbers there, and for copies of them behind.
    fn for_descriptors(sorted: &[(RawFd, RawFd)]) -> io::Result<Room> {
        let mut was = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the kernel fills in the limits.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut was) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let last = sorted.last().map_or(0, |d| d.1.max(0) as u64);
        // Some more are open in this process.
        let wanted = last + sorted.len() as u64 + MORE;
        if wanted > was.rlim_cur && wanted > was.rlim_max {
            return Err(io::Error::other(format!(
                "descriptor {last} is beyond what this command may have: {} (`ulimit -Hn`)",
                was.rlim_max
            )));
        }
        let meanwhile = libc::rlimit {
            rlim_cur: was.rlim_cur.max(wanted),
            ..was
        };
        Ok(Room { was, meanwhile })
    }
}

/// Forks. The child gets this process id if that is possible.
fn fork_as(pid: i32) -> io::Result<i32> {
    let wanted = [pid];
    let args = clone_arguments(0, libc::SIGCHLD, wanted.as_ptr() as u64);
    if pid > 0 {
        // SAFETY: as `fork`: the child has a copy of this memory, and only makes system calls.
        let made = unsafe { libc::syscall(libc::SYS_clone3, &args, size_of_val(&args)) };
        if made >= 0 {
            return Ok(made as i32);
        }
    }
    // SAFETY: the child only makes system calls, until it executes or ends.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        made => Ok(made),
    }
}

/// What the child does. It ends with the number of an error.
///
/// # Safety
/// For a child that has just been forked. The pointers must be valid, and lists end with a null pointer. `sorted` is in
/// order of its second numbers, and `kept` is as long.
unsafe fn begin(
    program: RawFd,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    folder: RawFd,
    (sorted, kept, room): (&[(RawFd, RawFd)], &mut [RawFd], &Room),
    (gate_out, gate_in): (RawFd, RawFd),
) -> ! {
    // SAFETY: these are plain system calls; what they point to is valid by this function's contract.
    unsafe {
        let check = |done: bool| {
            if !done {
                let e = *libc::__errno_location();
                libc::_exit(e.clamp(1, 255));
            }
        };
        libc::close(gate_in);
        let mut byte = 0u8;
        // Nobody writes if nobody traces.
        check(libc::read(gate_out, (&raw mut byte).cast(), 1) == 1);
        check(folder < 0 || libc::fchdir(folder) == 0);
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &room.meanwhile) == 0);
        let above = sorted.last().map_or(3, |d| d.1.saturating_add(1)).max(3);
        for ((own, _), kept) in sorted.iter().zip(kept.iter_mut()) {
            *kept = libc::fcntl(*own, libc::F_DUPFD, above);
            check(*kept >= 0);
        }
        let program = libc::fcntl(program, libc::F_DUPFD_CLOEXEC, above);
        check(program >= 0);
        let mut next = 0;
        for ((_, number), kept) in sorted.iter().zip(kept.iter()) {
            check(libc::dup2(*kept, *number) == *number);
            if *number > next {
                libc::syscall(libc::SYS_close_range, next, *number - 1, 0);
            }
            next = *number + 1;
        }
        if program > next {
            libc::syscall(libc::SYS_close_range, next, program - 1, 0);
        }
        check(libc::syscall(libc::SYS_close_range, program + 1, u32::MAX, 0) == 0);
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &room.was) == 0);
        let none: u64 = 0;
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &none,
            std::ptr::null_mut::<u64>(),
            8,
        );
        libc::syscall(
            libc::SYS_execveat,
            program,
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        check(false);
        libc::_exit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// It stands before its first instruction, with the descriptors that it was given and no others.
    #[test]
    fn a_process_stands_still() {
        let (out, into) = pipe().unwrap();
        let c = |s: &str| CString::new(s).unwrap();
        let shell = File::open("/bin/sh").unwrap();
        let folder = File::open("/proc").unwrap();
        let mut p = start_still(&Still {
            program: shell.as_raw_fd(),
            arguments: vec![c("sh"), c("-c"), c("pwd; ls /proc/self/fd/7 || exit 3")],
            folder: Some(folder.as_raw_fd()),
            descriptors: vec![(into.as_raw_fd(), 1), (into.as_raw_fd(), 7)],
            pid: 0,
        })
        .unwrap();
        drop(into);
        let pid = p.pid();
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut fds: Vec<String> = fds
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        fds.sort();
        assert_eq!(fds, ["1", "7"]);
        p.release();
        let mut text = String::new();
        File::from(out).read_to_string(&mut text).unwrap();
        assert!(text.starts_with("/proc\n"), "{text}");
        end(pid);
    }

    /// Threads that are made stand still, and make calls of their own.
    #[test]
    fn threads_are_made() {
        let file = File::open("/bin/sh").unwrap();
        let folder = File::open("/").unwrap();
        let mut p = start_still(&Still {
            program: file.as_raw_fd(),
            arguments: vec![CString::new("sh").unwrap()],
            folder: Some(folder.as_raw_fd()),
            descriptors: Vec::new(),
            pid: 0,
        })
        .unwrap();
        let first = p.threads()[0];
        let at = p.syscall_instruction().unwrap();
        // Its stack, of which it has used nothing yet.
        let room = (first.regs().unwrap().rsp - 4096) & !15;
        let mut made = Vec::new();
        for _ in 0..3 {
            made.push(p.make_thread((first, at), room, 0).unwrap());
        }
        let pid = p.pid();
        for t in &made {
            let told = p.call(*t, at, (libc::SYS_gettid, [0; 6])).unwrap();
            assert_eq!(told, t.tid() as u64);
        }
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        assert_eq!(tasks.count(), 4);
        halt(&p);
        p.release();
        // All of them stop before they execute anything.
        let stopped = || {
            let mut all = made.iter().chain([&first]);
            all.all(|t| {
                let text = std::fs::read_to_string(format!("/proc/{pid}/task/{}/stat", t.tid()));
                text.is_ok_and(|t| t.contains(") T "))
            })
        };
        let until = Instant::now() + PATIENCE;
        while !stopped() {
            assert!(Instant::now() < until, "they do not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
        end(pid);
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let file = File::open("/proc/self/exe").unwrap();
        let still = Still {
            program: std::io::stderr().as_raw_fd(),
            arguments: Vec::new(),
            folder: Some(file.as_raw_fd()),
            descriptors: Vec::new(),
            pid: 0,
        };
        let e = start_still(&still).err().unwrap();
        assert_eq!(e.raw_os_error(), Some(libc::ENOTDIR));
    }

    #[test]
    fn a_descriptor_beyond_the_limit_is_named() {
        let e = Room::for_descriptors(&[(0, i32::MAX)]).err().unwrap();
        assert!(e.to_string().contains("descriptor 2147483647"), "{e}");
        let room = Room::for_descriptors(&[(0, 5)]).unwrap();
        assert!(room.meanwhile.rlim_cur >= 5 && room.meanwhile.rlim_cur >= room.was.rlim_cur);
    }

    /// Threads that are traced end before the process does.
    #[test]
    fn a_process_of_several_threads_ends() {
        use std::process::{Command, Stdio};
        let script = "import threading, time\nfor i in range(3): threading.Thread(target=time.sleep, args=(600,)).start()\nprint(flush=True)\ntime.sleep(600)";
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let mut byte = [0];
        child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
        for t in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let tid = t.unwrap().file_name().to_str().unwrap().parse().unwrap();
            Thread::seize(pid, tid).unwrap();
        }
        end(pid);
        // Its status was taken.
        assert!(child.wait().is_err());
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
