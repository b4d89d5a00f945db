//! The threads of the process: made, and given their registers and what the kernel keeps for each.

use super::inject::Injector;
use super::xsave;
use crate::received::Received;
use crate::{During, Error, Result};
use hindsight_inspect::state::ThreadState;
use hindsight_remote::Thread;
use std::time::Duration;

/// How long a new thread may take to stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// Numbers of registers in [`ThreadState::registers`].
const RIP: usize = 16;
/// Flags that programs may set.
const FLAGS: u64 = 0x3f_7fd5;
/// The interrupt flag, and bit 1, which is always set.
const ALWAYS: u64 = 0x202;
/// The alternate stack is in use: the kernel finds that out by itself.
const ON_STACK: u64 = 1;

/// Makes all threads, and takes what is ours out of the process.
pub fn make(i: &mut Injector, r: &Received) -> Result<()> {
    let s = &r.state;
    let mut all = vec![i.first];
    for t in &s.threads[1..] {
        all.push(new_thread(i, t.tid)?);
    }
    for (t, state) in all.iter().zip(&s.threads) {
        kept_by_kernel(i, *t, state, r)?;
    }
    for a in 1..=64 {
        action(i, r, a)?;
    }
    if let Some(mask) = s.umask {
        i.call(libc::SYS_umask, &[mask.into()])
            .during(|| "umask".into())?;
    }
    i.leave()?;
    for (t, state) in all.iter().zip(&s.threads) {
        registers(*t, state).during(|| "setting registers".into())??;
    }
    Ok(())
}

/// Makes a thread, which waits in a loop of ours. It gets the recorded id if that is possible.
fn new_thread(i: &mut Injector, tid: i32) -> Result<Thread> {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    // `struct clone_args`, and behind it the id.
    let mut args = [0u64; 11];
    args[0] = flags as u64;
    (args[8], args[9]) = (i.data() + 80, 1);
    args[10] = tid as u32 as u64;
    i.put(&args.map(u64::to_le_bytes).concat())?;
    let made = match i.call(libc::SYS_clone3, &[i.data(), 80]) {
        Ok(tid) => tid,
        Err(_) => i
            .call(libc::SYS_clone, &[flags as u64, 0, 0, 0, 0])
            .during(|| "making a thread".into())?,
    };
    i.process
        .stop_all(PATIENCE)
        .during(|| "stopping a new thread".into())?;
    let found = i.process.threads().iter().find(|t| t.tid() as u64 == made);
    found.copied().ok_or(Error::Step(
        "making a thread".into(),
        std::io::ErrorKind::NotFound.into(),
    ))
}

/// What the kernel keeps for a thread.
fn kept_by_kernel(i: &Injector, t: Thread, s: &ThreadState, r: &Received) -> Result<()> {
    let step = |what: &str| format!("{what} of a thread");
    if s.clears != 0 {
        i.call_of(t, libc::SYS_set_tid_address, &[s.clears])
            .during(|| step("set_tid_address"))?;
        // The word that the kernel clears at the thread's end holds its id until then.
        let word = r.memory_at(s.clears, 4)?;
        if word == s.tid.to_le_bytes() {
            let new = t.tid().to_le_bytes();
            i.process.write(s.clears, &new).during(|| step("the id"))?;
        }
    }
    if s.robust[0] != 0 {
        i.call_of(t, libc::SYS_set_robust_list, &s.robust)
            .during(|| step("set_robust_list"))?;
    }
    if let Some([at, flags, size]) = s.alternate {
        let words = [at, flags & !ON_STACK, size].map(u64::to_le_bytes);
        i.put(&words.concat())?;
        i.call_of(t, libc::SYS_sigaltstack, &[i.data(), 0])
            .during(|| step("sigaltstack"))?;
    }
    let mut name = s.name.as_bytes()[..s.name.len().min(15)].to_vec();
    name.push(0);
    i.put(&name)?;
    let args = [libc::PR_SET_NAME as u64, i.data()];
    i.call_of(t, libc::SYS_prctl, &args)
        .during(|| step("the name"))?;
    Ok(())
}

/// What the process does on a signal.
fn action(i: &Injector, r: &Received, signal: u32) -> Result<()> {
    if [libc::SIGKILL, libc::SIGSTOP].contains(&(signal as i32)) {
        return Ok(());
    }
    let chosen = r.state.actions.iter().find(|a| a.signal == signal);
    let words = chosen.map_or([0; 4], |a| [a.handler, a.flags, a.restorer, a.mask]);
    i.put(&words.map(u64::to_le_bytes).concat())?;
    let args = [signal.into(), i.data(), 0, 8];
    let done = i.call(libc::SYS_rt_sigaction, &args);
    done.map(drop)
        .during(|| format!("the action of signal {signal}"))
}

fn registers(t: Thread, s: &ThreadState) -> std::io::Result<Result<()>> {
    let mut area = t.xstate()?;
    if let Err(e) = xsave::fill(&mut area, s) {
        return Ok(Err(e));
    }
    t.set_xstate(&mut area)?;
    let mut r = t.regs()?;
    let g = &s.registers;
    [r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi] =
        [g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]];
    [r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15] =
        [g[8], g[9], g[10], g[11], g[12], g[13], g[14], g[15]];
    r.rip = g[RIP];
    r.eflags = g[RIP + 1] & FLAGS | ALWAYS;
    (r.fs_base, r.gs_base) = (g[RIP + 2], g[RIP + 3]);
    // It is in no system call.
    r.orig_rax = u64::MAX;
    t.set_regs(&r)?;
    t.set_mask(s.blocked)?;
    Ok(Ok(()))
}
