//! What `hindsight origin` tells people.

use crate::at::frame_text;
use crate::numbers::grouped;
use hindsight_origin::{Hop, How, Origin, OriginPiece, Point};
use hindsight_text::line;
use std::fmt::Write;

/// A piece of a value, and its way. `shown` are the hops that are shown, by their numbers, with their places.
pub fn piece(out: &mut String, p: &OriginPiece, length: usize, shown: &[(usize, Point)]) {
    let which = match p.bytes.len() {
        n if n == length => String::new(),
        1 => format!("byte {}: ", p.bytes.start),
        _ => format!("bytes {} to {}: ", p.bytes.start, p.bytes.end - 1),
    };
    let known: Option<Vec<u8>> = p.value.iter().copied().collect();
    let value = match known {
        Some(b) => named("the value", &b),
        None => "the value is not known".into(),
    };
    let _ = writeln!(out, "{which}{value}");
    let mut next = 0;
    for (n, point) in shown {
        if *n > next {
            let _ = writeln!(out, "     {} more", n - next);
        }
        next = n + 1;
        hop(out, *n, &p.hops[*n], point);
    }
    let _ = writeln!(out, "     {}", origin(&p.origin));
}

fn hop(out: &mut String, n: usize, h: &Hop, point: &Point) {
    let what = match h.how {
        How::Signal => "  (the kernel, for a signal)",
        How::Channel { .. } => "  (the kernel, from another call)",
        How::Moved => "  (the kernel moved it)",
        _ => "",
    };
    let _ = writeln!(
        out,
        "{:>4} {:<10} {} to {}  {}{what}",
        n + 1,
        point.position.to_string(),
        h.from,
        h.to,
        place(point)
    );
}

/// The innermost function with its line, and the instruction.
pub fn place(p: &Point) -> String {
    let place = match (p.frames.first(), &p.location) {
        (Some(f), _) if f.source.is_some() => frame_text(f),
        (_, Some(l)) => l.to_string(),
        _ => "?".into(),
    };
    let code = p.instruction.as_ref().map_or("", |i| i.text.as_str());
    format!("{:#x} {place}  {}", p.pc, line(code))
}

/// A value with its name.
pub fn named(name: &str, b: &[u8]) -> String {
    let name = line(name);
    if b.is_empty() {
        return format!("{name} is not known");
    }
    if b.len() > 8 {
        let all: Vec<String> = b.iter().map(|b| format!("{b:02x}")).collect();
        return format!("{name} is {}", all.join(" "));
    }
    let number = b.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let text = match number {
        0x20..0x7f => format!(", '{}'", number as u8 as char),
        _ => String::new(),
    };
    match number < 10 {
        true => format!("{name} is {number}"),
        false => format!("{name} is {number:#x} ({}{text})", grouped(number)),
    }
}

/// Where a value came from.
pub fn origin(o: &Origin) -> String {
    match o {
        Origin::Read {
            call,
            point,
            file,
            offset,
            within,
        } => {
            let what = match (offset, within, file) {
                (Some(o), _, Some(file)) => format!("byte {} of {file}", grouped(*o)),
                (_, Some(w), Some(file)) => {
                    format!("byte {} of what a call read ({file})", grouped(*w))
                }
                (_, _, Some(file)) => file.clone(),
                _ => "memory that a call wrote".into(),
            };
            format!("{what}: {} at {}", line(call), point.position)
        }
        Origin::Result { call, point } => {
            format!("the result of {} at {}", line(call), point.position)
        }
        Origin::Signal { point } => format!("a signal at {}", point.position),
        Origin::Argument { index, text } => format!("argument {index}: {}", line(text)),
        Origin::Variable { text } => format!("the environment: {}", line(text)),
        Origin::Start => "what the kernel told the program at its beginning".into(),
        Origin::StartRandom => "random bytes from the kernel at the program's beginning".into(),
        Origin::File { path, offset } => {
            format!("{} at offset {offset:#x}, mapped", line(path))
        }
        Origin::Fresh => "memory that nobody had written to".into(),
        Origin::Processor { point } => {
            format!("the processor: {} {}", point.position, place(point))
        }
        Origin::Written { point } => format!("written at {} {}", point.position, place(point)),
        Origin::Address => "only where things are in memory".into(),
        Origin::Computed { point, from } => {
            let from: Vec<String> = from.iter().map(|o| named(&o.name, &o.bytes)).collect();
            let from = from.join("; ");
            let at = format!("{} {}", point.position, place(point));
            match from.is_empty() {
                true => format!("computed at {at}"),
                false => format!("computed at {at}, of: {from}"),
            }
        }
        Origin::Constant { point } => {
            format!(
                "a constant of the code at {} {}",
                point.position,
                place(point)
            )
        }
        Origin::ThreadStart => "a register with which the thread began".into(),
        Origin::Further { point } => format!(
            "farther back, which was not looked at, than {} {}",
            point.position,
            place(point)
        ),
        Origin::Untold { point, why } => format!(
            "made at {} {}; of what is not known: {}",
            point.position,
            place(point),
            line(why)
        ),
        _ => "not found".into(),
    }
}
