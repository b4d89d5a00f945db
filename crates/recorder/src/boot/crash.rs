//! The end of a recording by an error of the recorder's own: a violated invariant, a panic, a fault in its own code. All of
//! them are panics and come here.
//!
//! Whoever is in error may hold any lock, and what it was about to change may be half changed. So nothing here allocates or
//! waits for a lock.

use crate::code::cache;
use crate::line;
use crate::signals::handler;
use crate::sys::fail::{self, tell};
use crate::sys::line::Line;
use crate::sys::log::{self, Plain};
use crate::sys::{self, config};
use crate::thread::signal_state::SYNCHRONOUS;
use crate::thread::{Thread, end};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicI32, Ordering::*};

/// The thread that tells of an error; 0: none does.
static TELLER: AtomicI32 = AtomicI32::new(0);

/// Milliseconds that another thread has for that.
const PATIENCE: u32 = 1000;

/// Ends the process because of an error of the recorder's own.
pub fn panicked(info: &PanicInfo) -> ! {
    sys::set_signal_mask(!SYNCHRONOUS);
    let tid = sys::gettid();
    if let Err(other) = TELLER.compare_exchange(0, tid, SeqCst, SeqCst) {
        if other == tid {
            // What is broken cannot even be told.
            sys::exit_group(fail::STATUS);
        }
        // It ends this process too, unless it is a process of its own in this memory.
        sys::sleep_ms(PATIENCE);
        TELLER.store(tid, SeqCst);
    }
    let message = message(info);
    fail::divert(&message);
    tell(&message);
    // SAFETY: what used the thread has panicked.
    let mut thread = unsafe { end::present() };
    if let Some(t) = &mut thread {
        place(t);
    }
    advise();
    fail::tell_log();
    end::broken(thread, &message)
}

fn message(info: &PanicInfo) -> Line {
    let text = info.message();
    match info.location() {
        Some(at) => {
            let file = at.file();
            let short = file.rsplit_once("crates/").map_or(file, |(_, rest)| rest);
            line!("internal error at {short}:{}: {text}", at.line())
        }
        None => line!("internal error: {text}"),
    }
}

/// Says where the thread stands.
fn place(t: &Thread) {
    let how = match () {
        () if config::get().plain != 0 => "in a program that is not recorded",
        () if t.gaps.is_open() => "in a gap",
        () if t.regime.quiet => "in the quiet regime",
        () => "in the checked regime",
    };
    let (tid, pid) = (sys::gettid(), sys::getpid());
    tell(&line!(
        "thread {tid} of process {pid}, position {}, before or in the instruction at {:#x}, {how}",
        t.pos,
        t.ctx.rip
    ));
    let host = handler::entered(t);
    match cache::source(host) {
        Some((pc, len)) => tell(&line!(
            "its last translated code: {host:#x}, in the block made of {len} bytes at {pc:#x}"
        )),
        None => tell(&line!("its last translated code: {host:#x}")),
    }
}

/// Says how to see more.
fn advise() {
    let wanted = match (log::is_on(), log::is_written_through()) {
        (false, _) => "HINDSIGHT_LOG=all=debug to see what led here",
        (true, false) => {
            "HINDSIGHT_LOG=all=trace and HINDSIGHT_LOG_FILE=FILE to see all that led here"
        }
        (true, true) => "the same log levels and compare the logs",
    };
    let chaos = match config::get().chaos {
        0 => line!(""),
        seed => line!(" --chaos={} and", seed - 1),
    };
    tell(&line!(
        "to reproduce it, record the same again with{} {wanted}",
        Plain(chaos.as_bytes())
    ));
}
