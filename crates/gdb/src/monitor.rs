//! gdb's `monitor` commands.

use crate::state::carrying;
use crate::state::session::Session;
use crate::{Error, Result};
use hindsight_inspect::{Carried, Inspector, NoAssumption};
use hindsight_text::{line, lines};
use hindsight_timeline::{Dense, Direction, Filter, Found, Place, Process, ThreadId};
use std::fmt::Write;

const HELP: &str = "\
when                     the position, the thread, and how far it is
seek PLACE               goes to a position (1A2:3F), a part of the run (50%), begin, end, crash,
                         event:N, syscall:N (numbers as `events` lists them), mark:NAME, state:N (as `states`
                         lists them), time:1.5s (since the start) or a time of day (12:34:56)
states                   where the recording has all memory: the program asked for it, or the recorder did it
next-state, previous-state
                         go to the nearest of them
renew                    takes in what was written since, if the recording is still being written: `seek end`
                         then goes to its new end
checkpoint [NAME]        gives the position a name that is kept with the trace
checkpoints              lists them
restart NAME             goes to one
forget NAME              removes one
last-write ADDR [LEN]    the last instruction that wrote there
who-wrote ADDR [LEN]     the same, without going there
who-wrote $REGISTER      the last instruction that changed a general register
first-use ADDR [LEN]     the next instruction that reads or writes there
memory ADDR [LEN]        what is known of memory, why, and what it may also be; what is carried over calls that were not
                         recorded
assume [WHAT]            by what memory is completed that is not known. declared: by what is carried over calls whose
                         functions are declared to write something else; straight: as if nothing that is not recorded
                         had written any; off (at first): by nothing
events [KIND]            what happened: syscall, signal, exception, thread, process, module, gap, mark,
                         regime
threads-at               where each thread is at this position
processes                the program images of the recording
process [IMAGE]          the next step or run goes to the beginning of this one; without IMAGE: the present one
watch all|changes        whether watchpoints tell of all writes, or only of those that change the variable
                         (as they do at first)
interest FROM TO [N]     makes steps back quick between two places: the index gets a frame every N
                         instructions (100000)
why                      why the last run ended early, if it did
After a command that moves, gdb must forget what it knows of registers and memory. Use the commands
of the same names without `monitor`: they do that.
";
/// Lines of a list before it is cut.
const MAX_LINES: usize = 200;

/// How a command ended.
pub struct Done {
    /// What it prints.
    pub text: String,
    /// It did what the user asked for.
    pub well: bool,
    /// The user ended it.
    pub cancelled: bool,
}

/// The command cannot be done.
fn bad<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Command(why.into()))
}

/// Runs a command.
pub fn run(session: &mut Session, line: &str) -> Done {
    let words: Vec<&str> = line.split_whitespace().collect();
    let done = match words[..] {
        [] | ["help"] => Ok(HELP.into()),
        ["when"] => when(session),
        ["seek"] => bad("to which place? `help seek` says more"),
        ["seek", to] => seek(session, to),
        ["states"] => states(session),
        ["next-state"] => to_state(session, Direction::Forward),
        ["previous-state"] => to_state(session, Direction::Backward),
        ["renew"] => session.renew(),
        ["checkpoint"] => {
            let name = session.marks.next_name();
            checkpoint(session, &name)
        }
        ["checkpoint", name] => checkpoint(session, name),
        ["checkpoints"] => Ok(checkpoints(session)),
        ["restart"] => bad("from which checkpoint? `checkpoints` lists them"),
        ["restart", name] => match session.marks.get(name) {
            Some(p) => session.seek(p).and_then(|()| when(session)),
            None => bad(format!("no checkpoint {name}")),
        },
        ["forget"] => bad("which checkpoint? `checkpoints` lists them"),
        ["forget", name] => match session.marks.remove(name) {
            Ok(true) => Ok(String::new()),
            Ok(false) => bad(format!("no checkpoint {name}")),
            Err(e) => Err(e),
        },
        ["last-write" | "first-use" | "memory" | "who-wrote"] => bad("of which address?"),
        ["who-wrote", addr] if addr.starts_with('$') => who_changed(session, addr),
        ["who-wrote", addr] => who_wrote(session, addr, "8"),
        ["who-wrote", addr, len] => who_wrote(session, addr, len),
        // The next three are for gdb's script, which has no other way to ask. It cannot tell a register's name from a
        // variable's.
        ["who-wrote-register", what] => {
            session.register_asked = register(what).is_some();
            match session.register_asked {
                true => who_changed(session, what),
                false => Ok(String::new()),
            }
        }
        ["asked-register"] => Ok(yes_or_no(session.register_asked)),
        ["in-chosen-thread"] => Ok(yes_or_no(is_in_chosen_thread(session))),
        ["last-write", addr] => last_write(session, addr, "8"),
        ["last-write", addr, len] => last_write(session, addr, len),
        ["first-use", addr] => first_use(session, addr, "8"),
        ["first-use", addr, len] => first_use(session, addr, len),
        ["memory", addr] => memory(session, addr, "8"),
        ["memory", addr, len] => memory(session, addr, len),
        ["assume"] => Ok(format!("{}\n", carrying::says(session.carrying.assume))),
        ["assume", what] => assume(session, what),
        // What is pending for the user comes before the text of any command.
        ["notes"] => Ok(String::new()),
        ["events"] => events(session, None),
        ["events", kind] => events(session, Some(kind)),
        ["threads-at"] => threads_at(session),
        ["processes"] => processes(session),
        ["process"] => here(session),
        ["process", image] => process(session, image),
        ["watch", what @ ("all" | "changes")] => {
            session.every_write = what == "all";
            Ok(String::new())
        }
        ["interest", from, to] => interest(session, from, to, "100000"),
        ["interest", from, to, interval] => interest(session, from, to, interval),
        ["why"] => {
            let none = || "nothing went wrong\n".into();
            Ok(session.trouble.take().map_or_else(none, |t| t + "\n"))
        }
        _ => bad(format!("no such command: {line} (monitor help lists them)")),
    };
    let well = done.is_ok();
    let cancelled = matches!(
        done,
        Err(Error::Timeline(hindsight_timeline::Error::Cancelled))
    );
    let mut text = done.unwrap_or_else(|e| format!("{e}\n"));
    for note in std::mem::take(&mut session.notes) {
        text = format!("{note}\n{text}");
    }
    let text = lines(&text).into_owned();
    Done {
        text,
        well,
        cancelled,
    }
}

fn yes_or_no(is: bool) -> String {
    if is { "yes\n" } else { "no\n" }.into()
}

/// Whether the session stands in the thread that gdb's user has chosen. If not, the next run does nothing but tell gdb of
/// the thread in which it stands.
fn is_in_chosen_thread(s: &mut Session) -> bool {
    let stands = Some(s.inferior.cursor.thread());
    s.showing = s
        .chosen_thread
        .is_some_and(|tid| s.any_thread(tid) != stands);
    !s.showing
}

fn when(s: &mut Session) -> Result<String> {
    let t = s.timeline.thread(s.inferior.cursor.thread())?;
    let here = s.inferior.cursor.position()?;
    let time = match s.timeline.when(here)? {
        Some(m) => format!("time {m}\n"),
        None => String::new(),
    };
    let (done, all) = (s.inferior.cursor.count() - t.from, (t.to - t.from).max(1));
    Ok(format!(
        "{} thread {} ({}), {} instructions, {:.2}% of the thread\n{time}",
        here,
        t.tid,
        s.inferior.name(&s.timeline, t.id)?,
        done,
        done as f64 * 100.0 / all as f64
    ))
}

fn seek(s: &mut Session, to: &str) -> Result<String> {
    let place: Place = match to.parse() {
        Ok(p) => p,
        Err(e) => return bad(e.to_string()),
    };
    let position = s.timeline.find(place, Some(s.inferior.image))?;
    s.seek(position)?;
    when(s)
}

fn states(s: &Session) -> Result<String> {
    let mut out = String::new();
    let all = s.timeline.state_points(Some(s.inferior.image))?;
    for (n, state) in (1..).zip(&all).take(MAX_LINES) {
        let name = state.name.as_deref().unwrap_or_default();
        let _ = writeln!(
            out,
            "{}",
            format!("{n} {} {}", state.position, line(name)).trim_end()
        );
    }
    Ok(match all.len() {
        0 => "no state points\n".into(),
        n if n > MAX_LINES => out + &format!("and {} more\n", n - MAX_LINES),
        _ => out,
    })
}

/// Goes to the nearest state point on one side.
fn to_state(s: &mut Session, way: Direction) -> Result<String> {
    let here = s.inferior.cursor.position()?;
    let all = s.timeline.state_points(Some(s.inferior.image))?;
    let (found, side) = match way {
        Direction::Forward => (all.iter().find(|p| p.position > here), "behind"),
        Direction::Backward => (all.iter().rev().find(|p| p.position < here), "before"),
    };
    let Some(found) = found else {
        return bad(format!("there is no state point {side} {here}"));
    };
    s.seek(found.position)?;
    let name = found
        .name
        .as_deref()
        .map(|n| format!("state \"{}\"\n", line(n)));
    Ok(name.unwrap_or_default() + &when(s)?)
}

fn interest(s: &mut Session, from: &str, to: &str, interval: &str) -> Result<String> {
    let (from, to): (Place, Place) = match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(e), _) | (_, Err(e)) => return bad(e.to_string()),
    };
    let Some(interval) = number(interval) else {
        return bad(format!("{interval} is no number"));
    };
    let image = Some(s.inferior.image);
    let (from, to) = (s.timeline.find(from, image)?, s.timeline.find(to, image)?);
    let cancel = s.cancel.clone();
    let made = s.timeline.interest(
        Dense {
            from,
            until: to,
            interval,
        },
        &|_, _| (),
        &cancel,
    )?;
    Ok(format!(
        "the index is denser from {from} to {to}: {made} parts of it were made\n"
    ))
}

fn checkpoint(s: &mut Session, name: &str) -> Result<String> {
    let here = s.inferior.cursor.position()?;
    s.marks.set(name, here)?;
    Ok(format!("checkpoint {name} at {here}\n"))
}

fn checkpoints(s: &Session) -> String {
    let list: String = s
        .marks
        .iter()
        .map(|(n, p)| format!("{} {p}\n", line(n)))
        .collect();
    match list.is_empty() {
        true => "no checkpoints\n".into(),
        false => list,
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn range(addr: &str, len: &str) -> Result<(u64, u64)> {
    let read = |t: &str| number(t).map_or_else(|| bad(format!("{t} is no number")), Ok);
    Ok((read(addr)?, read(len)?))
}

/// Goes to what was found.
fn go(s: &mut Session, found: Option<Found>, what: &str) -> Result<String> {
    match found {
        Some(f) => {
            s.seek(f.position)?;
            Ok(described_access(&f))
        }
        None => bad(format!("no instruction of the program {what}")),
    }
}

fn described_access(f: &Found) -> String {
    format!(
        "{} at {:#x} {} {} bytes at {:#x}\n",
        f.position,
        f.pc,
        match (f.kernel, f.write) {
            (true, _) => "the kernel writes",
            (_, true) => "writes",
            _ => "reads",
        },
        f.len,
        f.address
    )
}

/// The last write, without going there.
fn who_wrote(s: &mut Session, addr: &str, len: &str) -> Result<String> {
    let (addr, len) = range(addr, len)?;
    let cancel = s.cancel.clone();
    match s
        .inferior
        .cursor
        .cancellable(&cancel, |c| c.last_write(addr, len))?
    {
        Some(f) => Ok(described_access(&f) + &source(s, f.thread, f.count, f.pc)?),
        None => bad("no instruction of the program wrote there before"),
    }
}

/// The hardware number of a general register, as gdb names it.
fn register(name: &str) -> Option<u8> {
    let name = match name.strip_prefix('$')? {
        "sp" => "rsp",
        "fp" => "rbp",
        name => name,
    };
    hindsight_isa::regs::by_name(name).map(|n| n as u8)
}

/// The last instruction that changed a register of the present thread.
fn who_changed(s: &mut Session, name: &str) -> Result<String> {
    let Some(n) = register(name) else {
        return bad(format!("{name} is no general register of 64 bits"));
    };
    let cancel = s.cancel.clone();
    match s
        .inferior
        .cursor
        .cancellable(&cancel, |c| c.last_register_change(n))?
    {
        Some(c) => {
            let [before, behind] = c.values;
            let text = format!(
                "{} at {:#x} changes {name} from {before:#x} to {behind:#x}\n",
                c.position, c.pc
            );
            Ok(text + &source(s, c.thread, c.count, c.pc)?)
        }
        None => bad(format!(
            "no instruction of this thread changed {name} before"
        )),
    }
}

/// The functions that execute at an instruction, with their source lines.
fn source(s: &mut Session, thread: ThreadId, count: u64, pc: u64) -> Result<String> {
    let mut there = s.timeline.cursor()?;
    there.seek_count(thread, count)?;
    let mut inspector = Inspector::new(s.timeline.clone());
    let frames = inspector.frames(&there, pc);
    let frames = frames.map_err(|e| Error::Command(e.to_string()))?;
    let mut out = String::new();
    for f in frames {
        let name = line(f.function.as_deref().unwrap_or("?"));
        let inlined = if f.inlined { " (inlined)" } else { "" };
        let _ = match &f.source {
            Some(l) => writeln!(out, "  in {name}{inlined} at {}:{}", line(&l.file), l.line),
            None => writeln!(out, "  in {name}{inlined}"),
        };
    }
    Ok(out)
}

fn last_write(s: &mut Session, addr: &str, len: &str) -> Result<String> {
    let (addr, len) = range(addr, len)?;
    let cancel = s.cancel.clone();
    let found = s
        .inferior
        .cursor
        .cancellable(&cancel, |c| c.last_write(addr, len))?;
    go(s, found, "wrote there before")
}

fn first_use(s: &mut Session, addr: &str, len: &str) -> Result<String> {
    let (addr, len) = range(addr, len)?;
    let cancel = s.cancel.clone();
    let found = s
        .inferior
        .cursor
        .cancellable(&cancel, |c| c.first_use(addr, len))?;
    go(s, found, "uses it from here on")
}

fn memory(s: &mut Session, addr: &str, len: &str) -> Result<String> {
    const MOST: u64 = 1 << 16;
    let (addr, len) = range(addr, len)?;
    if len > MOST {
        return bad(format!("at most {MOST} bytes at a time"));
    }
    let cancel = s.cancel.clone();
    let cursor = &mut s.inferior.cursor;
    let m = cursor.cancellable(&cancel, |c| c.memory(addr, len as usize))?;
    let carried = s.carried(&m)?;
    Ok(format!("{m}{}", Carried::text(&carried)))
}

fn assume(s: &mut Session, what: &str) -> Result<String> {
    let assume = (what.parse()).map_err(|e: NoAssumption| Error::Command(e.to_string()))?;
    s.carrying.set(assume);
    Ok(format!("{}\n", carrying::says(assume)))
}

fn events(s: &mut Session, kind: Option<&str>) -> Result<String> {
    let kinds = match kind {
        None => vec![],
        Some(kind) => match kind.parse::<hindsight_timeline::KindOf>() {
            Ok(k) => vec![k],
            Err(e) => return bad(format!("{e}")),
        },
    };
    let all = s.timeline.events(&Filter {
        image: Some(s.inferior.image),
        kinds,
        ..Filter::default()
    })?;
    let here = s.inferior.cursor.position()?;
    // The lines around the present position.
    let at = all.partition_point(|e| e.position < here);
    let from = at.saturating_sub(MAX_LINES / 2);
    let mut out = String::new();
    // The session's cursor stays where it is.
    let mut cursor = s.timeline.cursor()?;
    for (i, e) in all.iter().enumerate().skip(from).take(MAX_LINES) {
        let mark = if i == at { '>' } else { ' ' };
        let tid = s.tid(e.thread);
        // If the user asks for calls, their arguments are followed into memory.
        let call = match kind {
            Some("syscall") => cursor.system_call(e).unwrap_or_default(),
            _ => None,
        };
        let what = call.map_or_else(|| e.to_string(), |c| c.to_string());
        let _ = writeln!(out, "{mark} {} thread {tid} {what}", e.position);
    }
    let left = all.len().saturating_sub(MAX_LINES);
    if left > 0 {
        let _ = writeln!(out, "  ({left} more: `hindsight events` lists all)");
    }
    Ok(out)
}

fn threads_at(s: &mut Session) -> Result<String> {
    let mut out = String::new();
    for tid in s.live()? {
        let id = s.thread(tid).ok_or(Error::NoThread(tid.get()))?;
        let state = s.registers(tid)?;
        let count = s
            .timeline
            .count_at(id, s.inferior.cursor.position()?)?
            .unwrap_or(0);
        let t = s.timeline.thread(id)?;
        let here = if id == s.inferior.cursor.thread() {
            '>'
        } else {
            ' '
        };
        let _ = writeln!(
            out,
            "{here} {} ({}) {} at {:#x}",
            t.tid,
            s.inferior.name(&s.timeline, id)?,
            s.timeline.position(id, count)?,
            state.cpu.rip
        );
    }
    Ok(out)
}

fn process(s: &mut Session, image: &str) -> Result<String> {
    let Ok(image) = image.parse() else {
        return bad(format!("{image} is no number of a program image"));
    };
    s.choose(image)?;
    Ok(String::new())
}

/// The present program image. gdb's script asks behind a stop there.
fn here(s: &mut Session) -> Result<String> {
    s.showing = false;
    let all = s.timeline.processes()?;
    let p = s.present()?;
    Ok(format!("{}\n", described(&p, &all)))
}

fn described(p: &Process, all: &[Process]) -> String {
    let how = match (p.parent, p.by_exec) {
        (0, _) => String::new(),
        (parent, true) if all.iter().any(|o| o.image == parent && o.pid == p.pid) => {
            format!(" replaces image {parent},")
        }
        (parent, _) => format!(" made by image {parent},"),
    };
    format!(
        "image {} process {}{how} from {} to {}: {}",
        p.image,
        p.pid,
        p.begin,
        p.end,
        line(&p.command)
    )
}

fn processes(s: &Session) -> Result<String> {
    let all = s.timeline.processes()?;
    let mark = |p: &Process| {
        if p.image == s.inferior.image {
            '>'
        } else {
            ' '
        }
    };
    let line = |p: &Process| format!("{} {}\n", mark(p), described(p, &all));
    Ok(all.iter().map(line).collect())
}
