//! Sets marks that somebody outside asks for (see [`hindsight_events::asked`]).
//!
//! What stands in the box may be anything, since the program shares it. So only the name and the choice of a thread come from
//! there, and both are of no more use to the program than its own marks.

use super::Collector;
use hindsight_events::asked::{Asked, stage};
use hindsight_trace::{StreamId, StreamKind};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Between two programs of a process, and before its first event, it has no thread for a moment.
const WITHOUT_THREAD: Duration = Duration::from_secs(1);

/// Longest time that a thread is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most threads come to the recorder by themselves in this time.
const GRACE: Duration = Duration::from_millis(20);

/// Time between two signals to a thread.
const AGAIN: Duration = Duration::from_millis(100);

/// A mark that is asked for.
pub struct Asking {
    serial: u32,
    since: Instant,
    /// When the thread may be signalled.
    next: Instant,
    name: Vec<u8>,
    state: bool,
    /// The thread that was asked: its ring and its stream.
    chosen: Option<(usize, StreamId)>,
}

/// How it stands with a mark.
enum Stand {
    Open(Asking),
    /// It is in the recording, behind that many instructions of this thread.
    Done(u64, StreamId),
    Refused(String),
}

impl<W: Write> Collector<'_, W> {
    /// Does what can be done now for a mark that is asked for.
    pub(super) fn serve_mark(&mut self, now: Instant, stop: &AtomicBool) {
        let asked = &self.control.header().asked;
        match asked.stage() {
            stage::ASKED => {}
            _ => {
                if let Some(a) = self.asking.take() {
                    self.forget(&a);
                }
                return;
            }
        }
        // Whoever asked before may have been killed.
        let serial = asked.serial.load(Relaxed);
        let (same, former): (Option<_>, Option<_>) = match self.asking.take() {
            Some(a) if a.serial == serial => (Some(a), None),
            other => (None, other),
        };
        if let Some(a) = &former {
            self.forget(a);
        }
        let asking = same.unwrap_or_else(|| Asking {
            serial,
            since: now,
            next: now + GRACE,
            name: asked.name.read(),
            state: asked.state.load(Relaxed) != 0,
            chosen: None,
        });
        match self.further(asked, asking, now, stop) {
            Stand::Open(a) => self.asking = Some(a),
            Stand::Done(count, thread) => {
                // So that whoever asked finds it in the file.
                self.flush_all(true, now);
                let asked = &self.control.header().asked;
                // Otherwise somebody else asks by now.
                if asked.serial.load(Relaxed) == serial {
                    asked.thread.store(thread, Relaxed);
                    asked.set(count);
                    asked.turn(stage::DONE);
                }
            }
            Stand::Refused(why) => {
                asked.why.write(why.as_bytes());
                asked.turn(stage::REFUSED);
            }
        }
    }

    /// Nobody waits for the mark any more.
    fn forget(&self, a: &Asking) {
        if let Some((i, _)) = a.chosen {
            self.lanes[i].consumer.take_mark_back();
        }
    }

    fn further(&mut self, asked: &Asked, mut a: Asking, now: Instant, stop: &AtomicBool) -> Stand {
        let late = now - a.since;
        let Some((i, stream)) = a.chosen.or_else(|| self.choose(asked)) else {
            return match late > WITHOUT_THREAD {
                true => Stand::Refused("no thread of it is being recorded".into()),
                false => Stand::Open(a),
            };
        };
        let lane = &self.lanes[i];
        let its = lane.open.as_ref().filter(|o| o.info.stream == stream);
        let Some(open) = its.filter(|o| o.end.is_none()) else {
            return match asked.where_set() {
                Some(count) if !a.state => Stand::Done(count, stream),
                _ => Stand::Refused("its thread has ended meanwhile".into()),
            };
        };
        // A thread that has undertaken it has set the mark by now, or does so.
        let free = || a.chosen.is_none() || lane.consumer.take_mark_back();
        if let Some(why) = open.rules_states_out().filter(|_| a.state && free()) {
            return Stand::Refused(format!("no state point can be made of it: {why}"));
        }
        if lane.held.is_some() {
            // What is known of the thread is older than what it does. That ends in any case.
            a.since = now;
            return Stand::Open(a);
        }
        if a.chosen.is_none() {
            asked.tid.store(open.info.tid, Relaxed);
            a.chosen = Some((i, stream));
            if a.state || !open.is_in_call() {
                lane.consumer.want_mark();
                return Stand::Open(a);
            }
            return self.set_for_it(i, &a);
        }
        if let Some(count) = asked.where_set() {
            // What the thread has written before it said so.
            self.drain(i);
            let lane = &self.lanes[i];
            if lane.held.is_some() {
                return Stand::Open(a);
            }
            let framed = lane.open.as_ref().and_then(|open| open.framed);
            return match a.state && framed != count.checked_add(1) {
                false => Stand::Done(count, stream),
                true => Stand::Refused(
                    "its mark is set, but no state point could be made there (HINDSIGHT_LOG=memory=info says why)".into(),
                ),
            };
        }
        let in_call = open.is_in_call();
        if in_call && !a.state && lane.consumer.take_mark_back() {
            return self.set_for_it(i, &a);
        }
        if now >= a.next && !in_call {
            a.next = now + AGAIN;
            self.summon(&[i], stop);
        }
        self.patient(a, late)
    }

    /// The mark is still open, unless this has been so for long.
    fn patient(&self, a: Asking, late: Duration) -> Stand {
        let lane = a.chosen.map(|(i, _)| &self.lanes[i]);
        if late <= PATIENCE || !lane.is_some_and(|l| l.consumer.take_mark_back()) {
            return Stand::Open(a);
        }
        let open = lane.and_then(|l| l.open.as_ref());
        Stand::Refused(match open.is_some_and(|o| o.is_in_call()) {
            true => format!(
                "its thread waits in a system call, which did not end for {} seconds; a state point is made between two \
                 instructions",
                PATIENCE.as_secs()
            ),
            false => format!(
                "its thread did not come to the recorder for {} seconds: it is stopped, waits for a processor, or its \
                 code is not recorded",
                PATIENCE.as_secs()
            ),
        })
    }

    /// Sets the mark in the stream of a thread that waits in a system call.
    fn set_for_it(&mut self, i: usize, a: &Asking) -> Stand {
        let Some(open) = &mut self.lanes[i].open else {
            return Stand::Refused("its thread has ended meanwhile".into());
        };
        open.mark(&a.name);
        Stand::Done(open.builder.position(), open.info.stream)
    }

    /// The ring and the stream of the thread that is meant: the one with that number, or else the first one of the process.
    fn choose(&self, asked: &Asked) -> Option<(usize, StreamId)> {
        let wanted = match asked.pid.load(Relaxed) {
            0 => self.program,
            pid => pid,
        };
        let threads = self.lanes.iter().enumerate().filter_map(|(i, lane)| {
            let open = lane.open.as_ref().filter(|_| !lane.broken)?;
            let info = &open.info;
            let alive =
                info.kind == StreamKind::Thread && open.end.is_none() && open.first.is_some();
            let meant = [info.pid, info.tid].contains(&wanted);
            (alive && meant).then_some((info.tid != wanted, info.stream, i))
        });
        threads.min().map(|(_, stream, i)| (i, stream))
    }
}
