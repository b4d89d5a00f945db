//! The calls of a recorded process, and which of them a call that is made now is.
//!
//! Calls are looked for by their keys, not by their order, so one more call or one fewer puts nothing out of step. Bytes are
//! looked for by their place in the file or stream, so sizes of buffers may differ.

mod input;
mod lanes;

pub use input::Input;

use super::class::{Class, class, is_lasting};
use super::compare::{Compare, Move};
use super::key::{File, Key, key};
use super::mapped::Mapped;
use super::message;
use super::offset::{moves_place, place_written};
use super::table::{FileId, Table};
use crate::wire::{Blob, Call, Signal};
use lanes::Lane;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// How far ahead of the last call that agreed a call is looked for, in calls that count.
const AHEAD: usize = 1024;
/// The same in all calls. A thread may yield very often while it waits for others.
const FARTHEST: usize = 1 << 18;
/// Before bytes of a call that was made already are given once more, so many calls ahead must not have them.
const NEAR: usize = 64;
/// A question that was asked before, and again so much later, is another one.
const FAR: usize = 24;
/// Bytes that have been read are kept up to so many, for who reads them again.
const KEPT: usize = 64 << 20;

/// A recorded call with what is known of it.
#[derive(Debug)]
pub struct Slot {
    /// The call.
    pub call: Call,
    /// Its class.
    pub class: Class,
    /// What it is about.
    pub key: Key,
    /// The open files that it made.
    pub made: Vec<FileId>,
    /// The descriptors that a new process gets.
    pub table: Option<Table>,
    /// Calls that are made now are compared with it.
    pub counts: bool,
    /// How many calls its thread made before.
    nth: usize,
    /// How many of them count, without those that ask for the time.
    rank: usize,
    /// How many calls that count lie before it, of all threads.
    counted: usize,
    used: bool,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// This call.
    Slot(usize),
    /// None that is left, but one that was asked before gave this answer.
    Again(usize),
    /// More of the recording must be loaded.
    More,
    /// None.
    Nothing,
}

/// What a read finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// Bytes, and the calls that read them. The first call counts as the one that agrees.
    Are(Vec<u8>, Vec<usize>),
    /// The end, or an error: what this call returned.
    Returned(usize),
    /// More of the recording must be loaded.
    More,
    /// The recording has none.
    Nothing,
}

#[derive(Debug, Default)]
struct Stream {
    pos: u64,
    /// Where bytes are, and the call that read them.
    chunks: Vec<(u64, usize)>,
    /// All before are used.
    first: usize,
}

/// Numbers open files, in all processes.
#[derive(Debug)]
pub struct Files {
    next: FileId,
    /// Those whose calls the kernel does: libraries, and memory without a name.
    pub own: HashSet<FileId>,
    /// Files, and folders, that are read as they are here.
    pub here: Vec<PathBuf>,
    /// The working directory.
    pub folder: PathBuf,
}

impl Default for Files {
    fn default() -> Self {
        Files {
            next: 3,
            own: HashSet::new(),
            here: Vec::new(),
            folder: PathBuf::new(),
        }
    }
}

impl Files {
    /// Whether what lies at a path is asked of this machine.
    pub fn is_here(&self, path: &[u8]) -> bool {
        if self.here.is_empty() {
            return false;
        }
        let path = self.folder.join(OsStr::from_bytes(path));
        self.here.iter().any(|h| path.starts_with(h))
    }

    /// A new number.
    pub fn fresh(&mut self) -> FileId {
        self.next += 1;
        self.next - 1
    }
}

/// The calls of a recorded process, in the order in which its threads made them. Each thread has a lane. It is that of the
/// recorded thread which the thread stands for.
#[derive(Debug, Default)]
pub struct Script {
    slots: Vec<Slot>,
    waiting: HashMap<Key, VecDeque<usize>>,
    answered: HashMap<Key, usize>,
    streams: HashMap<Input, Stream>,
    table: Table,
    lanes: HashMap<u32, Lane>,
    /// Behind the last call that agreed.
    reached: usize,
    /// How many calls that count lie before that, and how many are loaded.
    counted: (usize, usize),
    /// All calls are loaded.
    ended: bool,
    late: Vec<(u32, Signal)>,
    /// The last call that counts.
    newest: Option<usize>,
    kept: usize,
    dropped: usize,
    /// Where the calls of the present program begin.
    begun: usize,
    /// What mapped files held.
    pub mapped: Mapped,
}

impl Script {
    /// Of a process that begins with these descriptors.
    pub fn new(table: Table) -> Script {
        Script {
            table,
            ..Script::default()
        }
    }

    /// Adds the next calls. No calls are the end. Returns signals that came behind calls that have been made now, with the
    /// lanes of the threads that got them.
    pub fn load(
        &mut self,
        calls: Vec<Call>,
        files: &mut Files,
        outputs: &mut Compare,
    ) -> Vec<(u32, Signal)> {
        self.ended = calls.is_empty();
        calls.into_iter().for_each(|c| self.add(c, files, outputs));
        std::mem::take(&mut self.late)
    }

    /// Signals that came in or behind a call that is not looked for. They come behind the one before, since that is when
    /// they can be sent. A signal that is blocked then waits until it is not.
    fn pass_back(&mut self, call: &mut Call) {
        if call.signals.is_empty() {
            return;
        }
        let signals = call
            .signals
            .drain(..)
            .map(|s| Signal { during: false, ..s });
        let newest = self.lanes.get(&call.lane).and_then(|l| l.newest);
        match newest.map(|n| &mut self.slots[n]) {
            Some(s) if !s.used => s.call.signals.extend(signals),
            _ => self.late.extend(signals.map(|s| (call.lane, s))),
        }
    }

    /// The program of the process was replaced, and more calls will come.
    pub fn next_program(&mut self) {
        self.table.exec();
        self.begun = self.slots.len();
        self.mapped.next_program();
        self.ended = false;
    }

    /// How many calls are loaded.
    pub fn loaded(&self) -> usize {
        self.slots.len()
    }

    /// Whether all calls are loaded.
    pub fn is_loaded(&self) -> bool {
        self.ended
    }

    fn add(&mut self, mut call: Call, files: &mut Files, outputs: &mut Compare) {
        let class = class(call.number, &call.args);
        let table = &self.table;
        let find = |fd: i32| table.find(fd).map_or(File::Closed, File::Is);
        let key = key(call.number, &call.args, &call.texts, &find)
            .by(call.lane)
            .sending(message::sent(&call).map(find).collect());
        let is_own = |f: File| matches!(f, File::Is(id) if files.own.contains(&id));
        let is_here = is_asked_by_path(class)
            && (call.texts.iter().flatten()).any(|t| !t.is_empty() && files.is_here(t));
        let mut counts = class.is_matched() && !is_own(key.file()) && !is_here;
        let pair = pair(&call);
        let mut fresh = || files.fresh();
        let table = &mut self.table;
        let mut made = table.apply(call.number, &call.args, call.result, pair, &mut fresh);
        let came = message::received(&call).into_iter().map(|(_, fd)| fd);
        made.extend(table.receive(came, message::closes_on_exec(&call.args), &mut fresh));
        if call.library || is_here || call.number as i64 == libc::SYS_memfd_create {
            files.own.extend(&made);
        }
        self.mapped.follow(&call, key.file(), &made);
        let index = self.slots.len();
        match (class, key.file()) {
            // Calls that do not return are no reads.
            _ if !counts => {}
            (Class::Read, _) if call.result.is_none() => counts = false,
            (Class::Read, file) => match Input::of(&call, file) {
                Some(input) => self.reads(input, &call, index),
                None => counts = false,
            },
            (Class::Write, File::Is(file)) => {
                if let Some(at) = place_written(call.number, &call.args) {
                    outputs.recorded_goes(file, Move::Once(at));
                }
                let believed = self.mapped.fill(&mut call);
                outputs.recorded(file, &call.sent, &call.unsure, &believed);
            }
            _ => {
                if let (File::Is(file), Some(to)) = (key.file(), seeks(&call)) {
                    outputs.recorded_goes(file, Move::To(to));
                }
                self.moves(&call, key.file());
            }
        }
        if !counts {
            self.pass_back(&mut call);
        }
        if !counts || class != Class::Read {
            // Nobody gets them.
            call.received = Blob::default();
        }
        // They have been compared, or are waited for there.
        (call.sent, call.unsure) = Default::default();
        let forks = class == Class::Fork;
        let lane = self.lanes.entry(call.lane).or_default();
        let (nth, rank) = (lane.calls.len(), lane.ranks);
        lane.calls.push(index);
        lane.latest = Some(index);
        lane.ranks += usize::from(counts && class != Class::Time);
        if counts {
            (self.newest, lane.newest) = (Some(index), Some(index));
            self.waiting
                .entry(key.clone())
                .or_default()
                .push_back(index);
        }
        let slot = Slot {
            table: forks.then(|| self.table.clone()),
            call,
            class,
            key,
            made,
            counts,
            nth,
            rank,
            counted: self.counted.1,
            used: false,
        };
        self.slots.push(slot);
        self.counted.1 += usize::from(counts);
    }

    /// The recorded calls that changed files and were not made.
    pub fn unmade(&self) -> impl Iterator<Item = &Call> {
        let calls = self.left_out(usize::MAX).map(|i| &self.slots[i].call);
        calls.filter(|c| is_lasting(c.number, &c.args) && c.result.is_some_and(|r| r as i64 >= 0))
    }

    /// The recorded processes that were not made, with the descriptors that they began with.
    pub fn not_made(&self) -> impl Iterator<Item = (i32, &Table)> {
        self.left_out(usize::MAX).filter_map(|i| {
            let s = &self.slots[i];
            Some((s.call.result? as i32, s.table.as_ref()?))
        })
    }

    /// Whether it is known which signals came behind a call. A thread may make no call for long while others make many, so
    /// of several threads any later call will do.
    pub fn is_settled(&self, index: usize) -> bool {
        let lane = self.lane(self.slots[index].call.lane);
        let later = match self.lanes.len() {
            0 | 1 => lane.and_then(|l| l.newest),
            _ => lane.and_then(|l| l.latest),
        };
        self.ended || later > Some(index)
    }

    fn lane(&self, lane: u32) -> Option<&Lane> {
        self.lanes.get(&lane)
    }

    /// Behind the last call of a thread that agreed.
    fn reached_by(&self, lane: u32) -> usize {
        self.lane(lane).map_or(0, |l| l.reached)
    }

    /// Whether no call follows.
    pub fn is_last(&self, index: usize) -> bool {
        self.ended && self.newest <= Some(index)
    }

    /// A call.
    pub fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// How many calls lie before the one behind the last that agreed.
    pub fn reached(&self) -> usize {
        self.reached
    }

    /// The last call of a thread that agreed.
    pub fn last(&self, lane: u32) -> Option<usize> {
        self.lane(lane)?.last
    }

    /// Looks for a call.
    pub fn find(&self, key: &Key, class: Class) -> Found {
        let waiting = self.waiting.get(key).and_then(|w| w.front().copied());
        let before = self.answered.get(key).copied();
        match (waiting, before) {
            (Some(i), Some(before)) if class == Class::Query && self.is_far(i) => {
                Found::Again(before)
            }
            (Some(i), _) => Found::Slot(i),
            (None, _) if self.wants_more() => Found::More,
            (None, Some(before)) if class == Class::Query => Found::Again(before),
            (None, _) => Found::Nothing,
        }
    }

    /// The next call of a thread that is left, and that is like this.
    pub fn like(&self, lane: u32, is: &dyn Fn(&Call) -> bool) -> Option<usize> {
        let left = |i: &usize| self.slots[*i].call.lane == lane && self.is_left_out(*i);
        let near = (self.reached_by(lane)..self.slots.len()).filter(left);
        near.take(NEAR).find(|i| is(&self.slots[*i].call))
    }

    /// The next call that is left, if it may be one with this key, because its path is not known.
    pub fn vague(&self, lane: u32, key: &Key) -> Option<usize> {
        let slot = |i: &usize| &self.slots[*i];
        let next = self.expected(lane).filter(|i| slot(i).key.is_like(key));
        next.filter(|i| slot(i).call.texts.iter().any(Option::is_none))
    }

    /// Whether calls that are not loaded may be the one that is looked for.
    pub fn wants_more(&self) -> bool {
        let (before, loaded) = self.counted;
        !self.ended && loaded < before + AHEAD && self.slots.len() < self.reached + FARTHEST
    }

    /// Takes a call: it is the one that is made now. Returns the first recorded one that was left out right before it.
    pub fn take(&mut self, index: usize) -> Option<usize> {
        let slot = &mut self.slots[index];
        if std::mem::replace(&mut slot.used, true) {
            return None;
        }
        if let Some(w) = self.waiting.get_mut(&slot.key) {
            // It is nearly always the first.
            if let Some(n) = w.iter().position(|i| *i == index) {
                w.remove(n);
            }
        }
        self.counted.0 = self.counted.0.max(slot.counted + 1);
        self.answered.insert(slot.key.clone(), index);
        let (number, nth, rank) = (slot.call.lane, slot.nth, slot.rank);
        let lane = self.lanes.entry(number).or_default();
        let from = lane.reached;
        lane.agrees(index, nth, rank);
        self.reached = self.reached.max(index + 1);
        (from..index).find(|i| self.slots[*i].call.lane == number && self.is_left_out(*i))
    }

    fn is_left_out(&self, index: usize) -> bool {
        let s = &self.slots[index];
        s.counts && !s.used && !s.is_free()
    }

    /// The recorded calls that were not made, of those that are loaded and lie before this one.
    pub fn left_out(&self, before: usize) -> impl Iterator<Item = usize> + '_ {
        (0..before.min(self.slots.len())).filter(|i| self.is_left_out(*i))
    }

    /// The first call from here on that a thread is expected to make.
    pub fn expected(&self, lane: u32) -> Option<usize> {
        let own = |i: &usize| self.slots[*i].call.lane == lane && self.is_left_out(*i);
        (self.reached_by(lane)..self.slots.len()).find(own)
    }

    /// Whether every thread has made all calls that were expected of it, as far as they are loaded.
    pub fn is_done(&self) -> bool {
        self.lanes.keys().all(|l| self.expected(*l).is_none())
    }

    /// What `want` bytes are at a place.
    pub fn read(&self, input: Input, at: u64, want: usize) -> Bytes {
        let none = match self.wants_more() {
            true => Bytes::More,
            false => Bytes::Nothing,
        };
        let Some(stream) = self.streams.get(&input) else {
            return none;
        };
        let found = |n: usize| self.bytes(stream, n, at, want);
        let unused = |n: &usize| !self.slots[stream.chunks[*n].1].used;
        let begins = |n: &usize| stream.chunks[*n].0 == at;
        let all = stream.first..stream.chunks.len();
        if let Some(n) = all.clone().find(|n| unused(n) && begins(n)) {
            return found(n);
        }
        if !self.ended && self.slots.len() < self.reached + NEAR {
            return Bytes::More;
        }
        let holds = |n: &usize| {
            let (from, slot) = stream.chunks[*n];
            at.wrapping_sub(from) < self.slots[slot].call.received.len() as u64
        };
        match all.chain(0..stream.first).find(holds) {
            Some(n) => found(n),
            None => none,
        }
    }

    /// Bytes from one call on. Where that one got all that it asked for, the next one's follow.
    fn bytes(&self, stream: &Stream, first: usize, at: u64, want: usize) -> Bytes {
        let (mut out, mut used) = (Vec::new(), Vec::new());
        for n in first..stream.chunks.len() {
            let (from, index) = stream.chunks[n];
            let call = &self.slots[index].call;
            let here = at.saturating_add(out.len() as u64);
            if n != first && from != here {
                break;
            }
            let skip = here.wrapping_sub(from) as usize;
            if call.received.is_empty() {
                return match n == first {
                    true => Bytes::Returned(index),
                    false => Bytes::Are(out, used),
                };
            }
            let rest = &call.received[skip.min(call.received.len())..];
            let take = rest.len().min(want - out.len());
            out.extend_from_slice(&rest[..take]);
            // It is used up when its last byte is.
            if take == rest.len() {
                used.push(index);
            }
            let filled = call.result.is_some_and(|r| r >= asked(call));
            if out.len() >= want || !filled {
                break;
            }
            if n + 1 == stream.chunks.len() && self.wants_more() {
                return Bytes::More;
            }
        }
        Bytes::Are(out, used)
    }

    /// How many bytes that were read, or are to be read, are kept.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Forgets bytes that have been read where too many are kept.
    pub fn forget(&mut self) {
        self.forget_until(KEPT);
    }

    /// Forgets bytes that have been read until no more than these are kept, if so many have been read.
    pub fn forget_until(&mut self, most: usize) {
        for stream in self.streams.values_mut() {
            let used = |i: &(u64, usize)| self.slots[i.1].used;
            while stream.chunks.get(stream.first).is_some_and(used) {
                stream.first += 1;
            }
        }
        while self.kept > most && self.dropped < self.reached {
            let slot = &mut self.slots[self.dropped];
            self.dropped += 1;
            if slot.used {
                self.kept -= slot.call.received.len();
                slot.call.received = Blob::default();
            }
        }
    }
}

/// Whether calls of this class may be about a path of which this machine is asked.
pub fn is_asked_by_path(class: Class) -> bool {
    matches!(class, Class::Open | Class::Query | Class::Effect)
}

/// How many bytes a read asked for.
fn asked(call: &Call) -> u64 {
    match call.number as i64 {
        libc::SYS_read | libc::SYS_pread64 => call.args[2],
        libc::SYS_getrandom => call.args[1],
        // Of lists it is not known, so nothing is joined.
        _ => u64::MAX,
    }
}

/// Where a file is written next behind this call, if it says that.
fn seeks(call: &Call) -> Option<u64> {
    let result = call.result.filter(|r| *r as i64 >= 0)?;
    Some(result).filter(|_| moves_place(call.number, &call.args))
}

/// Two descriptors that a call told.
fn pair(call: &Call) -> Option<[i32; 2]> {
    let bytes: Vec<u8> = call
        .written
        .first()?
        .bytes
        .iter()
        .map_while(|b| *b)
        .collect();
    let (a, b) = bytes.split_first_chunk()?;
    let b = b.first_chunk()?;
    Some([i32::from_le_bytes(*a), i32::from_le_bytes(*b)])
}

#[cfg(test)]
mod tests;
