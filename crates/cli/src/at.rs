//! `hindsight at` and `hindsight backtrace`: a place of a recording in words.

use crate::hex::hex;
use crate::numbers::local_time;
use crate::out::println;
use crate::variables::{variable_json, variable_text};
use crate::words::Spot;
use crate::{args, carried, confine, travel};
use anyhow::Result;
use hindsight_inspect::symbols::{self, CallFrame, InlineFrame};
use hindsight_inspect::{Carried, Carrier, Inspector, Line, NEAR_GAPS, Value};
use hindsight_isa::regs::NAMES;
use hindsight_text::line;
use hindsight_timeline::{Cursor, Moment, Position, SystemCall};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::path::Path;

/// Flags that programs see.
const FLAGS: [(u32, &str); 9] = [
    (0, "CF"),
    (2, "PF"),
    (4, "AF"),
    (6, "ZF"),
    (7, "SF"),
    (10, "DF"),
    (11, "OF"),
    (18, "AC"),
    (21, "ID"),
];

/// Shows registers, source line, instructions, call stack and variables at a position.
pub fn run(a: &args::At, file: Option<&Path>) -> Result<i32> {
    // The process that plays the recording opens no files.
    let mut carrier = carried::carrier(&a.carrying)?;
    if a.carrying.assume.is_none() {
        // Nobody asked for more than a look.
        carrier = carrier.map(Carrier::near);
    }
    confine::run(file, || show(a, carrier.as_mut()))
}

fn show(a: &args::At, carrier: Option<&mut Carrier>) -> Result<i32> {
    let mut spot = Spot::open(a.words.first(), &a.at)?;
    let shown = Shown::of(
        &mut spot.inspector,
        &mut spot.cursor,
        (a.instructions, a.at.frame),
        carrier,
    )?;
    println(&match a.json {
        true => serde_json::to_string_pretty(&shown.json())?,
        false => shown.text(),
    });
    Ok(0)
}

/// Shows the call stack at a position.
pub fn backtrace(a: &args::Backtrace) -> Result<i32> {
    let mut spot = Spot::open(a.words.first(), &a.at)?;
    if a.threads {
        return stacks(&mut spot.inspector, &mut spot.cursor, a.json);
    }
    let mut frames = spot.inspector.backtrace(&mut spot.cursor)?;
    let from = outer(&mut frames, a.at.frame);
    println(&match a.json {
        true => serde_json::to_string_pretty(&stack_json(&frames))?,
        false => stack_text(&frames, from).trim_end().into(),
    });
    Ok(0)
}

/// Leaves out the frames before one, of which inlined ones are parts; its number, and how many are before it.
fn outer(frames: &mut Vec<CallFrame>, frame: usize) -> usize {
    let mut left = frame;
    while let Some(first) = frames.first_mut() {
        let here = match first.signal {
            true => 1,
            false => first.frames.len().max(1),
        };
        if left < here {
            first.frames.drain(..left.min(first.frames.len()));
            break;
        }
        left -= here;
        frames.remove(0);
    }
    frame
}

/// Shows the call stacks of all threads of the process, the cursor's first.
fn stacks(inspector: &mut Inspector, cursor: &mut Cursor, as_json: bool) -> Result<i32> {
    let timeline = cursor.timeline().clone();
    let (first, here) = (timeline.thread(cursor.thread())?, cursor.position()?);
    let mut all = timeline.threads()?;
    all.retain(|t| (t.image, t.pid) == (first.image, first.pid));
    all.sort_by_key(|t| (t.id != first.id, t.id));
    let names = timeline.names(first.image)?;
    let (mut text, mut list) = (String::new(), Vec::new());
    for t in all {
        if t.id != first.id {
            if !timeline.is_alive(t.id, here)? {
                continue;
            }
            let count = timeline.count_at(t.id, here)?.unwrap_or(t.from);
            cursor.seek_count(t.id, count)?;
        }
        let position = cursor.position()?;
        let name = names.of(&timeline, &t, here)?;
        let frames = inspector.backtrace(cursor)?;
        let _ = writeln!(text, "thread {} ({}) at {position}", t.tid, line(&name));
        let _ = writeln!(text, "{}\n", stack_text(&frames, 0).trim_end());
        list.push(json!({
            "thread": t.id.0, "tid": t.tid, "name": name, "position": position.to_string(),
            "stack": stack_json(&frames),
        }));
    }
    println(&match as_json {
        true => serde_json::to_string_pretty(&list)?,
        false => text.trim_end().into(),
    });
    Ok(0)
}

/// Whether more may be carried that was not looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeftOut {
    Nothing,
    /// What is farther away, since only what is near was asked for.
    Far,
    /// What is beyond all limits.
    Beyond,
}

/// All that is known of a place.
pub struct Shown {
    position: Position,
    /// The recording is still being written.
    growing: bool,
    thread: hindsight_timeline::Thread,
    /// What the thread is called there.
    name: String,
    count: u64,
    /// When it was, and when the recording was started.
    when: Option<Moment>,
    started_ms: u64,
    cpu: hindsight_timeline::CpuState,
    /// The system call that is made there.
    call: Option<SystemCall>,
    location: Option<symbols::CodeLocation>,
    frames: Vec<InlineFrame>,
    code: Vec<Line>,
    stack: Vec<CallFrame>,
    /// The frames behind them to which what is carried leads, and what that is.
    carried: (Vec<CallFrame>, Vec<Carried>),
    left_out: LeftOut,
    variables: Vec<Value>,
}

impl Shown {
    /// With this many instructions, in a frame of the call stack. Without a carrier, nothing is carried.
    pub fn of(
        inspector: &mut Inspector,
        cursor: &mut Cursor,
        (instructions, frame): (usize, usize),
        carrier: Option<&mut Carrier>,
    ) -> Result<Shown> {
        let mut cpu = cursor.registers()?;
        // Of a caller the call that it is in.
        let mut look = cpu.rip;
        if frame > 0 {
            let (r, pc) = inspector.frame(cursor, frame)?;
            (cpu.gpr, cpu.rip, look) = (r.gpr, pc, r.rip);
        }
        let (timeline, position) = (cursor.timeline(), cursor.position()?);
        let thread = timeline.thread(cursor.thread())?;
        let names = timeline.names(thread.image)?;
        let call = match frame {
            0 => cursor.system_call_here()?,
            _ => None,
        };
        let stack = inspector.backtrace(cursor)?;
        let mut left_out = LeftOut::Nothing;
        let (carried, variables) = match carrier {
            Some(by) => {
                // Earlier questions may have left something out.
                by.left_out();
                let frames = inspector.backtrace_carried(cursor, &stack, by)?;
                let variables = inspector.variables_carried(cursor, frame, by)?;
                if by.left_out() {
                    left_out = match by.is_near() {
                        true => LeftOut::Far,
                        false => LeftOut::Beyond,
                    };
                }
                (frames, variables)
            }
            None => (Default::default(), inspector.variables(cursor, frame)?),
        };
        let timeline = cursor.timeline();
        Ok(Shown {
            call,
            position,
            growing: timeline.is_growing(),
            name: names.of(timeline, &thread, position)?,
            thread,
            count: cursor.count(),
            when: cursor.timeline().when(position)?,
            started_ms: cursor.timeline().started_ms(),
            location: inspector.location(cursor, look)?,
            frames: inspector.frames(cursor, look)?,
            code: inspector.disassemble(cursor, cpu.rip, instructions)?,
            stack,
            carried,
            left_out,
            variables,
            cpu,
        })
    }

    fn text(&self) -> String {
        let t = &self.thread;
        let mut out = format!(
            "position {}: thread {} of process {} ({}), {} instructions\n",
            self.position,
            t.tid,
            t.pid,
            line(&self.name),
            self.count
        );
        if let Some(m) = self.when {
            let at = self.started_ms / 1000
                + (m.estimate.as_millis() as u64 + self.started_ms % 1000) / 1000;
            let _ = writeln!(out, "time {m}, {}", local_time(at as i64));
        }
        let place = self
            .location
            .as_ref()
            .map_or("?".into(), symbols::CodeLocation::to_string);
        let _ = writeln!(out, "{:#x} {place}", self.cpu.rip);
        for f in &self.frames {
            let _ = writeln!(out, "  {}", frame_text(f));
        }
        if let Some(call) = &self.call {
            let _ = writeln!(out, "system call {call}");
        }
        out.push('\n');
        for (i, row) in NAMES.chunks(4).enumerate() {
            for (j, name) in row.iter().enumerate() {
                let _ = write!(out, "{name:>4} {:016x}", self.cpu.gpr[4 * i + j]);
            }
            out.push('\n');
        }
        let flags: Vec<&str> = FLAGS
            .iter()
            .filter(|(bit, _)| self.cpu.rflags >> bit & 1 != 0)
            .map(|(_, n)| *n)
            .collect();
        let _ = writeln!(
            out,
            " flags {}  fs_base {:x}  gs_base {:x}\n",
            if flags.is_empty() {
                "-".into()
            } else {
                flags.join(" ")
            },
            self.cpu.fs_base,
            self.cpu.gs_base
        );
        for l in &self.code {
            let _ = writeln!(out, "{:>16x}  {}", l.addr, l.text);
        }
        out += "\ncall stack\n";
        let stack = stack_text(&self.stack, 0);
        out += &stack;
        let (frames, from) = &self.carried;
        for line in stack_text(frames, stack.lines().count()).lines() {
            let _ = writeln!(out, "{line} ({})", Carried::mark(from));
        }
        if !from.is_empty() {
            let _ = writeln!(out, "     {}", Carried::over(from));
        }
        if !self.variables.is_empty() {
            out += "\nvariables\n";
            for v in &self.variables {
                let _ = writeln!(out, "  {}", variable_text(v));
            }
        }
        if self.left_out == LeftOut::Far {
            let _ = writeln!(
                out,
                "\nnot looked for: values farther than {NEAR_GAPS} gaps away, and what carried pointers point to \
                 (--assume declared)"
            );
        }
        out.trim_end().into()
    }

    /// The same for scripts.
    pub fn json(&self) -> Json {
        json!({
            "position": self.position.to_string(),
            "being_recorded": self.growing,
            "time": travel::moment_json(self.when),
            "thread": { "stream": self.thread.id.0, "tid": self.thread.tid, "pid": self.thread.pid,
                        "name": self.name },
            "instructions": self.count,
            "system_call": self.call.as_ref().map(|c| json!({
                "name": c.name, "arguments": c.arguments, "returned": c.result,
            })),
            "registers": registers_json(&self.cpu),
            "place": self.location.as_ref().map(place_json),
            "frames": self.frames.iter().map(frame_json).collect::<Vec<_>>(),
            "code": code_json(&self.code),
            "stack": stack_json(&self.stack),
            "stack_carried": (!self.carried.0.is_empty()).then(|| json!({
                "frames": stack_json(&self.carried.0), "from": carried::json(&self.carried.1),
            })),
            "variables": self.variables.iter().map(variable_json).collect::<Vec<_>>(),
            "carried_left_out": self.left_out != LeftOut::Nothing,
        })
    }
}

/// General registers, instruction pointer, flags and segment bases, by their names.
pub fn registers_json(cpu: &hindsight_timeline::CpuState) -> Json {
    Json::Object(cpu.named().map(|(n, v)| (n.into(), hex(v))).collect())
}

pub fn code_json(code: &[Line]) -> Json {
    let one = |l: &Line| {
        json!({
            "address": hex(l.addr), "bytes": bytes_text(l.bytes.iter().map(|b| Some(*b))),
            "text": l.text,
        })
    };
    code.iter().map(one).collect()
}

pub fn place_json(p: &symbols::CodeLocation) -> Json {
    json!({
        "module": p.module, "address": hex(p.addr),
        "function": p.function.as_ref().map(|f| &f.0),
        "distance": p.function.as_ref().map(|f| f.1),
    })
}

pub fn frame_text(f: &InlineFrame) -> String {
    let name = line(f.function.as_deref().unwrap_or("?"));
    let inlined = if f.inlined { " (inlined)" } else { "" };
    match &f.source {
        Some(s) => format!("{name}{inlined} at {}:{}", line(&s.file), s.line),
        None => format!("{name}{inlined}"),
    }
}

pub fn frame_json(f: &InlineFrame) -> Json {
    json!({
        "function": f.function, "inlined": f.inlined,
        "file": f.source.as_ref().map(|s| &s.file),
        "line": f.source.as_ref().map(|s| s.line),
        "column": f.source.as_ref().map(|s| s.column),
    })
}

/// `n`: the number of the first.
pub fn stack_text(frames: &[CallFrame], mut n: usize) -> String {
    let mut out = String::new();
    for f in frames {
        if f.signal {
            let _ = writeln!(out, "#{n:<3} {:#018x} <signal handler called>", f.pc);
            n += 1;
            continue;
        }
        let place = f
            .location
            .as_ref()
            .map_or("?".into(), symbols::CodeLocation::to_string);
        if f.frames.is_empty() {
            let _ = writeln!(out, "#{n:<3} {:#018x} {place}", f.pc);
            n += 1;
        }
        for inner in &f.frames {
            let text = match inner.source {
                Some(_) => frame_text(inner),
                None => place.clone(),
            };
            let tail = if f.tail { " (tail call)" } else { "" };
            let _ = writeln!(out, "#{n:<3} {:#018x} {text}{tail}", f.pc);
            n += 1;
        }
    }
    out
}

pub fn stack_json(frames: &[CallFrame]) -> Json {
    let all = frames.iter().map(|f| {
        json!({
            "pc": hex(f.pc), "cfa": f.cfa.map(hex),
            "place": f.location.as_ref().map(place_json),
            "frames": f.frames.iter().map(frame_json).collect::<Vec<_>>(),
            "signal": f.signal, "tail": f.tail,
        })
    });
    all.collect()
}

pub fn bytes_text(bytes: impl Iterator<Item = Option<u8>>) -> String {
    let all: Vec<String> = bytes
        .map(|b| b.map_or("??".into(), |b| format!("{b:02x}")))
        .collect();
    all.join(" ")
}
