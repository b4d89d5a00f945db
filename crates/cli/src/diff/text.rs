//! What `hindsight diff` tells people.

use crate::at::stack_text;
use crate::numbers::grouped;
use crate::origin::text::{named, origin, place};
use hindsight_compare::{Cause, Datum, Difference, Hop, Input, Kind, Point, Report};
use hindsight_text::line;
use std::fmt::Write;
use std::path::PathBuf;

/// Frames of a call stack that are shown.
const FRAMES: usize = 16;
const NAMES: [&str; 2] = ["first", "second"];

/// All that was found.
pub fn report(r: &Report, files: &[PathBuf; 2]) -> String {
    let mut out = String::new();
    for (name, file) in NAMES.iter().zip(files) {
        let _ = writeln!(out, "{name:<7} {}", line(&file.to_string_lossy()));
    }
    out.push('\n');
    inputs(&mut out, r);
    for (n, d) in r.differences.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        difference(&mut out, d);
    }
    alone(&mut out, r);
    if r.is_same() {
        let _ = writeln!(
            out,
            "The recordings agree to the end: {} of {}.",
            count(r.threads as u64, "thread"),
            count(r.compared[1], "instruction")
        );
    } else if r.differences.is_empty() {
        let _ = writeln!(
            out,
            "All that both recordings have does the same to the end."
        );
    } else if r.more {
        let _ = writeln!(out, "\nThere may be more differences (--all shows them).");
    }
    if r.handlers != [0, 0] {
        let [a, b] = r.handlers.map(|n| grouped(n as u64));
        let _ = writeln!(
            out,
            "Not compared: what handlers of signals did ({a} in the first, {b} in the second)."
        );
    }
    if !r.passed_over.is_empty() {
        let list: Vec<String> = (r.passed_over.iter())
            .map(|(reason, n)| format!("{reason} ({})", grouped(*n)))
            .collect();
        let _ = writeln!(
            out,
            "Other ways for a moment, not counted, because of: {}.",
            list.join(", ")
        );
    }
    out
}

fn count(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {what}{s}", grouped(n))
}

fn alone(out: &mut String, r: &Report) {
    for (name, list) in NAMES.iter().zip(&r.alone) {
        if !list.is_empty() {
            let list: Vec<String> = list.iter().map(|t| t.to_string()).collect();
            let s = if list.len() == 1 { "" } else { "s" };
            let _ = writeln!(out, "Only the {name} has thread{s} {}.", list.join(", "));
        }
    }
}

fn inputs(out: &mut String, r: &Report) {
    if r.inputs.is_empty() {
        return;
    }
    let when = match r.differences.is_empty() {
        true => "They were given other arguments or input:",
        false => "Before that, they were given other arguments or input:",
    };
    let _ = writeln!(out, "{when}");
    for i in &r.inputs {
        input(out, i);
    }
    if r.more_inputs {
        let _ = writeln!(out, "  and more");
    }
    out.push('\n');
}

fn input(out: &mut String, i: &Input) {
    for (s, name) in NAMES.iter().enumerate() {
        let _ = write!(out, "  {name:<7} {} {}", i.positions[s], line(&i.calls[s]));
        if let Some(file) = &i.files[s] {
            let _ = write!(out, "  ({file})");
        }
        out.push('\n');
        if let Some(b) = &i.byte {
            let place = match b.offsets[s] {
                Some(offset) => format!("byte {offset} of the file"),
                None => format!("byte {} of the call", b.at),
            };
            let _ = writeln!(out, "          {place} on: {}", quoted(&b.bytes[s]));
        }
    }
}

fn quoted(b: &[u8]) -> String {
    let plain = |b: &u8| matches!(b, b' '..=b'~' | b'\n' | b'\t');
    if b.is_empty() {
        return "nothing".into();
    }
    if b.iter().all(plain) {
        return format!("{:?}", String::from_utf8_lossy(b));
    }
    let all: Vec<String> = b.iter().map(|b| format!("{b:02x}")).collect();
    all.join(" ")
}

fn difference(out: &mut String, d: &Difference) {
    let thread = d
        .last
        .as_ref()
        .map_or(String::new(), |[a, b]| match a.thread == b.thread {
            true => format!(" in thread {}", a.thread),
            false => format!(" in threads {} and {}", a.thread, b.thread),
        });
    let _ = writeln!(out, "They part{thread}: {}.", kind(&d.kind));
    match &d.kind {
        Kind::Call { calls } => {
            for (name, call) in NAMES.iter().zip(calls) {
                let call = call.as_deref().unwrap_or("no call here");
                let _ = writeln!(out, "  {name:<7} {}", line(call));
            }
        }
        Kind::Argument { calls, .. } | Kind::Bytes { calls, .. } => {
            for (name, call) in NAMES.iter().zip(calls) {
                let _ = writeln!(out, "  {name:<7} {}", line(call));
            }
        }
        _ => {}
    }
    if let Kind::Bytes { at, bytes, .. } = &d.kind {
        for (name, b) in NAMES.iter().zip(bytes) {
            let _ = writeln!(out, "  {name:<7} byte {at} on: {}", quoted(b));
        }
    }
    if let Some(last) = &d.last {
        let _ = writeln!(out, "\nlast in common");
        points(out, [Some(&last[0]), Some(&last[1])]);
    }
    let _ = writeln!(out, "then");
    points(out, [d.first[0].as_ref(), d.first[1].as_ref()]);
    if let Some(c) = &d.cause {
        cause(out, c);
    }
    for (name, stack) in NAMES.iter().zip(&d.stacks) {
        let _ = writeln!(out, "\ncall stack of the {name}");
        let shown = &stack[..stack.len().min(FRAMES)];
        for l in stack_text(shown, 0).lines() {
            let _ = writeln!(out, "  {l}");
        }
        if stack.len() > FRAMES {
            let _ = writeln!(out, "  and {} more", stack.len() - FRAMES);
        }
    }
    if let Some([a, b]) = &d.again {
        let _ = writeln!(out, "\nThey do the same again from {a} and {b} on.");
    }
}

fn kind(k: &Kind) -> String {
    match k {
        Kind::Branch {
            taken: [true, false],
        } => "a branch is taken in the first and not in the second".into(),
        Kind::Branch {
            taken: [false, true],
        } => "a branch is taken in the second and not in the first".into(),
        Kind::Branch { .. } => "a branch goes another way".into(),
        Kind::Target => "a jump, call or return leads elsewhere".into(),
        Kind::Function { names } => {
            let [a, b] = [0, 1].map(|s| {
                let name = names[s].as_deref();
                name.map_or("unnamed code".into(), |n| line(n).to_string())
            });
            format!("the first goes on in {a}, the second in {b}")
        }
        Kind::Call { .. } => "they make other system calls".into(),
        Kind::Argument { index, .. } => {
            format!("argument {} of a system call differs", index + 1)
        }
        Kind::Bytes { .. } => "they write other bytes".into(),
        Kind::Signal { signals } => {
            let [a, b] = [0, 1].map(|s| signals[s].as_deref().unwrap_or("none"));
            format!("signal {a} in the first, {b} in the second")
        }
        Kind::End { endings: [a, b] } => {
            format!(
                "a thread ends; the first one: {}; the second one: {}",
                line(a),
                line(b)
            )
        }
        _ => "they go on elsewhere".into(),
    }
}

fn points(out: &mut String, points: [Option<&Point>; 2]) {
    for (name, p) in NAMES.iter().zip(points) {
        match p {
            Some(p) => {
                let _ = writeln!(
                    out,
                    "  {name:<7} {:<10} {}",
                    p.position.to_string(),
                    place(p)
                );
            }
            None => {
                let _ = writeln!(out, "  {name:<7} nothing: the thread has ended");
            }
        }
    }
}

fn cause(out: &mut String, c: &Cause) {
    let Some(first) = c.hops.first() else {
        return;
    };
    let _ = writeln!(out, "\nthe value that decides");
    for (s, name) in NAMES.iter().enumerate() {
        let _ = writeln!(out, "  {name:<7} {}", value(&first.datum, s));
    }
    let _ = writeln!(out, "where it came from, backwards");
    for (n, h) in c.hops.iter().enumerate() {
        if n * 2 == c.hops.len() && c.left_out > 0 {
            let _ = writeln!(out, "     {} more", c.left_out);
        }
        hop(out, n, h);
    }
    for (name, o) in NAMES.iter().zip(&c.origins) {
        let _ = writeln!(out, "  {name:<7} {}", origin(o));
    }
}

fn hop(out: &mut String, n: usize, h: &Hop) {
    let [a, b] = &h.points;
    let at = format!("{} and {}", a.position, b.position);
    let [x, y] = [0, 1].map(|s| value(&h.datum, s));
    let _ = writeln!(out, "  {:>2} {at}  {}", n + 1, place(a));
    let _ = writeln!(out, "     {x}; {y}");
}

fn value(d: &Datum, s: usize) -> String {
    named(&d.names[s], &d.bytes[s])
}
