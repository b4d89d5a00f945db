//! Brings the recorder into a process that runs (see [`hindsight_events::attach`]).

use super::candidate::{Candidate, refusal, unfit};
use crate::error::{AttachError, During, Error, Result, Unfit};
use crate::recorder_binary;
use crate::sys::limits::{lift_limits_of, restore_limits_of};
use hindsight_events::arena::ARENA;
use hindsight_events::attach::{BLOCK, Block, Entry, MESSAGE, Plain, status};
use hindsight_events::config::Config;
use hindsight_remote::{Process, Regs, Restart, Thread};
use object::{Object, ObjectSegment, SegmentFlags};
use std::fs::File;
use std::time::Duration;

/// Longest time for all threads to stop.
const PATIENCE: Duration = Duration::from_secs(5);

const PAGE: u64 = 4096;

/// Selector of 64-bit code.
const USER_CODE: u64 = 0x33;

/// Flags with which the recorder's own code begins.
const FLAGS: u64 = 0x202;

/// A thread of the program as it was found.
struct Found {
    thread: Thread,
    /// As they are to be when the thread goes on.
    regs: Regs,
    mask: u64,
}

/// A process whose threads stand still. Dropped, it lets them go on as if nothing had been.
pub struct Halted {
    process: Process,
    found: Vec<Found>,
    /// Of these, the one that makes calls for us.
    worker: usize,
    syscall: u64,
    fd: Option<u64>,
    /// Something of the recorder is mapped.
    mapped: bool,
    /// The threads are the recorder's.
    entered: bool,
    /// As they were; see [`Halted::memory_limits`].
    limits: [libc::rlimit; 2],
}

impl Halted {
    /// Stops all threads of a process.
    pub fn new(candidate: Candidate) -> Result<Halted> {
        let mut process = candidate.process;
        let unfit = |why| Err(unfit(&candidate.status, why));
        if let Err(e) = process.stop_all(PATIENCE) {
            return unfit(match e.kind() {
                std::io::ErrorKind::TimedOut => Unfit::DoesNotStop(e),
                _ => Unfit::Untraceable(refusal(&e, &candidate.status)),
            });
        }
        let pid = process.pid();
        let mut halted = Halted {
            syscall: process.syscall_instruction()?,
            process,
            found: Vec::new(),
            worker: 0,
            fd: None,
            mapped: false,
            entered: false,
            limits: lift_limits_of(pid),
        };
        for t in halted.process.threads() {
            let mut regs = match t.regs() {
                Ok(r) if r.cs == USER_CODE => r,
                Ok(_) => return unfit(Unfit::Code32),
                Err(e) if e.raw_os_error() == Some(libc::ENOEXEC) => {
                    return unfit(Unfit::Program32);
                }
                Err(cause) => {
                    let tid = t.tid();
                    return unfit(Unfit::Registers { tid, cause });
                }
            };
            if t.dispatches() {
                return unfit(Unfit::Dispatched);
            }
            let restart = Restart::of(&regs);
            restart.apply(&mut regs);
            if let Some(r) = t.rseq() {
                regs.rip = r.resume(halted.process.mem(), regs.rip);
            }
            // One that is to sleep on for the rest of its time had better make no other calls.
            if matches!(restart, Restart::Block(_)) && halted.worker == halted.found.len() {
                halted.worker += 1;
            }
            halted.found.push(Found {
                thread: *t,
                regs,
                mask: t.mask()?,
            });
        }
        if halted.worker == halted.found.len() {
            halted.worker = 0;
        }
        Ok(halted)
    }

    /// The limits on address space and data, which are lifted as far as that is allowed: the recorder
    /// keeps them for the program.
    pub fn memory_limits(&self) -> [[u64; 2]; 2] {
        self.limits.map(|l| [l.rlim_cur, l.rlim_max])
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.found.len()
    }

    /// Maps room for what is to be told, and makes the memory file for the rings: its descriptor
    /// in the process, and the file.
    pub fn make_control(&mut self) -> Result<(i32, File)> {
        let worker = self.found[self.worker].thread;
        // Nothing is to come between.
        worker.set_mask(u64::MAX)?;
        self.mapped = true;
        let len = size_of::<Block>() + self.found.len() * size_of::<Entry>();
        self.map(BLOCK, len as u64)?;
        let name = b"hindsight-rings\0";
        self.process.write(BLOCK, name)?;
        let flags = libc::MFD_CLOEXEC as u64;
        let fd = self
            .call(libc::SYS_memfd_create, [BLOCK, flags, 0, 0, 0, 0])
            .during("the process cannot open another file")?;
        self.fd = Some(fd);
        let path = format!("/proc/{}/fd/{fd}", self.process.pid());
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .during_with(|| format!("cannot open {path}"))?;
        Ok((fd as i32, file))
    }

    /// Maps the recorder and has it make everything ready. Then all threads go on, recorded.
    pub fn enter(mut self, config: &Config) -> Result<()> {
        self.map_image(config)?;
        self.fill_block()?;
        let [attach, stack, parked, parked_end] = recorder_binary::symbols([
            "hindsight_attach",
            "hindsight_stack_end",
            "hindsight_parked",
            "hindsight_parked_end",
        ])?;
        let worker = &self.found[self.worker];
        let mut r = worker.regs;
        (r.rip, r.rsp, r.rdi) = (attach, stack, BLOCK);
        (r.eflags, r.orig_rax) = (FLAGS, u64::MAX);
        self.process
            .run_to(worker.thread, &r, parked..parked_end)
            .during("the recorder did not begin")?;
        let block: Block = self.read(BLOCK)?;
        if block.status != status::READY {
            let len = (block.message_len as usize).min(MESSAGE);
            let message = String::from_utf8_lossy(&block.message[..len]).into_owned();
            return Err(AttachError::Recorder(message).into());
        }
        for (i, f) in self.found.iter().enumerate() {
            let entry: Entry = self.read(entry_at(i))?;
            let mut r = f.regs;
            (r.rip, r.rsp, r.rdi) = (block.enter, entry.stack, entry.thread);
            (r.eflags, r.orig_rax) = (FLAGS, u64::MAX);
            f.thread.set_mask(u64::MAX)?;
            f.thread.set_regs(&r)?;
        }
        self.entered = true;
        Ok(())
    }

    fn read<T: Plain>(&self, at: u64) -> Result<T> {
        let mut bytes = vec![0; size_of::<T>()];
        self.process.read(at, &mut bytes)?;
        T::from_bytes(&bytes).ok_or_else(|| Error::other("too few bytes"))
    }

    fn call(&self, nr: i64, args: [u64; 6]) -> std::io::Result<u64> {
        let worker = self.found[self.worker].thread;
        self.process.call(worker, self.syscall, (nr, args))
    }

    /// Maps fresh memory.
    fn map(&self, at: u64, len: u64) -> Result<()> {
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        let args = [at, len.next_multiple_of(PAGE), prot, flags, u64::MAX, 0];
        self.call(libc::SYS_mmap, args)
            .map(drop)
            .during("the recorder's memory cannot be mapped")
    }

    fn map_image(&self, config: &Config) -> Result<()> {
        let image = recorder_binary::bytes(config)?;
        let file = object::File::parse(&*image).map_err(std::io::Error::other)?;
        for s in file.segments() {
            let start = s.address() & !(PAGE - 1);
            let end = (s.address() + s.size()).next_multiple_of(PAGE);
            self.map(start, end - start)?;
            self.process
                .write(s.address(), s.data().map_err(std::io::Error::other)?)?;
            let SegmentFlags::Elf { p_flags } = s.flags() else {
                continue;
            };
            let bits = [
                (object::elf::PF_R, libc::PROT_READ),
                (object::elf::PF_W, libc::PROT_WRITE),
                (object::elf::PF_X, libc::PROT_EXEC),
            ];
            let prot = bits
                .iter()
                .filter(|(bit, _)| p_flags & bit != 0)
                .fold(0, |p, (_, prot)| p | prot);
            let args = [start, end - start, prot as u64, 0, 0, 0];
            self.call(libc::SYS_mprotect, args)
                .during("the recorder's memory cannot be protected")?;
        }
        Ok(())
    }

    fn fill_block(&self) -> Result<()> {
        // SAFETY: no memory is involved.
        let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) } as u32;
        let block = Block {
            threads: self.found.len() as u32,
            hwcap2,
            status: status::BUSY,
            message_len: 0,
            enter: 0,
            message: [0; MESSAGE],
        };
        self.process.write(BLOCK, block.bytes())?;
        for (i, f) in self.found.iter().enumerate() {
            let r = &f.regs;
            let rseq = f.thread.rseq().unwrap_or_default();
            let entry = Entry {
                cpu: [
                    r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10,
                    r.r11, r.r12, r.r13, r.r14, r.r15, r.rip, r.eflags, r.fs_base, r.gs_base,
                ],
                mask: f.mask,
                rseq: rseq.addr,
                rseq_len: rseq.len,
                rseq_sig: rseq.sig,
                tid: f.thread.tid() as u32,
                zero: 0,
                stack: 0,
                thread: 0,
            };
            self.process.write(entry_at(i), entry.bytes())?;
        }
        Ok(())
    }

    /// Makes everything as it was.
    fn undo(&self) {
        if let Some(fd) = self.fd {
            let _ = self.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        }
        if self.mapped {
            let args = [ARENA.start, ARENA.end - ARENA.start, 0, 0, 0, 0];
            let _ = self.call(libc::SYS_munmap, args);
        }
        restore_limits_of(self.process.pid(), &self.limits);
        for f in &self.found {
            let _ = f.thread.set_regs(&f.regs);
            let _ = f.thread.set_mask(f.mask);
        }
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        if !self.entered {
            self.undo();
        }
        self.process.release();
    }
}

fn entry_at(i: usize) -> u64 {
    BLOCK + (size_of::<Block>() + i * size_of::<Entry>()) as u64
}
