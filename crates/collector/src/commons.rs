//! The common cells of program images, to which threads refer in place of their content (`Event::Common`).

use crate::Control;
use hindsight_events::ring::commons::{BLOCK, BYTES};
use hindsight_trace::columns::PAGE;

/// Reads common cells. A block of them does not change from when somebody refers to it until its image ends, so the last one is
/// kept: a thread refers to all of its pages one after the other.
#[derive(Default)]
pub struct Commons {
    /// Image and cell of the block that was read last.
    of: Option<(u32, u64)>,
    block: Vec<u8>,
}

impl Commons {
    /// The common cells of `image` for the page at `addr`, which lies at the beginning of a page. `None`: the image has none, or
    /// they cannot be read.
    pub fn page(&mut self, control: &Control, image: u32, addr: u64) -> Option<&[u8; PAGE]> {
        let of = (image, addr / BLOCK * BLOCK % BYTES);
        if self.of != Some(of) {
            self.of = None;
            self.block.resize(BLOCK as usize, 0);
            control.read_commons(image, of.1, &mut self.block)?;
            self.of = Some(of);
        }
        self.block[(addr % BLOCK) as usize..].first_chunk()
    }

    /// Forgets what was read of this image, which has ended.
    pub fn forget(&mut self, image: u32) {
        self.of = self.of.filter(|of| of.0 != image);
    }
}
