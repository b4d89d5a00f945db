//! What the kernel is told of a process that goes on by itself. While the process was recorded, the kernel took the
//! recorder for its program, and the recorder's heap for its heap.

use hindsight_events::attach::Plain;
use hindsight_remote::{Process, Thread};
use std::fs;
use std::io::{Error, Result};
use std::os::unix::fs::MetadataExt;

const PR_SET_MM: u64 = 35;
const PR_SET_MM_MAP: u64 = 14;

/// `struct prctl_mm_map`
#[repr(C)]
struct MemoryMap {
    words: [u64; 12],
    auxv_size: u32,
    exe_fd: u32,
}

// SAFETY: integers without padding.
unsafe impl Plain for MemoryMap {}

/// Makes system calls in the place of a thread that rests.
pub struct Caller<'p> {
    process: &'p Process,
    thread: Thread,
    syscall: u64,
    /// Memory of the recorder's that nobody needs any more.
    at: u64,
}

impl<'p> Caller<'p> {
    /// By the instruction at `syscall`; `rsp`: the thread's stack in the recorder.
    pub fn new(process: &'p Process, thread: Thread, syscall: u64, rsp: u64) -> Caller<'p> {
        // Below what it has on the stack.
        let at = (rsp - 8192) & !63;
        Caller {
            process,
            thread,
            syscall,
            at,
        }
    }

    fn call(&self, nr: i64, args: [u64; 6]) -> Result<u64> {
        self.process.call(self.thread, self.syscall, (nr, args))
    }

    /// Tells where the heap is.
    pub fn tell_heap(&self, heap: [u64; 2]) -> Result<()> {
        self.tell(self.at, heap, u32::MAX)
    }

    /// The same, and that the file with descriptor `fd` is the program's, which is then closed. Not before
    /// the recorder's image is unmapped; `rsp` is the program's stack.
    pub fn tell_program(&self, rsp: u64, heap: [u64; 2], fd: u64) -> Result<()> {
        // Where a handler of a signal would have its frame.
        let told = self.tell((rsp - 1024) & !63, heap, fd as u32);
        self.close(fd)?;
        told
    }

    /// Closes a descriptor of the process.
    pub fn close(&self, fd: u64) -> Result<()> {
        self.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]).map(drop)
    }

    /// `at`: memory for the kernel to read from. It then holds what it held: the stack may begin above it, such as
    /// that of a goroutine, and something else be there.
    fn tell(&self, at: u64, heap: [u64; 2], exe_fd: u32) -> Result<()> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.pid()))?;
        let (_, fields) = stat
            .rsplit_once(')')
            .ok_or_else(|| Error::other("/proc/PID/stat cannot be understood"))?;
        let fields: Vec<u64> = fields
            .split_whitespace()
            .map(|f| f.parse().unwrap_or(0))
            .collect();
        // Numbers as in proc(5); the first after the name is the third.
        let field = |n: usize| fields.get(n - 3).copied().unwrap_or(0);
        let map = MemoryMap {
            words: [
                field(26),
                field(27),
                field(45),
                field(46),
                heap[0],
                heap[1],
                field(28),
                field(48),
                field(49),
                field(50),
                field(51),
                0,
            ],
            auxv_size: 0,
            exe_fd,
        };
        let mut held = [0; size_of::<MemoryMap>()];
        self.process.read(at, &mut held)?;
        let args = [PR_SET_MM, PR_SET_MM_MAP, at, held.len() as u64, 0, 0];
        let told = self
            .process
            .write(at, map.bytes())
            .and_then(|()| self.call(libc::SYS_prctl, args));
        self.process.write(at, &held)?;
        told.map(drop)
    }

    /// Opens the program's file, in the process.
    pub fn open_program(&self) -> Result<u64> {
        const AT_PHDR: u64 = 3;
        let vector = fs::read(format!("/proc/{}/auxv", self.process.pid()))?;
        let words: Vec<u64> = vector
            .chunks_exact(8)
            .filter_map(|w| Some(u64::from_ne_bytes(w.try_into().ok()?)))
            .collect();
        let mut pairs = words.chunks_exact(2);
        let headers = pairs.find(|p| p[0] == AT_PHDR);
        let headers = headers.ok_or_else(|| Error::other("no AT_PHDR"))?[1];
        let maps = self.process.mappings()?;
        let map = maps.iter().find(|m| (m.start..m.end).contains(&headers));
        let map = map.ok_or_else(|| Error::other("the program is not mapped"))?;
        // As the process sees the path, which may have another root.
        let seen = format!("/proc/{}/root{}", self.process.pid(), map.name);
        if map.inode == 0 || fs::metadata(seen)?.ino() != map.inode {
            return Err(Error::other(format!("{}: another file, or none", map.name)));
        }
        let mut path = map.name.clone().into_bytes();
        path.push(0);
        if path.len() > 4096 {
            return Err(Error::other(format!("{}: too long", map.name)));
        }
        self.process.write(self.at, &path)?;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let from = libc::AT_FDCWD as u64;
        self.call(libc::SYS_openat, [from, self.at, flags, 0, 0, 0])
    }
}
