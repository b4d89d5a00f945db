//! Of which parts each event's wire form is made.

use hindsight_events::event::tag;
use hindsight_events::varint::get;
use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};

/// The wire form of an event other than a patch, behind tag and position.
pub(super) struct Shape {
    /// Number of integers at the beginning.
    ints: usize,
    /// The first integer is a mask; each bit that is set stands for a further integer.
    masked: bool,
    /// Bytes behind the integers.
    bulk: usize,
    /// The last integer is the length of a byte string that follows.
    string: bool,
}

pub(super) fn shape(t: u8) -> Option<Shape> {
    let s = |ints, bulk| {
        Some(Shape {
            ints,
            masked: false,
            bulk,
            string: false,
        })
    };
    let string = |ints| {
        Some(Shape {
            ints,
            masked: false,
            bulk: 0,
            string: true,
        })
    };
    const STATE: usize = CPU_STATE_LEN + VEC_STATE_LEN;
    match t {
        tag::PATCH_BYTES => s(3, 0),
        tag::SYSCALL => s(7, 0),
        tag::SYSCALL_RET | tag::REP_CHUNK | tag::CODE_EPOCH => s(1, 0),
        tag::SEQ | tag::CODE_FROM | tag::RESTATE => s(1, 0),
        tag::REGS => Some(Shape {
            ints: 2,
            masked: true,
            bulk: 0,
            string: false,
        }),
        tag::SIGNAL => s(3, 0),
        tag::SET_STATE => s(0, STATE),
        tag::KEY_FRAME => s(1, STATE),
        tag::ZERO | tag::UNMAP | tag::TIME | tag::CHANGED => s(2, 0),
        tag::CODE_OF => s(5, 0),
        tag::MEMORY | tag::REGIME => string(2),
        tag::FILE => string(8),
        tag::FILE_OF => s(4, 0),
        tag::MOVE | tag::PASSED | tag::FRESH => s(3, 0),
        tag::DIGEST => s(0, 16),
        tag::GAP_BEGIN => s(1, 0),
        // The mask, the values that it selects, the parts, the length.
        tag::GAP_END => Some(Shape {
            ints: 3,
            masked: true,
            bulk: 0,
            string: true,
        }),
        tag::MARK => string(2),
        tag::END => string(3),
        tag::CODE => string(3),
        tag::X87 => string(4),
        tag::MAP => string(7),
        _ => None,
    }
}

/// Lengths of the integers and of the bulk of a payload whose integers begin at `b[at]`.
pub(super) fn measure(s: &Shape, b: &[u8], at: usize) -> Option<(usize, usize)> {
    let (mut end, mut last, mut n) = (at, 0, s.ints);
    let mut i = 0;
    while i < n {
        (last, end) = get(b, end)?;
        if i == 0 && s.masked {
            n += last.count_ones() as usize;
        }
        i += 1;
    }
    let bulk = if s.string {
        usize::try_from(last).ok()?
    } else {
        s.bulk
    };
    Some((end - at, bulk))
}
