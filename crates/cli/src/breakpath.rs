//! `hindsight breakpath`: how to bring a live program to a place of its recording in the fewest stops.

use crate::hex::hex;
use crate::out::println;
use crate::{args, limits, travel};
use anyhow::Result;
use hindsight_text::line;
use hindsight_timeline::{Cancel, Halt, Options, Place, Position, Route};
use serde_json::json;
use std::fmt::Write;

/// Bytes of memory for each instruction that may be looked at.
const PER_INSTRUCTION: u64 = 16;

/// Prints the way to a position.
pub fn run(a: &args::Breakpath) -> Result<i32> {
    let timeline = travel::open(None, Options::default())?;
    limits::raise(a.limit.saturating_mul(PER_INSTRUCTION));
    let to = timeline.find(a.words[0].parse::<Place>()?, None)?;
    let route = timeline.route(to, a.limit, &Cancel::new())?;
    let out = match (a.gdb, a.json) {
        (true, _) => script(&route, to),
        (_, true) => serde_json::to_string_pretty(&json!({
            "position": to.to_string(),
            "steps": route.steps,
            "stops": route.halts.iter().map(|h| json!({
                "kind": kind(h), "module": h.setting.module,
                "offset": hex(h.setting.offset),
                "position": h.position.to_string(), "pc": hex(h.pc),
            })).collect::<Vec<_>>(),
        }))?,
        _ => text(&route, to),
    };
    println(out.trim_end());
    Ok(0)
}

fn kind(h: &Halt) -> &'static str {
    if h.setting.data { "access" } else { "break" }
}

fn text(route: &Route, to: Position) -> String {
    let mut out = format!(
        "{} stops to position {to}, {} instructions from the start\n",
        route.halts.len(),
        route.steps
    );
    for h in &route.halts {
        let s = &h.setting;
        let _ = writeln!(
            out,
            "{:<6} {}+{:#x}  stops at {}, {:#x}",
            kind(h),
            line(&s.module),
            s.offset,
            h.position,
            h.pc
        );
    }
    out
}

/// A text as a literal in Python, which shows no control characters.
fn python(text: &str) -> String {
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

/// A script for gdb, which has to have been built with Python: addresses are only known at run time.
fn script(route: &Route, to: Position) -> String {
    let mut way = String::new();
    for h in &route.halts {
        let s = &h.setting;
        let module = python(&s.module);
        let _ = writeln!(way, "    ({:?}, {module}, {:#x}),", kind(h), s.offset);
    }
    let stops = route.halts.len();
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

for kind, module, offset in WAY:
    address = base(module) + offset
    if kind == "break":
        stop = gdb.Breakpoint("*%#x" % address, internal=True)
    else:
        stop = gdb.Breakpoint("*(long *) %#x" % address, type=gdb.BP_WATCHPOINT,
                              wp_class=gdb.WP_ACCESS, internal=True)
    gdb.execute("continue", to_string=True)
    if not gdb.selected_inferior().pid:
        raise gdb.GdbError("the program ended: this run is not like the recorded one")
    stop.delete()
print("position {to} after %d stops" % len(WAY))
end
frame
"#
    )
}
