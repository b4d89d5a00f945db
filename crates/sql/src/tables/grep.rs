//! Where bytes are in memory.

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Bytes, Text, Word};
use crate::column::{Column, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;
use crate::tables::At;
use hindsight_inspect::grep;

/// `grep_memory(bytes, place)`.
pub struct GrepMemory {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where to look.
    pub at: At,
}

/// Its columns.
pub const GREP: &[Column] = &[
    column("address", Address, "where the bytes begin"),
    column(
        "path",
        Text,
        "what is mapped there: a file, `[heap]`, `[stack]`; NULL: memory without a name",
    ),
    column("ground", Word, "why the first byte is known"),
    column(
        "bytes",
        Bytes,
        "the bytes from there on, 64 or fewer: up to the first one that is not known",
    ),
];

impl Table for GrepMemory {
    fn name(&self) -> &str {
        "grep_memory"
    }

    fn columns(&self) -> &'static [Column] {
        GREP
    }

    fn order(&self) -> &'static [&'static str] {
        &["address"]
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut cursor = self.at.cursor(r)?;
        let cancel = out.cancel.clone();
        grep(&mut cursor, &self.bytes, &cancel, &mut |m| {
            if !bounds.has("address", m.address) {
                return Ok(true);
            }
            out.uint(0, m.address);
            let path = &m.mapping.path;
            out.maybe(1, Some(path).filter(|p| !p.is_empty()));
            let first = m.bytes.first().copied().flatten();
            out.maybe(2, first.map(|k| k.ground.to_string()));
            let bytes = m.bytes.iter().map_while(|b| b.map(|k| k.value));
            out.bytes(3, Some(bytes.collect::<Vec<u8>>()));
            out.end()?;
            Ok::<_, Stop>(true)
        })
    }
}
