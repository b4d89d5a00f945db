//! Bytes that went through descriptors.

use crate::bounds::Bounds;
use crate::column::Kind::{Bool, Bytes, Int, Text, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::instant;
use hindsight_timeline::{Flow, Paths, Transfer, Way, syscall_name};

/// Tables `output` and `input`.
pub struct Transfers(Way);

impl Transfers {
    /// What the program gave out.
    pub const OUT: Transfers = Transfers(Way::Out);
    /// What it took in.
    pub const IN: Transfers = Transfers(Way::In);
}

/// The most bytes of one call that a row has. A call may move gigabytes.
const MOST: usize = 1 << 20;

const COLUMNS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    column("fd", Int, "number of the descriptor; -1: the call has none"),
    column(
        "file",
        Text,
        "what the descriptor leads to: a path, a socket, a pipe",
    ),
    column("call", Word, "name of the system call"),
    column(
        "offset",
        Int,
        "where in the file the bytes are; NULL: not known, or no file",
    ),
    column("length", Int, "how many bytes it were"),
    column(
        "text",
        Text,
        "the bytes as text; what is no UTF-8 or not known is shown as U+FFFD; at most 1 MiB; NULL: they never were in memory",
    ),
    column(
        "bytes",
        Bytes,
        "the bytes; at most 1 MiB; NULL: one of them is not known",
    ),
    column(
        "whole",
        Bool,
        "`text` and `bytes` have all bytes of the call",
    ),
];

impl Table for Transfers {
    fn name(&self) -> &str {
        match self.0 {
            Way::Out => "output",
            Way::In => "input",
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let clock = r.clock()?;
        let times = bounds.numbers("time");
        if times.is_empty() {
            return Ok(());
        }
        let last = i64::try_from(*times.end()).unwrap_or(i64::MAX);
        // The pass ends before this instant.
        let until = last.checked_add(1).and_then(|t| clock.position(t));
        let cancel = out.cancel.clone();
        let mut stopped = None;
        let done = r.timeline.flow(Paths::All, until, &mut |cursor, flow| {
            cancel.check()?;
            let Flow::Moved(t) = flow else { return Ok(()) };
            let time = clock.time(t.position);
            let wanted = t.way == self.0
                && bounds.has("time", time)
                && bounds.has("thread", t.thread.0)
                && bounds.has("fd", t.fd);
            if !wanted {
                return Ok(());
            }
            let said = say(r, out, t, time, cursor).and_then(|()| out.end());
            said.map_err(|stop| {
                stopped = Some(stop);
                hindsight_timeline::Error::Cancelled
            })
        });
        match stopped {
            Some(stop) => Err(stop),
            None => Ok(done.map(|_| ())?),
        }
    }
}

fn say(
    r: &Recording,
    out: &mut Rows,
    t: &Transfer,
    time: i64,
    cursor: &mut hindsight_timeline::Cursor,
) -> Result<(), Stop> {
    instant(r, out, t.position, time, (t.thread, t.count))?;
    out.int(5, i64::from(t.fd));
    out.text(6, t.file.original().what.to_string());
    out.text(7, syscall_name(t.number));
    out.int(8, t.offset.map(|o| o as i64));
    out.int(9, t.len as i64);
    if out.wants(&[10, 11, 12]) {
        let mut bytes: Vec<Option<u8>> = Vec::new();
        let mut full = false;
        let cancel = out.cancel.clone();
        let read = t.bytes(cursor, &mut |part| {
            cancel.check()?;
            let room = MOST - bytes.len();
            bytes.extend(&part[..part.len().min(room)]);
            full = bytes.len() == MOST;
            // What follows is not shown.
            match full {
                true => Err(hindsight_timeline::Error::Cancelled),
                false => Ok(()),
            }
        });
        match read {
            Err(hindsight_timeline::Error::Cancelled) if full => {}
            read => read?,
        }
        out.bool(
            12,
            bytes.len() as u64 == t.len && bytes.iter().all(Option::is_some),
        );
        // The kernel may have moved them without ever showing them to the program.
        if t.is_in_memory() {
            // A byte that is not known is none that any text has.
            let shown: Vec<u8> = bytes.iter().map(|b| b.unwrap_or(0xff)).collect();
            out.text(10, String::from_utf8_lossy(&shown));
            out.bytes(11, bytes.into_iter().collect::<Option<Vec<u8>>>());
        }
    }
    Ok(())
}
