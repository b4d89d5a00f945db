//! What the library answers, on any recording:
//!
//! ```text
//! hindsight record -o gzip.hst -- gzip -k FILE
//! cargo run --release -p hindsight-timeline --example tour -- gzip.hst
//! ```

use hindsight_timeline::{
    Breakpoint, Cancel, Choice, Condition, Direction, Filter, Ground, KindOf, Options, Place,
    Reason, Scope, Stops, Timeline, regs::RSP,
};
use std::error::Error;
use std::io::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(path) = std::env::args_os().nth(1) else {
        return Err("usage: tour TRACE".into());
    };
    let out = std::io::stdout();
    whole(path.as_ref(), &mut out.lock())
}

/// Goes through everything.
pub fn whole(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let t = Timeline::open(path, Options::default())?;
    lists(&t, out)?;
    state(&t, out)?;
    steps(&t, out)?;
    stops(&t, out)?;
    memory(&t, out)?;
    cancelled(&t, out)
}

/// What there is in the recording.
fn lists(t: &Timeline, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    for p in t.processes()? {
        writeln!(
            out,
            "process {} {}: {} to {}",
            p.pid, p.command, p.begin, p.end
        )?;
        for m in t.modules(p.image)? {
            writeln!(out, "  {:#x}-{:#x} {}", m.start, m.end, m.path)?;
        }
    }
    for thread in t.threads()? {
        let n = thread.to - thread.from;
        let segments = t.segments(thread.id)?.count();
        writeln!(
            out,
            "thread {}: {n} instructions in {segments} segments, {:?}",
            thread.tid, thread.ending
        )?;
    }
    let of = |kind| Filter {
        kinds: vec![kind],
        ..Filter::default()
    };
    let [calls, exceptions, gaps] = [KindOf::Syscall, KindOf::Exception, KindOf::Gap].map(of);
    writeln!(
        out,
        "{} system calls, {} exceptions, {} gaps",
        t.events(&calls)?.len(),
        t.events(&exceptions)?.len(),
        t.events(&gaps)?.len()
    )?;
    Ok(())
}

/// Registers and memory in the middle.
fn state(t: &Timeline, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut c = t.cursor()?;
    c.seek(t.find("50%".parse::<Place>()?, None)?)?;
    let cpu = c.registers()?;
    let (position, rip, rsp) = (c.position()?, cpu.rip, cpu.gpr[RSP]);
    writeln!(
        out,
        "{position}: rip {rip:#x}, rsp {rsp:#x}, zmm0 {:x?}",
        c.vectors()?.zmm[0]
    )?;
    let m = c.memory(rsp, 16)?;
    for (at, byte) in (m.address..).zip(&m.bytes) {
        match byte {
            Some(k) => writeln!(out, "  {at:#x}: {:02x}, {}", k.value, ground(k.ground))?,
            None => writeln!(out, "  {at:#x}: unknown")?,
        }
    }
    for other in &m.candidates {
        // Threads that nothing keeps in order.
        writeln!(out, "  or {:x?}, by thread {}", other.bytes, other.thread)?;
    }
    Ok(())
}

fn ground(g: Ground) -> &'static str {
    match g {
        Ground::Written => "written before",
        Ground::Read => "read before",
        Ground::Exposed => "read later",
        Ground::Module => "as in the file",
        Ground::Fresh => "never touched",
        Ground::Code => "executed",
        Ground::Restated => "as a key frame says",
    }
}

/// Step by step, in both directions.
fn steps(t: &Timeline, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut c = t.cursor()?;
    c.seek(t.find(Place::Percent(50.0), None)?)?;
    let start = c.position()?;
    c.step(Direction::Forward, Scope::Thread)?;
    c.step(Direction::Backward, Scope::Thread)?;
    let same = c.position()? == start;
    writeln!(out, "one further and one back: the same place is {same}")?;
    let over = c.step_over(Direction::Forward)?;
    writeln!(out, "over a call: {}", over.position)?;
    let caller = c.step_out(Direction::Forward)?;
    writeln!(
        out,
        "out of the function: {} ({:?})",
        caller.position, caller.reason
    )?;
    Ok(())
}

/// Running to stops, in both directions.
fn stops(t: &Timeline, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut c = t.cursor()?;
    c.seek(t.find(Place::Percent(50.0), None)?)?;
    // The next system call of any thread, and the one before.
    let mut calls = Stops {
        syscalls: Choice::All,
        ..Stops::default()
    };
    let next = c.run(Direction::Forward, Scope::All, &mut calls)?;
    writeln!(out, "next system call: {} {:?}", next.position, next.reason)?;
    let last = c.run(Direction::Backward, Scope::All, &mut calls)?;
    writeln!(out, "the one before: {} {:?}", last.position, last.reason)?;
    // Back to where this instruction was executed with another stack pointer.
    let cpu = c.registers()?;
    let mut elsewhere = Breakpoint::at(1, cpu.rip);
    elsewhere.condition = Some(Condition::code(|view| {
        view.registers().gpr[RSP] != cpu.gpr[RSP]
    }));
    let mut stops = Stops {
        breakpoints: vec![elsewhere],
        ..Stops::default()
    };
    let stop = c.run(Direction::Backward, Scope::Thread, &mut stops)?;
    writeln!(
        out,
        "here with another stack: {} {:?}",
        stop.position, stop.reason
    )?;
    Ok(())
}

/// Who wrote to this part of the stack last, and who uses it next?
fn memory(t: &Timeline, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut c = t.cursor()?;
    c.seek(t.find(Place::Percent(50.0), None)?)?;
    let rsp = c.registers()?.gpr[RSP];
    if let Some(w) = c.last_write(rsp, 512)? {
        writeln!(out, "written at {} by {:#x}", w.position, w.pc)?;
    }
    if let Some(u) = c.first_use(rsp, 512)? {
        writeln!(out, "used next at {} by {:#x}", u.position, u.pc)?;
    }
    Ok(())
}

/// Whatever takes long can be ended from another thread.
fn cancelled(t: &Timeline, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let cancel = Cancel::new();
    let mut c = t.cursor()?;
    let stop = std::thread::scope(|s| {
        s.spawn(|| cancel.cancel());
        c.cancellable(&cancel, |c| {
            c.run(Direction::Forward, Scope::All, &mut Stops::default())
        })
    })?;
    let early = stop.reason == Reason::Cancelled;
    let what = if early {
        "was ended early"
    } else {
        "came to the end first"
    };
    writeln!(out, "a run over everything {what}")?;
    Ok(())
}
