//! `execve`: the process goes on with a fresh image of the recorder, which loads the new program.
//!
//! Whatever can fail is tried first, so the program gets the errors that the kernel would give. A
//! program that the recorder cannot load runs natively, and the stream says so.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

mod starter;

use crate::line;
use crate::memory::limits;
use crate::process::loader::{self, Verdict};
use crate::process::procfiles::{self, File};
use crate::signals::{delivery, traced};
use crate::stream::descriptor;
use crate::stream::ring::{self, Emitter};
use crate::sys::log::Plain;
use crate::sys::program::{self, Fd};
use crate::sys::{self, config, guard, resources, script, stub};
use crate::thread::Thread;
use crate::thread::call::{args, errno};
use crate::thread::exec::Plan;
use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use hindsight_events::config::{Config, PATH_LEN, children};
use hindsight_events::select::program_matches;
use hindsight_events::{EndKind, Event};
use hindsight_isa::regs::RAX;
use linux_raw_sys::errno::*;
use linux_raw_sys::general::*;

/// How many scripts may run each other.
const DEPTH: usize = 5;

/// `AT_EXECVE_CHECK`, since Linux 6.14: only asks whether a file may be executed.
const CHECK: u32 = 0x10000;

/// Why the recorder does not load a program.
enum Stop {
    /// The kernel would refuse it, with this errno.
    Fails(u32),
    /// The recorder cannot load it, for this reason.
    Native(&'static str),
}

/// The call's arguments.
struct Request {
    dir: i32,
    path: CString,
    argv: u64,
    envp: u64,
    flags: u32,
    /// The name that the program used, if `path` is another one.
    name: Option<CString>,
    /// Keeps the file open, if it is a copy of the program's own.
    copy: Option<Fd>,
}

/// Performs `execve` or `execveat`. Returns only if it fails. `None`: a signal has to be delivered
/// first.
pub fn perform(t: &mut Thread, nr: u32, a: &[u64; 6]) -> Option<u64> {
    let Some(q) = request(nr, a) else {
        // The kernel will find the same fault, or is only asked a question.
        return replace(t, nr, *a);
    };
    if t.task.is_silent && config::get().children != children::MATCHING {
        return native(t, q, None);
    }
    if traced::by_recorded() {
        return native(t, q, Some("another recorded process traces it"));
    }
    let raised = resources::Raised::new();
    match program(&q) {
        Ok((exe, front)) => follow(t, q, exe, front, raised),
        Err(Stop::Fails(e)) => Some(errno(e)),
        Err(Stop::Native(why)) => {
            drop(raised);
            native(t, q, Some(why))
        }
    }
}

fn request(nr: u32, a: &[u64; 6]) -> Option<Request> {
    let (dir, [path, argv, envp], flags) = match nr {
        __NR_execve => (AT_FDCWD, [a[0], a[1], a[2]], 0),
        _ => (a[0] as i32, [a[1], a[2], a[3]], a[4] as u32),
    };
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0 {
        return None;
    }
    let path = guard::read_path(path)?;
    let own = matches!(procfiles::find(dir, &path), Some((File::Exe, _)));
    let mut q = Request {
        dir,
        path: CString::new(path).ok()?,
        argv,
        envp,
        flags,
        name: None,
        copy: None,
    };
    if own && flags & AT_SYMLINK_NOFOLLOW == 0 {
        q.name = Some(execfn(&q));
        (q.path, q.copy) = program::path();
        q.dir = AT_FDCWD;
    }
    Some(q)
}

/// Finds the ELF file that the kernel would run. If it is a script's interpreter, also returns the
/// arguments that take the place of the first one.
fn program(q: &Request) -> Result<(Fd, Vec<CString>), Stop> {
    let mut file = open(q.dir, &q.path, q.flags)?;
    if program::is_recorder(file.0) {
        // The path led to the program by way of a link to `/proc/self/exe`.
        file = open(AT_FDCWD, &program::path().0, 0)?;
    }
    let mut name = execfn(q);
    let mut front: Vec<CString> = Vec::new();
    for depth in 0.. {
        let mut start = [0; script::LINE];
        let n = sys::pread(file.0, &mut start, 0).map_err(|e| Stop::Fails(e as u32))?;
        if !start.starts_with(b"#!") {
            if !start.starts_with(b"\x7fELF") {
                return Err(other_format());
            }
            if let Some(why) = changes_identity(file.0) {
                return Err(Stop::Native(why));
            }
            return match loader::check(file.0) {
                Verdict::Loads => Ok((file, front)),
                Verdict::Fails(e) => Err(Stop::Fails(e)),
                Verdict::Native(why) => Err(Stop::Native(why)),
            };
        }
        let Some((interpreter, argument)) = script::parse(&start[..n]) else {
            return Err(Stop::Fails(ENOEXEC));
        };
        if q.dir != AT_FDCWD && sys::closes_on_exec(q.dir) && !q.path.to_bytes().starts_with(b"/") {
            // The interpreter could not open the script.
            return Err(Stop::Fails(ENOENT));
        }
        front.splice(
            ..front.len().min(1),
            [Some(interpreter.clone()), argument, Some(name)]
                .into_iter()
                .flatten(),
        );
        file = open(AT_FDCWD, &interpreter, 0)?;
        if depth == DEPTH {
            return Err(Stop::Fails(ELOOP));
        }
        name = interpreter;
    }
    Err(Stop::Fails(ELOOP))
}

/// The name by which the kernel knows what is executed.
fn execfn(q: &Request) -> CString {
    if let Some(name) = &q.name {
        return name.clone();
    }
    let path = q.path.to_bytes();
    if q.dir == AT_FDCWD || path.starts_with(b"/") {
        return q.path.clone();
    }
    let mut name = line!("/dev/fd/{}", q.dir).as_bytes().to_vec();
    if !path.is_empty() {
        name.push(b'/');
        name.extend_from_slice(path);
    }
    CString::new(name).unwrap_or_default()
}

/// Opens a file for reading, if the kernel would execute it.
fn open(dir: i32, path: &CStr, flags: u32) -> Result<Fd, Stop> {
    // The kernel would need no descriptor for this.
    let fails = |e: i32| match e as u32 {
        EMFILE | ENFILE => Stop::Native("no file descriptor is free"),
        e => Stop::Fails(e),
    };
    let empty = path.is_empty();
    if empty && flags & AT_EMPTY_PATH == 0 {
        return Err(Stop::Fails(ENOENT));
    }
    let nofollow = if flags & AT_SYMLINK_NOFOLLOW != 0 {
        O_NOFOLLOW
    } else {
        0
    };
    let held;
    let at = if empty {
        dir
    } else {
        held = Fd(sys::openat(dir, path, O_PATH | O_CLOEXEC | nofollow).map_err(fails)?);
        held.0
    };
    let mode = sys::fstat(at).map_err(fails)?.st_mode;
    match mode & S_IFMT {
        S_IFREG => {}
        S_IFLNK => return Err(Stop::Fails(ELOOP)),
        _ => return Err(Stop::Fails(EACCES)),
    }
    may_execute(at, mode)?;
    let link = line!("/proc/self/fd/{at}\0");
    let link = CStr::from_bytes_until_nul(link.as_bytes()).unwrap_or(c"");
    let how = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    let file = if empty {
        sys::openat(AT_FDCWD, link, how)
    } else {
        sys::openat(dir, path, how | nofollow)
    };
    file.map(Fd)
        .map_err(|_| Stop::Native("its file may be executed, but not read"))
}

fn may_execute(fd: i32, mode: u32) -> Result<(), Stop> {
    let argv = [c"".as_ptr() as u64, 0];
    let flags = (AT_EMPTY_PATH | CHECK) as u64;
    let list = argv.as_ptr() as u64;
    let check = [fd as u64, c"".as_ptr() as u64, list, list + 8, flags, 0];
    // SAFETY: the call executes nothing. Older kernels do not know the flag and refuse the call.
    match sys::result(unsafe { sys::raw(__NR_execveat, check) }) {
        Ok(_) => return Ok(()),
        Err(e) if e != EINVAL as i32 && e != ENOSYS as i32 => return Err(Stop::Fails(e as u32)),
        Err(_) => {}
    }
    match sys::may_execute(fd) {
        Ok(()) => Ok(()),
        Err(e) if e == ENOSYS as i32 && mode & 0o111 != 0 => Ok(()),
        Err(_) => Err(Stop::Fails(EACCES)),
    }
}

/// The file is neither ELF nor a script. It can run only if the system's administrator has
/// registered its format.
fn other_format() -> Stop {
    match sys::open_read(c"/proc/sys/fs/binfmt_misc/status") {
        Ok(fd) => {
            sys::close(fd);
            Stop::Native("not an ELF program")
        }
        Err(_) => Stop::Fails(ENOEXEC),
    }
}

/// Whether the kernel would give a program of this file other rights than this process has, and
/// why. It would not give them to the recorder.
fn changes_identity(fd: i32) -> Option<&'static str> {
    const ST_NOSUID: u64 = 2;
    let st = sys::fstat(fd).ok()?;
    let (uid, gid) = sys::effective_ids();
    let setuid = st.st_mode & S_ISUID != 0 && st.st_uid != uid;
    let setgid = st.st_mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && st.st_gid != gid;
    let capable = uid != 0 && sys::has_attribute(fd, c"security.capability");
    if !(setuid || setgid || capable) || sys::no_new_privileges() {
        return None;
    }
    if sys::mount_flags(fd) & ST_NOSUID != 0 {
        return None;
    }
    Some("it runs with the rights of another user")
}

/// Makes a new recorder load `exe`. Returns only if that fails.
fn follow(
    t: &mut Thread,
    q: Request,
    exe: Fd,
    front: Vec<CString>,
    raised: resources::Raised,
) -> Option<u64> {
    let argv = if front.is_empty() {
        Vec::new()
    } else {
        match arguments(q.argv, &front) {
            Ok(v) => v,
            Err(e) => return Some(errno(e)),
        }
    };
    let mut plan = Box::new(Plan {
        path: execfn(&q),
        front,
        argv,
        config: config::get().clone(),
    });
    plan.config.limits = *t.emulated.limits.lock();
    let name = q.copy.is_some().then(program::link);
    let name = name.unwrap_or_else(|| sys::fd_path(exe.0));
    set_path(&mut plan.config.exe, &name);
    if config::get().children == children::MATCHING {
        let names = [&name[..], plan.path.to_bytes()];
        plan.config.plain = !names.into_iter().any(matches) as u8;
    }
    let made = legacy(t, &mut plan.config)
        .and_then(|state| Ok((state, prepare(&mut plan, &exe, t.emit.ring())?)));
    let (state, (starter, control)) = match made {
        Ok(m) => m,
        Err(why) => {
            drop(raised);
            return native(t, q, Some(why));
        }
    };
    drop(raised);
    let argv = if plan.front.is_empty() {
        q.argv
    } else {
        plan.argv.as_ptr() as u64
    };
    let flags = AT_EMPTY_PATH as u64;
    let call = [
        starter.0 as u64,
        c"".as_ptr() as u64,
        argv,
        q.envp,
        flags,
        0,
    ];
    sys::set_close_on_exec(exe.0, false);
    let held = plan.config.ctl_fd;
    sys::set_close_on_exec(held, false);
    if let Some(state) = &state {
        sys::set_close_on_exec(state.0, false);
    }
    // From here on nothing on this stack needs to be freed. It may be the stack of a child that
    // leaves its parent's memory.
    drop(name);
    drop(q);
    log!(
        Info,
        "executes {} of {}",
        Plain(plan.path.to_bytes()),
        Plain(cut(&plan.config.exe))
    );
    t.exec.plan = Some(plan);
    let ret = replace(t, __NR_execveat, call);
    log!(Info, "could not: {}", ret.map_or(0, |r| r as i64));
    t.exec.plan = None;
    sys::set_close_on_exec(held, true);
    drop(control);
    ret
}

/// Whether a program is to be recorded, by its name.
pub fn matches(path: &[u8]) -> bool {
    let pattern = CStr::from_bytes_until_nul(&config::get().matching).unwrap_or(c"");
    program_matches(pattern.to_bytes(), path)
}

/// The addresses of the arguments, with `front` in place of the first one.
fn arguments(at: u64, front: &[CString]) -> Result<Vec<u64>, u32> {
    const MOST: u64 = 1 << 22;
    let mut out: Vec<u64> = front.iter().map(|s| s.as_ptr() as u64).collect();
    for i in 0..MOST {
        if at == 0 {
            break;
        }
        let p = guard::load_u64(at.wrapping_add(8 * i)).map_err(|_| EFAULT)?;
        if p == 0 {
            break;
        }
        if i == MOST - 1 {
            return Err(E2BIG);
        }
        if i > 0 {
            out.push(p);
        }
    }
    out.push(0);
    Ok(out)
}

/// Makes a file with what the program has set for itself and its successors. `None` if it has set
/// nothing.
fn legacy(t: &Thread, c: &mut Config) -> Result<Option<Fd>, &'static str> {
    let bytes = t.emulated.filters.to_bytes();
    (c.state_fd, c.state_len) = (-1, bytes.len() as u32);
    if bytes.is_empty() {
        return Ok(None);
    }
    let file = sys::memfd_create(c"state").map_err(|_| "no file descriptor is free")?;
    let file = Fd(file);
    if !sys::pwrite(file.0, &bytes, 0) {
        return Err(NO_MEMORY);
    }
    c.state_fd = file.0;
    Ok(Some(file))
}

/// Makes the file that starts the recorder for `exe`. The second descriptor is that of the control
/// file, if it had to be opened.
fn prepare(
    plan: &mut Plan,
    exe: &Fd,
    ring: Option<usize>,
) -> Result<(Fd, Option<Fd>), &'static str> {
    let c = &mut plan.config;
    c.exe_fd = exe.0;
    set_path(&mut c.execfn, plan.path.to_bytes());
    (c.ctl_fd, c.parent, c.ring) = (-1, ring::image(), ring.map_or(-1, |r| r as i32));
    c.namespace = ring::namespace();
    c.collector = ring::collector();
    c.attached = 0;
    let mut opened = None;
    if ring::image() != 0 {
        c.ctl_fd = match descriptor::fd().filter(|fd| ring::is_control(*fd)) {
            Some(fd) => fd,
            None => opened.insert(find_control()?).0,
        };
    }
    let starter = starter::make(c)?;
    Ok((starter, opened))
}

const NO_MEMORY: &str = "there is no memory for the recorder";

/// Opens the control file again, in a process that had to close it.
fn find_control() -> Result<Fd, &'static str> {
    let [pid, fd] = ring::collector();
    let link = line!("/proc/{pid}/fd/{fd}\0");
    let link = CStr::from_bytes_until_nul(link.as_bytes()).unwrap_or(c"");
    // In another `/proc` the path may lead to a file of another process.
    sys::openat(AT_FDCWD, link, O_RDWR | O_CLOEXEC | O_NONBLOCK)
        .map(Fd)
        .ok()
        .filter(|fd| ring::is_control(fd.0))
        .ok_or("the memory shared with the collector cannot be reached by its /proc")
}

/// A zero-terminated path.
fn cut(field: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(field).map_or(field, CStr::to_bytes)
}

fn set_path(field: &mut [u8; PATH_LEN], path: &[u8]) {
    let n = path.len().min(PATH_LEN - 1);
    field.fill(0);
    field[..n].copy_from_slice(&path[..n]);
}

/// Makes the kernel execute the program itself. `why` is what the stream says about it.
fn native(t: &mut Thread, mut q: Request, why: Option<&str>) -> Option<u64> {
    q.name = None;
    let [dir, path] = [q.dir as u64, q.path.as_ptr() as u64];
    let (nr, call) = match q.dir {
        // The program's filters may allow only this call.
        AT_FDCWD if q.flags == 0 => (__NR_execve, [path, q.argv, q.envp, 0, 0, 0]),
        _ => (
            __NR_execveat,
            [dir, path, q.argv, q.envp, q.flags as u64, 0],
        ),
    };
    let recorded = t.emit.ctl().is_some();
    log!(
        Info,
        "executes {} without the recorder: {}",
        Plain(q.path.to_bytes()),
        why.unwrap_or("nothing is recorded here")
    );
    if let (true, Some(why)) = (recorded, why) {
        let name = core::str::from_utf8(q.path.to_bytes()).unwrap_or("a program");
        let message = line!("{name} runs unrecorded: {why}");
        t.event(&Event::End {
            kind: EndKind::Exec,
            code: 0,
            message: message.as_bytes(),
        });
        t.publish();
        t.task.end_stream();
        t.emit.end();
    }
    // The thread holds the path for the same reason as a plan.
    t.exec.leaving = Some(q.path);
    limits::apply(t);
    let ret = leave(t, nr, call, true);
    limits::lift();
    t.exec.leaving = None;
    if recorded && why.is_some() {
        reborn(t);
    }
    ret
}

/// The call has failed, so the thread goes on. It gets a new stream that begins before the system
/// call.
fn reborn(t: &mut Thread) {
    t.emit.release();
    t.set_emitter(Emitter::thread().unwrap_or_else(Emitter::silent));
    (t.pos, t.ctx.count, t.mispredictions) = (0, 0, 0);
    t.sequence_always();
    t.begin();
    let (nr, args) = (t.ctx.gpr[RAX], args(t));
    t.event(&Event::Syscall { nr, args });
}

fn replace(t: &mut Thread, nr: u32, call: [u64; 6]) -> Option<u64> {
    leave(t, nr, call, false)
}

/// Makes the system call, with the state of signals that the new program has to find. `native`: no
/// recorder will run in it.
fn leave(t: &mut Thread, nr: u32, call: [u64; 6], native: bool) -> Option<u64> {
    if !delivery::before_exec(t) {
        return None;
    }
    if native {
        t.emulated.filters.install();
    }
    let inbox = t.inbox;
    let ret = crate::signals::sharers::leave(t, || {
        // SAFETY: if the call succeeds, nothing of this program is left. If it fails, it has
        // changed nothing.
        unsafe { stub::call(nr as u64, call, &inbox.full) }
    });
    delivery::after_exec(t);
    ret
}
