//! Commands of the user's: `qRcmd`.

use crate::answers::{FAILED, Next};
use crate::monitor;
use crate::state::session::Session;
use hindsight_packets::{Answer, Command};

/// Runs a command.
///
/// gdb gets what the command prints as the answer, since it leaves a second packet unread if it is interrupted between
/// two. If the command failed, gdb must know: it ends the script in which the command stands. All its versions take an
/// error only without words, so the words go before it. (A command that the user interrupted is no failure: gdb ends
/// its scripts by itself.) Other clients get the words first in any case.
pub fn answer(session: &mut Session, command: &Command) -> Next {
    // Only gdb asks for these events.
    let is_gdb = session.features.execs;
    let done = monitor::run(session, &command.0);
    let failed = is_gdb && !done.well && !done.cancelled;
    match (is_gdb, failed) {
        (_, true) => Next::Show(done.text, Answer::error(FAILED)),
        (true, false) => Command::printed(&done.text).into(),
        (false, _) if done.text.is_empty() => Answer::ok().into(),
        (false, _) => Next::Show(done.text, Answer::ok()),
    }
}
