//! Instructions and what they access. Nothing of this is stored: replay makes it again for what is asked.

use crate::bounds::Bounds;
use crate::clock::Stretch;
use crate::column::Kind::{Address, Bool, Bytes, Int, Text, Uint, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::instant;
use hindsight_timeline::{ThreadId, Walk, Walked};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// This many threads have a virtual processor at the same time.
const WALKS: usize = 8;
/// What is known of this many addresses of code.
const MOST_KNOWN: usize = 1 << 16;

/// An instruction, when it was executed, and where.
struct Executed<'a, 'b> {
    stretch: &'a Stretch,
    time: i64,
    walked: &'a Walked<'b>,
}

/// Visits the instructions that lie within the bounds, in the order of time.
fn each(
    r: &Recording,
    bounds: &Bounds,
    accesses: bool,
    out: &mut Rows,
    visit: &mut dyn FnMut(&mut Rows, &Executed) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let clock = r.clock()?;
    let times = bounds.numbers("time");
    if times.is_empty() {
        return Ok(());
    }
    let bound = |n: i128| n.clamp(0, clock.end().into()) as i64;
    let (lo, hi) = (bound(*times.start()), bound(*times.end()).saturating_add(1));
    let mut walks: Vec<(ThreadId, Walk)> = Vec::new();
    for stretch in clock.stretches().iter().skip(clock.first_at(lo)) {
        if stretch.time >= hi {
            break;
        }
        let s = &stretch.segment;
        let image = r.image(s.thread)?;
        if !bounds.has("thread", s.thread.0) || !bounds.has("process", image) {
            continue;
        }
        let count = |time: i64| s.from + (time - stretch.time).clamp(0, stretch.len()) as u64;
        let counts = bounds.numbers("count");
        let clamped = |n: i128| n.clamp(s.from.into(), s.to.into()) as u64;
        let from = count(lo).max(clamped(*counts.start()));
        let until = count(hi).min(clamped(counts.end().saturating_add(1)));
        if from >= until {
            continue;
        }
        let at = match walks.iter().position(|w| w.0 == s.thread) {
            Some(at) => at,
            None => {
                walks.truncate(WALKS - 1);
                walks.insert(
                    0,
                    (s.thread, r.timeline.walk(s.thread, out.cancel.clone())?),
                );
                0
            }
        };
        walks[..=at].rotate_right(1);
        let walk = &mut walks[0].1;
        let mut stopped = None;
        walk.run((from, until), accesses, &mut |walked| {
            let executed = Executed {
                stretch,
                time: stretch.at(walked.count),
                walked,
            };
            match visit(out, &executed) {
                Ok(()) => true,
                Err(stop) => {
                    stopped = Some(stop);
                    false
                }
            }
        })?;
        if let Some(stop) = stopped {
            return Err(stop);
        }
    }
    Ok(())
}

/// Splits the times that are asked for into parts of the same length.
fn split(r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
    let Ok(clock) = r.clock() else {
        return vec![bounds.clone()];
    };
    let times = bounds.numbers("time");
    let lo = (*times.start()).max(0);
    let hi = (*times.end()).min(clock.end().into());
    let parts = (most as i128).min((hi - lo) / LEAST).max(1);
    let border = |n: i128| lo + (hi + 1 - lo) * n / parts;
    (0..parts)
        .map(|n| {
            let mut part = bounds.clone();
            if parts > 1 {
                part.limit("time", border(n)..=border(n + 1) - 1);
            }
            part
        })
        .collect()
}

/// A part has at least this many instructions. Its beginning must be found first.
const LEAST: i128 = 10_000_000;

/// Fills the first six columns: position, time, thread, process, count, pc.
fn place(r: &Recording, out: &mut Rows, e: &Executed) -> Result<(), Stop> {
    let (s, count) = (&e.stretch.segment, e.walked.count);
    instant(r, out, s.position(count), e.time, (s.thread, count))?;
    out.uint(5, e.walked.pc);
    Ok(())
}

const PC: Column = column("pc", Address, "address of the instruction");
const FUNCTION: Column = column(
    "function",
    Word,
    "the function that it is in; NULL: not known",
);
const LINE: Column = column(
    "line",
    Text,
    "its source line, as FILE:LINE; NULL: not known",
);

/// What is known of the instruction at an address.
#[derive(Clone, Copy)]
struct Known {
    code: [u8; 15],
    instruction: Instruction,
}

/// What instructions are, and where.
#[derive(Default)]
struct Names {
    known: HashMap<u64, Known>,
    /// By program image, file and address.
    functions: HashMap<(u32, usize, u64), Option<String>>,
    lines: HashMap<(u32, usize, u64), Option<String>>,
    formatter: Option<IntelFormatter>,
    /// By iced's number. Empty: not made yet.
    mnemonics: Vec<String>,
}

impl Names {
    fn instruction(&mut self, walked: &Walked) -> Instruction {
        let mut code = [0; 15];
        code[..walked.code.len()].copy_from_slice(walked.code);
        if let Some(k) = self.known.get(&walked.pc)
            && k.code == code
        {
            return k.instruction;
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let mut decoder = Decoder::with_ip(64, walked.code, walked.pc, DecoderOptions::NONE);
        let instruction = decoder.decode();
        self.known.insert(walked.pc, Known { code, instruction });
        instruction
    }

    fn function(
        &mut self,
        r: &Recording,
        image: u32,
        at: u64,
        time: i64,
    ) -> Result<Option<&str>, Stop> {
        let Some(file) = r.file(image, at, time)? else {
            return Ok(None);
        };
        if self.functions.len() >= MOST_KNOWN {
            self.functions.clear();
        }
        let found = match self.functions.entry((image, file, at)) {
            Entry::Occupied(o) => o.into_mut(),
            Entry::Vacant(v) => {
                let location = r.location(image, file, at)?;
                v.insert(location.and_then(|l| Some(l.function?.0)))
            }
        };
        Ok(found.as_deref())
    }

    fn line(
        &mut self,
        r: &Recording,
        image: u32,
        at: u64,
        time: i64,
    ) -> Result<Option<&str>, Stop> {
        let Some(file) = r.file(image, at, time)? else {
            return Ok(None);
        };
        if self.lines.len() >= MOST_KNOWN {
            self.lines.clear();
        }
        let found = match self.lines.entry((image, file, at)) {
            Entry::Occupied(o) => o.into_mut(),
            Entry::Vacant(v) => v.insert(r.line(image, file, at)?),
        };
        Ok(found.as_deref())
    }

    /// The name of an instruction in small letters.
    fn mnemonic(&mut self, instruction: &Instruction) -> &str {
        let number = instruction.mnemonic() as usize;
        if self.mnemonics.len() <= number {
            self.mnemonics.resize(number + 1, String::new());
        }
        let name = &mut self.mnemonics[number];
        if name.is_empty() {
            *name = format!("{:?}", instruction.mnemonic()).to_lowercase();
        }
        name
    }

    fn text(&mut self, instruction: &Instruction) -> String {
        let mut out = String::new();
        let formatter = self.formatter.get_or_insert_with(IntelFormatter::new);
        formatter.format(instruction, &mut out);
        out
    }
}

/// Table `instructions`.
pub struct Instructions;

const INSTRUCTIONS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    PC,
    column(
        "mnemonic",
        Word,
        "name of the instruction, in small letters",
    ),
    column("instruction", Text, "the instruction in Intel's notation"),
    column("length", Int, "its length in bytes"),
    FUNCTION,
    LINE,
];

impl Table for Instructions {
    fn name(&self) -> &str {
        "instructions"
    }

    fn columns(&self) -> &'static [Column] {
        INSTRUCTIONS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn split(&self, r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
        split(r, bounds, most)
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut names = Names::default();
        each(r, bounds, false, out, &mut |out, e| {
            if !bounds.has("pc", e.walked.pc) {
                return Ok(());
            }
            place(r, out, e)?;
            if out.wants(&[6, 7, 8]) {
                let i = names.instruction(e.walked);
                if out.wants(&[6]) {
                    out.text(6, names.mnemonic(&i));
                }
                if out.wants(&[7]) {
                    out.text(7, names.text(&i));
                }
                out.int(8, i.len() as i64);
            }
            whereabouts(r, out, &mut names, e, 9)?;
            out.end()
        })
    }
}

/// Fills two columns: function and line.
fn whereabouts(
    r: &Recording,
    out: &mut Rows,
    names: &mut Names,
    e: &Executed,
    column: usize,
) -> Result<(), Stop> {
    if out.wants(&[column, column + 1]) {
        let image = r.image(e.stretch.segment.thread)?;
        let (pc, time) = (e.walked.pc, e.time);
        if out.wants(&[column]) {
            out.maybe(column, names.function(r, image, pc, time)?);
        }
        if out.wants(&[column + 1]) {
            out.maybe(column + 1, names.line(r, image, pc, time)?);
        }
    }
    Ok(())
}

/// Tables `reads` and `writes`.
pub struct Accesses {
    write: bool,
}

impl Accesses {
    /// What instructions read.
    pub const READS: Accesses = Accesses { write: false };
    /// What instructions write.
    pub const WRITES: Accesses = Accesses { write: true };
}

const ACCESSES: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    PC,
    column("address", Address, "first address that was accessed"),
    column("length", Int, "how many bytes"),
    column(
        "value",
        Uint,
        "the bytes as a number, least significant first; NULL: more than 8, or not known",
    ),
    column(
        "bytes",
        Bytes,
        "the bytes; NULL: more than 64, or not known",
    ),
    column(
        "mnemonic",
        Word,
        "name of the instruction, in small letters",
    ),
    FUNCTION,
    LINE,
];

impl Table for Accesses {
    fn name(&self) -> &str {
        match self.write {
            true => "writes",
            false => "reads",
        }
    }

    fn columns(&self) -> &'static [Column] {
        ACCESSES
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn split(&self, r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
        split(r, bounds, most)
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut names = Names::default();
        each(r, bounds, true, out, &mut |out, e| {
            for t in e.walked.accesses {
                let a = &t.access;
                if a.write != self.write || !bounds.has("address", a.address) {
                    continue;
                }
                place(r, out, e)?;
                out.uint(6, a.address);
                out.int(7, a.len as i64);
                let number = t.bytes.as_deref().filter(|b| b.len() <= 8).map(|b| {
                    let shift = |n, b: &u8| n << 8 | u64::from(*b);
                    b.iter().rev().fold(0, shift)
                });
                out.uint(8, number);
                out.bytes(9, t.bytes.as_deref());
                if out.wants(&[10]) {
                    let i = names.instruction(e.walked);
                    out.text(10, names.mnemonic(&i));
                }
                whereabouts(r, out, &mut names, e, 11)?;
                out.end()?;
            }
            Ok(())
        })
    }
}

/// Table `branches`.
pub struct Branches;

const BRANCHES: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    PC,
    column("kind", Word, "jump, conditional, call or return"),
    column(
        "target",
        Address,
        "where it led to; NULL: not known, since a signal comes there, a gap begins, or the thread ends",
    ),
    column(
        "taken",
        Bool,
        "false: a conditional branch went on to the instruction behind it; NULL as `target`",
    ),
    FUNCTION,
    column(
        "target_function",
        Word,
        "the function of `target`; NULL: not known",
    ),
];

impl Table for Branches {
    fn name(&self) -> &str {
        "branches"
    }

    fn columns(&self) -> &'static [Column] {
        BRANCHES
    }

    fn order(&self) -> &'static [&'static str] {
        // Where a thread goes is known only when it executes again, and others may do so before.
        &[]
    }

    fn split(&self, r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
        split(r, bounds, most)
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut names = Names::default();
        let mut last: HashMap<ThreadId, Branch> = HashMap::new();
        each(r, bounds, false, out, &mut |out, e| {
            let thread = e.stretch.segment.thread;
            if let Some(b) = last.remove(&thread) {
                let follows = e.walked.count == b.count + 1 && !e.walked.entered;
                let next = follows.then_some(e.walked.pc);
                b.say(r, out, &mut names, next)?;
            }
            let i = names.instruction(e.walked);
            if let Some(kind) = kind(&i) {
                last.insert(
                    thread,
                    Branch {
                        stretch: *e.stretch,
                        count: e.walked.count,
                        pc: e.walked.pc,
                        behind: i.next_ip(),
                        kind,
                    },
                );
            }
            Ok(())
        })?;
        for (thread, b) in last {
            // The next instruction lies behind what was asked for.
            let mut next = None;
            let mut walk = r.timeline.walk(thread, out.cancel.clone())?;
            walk.run((b.count + 1, b.count + 2), false, &mut |w| {
                next = (w.count == b.count + 1 && !w.entered).then_some(w.pc);
                false
            })?;
            b.say(r, out, &mut names, next)?;
        }
        Ok(())
    }
}

/// A branch of which it is not known yet where it went.
struct Branch {
    stretch: Stretch,
    count: u64,
    pc: u64,
    behind: u64,
    kind: &'static str,
}

impl Branch {
    fn say(
        self,
        r: &Recording,
        out: &mut Rows,
        names: &mut Names,
        next: Option<u64>,
    ) -> Result<(), Stop> {
        let s = &self.stretch.segment;
        let time = self.stretch.at(self.count);
        let position = s.position(self.count);
        instant(r, out, position, time, (s.thread, self.count))?;
        let image = r.image(s.thread)?;
        out.uint(5, self.pc);
        out.text(6, self.kind);
        out.uint(7, next);
        out.bool(
            8,
            next.map(|n| self.kind != CONDITIONAL || n != self.behind),
        );
        if out.wants(&[9]) {
            out.maybe(9, names.function(r, image, self.pc, time)?);
        }
        if let Some(next) = next
            && out.wants(&[10])
        {
            out.maybe(10, names.function(r, image, next, time)?);
        }
        out.end()
    }
}

const CONDITIONAL: &str = "conditional";

/// What kind of a branch an instruction is.
fn kind(i: &Instruction) -> Option<&'static str> {
    Some(match i.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => "jump",
        FlowControl::ConditionalBranch => CONDITIONAL,
        FlowControl::Call | FlowControl::IndirectCall
            if i.mnemonic() == iced_x86::Mnemonic::Call =>
        {
            "call"
        }
        FlowControl::Return if i.mnemonic() == iced_x86::Mnemonic::Ret => "return",
        _ => return None,
    })
}
