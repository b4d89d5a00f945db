//! Which call gave out the bytes that another call took in.

use hindsight_timeline::{Content, ThreadId, Transfer, Way, What};
use std::collections::HashMap;
use std::sync::Arc;

/// What bytes go through.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Channel {
    /// A file, by its path.
    File(Arc<[u8]>),
    /// A pipe, by its number.
    Pipe(u64),
    /// A connection, from one address to another.
    Socket(String, String),
}

/// Where bytes stand that a call takes in or gives out.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    channel: Channel,
    /// Where in the file; or how many bytes went the same way before.
    from: u64,
    len: u64,
    /// How many calls were begun before.
    order: usize,
}

/// A call that gave out bytes.
#[derive(Clone, Debug)]
pub(crate) struct Gave {
    pub at: (ThreadId, u64),
    pub content: Content,
    stretch: Stretch,
}

/// All that was given out.
#[derive(Default)]
pub(crate) struct Streams {
    gave: HashMap<Channel, Vec<Gave>>,
    /// How many bytes went into each channel that is no file, and out of it.
    passed: HashMap<Channel, [u64; 2]>,
    calls: usize,
}

impl Streams {
    /// Adds a call. Calls come in the order in which they began. Says where the bytes stand that it took in or gave out.
    pub fn add(&mut self, t: &Transfer) -> Option<Stretch> {
        self.calls += 1;
        let channel = match (t.file.original().what, t.way) {
            (What::File { path, .. }, _) => Channel::File(path?.into()),
            (What::Pipe { number, .. }, _) => Channel::Pipe(number),
            (What::Socket { own, peer }, Way::Out) => Channel::Socket(own?, peer?),
            (What::Socket { own, peer }, Way::In) => Channel::Socket(peer?, own?),
            _ => return None,
        };
        let from = match &channel {
            Channel::File(_) => t.offset?,
            _ => {
                let passed = self.passed.entry(channel.clone()).or_default();
                let passed = &mut passed[usize::from(t.way == Way::In)];
                let from = *passed;
                *passed += t.len;
                from
            }
        };
        let stretch = Stretch {
            channel,
            from,
            len: t.len,
            order: self.calls,
        };
        if t.way == Way::Out {
            let gave = Gave {
                at: (t.thread, t.count),
                content: t.content(),
                stretch: stretch.clone(),
            };
            let all = self.gave.entry(stretch.channel.clone());
            all.or_default().push(gave);
        }
        Some(stretch)
    }

    /// The call that gave out the byte that another call took in as its `n`th, and as which one it did.
    pub fn giver(&self, took: &Stretch, n: u64) -> Option<(&Gave, u64)> {
        let byte = took.from.checked_add(n)?;
        let all = self.gave.get(&took.channel)?;
        let within = |g: &&Gave| {
            let n = byte.checked_sub(g.stretch.from);
            n.is_some_and(|n| n < g.stretch.len)
        };
        let found = match took.channel {
            // The last one that wrote there.
            Channel::File(_) => {
                let before = all.partition_point(|g| g.stretch.order < took.order);
                all[..before].iter().rev().find(within)?
            }
            _ => {
                let behind = all.partition_point(|g| g.stretch.from <= byte);
                all[..behind].iter().rev().find(within)?
            }
        };
        Some((found, byte - found.stretch.from))
    }
}
