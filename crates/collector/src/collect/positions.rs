//! Asks threads where they stand. A thread that only computes never comes to the recorder, so it
//! has no event. What is known of it would end at its last event.

use super::Collector;
use crate::alive;
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
            let silent: Vec<(i32, i32)> = (self.lanes.iter())
                .filter_map(|l| Some((l.open.as_ref()?, &l.consumer)))
                .filter(|(open, consumer)| {
                    !open.calls && open.end.is_none() && consumer.wants_position()
                })
                .map(|(open, _)| (open.info.pid, open.info.tid))
                .collect();
            let now = Instant::now();
            if silent.is_empty() || stop.load(Relaxed) || now - begun >= PATIENCE {
                break;
            }
            if now >= next {
                silent.iter().for_each(|(pid, tid)| self.kick(*pid, *tid));
                next = now + AGAIN;
            }
            std::thread::sleep(NAP);
        }
        for lane in &self.lanes {
            lane.consumer.forget_position();
        }
        self.look(true, stop);
    }

    /// Makes a thread leave translated code. The thread has been there for [`GRACE`], and has a
    /// processor or waits for one. So the signal does not come in a system call, which it might
    /// end.
    fn kick(&self, pid: i32, tid: i32) {
        if pid > 1 && alive::running(pid, tid) && self.control.is_shared_with(pid) {
            alive::kick(pid, tid);
        }
    }
}
