//! System calls of the recorder itself, without a C library: none of them touches `errno` or
//! thread-local storage, which belong to the recorded program.

use core::arch::asm;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use linux_raw_sys::general::*;

pub const PROT_NONE: u32 = linux_raw_sys::general::PROT_NONE;
pub const PROT_READ: u32 = linux_raw_sys::general::PROT_READ;
pub const PROT_WRITE: u32 = linux_raw_sys::general::PROT_WRITE;
pub const PROT_EXEC: u32 = linux_raw_sys::general::PROT_EXEC;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// `errno` values travel as positive numbers.
pub type Result<T> = core::result::Result<T, i32>;

/// A system call as the kernel answers it: errors are `-4095..0`.
///
/// # Safety
/// As the call demands.
pub unsafe fn raw(nr: u32, a: [u64; 6]) -> u64 {
    let ret;
    // SAFETY: the system call instruction changes only rax, rcx and r11 and what the kernel
    // writes through the arguments, for which the caller answers.
    unsafe {
        asm!("syscall", inlateout("rax") nr as u64 => ret, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// Splits the kernel's answer.
pub fn result(ret: u64) -> Result<u64> {
    if ret > -4096i64 as u64 {
        Err(-(ret as i64) as i32)
    } else {
        Ok(ret)
    }
}

fn call<const N: usize>(nr: u32, a: [u64; N]) -> Result<u64> {
    let mut six = [0; 6];
    six[..N].copy_from_slice(&a);
    // SAFETY: the callers in this module pass pointers to memory that they own or borrow, or
    // change only mappings that are the recorder's or were asked for by the program.
    result(unsafe { raw(nr, six) })
}

/// Opens a file for reading.
pub fn open_read(path: &CStr) -> Result<i32> {
    call(
        __NR_openat,
        [
            AT_FDCWD as u64,
            path.as_ptr() as u64,
            (O_RDONLY | O_CLOEXEC) as u64,
            0,
        ],
    )
    .map(|fd| fd as i32)
}

/// Opens a file.
pub fn openat(dir: i32, path: &CStr, flags: u32) -> Result<i32> {
    let a = [dir as u64, path.as_ptr() as u64, flags as u64, 0];
    call(__NR_openat, a).map(|fd| fd as i32)
}

/// What the kernel knows about an open file.
pub fn fstat(fd: i32) -> Result<stat> {
    let mut st = core::mem::MaybeUninit::<stat>::zeroed();
    let a = [
        fd as u64,
        c"".as_ptr() as u64,
        st.as_mut_ptr() as u64,
        AT_EMPTY_PATH as u64,
    ];
    // SAFETY: plain integers, valid as zeros and as whatever the kernel writes.
    call(__NR_newfstatat, a).map(|_| unsafe { st.assume_init() })
}

/// Whether an open file can be written through this descriptor.
pub fn is_writable(fd: i32) -> bool {
    let flags = call(__NR_fcntl, [fd as u64, F_GETFL as u64, 0, 0]);
    flags.is_ok_and(|f| f as u32 & (O_WRONLY | O_RDWR) != 0)
}

/// What the kernel knows about the file of a path.
pub fn stat(path: &CStr) -> Result<stat> {
    let mut st = core::mem::MaybeUninit::<stat>::zeroed();
    let a = [
        AT_FDCWD as i64 as u64,
        path.as_ptr() as u64,
        st.as_mut_ptr() as u64,
        0,
    ];
    // SAFETY: plain integers, valid as zeros and as whatever the kernel writes.
    call(__NR_newfstatat, a).map(|_| unsafe { st.assume_init() })
}

/// Whether the process may execute an open file.
pub fn may_execute(fd: i32) -> Result<()> {
    const X_OK: u64 = 1;
    let flags = (AT_EMPTY_PATH | AT_EACCESS) as u64;
    let a = [fd as u64, c"".as_ptr() as u64, X_OK, flags];
    call(__NR_faccessat2, a).map(drop)
}

/// Whether an open file has an extended attribute.
pub fn has_attribute(fd: i32, name: &CStr) -> bool {
    call(__NR_fgetxattr, [fd as u64, name.as_ptr() as u64, 0, 0]).is_ok()
}

/// Flags of the mount that an open file is on.
pub fn mount_flags(fd: i32) -> u64 {
    // f_flags, behind seven words and the file system's id and lengths.
    fstatfs(fd)[10]
}

/// Kind of the file system that an open file is on.
pub fn file_system(fd: i32) -> u64 {
    fstatfs(fd)[0]
}

fn fstatfs(fd: i32) -> [u64; 15] {
    let mut st = [0u64; 15];
    let _ = call(__NR_fstatfs, [fd as u64, st.as_mut_ptr() as u64]);
    st
}

/// Has a descriptor of a file in memory be one for reading only; its number stays.
pub fn make_read_only(fd: i32) -> u64 {
    let name = crate::line!("/proc/self/fd/{fd}\0");
    let name = CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or(c"");
    if let Ok(readable) = openat(AT_FDCWD, name, O_RDONLY | O_CLOEXEC) {
        let flags = if closes_on_exec(fd) { O_CLOEXEC } else { 0 };
        let _ = call(__NR_dup3, [readable as u64, fd as u64, flags as u64]);
        close(readable);
    }
    fd as u64
}

/// Whether the process has a capability in its user namespace.
pub fn has_capability(number: u32) -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable, of 32 each.
    let mut sets = [0u32; 6];
    let a = [header.as_ptr() as u64, sets.as_mut_ptr() as u64];
    call(__NR_capget, a).is_ok() && sets[0] >> number & 1 != 0
}

/// Has the kernel apply a filter of system calls.
pub fn install_filter(len: u16, code: u64) {
    const SET_MODE_FILTER: u64 = 1;
    let program = [len as u64, code];
    let _ = call(__NR_seccomp, [SET_MODE_FILTER, 0, program.as_ptr() as u64]);
}

/// Tells the kernel where the process's parts are (`struct prctl_mm_map`, the first eleven fields)
/// and its auxiliary vector. Only since Linux 3.18, and if it was built for that.
pub fn set_memory_map(limits: &[u64; 11], auxv: &[u8]) {
    const PR_SET_MM: u64 = 35;
    const PR_SET_MM_MAP: u64 = 14;
    let mut map = [0; 13];
    map[..11].copy_from_slice(limits);
    map[11] = auxv.as_ptr() as u64;
    // The upper half: the program's file stays.
    map[12] = auxv.len() as u64 | (u32::MAX as u64) << 32;
    let a = [
        PR_SET_MM,
        PR_SET_MM_MAP,
        map.as_ptr() as u64,
        size_of_val(&map) as u64,
        0,
    ];
    let _ = call(__NR_prctl, a);
}

/// Effective user and group.
pub fn effective_ids() -> (u32, u32) {
    let uid = call(__NR_geteuid, []).unwrap_or(0) as u32;
    (uid, call(__NR_getegid, []).unwrap_or(0) as u32)
}

/// Whether `execve` gives no new rights.
pub fn no_new_privileges() -> bool {
    let get = linux_raw_sys::prctl::PR_GET_NO_NEW_PRIVS as u64;
    call(__NR_prctl, [get, 0, 0, 0, 0]) == Ok(1)
}

/// The kernel's limit on a resource of this process, soft and hard; sets it to `new`, if given.
pub fn limit(resource: u32, new: Option<(u64, u64)>) -> Result<(u64, u64)> {
    let new = new.map(|(soft, hard)| [soft, hard]);
    let mut old = [u64::MAX; 2];
    let at = new.as_ref().map_or(0, |n| n.as_ptr() as u64);
    let a = [0, resource as u64, at, old.as_mut_ptr() as u64];
    call(__NR_prlimit64, a).map(|_| (old[0], old[1]))
}

/// Whether the process may raise hard limits (CAP_SYS_RESOURCE).
pub fn may_raise_limits() -> bool {
    const VERSION: u32 = 0x2008_0522;
    const SYS_RESOURCE: u32 = 24;
    let header = [VERSION, 0];
    // Effective, permitted and inheritable, twice.
    let mut sets = [0u32; 6];
    let a = [header.as_ptr() as u64, sets.as_mut_ptr() as u64];
    call(__NR_capget, a).is_ok() && sets[0] >> SYS_RESOURCE & 1 != 0
}

/// Opens a descriptor again, closed on `execve`, under the first free number from `from` on.
pub fn duplicate_from(fd: i32, from: i32) -> Result<i32> {
    let a = [fd as u64, F_DUPFD_CLOEXEC as u64, from as u64];
    call(__NR_fcntl, a).map(|fd| fd as i32)
}

/// Whether `execve` closes a descriptor.
pub fn closes_on_exec(fd: i32) -> bool {
    call(__NR_fcntl, [fd as u64, F_GETFD as u64]).is_ok_and(|f| f & 1 != 0)
}

/// Whether `execve` is to close a descriptor.
pub fn set_close_on_exec(fd: i32, yes: bool) {
    let flag = if yes { FD_CLOEXEC as u64 } else { 0 };
    let _ = call(__NR_fcntl, [fd as u64, F_SETFD as u64, flag]);
}

/// Appends `len` bytes of a file to another; whether that has succeeded.
pub fn copy_file(from: i32, to: i32, len: u64) -> bool {
    let mut offset = 0u64;
    while offset < len {
        let at = &raw mut offset as u64;
        match call(__NR_sendfile, [to as u64, from as u64, at, len - offset]) {
            Ok(n) if n > 0 => {}
            _ => return false,
        }
    }
    true
}

/// Writes all of `buf` at `offset`; whether that has succeeded.
pub fn pwrite(fd: i32, buf: &[u8], offset: u64) -> bool {
    let a = [fd as u64, buf.as_ptr() as u64, buf.len() as u64, offset];
    call(__NR_pwrite64, a) == Ok(buf.len() as u64)
}

pub fn close(fd: i32) {
    let _ = call(__NR_close, [fd as u64]);
}

/// Reads up to `buf.len()` bytes.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    call(
        __NR_read,
        [fd as u64, buf.as_mut_ptr() as u64, buf.len() as u64],
    )
    .map(|n| n as usize)
}

/// Reads up to `buf.len()` bytes at `offset`.
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    call(
        __NR_pread64,
        [fd as u64, buf.as_mut_ptr() as u64, buf.len() as u64, offset],
    )
    .map(|n| n as usize)
}

/// Writes all of `buf` as far as the descriptor takes it.
pub fn write(fd: i32, mut buf: &[u8]) {
    while !buf.is_empty() {
        match call(
            __NR_write,
            [fd as u64, buf.as_ptr() as u64, buf.len() as u64],
        ) {
            Ok(n) if n > 0 => buf = &buf[n as usize..],
            Err(e) if e == linux_raw_sys::errno::EINTR as i32 => {}
            _ => return,
        }
    }
}

pub fn mmap(addr: u64, len: u64, prot: u32, flags: u32, fd: i32, offset: u64) -> Result<u64> {
    call(
        __NR_mmap,
        [addr, len, prot as u64, flags as u64, fd as u64, offset],
    )
}

pub fn munmap(addr: u64, len: u64) -> Result<()> {
    call(__NR_munmap, [addr, len]).map(drop)
}

pub fn mprotect(addr: u64, len: u64, prot: u32) -> Result<()> {
    call(__NR_mprotect, [addr, len, prot as u64]).map(drop)
}

/// Moves the pages of a mapping to `new`, in place of whatever is there.
pub fn move_mapping(old: u64, len: u64, new: u64) -> Result<()> {
    let flags = (MREMAP_MAYMOVE | MREMAP_FIXED) as u64;
    call(__NR_mremap, [old, len, len, flags, new]).map(drop)
}

/// Maps the pages of the shared mapping at `old` a second time at `new`.
pub fn duplicate_shared(old: u64, len: u64, new: u64) -> Result<()> {
    call(
        __NR_mremap,
        [old, 0, len, (MREMAP_MAYMOVE | MREMAP_FIXED) as u64, new],
    )
    .map(drop)
}

/// Maps fresh memory that is not charged against swap: at `addr`, or in the recorder's own part
/// of the address space when `addr` is 0.
pub fn mmap_anon_noreserve(addr: u64, len: u64, prot: u32) -> Result<u64> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if addr == 0 {
        return crate::arena::map(len, prot, flags, -1, 0);
    }
    mmap(addr, len, prot, flags | MAP_FIXED, -1, 0)
}

/// Maps fresh memory over whatever is at `addr`; children of a `fork` share it.
pub fn mmap_shared_fixed(addr: u64, len: u64) -> Result<()> {
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
    mmap(addr, len, PROT_READ | PROT_WRITE, flags, -1, 0).map(drop)
}

/// Gives pages back; private anonymous ones read as zero afterwards.
pub fn madvise_dontneed(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_DONTNEED as u64]);
}

/// Gives pages memory that are sure to be written, at once instead of one by one. Kernels before 5.14 do
/// not know how.
pub fn madvise_populate(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_POPULATE_WRITE as u64]);
}

/// Has private anonymous pages read as zero in the child of a `fork`, instead of copying them.
pub fn madvise_wipe_on_fork(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_WIPEONFORK as u64]);
}

/// Keeps pages out of core dumps.
pub fn madvise_dontdump(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_DONTDUMP as u64]);
}

/// As [`memfd_create`], for the program.
pub fn memfd_create_flags(name: &CStr, cloexec: bool) -> Result<i32> {
    let flags = if cloexec { MFD_CLOEXEC } else { 0 };
    call(__NR_memfd_create, [name.as_ptr() as u64, flags as u64]).map(|fd| fd as i32)
}

/// Moves a descriptor's position to the start.
pub fn rewind(fd: i32) {
    let _ = call(__NR_lseek, [fd as u64, 0, SEEK_SET as u64]);
}

/// Makes a file in memory, closed on `execve`.
pub fn memfd_create(name: &CStr) -> Result<i32> {
    call(
        __NR_memfd_create,
        [name.as_ptr() as u64, MFD_CLOEXEC as u64],
    )
    .map(|fd| fd as i32)
}

pub fn getpid() -> i32 {
    call(__NR_getpid, []).unwrap_or(0) as i32
}

/// The parent's id; 0 if it is outside of this namespace.
pub fn getppid() -> i32 {
    call(__NR_getppid, []).unwrap_or(0) as i32
}

pub fn gettid() -> i32 {
    call(__NR_gettid, []).unwrap_or(0) as i32
}

/// Whether a process exists, as far as this one may know.
pub fn process_exists(pid: i32) -> bool {
    call(__NR_kill, [pid as u64, 0]) != Err(linux_raw_sys::errno::ESRCH as i32)
}

/// Sends the signal of `info` (128 bytes as the kernel has them) to the calling thread once more.
pub fn queue_signal(info: &crate::context::Info) {
    let a = [
        getpid() as u64,
        gettid() as u64,
        info.signo as u64,
        core::ptr::from_ref(info) as u64,
    ];
    let _ = call(__NR_rt_tgsigqueueinfo, a);
}

/// Sends a signal to the calling thread.
pub fn raise(signo: i32) {
    let _ = call(
        __NR_tgkill,
        [getpid() as u64, gettid() as u64, signo as u64],
    );
}

pub fn exit_group(status: i32) -> ! {
    loop {
        let _ = call(__NR_exit_group, [status as u64]);
    }
}

/// Sets the name that `ps` shows: at most 15 bytes count.
pub fn set_name(name: &[u8]) {
    let mut buf = [0u8; 16];
    let n = name.len().min(15);
    buf[..n].copy_from_slice(&name[..n]);
    let _ = call(
        __NR_prctl,
        [
            linux_raw_sys::prctl::PR_SET_NAME as u64,
            buf.as_ptr() as u64,
        ],
    );
}

/// Fills `buf` with random bytes.
pub fn getrandom(buf: &mut [u8]) {
    let _ = call(
        __NR_getrandom,
        [buf.as_mut_ptr() as u64, buf.len() as u64, 0],
    );
}

/// The process's personality flags.
pub fn personality() -> u32 {
    call(__NR_personality, [0xffff_ffff]).unwrap_or(0) as u32
}

/// Seconds of a clock that only runs forward.
pub fn seconds() -> u64 {
    let mut ts = [0i64; 2];
    let _ = call(
        __NR_clock_gettime,
        [CLOCK_MONOTONIC as u64, ts.as_mut_ptr() as u64],
    );
    ts[0] as u64
}

/// Sleeps while `word` is `value`, at most `millis`, or until woken or interrupted.
pub fn futex_wait(word: &AtomicU32, value: u32, millis: u32) {
    let ts = [millis as i64 / 1000, millis as i64 % 1000 * 1_000_000];
    let _ = call(
        __NR_futex,
        [
            word.as_ptr() as u64,
            FUTEX_WAIT as u64,
            value as u64,
            ts.as_ptr() as u64,
        ],
    );
}

/// Wakes everybody who sleeps on `word`, in any process.
pub fn futex_wake(word: &AtomicU32) {
    let _ = call(
        __NR_futex,
        [word.as_ptr() as u64, FUTEX_WAKE as u64, i32::MAX as u64],
    );
}

pub fn sched_yield() {
    let _ = call(__NR_sched_yield, []);
}

/// Sleeps, or until a signal comes.
pub fn sleep_ms(millis: u32) {
    let ts = [millis as i64 / 1000, millis as i64 % 1000 * 1_000_000];
    let _ = call(__NR_nanosleep, [ts.as_ptr() as u64, 0]);
}

/// The same, in microseconds; less than a second.
pub fn sleep_us(micros: u64) {
    let ts = [0, micros.min(999_999) as i64 * 1000];
    let _ = call(__NR_nanosleep, [ts.as_ptr() as u64, 0]);
}

/// Replaces the calling thread's mask of blocked signals; returns the one before.
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let _ = call(
        __NR_rt_sigprocmask,
        [
            SIG_SETMASK as u64,
            &raw const mask as u64,
            &raw mut old as u64,
            8,
        ],
    );
    old
}

/// The calling thread's mask of blocked signals.
pub fn signal_mask() -> u64 {
    let mut old = 0u64;
    let _ = call(
        __NR_rt_sigprocmask,
        [SIG_SETMASK as u64, 0, &raw mut old as u64, 8],
    );
    old
}

/// Signals that are blocked and wait for the calling thread or its process.
pub fn pending_signals() -> u64 {
    let mut set = 0u64;
    let _ = call(__NR_rt_sigpending, [&raw mut set as u64, 8]);
    set
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct SigAction {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// Sets (if given) the action of a signal; returns the one before.
///
/// # Safety
/// A handler must be able to run at any point of the process.
pub unsafe fn sigaction(signo: i32, new: Option<&SigAction>) -> Result<SigAction> {
    let mut old = SigAction::default();
    let new = new.map_or(0, |n| core::ptr::from_ref(n) as u64);
    call(
        __NR_rt_sigaction,
        [signo as u64, new, &raw mut old as u64, 8],
    )
    .map(|_| old)
}

/// Makes `base..base+len` the calling thread's stack for signal handlers.
///
/// # Safety
/// The range is writable and serves nothing else.
pub unsafe fn sigaltstack(base: u64, len: u64) -> Result<()> {
    let ss = [base, 0, len];
    call(__NR_sigaltstack, [ss.as_ptr() as u64, 0]).map(drop)
}

/// As [`sigaltstack`], and returns the stack before: start, flags, size.
///
/// # Safety
/// The range is writable and serves nothing else.
pub unsafe fn exchange_altstack((base, len): (u64, u64)) -> Result<[u64; 3]> {
    let (ss, mut old) = ([base, 0, len], [0u64; 3]);
    call(
        __NR_sigaltstack,
        [ss.as_ptr() as u64, old.as_mut_ptr() as u64],
    )
    .map(|_| old)
}

/// Makes the program's alternate stack the kernel's: start, flags, size. The calling thread runs
/// on neither.
pub fn restore_altstack(ss: [u64; 3]) {
    let _ = call(__NR_sigaltstack, [ss.as_ptr() as u64, 0]);
}

/// The end of the heap as the kernel has it.
pub fn kernel_brk() -> u64 {
    set_kernel_brk(0)
}

/// Asks the kernel to move the end of the heap; where it is then.
pub fn set_kernel_brk(end: u64) -> u64 {
    call(__NR_brk, [end]).unwrap_or(0)
}

static FSGSBASE: AtomicBool = AtomicBool::new(false);

/// Says whether the kernel allows the instructions that change segment bases (AT_HWCAP2 bit 1).
pub fn allow_fsgsbase(yes: bool) {
    FSGSBASE.store(yes, Relaxed);
}

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;

/// Sets the FS base of the calling thread: the program's, the recorder does not use it.
pub fn set_fs_base(v: u64) {
    if FSGSBASE.load(Relaxed) {
        // SAFETY: allowed by the kernel; no code of the recorder uses FS.
        unsafe { asm!("wrfsbase {}", in(reg) v, options(nostack, nomem)) }
    } else {
        let _ = call(__NR_arch_prctl, [ARCH_SET_FS, v]);
    }
}

/// Points the GS base of the calling thread at its predictor window.
pub fn set_gs_base(v: u64) {
    if FSGSBASE.load(Relaxed) {
        // SAFETY: allowed by the kernel; GS is used for the context block only.
        unsafe { asm!("wrgsbase {}", in(reg) v, options(nostack, nomem)) }
    } else {
        let _ = call(__NR_arch_prctl, [ARCH_SET_GS, v]);
    }
}

/// Where a symbolic link leads: number of bytes written to `buf`.
pub fn readlink(path: &CStr, buf: &mut [u8]) -> Result<usize> {
    let a = [
        AT_FDCWD as u64,
        path.as_ptr() as u64,
        buf.as_mut_ptr() as u64,
        buf.len() as u64,
    ];
    call(__NR_readlinkat, a).map(|n| n as usize)
}

/// Names the entries of an open directory.
pub fn entries(dir: i32, name: &mut dyn FnMut(&[u8])) {
    /// Offsets of a record's length and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut buf = [0u8; 4096];
    while let Ok(n @ 1..) = call(
        __NR_getdents64,
        [dir as u64, buf.as_mut_ptr() as u64, buf.len() as u64],
    ) {
        let mut rest = &buf[..n as usize];
        while let Some(&[a, b]) = rest.get(LENGTH..LENGTH + 2) {
            let len = u16::from_le_bytes([a, b]) as usize;
            let text = rest.get(NAME..len).unwrap_or(&[]);
            name(text.split(|b| *b == 0).next().unwrap_or(&[]));
            rest = rest.get(len.max(NAME)..).unwrap_or(&[]);
        }
    }
}

/// Most memory the process has had resident, in bytes.
pub fn peak_memory() -> u64 {
    let mut usage = [0u64; 18];
    let _ = call(__NR_getrusage, [0, usage.as_mut_ptr() as u64]);
    // ru_maxrss, in KiB, behind two time values.
    usage[4] * 1024
}
