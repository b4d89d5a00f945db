//! Processes, and the end of the connection: `?`, `!`, `vAttach`, `D`, `k`, `vKill`, `vRun`, `R`, `qAttached`.

use crate::answers::{Next, TROUBLE, stop};
use crate::state::session::Session;
use crate::state::told::Told;
use hindsight_packets::{Answer, Process, Signal};

/// ESRCH
const NO_PROCESS: u8 = 3;

pub fn answer(session: &mut Session, request: Process) -> Next {
    match request {
        Process::WhyStopped => standing(session).into(),
        Process::Extended => Answer::ok().into(),
        // Nothing can be started here, but a client may turn to any process of the recording.
        Process::Attach(pid) => match session.activate(pid) {
            Ok(true) => standing(session).into(),
            Ok(false) => Answer::error(NO_PROCESS).into(),
            Err(_) => Answer::error(TROUBLE).into(),
        },
        Process::Run => Answer::error(TROUBLE).into(),
        Process::Restart => Answer::unsupported().into(),
        Process::IsAttached => Process::attached().into(),
        Process::Detach(_) | Process::Kill(_) => Next::Leave(Answer::ok()),
    }
}

/// Where the active process stands.
fn standing(session: &Session) -> Answer {
    let stands = session.tid(session.inferior.cursor.thread());
    stop(session, Told::signal(stands, Signal::TRAP))
}
