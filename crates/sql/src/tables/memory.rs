//! Tables that need to be told where to look.

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Bool, Bytes, Int, Text, Uint, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::instant;
use hindsight_inspect::symbols::CodeLocation;
use hindsight_isa::regs::NAMES;
use hindsight_timeline::{Cursor, Found, ThreadId};
use std::collections::HashMap;

/// Where to look: a place, and the program image whose memory is meant.
#[derive(Clone, Debug)]
pub struct At {
    /// As users write it.
    pub place: String,
    /// The program image. `None`: the one that executes there.
    pub process: Option<u32>,
    /// The thread. `None`: the one that executes there.
    pub thread: Option<u32>,
}

impl At {
    /// A cursor there.
    pub fn cursor(&self, r: &Recording) -> Result<Cursor, Stop> {
        let position = r.place(&self.place)?;
        let mut cursor = r.timeline.cursor()?;
        let found = cursor.seek_within(position, self.process, self.thread.map(ThreadId));
        found.map_err(Stop::of_search)?;
        Ok(cursor)
    }
}

/// So many bytes are looked up at a time.
const AT_A_TIME: u64 = 1 << 16;

/// `memory(address, length, place)`.
pub struct MemoryAt {
    /// First address.
    pub address: u64,
    /// How many bytes.
    pub length: u64,
    /// Where to look.
    pub at: At,
}

/// Its columns.
pub const MEMORY: &[Column] = &[
    column("address", Address, "address of the byte"),
    column("value", Int, "what it holds; NULL: not known"),
    column("ground", Word, "why that is known; NULL: it is not"),
    column(
        "candidates",
        Text,
        "where it is not certain: what it may hold, with the thread and the instant of the access",
    ),
];

impl Table for MemoryAt {
    fn name(&self) -> &str {
        "memory"
    }

    fn columns(&self) -> &'static [Column] {
        MEMORY
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut cursor = self.at.cursor(r)?;
        let mut done = 0;
        while done < self.length {
            out.cancel.check()?;
            let len = (self.length - done).min(AT_A_TIME);
            let address = self.address.wrapping_add(done);
            let cancel = out.cancel.clone();
            let memory = cursor.cancellable(&cancel, |c| c.memory(address, len as usize))?;
            let mut candidates: HashMap<u64, Vec<String>> = HashMap::new();
            for c in &memory.candidates {
                for (i, byte) in (0..).zip(&c.bytes) {
                    let at = c.address.wrapping_add(i);
                    let said = format!(
                        "{byte:#04x} thread {} at {} ({})",
                        c.thread, c.position, c.why
                    );
                    candidates.entry(at).or_default().push(said);
                }
            }
            for (i, byte) in (0..).zip(&memory.bytes) {
                let at = address.wrapping_add(i);
                if !bounds.has("address", at) {
                    continue;
                }
                out.uint(0, at);
                out.int(1, byte.map(|b| i64::from(b.value)));
                out.maybe(2, byte.map(|b| b.ground.to_string()));
                out.maybe(3, candidates.get(&at).map(|c| c.join("; ")));
                out.end()?;
            }
            done += len;
        }
        Ok(())
    }
}

/// `registers(place)`.
pub struct RegistersAt(pub At);

/// Its columns.
pub const REGISTERS: &[Column] = &[
    column("name", Text, "name of the register"),
    column("value", Address, "what it holds"),
];

impl Table for RegistersAt {
    fn name(&self) -> &str {
        "registers"
    }

    fn columns(&self) -> &'static [Column] {
        REGISTERS
    }

    fn rows(&self, r: &Recording, _: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let cpu = self.0.cursor(r)?.registers()?;
        let general = NAMES.iter().copied().zip(cpu.gpr);
        let others = [("rip", cpu.rip), ("rflags", cpu.rflags)];
        for (name, value) in general.chain(others) {
            out.text(0, name);
            out.uint(1, value);
            out.end()?;
        }
        Ok(())
    }
}

/// `stack(place)`.
pub struct Stack(pub At);

/// Its columns.
pub const STACK: &[Column] = &[
    column(
        "frame",
        Int,
        "number of the frame, from 0; as `at --frame` takes it",
    ),
    column("pc", Address, "where the frame goes on"),
    column("function", Text, "its function; NULL: not known"),
    column(
        "module",
        Text,
        "the file that the function is in; NULL: not known",
    ),
    column(
        "line",
        Text,
        "its source line, as FILE:LINE; NULL: not known",
    ),
    column(
        "inlined",
        Bool,
        "the function is inlined in that of the next frame",
    ),
    column(
        "signal",
        Bool,
        "a signal interrupted the next frame: nobody has called this one",
    ),
];

impl Table for Stack {
    fn name(&self) -> &str {
        "stack"
    }

    fn columns(&self) -> &'static [Column] {
        STACK
    }

    fn order(&self) -> &'static [&'static str] {
        &["frame"]
    }

    fn rows(&self, r: &Recording, _: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut cursor = self.0.cursor(r)?;
        let frames = r.inspector().backtrace(&mut cursor)?;
        let mut number = 0;
        for f in frames {
            let module = f.location.as_ref().map(|l| l.module.clone());
            let name = |l: &CodeLocation| l.function.as_ref().map(|f| f.0.clone());
            if f.frames.is_empty() || f.signal {
                out.int(0, number);
                out.uint(1, f.pc);
                out.maybe(2, f.location.as_ref().and_then(name));
                out.maybe(3, module);
                out.bool(5, false);
                out.bool(6, f.signal);
                out.end()?;
                number += 1;
                continue;
            }
            for inner in f.frames {
                out.int(0, number);
                out.uint(1, f.pc);
                out.maybe(
                    2,
                    inner
                        .function
                        .or_else(|| f.location.as_ref().and_then(name)),
                );
                out.maybe(3, module.as_deref());
                out.maybe(4, inner.source.map(|s| format!("{}:{}", s.file, s.line)));
                out.bool(5, inner.inlined);
                out.bool(6, false);
                out.end()?;
                number += 1;
            }
        }
        Ok(())
    }
}

/// `variables(place)`.
pub struct Variables {
    /// Where to look.
    pub at: At,
    /// The number of the frame.
    pub frame: usize,
}

/// Its columns.
pub const VARIABLES: &[Column] = &[
    column("name", Text, "its name, as in the source"),
    column("type", Text, "its type, as in the source"),
    column("value", Text, "its value, as debuggers show it"),
    column(
        "number",
        Uint,
        "its value as a number; NULL: it has more than 8 bytes, or is not known",
    ),
    column("parameter", Bool, "it is a parameter of the function"),
    column("size", Int, "its size in bytes; NULL: not known"),
];

impl Table for Variables {
    fn name(&self) -> &str {
        "variables"
    }

    fn columns(&self) -> &'static [Column] {
        VARIABLES
    }

    fn rows(&self, r: &Recording, _: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut cursor = self.at.cursor(r)?;
        let all = r.inspector().variables(&mut cursor, self.frame)?;
        for v in all {
            out.uint(3, v.integer());
            out.text(0, v.variable.name);
            out.text(1, v.variable.type_name);
            out.text(2, v.text);
            out.bool(4, v.variable.parameter);
            out.int(5, v.variable.size.map(|s| s as i64));
            out.end()?;
        }
        Ok(())
    }
}

/// Its columns.
pub const WRITES: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column("pc", Address, "address of the instruction"),
    column("address", Address, "first address that it wrote"),
    column("length", Int, "how many bytes it wrote"),
    column(
        "kernel",
        Bool,
        "the kernel did it, in the system call or for the signal at this position",
    ),
    column(
        "bytes",
        Bytes,
        "what the bytes that were asked for hold after it; NULL: not wholly known",
    ),
    column(
        "value",
        Uint,
        "the same as a number, least significant byte first; NULL: more than 8 bytes, or not known",
    ),
    column(
        "function",
        Text,
        "the function that the instruction is in; NULL: not known",
    ),
    column(
        "line",
        Text,
        "its source line, as FILE:LINE; NULL: not known",
    ),
];

/// The most bytes that are shown of each write.
const SHOWN: u64 = 64;

/// `writes(address, length)` and `last_write(address, length, place)`.
pub struct Writes {
    /// First address.
    pub address: u64,
    /// How many bytes.
    pub length: u64,
    /// What is before this counts.
    pub at: At,
}

impl Table for Writes {
    fn name(&self) -> &str {
        "writes"
    }

    fn columns(&self) -> &'static [Column] {
        WRITES
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let clock = r.clock()?;
        let times = bounds.numbers("time");
        if times.is_empty() {
            return Ok(());
        }
        let mut cursor = self.at.cursor(r)?;
        // A place before the one that was named is nearer to what is asked for.
        let behind = i64::try_from(times.end().saturating_add(1)).unwrap_or(i64::MAX);
        if let Some(p) = clock.position(behind)
            && p < cursor.position()?
        {
            cursor.seek_within(p, Some(cursor.image()), None)?;
        }
        let mut list = cursor.writes(self.address, self.length, self.length.min(SHOWN) as usize)?;
        while let Some(w) = list.next(&out.cancel)? {
            let time = clock.time(w.access.position);
            if i128::from(time) < *times.start() {
                break;
            }
            let bytes: Option<Vec<u8>> = w.bytes.iter().copied().collect();
            let bytes = bytes.filter(|_| self.length <= SHOWN);
            found(r, out, &w.access, time, bytes)?;
        }
        Ok(())
    }
}

/// `last_write(address, length, place)`.
pub struct LastWrite(pub Writes);

impl Table for LastWrite {
    fn name(&self) -> &str {
        "last_write"
    }

    fn columns(&self) -> &'static [Column] {
        WRITES
    }

    fn rows(&self, r: &Recording, _: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let w = &self.0;
        let cursor = w.at.cursor(r)?;
        let mut list = cursor.writes(w.address, w.length, w.length.min(SHOWN) as usize)?;
        if let Some(one) = list.next(&out.cancel)? {
            let time = r.clock()?.time(one.access.position);
            let bytes: Option<Vec<u8>> = one.bytes.iter().copied().collect();
            found(
                r,
                out,
                &one.access,
                time,
                bytes.filter(|_| w.length <= SHOWN),
            )?;
        }
        Ok(())
    }
}

fn found(
    r: &Recording,
    out: &mut Rows,
    access: &Found,
    time: i64,
    bytes: Option<Vec<u8>>,
) -> Result<(), Stop> {
    let image = r.image(access.thread)?;
    let by = (access.thread, access.count);
    instant(r, out, access.position, time, by)?;
    out.uint(5, access.pc);
    out.uint(6, access.address);
    out.int(7, access.len as i64);
    out.bool(8, access.kernel);
    let number = bytes.as_deref().filter(|b| b.len() <= 8);
    out.uint(
        10,
        number.map(|b| b.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))),
    );
    out.bytes(9, bytes);
    if out.wants(&[11]) {
        out.maybe(11, r.function(image, access.pc, time)?);
    }
    if out.wants(&[12])
        && let Some(file) = r.file(image, access.pc, time)?
    {
        out.maybe(12, r.line(image, file, access.pc)?);
    }
    out.end()
}
