//! Asks threads where they stand. A thread that only computes never comes to the recorder, so it
//! has no event. What is known of it would end at its last event.

use super::Collector;
use hindsight_trace::StreamKind;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Most threads come to the recorder by themselves in this time.
const GRACE: Duration = Duration::from_millis(20);

/// Longest time to wait for them. A thread in a part of the program that is not recorded says
/// nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// Time between two looks.
const NAP: Duration = Duration::from_millis(2);

/// Time between two signals to one thread.
const AGAIN: Duration = Duration::from_millis(100);

impl<W: Write> Collector<'_, W> {
    /// Makes each thread say where it stands, and takes what they say. Threads in a system call
    /// have said it already.
    pub(super) fn locate(&mut self, stop: &AtomicBool) {
        for lane in &self.lanes {
            let open = lane.open.as_ref();
            if open.is_some_and(|o| o.info.kind == StreamKind::Thread && o.end.is_none()) {
                lane.consumer.want_position();
            }
        }
        let begun = Instant::now();
        let mut next = begun + GRACE;
        loop {
            self.look(true, stop);
            let silent: Vec<usize> = (self.lanes.iter().enumerate())
                .filter(|(_, l)| l.held.is_none())
                .filter_map(|(i, l)| Some((i, l.open.as_ref()?, &l.consumer)))
                .filter(|(_, open, consumer)| {
                    !open.is_in_call() && open.end.is_none() && consumer.wants_position()
                })
                .map(|(i, ..)| i)
                .collect();
            let now = Instant::now();
            if silent.is_empty() || stop.load(Relaxed) || now - begun >= PATIENCE {
                break;
            }
            if now >= next {
                self.summon(&silent, stop);
                next = now + AGAIN;
            }
            std::thread::sleep(NAP);
        }
        for lane in &self.lanes {
            lane.consumer.forget_position();
        }
        self.look(true, stop);
    }
}
