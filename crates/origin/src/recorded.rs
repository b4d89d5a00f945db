//! A recording, with what is needed to name its places.

use crate::Result;
use crate::model::Point;
use crate::place::Place;
use crate::start::Start;
use crate::streams::{Gave, Streams, Stretch};
use hindsight_inspect::Inspector;
use hindsight_inspect::symbols::CallFrame;
use hindsight_timeline::{
    Content, Cursor, Error, Flow, Happening, Kind, Paths, Thread, ThreadId, Timeline, Way,
};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// What a call moved through a descriptor.
#[derive(Clone)]
pub struct Moved {
    /// What the descriptor leads to.
    pub file: Arc<str>,
    /// Where in the file.
    pub offset: Option<u64>,
    /// How many bytes.
    pub len: u64,
    /// Which way.
    pub way: Way,
    /// What finds the bytes.
    pub content: Content,
    stretch: Option<Stretch>,
}

/// A recording, with what its calls moved.
pub struct Recorded {
    /// The recording.
    pub timeline: Timeline,
    /// Names its places.
    pub inspector: Inspector,
    /// Looks at it.
    pub cursor: Cursor,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// What calls moved.
    moved: HashMap<(ThreadId, u64), Moved>,
    /// Which calls gave out what others took in.
    streams: Streams,
    /// The ids of processes and threads.
    ids: HashSet<String>,
    /// What program images began with.
    starts: HashMap<u32, Option<Arc<Start>>>,
}

impl Recorded {
    /// Reads what the recording's calls moved.
    pub fn new(timeline: &Timeline) -> Result<Recorded> {
        let threads = timeline.threads()?;
        let ids = threads.iter().flat_map(|t| [t.tid, t.pid]);
        let (mut moved, mut streams) = (HashMap::new(), Streams::default());
        let mut files: HashMap<u64, Arc<str>> = HashMap::new();
        timeline.flow(Paths::All, None, &mut |_, flow| {
            if let Flow::Moved(t) = flow {
                let file = t.file.original();
                let name = files.entry(file.number);
                let name = name.or_insert_with(|| file.what.to_string().into());
                let m = Moved {
                    file: Arc::clone(name),
                    offset: t.offset,
                    len: t.len,
                    way: t.way,
                    content: t.content(),
                    stretch: streams.add(t),
                };
                moved.insert((t.thread, t.count), m);
            }
            Ok(())
        })?;
        Ok(Recorded {
            timeline: timeline.clone(),
            inspector: Inspector::new(timeline.clone()),
            cursor: timeline.cursor()?,
            ids: ids.map(|n| n.to_string()).collect(),
            moved,
            streams,
            threads,
            starts: HashMap::new(),
        })
    }

    /// What a program image began with, if the recording has that.
    pub fn start(&mut self, image: u32) -> Result<Option<Arc<Start>>> {
        if let Some(known) = self.starts.get(&image) {
            return Ok(known.clone());
        }
        let all = self.timeline.processes()?;
        let start = match all.iter().find(|p| p.image == image) {
            // Another cursor: this one is to stay.
            Some(p) => Start::read(&mut self.timeline.cursor()?, p)?.map(Arc::new),
            None => None,
        };
        self.starts.insert(image, start.clone());
        Ok(start)
    }

    /// What memory held when a program image began, as far as that is known. The cursor stays.
    pub(crate) fn at_beginning(
        &mut self,
        image: u32,
        address: u64,
        len: usize,
    ) -> Result<Vec<Option<u8>>> {
        let all = self.timeline.processes()?;
        let Some(p) = all.iter().find(|p| p.image == image) else {
            return Ok(Vec::new());
        };
        let mut cursor = self.timeline.cursor()?;
        cursor.seek_within(p.begin, Some(image), None)?;
        let known = cursor.known_memory(address, len)?;
        Ok(known.bytes.iter().map(|b| b.map(|k| k.value)).collect())
    }

    /// What a call moved.
    pub fn moved(&self, h: &Happening) -> Option<&Moved> {
        self.moved.get(&(h.thread, h.count))
    }

    /// Where the bytes that a call moved are in memory, if they are in one buffer.
    pub fn buffer(&self, thread: ThreadId, count: u64) -> Option<u64> {
        self.moved.get(&(thread, count))?.content.buffer()
    }

    /// The bytes of a call from one on. Fewer than were asked for: there are no more.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn bytes(&mut self, h: &Happening, from: u64, len: u64) -> Result<Vec<Option<u8>>> {
        let Some(m) = self.moved.get(&(h.thread, h.count)).cloned() else {
            return Ok(Vec::new());
        };
        let len = len.min(m.len.saturating_sub(from));
        if let Some(at) = m.content.buffer() {
            let what = (at.wrapping_add(from), len as usize);
            let behind = m.way == Way::In;
            return Ok(self.cursor.around_call((h.thread, h.count), what, behind)?);
        }
        let (mut out, mut skip) = (Vec::new(), from);
        let done = m.content.bytes(&mut self.cursor, &mut |part| {
            let skipped = skip.min(part.len() as u64);
            skip -= skipped;
            let room = len as usize - out.len();
            out.extend(part[skipped as usize..].iter().take(room));
            match out.len() as u64 == len {
                true => Err(Error::Cancelled),
                false => Ok(()),
            }
        });
        match done {
            Err(Error::Cancelled) if out.len() as u64 == len => Ok(out),
            done => Ok(done.map(|()| out)?),
        }
    }

    /// The call that gave out a byte that another call took in, and as which of its bytes. The byte is at this address behind the
    /// call. `None`: no recorded call did.
    pub(crate) fn gave(&mut self, h: &Happening, address: u64) -> Result<Option<(Gave, u64)>> {
        let moved = self.moved(h).filter(|m| m.way == Way::In);
        let Some((content, stretch)) = moved.and_then(|m| Some((m.content, m.stretch.clone()?)))
        else {
            return Ok(None);
        };
        let mut before = 0;
        for (at, len) in content.buffers(&mut self.cursor)? {
            let within = address.wrapping_sub(at);
            if within < len {
                let found = self.streams.giver(&stretch, before + within);
                return Ok(found.map(|(g, n)| (g.clone(), n)));
            }
            before += len;
        }
        Ok(None)
    }

    /// Where bytes of a call are in memory, from the `n`th one on: which of `len` bytes, and where these are.
    pub(crate) fn in_memory(
        &mut self,
        gave: &Gave,
        n: u64,
        len: usize,
    ) -> Result<Option<(Range<usize>, Place)>> {
        let mut before = 0;
        for (at, size) in gave.content.buffers(&mut self.cursor)? {
            if let Some(within) = n.checked_sub(before)
                && within < size
            {
                let len = len.min(usize::try_from(size - within).unwrap_or(len));
                let at = at.wrapping_add(within);
                return Ok(Some((0..len, Place::Memory { at, len })));
            }
            before += size;
        }
        Ok(None)
    }

    /// What memory holds before a call.
    pub(crate) fn before(&mut self, at: (ThreadId, u64), place: &Place) -> Result<Vec<Option<u8>>> {
        let Place::Memory { at: address, len } = *place else {
            return Ok(Vec::new());
        };
        Ok(self.cursor.around_call(at, (address, len), false)?)
    }

    /// A call or signal in words.
    pub fn text(&mut self, h: &Happening) -> Result<String> {
        Ok(match self.cursor.system_call(h)? {
            Some(call) => call.to_string(),
            None => h.kind.to_string(),
        })
    }

    /// The place of an instant.
    pub fn point(&mut self, thread: ThreadId, count: u64) -> Result<Point> {
        self.cursor.seek_count(thread, count)?;
        let pc = self.cursor.registers()?.rip;
        self.point_here(pc)
    }

    /// The place of an instruction that the thread executes at an instant. The cursor may find another one there: the first one of a
    /// handler comes behind the instant at which the signal does.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn point_of(&mut self, thread: ThreadId, count: u64, pc: u64) -> Result<Point> {
        self.cursor.seek_count(thread, count)?;
        self.point_here(pc)
    }

    /// The place of an instruction that the thread executes where the cursor stands.
    fn point_here(&mut self, pc: u64) -> Result<Point> {
        let c = &mut self.cursor;
        let lines = self.inspector.disassemble(c, pc, 1)?;
        Ok(Point {
            position: c.position()?,
            thread: c.thread(),
            count: c.count(),
            image: c.image(),
            pc,
            location: self.inspector.location(c, pc)?,
            frames: self.inspector.frames(c, pc)?,
            instruction: lines.into_iter().next(),
        })
    }

    /// The address of the instruction that a thread executes at an instant.
    pub(crate) fn pc(&mut self, (thread, count): (ThreadId, u64)) -> Result<u64> {
        self.cursor.seek_count(thread, count)?;
        Ok(self.cursor.registers()?.rip)
    }

    /// The call stack of an instant.
    pub fn stack(&mut self, thread: ThreadId, count: u64) -> Result<Vec<CallFrame>> {
        self.cursor.seek_count(thread, count)?;
        Ok(self.inspector.backtrace(&mut self.cursor)?)
    }

    /// Goes to where the parent of the cursor's process forked it. False: it has none, or it loaded a program.
    pub fn go_to_parent(&mut self) -> Result<bool> {
        let image = self.cursor.image();
        let all = self.timeline.processes()?;
        let Some(p) = all.iter().find(|p| p.image == image) else {
            return Ok(false);
        };
        if p.by_exec || p.parent == 0 || p.parent >= image {
            return Ok(false);
        }
        let went = self.cursor.seek_within(p.begin, Some(p.parent), None);
        Ok(went.is_ok())
    }

    /// A text with everything taken out that is another in each run: ids of the recording's own processes, and addresses.
    pub fn plain(&self, text: &str) -> String {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut out = String::new();
        let mut rest = text;
        while let Some(begin) = rest.find(is_word) {
            let (before, word) = rest.split_at(begin);
            let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
            let (word, behind) = word.split_at(end);
            out += before;
            let address = word.strip_prefix("0x").is_some_and(|d| d.len() > 8);
            match address || self.ids.contains(word) {
                true => out.push('#'),
                false => out += word,
            }
            rest = behind;
        }
        out + rest
    }

    /// The system call or signal at an instant of a thread.
    pub fn event(&self, thread: ThreadId, count: u64) -> Result<Option<Happening>> {
        let (from, until) = (
            self.timeline.position(thread, count)?,
            self.timeline.position(thread, count.saturating_add(1))?,
        );
        let found = self.timeline.events(&hindsight_timeline::Filter {
            thread: Some(thread),
            from: Some(from),
            until: Some(until).filter(|u| *u > from),
            ..Default::default()
        })?;
        let wanted = |h: &Happening| {
            h.count == count && matches!(h.kind, Kind::Syscall { .. } | Kind::Signal { .. })
        };
        Ok(found.into_iter().find(wanted))
    }
}
