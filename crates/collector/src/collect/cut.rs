//! Cuts what a ring carries into the chunks of a trace.

use super::{Collector, MOST_TOLD, members};
use crate::collected::{MappedFile, Refusal};
use crate::images::Carrier;
use crate::lane::{Lane, Open};
use crate::locks::Locks;
use crate::output;
use hindsight_events::consumer::{Counts, Life, Nonsense, Who};
use hindsight_events::{EndKind, Event};
use hindsight_trace::{ChunkBuilder, Pushed, StreamInfo, StreamKind, Told};
use std::io::{self, Write};
use std::sync::atomic::Ordering::*;
use std::time::Instant;

/// The most files of which the user is told that they could not be read.
const MOST_MISSED: usize = 4;

/// Bit of `prot` in [`Event::Map`].
const PROT_EXEC: u32 = 4;

impl<W: Write> Collector<'_, W> {
    /// Empties ring `i`. Returns the number of bytes.
    pub(super) fn drain(&mut self, i: usize) -> usize {
        self.meet(i);
        let lane = &mut self.lanes[i];
        let life = lane.consumer.life();
        match (lane.open.is_some(), life.has_begun()) {
            (true, true) => {}
            (false, true) => self.begin(i),
            // Only the collector makes a ring free again.
            (true, false) => self.damaged(i),
            (false, false) => {
                // A thread that writes there all the same must not wait for ever.
                if lane.discard() {
                    self.control.note_damage();
                }
                return 0;
            }
        }
        let before = Instant::now();
        let n = self.lanes[i].pull_all(self.thrifty);
        match n {
            Err(Nonsense) => self.damaged(i),
            // When it came is said when it is in the stream.
            Ok(_) if self.lanes[i].held.is_some() => self.cut(i),
            Ok(0) => {
                if let Some(open) = &mut self.lanes[i].open {
                    open.silent(before);
                }
            }
            Ok(_) => {
                let now = Instant::now();
                self.cut(i);
                if let Some(open) = &mut self.lanes[i].open {
                    open.time(self.origin, before, now, false);
                }
                self.lanes[i].consumer.settle();
            }
        }
        let placed = self.place(i, false);
        if life == Life::Ended && self.lanes[i].held.is_none() {
            self.close(i, false);
        }
        n.unwrap_or(0).max(placed)
    }

    /// Makes sure that there is a lane for ring `i`.
    pub(super) fn meet(&mut self, i: usize) {
        while self.lanes.len() <= i {
            let consumer = self.control.consumer(self.lanes.len());
            self.lanes.push(Lane::new(consumer));
        }
    }

    /// Begins the stream of ring `i`. If it is an image's, first begins the stream of that image's
    /// parent if nobody has seen it yet, and so on.
    fn begin(&mut self, i: usize) {
        let mut chain = vec![(i, self.lanes[i].consumer.who())];
        while let Some((_, who)) = chain.last()
            && who.is_image
            && who.parent != 0
            && self.images.carrier(who.parent) == Carrier::Unknown
            && let Some(j) = self.search_image(who.parent)
            && chain.iter().all(|(k, _)| *k != j)
        {
            chain.push((j, self.lanes[j].consumer.who()));
        }
        for (i, who) in chain.into_iter().rev() {
            self.begin_one(i, who);
        }
    }

    fn begin_one(&mut self, i: usize, who: Who) {
        if self.program == 0 {
            self.program = self.control.header().guest_pid.load(Relaxed);
        }
        let open = Open::new(who, self.next_stream, self.vacant);
        match self.next_stream.checked_add(1) {
            Some(next) => self.next_stream = next,
            None => self.fail(io::Error::other("there are too many streams")),
        }
        let info = open.info.clone();
        let lane = &mut self.lanes[i];
        lane.active = Instant::now();
        lane.open = Some(open);
        self.expected.remove(&info.pid);
        self.images.begin(&info, i);
        if info.kind == StreamKind::Image {
            // If the trace is cut behind this, it holds the code that a forked process inherits.
            if let Carrier::Ring(j) = self.images.carrier(info.parent) {
                self.flush_image(j);
            }
        }
        // After `fork` the original stays. In another namespace it may have the same id.
        if info.kind == StreamKind::Image && info.executed {
            self.begun.insert((info.parent, info.pid));
            self.replaced.push((info.parent, info.pid));
        }
        if let Some(out) = &mut self.out.output
            && let Err(e) = out.begin(&info)
        {
            self.fail(e);
        }
    }

    /// Cuts pending bytes into chunks of whole events.
    pub(super) fn cut(&mut self, i: usize) {
        let mut at = 0;
        loop {
            let lane = &mut self.lanes[i];
            let Some(open) = &mut lane.open else { return };
            let mut builder = std::mem::take(&mut open.builder);
            let (before, framed) = (builder.events(), builder.framed());
            if before == 0 {
                open.oldest = Instant::now();
            }
            let (modules, out) = (&mut self.modules, &mut self.out);
            let images = &mut self.images;
            let inbox = self.control.files();
            let mut lost = Vec::new();
            let mut failure = None;
            let image = open.info.image;
            let (n, pushed) = builder.push(&lane.pending[at..], |pos, e| {
                open.see(pos, e);
                match *e {
                    Event::Map {
                        addr,
                        len,
                        prot,
                        offset,
                        path,
                        ..
                    } if prot & PROT_EXEC != 0 && path.starts_with(b"/") => {
                        if let Some(w) = &mut out.output {
                            failure = modules.add(w, path).err().or(failure.take());
                        }
                        let file = MappedFile {
                            addr,
                            len,
                            offset,
                            path: path.to_vec(),
                        };
                        images.map(image, addr, len, Some(file));
                    }
                    Event::Map { addr, len, .. } | Event::Unmap { addr, len } => {
                        images.map(image, addr, len, None);
                    }
                    _ => {}
                }
                if let (Event::File { .. }, Some(w)) = (e, &mut out.output) {
                    let found = modules.file(w, inbox, e);
                    if let (Ok(None), Event::File { path, .. }) = (&found, e) {
                        lost.push(path.to_vec());
                    }
                    return found.unwrap_or_else(|e| {
                        failure = Some(e);
                        None
                    });
                }
                modules.stand_in(e)
            });
            let came = u64::from(builder.events() - before);
            // Otherwise key frames would ask for further ones.
            open.events += came.saturating_sub(builder.framed() - framed);
            open.builder = builder;
            open.lost_files += lost.len() as u64;
            at += n;
            self.lose(i, lost);
            if let Some(e) = failure {
                self.fail(e);
            }
            let pushed = match pushed {
                Pushed::Common => self.expand(i, &mut at),
                _ => pushed,
            };
            match pushed {
                Pushed::More => break,
                Pushed::Common => {}
                Pushed::Full => {
                    if let Some(open) = &mut self.lanes[i].open {
                        open.full(self.origin);
                    }
                    self.write(i);
                }
                Pushed::Bad => {
                    self.damaged(i);
                    break;
                }
            }
        }
        self.lanes[i].done(at, self.thrifty);
    }

    /// Takes an event that refers to common cells, at `at` of what is pending. Returns [`Pushed::Common`] if it has done so.
    fn expand(&mut self, i: usize, at: &mut usize) -> Pushed {
        let Lane { pending, open, .. } = &mut self.lanes[i];
        let Some(open) = open else {
            return Pushed::Bad;
        };
        let (image, commons, control) = (open.info.image, &mut self.commons, self.control);
        let taken =
            (open.builder).push_common(&pending[*at..], |page| commons.page(control, image, page));
        match taken {
            Ok(n) => {
                *at += n;
                open.events += 1;
                Pushed::Common
            }
            Err(why) => why,
        }
    }

    /// The thread of ring `i` has files in its memory whose content cannot be read. Tells the
    /// thread, which must not rely on that content, and the user.
    fn lose(&mut self, i: usize, files: Vec<Vec<u8>>) {
        for path in files {
            self.lanes[i].consumer.lose_file();
            if self.missed.len() < MOST_MISSED && self.missed.insert(path.clone()) {
                let path = String::from_utf8_lossy(&path);
                (self.tell)(&format!(
                    "cannot read {path}: it changed or was replaced while the program mapped it. A replay may have to stop \
                     where the program reads it"
                ));
            }
        }
    }

    /// The program has overwritten what belongs to the stream of ring `i`.
    pub(super) fn damaged(&mut self, i: usize) {
        self.control.note_damage();
        let lane = &mut self.lanes[i];
        if !lane.broken {
            (lane.broken, lane.pending) = (true, Vec::new());
            if lane.held.take().is_some() {
                lane.consumer.answer_copy(false);
            }
            self.told += 1;
            if self.told <= MOST_TOLD {
                (self.tell)(
                    "the program overwrote the recorder's memory; the recording of this thread ends here",
                );
            }
        }
        lane.consumer.skip();
    }

    /// Writes what ring `i` has gathered.
    pub(super) fn write(&mut self, i: usize) {
        let Some(open) = &mut self.lanes[i].open else {
            return;
        };
        let info = open.info.clone();
        let mut builder = std::mem::take(&mut open.builder);
        if builder.events() > 0 {
            let told = open.tell();
            self.put(&info, &mut builder, &told);
        }
        if let Some(open) = &mut self.lanes[i].open {
            open.builder = builder;
        }
    }

    /// Hands a chunk over. `told` is what is known of it.
    fn put(&mut self, info: &StreamInfo, builder: &mut ChunkBuilder, told: &Told) {
        if info.kind == StreamKind::Thread && builder.events() > 0 {
            // If the trace is cut behind this chunk, it holds all code that the chunk runs.
            self.settle(info.image);
        }
        match &mut self.out.output {
            Some(out) => {
                if let Err(e) = out.stream(info.stream, builder, told) {
                    self.fail(e);
                }
            }
            None => output::discard(builder),
        }
    }

    /// The ring with the mappings and code of `image`. Its stream has begun after this. `None` if
    /// it has ended.
    fn image_ring(&mut self, image: u32) -> Option<usize> {
        if self.images.carrier(image) == Carrier::Unknown {
            let i = self.search_image(image)?;
            self.begin(i);
        }
        match self.images.carrier(image) {
            Carrier::Ring(i) => Some(i),
            _ => None,
        }
    }

    /// A ring that carries the mappings and code of `image`, and that nobody has seen yet.
    fn search_image(&mut self, image: u32) -> Option<usize> {
        self.live().into_iter().find(|i| {
            self.meet(*i);
            let lane = &self.lanes[*i];
            lane.open.is_none() && lane.consumer.is_image(image)
        })
    }

    /// The rings that are taken, as the header says.
    pub(super) fn live(&self) -> Vec<usize> {
        let header = self.control.header();
        let words: Vec<u64> = header.live.iter().map(|w| w.load(Acquire)).collect();
        members(&words)
            .take_while(|i| *i < self.control.rings())
            .collect()
    }

    /// Writes what is there of the mappings and code of `image`.
    fn settle(&mut self, image: u32) {
        if let Some(j) = self.image_ring(image) {
            self.flush_image(j);
        }
    }

    /// Writes what is there in ring `j`, which carries an image.
    fn flush_image(&mut self, j: usize) {
        self.drain(j);
        self.write(j);
    }

    /// The trace cannot be written any more. Says so to the program's recorder and to the user.
    pub(super) fn fail(&mut self, e: io::Error) {
        self.control
            .header()
            .failed
            .store(e.raw_os_error().unwrap_or(libc::EIO) as u32, Release);
        (self.tell)(&format!(
            "the trace cannot be written any more: {e}. The program goes on, unrecorded; \
             what was written stays readable"
        ));
        self.out.output = None;
        self.out.error = Some(e);
    }

    /// If ring `i` carries an image's mappings and code, begins the streams of that image's threads
    /// that nobody has seen yet. What is known of an image is forgotten when none of its streams is
    /// open.
    fn gather(&mut self, i: usize) {
        let of = |lane: &Lane| Some(lane.open.as_ref()?.info.clone());
        let Some(info) = of(&self.lanes[i]).filter(|info| info.kind == StreamKind::Image) else {
            return;
        };
        for k in self.live() {
            self.meet(k);
            let lane = &self.lanes[k];
            if lane.open.is_none() && lane.consumer.is_thread(info.image) {
                let who = lane.consumer.who();
                if !who.is_image {
                    self.begin_one(k, who);
                }
            }
        }
    }

    /// Ends the stream of ring `i`. `lost`: the producer did not say that it ended.
    pub(super) fn close(&mut self, i: usize, lost: bool) {
        self.gather(i);
        while self.lanes[i].held.is_some() {
            self.place(i, true);
        }
        let lane = &mut self.lanes[i];
        let Some(mut open) = lane.open.take() else {
            return;
        };
        // Whoever overwrites a ring has overwritten the counts beside it, too.
        let counts = match lane.broken {
            true => Counts::default(),
            false => lane.consumer.counts(),
        };
        let summary = open.summary(&counts, lost);
        if lost {
            Locks::release(self.control, i);
        }
        // Before the trace is written, since threads that come and go quickly wait for rings.
        lane.free(i, self.control.header(), self.thrifty);
        let StreamInfo {
            image, pid, tid, ..
        } = open.info;
        match open.end.take() {
            Some((EndKind::Unsupported, _, message)) => {
                self.settle(image);
                let maps = self.images.maps(image);
                self.out.refuse(Refusal {
                    image,
                    pid,
                    tid,
                    message,
                    maps,
                });
            }
            Some((EndKind::Exec, _, message)) if !message.is_empty() => {
                // If a child that ran in the image's memory leaves, only that child has left.
                let of = |l: &Lane| l.open.as_ref().map(|o| o.info.pid);
                if let Carrier::Ring(i) = self.images.carrier(image)
                    && of(&self.lanes[i]) == Some(pid)
                {
                    self.images.leave(image);
                }
            }
            Some((EndKind::Exec, ..)) if !self.begun.contains(&(image, pid)) => {
                self.expected.insert(pid, Instant::now());
            }
            _ => {}
        }
        if open.end.is_none() {
            let now = Instant::now();
            open.time(self.origin, now, now, true);
        }
        let told = open.tell();
        self.put(&open.info, &mut open.builder, &told);
        let own = pid == self.program;
        self.out.see(&summary, own);
        if open.info.kind == StreamKind::Thread {
            // Threads that nobody has seen yet may refer to common cells. The image's ring leads to them, and may be unseen, too.
            self.image_ring(image);
        }
        self.images.end(&open.info);
        if self.images.open(image) == 0 {
            self.control.forget_commons(image);
            self.commons.forget(image);
        }
        if let Some(out) = &mut self.out.output
            && let Err(e) = out.end(summary)
        {
            self.fail(e);
        }
    }
}
