//! What instructions read and write.

use super::names::{Names, whereabouts};
use super::tape::{each, place, split};
use super::{FUNCTION, LINE, PC};
use crate::bounds::Bounds;
use crate::column::Kind::{Address, Bytes, Int, Uint, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::table::Table;

/// Tables `reads` and `writes`.
pub struct Accesses {
    write: bool,
}

impl Accesses {
    /// What instructions read.
    pub const READS: Accesses = Accesses { write: false };
    /// What instructions write.
    pub const WRITES: Accesses = Accesses { write: true };
}

const ACCESSES: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    PC,
    column("address", Address, "first address that was accessed"),
    column("length", Int, "how many bytes"),
    column(
        "value",
        Uint,
        "the bytes as a number, least significant first; NULL: more than 8, or not known",
    ),
    column(
        "bytes",
        Bytes,
        "the bytes; NULL: more than 64, or not known",
    ),
    column(
        "mnemonic",
        Word,
        "name of the instruction, in small letters",
    ),
    FUNCTION,
    LINE,
];

impl Table for Accesses {
    fn name(&self) -> &str {
        match self.write {
            true => "writes",
            false => "reads",
        }
    }

    fn columns(&self) -> &'static [Column] {
        ACCESSES
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn split(&self, r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
        split(r, bounds, most)
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut names = Names::default();
        each(r, bounds, out, &mut |out, e| {
            for t in e.walked.accesses {
                let a = &t.access;
                if a.write != self.write || !bounds.has("address", a.address) {
                    continue;
                }
                place(r, out, e)?;
                out.uint(6, a.address);
                out.int(7, a.len as i64);
                let number = t.bytes.as_deref().filter(|b| b.len() <= 8).map(|b| {
                    let shift = |n, b: &u8| n << 8 | u64::from(*b);
                    b.iter().rev().fold(0, shift)
                });
                out.uint(8, number);
                out.bytes(9, t.bytes.as_deref());
                if out.wants(&[10]) {
                    let i = names.instruction(e.walked);
                    out.text(10, names.mnemonic(&i));
                }
                whereabouts(r, out, &mut names, e, 11)?;
                out.end()?;
            }
            Ok(())
        })
    }
}
