//! Who wrote memory or a register last.

use crate::past::{Past, Wrote};
use crate::place::Place;
use crate::recorded::Recorded;
use crate::source::Source;
use crate::{Result, signal};
use hindsight_timeline::{Cancel, Direction, Found, ThreadId, Watch};
use iced_x86::Register;

/// So many processes, each made by the one before, are looked through for who wrote memory.
const PARENTS: usize = 256;

/// Who wrote memory last.
pub struct Stored {
    /// What did.
    pub source: Source,
    /// Which bytes of memory it wrote, address and length. All of them, if nobody did.
    pub bytes: (u64, u64),
}

/// Who wrote any of these bytes last before an instant. The cursor stands anywhere afterwards.
///
/// # Errors
/// The recording does not answer, or it was cancelled.
pub fn stored(
    recorded: &mut Recorded,
    past: &Past,
    (thread, count): (ThreadId, u64),
    (at, len): (u64, u64),
    cancel: &Cancel,
) -> Result<Stored> {
    let image = recorded.threads.iter().find(|t| t.id == thread);
    let image = image.map_or(0, |t| t.image);
    let others = recorded.threads.iter().filter(|t| t.image == image).count() > 1;
    if !others && let Some((count, bytes)) = past.stored(thread, count, at, len) {
        let source = Source::Written((thread, count));
        return Ok(Stored { source, bytes });
    }
    recorded.cursor.seek_count(thread, count)?;
    for _ in 0..=PARENTS {
        let found = recorded.cursor.cancellable(cancel, |c| {
            c.find(Direction::Backward, at, len, Watch::Write)
        })?;
        cancel.check()?;
        if let Some(f) = found {
            let Found {
                thread,
                count,
                kernel,
                address,
                len,
                ..
            } = f;
            let source = match kernel {
                true => Source::Kernel {
                    at: (thread, count),
                    address: at.max(address),
                },
                false => Source::Written((thread, count)),
            };
            let bytes = (address, len);
            return Ok(Stored { source, bytes });
        }
        if !recorded.go_to_parent()? {
            let source = Source::Beginning {
                thread: recorded.cursor.thread(),
                address: at,
            };
            let bytes = (at, len);
            return Ok(Stored { source, bytes });
        }
    }
    Ok(Stored {
        source: Source::Unknown,
        bytes: (at, len),
    })
}

/// What gave a register its value, also where a handler of a signal ran since: the kernel then gave back what it had.
///
/// # Errors
/// The recording does not answer.
pub fn wrote_register(
    recorded: &mut Recorded,
    past: &mut Past,
    at: (ThreadId, u64),
    register: Register,
) -> Result<((ThreadId, u64), Wrote)> {
    let place = Place::Register {
        register,
        first: 0,
        len: 8,
    };
    let (thread, mut count) = at;
    loop {
        let wrote = past.wrote(thread, count, register)?;
        let Wrote::Kernel(begun) = wrote else {
            return Ok(((thread, count), wrote));
        };
        let step = past.step(thread, begun)?;
        let from = step.as_ref().and_then(|s| signal::restored(s, &place));
        let Some(Place::Memory { at: address, .. }) = from else {
            if signal::set_for_handlers(register) {
                return Ok(((thread, count), wrote));
            }
            // A handler begins with it as it was.
            count = begun;
            continue;
        };
        let never = Cancel::new();
        let saved = stored(recorded, past, (thread, begun), (address, 8), &never)?;
        count = match saved.source {
            Source::Kernel { at: (t, c), .. } if t == thread && c < begun => c,
            Source::Written((t, c)) if t == thread && c < begun => {
                // The handler changed what it will be.
                return Ok(((thread, count), Wrote::At(c)));
            }
            _ => return Ok(((thread, count), wrote)),
        };
    }
}
