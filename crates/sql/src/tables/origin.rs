//! Where a value came from.

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Int, Text, Uint, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::{At, instant};
use anyhow::anyhow;
use hindsight_cli::sql::origin_in_words;
use hindsight_origin::{How, LONGEST, Limits, OriginPiece, Point, Recorded, origins};
use hindsight_timeline::{Cursor, ThreadId};

/// `origin(address, length, place)`.
pub struct OriginOf {
    /// First address.
    pub address: u64,
    /// How many bytes.
    pub length: u64,
    /// Where to look.
    pub at: At,
}

/// Its columns.
pub const ORIGIN: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column(
        "first",
        Int,
        "the first of the bytes that were asked for, from 0, that came this way",
    ),
    column("length", Int, "how many bytes came this way"),
    column(
        "step",
        Int,
        "0: the instruction or call that wrote the bytes last; 1: the one before on their way; and so on",
    ),
    column(
        "kind",
        Word,
        "`copy`: an instruction copied them; `channel`: a call took in what another one gave out; `signal`: the kernel saved or \
         restored registers; `moved`: it moved the memory; anything else is where they came from, as `hindsight origin --json` names it",
    ),
    column(
        "source",
        Text,
        "where they were before; NULL: this is where they came from",
    ),
    column("target", Text, "where they were then"),
    column(
        "value",
        Uint,
        "the bytes as a number; NULL: more than 8, or not known",
    ),
    column(
        "pc",
        Address,
        "address of the instruction; NULL: it is none",
    ),
    column("function", Text, "its function; NULL: not known"),
    column(
        "line",
        Text,
        "its source line, as FILE:LINE; NULL: not known",
    ),
    column("code", Text, "the instruction as text; NULL: it is none"),
    column(
        "origin",
        Text,
        "where they came from, in words; NULL: they were only handed on",
    ),
];

impl Table for OriginOf {
    fn name(&self) -> &str {
        "origin"
    }

    fn columns(&self) -> &'static [Column] {
        ORIGIN
    }

    fn order(&self) -> &'static [&'static str] {
        &["first", "step"]
    }

    fn rows(&self, r: &Recording, _: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        if length == 0 || length > LONGEST {
            return Err(anyhow!("the origin of 1 to {LONGEST} bytes can be asked for").into());
        }
        let cursor: Cursor = self.at.cursor(r)?;
        let at = (cursor.thread(), cursor.count());
        let mut recorded = Recorded::new(&r.timeline)?;
        let limits = Limits {
            cancel: out.cancel.clone(),
            ..Limits::default()
        };
        for p in origins(&mut recorded, at, (self.address, length), &limits)? {
            out.cancel.check()?;
            piece(r, &mut recorded, &p, out)?;
        }
        Ok(())
    }
}

/// The rows of bytes that came the same way.
fn piece(
    r: &Recording,
    recorded: &mut Recorded,
    p: &OriginPiece,
    out: &mut Rows,
) -> Result<(), Stop> {
    let value: Option<Vec<u8>> = p.value.iter().copied().collect();
    let value = value.filter(|v| v.len() <= 8);
    let value = value.map(|v| v.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)));
    let bytes = |out: &mut Rows, step: usize| {
        out.int(5, p.bytes.start as i64);
        out.int(6, p.bytes.len() as i64);
        out.int(7, step as i64);
        out.uint(11, value);
    };
    // Places take longer than all else.
    let places = [0, 1, 12, 13, 14, 15];
    for (step, h) in p.hops.iter().enumerate() {
        out.cancel.check()?;
        bytes(out, step);
        let kind = match h.how {
            How::Instruction => "copy",
            How::Channel { .. } => "channel",
            How::Signal => "signal",
            How::Moved => "moved",
            _ => "other",
        };
        out.text(8, kind);
        out.text(9, h.from.to_string());
        out.text(10, h.to.to_string());
        if out.wants(&places) {
            point(r, &recorded.point_of(h.thread, h.count, h.pc)?, out)?;
        } else {
            thread(r, (h.thread, h.count), out)?;
        }
        out.end()?;
    }
    bytes(out, p.hops.len());
    out.text(8, p.origin.kind());
    let last = p.hops.last().map_or(&p.place, |h| &h.from);
    out.text(10, last.to_string());
    if out.wants(&[16]) {
        out.text(16, origin_in_words(&p.origin));
    }
    if let Some(at) = p.origin.point() {
        point(r, at, out)?;
    }
    out.end()
}

fn thread(r: &Recording, (thread, count): (ThreadId, u64), out: &mut Rows) -> Result<(), Stop> {
    out.int(2, i64::from(thread.0));
    if out.wants(&[3]) {
        out.int(3, i64::from(r.image(thread)?));
    }
    out.int(4, count as i64);
    Ok(())
}

fn point(r: &Recording, p: &Point, out: &mut Rows) -> Result<(), Stop> {
    let time = r.clock()?.time(p.position);
    instant(r, out, p.position, time, (p.thread, p.count))?;
    out.uint(12, p.pc);
    if out.wants(&[13]) {
        out.maybe(13, r.function(p.image, p.pc, time)?);
    }
    let source = p.frames.first().and_then(|f| f.source.as_ref());
    out.maybe(14, source.map(|s| format!("{}:{}", s.file, s.line)));
    out.maybe(15, p.instruction.as_ref().map(|i| i.text.clone()));
    Ok(())
}
