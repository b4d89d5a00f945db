//! The targets.

mod code;
mod events;
mod gdb;
mod index;
mod interpreter;
mod module;
mod packets;
mod process;
mod recording;
mod trace;
mod words;

use crate::Target;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "trace",
        about: "a trace file; also with checksums that fit what was changed",
        seeds: trace::seeds,
        run: trace::run,
    },
    Target {
        name: "header",
        about: "the header of a chunk, with a checksum that fits",
        seeds: trace::headers,
        run: trace::header,
    },
    Target {
        name: "store",
        about: "a file in the store: a copy of a module",
        seeds: trace::stored,
        run: trace::store,
    },
    Target {
        name: "columns",
        about: "the content of a chunk of events",
        seeds: events::contents,
        run: events::columns,
    },
    Target {
        name: "ring",
        about: "what a recorded program leaves in a ring",
        seeds: events::wires,
        run: events::ring,
    },
    Target {
        name: "cache",
        about: "translated code that was kept for later recordings",
        seeds: events::stocks,
        run: events::cache,
    },
    Target {
        name: "index",
        about: "an index file beside its trace",
        seeds: index::seeds,
        run: index::run,
    },
    Target {
        name: "module",
        about: "an executable file with its debug information",
        seeds: module::seeds,
        run: module::run,
    },
    Target {
        name: "gdb",
        about: "what gdb sends, as packets",
        seeds: gdb::seeds,
        run: gdb::run,
    },
    Target {
        name: "bookmarks",
        about: "the names of positions (JSON) in a file beside the trace",
        seeds: gdb::bookmark_files,
        run: gdb::bookmarks,
    },
    Target {
        name: "packets",
        about: "what comes through gdb's connection: frames and requests",
        seeds: packets::seeds,
        run: packets::run,
    },
    Target {
        name: "process",
        about: "a process that is to go on, as the confined half tells it",
        seeds: process::seeds,
        run: process::run,
    },
    Target {
        name: "code",
        about: "code of a program: translated, and read by the code check",
        seeds: code::seeds,
        run: code::run,
    },
    Target {
        name: "interpreter",
        about: "code of a program, executed by the interpreter",
        seeds: interpreter::seeds,
        run: interpreter::run,
    },
    Target {
        name: "words",
        about: "places, positions, rules, scripts and names, as people write them",
        seeds: words::seeds,
        run: words::run,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
