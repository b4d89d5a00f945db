//! Scripts for debuggers. Both ask for the addresses at run time: files lie elsewhere in each run.

use super::kind;
use hindsight_text::line;
use hindsight_timeline::{Position, Route};
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

/// The way, as the lines of a list in Python.
fn way(route: &Route) -> String {
    let mut way = String::new();
    for h in &route.halts {
        let s = &h.setting;
        let module = python(&s.module);
        let _ = writeln!(
            way,
            "    ({:?}, {module}, {:#x}, {}),",
            kind(h),
            s.offset,
            h.hits
        );
    }
    way
}

/// A script for gdb, which has to have been built with Python.
pub fn gdb(route: &Route, to: Position) -> String {
    let (stops, way) = (route.stops, way(route));
    format!(
        r#"# Brings a live program to position {to} of its recording in {stops} stops.
# Use: gdb -x THIS-FILE --args PROGRAM ARGUMENTS
set pagination off
set confirm off
unset environment LINES
unset environment COLUMNS
handle all nostop noprint pass
starti
python
# What stops, the file, the offset in it, and how many times it stops.
WAY = [
{way}]

def base(module):
    """The lowest address at which the live program has a file mapped."""
    with open("/proc/%d/maps" % gdb.selected_inferior().pid) as maps:
        for line in maps:
            words = line.rstrip("\n").split(None, 5)
            if len(words) == 6 and words[5] == module:
                return int(words[0].split("-")[0], 16)
    raise gdb.GdbError("%s is not mapped: this run is not like the recorded one" % module)

for kind, module, offset, hits in WAY:
    address = base(module) + offset
    if kind == "break":
        stop = gdb.Breakpoint("*%#x" % address, internal=True)
    else:
        stop = gdb.Breakpoint("*(long *) %#x" % address, type=gdb.BP_WATCHPOINT,
                              wp_class=gdb.WP_ACCESS, internal=True)
    stop.ignore_count = hits - 1
    gdb.execute("continue", to_string=True)
    if not gdb.selected_inferior().pid:
        raise gdb.GdbError("the program ended: this run is not like the recorded one")
    stop.delete()
print("position {to} after %d stops" % sum(hits for _, _, _, hits in WAY))
end
frame
"#
    )
}

/// A script for lldb: a Python module that does it when lldb imports it.
pub fn lldb(route: &Route, to: Position) -> String {
    let (stops, way) = (route.stops, way(route));
    format!(
        r#"# Brings a live program to position {to} of its recording in {stops} stops.
# Use: lldb -o "command script import ./THIS-FILE" -- PROGRAM ARGUMENTS
# The name of this file must end in .py and have no other dot.
import lldb

# What stops, the file, the offset in it, and how many times it stops.
WAY = [
{way}]


def base(process, module):
    """The lowest address at which the live program has a file mapped."""
    with open("/proc/%d/maps" % process.GetProcessID()) as maps:
        for line in maps:
            words = line.rstrip("\n").split(None, 5)
            if len(words) == 6 and words[5] == module:
                return int(words[0].split("-")[0], 16)
    raise RuntimeError("%s is not mapped: this run is not like the recorded one" % module)


def go(process, target, kind, address, hits):
    """Sets something, runs until it has stopped so many times, and takes it away."""
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
        raise RuntimeError("the program ended: this run is not like the recorded one")
    if kind == "break":
        target.BreakpointDelete(stop.GetID())
    else:
        target.DeleteWatchpoint(stop.GetID())


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
    for kind, module, offset, hits in WAY:
        go(process, target, kind, base(process, module) + offset, hits)
    print("position {to} after %d stops" % sum(hits for _, _, _, hits in WAY))
    print(process.GetSelectedThread().GetSelectedFrame())
"#
    )
}
