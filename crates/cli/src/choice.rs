//! Which of a program's reads and writes are meant.

use crate::{args, say};
use anyhow::Result;
use hindsight_timeline::{
    Error, OpenFile, Paths, Position, ThreadId, Timeline, Transfer, Unseen, Way, What,
};

/// Which descriptors are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Through {
    /// All of them.
    Any,
    /// Those that the program began with as its standard output and its standard error, and their copies.
    Standard,
    /// What was open as this number first.
    Number(i32),
    /// A file by its path or by the end of it, a socket by its peer, or another kind by its name.
    Named(String),
}

impl Through {
    /// What the user named, or else `all`.
    pub fn new(text: Option<&str>, all: Through) -> Through {
        match text {
            None => all,
            Some(text) => match text.parse() {
                Ok(number) => Through::Number(number),
                Err(_) => Through::Named(text.into()),
            },
        }
    }

    pub fn has(&self, file: &OpenFile) -> bool {
        let original = file.original();
        match self {
            Through::Any => true,
            Through::Standard => {
                original.what == What::Inherited && matches!(original.first, 1 | 2)
            }
            Through::Number(n) => original.first == *n,
            Through::Named(wanted) => match &file.what {
                What::File {
                    path: Some(path), ..
                } => path
                    .strip_suffix(wanted.as_bytes())
                    .is_some_and(|before| before.is_empty() || before.ends_with(b"/")),
                What::Socket { peer, .. } => peer.as_ref() == Some(wanted),
                What::Other(what) => what == wanted,
                _ => false,
            },
        }
    }
}

/// Which transfers are meant.
pub struct Choice {
    pub through: Through,
    /// Only this way.
    pub way: Option<Way>,
    thread: Option<ThreadId>,
    /// Those of the program image.
    threads: Option<Vec<ThreadId>>,
    from: Option<Position>,
    pub until: Option<Position>,
}

impl Choice {
    /// # Errors
    /// The recording has no such thread, program image or place.
    pub fn new(
        timeline: &Timeline,
        through: Through,
        way: Option<Way>,
        of: &args::Moved,
    ) -> Result<Choice> {
        let thread = of.thread.map(ThreadId);
        if let Some(t) = thread {
            timeline.thread(t)?;
        }
        let threads = match of.image {
            Some(image) => {
                let all = timeline.processes()?;
                let found = all.into_iter().find(|p| p.image == image);
                Some(found.ok_or(Error::NoImage(image))?.threads)
            }
            None => None,
        };
        let place = |p: Option<_>| p.map(|p| timeline.find(p, of.image)).transpose();
        Ok(Choice {
            through,
            way,
            thread,
            threads,
            from: place(of.from.clone())?,
            until: place(of.until.clone())?,
        })
    }

    /// Which paths are needed to choose.
    pub fn paths(&self) -> Paths {
        match self.through {
            Through::Standard | Through::Number(_) => Paths::Written,
            Through::Any | Through::Named(_) => Paths::All,
        }
    }

    pub fn has(&self, t: &Transfer) -> bool {
        self.way.is_none_or(|w| w == t.way) && self.is_there(t.thread, t.position, &t.file)
    }

    /// Whether a thread, an instant and an open file are meant.
    pub fn is_there(&self, thread: ThreadId, at: Position, file: &OpenFile) -> bool {
        self.thread.is_none_or(|wanted| wanted == thread)
            && self
                .threads
                .as_ref()
                .is_none_or(|all| all.contains(&thread))
            && self.from.is_none_or(|from| from <= at)
            && self.through.has(file)
    }
}

/// Says what may be missing.
pub fn tell(unseen: Unseen) {
    if unseen.gaps {
        say(
            "parts of the program are not recorded: what it read and wrote there is missing, and descriptors may have become others",
        );
    }
    if unseen.hidden {
        say(
            "the program used io_uring or asynchronous input and output, or took descriptors of other processes: what went that way is missing",
        );
    }
}
