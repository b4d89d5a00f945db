//! Events whose words stand in the common cells of an image.

use super::{ChunkBuilder, Pushed};
use hindsight_events::event::{LINE, LINES, selected};
use hindsight_events::varint::get;
use hindsight_events::{Decoder, Event, MAX_EVENT};

/// Bytes of a page.
pub const PAGE: usize = LINE as usize * LINES;

impl ChunkBuilder {
    /// Takes the [`Event::Common`] at the start of `wire`, which continues the bytes pushed before. The chunk gets the
    /// [`Event::Lines`] for which it stands, and counts the bytes of that one. `cells` gives the common cells of the page at an
    /// address. Returns the number of bytes taken.
    ///
    /// # Errors
    /// [`Pushed::More`]: the bytes are not a whole event. [`Pushed::Bad`]: they are another one, or there are no such cells.
    pub fn push_common<'c>(
        &mut self,
        wire: &[u8],
        cells: impl FnOnce(u64) -> Option<&'c [u8; PAGE]>,
    ) -> Result<usize, Pushed> {
        let Some((_, event, len)) = Decoder::default().decode(wire) else {
            return Err(match wire.len() < MAX_EVENT {
                true => Pushed::More,
                false => Pushed::Bad,
            });
        };
        let Event::Common { line, masks } = event else {
            return Err(Pushed::Bad);
        };
        let placed = || {
            let (delta, ints) = get(wire, 1)?;
            Some((self.place(delta)?, ints))
        };
        let (pos, ints) = placed().ok_or(Pushed::Bad)?;
        let first = line as usize % PAGE;
        let page = cells(line - first as u64).ok_or(Pushed::Bad)?;
        self.lines(pos, &wire[ints..len - masks.len()], masks, |words| {
            let lines = page[first..].as_chunks::<{ LINE as usize }>().0;
            for (line, mask) in lines.iter().zip(masks) {
                let of_line = line.as_chunks::<8>().0.iter().enumerate();
                match mask {
                    0xff => words.extend_from_slice(line),
                    _ => of_line
                        .filter(|(i, _)| mask >> i & 1 != 0)
                        .for_each(|(_, w)| words.extend_from_slice(w)),
                }
            }
        });
        self.taken += len + selected(masks);
        self.from = self.pos;
        Ok(len)
    }
}
