//! What the recorder logs about itself, for those who debug it: areas, levels, and how the user chooses them.
//!
//! ```
//! use hindsight_events::log::{Area, Level, parse};
//! let levels = parse("memory=debug,signals=trace")?;
//! assert_eq!(levels[Area::Memory as usize], Level::Debug as u8);
//! assert_eq!(levels[Area::Run as usize], 0);
//! # Ok::<(), hindsight_events::log::Wrong>(())
//! ```

use core::fmt;

/// A part of the recorder: a folder of its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Area {
    /// Locks, memory of the recorder's own.
    Sys,
    /// The way to the collector.
    Stream,
    /// Threads and gaps.
    Thread,
    /// Mappings and the quiet regime.
    Memory,
    /// Translated code.
    Code,
    /// Signals and exceptions.
    Signals,
    /// Processes and programs.
    Process,
    /// System calls.
    Calls,
    /// The main loop.
    Run,
    /// The beginning of a recording.
    Boot,
}

impl Area {
    /// All areas, each at the index that is its number.
    pub const ALL: [Area; 10] = [
        Area::Sys,
        Area::Stream,
        Area::Thread,
        Area::Memory,
        Area::Code,
        Area::Signals,
        Area::Process,
        Area::Calls,
        Area::Run,
        Area::Boot,
    ];

    /// The area's name, which is the folder's.
    pub const fn name(self) -> &'static str {
        match self {
            Area::Sys => "sys",
            Area::Stream => "stream",
            Area::Thread => "thread",
            Area::Memory => "memory",
            Area::Code => "code",
            Area::Signals => "signals",
            Area::Process => "process",
            Area::Calls => "calls",
            Area::Run => "run",
            Area::Boot => "boot",
        }
    }

    /// The area that a module belongs to, by its path such as `hindsight_recorder::memory::maps`. To be evaluated by the
    /// compiler.
    ///
    /// # Panics
    /// If the module is in none.
    pub const fn of_module(path: &str) -> Area {
        let path = path.as_bytes();
        let mut from = 0;
        while from < path.len() && path[from] != b':' {
            from += 1;
        }
        let mut i = 0;
        while i < Area::ALL.len() {
            let name = Area::ALL[i].name().as_bytes();
            if begins(path, from + 2, name) {
                return Area::ALL[i];
            }
            i += 1;
        }
        panic!("this module is in no area of the log")
    }
}

/// Whether the path has the component `name` at `from`.
const fn begins(path: &[u8], from: usize, name: &[u8]) -> bool {
    let end = from + name.len();
    if path.len() < end || path.len() > end && path[end] != b':' {
        return false;
    }
    let mut i = 0;
    while i < name.len() {
        if path[from + i] != name[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// How important an entry is. An area whose level is set gets entries of that level and of those above it here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    /// The recording ends here.
    Error = 1,
    /// Something went wrong that the recorder can live with.
    Warn,
    /// Rare events: programs, regimes, generations.
    Info,
    /// What changes the recorder's state: mappings, signals, threads, gaps.
    Debug,
    /// Each system call, each translated block.
    Trace,
}

impl Level {
    /// All levels, the most important first.
    pub const ALL: [Level; 5] = [
        Level::Error,
        Level::Warn,
        Level::Info,
        Level::Debug,
        Level::Trace,
    ];

    /// The level's name.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }
}

/// Bytes of [`crate::config::Config::log`]; more than there are areas.
pub const AREAS: usize = 16;

const _: () = assert!(Area::ALL.len() <= AREAS);

/// The level of each area, by its number; 0: nothing is logged.
pub type Levels = [u8; AREAS];

/// The name that stands for all areas.
pub const EVERYTHING: &str = "all";

/// Why a choice is none. Shows the areas and levels that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong<'a> {
    /// A part has no `=`.
    Form(&'a str),
    /// There is no area of this name.
    Area(&'a str),
    /// There is no level of this name.
    Level(&'a str),
}

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Wrong::Form(part) => write!(f, "\"{part}\" is not AREA=LEVEL")?,
            Wrong::Area(name) => write!(f, "there is no area \"{name}\"")?,
            Wrong::Level(name) => write!(f, "there is no level \"{name}\"")?,
        }
        f.write_str("; areas: ")?;
        f.write_str(EVERYTHING)?;
        for a in Area::ALL {
            write!(f, ", {}", a.name())?;
        }
        f.write_str("; levels:")?;
        for (i, l) in Level::ALL.iter().enumerate() {
            write!(f, "{} {}", if i == 0 { "" } else { "," }, l.name())?;
        }
        Ok(())
    }
}

impl core::error::Error for Wrong<'_> {}

/// The levels that `AREA=LEVEL[,AREA=LEVEL…]` chooses. Later parts win; `all` is every area. An empty text chooses nothing.
pub fn parse(text: &str) -> Result<Levels, Wrong<'_>> {
    let mut levels = [0; AREAS];
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (area, level) = part.split_once('=').ok_or(Wrong::Form(part))?;
        let found = Level::ALL.iter().find(|l| l.name() == level);
        let level = *found.ok_or(Wrong::Level(level))? as u8;
        match Area::ALL.iter().find(|a| a.name() == area) {
            Some(a) => levels[*a as usize] = level,
            None if area == EVERYTHING => levels[..Area::ALL.len()].fill(level),
            None => return Err(Wrong::Area(area)),
        }
    }
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn later_parts_win() {
        let levels = parse("all=warn,code=trace,memory=info,code=debug").unwrap();
        assert_eq!(levels[Area::Code as usize], Level::Debug as u8);
        assert_eq!(levels[Area::Memory as usize], Level::Info as u8);
        assert_eq!(levels[Area::Boot as usize], Level::Warn as u8);
        assert!(levels[Area::ALL.len()..].iter().all(|l| *l == 0));
        assert_eq!(parse(""), Ok([0; AREAS]));
        assert_eq!(parse("code=info,"), parse("code=info"));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_there_is() {
        assert_eq!(parse("memory"), Err(Wrong::Form("memory")));
        assert_eq!(parse("memroy=info"), Err(Wrong::Area("memroy")));
        assert_eq!(parse("memory=loud"), Err(Wrong::Level("loud")));
        assert_eq!(parse("memory=Info"), Err(Wrong::Level("Info")));
        let text = parse("memroy=info").unwrap_err().to_string();
        for a in Area::ALL {
            assert!(text.contains(a.name()), "{text}");
        }
        for l in Level::ALL {
            assert!(text.contains(l.name()), "{text}");
        }
    }

    #[test]
    fn numbers_are_places_in_the_list() {
        for (i, a) in Area::ALL.iter().enumerate() {
            assert_eq!(*a as usize, i);
        }
    }

    #[test]
    fn modules_belong_to_their_folders() {
        for a in Area::ALL {
            let name = a.name();
            let path = |rest: &str| ["crate_name::", name, rest].concat();
            assert_eq!(Area::of_module(&path("")), a);
            assert_eq!(Area::of_module(&path("::maps::table")), a);
        }
    }

    #[test]
    #[should_panic = "in no area"]
    fn a_longer_name_is_another_folder() {
        Area::of_module("hindsight_recorder::memory_more::maps");
    }
}
