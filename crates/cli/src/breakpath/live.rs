//! `hindsight breakpath --run`: goes the way with a live program.
//!
//! The process that plays the recording finds the way and ends. This one, which does not read the recording, runs the program. It
//! only runs the file that was recorded, from this machine, and asks the user first: a recording may be a stranger's.

use super::message::{InFile, Orders, Part, Value};
use super::{Wanted, find};
use crate::hex::hex;
use crate::out::println;
use crate::{args, confine, say, store};
use anyhow::{Context, Result, bail};
use hindsight_remote::{Ended, Event, Guided, Mapping, Regs, Watched};
use hindsight_text::bytes;
use serde_json::{Value as Json, json};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The exit status if the live run is not like the recorded one.
const UNLIKE: i32 = 1;

pub fn run(a: &args::Breakpath, file: Option<&Path>, wanted: &Wanted) -> Result<i32> {
    let recording = store::find(file)?;
    // The program that was led there, and stands still.
    let left = AtomicI32::new(0);
    let inside = |stream| {
        let (timeline, to, route) = find(a, wanted)?;
        Orders::new(&timeline, &route, to)?.send(stream)?;
        Ok(0)
    };
    let beside = |stream| run_program(a, stream, &left);
    let status = confine::run_beside(&recording, inside, beside)?;
    match left.load(Relaxed) {
        0 => Ok(status),
        pid => debugger(pid),
    }
}

/// Becomes gdb, which has the program from now on.
fn debugger(pid: i32) -> Result<i32> {
    let error = Command::new("gdb")
        .args(["-q", "-p"])
        .arg(pid.to_string())
        .exec();
    // SAFETY: a plain system call that accesses no memory. The process is one that this one has started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            bail!("gdb is not installed; --run --json leads the program there without it")
        }
        _ => Err(error).context("gdb"),
    }
}

fn run_program(a: &args::Breakpath, stream: UnixStream, left: &AtomicI32) -> Result<i32> {
    // Why there is none was said where the recording is played.
    let Some(orders) = Orders::receive(stream)? else {
        bail!("no way was found");
    };
    let program = PathBuf::from(OsString::from_vec(orders.program.clone()));
    let args: Vec<OsString> = (orders.args.iter())
        .map(|a| OsString::from_vec(a.clone()))
        .collect();
    is_recorded(&program, &orders)?;
    if !a.yes && !agreed(&program, &args)? {
        say("nothing was run");
        return Ok(2);
    }
    let shown = || bytes(program.as_os_str().as_bytes()).to_string();
    let live = Guided::start(&program, &args, a.json).with_context(shown)?;
    let hits = orders.way.iter().map(|p| p.hits);
    let promised = hits.fold(0u64, u64::saturating_add);
    let mut walk = Walk {
        live,
        stops: 0,
        first: None,
    };
    let stopped = walk.go(&orders.way)?;
    if a.json {
        println(&serde_json::to_string_pretty(&json!({
            "position": orders.position,
            "reached": stopped.is_none(),
            "stops": walk.stops,
            "promised": promised,
            "settings": orders.way.len(),
            "difference": stopped.as_ref().or(walk.first.as_ref()).map(Difference::json),
        }))?);
        return Ok(if stopped.is_some() { UNLIKE } else { 0 });
    }
    if let Some(first) = &walk.first {
        say(&format!(
            "the first register that differs: {}",
            first.text()
        ));
    }
    if let Some(d) = stopped {
        say(&format!(
            "this run is not like the recorded one: {}",
            d.text()
        ));
        return Ok(UNLIKE);
    }
    say(&format!(
        "position {} after {} stops, as promised; the program is process {}",
        orders.position,
        walk.stops,
        walk.live.pid()
    ));
    left.store(walk.live.leave()?, Relaxed);
    Ok(0)
}

/// Fails unless this machine has the program's file as it was recorded.
fn is_recorded(program: &Path, orders: &Orders) -> Result<()> {
    let shown = bytes(program.as_os_str().as_bytes()).to_string();
    if !program.is_absolute() {
        bail!("{shown} is no whole path: it is not run");
    }
    let there = std::fs::metadata(program).with_context(|| shown.clone())?;
    if !there.is_file() {
        bail!("{shown} is no regular file: it is not run");
    }
    let file = File::open(program).with_context(|| shown.clone())?;
    if !confine::is_called(&file, &orders.content()?) {
        bail!("{shown} is not the file that was recorded: its content differs, and it is not run");
    }
    Ok(())
}

/// Shows what would be run, and asks.
fn agreed(program: &Path, args: &[OsString]) -> Result<bool> {
    let mut stderr = std::io::stderr();
    if !std::io::stdin().is_terminal() || !stderr.is_terminal() {
        bail!(
            "the recording wants to run {}: --yes does it where no terminal can be asked",
            command(program, args)
        );
    }
    let folder = std::env::current_dir()?;
    write!(
        stderr,
        "hindsight: this runs\n  {}\nin {} with this environment. Run it? [y/N] ",
        command(program, args),
        bytes(folder.as_os_str().as_bytes())
    )?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The command line, as nobody can mistake it: each word is quoted.
fn command(program: &Path, args: &[OsString]) -> String {
    let quoted = |w: &OsStr| {
        format!(
            "'{}'",
            bytes(w.as_bytes()).to_string().replace('\'', "'\\''")
        )
    };
    let rest = args.iter().skip(1).map(|a| quoted(a));
    let mut words = vec![quoted(program.as_os_str())];
    words.extend(rest);
    words.join(" ")
}

/// Where the live run and the recording differ.
struct Difference {
    /// The stop, counted from 1.
    stop: u64,
    position: String,
    what: String,
    recorded: String,
    live: String,
}

impl Difference {
    fn text(&self) -> String {
        format!(
            "at stop {}, position {}, {} is {} in the recording and {} now",
            self.stop, self.position, self.what, self.recorded, self.live
        )
    }

    fn json(&self) -> Json {
        json!({
            "stop": self.stop, "position": self.position, "what": self.what,
            "recorded": self.recorded, "live": self.live,
        })
    }
}

/// A live program on its way.
struct Walk {
    live: Guided,
    /// Stops so far.
    stops: u64,
    /// The first register that differs. It may hold something that has to, such as a time. So the program goes on.
    first: Option<Difference>,
}

impl Walk {
    /// Goes the whole way. Returns what ended it before.
    fn go(&mut self, way: &[Part]) -> Result<Option<Difference>> {
        for part in way {
            if let Some(d) = self.part(part)? {
                return Ok(Some(d));
            }
        }
        Ok(None)
    }

    fn part(&mut self, part: &Part) -> Result<Option<Difference>> {
        let difference = |stop: u64, what: &str, recorded: String, live: String| {
            Some(Difference {
                stop,
                position: part.position.clone(),
                what: what.into(),
                recorded,
                live,
            })
        };
        let maps = self.live.mappings()?;
        let Some(at) = address(&maps, &part.place) else {
            let file = bytes(part.place.file.as_bytes()).to_string();
            let live = "not mapped so".to_owned();
            return Ok(difference(self.stops + 1, &file, "mapped".into(), live));
        };
        let watched = match part.data {
            false => Watched::Instruction(at),
            true => Watched::Word(at / 8 * 8),
        };
        self.live
            .watch(Some(watched))
            .context("the kernel gives no debug register")?;
        for _ in 0..part.hits {
            let end = match self.live.go_on()? {
                Event::Hit => {
                    self.stops += 1;
                    continue;
                }
                Event::Loaded => "another program is loaded".to_owned(),
                Event::Ended(Ended::Status(n)) => format!("ended with status {n}"),
                Event::Ended(Ended::Signal(n)) => format!("ended by signal {n}"),
            };
            return Ok(difference(
                self.stops + 1,
                "the program",
                "still running".into(),
                end,
            ));
        }
        let regs = self.live.regs()?;
        let maps = self.live.mappings()?;
        if let Some(pc) = &part.pc
            && address(&maps, pc) != Some(regs.rip)
        {
            let live = place(&maps, regs.rip);
            return Ok(difference(
                self.stops,
                "the next instruction",
                in_file(pc),
                live,
            ));
        }
        if self.first.is_none() {
            self.first = part.registers.iter().find_map(|(name, recorded)| {
                let value = register(&regs, name)?;
                let same = match recorded {
                    Value::Number(n) => *n == value,
                    Value::Address(a) => address(&maps, a) == Some(value),
                };
                let said = match recorded {
                    Value::Number(n) => format!("{n:#x}"),
                    Value::Address(a) => in_file(a),
                };
                match same {
                    true => None,
                    false => difference(self.stops, name, said, place(&maps, value)),
                }
            });
        }
        Ok(None)
    }
}

fn in_file(p: &InFile) -> String {
    format!("{}+{:#x}", bytes(p.file.as_bytes()), p.offset)
}

/// Where the live program has an address of a file. `None`: it has not mapped the file, or nothing there. What a file only
/// reserves, such as variables that begin as zero, is mapped behind it without a name.
fn address(maps: &[Mapping], p: &InFile) -> Option<u64> {
    let of = maps.iter().filter(|m| m.name == p.file);
    let at = of.map(|m| m.start).min()?.checked_add(p.offset)?;
    maps.iter()
        .any(|m| (m.start..m.end).contains(&at))
        .then_some(at)
}

/// A value of the live program: in a file, or as a number.
fn place(maps: &[Mapping], value: u64) -> String {
    let file = maps
        .iter()
        .find(|m| (m.start..m.end).contains(&value) && m.name.starts_with('/'));
    let start = |name: &str| {
        maps.iter()
            .filter(|m| m.name == name)
            .map(|m| m.start)
            .min()
    };
    match file.and_then(|m| Some((m, start(&m.name)?))) {
        Some((m, start)) => format!("{}+{:#x}", bytes(m.name.as_bytes()), value - start),
        None => hex(value).as_str().unwrap_or_default().to_owned(),
    }
}

fn register(r: &Regs, name: &str) -> Option<u64> {
    Some(match name {
        "rax" => r.rax,
        "rbx" => r.rbx,
        "rcx" => r.rcx,
        "rdx" => r.rdx,
        "rsi" => r.rsi,
        "rdi" => r.rdi,
        "rbp" => r.rbp,
        "rsp" => r.rsp,
        "r8" => r.r8,
        "r9" => r.r9,
        "r10" => r.r10,
        "r11" => r.r11,
        "r12" => r.r12,
        "r13" => r.r13,
        "r14" => r.r14,
        "r15" => r.r15,
        _ => return None,
    })
}
