//! The threads of the process: their registers, and what the kernel keeps for them.

use super::inject::Injector;
use super::xsave;
use crate::received::Received;
use crate::{During, Result};
use hindsight_inspect::state::ThreadState;
use hindsight_remote::Thread;

/// Numbers of registers in [`ThreadState::registers`].
const RIP: usize = 16;
/// Flags that programs may set.
const FLAGS: u64 = 0x3f_7fd5;
/// The interrupt flag, and bit 1, which is always set.
const ALWAYS: u64 = 0x202;
/// The alternate stack is in use: the kernel finds that out by itself.
const ON_STACK: u64 = 1;

/// Makes all threads and gives them all that they had, and takes what is ours out of the process.
pub fn make(i: &mut Injector, r: &Received) -> Result<()> {
    let s = &r.state;
    let mut all = vec![i.first];
    for state in &s.threads[1..] {
        let made = i.thread(state.tid);
        all.push(made.during(|| format!("making thread {}", state.tid))?);
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

/// What the kernel keeps for a thread.
fn kept_by_kernel(i: &Injector, t: Thread, s: &ThreadState, r: &Received) -> Result<()> {
    let step = |what: &str| format!("{what} of thread {}", s.tid);
    if s.clears != 0 {
        i.call_by(t, libc::SYS_set_tid_address, &[s.clears])
            .during(|| step("set_tid_address"))?;
        // The word that the kernel clears at the thread's end holds its id until then.
        let word = r.memory_at(s.clears, 4)?;
        if word == s.tid.to_le_bytes() {
            let new = t.tid().to_le_bytes();
            i.process.write(s.clears, &new).during(|| step("the id"))?;
        }
    }
    if s.robust[0] != 0 {
        i.call_by(t, libc::SYS_set_robust_list, &s.robust)
            .during(|| step("set_robust_list"))?;
    }
    if let Some([at, flags, size]) = s.alternate {
        let words = [at, flags & !ON_STACK, size].map(u64::to_le_bytes);
        i.put(&words.concat())?;
        i.call_by(t, libc::SYS_sigaltstack, &[i.data(), 0])
            .during(|| step("sigaltstack"))?;
    }
    if let Some([at, len, signature]) = s.rseq {
        i.call_by(t, libc::SYS_rseq, &[at, len, 0, signature])
            .during(|| step("rseq"))?;
    }
    let mut name = s.name.as_bytes()[..s.name.len().min(15)].to_vec();
    name.push(0);
    i.put(&name)?;
    let args = [libc::PR_SET_NAME as u64, i.data()];
    i.call_by(t, libc::SYS_prctl, &args)
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
