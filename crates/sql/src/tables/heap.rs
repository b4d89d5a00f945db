//! Memory that the program asked for.

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Int, Text, Uint, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::instant;
use hindsight_inspect::symbols::CallFrame;
use hindsight_inspect::{Allocation, Handed, allocations};
use hindsight_timeline::Cursor;

/// Table `heap`.
pub struct Heap;

const HEAP: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column(
        "function",
        Word,
        "what gave the memory: a function of the malloc family, an operator new, `mmap` or `mremap`",
    ),
    column("address", Address, "first address"),
    column("size", Uint, "bytes that were asked for"),
    column(
        "caller",
        Text,
        "where it returned to, as FILE!FUNCTION+OFFSET; NULL: a system call",
    ),
    column(
        "stack",
        Text,
        "the functions that led there, the outermost first, with `;` between",
    ),
    column(
        "freed_position",
        Text,
        "the instant at which it was given back; NULL: not within what is recorded",
    ),
    column("freed_time", Int, "the same as a number (`time`)"),
    column(
        "freed_thread",
        Int,
        "number of the thread that gave it back",
    ),
    column(
        "freed_by",
        Word,
        "what took it: `free`, `realloc`, an operator delete, `munmap`, or `mmap` in its place",
    ),
    column(
        "freed_caller",
        Text,
        "where that returned to, as FILE!FUNCTION+OFFSET",
    ),
    column(
        "lifetime",
        Int,
        "instructions of all threads between the two; NULL: it was not given back",
    ),
];

impl Table for Heap {
    fn name(&self) -> &str {
        "heap"
    }

    fn columns(&self) -> &'static [Column] {
        HEAP
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        for p in r.timeline.processes()? {
            if !bounds.has("process", p.image) {
                continue;
            }
            let cancel = out.cancel.clone();
            let all = allocations(&mut r.inspector(), p.image, &cancel)?;
            let mut cursor = r.timeline.cursor()?;
            for a in all {
                cancel.check()?;
                row(r, (p.image, &a), &mut cursor, bounds, out)?;
            }
        }
        Ok(())
    }
}

fn row(
    r: &Recording,
    (image, a): (u32, &Allocation),
    cursor: &mut Cursor,
    bounds: &Bounds,
    out: &mut Rows,
) -> Result<(), Stop> {
    let clock = r.clock()?;
    let g = &a.given;
    let time = clock.time(g.position);
    if !bounds.has("time", time) || !bounds.has("thread", g.thread.0) {
        return Ok(());
    }
    instant(r, out, g.position, time, (g.thread, g.count))?;
    out.text(5, &g.function);
    out.uint(6, a.address);
    out.uint(7, a.size);
    if out.wants(&[8]) {
        out.maybe(8, caller(r, image, g)?);
    }
    if out.wants(&[9]) {
        let cancel = out.cancel.clone();
        cursor.cancellable(&cancel, |c| c.seek_count(g.thread, g.count))?;
        let frames = r.inspector().backtrace(cursor)?;
        // The innermost one is what gave the memory.
        let own = usize::from(g.to.is_some());
        out.text(9, stack(frames.get(own..).unwrap_or_default()));
    }
    if let Some(t) = &a.taken {
        let end = clock.time(t.position);
        out.text(10, t.position.to_string());
        out.int(11, end);
        out.int(12, i64::from(t.thread.0));
        out.text(13, &t.function);
        if out.wants(&[14]) {
            out.maybe(14, caller(r, image, t)?);
        }
        out.int(15, end - time);
    }
    out.end()
}

fn caller(r: &Recording, image: u32, h: &Handed) -> Result<Option<String>, Stop> {
    let Some(to) = h.to else {
        return Ok(None);
    };
    let time = r.clock()?.time(h.position);
    let Some(file) = r.file(image, to, time)? else {
        return Ok(None);
    };
    Ok(r.location(image, file, to)?.map(|l| l.exact()))
}

/// Functions of a call stack, the outermost first, with those that are inlined.
fn stack(frames: &[CallFrame]) -> String {
    let mut names = Vec::new();
    for f in frames.iter().rev() {
        let inlined = f.frames.iter().rev().filter_map(|i| i.function.clone());
        let before = names.len();
        names.extend(inlined);
        if names.len() == before {
            let at = f.location.as_ref();
            names.push(at.map_or_else(
                || "?".into(),
                |l| match &l.function {
                    Some((name, _)) => name.clone(),
                    None => format!("[{}]", l.module),
                },
            ));
        }
    }
    names.join(";")
}
