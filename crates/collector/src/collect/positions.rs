//! Having the threads say where they stand. One that only computes does not come to the recorder, and so has no event: what is known
//! of it would end where it last had one.

use super::Collector;
use crate::alive;
use hindsight_trace::StreamKind;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Time in which most threads come to the recorder by themselves.
const GRACE: Duration = Duration::from_millis(20);

/// Longest time that they are waited for. Who runs a part of the program that is not recorded says nothing.
const PATIENCE: Duration = Duration::from_millis(500);

const NAP: Duration = Duration::from_millis(2);

/// Time between two signals to a thread.
const AGAIN: Duration = Duration::from_millis(100);

impl<W: Write> Collector<'_, W> {
    /// Has each thread say where it stands, unless it is in a system call, which says that already; takes what they said.
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

    /// Brings a thread out of translated code. It has been there for [`GRACE`] and has a processor, or waits for one; so the
    /// signal does not come in a system call, which it might end.
    fn kick(&self, pid: i32, tid: i32) {
        if pid > 1 && alive::running(pid, tid) && self.control.is_shared_with(pid) {
            alive::kick(pid, tid);
        }
    }
}
