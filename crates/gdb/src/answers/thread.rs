//! Threads: `T`, `qC`, `qfThreadInfo`, `qThreadExtraInfo`, `qGetTLSAddr`.

use crate::answers::choice::Choice;
use crate::answers::{FAILED, tls};
use crate::state::session::Session;
use crate::{Error, Result};
use hindsight_packets::{Answer, Label, Thread};

pub fn answer(session: &mut Session, choice: &Choice, request: Thread) -> Result<Answer> {
    Ok(match request {
        // The choice is made.
        Thread::Choose(_) | Thread::ChooseToRun(_) => Answer::ok(),
        Thread::IsAlive(name) => {
            let all = session.all_live()?;
            let alive = all.iter().any(|(_, t)| Some(session.tid(*t)) == name.tid());
            match alive {
                true => Answer::ok(),
                false => Answer::error(FAILED),
            }
        }
        Thread::Current => Thread::current(session.label(choice.thread(session)?)),
        Thread::List => {
            let all = session.live()?;
            let labels: Vec<Label> = all.into_iter().map(|t| session.label(t)).collect();
            Thread::list(&labels)
        }
        Thread::ListMore => Thread::end_of_list(),
        Thread::Describe(name) => {
            let id = name.tid().and_then(|tid| session.any_thread(tid));
            let id = id.ok_or(Error::NoThread(name.tid().map_or(0, |t| t.get())))?;
            Answer::hex(session.inferior.name(&session.timeline, id)?.as_bytes())
        }
        Thread::LocalAddress {
            thread,
            offset,
            file,
        } => match tls::address(session, thread, offset, file) {
            Ok(Some(address)) => Answer::number(address),
            Ok(None) | Err(_) => Answer::error(FAILED),
        },
    })
}
