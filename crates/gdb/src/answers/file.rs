//! Files that a client reads: `vFile`.

use crate::Result;
use crate::program::files;
use crate::state::session::Session;
use hindsight_packets::{Answer, Errno, File, WRITE_FLAGS};

pub fn answer(session: &mut Session, request: &File) -> Result<Answer> {
    let answer = match request {
        // All names are those of the recorded machine.
        File::ChooseNames => Ok(Answer::file(0)),
        File::Open { flags, .. } if flags & WRITE_FLAGS != 0 => Err(Errno::ReadOnly),
        File::Open { name, .. } => {
            let here = session.inferior.cursor.position()?;
            let (timeline, image) = (&session.timeline, session.inferior.image);
            let opened = session.files.open(timeline, image, here, name);
            opened.map(|fd| Answer::file(fd as u64))
        }
        File::Close { fd } => session.files.close(*fd).map(|()| Answer::file(0)),
        File::Read { fd, len, offset } => {
            let read = session.files.read(*fd, *offset, *len);
            read.map(Answer::file_data)
        }
        File::Status { fd } => session.files.status(*fd).map(|s| Answer::file_status(&s)),
        File::Link { name } => {
            let target = files::link(&session.timeline, session.inferior.image, name);
            target.map(|t| Answer::file_data(t.as_bytes()))
        }
    };
    Ok(answer.unwrap_or_else(Answer::file_error))
}
