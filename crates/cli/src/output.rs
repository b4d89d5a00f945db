//! `hindsight output`: what the recorded program printed.

use crate::args;
use crate::out::{self, JsonList};
use crate::transfers::{self, Raw};
use crate::{say, travel};
use anyhow::Result;
use hindsight_timeline::{
    Flow, OpenFile, Options, Paths, Place, ThreadId, Timeline, Transfer, Unseen, Way, What,
};

/// Which descriptors are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// Those that the program began with as its standard output and its standard error, and their copies.
    Standard,
    /// What was open as this number first.
    Number(i32),
    /// A file by its path, or by the end of its path.
    Path(Vec<u8>),
}

impl Chosen {
    pub fn new(text: Option<&str>) -> Chosen {
        match text {
            None => Chosen::Standard,
            Some(text) => match text.parse() {
                Ok(number) => Chosen::Number(number),
                Err(_) => Chosen::Path(text.into()),
            },
        }
    }

    fn has(&self, file: &OpenFile) -> bool {
        let original = file.original();
        match self {
            Chosen::Standard => original.what == What::Inherited && matches!(original.first, 1 | 2),
            Chosen::Number(n) => original.first == *n,
            Chosen::Path(wanted) => match &file.what {
                What::File {
                    path: Some(path), ..
                } => path
                    .strip_suffix(wanted.as_slice())
                    .is_some_and(|before| before.is_empty() || before.ends_with(b"/")),
                _ => false,
            },
        }
    }
}

/// Which transfers are meant.
struct Choice {
    chosen: Chosen,
    thread: Option<ThreadId>,
    threads: Option<Vec<ThreadId>>,
    from: Option<hindsight_timeline::Position>,
}

impl Choice {
    fn has(&self, t: &Transfer) -> bool {
        t.way == Way::Out
            && self.thread.is_none_or(|wanted| wanted == t.thread)
            && self
                .threads
                .as_ref()
                .is_none_or(|all| all.contains(&t.thread))
            && self.from.is_none_or(|from| from <= t.position)
            && self.chosen.has(&t.file)
    }
}

pub fn run(a: &args::Output) -> Result<i32> {
    let mut raw = match a.raw {
        true => Some(Raw::new()?),
        false => None,
    };
    let timeline = travel::open(a.file.as_deref(), Options::default())?;
    let choice = choice(a, &timeline)?;
    let place = |p: Option<Place>| p.map(|p| timeline.find(p, a.image)).transpose();
    let until = place(a.until)?;
    let paths = match choice.chosen {
        Chosen::Path(_) => Paths::All,
        _ => Paths::Written,
    };
    let mut list = a.json.then(JsonList::default);
    let unseen = timeline.flow(paths, until, &mut |cursor, flow| {
        let Flow::Moved(t) = flow else { return Ok(()) };
        if !choice.has(t) {
            return Ok(());
        }
        if let Some(raw) = &mut raw {
            return raw.write(t, cursor);
        }
        if let Some(list) = &mut list {
            list.add(&transfers::json(t, cursor)?);
            return Ok(());
        }
        let begin = format!(
            "{:<16} {:>4} {:>7} {:>3}  ",
            t.position.to_string(),
            t.thread.0,
            t.pid,
            t.file.original().first
        );
        out::write(begin.as_bytes());
        transfers::print_text(t, cursor)?;
        out::write(b"\n");
        Ok(())
    })?;
    if let Some(list) = list {
        list.end();
    }
    tell(unseen);
    Ok(raw.map_or(0, Raw::end))
}

fn choice(a: &args::Output, timeline: &Timeline) -> Result<Choice> {
    let thread = a.thread.map(ThreadId);
    if let Some(t) = thread {
        timeline.thread(t)?;
    }
    let threads = match a.image {
        Some(image) => {
            let all = timeline.processes()?;
            let found = all.into_iter().find(|p| p.image == image);
            Some(
                found
                    .ok_or(hindsight_timeline::Error::NoImage(image))?
                    .threads,
            )
        }
        None => None,
    };
    Ok(Choice {
        chosen: Chosen::new(a.fd.as_deref()),
        thread,
        threads,
        from: a.from.map(|p| timeline.find(p, a.image)).transpose()?,
    })
}

/// Says what may be missing.
pub fn tell(unseen: Unseen) {
    if unseen.gaps {
        say(
            "parts of the program are not recorded: what it wrote there is missing, and descriptors may have become others",
        );
    }
    if unseen.hidden {
        say(
            "the program used io_uring or asynchronous input and output, or took descriptors of other processes: what went that way is missing",
        );
    }
}
