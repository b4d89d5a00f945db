use crate::Status;
use crate::thread::{Regs, Stop, Thread};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The bytes of the system call instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Longest time for one remote call.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest time for code that a thread is made to run.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// How often a stop is delayed to let a handler begin that is due.
const DELIVERIES: u32 = 20;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub executable: bool,
    pub inode: u64,
    pub name: String,
}

/// A system call for another process to make: its number and arguments.
pub type Call = (i64, [u64; 6]);

/// A process. This thread traces all of its threads that it knows of. Dropping it lets them continue.
pub struct Process {
    pid: i32,
    mem: File,
    threads: Vec<Thread>,
}

impl Process {
    /// Opens a process, without tracing it yet. Fails if its memory is out of reach.
    pub fn open(pid: i32) -> io::Result<Process> {
        let mem = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        Ok(Process {
            pid,
            mem,
            threads: Vec::new(),
        })
    }

    /// A process of which this thread traces one thread already.
    pub(crate) fn with_thread(pid: i32, thread: Thread) -> io::Result<Process> {
        let mut process = Process::open(pid)?;
        process.threads.push(thread);
        Ok(process)
    }

    /// Takes in a thread that this one traces already.
    pub(crate) fn with(&mut self, thread: Thread) -> Thread {
        self.threads.push(thread);
        thread
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The traced threads.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The process's memory.
    pub fn mem(&self) -> &File {
        &self.mem
    }

    /// Opens the memory again after `execve` replaced it.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.mem = Process::open(self.pid)?.mem.try_clone()?;
        Ok(())
    }

    /// Begins to trace the threads that are not traced yet, and asks them to stop.
    pub fn seize_new(&mut self) -> io::Result<Vec<Thread>> {
        let mut new = Vec::new();
        for tid in tids(self.pid)? {
            if self.threads.iter().any(|t| t.tid() == tid) {
                continue;
            }
            let over = || Status::of_thread(self.pid, tid).is_ok_and(|s| s.has_ended());
            match Thread::seize(self.pid, tid) {
                Ok(t) => {
                    t.interrupt();
                    self.threads.push(t);
                    new.push(t);
                }
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) || over() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(new)
    }

    /// Removes a thread that has ended.
    pub fn forget(&mut self, t: Thread) {
        self.threads.retain(|o| *o != t);
        reap(self.pid, t);
    }

    /// Stops all threads. Signal handlers that are due have begun by then.
    pub fn stop_all(&mut self, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let new = self.seize_new()?;
            if new.is_empty() {
                break;
            }
            for t in new {
                if !self.settle(t, deadline)? {
                    self.forget(t);
                }
            }
        }
        if self.threads.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    }

    /// Waits for a thread that was asked to stop. Says whether it still exists.
    fn settle(&self, t: Thread, deadline: Instant) -> io::Result<bool> {
        let mut deliveries = 0;
        loop {
            match wait(t, deadline) {
                Stop::Gone => return Ok(false),
                Stop::Halted => return Ok(true),
                Stop::Interrupted => {
                    let due = Status::of_thread(self.pid, t.tid())?.deliverable();
                    if due == 0 || deliveries == DELIVERIES {
                        return Ok(true);
                    }
                    deliveries += 1;
                    t.go_on(0);
                    match wait(t, Instant::now() + Duration::from_millis(5)) {
                        Stop::Signal(s) => {
                            t.interrupt();
                            t.go_on(s);
                        }
                        Stop::Gone => return Ok(false),
                        Stop::Running => t.interrupt(),
                        _ => {
                            t.interrupt();
                            t.go_on(0);
                        }
                    }
                }
                // The interruption is still to come.
                Stop::Signal(s) => t.go_on(s),
                Stop::Call => t.go_on(0),
                Stop::Running => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("thread {} does not stop", t.tid()),
                    ));
                }
            }
        }
    }

    /// Reads memory at address `addr`.
    pub fn read(&self, addr: u64, buf: &mut [u8]) -> io::Result<()> {
        self.mem.read_exact_at(buf, addr)
    }

    /// Writes memory at address `addr`, whatever its protection is.
    pub fn write(&self, addr: u64, bytes: &[u8]) -> io::Result<()> {
        self.mem.write_all_at(bytes, addr)
    }

    /// The mappings of the process.
    pub fn mappings(&self) -> io::Result<Vec<Mapping>> {
        let text = fs::read(format!("/proc/{}/maps", self.pid))?;
        Ok(String::from_utf8_lossy(&text)
            .lines()
            .filter_map(mapping)
            .collect())
    }

    /// The address of a system call instruction in the program.
    pub fn syscall_instruction(&self) -> io::Result<u64> {
        let mut maps = self.mappings()?;
        maps.retain(|m| m.executable && m.end < 1 << 47);
        // The kernel's own code (vdso) always has one, so it is searched first.
        maps.sort_by_key(|m| m.name != "[vdso]");
        for m in &maps {
            let mut bytes = vec![0; (m.end - m.start).min(1 << 20) as usize];
            if self.read(m.start, &mut bytes).is_err() {
                continue;
            }
            if let Some(at) = bytes.windows(2).position(|w| w == SYSCALL) {
                return Ok(m.start + at as u64);
            }
        }
        Err(io::Error::other(
            "the program has no system call instruction",
        ))
    }

    /// Makes the stopped thread `t` do a system call with the instruction at `at`. Changes the thread's
    /// registers.
    pub fn call(&self, t: Thread, at: u64, (nr, args): Call) -> io::Result<u64> {
        let mut r = t.regs()?;
        (r.rip, r.rax, r.orig_rax) = (at, nr as u64, u64::MAX);
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = args;
        t.set_regs(&r)?;
        let mut stops = 0;
        t.step_call(0);
        while stops < 2 {
            match wait(t, Instant::now() + PATIENCE) {
                Stop::Call => stops += 1,
                Stop::Interrupted | Stop::Halted => {}
                // Only signals that cannot be blocked arrive here. The thread gets them again when this is
                // over.
                Stop::Signal(s) => t.queue(s),
                Stop::Gone => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                Stop::Running => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            }
            if stops < 2 {
                t.step_call(0);
            }
        }
        let ret = t.regs()?.rax;
        if ret > -4096i64 as u64 {
            return Err(io::Error::from_raw_os_error(-(ret as i64) as i32));
        }
        Ok(ret)
    }

    /// Runs the stopped thread `t` with registers `r` until it waits at an address in `rest`.
    pub fn run_to(&self, t: Thread, r: &Regs, rest: std::ops::Range<u64>) -> io::Result<()> {
        t.set_regs(r)?;
        t.go_on(0);
        let mut nap = Duration::from_micros(200);
        let until = Instant::now() + LONGEST_RUN;
        loop {
            if Instant::now() > until {
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
            std::thread::sleep(nap);
            nap = (nap * 3 / 2).min(Duration::from_millis(5));
            // An interruption that was still to come has stopped the thread before it did anything. Another
            // one now would stop it again when it continues, and so on for ever.
            let mut stop = t.poll();
            if stop == Stop::Running {
                t.interrupt();
                stop = wait(t, Instant::now() + PATIENCE);
            }
            match stop {
                Stop::Interrupted | Stop::Halted => {}
                Stop::Call => {
                    t.go_on(0);
                    continue;
                }
                // If the code there faults, its signal ends the process.
                Stop::Signal(s) => {
                    t.go_on(s);
                    continue;
                }
                Stop::Gone => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                Stop::Running => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            }
            if rest.contains(&t.regs()?.rip) {
                return Ok(());
            }
            t.go_on(0);
        }
    }

    /// Lets all threads, which are stopped, continue.
    pub fn release(&mut self) {
        for t in self.threads.drain(..) {
            t.release();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for t in std::mem::take(&mut self.threads) {
            if t.regs().is_err() {
                t.interrupt();
                let _ = self.settle(t, Instant::now() + Duration::from_secs(1));
            }
            t.release();
            reap(self.pid, t);
        }
    }
}

/// Lets the parent of a process see the end of its first thread, if that thread is traced and has ended.
fn reap(pid: i32, t: Thread) {
    let own = std::process::id() as i32;
    if t.tid() != pid || Status::of_process(pid).is_ok_and(|s| s.parent == own || !s.has_ended()) {
        return;
    }
    // SAFETY: the call accesses no memory.
    unsafe {
        libc::waitid(
            libc::P_PID,
            pid as libc::id_t,
            std::ptr::null_mut(),
            libc::WEXITED | libc::__WALL | libc::WNOHANG,
        )
    };
}

/// Waits for a thread to stop or end. Returns [`Stop::Running`] when the time is over.
pub(crate) fn wait(t: Thread, deadline: Instant) -> Stop {
    let mut polls = 0u32;
    loop {
        let stop = t.poll();
        if stop != Stop::Running || Instant::now() >= deadline {
            return stop;
        }
        polls += 1;
        if polls < 20 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// The threads of a process that have not ended.
fn tids(pid: i32) -> io::Result<Vec<i32>> {
    let mut out = Vec::new();
    for e in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Some(tid) = e?.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        if Status::of_thread(pid, tid).is_ok_and(|s| !s.has_ended()) {
            out.push(tid);
        }
    }
    Ok(out)
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let perms = fields.next()?;
    let inode = fields.nth(2)?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        executable: perms.contains('x'),
        inode: inode.parse().ok()?,
        name: fields.next().unwrap_or("").trim_start().into(),
    })
}

pub(crate) fn read_u64(mem: &File, addr: u64) -> Option<u64> {
    let mut b = [0; 8];
    mem.read_exact_at(&mut b, addr).ok()?;
    Some(u64::from_le_bytes(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read() {
        let m = mapping("7f00-8000 r-xp 00001000 08:01 77                         /a b (deleted)");
        let m = m.unwrap();
        assert_eq!((m.start, m.end, m.inode), (0x7f00, 0x8000, 77));
        assert!(m.executable && m.name == "/a b (deleted)");
    }

    /// A sleeping program is stopped and makes a call for us, and notices nothing.
    #[test]
    fn a_program_makes_calls_for_us() {
        let mut child = std::process::Command::new("sleep")
            .arg("0.5")
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        std::thread::sleep(Duration::from_millis(100));
        let mut p = Process::open(pid).unwrap();
        p.stop_all(Duration::from_secs(5)).unwrap();
        let t = p.threads()[0];
        let mut before = t.regs().unwrap();
        crate::Restart::of(&before).apply(&mut before);
        let at = p.syscall_instruction().unwrap();
        assert_eq!(
            p.call(t, at, (libc::SYS_getpid, [0; 6])).unwrap(),
            pid as u64
        );
        let error = p.call(t, at, (libc::SYS_close, [99, 0, 0, 0, 0, 0]));
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EBADF));
        t.set_regs(&before).unwrap();
        p.release();
        assert!(child.wait().unwrap().success());
    }
}
