//! Scripts for debuggers. Both ask for the addresses at run time: files lie elsewhere in each run. Both compare where the
//! program is at the end of each part, and how often it stopped.

use super::kind;
use anyhow::{Result, bail};
use hindsight_text::line;
use hindsight_timeline::{Position, Route};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Debuggers count the stops of a setting up to here.
const MOST_HITS: u64 = i32::MAX as u64;

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

/// The files and the way, as two lists in Python.
fn way(route: &Route) -> Result<String> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut files, mut way) = (String::new(), String::new());
    let mut number = |path| {
        let next = numbers.len();
        *numbers.entry(path).or_insert_with(|| {
            let _ = writeln!(files, "    {},", python(path));
            next
        })
    };
    for h in &route.halts {
        let s = &h.setting;
        if h.hits > MOST_HITS {
            bail!(
                "{}+{:#x} stops {} times: debuggers count up to {MOST_HITS}",
                line(&s.module),
                s.offset,
                h.hits
            );
        }
        let file = number(&s.module);
        let pc = match &h.at {
            Some((path, offset)) => format!("{}, {offset:#x}", number(path)),
            None => "None, None".into(),
        };
        let (kind, offset, hits) = (kind(h), s.offset, h.hits);
        let _ = writeln!(way, "    ({kind:?}, {file}, {offset:#x}, {hits}, {pc}),");
    }
    Ok(format!(
        r#"FILES = [
{files}]
# What stops, the file and the offset in it, how many times it stops, and where the next instruction then is.
WAY = [
{way}]
UNLIKE = "this run is not like the recorded one""#
    ))
}

/// A script for gdb, which has to have been built with Python.
///
/// # Errors
/// A setting stops more often than gdb counts.
pub fn gdb(route: &Route, to: Position) -> Result<String> {
    let (stops, way) = (route.stops, way(route)?);
    Ok(format!(
        r#"# Brings a live program to position {to} of its recording in {stops} stops.
# Use: gdb -x THIS-FILE --args PROGRAM ARGUMENTS
# Where the program reads a file as its input: gdb -ex "set args ARGUMENTS < INPUT" -x THIS-FILE PROGRAM
# What gdb itself gets as input, it takes for commands.
set pagination off
set confirm off
unset environment LINES
unset environment COLUMNS
handle all nostop noprint pass
starti
python
{way}

def base(number):
    """The lowest address at which the live program has a file mapped."""
    with open("/proc/%d/maps" % gdb.selected_inferior().pid) as maps:
        for line in maps:
            words = line.rstrip("\n").split(None, 5)
            if len(words) == 6 and words[5] == FILES[number]:
                return int(words[0].split("-")[0], 16)
    raise gdb.GdbError("%s is not mapped: %s" % (FILES[number], UNLIKE))

def go(part, kind, file, offset, hits, pc_file, pc_offset):
    """Sets something, runs until it has stopped so many times, and takes it away."""
    address = base(file) + offset
    if kind == "break":
        stop = gdb.Breakpoint("*%#x" % address, internal=True)
    else:
        stop = gdb.Breakpoint("*(long *) %#x" % address, type=gdb.BP_WATCHPOINT,
                              wp_class=gdb.WP_ACCESS, internal=True)
    stop.ignore_count = hits - 1
    gdb.execute("continue", to_string=True)
    if not gdb.selected_inferior().pid:
        raise gdb.GdbError("the program ended in part %d: %s" % (part, UNLIKE))
    count, pc = stop.hit_count, int(gdb.parse_and_eval("$pc")) % 2**64
    stop.delete()
    if count != hits:
        raise gdb.GdbError("the program stands at %#x in part %d, behind %d of %d stops: "
                           "something else stopped it" % (pc, part, count, hits))
    if pc_file is not None and pc != base(pc_file) + pc_offset:
        raise gdb.GdbError("the program stands at %#x after part %d, not at %s+%#x: %s"
                           % (pc, part, FILES[pc_file], pc_offset, UNLIKE))

for i, part in enumerate(WAY):
    go(i + 1, *part)
print("position {to} after %d stops" % sum(part[3] for part in WAY))
end
frame
"#
    ))
}

/// A script for lldb: a Python module that does it when lldb imports it.
///
/// # Errors
/// A setting stops more often than lldb counts.
pub fn lldb(route: &Route, to: Position) -> Result<String> {
    let (stops, way) = (route.stops, way(route)?);
    Ok(format!(
        r#"# Brings a live program to position {to} of its recording in {stops} stops.
# Use: lldb -o "command script import ./THIS-FILE" -- PROGRAM ARGUMENTS
# The name of this file must end in .py and have no other dot.
import lldb

{way}


def base(process, number):
    """The lowest address at which the live program has a file mapped."""
    with open("/proc/%d/maps" % process.GetProcessID()) as maps:
        for line in maps:
            words = line.rstrip("\n").split(None, 5)
            if len(words) == 6 and words[5] == FILES[number]:
                return int(words[0].split("-")[0], 16)
    raise RuntimeError("%s is not mapped: %s" % (FILES[number], UNLIKE))


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
    error = process.Continue()
    if error.Fail():
        raise RuntimeError(error.GetCString())
    if process.GetState() != lldb.eStateStopped:
        raise RuntimeError("the program ended in part %d: %s" % (part, UNLIKE))
    count = stop.GetHitCount()
    pc = process.GetSelectedThread().GetFrameAtIndex(0).GetPC()
    if kind == "break":
        target.BreakpointDelete(stop.GetID())
    else:
        target.DeleteWatchpoint(stop.GetID())
    if count != hits:
        raise RuntimeError("the program stands at %#x in part %d, behind %d of %d stops: "
                           "something else stopped it" % (pc, part, count, hits))
    if pc_file is not None and pc != base(process, pc_file) + pc_offset:
        raise RuntimeError("the program stands at %#x after part %d, not at %s+%#x: %s"
                           % (pc, part, FILES[pc_file], pc_offset, UNLIKE))


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
    ))
}
