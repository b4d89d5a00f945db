//! Makes the chunks of a trace from what a ring carries.

use super::{Collector, members};
use crate::collected::{MappedFile, Refusal};
use crate::images::Carrier;
use crate::lane::{self, Lane, Open};
use crate::locks::Locks;
use crate::output;
use hindsight_events::ring::state;
use hindsight_events::{EndKind, Event};
use hindsight_trace::{ChunkBuilder, Pushed, StreamInfo, StreamKind, Told};
use std::io::{self, Write};
use std::sync::atomic::Ordering::*;
use std::time::Instant;

/// Bit of `prot` in [`Event::Map`].
const PROT_EXEC: u32 = 4;

impl<W: Write> Collector<'_, W> {
    /// Empties ring `i`; the number of bytes.
    pub(super) fn drain(&mut self, i: usize) -> usize {
        self.meet(i);
        let life = self.lanes[i].ctl().state.load(Acquire);
        if matches!(life, state::FREE | state::CLAIMED) {
            return 0;
        }
        if self.lanes[i].open.is_none() {
            self.begin(i);
        }
        let before = Instant::now();
        let n = self.lanes[i].pull_all(self.thrifty);
        match n {
            None => self.damaged(i),
            Some(0) => {
                if let Some(open) = &mut self.lanes[i].open {
                    open.silent(before);
                }
            }
            Some(_) => {
                let now = Instant::now();
                self.cut(i);
                if let Some(open) = &mut self.lanes[i].open {
                    open.time(self.origin, before, now, false);
                }
                let ctl = self.lanes[i].ctl();
                ctl.taken.store(ctl.tail.load(Relaxed), Release);
            }
        }
        if life == state::ENDED {
            self.close(i, false);
        }
        n.unwrap_or(0)
    }

    /// Sees to it that there is a lane for ring `i`.
    fn meet(&mut self, i: usize) {
        while self.lanes.len() <= i {
            let consumer = self.control.consumer(self.lanes.len());
            self.lanes.push(Lane::new(consumer));
        }
    }

    /// Begins the stream of ring `i`.
    fn begin(&mut self, i: usize) {
        let lane = &mut self.lanes[i];
        let open = Open::new(lane.consumer.ctl(), self.next_stream, self.vacant);
        lane.active = Instant::now();
        self.next_stream += 1;
        let StreamInfo {
            image,
            parent,
            pid,
            kind,
            ..
        } = open.info;
        self.expected.remove(&pid);
        self.images.begin(&open.info, i);
        if kind == StreamKind::Image && parent < image {
            // A trace that is cut behind this then holds the code that a forked process inherits.
            self.settle(parent);
        }
        if kind == StreamKind::Image && image != parent {
            self.begun.insert((parent, pid));
            self.replaced.push((parent, pid));
        }
        if let Some(out) = &mut self.out.output
            && let Err(e) = out.begin(&open.info)
        {
            self.fail(e);
        }
        self.lanes[i].open = Some(open);
    }

    /// Makes chunks of whole events.
    fn cut(&mut self, i: usize) {
        let mut at = 0;
        loop {
            let lane = &mut self.lanes[i];
            let Some(open) = &mut lane.open else { return };
            let mut builder = std::mem::take(&mut open.builder);
            if builder.events() == 0 {
                open.oldest = Instant::now();
            }
            let (modules, out) = (&mut self.modules, &mut self.out);
            let images = &mut self.images;
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
                    return modules.file(w, e).unwrap_or_else(|e| {
                        failure = Some(e);
                        None
                    });
                }
                modules.stand_in(e)
            });
            open.builder = builder;
            at += n;
            if let Some(e) = failure {
                self.fail(e);
            }
            match pushed {
                Pushed::More => break,
                Pushed::Full => self.write(i),
                Pushed::Bad => {
                    self.damaged(i);
                    break;
                }
            }
        }
        self.lanes[i].done(at);
    }

    fn damaged(&mut self, i: usize) {
        let lane = &mut self.lanes[i];
        if !lane.broken {
            lane.broken = true;
            (self.tell)(
                "the program overwrote the recorder's memory; the recording of this thread ends here",
            );
        }
        // Indices that make no sense: let the producer believe that all is read.
        let ctl = lane.ctl();
        ctl.tail.store(ctl.head.load(Acquire), Release);
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

    /// Hands a chunk over; `told`: what is known of it.
    fn put(&mut self, info: &StreamInfo, builder: &mut ChunkBuilder, told: &Told) {
        if info.kind == StreamKind::Thread && builder.events() > 0 {
            // A trace that is cut behind this chunk then holds all code that the chunk runs.
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

    /// The ring that carries the mappings and code of `image`, unless that has ended.
    fn image_ring(&self, image: u32) -> Option<usize> {
        match self.images.carrier(image) {
            Carrier::Ring(i) => return Some(i),
            Carrier::Ended => return None,
            Carrier::Unknown => {}
        }
        let header = self.control.header();
        let words: Vec<u64> = header.live.iter().map(|w| w.load(Acquire)).collect();
        members(&words)
            .take_while(|i| *i < self.control.rings())
            .find(|i| lane::is_image(self.control.ctl(*i), image))
    }

    /// Writes what is there of the mappings and code of `image`.
    fn settle(&mut self, image: u32) {
        if let Some(j) = self.image_ring(image) {
            self.drain(j);
            self.write(j);
        }
    }

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

    /// If ring `i` carries an image's mappings and code, begins the streams of the image's threads that
    /// have not been seen: what is known of the image is forgotten when no stream of it is open.
    fn gather(&mut self, i: usize) {
        let of = |lane: &Lane| Some(lane.open.as_ref()?.info.clone());
        let Some(info) = of(&self.lanes[i]).filter(|info| info.kind == StreamKind::Image) else {
            return;
        };
        let header = self.control.header();
        let words: Vec<u64> = header.live.iter().map(|w| w.load(Acquire)).collect();
        for k in members(&words).take_while(|k| *k < self.control.rings()) {
            self.meet(k);
            let (ctl, new) = (self.control.ctl(k), self.lanes[k].open.is_none());
            let begun = matches!(ctl.state.load(Acquire), state::LIVE | state::ENDED);
            if new && begun && ctl.image.load(Relaxed) == info.image {
                self.begin(k);
            }
        }
    }

    /// Ends the stream of ring `i`. `lost`: the producer did not say so.
    pub(super) fn close(&mut self, i: usize, lost: bool) {
        self.gather(i);
        let lane = &mut self.lanes[i];
        let Some(mut open) = lane.open.take() else {
            return;
        };
        let summary = open.summary(lane.ctl(), lost);
        if lost {
            Locks::release(self.control, i);
        }
        // Before the trace is written: threads that come and go quickly wait for rings.
        lane.free(i, self.control.header(), self.thrifty);
        let StreamInfo {
            image, pid, tid, ..
        } = open.info;
        match open.end.take() {
            Some((EndKind::Unsupported, _, message)) => {
                self.settle(image);
                self.out.refusals.push(Refusal {
                    image,
                    pid,
                    tid,
                    message,
                    maps: self.images.maps(image).to_vec(),
                });
            }
            Some((EndKind::Exec, _, message)) if !message.is_empty() => {
                // A child that ran in the image's memory leaves only for itself.
                let of = |i| self.control.ctl(i).pid.load(Relaxed);
                if self.image_ring(image).is_some_and(|i| of(i) == pid) {
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
        let own = pid == self.control.header().guest_pid.load(Relaxed);
        self.out.see(&summary, own);
        self.images.end(&open.info);
        if let Some(out) = &mut self.out.output
            && let Err(e) = out.end(summary)
        {
            self.fail(e);
        }
    }
}
