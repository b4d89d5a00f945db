//! The recorder's own system calls, without a C library. None of them touches `errno` or
//! thread-local storage, which belong to the recorded program.

// First: the others use their macros.
#[macro_use]
pub mod invariant;
#[macro_use]
pub mod log;

pub mod allocators;
pub mod arena;
pub mod bpf;
pub mod clocks;
pub mod common;
pub mod config;
pub mod context;
pub mod fail;
pub mod generation;
pub mod guard;
pub mod headroom;
pub mod heap;
pub mod line;
pub mod lock;
pub mod many;
pub mod program;
pub mod quiet;
pub mod range;
pub mod resources;
pub mod script;
pub mod stop;
pub mod stub;
pub mod symtab;

mod files;
mod memory;
mod signals;
mod trace;

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
pub use files::*;
use linux_raw_sys::general::*;
pub use memory::*;
pub use signals::*;
pub use trace::*;

/// Memory that cannot be accessed.
pub const PROT_NONE: u32 = linux_raw_sys::general::PROT_NONE;
/// Memory that can be read.
pub const PROT_READ: u32 = linux_raw_sys::general::PROT_READ;
/// Memory that can be written.
pub const PROT_WRITE: u32 = linux_raw_sys::general::PROT_WRITE;
/// Memory that can be executed.
pub const PROT_EXEC: u32 = linux_raw_sys::general::PROT_EXEC;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The error is an errno, as a positive number.
pub type Result<T> = core::result::Result<T, i32>;

/// Makes a system call. Returns what the kernel answers: errors are `-4095..0`.
///
/// # Safety
/// As the call demands.
pub unsafe fn raw(nr: u32, a: [u64; 6]) -> u64 {
    let ret;
    // SAFETY: the instruction changes only rax, rcx and r11, which are declared, and what the
    // kernel writes through the arguments. The caller is responsible for these.
    unsafe {
        asm!("syscall", inlateout("rax") nr as u64 => ret, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    ret
}

/// As [`raw`], for calls that make a process or thread in this memory. The child begins with
/// `begin`.
///
/// # Safety
/// The arguments name a stack that only the child uses. `data` is what `begin` takes.
pub unsafe fn raw_clone<T>(
    nr: u32,
    a: [u64; 6],
    begin: extern "C" fn(*mut T) -> !,
    data: *mut T,
) -> u64 {
    let ret;
    // SAFETY: the parent sees an ordinary system call. The child uses only its registers and the
    // stack for which the caller is responsible, and never returns.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") nr as u64 => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            in("r12") data, in("r13") begin, lateout("rcx") _, lateout("r11") _,
        );
    }
    ret
}

/// Separates results from errors.
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
    // SAFETY: callers in this module and below pass pointers to memory that they own or borrow.
    // Calls that change mappings change the recorder's own, or what the program has asked for.
    result(unsafe { raw(nr, six) })
}

/// Whether the process has a capability in its user namespace.
pub fn has_capability(number: u32) -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Effective, permitted and inheritable ones, 32 bits each, twice.
    let mut sets = [0u32; 6];
    let a = [header.as_ptr() as u64, sets.as_mut_ptr() as u64];
    call(__NR_capget, a).is_ok() && sets[0] >> number & 1 != 0
}

/// Makes the kernel apply a filter of `len` instructions at address `code`.
pub fn install_filter(len: u16, code: u64) {
    const SET_MODE_FILTER: u64 = 1;
    let program = [len as u64, code];
    let _ = call(__NR_seccomp, [SET_MODE_FILTER, 0, program.as_ptr() as u64]);
}

/// Tells the kernel where the parts of the process are (`struct prctl_mm_map`, the first eleven
/// fields), and its auxiliary vector. Works since Linux 3.18, if the kernel was built for it.
pub fn set_memory_map(limits: &[u64; 11], auxv: &[u8]) {
    const PR_SET_MM: u64 = 35;
    const PR_SET_MM_MAP: u64 = 14;
    let mut map = [0; 13];
    map[..11].copy_from_slice(limits);
    map[11] = auxv.as_ptr() as u64;
    // The upper half says that the program's file stays.
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

/// From now on the process gets no rights that it does not have.
pub fn give_up_privileges() {
    let set = linux_raw_sys::prctl::PR_SET_NO_NEW_PRIVS as u64;
    let _ = call(__NR_prctl, [set, 1, 0, 0, 0]);
}

/// The kernel's limit on a resource of this process, soft and hard. Sets it to `new`, if given.
pub fn limit(resource: u32, new: Option<(u64, u64)>) -> Result<(u64, u64)> {
    let new = new.map(|(soft, hard)| [soft, hard]);
    let mut old = [u64::MAX; 2];
    let at = new.as_ref().map_or(0, |n| n.as_ptr() as u64);
    let a = [0, resource as u64, at, old.as_mut_ptr() as u64];
    call(__NR_prlimit64, a).map(|_| (old[0], old[1]))
}

/// Whether the process may raise hard limits (`CAP_SYS_RESOURCE`).
pub fn may_raise_limits() -> bool {
    const VERSION: u32 = 0x2008_0522;
    const SYS_RESOURCE: u32 = 24;
    let header = [VERSION, 0];
    // Effective, permitted and inheritable ones, 32 bits each, twice.
    let mut sets = [0u32; 6];
    let a = [header.as_ptr() as u64, sets.as_mut_ptr() as u64];
    call(__NR_capget, a).is_ok() && sets[0] >> SYS_RESOURCE & 1 != 0
}

/// Makes a copy of this process, as `fork` does, which sends no signal when it ends. No tracer is told. Returns 0 in the copy,
/// and its process id here. That id is in `id` before the copy runs. Both use the same table of descriptors, until the copy
/// calls [`stand_apart`].
pub fn clone_apart(id: &AtomicI32) -> Result<i32> {
    let flags = CLONE_UNTRACED | CLONE_FILES | CLONE_PARENT_SETTID;
    let a = [flags as u64, 0, id.as_ptr() as u64, 0, 0];
    call(__NR_clone, a).map(|pid| pid as i32)
}

/// Whether children are in the namespace of process ids in which this process is. False if that is not known, as before the
/// first child in another one.
pub fn stays_in_namespace() -> bool {
    let (mut own, mut of_children) = ([0; 64], [0; 64]);
    let own = (readlink(c"/proc/self/ns/pid", &mut own).ok()).map(|n| own[..n].to_vec());
    let path = c"/proc/self/ns/pid_for_children";
    let of_children = (readlink(path, &mut of_children).ok()).map(|n| of_children[..n].to_vec());
    own.is_some() && own == of_children
}

/// Whether the kernel can close all descriptors at once, as Linux 5.9 and later can.
pub fn closes_ranges() -> bool {
    let none = u32::MAX as u64;
    call(__NR_close_range, [none, none, 0]).is_ok()
}

/// Waits until a child has ended, also one that sends no signal.
pub fn wait_for(pid: i32) {
    let eintr = linux_raw_sys::errno::EINTR as i32;
    while call(__NR_wait4, [pid as u64, 0, __WALL as u64, 0]) == Err(eintr) {}
}

/// Has this process have an empty table of descriptors of its own, and leave its session. It may use all processors, and if
/// memory is used up, it is the first to go. False if it still shares the table with others.
pub fn stand_apart() -> bool {
    const UNSHARE: u64 = 2;
    let a = [0, u32::MAX as u64, UNSHARE];
    if call(__NR_close_range, a).is_err() {
        return false;
    }
    let _ = call(__NR_setsid, []);
    let all = [u64::MAX; 128];
    let a = [0, size_of_val(&all) as u64, all.as_ptr() as u64];
    let _ = call(__NR_sched_setaffinity, a);
    if let Ok(fd) = openat(AT_FDCWD, c"/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC) {
        write(fd, b"1000");
        close(fd);
    }
    true
}

/// Bytes of memory of this process's own that it has touched, roughly.
pub fn resident_memory() -> u64 {
    let mut text = [0; 128];
    let n = read_small(c"/proc/self/statm", &mut text);
    // Pages: all, resident ones, those of files.
    let mut fields = text[..n].split(|b| *b == b' ').skip(1).map(number);
    let (all, shared) = (fields.next().flatten(), fields.next().flatten());
    (all.unwrap_or(0).saturating_sub(shared.unwrap_or(0))).saturating_mul(PAGE)
}

/// Bytes of memory that the machine has left, with what it would take from its caches, and that the limits of this process's
/// control group leave. `None` if the machine does not say.
pub fn available_memory() -> Option<u64> {
    machine_memory().map(|n| n.min(resources::group_memory()))
}

fn machine_memory() -> Option<u64> {
    let mut text = [0; 512];
    let n = read_small(c"/proc/meminfo", &mut text);
    let mut lines = text[..n].split(|b| *b == b'\n');
    let line = lines.find_map(|l| l.strip_prefix(b"MemAvailable:"))?;
    let mut words = line.split(|b| *b == b' ').filter(|w| !w.is_empty());
    words.next().and_then(number)?.checked_mul(1024)
}

fn number(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Reads the beginning of a file. 0 if it cannot be read.
fn read_small(path: &core::ffi::CStr, text: &mut [u8]) -> usize {
    let Ok(fd) = open_read(path) else { return 0 };
    let n = read(fd, text).unwrap_or(0);
    close(fd);
    n
}

/// This process's id.
pub fn getpid() -> i32 {
    call(__NR_getpid, []).unwrap_or(0) as i32
}

/// The parent's id. 0 if the parent is outside of this namespace.
pub fn getppid() -> i32 {
    call(__NR_getppid, []).unwrap_or(0) as i32
}

/// The user as whom the process sends signals.
pub fn user() -> u32 {
    call(__NR_getuid, []).unwrap_or(0) as u32
}

/// The process's group.
pub fn process_group() -> i32 {
    call(__NR_getpgid, [0]).unwrap_or(0) as i32
}

/// The calling thread's id.
pub fn gettid() -> i32 {
    call(__NR_gettid, []).unwrap_or(0) as i32
}

/// Whether a process exists, as far as this one may know.
pub fn process_exists(pid: i32) -> bool {
    call(__NR_kill, [pid as u64, 0]) != Err(linux_raw_sys::errno::ESRCH as i32)
}

/// Whether a thread does not run in this memory any more:
///
/// - it has ended, also if its parent has not noticed yet;
/// - it has executed a program;
/// - its number is that of another thread now.
///
/// False if that cannot be found out.
pub fn has_left(tid: i32) -> bool {
    match has_this_memory(tid) {
        Ok(has) => !has,
        Err(e) if e == linux_raw_sys::errno::ESRCH as i32 => true,
        Err(e) if e == linux_raw_sys::errno::EFAULT as i32 => true,
        // The kernel asks for no permission for a thread with this memory. So another thread has
        // this number, unless nobody may look anywhere.
        Err(e) if e == linux_raw_sys::errno::EPERM as i32 => {
            has_this_memory(gettid()).is_ok() || !process_exists(tid)
        }
        Err(_) => !process_exists(tid),
    }
}

/// Whether a thread finds in its memory what is written here.
fn has_this_memory(tid: i32) -> Result<bool> {
    // Random bytes: a copy of this memory, or another image of the recorder, does not have them.
    let (mut here, mut found) = ([0u8; 8], [0u8; 8]);
    getrandom(&mut here);
    let local = [found.as_mut_ptr() as u64, 8];
    let remote = [here.as_ptr() as u64, 8];
    let (local, remote) = (local.as_ptr() as u64, remote.as_ptr() as u64);
    let read = call(__NR_process_vm_readv, [tid as u64, local, 1, remote, 1, 0])?;
    Ok(read == 8 && found == here)
}

/// Ends the process with this status.
pub fn exit_group(status: i32) -> ! {
    loop {
        let _ = call(__NR_exit_group, [status as u64]);
    }
}

/// Sets the name that `ps` shows. At most 15 bytes count.
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

/// Seconds of a clock that never goes back.
pub fn seconds() -> u64 {
    monotonic()[0]
}

/// Microseconds of the same clock.
pub fn micros() -> u64 {
    let [seconds, nanos] = monotonic();
    seconds * 1_000_000 + nanos / 1000
}

/// Nanoseconds of the same clock.
pub fn nanos() -> u64 {
    in_nanos(monotonic())
}

/// Processor time of the calling thread, in nanoseconds.
pub fn thread_nanos() -> u64 {
    in_nanos(clock(CLOCK_THREAD_CPUTIME_ID))
}

/// For how many nanoseconds the calling thread could have run and did not get a processor. 0 if the kernel does not say.
pub fn run_delay() -> u64 {
    let mut text = [0; 64];
    let n = read_small(c"/proc/thread-self/schedstat", &mut text);
    let field = text[..n].split(|b| *b == b' ').nth(1);
    field.and_then(number).unwrap_or(0)
}

fn in_nanos([seconds, nanos]: [u64; 2]) -> u64 {
    seconds * 1_000_000_000 + nanos
}

fn monotonic() -> [u64; 2] {
    clock(CLOCK_MONOTONIC)
}

/// What a clock shows, in seconds and nanoseconds. Zeros if the kernel has no such clock.
pub fn clock(which: u32) -> [u64; 2] {
    let mut ts = [0; 2];
    let _ = call(__NR_clock_gettime, [which as u64, ts.as_mut_ptr() as u64]);
    ts
}

/// Nanoseconds since 1970, as in the times of files.
pub fn time_of_day() -> u64 {
    let mut ts = [0u64; 2];
    let clock = CLOCK_REALTIME as u64;
    let _ = call(__NR_clock_gettime, [clock, ts.as_mut_ptr() as u64]);
    ts[0].wrapping_mul(1_000_000_000).wrapping_add(ts[1])
}

/// Sleeps while `word` is `value`, for `millis` milliseconds at most, or until it is woken or
/// interrupted.
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

/// Sleeps while `word` is `value`, until a thread in the same memory wakes this one, or a signal
/// comes. True if neither happened for `millis` milliseconds. The kernel compares only the lower
/// half.
pub fn futex_sleep(word: &AtomicU64, value: u64, millis: u32) -> bool {
    let ts = [millis as i64 / 1000, millis as i64 % 1000 * 1_000_000];
    let done = call(
        __NR_futex,
        [
            word.as_ptr() as u64,
            (FUTEX_WAIT | FUTEX_PRIVATE_FLAG) as u64,
            value as u32 as u64,
            ts.as_ptr() as u64,
        ],
    );
    done == Err(linux_raw_sys::errno::ETIMEDOUT as i32)
}

/// Wakes one thread that sleeps on `word`, in the same memory.
pub fn futex_wake_one(word: &AtomicU64) {
    let _ = call(
        __NR_futex,
        [
            word.as_ptr() as u64,
            (FUTEX_WAKE | FUTEX_PRIVATE_FLAG) as u64,
            1,
        ],
    );
}

/// Lets another thread run.
pub fn sched_yield() {
    let _ = call(__NR_sched_yield, []);
}

/// Sleeps for `millis` milliseconds, or until a signal comes.
pub fn sleep_ms(millis: u32) {
    let ts = [millis as i64 / 1000, millis as i64 % 1000 * 1_000_000];
    let _ = call(__NR_nanosleep, [ts.as_ptr() as u64, 0]);
}

/// Sleeps for `micros` microseconds, or until a signal comes. A second or more counts as a bit less
/// than a second.
pub fn sleep_us(micros: u64) {
    let ts = [0, micros.min(999_999) as i64 * 1000];
    let _ = call(__NR_nanosleep, [ts.as_ptr() as u64, 0]);
}

/// The end of the kernel's heap.
pub fn kernel_brk() -> u64 {
    set_kernel_brk(0)
}

/// Asks the kernel to move the end of its heap. Returns where the end is then.
pub fn set_kernel_brk(end: u64) -> u64 {
    call(__NR_brk, [end]).unwrap_or(0)
}

/// See [`allow_fsgsbase`].
static FSGSBASE: AtomicBool = AtomicBool::new(false);

/// Says whether the kernel allows the instructions that change segment bases (bit 1 of
/// `AT_HWCAP2`).
pub fn allow_fsgsbase(yes: bool) {
    FSGSBASE.store(yes, Relaxed);
}

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;

/// Sets the FS base of the calling thread. It belongs to the program: the recorder does not use FS.
pub fn set_fs_base(v: u64) {
    if FSGSBASE.load(Relaxed) {
        // SAFETY: the kernel allows the instruction, and no code of the recorder uses FS.
        unsafe { asm!("wrfsbase {}", in(reg) v, options(nostack, nomem)) }
    } else {
        let _ = call(__NR_arch_prctl, [ARCH_SET_FS, v]);
    }
}

/// Makes the GS base of the calling thread point to its window.
pub fn set_gs_base(v: u64) {
    if FSGSBASE.load(Relaxed) {
        // SAFETY: the kernel allows the instruction, and the recorder uses GS for the context block
        // only.
        unsafe { asm!("wrgsbase {}", in(reg) v, options(nostack, nomem)) }
    } else {
        let _ = call(__NR_arch_prctl, [ARCH_SET_GS, v]);
    }
}

/// The most memory that the process has had resident, in bytes.
pub fn peak_memory() -> u64 {
    let mut usage = [0u64; 18];
    let _ = call(__NR_getrusage, [0, usage.as_mut_ptr() as u64]);
    // `ru_maxrss`, in KiB. It stands behind two time values.
    usage[4] * 1024
}
