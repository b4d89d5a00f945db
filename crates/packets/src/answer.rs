//! Answers that many packets have. Those of one family stand with it.

use crate::encoding::push_hex;

/// The content of a packet to the client, before runs are shortened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer(Vec<u8>);

impl Answer {
    /// It is done.
    pub fn ok() -> Answer {
        Answer::text("OK")
    }

    /// The packet is not known here. Clients go on without it.
    pub fn unsupported() -> Answer {
        Answer(Vec::new())
    }

    /// It cannot be done. Clients show the number, and most give it no meaning.
    pub fn error(number: u8) -> Answer {
        Answer::text(format!("E{number:02x}"))
    }

    /// A text of the protocol.
    pub fn text(text: impl Into<String>) -> Answer {
        Answer(text.into().into_bytes())
    }

    /// Bytes, as two digits each.
    pub fn hex(bytes: &[u8]) -> Answer {
        let mut out = Vec::with_capacity(2 * bytes.len());
        push_hex(&mut out, bytes);
        Answer(out)
    }

    /// A number.
    pub fn number(number: u64) -> Answer {
        Answer::text(format!("{number:x}"))
    }

    /// Content that is escaped where it has to be.
    pub(crate) fn raw(content: Vec<u8>) -> Answer {
        Answer(content)
    }

    /// What goes into the frame.
    pub fn content(&self) -> &[u8] {
        &self.0
    }
}
