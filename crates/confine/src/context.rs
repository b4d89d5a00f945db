//! What translated code may do with each field of the context block.

use core::mem::offset_of;
use hindsight_isa::ctx::{APART, CNT_REG, CTX_SIZE, SCR_REG};
use hindsight_isa::ibl::{ENTRY, LookupTable, SECOND};
use hindsight_isa::{Ctx, High};

/// The rights to read and to write, in a replay and in a recording.
const READ: u8 = 1;
const WRITE: u8 = 2;
const RECORD_READ: u8 = 4;
const RECORD_WRITE: u8 = 8;
const ALL: u8 = READ | WRITE | RECORD_READ | RECORD_WRITE;

/// The number of words before the indirect-branch lookup tables.
const WORDS: usize = offset_of!(Ctx, ibl) / 8;

/// The rights for each word.
static RIGHTS: [u8; WORDS] = {
    let mut r = [0; WORDS];
    let fields = [
        (offset_of!(Ctx, gpr) + 8 * SCR_REG, 8, ALL),
        (offset_of!(Ctx, gpr) + 8 * CNT_REG, 8, ALL),
        (offset_of!(Ctx, rip), 8, ALL),
        (offset_of!(Ctx, fs_base), 8, READ | RECORD_READ),
        (offset_of!(Ctx, gs_base), 8, READ | RECORD_READ),
        (offset_of!(Ctx, ea), 8, ALL),
        (offset_of!(Ctx, value), 8, ALL),
        // For atomic operations, whose order is recorded.
        (offset_of!(Ctx, resume), 8, RECORD_WRITE),
        (offset_of!(Ctx, stripe), 8, RECORD_READ | RECORD_WRITE),
        (offset_of!(Ctx, size), 8, RECORD_WRITE),
        (offset_of!(Ctx, cell_mask), 8, READ | RECORD_READ),
        (offset_of!(Ctx, executed), 32, ALL),
        (offset_of!(Ctx, spill), 128, ALL),
        (offset_of!(Ctx, scratch), 64, ALL),
        (offset_of!(Ctx, lent), 96, READ | WRITE),
        (offset_of!(Ctx, high), size_of::<High>(), READ | WRITE),
        (offset_of!(Ctx, zmm31), 64, ALL),
        (offset_of!(Ctx, k7), 8, ALL),
        (offset_of!(Ctx, flags), 8, ALL),
    ];
    let mut i = 0;
    while i < fields.len() {
        let (at, len, rights) = fields[i];
        let mut k = 0;
        while k < len / 8 {
            r[at / 8 + k] = rights;
            k += 1;
        }
        i += 1;
    }
    r
};

/// Whether the code may read or write these `size` bytes. `disp` is their displacement from the GS base.
pub(crate) fn may(disp: i32, size: usize, write: bool, replay: bool) -> bool {
    let Some(at) = offset(disp) else {
        return false;
    };
    let right = match (write, replay) {
        (false, true) => READ,
        (true, true) => WRITE,
        (false, false) => RECORD_READ,
        (true, false) => RECORD_WRITE,
    };
    let words = at / 8..=(at + size - 1) / 8;
    RIGHTS
        .get(words)
        .is_some_and(|w| w.iter().all(|r| r & right != 0))
}

/// The same for a whole word.
#[inline(always)]
pub(crate) fn may_word(disp: i32, write: bool, replay: bool) -> bool {
    let at = (disp as i64 + CTX_SIZE as i64 + APART as i64) as u64;
    let right = 1 << (write as u8 + 2 * !replay as u8);
    let word = RIGHTS.get((at / 8) as usize);
    at.is_multiple_of(8) && word.is_some_and(|r| r & right != 0)
}

/// The offset in the context block.
fn offset(disp: i32) -> Option<usize> {
    usize::try_from(disp as i64 + CTX_SIZE as i64 + APART as i64).ok()
}

/// Whether the displacement is that of an entry's first word in a lookup table.
pub(crate) fn is_target(disp: i32) -> bool {
    let Some(at) = offset(disp).and_then(|o| o.checked_sub(offset_of!(Ctx, ibl))) else {
        return false;
    };
    let (table, within) = (at / size_of::<LookupTable>(), at % size_of::<LookupTable>());
    table < 2 && within < SECOND && within.is_multiple_of(ENTRY)
}
