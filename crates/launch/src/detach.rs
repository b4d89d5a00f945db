//! How a recorded process is left (see [`hindsight_events::attach`]): asking the process that records it, and what that
//! does.

mod kernel;

use crate::error::{DetachError, During, Error, ReachError, Result};
use crate::notice::{Notice, Tell};
use crate::recorder_binary;
use crate::shared::Shared;
use hindsight_collector::Control;
use hindsight_events::arena::{ARENA, FAR, FIRST_FREE};
use hindsight_events::attach::{Handoff, Plain, leave as reason};
use hindsight_events::ring::{DETACHED, NOT_DETACHED};
use hindsight_remote::{Process, Regs, Restart, Status, Stop, Thread};
use kernel::Caller;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Where translated code is, and nothing else that is executed.
const TRANSLATED: [std::ops::Range<u64>; 2] = [FIRST_FREE..ARENA.end, FAR];

/// Time between looks at threads that do not rest yet.
const ROUND: Duration = Duration::from_millis(3);

/// Time after which a word is said about what is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a process was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// It goes on by itself.
    GoesOn,
    /// It has ended meanwhile.
    Ended,
}

/// Has a recorded process go on by itself. Asks the process that records it, whichever that is, and waits for it.
///
/// # Errors
/// The process is not recorded, or cannot be left.
pub fn detach(pid: i32) -> Result<Left> {
    let shared = Shared::of(pid)?;
    let header = shared.header();
    let recorder = header.collector_pid.load(Relaxed);
    header.detach.store(pid, Release);
    loop {
        std::thread::sleep(Duration::from_millis(5));
        match header.detach.load(Acquire) {
            DETACHED => return Ok(Left::GoesOn),
            NOT_DETACHED => return Err(DetachError::Refused { pid, recorder }.into()),
            _ if !fs::exists(format!("/proc/{recorder}")).unwrap_or(true) => {
                return Err(ReachError::RecorderGone(recorder).into());
            }
            _ if !fs::exists(format!("/proc/{pid}")).unwrap_or(true) => return Ok(Left::Ended),
            _ => {}
        }
    }
}

/// Does what [`detach`] asks for, or a recorded process that is about to trace another one, if they do.
///
/// `told_to_end`: whether somebody waits for an end, so that threads that do not come to rest are not waited for.
pub(crate) fn serve(control: &Control, tell: &Tell, told_to_end: &dyn Fn() -> bool) {
    let header = control.header();
    for (wish, why) in [
        (&header.detach, reason::ASKED),
        (&header.traced, reason::TRACED),
    ] {
        let pid = wish.load(Acquire);
        if pid <= 0 {
            continue;
        }
        let answer = if !is_ours(control, pid) {
            NOT_DETACHED
        } else {
            match leave(pid, why, (tell, told_to_end)) {
                Ok(()) => DETACHED,
                Err(e) => {
                    tell(&Notice::NotDetached { pid, why: &e });
                    NOT_DETACHED
                }
            }
        };
        wish.store(answer, Release);
    }
}

/// Has all recorded processes go on by themselves.
pub(crate) fn leave_all(control: &Control, tell: &Tell, told_to_end: &dyn Fn() -> bool) {
    let ours = |pid: &i32| control.is_shared_with(*pid);
    for pid in recorded(control).into_iter().filter(ours) {
        if let Err(e) = leave(pid, reason::ASKED, (tell, told_to_end)) {
            tell(&Notice::NotDetached { pid, why: &e });
        }
    }
}

/// The processes that are being recorded.
fn recorded(control: &Control) -> BTreeSet<i32> {
    let all = control.producers();
    let pids = all
        .iter()
        .filter(|p| p.begun)
        .map(|p| p.pid.saturating_abs());
    pids.filter(|pid| *pid > 0).collect()
}

/// Whether a process is being recorded.
pub(crate) fn is_recorded(control: &Control, pid: i32) -> bool {
    recorded(control).contains(&pid)
}

/// Whether a process that is said to be recorded may be left: a program can write any number there.
fn is_ours(control: &Control, pid: i32) -> bool {
    is_recorded(control, pid) && control.is_shared_with(pid)
}

/// Addresses of the recorder that matter here.
struct Places {
    filtered: u64,
    flag: u64,
    parked: std::ops::Range<u64>,
    stub: u64,
    syscall: u64,
    cancel: u64,
    finish: u64,
}

impl Places {
    fn find() -> Result<Places> {
        let [
            filtered,
            flag,
            parked,
            parked_end,
            stub,
            syscall,
            cancel,
            finish,
        ] = recorder_binary::symbols([
            "HINDSIGHT_FILTERED",
            "HINDSIGHT_DETACH",
            "hindsight_parked",
            "hindsight_parked_end",
            "hindsight_stub_begin",
            "hindsight_stub_syscall",
            "hindsight_stub_cancel",
            "hindsight_detach_finish",
        ])?;
        Ok(Places {
            filtered,
            flag,
            parked: parked..parked_end,
            stub,
            syscall,
            cancel,
            finish,
        })
    }
}

/// Who is told what happens, and whether there is an end to be waited for.
type User<'u> = (&'u Tell, &'u dyn Fn() -> bool);

/// Has a recorded process go on by itself, for a [`reason`]. If it ends meanwhile that is as well.
fn leave(pid: i32, why: u32, user: User) -> Result<()> {
    let tell = user.0;
    let places = Places::find()?;
    let mut process = match Process::open(pid) {
        Ok(p) => p,
        Err(_) if gone(pid) => return Ok(()),
        Err(e) => return Err(e).during("its memory is out of reach"),
    };
    let mut filtered = [0; 4];
    if process.read(places.filtered, &mut filtered).is_ok() && filtered != [0; 4] {
        return Err(match u32::from_ne_bytes(filtered) & 1 {
            0 => DetachError::Dispatched.into(),
            _ => DetachError::Filtered.into(),
        });
    }
    if why == reason::TRACED {
        // Who waits for this does something in the meantime that others may wait for, such as this process.
        let began = Instant::now();
        while let Some(tid) = uninterruptible(pid) {
            if began.elapsed() > PATIENCE {
                return Err(DetachError::NeverRests(format!("its thread {tid}")).into());
            }
            std::thread::sleep(ROUND);
        }
    }
    let Some(blocked) = bring_to_rest(&mut process, &places, why, user)? else {
        return Ok(());
    };
    let threads = process.threads().to_vec();
    let mut rests = Vec::new();
    for t in &threads {
        let regs = t.regs()?;
        let mut bytes = vec![0; size_of::<Handoff>()];
        process.read(regs.rbx, &mut bytes)?;
        let handoff = Handoff::from_bytes(&bytes).ok_or_else(|| Error::other("too few bytes"))?;
        rests.push((*t, regs, handoff));
    }
    let Some(&(first, regs, handoff)) = rests.first() else {
        return Ok(());
    };
    let mut r = regs;
    (r.rip, r.orig_rax) = (places.finish, u64::MAX);
    process.run_to(first, &r, places.parked.clone())?;
    let syscall = process.syscall_instruction()?;
    let caller = Caller::new(&process, first, syscall, regs.rsp);
    if handoff.heap[1] != 0 {
        let told = caller.tell_heap(handoff.heap);
        if let Err(e) = told {
            let what =
                "the kernel does not accept where its heap is (it needs CONFIG_CHECKPOINT_RESTORE)";
            let why = &Error::Io {
                what: what.into(),
                cause: e,
            };
            tell(&Notice::HeapUnknown { pid, why });
        }
    }
    if handoff.threads as usize == threads.len() {
        // Opened as long as there is the recorder's memory for its name.
        let recorded_from_start = handoff.heap[1] != 0;
        let program = recorded_from_start.then(|| caller.open_program());
        let args = [ARENA.start, ARENA.end - ARENA.start, 0, 0, 0, 0];
        let unmapped = process.call(first, syscall, (libc::SYS_munmap, args));
        if let Some(Ok(fd)) = program {
            // Where this needs rights that the process does not have, the link stays as it is.
            let _ = match unmapped {
                Ok(_) => caller.tell_program(guest(&regs, &handoff).rsp, handoff.heap, fd),
                Err(_) => caller.close(fd),
            };
        }
        unmapped?;
        // What was attached to may have had something of its own there.
        if recorded_from_start {
            let args = [FAR.start, FAR.end - FAR.start, 0, 0, 0, 0];
            let _ = process.call(first, syscall, (libc::SYS_munmap, args));
        }
    } else {
        tell(&Notice::StaysIn(pid));
    }
    for (t, regs, handoff) in &rests {
        let mut r = guest(regs, handoff);
        if let Some(nr) = blocked.get(&t.tid()) {
            let mut code = [0; 2];
            let there = process.read(r.rip, &mut code).is_ok() && code == [0x0f, 0x05];
            if there && r.rax == *nr {
                r.rax = libc::SYS_restart_syscall as u64;
            }
        }
        t.set_regs(&r)?;
        t.set_mask(handoff.mask)?;
    }
    process.release();
    Ok(())
}

/// A thread that waits in a system call that cannot be interrupted.
fn uninterruptible(pid: i32) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut tids = threads.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok());
    tids.find(|tid| Status::of_thread(pid, *tid).is_ok_and(|s| s.state == 'D'))
}

fn gone(pid: i32) -> bool {
    Status::of_process(pid).map_or(true, |s| s.has_ended())
}

/// Registers with which a thread goes on natively.
fn guest(now: &Regs, h: &Handoff) -> Regs {
    let mut r = *now;
    [r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi] =
        *h.cpu[..8].first_chunk().unwrap_or(&[0; 8]);
    [r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15] =
        *h.cpu[8..].first_chunk().unwrap_or(&[0; 8]);
    [r.rip, r.eflags, r.fs_base, r.gs_base] = *h.cpu[16..].first_chunk().unwrap_or(&[0; 4]);
    r.eflags |= 0x202;
    r.orig_rax = u64::MAX;
    r
}

/// Has all threads come to rest between two instructions of the program. `None`: the process has
/// ended. Otherwise the calls that threads waited in and that know what is left of their time.
fn bring_to_rest(
    process: &mut Process,
    places: &Places,
    why: u32,
    (tell, told_to_end): User,
) -> Result<Option<HashMap<i32, u64>>> {
    let (mut resting, mut blocked) = (BTreeSet::new(), HashMap::new());
    let began = Instant::now();
    let mut told = false;
    loop {
        // Each time: it may have executed another program.
        if process.write(places.flag, &why.to_le_bytes()).is_err() {
            if gone(process.pid()) {
                return Ok(None);
            }
            process.reopen()?;
        }
        let new = process.seize_new()?;
        if new.is_empty() && process.threads().iter().all(|t| resting.contains(&t.tid())) {
            return Ok(if resting.is_empty() {
                None
            } else {
                Some(blocked)
            });
        }
        for t in process.threads() {
            if !resting.contains(&t.tid()) {
                t.interrupt();
            }
        }
        let until = Instant::now() + ROUND;
        let mut open: BTreeSet<i32> = process.threads().iter().map(|t| t.tid()).collect();
        open.retain(|t| !resting.contains(t));
        while !open.is_empty() && Instant::now() < until {
            let mut idle = true;
            for t in process.threads().to_vec() {
                if !open.contains(&t.tid()) {
                    continue;
                }
                let stop = t.poll();
                idle &= stop == Stop::Running;
                match stop {
                    Stop::Running => {}
                    Stop::Gone => {
                        open.remove(&t.tid());
                        process.forget(t);
                    }
                    Stop::Signal(s) => t.go_on(s),
                    Stop::Call => t.go_on(0),
                    Stop::Interrupted | Stop::Halted => {
                        if examine(process, t, places, &mut blocked)? {
                            open.remove(&t.tid());
                            resting.insert(t.tid());
                        }
                    }
                }
            }
            if idle {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        if why == reason::TRACED && resting.is_empty() && began.elapsed() > PATIENCE {
            process.write(places.flag, &0u32.to_le_bytes())?;
            return Err(
                DetachError::NeverRests("no thread of it can be stopped: it".into()).into(),
            );
        }
        if began.elapsed() > PATIENCE && told_to_end() {
            process.write(places.flag, &0u32.to_le_bytes())?;
            return Err(DetachError::Restless.into());
        }
        if !told && began.elapsed() > PATIENCE {
            told = true;
            tell(&Notice::WaitsForThreads(process.pid()));
        }
    }
}

/// Looks at a stopped thread: whether it rests. If not, it goes on, on its way there.
fn examine(
    process: &Process,
    t: Thread,
    places: &Places,
    blocked: &mut HashMap<i32, u64>,
) -> Result<bool> {
    let mut r = t.regs()?;
    if places.parked.contains(&r.rip) {
        return Ok(true);
    }
    let restart = Restart::of(&r);
    let waits = r.rip == places.syscall + 2 && restart != Restart::None;
    let before = (places.stub..=places.syscall).contains(&r.rip);
    if waits || before {
        // A signal that is due decides by itself how the call ends.
        if waits && Status::of_thread(process.pid(), t.tid())?.deliverable() != 0 {
            t.go_on(0);
            return Ok(false);
        }
        if let Restart::Block(nr) = restart {
            // A handler would make the kernel forget what is left.
            blocked.insert(t.tid(), nr);
            t.set_mask(u64::MAX)?;
        }
        (r.rip, r.orig_rax) = (places.cancel, u64::MAX);
        t.set_regs(&r)?;
    } else if TRANSLATED.iter().any(|t| t.contains(&r.rip)) {
        t.queue(libc::SIGTRAP);
    }
    t.go_on(0);
    Ok(false)
}
