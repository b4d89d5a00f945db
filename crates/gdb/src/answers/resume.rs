//! Runs and steps: `vCont`, `c`, `s`, `C`, `S`, `bc`, `bs`.

use crate::answers::choice::Choice;
use crate::answers::{FAILED, Next};
use crate::state::action::Action;
use crate::state::session::Session;
use hindsight_packets::{self as packets, ActionKind, Answer, Resume};

pub fn answer(session: &mut Session, choice: &Choice, request: Resume) -> Next {
    match request {
        Resume::Ask => return Resume::known_actions().into(),
        Resume::Actions(all) => {
            if !each_does(session, &all) {
                return Answer::error(FAILED).into();
            }
        }
        // The program would go on elsewhere, which it did not.
        Resume::Plain {
            address: Some(_), ..
        } => return Answer::error(FAILED).into(),
        Resume::Plain { steps, .. } => {
            clear(session);
            let tid = choice.steps(session);
            session.locked = choice.alone.is_some();
            match steps {
                true => session.action = Action::Step(tid),
                false => session.continued = choice.alone,
            }
        }
        Resume::Back { steps } => {
            session.locked = choice.alone.is_some();
            session.continued = choice.alone;
            session.action = match steps {
                false => Action::ReverseContinue,
                true => {
                    // The client names a thread only if the others do not run. Otherwise its user may have chosen one.
                    let chosen = session.chosen_thread.filter(|_| !session.locked);
                    Action::ReverseStep(chosen.unwrap_or(choice.steps(session)))
                }
            };
        }
    }
    Next::Run
}

fn clear(session: &mut Session) {
    session.action = Action::Continue;
    session.locked = false;
    session.continued = None;
}

/// `vCont`. `false`: a step of all threads is wanted, which is none.
fn each_does(session: &mut Session, all: &[packets::Action]) -> bool {
    clear(session);
    let (mut all_continue, mut several) = (false, false);
    for action in all {
        let tid = action.thread.and_then(|t| t.tid());
        match (action.kind, tid) {
            (ActionKind::Continue, None) => all_continue = true,
            // A step of one thread is done before the others run.
            (ActionKind::Continue, Some(tid)) => {
                several |= session.continued.is_some();
                session.continued = Some(tid);
            }
            (ActionKind::Step, Some(tid)) => session.action = Action::Step(tid),
            (ActionKind::Range(start, end), Some(tid)) => {
                session.action = Action::Range(tid, start, end);
            }
            (ActionKind::Step | ActionKind::Range(..), None) => return false,
        }
    }
    // lldb names all threads that run, one by one. A run stops for one thread or for all.
    session.locked = !all_continue && !several;
    true
}
