//! `qRcmd`: commands of the server (`monitor` in gdb).

use crate::encoding::bytes;
use crate::error::Parsed;
use crate::{Answer, Malformed};

/// A command line, as the user typed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command(pub String);

impl Command {
    /// Answers with what the command prints. Some clients take only what [`crate::Sender::show`] sends, and then
    /// [`Answer::ok`].
    pub fn printed(text: &str) -> Answer {
        match text {
            "" => Answer::ok(),
            text => Answer::hex(text.as_bytes()),
        }
    }
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Command> {
    let line = match packet.strip_prefix(b"qRcmd") {
        Some(b"") => Vec::new(),
        Some([b',', digits @ ..]) => bytes(digits).ok_or(Malformed("qRcmd"))?,
        _ => return Ok(None),
    };
    Ok(Some(Command(String::from_utf8_lossy(&line).into_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_text() {
        assert_eq!(parse(b"qRcmd,7768656e"), Ok(Some(Command("when".into()))));
        assert_eq!(parse(b"qRcmd,ff"), Ok(Some(Command("\u{fffd}".into()))));
        assert_eq!(parse(b"qRcmd"), Ok(Some(Command(String::new()))));
        assert_eq!(parse(b"qRcmd,7"), Err(Malformed("qRcmd")));
        assert_eq!(parse(b"qRcmdx"), Ok(None));
        assert_eq!(Command::printed("ab"), Answer::text("6162"));
        assert_eq!(Command::printed(""), Answer::ok());
    }
}
