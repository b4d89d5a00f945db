//! Processes, threads and files.

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Bool, Int, Text};
use crate::column::{Column, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use hindsight_timeline::Ending;

/// Table `processes`.
pub struct Processes;

const PROCESSES: &[Column] = &[
    column("process", Int, "number of the program image, from 1"),
    column(
        "parent",
        Int,
        "the program image that it came from; 0 for the first",
    ),
    column(
        "by_exec",
        Bool,
        "it came by `execve` and has its parent's process id",
    ),
    column(
        "whole",
        Bool,
        "all that its program did since it was loaded is recorded",
    ),
    column("pid", Int, "process id on the recording machine"),
    column("command", Text, "command line, as far as it is known"),
    column("threads", Int, "how many threads it had"),
    column("begin_position", Text, "the first instant of its threads"),
    column("end_position", Text, "the last one"),
    column("begin_time", Int, "the first instant as a number (`time`)"),
    column("end_time", Int, "the last one"),
    column(
        "instructions",
        Int,
        "instructions that its threads completed",
    ),
];

impl Table for Processes {
    fn name(&self) -> &str {
        "processes"
    }

    fn columns(&self) -> &'static [Column] {
        PROCESSES
    }

    fn rows(&self, r: &Recording, _: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let threads = r.timeline.threads()?;
        for p in r.timeline.processes()? {
            out.int(0, i64::from(p.image));
            out.int(1, i64::from(p.parent));
            out.bool(2, p.by_exec);
            out.bool(3, p.is_whole);
            out.int(4, i64::from(p.pid));
            out.text(5, p.command);
            out.int(6, p.threads.len() as i64);
            out.text(7, p.begin.to_string());
            out.text(8, p.end.to_string());
            if out.wants(&[9, 10]) {
                out.int(9, r.clock()?.time(p.begin));
                out.int(10, r.clock()?.time(p.end));
            }
            let own = threads.iter().filter(|t| t.image == p.image);
            out.int(11, own.map(instructions).fold(0, i64::saturating_add));
            out.end()?;
        }
        Ok(())
    }
}

/// How many instructions a thread has.
fn instructions(t: &hindsight_timeline::Thread) -> i64 {
    i64::try_from(t.to.saturating_sub(t.from)).unwrap_or(i64::MAX)
}

/// Table `threads`.
pub struct Threads;

const THREADS: &[Column] = &[
    column("thread", Int, "number of the thread in this recording"),
    column("process", Int, "number of the program image"),
    column("tid", Int, "thread id on the recording machine"),
    column("pid", Int, "process id on the recording machine"),
    column(
        "name",
        Text,
        "the program's name, or what the thread was called at its end",
    ),
    column("begin_position", Text, "the first instant"),
    column("end_position", Text, "the last instant"),
    column("begin_time", Int, "the first instant as a number (`time`)"),
    column("end_time", Int, "the last one"),
    column(
        "begin_count",
        Int,
        "instructions completed at the first instant",
    ),
    column("end_count", Int, "instructions completed at the last one"),
    column(
        "instructions",
        Int,
        "instructions that were recorded, and those of gaps",
    ),
    column("ending", Text, "how it ended, in words"),
    column("status", Int, "exit status; NULL if it did not exit"),
    column("signal", Int, "the signal that killed it; NULL if none did"),
];

impl Table for Threads {
    fn name(&self) -> &str {
        "threads"
    }

    fn columns(&self) -> &'static [Column] {
        THREADS
    }

    fn rows(&self, r: &Recording, _: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        for t in r.timeline.threads()? {
            out.int(0, i64::from(t.id.0));
            out.int(1, i64::from(t.image));
            out.int(2, i64::from(t.tid));
            out.int(3, i64::from(t.pid));
            out.text(4, &t.name);
            out.text(5, t.first.to_string());
            out.text(6, t.last.to_string());
            if out.wants(&[7, 8]) {
                out.int(7, r.clock()?.time(t.first));
                out.int(8, r.clock()?.time(t.last));
            }
            out.int(9, t.from as i64);
            out.int(10, t.to as i64);
            out.int(11, instructions(&t));
            out.text(12, t.ending.to_string());
            out.int(
                13,
                match t.ending {
                    Ending::Exit(n) => Some(i64::from(n)),
                    _ => None,
                },
            );
            out.int(
                14,
                match t.ending {
                    Ending::Signal(n) => Some(i64::from(n)),
                    _ => None,
                },
            );
            out.end()?;
        }
        Ok(())
    }
}

/// Table `modules`.
pub struct Modules;

const MODULES: &[Column] = &[
    column("process", Int, "number of the program image"),
    column("path", Text, "path when it was mapped"),
    column("start", Address, "lowest mapped address"),
    column("end", Address, "one past the highest mapped address"),
    column(
        "load_position",
        Text,
        "when it was first mapped; NULL: it was there from the beginning",
    ),
    column(
        "unload_position",
        Text,
        "when its last mapping was removed; NULL: never",
    ),
    column("load_time", Int, "`load_position` as a number (`time`)"),
    column("unload_time", Int, "`unload_position` as a number"),
    column(
        "hash",
        Text,
        "names its content; NULL: the recording does not have it",
    ),
];

impl Table for Modules {
    fn name(&self) -> &str {
        "modules"
    }

    fn columns(&self) -> &'static [Column] {
        MODULES
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        for p in r.timeline.processes()? {
            if !bounds.has("process", p.image) {
                continue;
            }
            for m in r.timeline.modules(p.image)? {
                out.int(0, i64::from(p.image));
                out.text(1, m.path);
                out.uint(2, m.start);
                out.uint(3, m.end);
                out.maybe(4, m.load.map(|p| p.to_string()));
                out.maybe(5, m.unload.map(|p| p.to_string()));
                if out.wants(&[6, 7]) {
                    let clock = r.clock()?;
                    out.int(6, m.load.map(|p| clock.time(p)));
                    out.int(7, m.unload.map(|p| clock.time(p)));
                }
                out.maybe(8, m.hash.map(|h| h.to_string()));
                out.end()?;
            }
        }
        Ok(())
    }
}
