//! Objects that are read in pieces: `qXfer`.

use crate::answers::FAILED;
use crate::answers::choice::Choice;
use crate::program::libraries;
use crate::state::arch;
use crate::state::session::Session;
use crate::{Error, Result};
use hindsight_packets::{Answer, Object, Transfer};
use hindsight_text::line;

/// gdb says which thread its user has chosen only before it reads something. gdb's script (`hindsight.gdb`) reads this
/// table before each command and before each step backwards. So the thread that is chosen then is the user's choice.
const CHOSEN: &str = "hindsight-chosen";
/// The program has no file: ENOENT.
const NO_FILE: u8 = 2;

pub fn answer(session: &mut Session, choice: &Choice, wanted: &Transfer) -> Result<Answer> {
    Ok(match &wanted.object {
        Object::Auxv => wanted.answer(&session.inferior.auxv),
        // The process that is named has become the active one.
        Object::ExecFile(_) => {
            let modules = session.timeline.modules(session.inferior.image)?;
            match modules.first() {
                Some(program) => wanted.answer(line(&program.path).as_bytes()),
                None => Answer::error(NO_FILE),
            }
        }
        Object::Features(name) if name == "target.xml" => {
            wanted.answer(arch::description().as_bytes())
        }
        Object::Features(_) => Transfer::absent(),
        Object::Libraries => {
            let here = session.inferior.cursor.position()?;
            let (timeline, image) = (&session.timeline, session.inferior.image);
            let list = libraries::list(timeline, image, here, &mut session.listed);
            wanted.answer(list.as_bytes())
        }
        Object::SignalInfo => match session.inferior.signal {
            Some(s) => wanted.answer(&s.whole(&session.inferior.cursor)),
            None => Answer::error(FAILED),
        },
        Object::SystemTable(name) if name == CHOSEN => {
            session.chosen_thread = Some(choice.thread(session)?);
            wanted.answer_empty_table(name)
        }
        Object::SystemTable(_) => Transfer::absent(),
        Object::Threads => wanted.answer(threads(session)?.as_bytes()),
    })
}

fn threads(session: &Session) -> Result<String> {
    let mut out = String::from("<threads>");
    for (inferior, id) in session.all_live()? {
        let name = libraries::escape(&inferior.name(&session.timeline, id)?);
        let label = session.thread_label(inferior, id);
        out += &format!(r#"<thread id="{label}" name="{name}">stream {id}</thread>"#);
    }
    Ok::<_, Error>(out + "</threads>")
}
