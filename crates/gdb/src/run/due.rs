//! What gdb is told before anything is executed: signals, and the end.
//!
//! A run stops where a thread gets a signal, before its handler. A step, a seek or a breakpoint may also lead there.
//! Then gdb has not heard of the signal. It hears of it when it goes on.

use crate::state::action::Action;
use crate::state::session::Session;
use crate::state::stops::{Break, Signals};
use crate::state::told::Told;
use crate::{Error, Result};
use hindsight_inspect::SignalInfo;
use hindsight_packets::{Event, Tid};
use hindsight_timeline::{Direction, Filter, Kind, KindOf, Reason, Stop};

impl Session {
    /// The signal that the cursor's thread gets where it stands, if gdb wants to know and has not heard of it.
    pub(crate) fn begins_with_signal(&mut self, direction: Direction) -> Result<Option<Told>> {
        let (thread, count) = (self.inferior.cursor.thread(), self.inferior.cursor.count());
        let told = self.inferior.told_signal;
        if direction == Direction::Forward && told == Some((thread, count)) {
            return Ok(None);
        }
        self.inferior.told_signal = None;
        if direction == Direction::Backward {
            return Ok(None);
        }
        // The handler has begun, so the signal is past.
        if self.inferior.cursor.has_entered()? {
            return Ok(None);
        }
        let Some(signal) = self.signal_here()? else {
            return Ok(None);
        };
        let stop = Stop {
            thread,
            position: self.inferior.cursor.position()?,
            reason: signal,
        };
        self.tell(stop).map(Some)
    }

    /// The signal that the cursor's thread gets where it stands, if gdb wants to know.
    fn signal_here(&mut self) -> Result<Option<Reason>> {
        let all = match &self.signals {
            Some(all) => all,
            None => self.signals.insert(signals(&self.timeline)?),
        };
        let (thread, count) = (self.inferior.cursor.thread(), self.inferior.cursor.count());
        let list = all.get(&thread).map_or(&[][..], |l| l);
        let here = &list[list.partition_point(|s| s.0 < count)..];
        let here = here.iter().take_while(|s| s.0 == count).map(|s| s.1);
        let mut wanted = here.filter(|s| !self.passed.contains(&s.number));
        Ok(wanted.next().map(|s| Reason::Signal {
            number: s.number,
            code: s.code,
            address: s.address,
        }))
    }

    /// A breakpoint comes before the fault of its instruction. A signal from elsewhere comes before the breakpoint.
    pub(crate) fn breakpoint_first(&mut self, stop: &mut Stop) -> Result<()> {
        if let Reason::Signal {
            number,
            code,
            address,
        } = stop.reason
            && (Kind::Signal {
                number,
                code,
                address,
            })
            .is_exception()
        {
            let address = self.inferior.cursor.registers()?.rip;
            let breaks = &self.inferior.breaks;
            let at = |b: &Break| b.address == address && b.condition.is_none();
            if let Some(i) = breaks.iter().position(at) {
                let id = i as u64;
                stop.reason = Reason::Breakpoint { id, address };
            }
        }
        Ok(())
    }

    /// What one step ended with. At the end there is no instruction to step. Then gdb hears of the signal that ended
    /// the process, or that the step is done. It may want to pass a breakpoint: it takes no other answer, and would
    /// wait for that step for ever. After some tries it hears of the end.
    pub(crate) fn tell_step(&mut self, stop: Stop) -> Result<Told> {
        const TRIES: u32 = 16;
        let end = stop.reason == Reason::End;
        let told = self.tell(stop.clone())?;
        if !end || !matches!(told.event, Event::Begin | Event::End) {
            self.inferior.steps_at_end = 0;
            return Ok(told);
        }
        if stop.thread == self.inferior.cursor.thread()
            && let Some(reason) = self.signal_here()?
        {
            return self.tell(Stop { reason, ..stop });
        }
        let in_range = matches!(self.action, Action::Range(..));
        self.inferior.steps_at_end += 1;
        if in_range || self.inferior.steps_at_end > TRIES {
            self.inferior.steps_at_end = 0;
            return Ok(told);
        }
        Ok(self.trap_of(stop.thread))
    }

    /// Answers a step of a thread that has completed all that it ever does, if it is not the cursor's. Time does not go
    /// back to its last instruction.
    pub(crate) fn rests(&mut self, tid: Tid) -> Result<Option<Told>> {
        let thread = self.thread(tid).ok_or(Error::NoThread(tid.get()))?;
        let position = self.inferior.cursor.position()?;
        if thread == self.inferior.cursor.thread()
            || self.timeline.count_at(thread, position)? != Some(self.timeline.thread(thread)?.to)
        {
            return Ok(None);
        }
        let reason = Reason::End;
        let stop = Stop {
            thread,
            position,
            reason,
        };
        self.tell_step(stop).map(Some)
    }
}

/// Where all threads of a recording get signals.
fn signals(timeline: &hindsight_timeline::Timeline) -> Result<Signals> {
    let mut out = Signals::new();
    let events = timeline.events(&Filter {
        kinds: vec![KindOf::Signal, KindOf::Exception],
        ..Filter::default()
    })?;
    for e in events {
        if let Kind::Signal {
            number,
            code,
            address,
        } = e.kind
        {
            let info = SignalInfo {
                number,
                code,
                address,
            };
            out.entry(e.thread).or_default().push((e.count, info));
        }
    }
    for list in out.values_mut() {
        list.sort_by_key(|s| s.0);
    }
    Ok(out)
}
