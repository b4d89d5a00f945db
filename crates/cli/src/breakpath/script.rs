//! Scripts for debuggers. Both ask for the addresses at run time: files lie elsewhere in each run. Both compare where the
//! program is at the end of each part, and how often it stopped.

use super::begin::room;
use super::way::{Part, Value, Way};
use hindsight_text::line;
use std::fmt::Write;

/// A text as a literal in Python, which shows no control characters.
pub fn python(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        let mut bytes = [0; 4];
        let plain = line(c.encode_utf8(&mut bytes)).chars().eq([c]);
        match (plain, c) {
            (_, '"' | '\\') => out.extend(['\\', c]),
            (true, c) => out.push(c),
            (false, c) => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out + "\""
}

/// Bytes as a literal in Python.
fn bytes(all: &[u8]) -> String {
    let mut out = String::from("b\"");
    for b in all {
        match b {
            b'"' | b'\\' => out.extend(['\\', *b as char]),
            b' '..=b'~' => out.push(*b as char),
            b => {
                let _ = write!(out, "\\x{b:02x}");
            }
        }
    }
    out + "\""
}

fn kind(p: &Part) -> &'static str {
    if p.data { "access" } else { "break" }
}

/// The files and the way, as two lists in Python.
fn lists(way: &Way) -> String {
    let mut files = String::new();
    for path in &way.files {
        let _ = writeln!(files, "    {},", python(path));
    }
    let mut parts = String::new();
    for p in &way.parts {
        let pc = match p.pc {
            Some((file, offset)) => format!("{file}, {offset:#x}"),
            None => "None, None".into(),
        };
        let (kind, (file, offset), hits) = (kind(p), p.at, p.hits);
        let _ = writeln!(parts, "    ({kind:?}, {file}, {offset:#x}, {hits}, {pc}),");
    }
    format!(
        r#"FILES = [
{files}]
# What stops, the file and the offset in it, how many times it stops, and where the next instruction then is.
WAY = [
{parts}]"#
    )
}

/// How the recorded program began and what it has at the end, in Python.
fn ends(way: &Way) -> String {
    let b = &way.begin;
    let mut out = format!(
        "# How the recorded program began, and where that lay on its stack.\nFOLDER = {}\n",
        bytes(&b.folder)
    );
    for (name, texts) in [("ARGUMENTS", &b.args), ("ENVIRONMENT", &b.env)] {
        let _ = writeln!(out, "{name} = [");
        for text in texts {
            let _ = writeln!(out, "    {},", bytes(text));
        }
        out += "]\n";
    }
    match &b.stack {
        None => out += "STACK = None\n",
        Some(s) => {
            let entry = |(kind, value): &(u64, Option<u64>)| match value {
                Some(v) => format!("({kind}, {v:#x})"),
                None => format!("({kind}, None)"),
            };
            let entries: Vec<String> = s.auxiliary.iter().map(entry).collect();
            let _ = writeln!(out, "AUXILIARY = [{}]", entries.join(", "));
            let pointed = s.pointed.iter().map(|(kind, at, data)| match data {
                Some(data) => format!("({kind}, {at:#x}, {})", bytes(data)),
                None => format!("({kind}, {at:#x}, {})", room(*kind, data)),
            });
            let pointed: Vec<String> = pointed.collect();
            let _ = writeln!(
                out,
                "STACK = {{\"pointer\": {:#x}, \"texts\": {:#x}, \"end\": {:#x}, \"pointed\": [{}]}}",
                s.pointer,
                s.texts,
                s.end,
                pointed.join(", ")
            );
        }
    }
    out += "# Registers that can be compared at the end: the name, what it holds, the file's number, and the offset or value.\n";
    out += "REGISTERS = [\n";
    for (name, value) in &way.registers {
        let (kind, file, n) = match value {
            Value::File((file, offset)) => ("file", file.to_string(), *offset),
            Value::Stack(at) => ("stack", "None".into(), *at),
            Value::Number(n) => ("number", "None".into(), *n),
        };
        let _ = writeln!(out, "    ({}, {kind:?}, {file}, {n:#x}),", python(name));
    }
    out + "]\n"
}

/// What all scripts for gdb begin with.
const SETTINGS: &str = "set pagination off
set confirm off
unset environment LINES
unset environment COLUMNS
";

/// What goes the way.
const STEPS: &str = include_str!("way.gdb");

/// A script for gdb, which has to have been built with Python.
pub fn gdb(way: &Way) -> String {
    let (stops, to) = (way.stops, &way.position);
    let (lists, ends) = (lists(way), ends(way));
    let begins = match way.begin.stack {
        Some(_) => {
            "# Use: gdb -x THIS-FILE PROGRAM
# The program gets the recorded arguments, environment and directory."
        }
        None => {
            "# Use: gdb -x THIS-FILE --args PROGRAM ARGUMENTS
# How the recorded program began is not known: give it the environment that it had."
        }
    };
    format!(
        r#"# Brings a live program to position {to} of its recording in {stops} stops.
{begins}
# Where the program reads a file as its input: gdb -ex "set args < INPUT" -x THIS-FILE PROGRAM
# What gdb itself gets as input, it takes for commands.
{SETTINGS}handle all nostop noprint pass
python
import os, struct
{lists}
{ends}
{STEPS}
prepare()
end
starti
python
stack()
for i, part in enumerate(WAY):
    go(i + 1, *part)
difference = unlike()
if difference is None:
    print("position {to} after %d stops" % sum(part[3] for part in WAY))
else:
    print("%d stops as promised, but %s" % (sum(part[3] for part in WAY), difference))
end
frame
"#
    )
}

/// The file whose content was compared: device, number, size, and the times of changes of its content and itself in
/// nanoseconds.
pub type Identity = (u64, u64, u64, i128, i128);

/// How a script for gdb is run.
pub struct Run {
    /// The descriptor of the script itself. It is closed.
    pub script: i32,
    /// The descriptor to which the answer goes as JSON.
    pub json: Option<i32>,
    /// gdb ends there, and the program with it.
    pub batch: bool,
    pub identity: Identity,
}

/// A script for gdb that starts the program itself, goes the way, and says whether it has arrived.
pub fn run(way: &Way, how: &Run) -> String {
    let (lists, ends, position) = (lists(way), ends(way), python(&way.position));
    let (dev, ino, size, changed, touched) = how.identity;
    let batch = if how.batch { "True" } else { "False" };
    let json = how.json.map_or("None".into(), |n| n.to_string());
    let script = how.script;
    const RUN: &str = include_str!("run.gdb");
    format!(
        r#"python
import json, os, signal, struct
ASKS = gdb.parameter("confirm"), gdb.parameter("pagination")
end
{SETTINGS}set startup-with-shell off
unset exec-wrapper
python
{lists}
{ends}
{STEPS}
POSITION = {position}
PROGRAM = ({dev}, {ino}, {size}, {changed}, {touched})
BATCH, OUT, SCRIPT = {batch}, {json}, {script}
{RUN}
end
"#
    )
}

/// A script for lldb: a Python module that does it when lldb imports it.
pub fn lldb(way: &Way) -> String {
    let (stops, to, way) = (way.stops, &way.position, lists(way));
    format!(
        r#"# Brings a live program to position {to} of its recording in {stops} stops.
# Use: lldb -o "command script import ./THIS-FILE" -- PROGRAM ARGUMENTS
# The name of this file must end in .py and have no other dot.
import lldb

{way}
UNLIKE = "this run is not like the recorded one"


def shown(text):
    """A text that may say anything, without what a terminal would obey."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def base(process, number):
    """The lowest address at which the live program has a file mapped."""
    maps = "/proc/%d/maps" % process.GetProcessID()
    with open(maps, encoding="utf-8", errors="surrogateescape", newline="\n") as maps:
        for line in maps:
            words = line[:-1].split(None, 5)
            if len(words) == 6 and words[5].replace("\\012", "\n") == FILES[number]:
                return int(words[0].split("-")[0], 16)
    raise RuntimeError("%s is not mapped: %s" % (shown(FILES[number]), UNLIKE))


def go(process, target, part, kind, file, offset, hits, pc_file, pc_offset):
    """Sets something, runs until it has stopped so many times, and takes it away."""
    address = base(process, file) + offset
    if kind == "break":
        stop = target.BreakpointCreateByAddress(address)
    else:
        error = lldb.SBError()
        stop = target.WatchAddress(address, 8, True, True, error)
        if error.Fail():
            raise RuntimeError(error.GetCString())
    stop.SetIgnoreCount(hits - 1)
    try:
        error = process.Continue()
        if error.Fail():
            raise RuntimeError(error.GetCString())
        if process.GetState() != lldb.eStateStopped:
            raise RuntimeError("the program ended in part %d: %s" % (part, UNLIKE))
        count = stop.GetHitCount()
        pc = process.GetSelectedThread().GetFrameAtIndex(0).GetPC()
    finally:
        if kind == "break":
            target.BreakpointDelete(stop.GetID())
        else:
            target.DeleteWatchpoint(stop.GetID())
    if count != hits:
        raise RuntimeError("the program stands at %#x in part %d, behind %d of %d stops: "
                           "something else stopped it" % (pc, part, count, hits))
    if pc_file is not None and pc != base(process, pc_file) + pc_offset:
        raise RuntimeError("the program stands at %#x after part %d, not at %s+%#x: %s"
                           % (pc, part, shown(FILES[pc_file]), pc_offset, UNLIKE))


def __lldb_init_module(debugger, names):
    debugger.SetAsync(False)
    debugger.HandleCommand("process launch --stop-at-entry")
    target = debugger.GetSelectedTarget()
    process = target.GetProcess()
    if process.GetState() != lldb.eStateStopped:
        raise RuntimeError("the program was not started")
    signals = process.GetUnixSignals()
    for i in range(signals.GetNumSignals()):
        signal = signals.GetSignalAtIndex(i)
        if signals.GetSignalAsCString(signal) not in ("SIGTRAP", "SIGSTOP"):
            signals.SetShouldStop(signal, False)
    for i, part in enumerate(WAY):
        go(process, target, i + 1, *part)
    print("position {to} after %d stops" % sum(part[3] for part in WAY))
    print(process.GetSelectedThread().GetSelectedFrame())
"#
    )
}
