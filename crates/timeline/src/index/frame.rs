//! Frames: states from which replay can begin, with the memory that it needs.

use super::codec::{LINE, Reader, pack, put, unpack};
use super::pieces::{self, Packing, Pieces, SOME};
use super::stored::{Scratch, Stored};
use crate::Result;
use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};
use hindsight_isa::{CpuState, VecState};
use hindsight_replay::{Gap, Lines as Content, State};
use std::cell::RefCell;
use std::sync::Arc;

/// A state from which replay can begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexFrame {
    pub position: u64,
    /// Registers and lines, compressed.
    pub blob: Arc<[u8]>,
}

const GAPS: [Gap; 3] = [Gap::Outside, Gap::Within, Gap::Behind];

fn gap_number(gap: Gap) -> u64 {
    match gap {
        Gap::Outside => 0,
        Gap::Within => 1,
        Gap::Behind => 2,
    }
}

/// Writes all of a state but its position.
pub fn put_state(out: &mut Vec<u8>, state: &State) {
    put(out, state.epoch);
    put(out, gap_number(state.gap));
    out.extend_from_slice(&state.cpu.to_bytes());
    out.extend_from_slice(&state.vec.to_bytes());
}

/// Inverse of [`put_state`]. `None`: the data is damaged.
pub fn state_of(r: &mut Reader, position: u64) -> Option<State> {
    let epoch = r.int()?;
    let number = r.int()?;
    Some(State {
        position,
        gap: GAPS.into_iter().find(|g| gap_number(*g) == number)?,
        epoch,
        cpu: CpuState::from_bytes(r.take(CPU_STATE_LEN)?.try_into().ok()?),
        vec: VecState::from_bytes(r.take(VEC_STATE_LEN)?.try_into().ok()?),
    })
}

impl IndexFrame {
    /// Makes a frame from pages with masks of their lines, ascending, and the bytes of these lines.
    pub(super) fn made(
        state: &State,
        pages: &[(u32, u64)],
        lines: &[u8],
        level: i32,
    ) -> Result<Stored> {
        IndexFrame::begun(state, pages, Packing::default(), lines, level)
    }

    /// The same. The first of the lines are packed already.
    fn begun(
        state: &State,
        pages: &[(u32, u64)],
        begun: Packing,
        rest: &[u8],
        level: i32,
    ) -> Result<Stored> {
        let mut out = Vec::new();
        put_state(&mut out, state);
        put(&mut out, pages.len() as u64);
        let mut before = 0;
        for (page, mask) in pages {
            put(&mut out, (*page - before) as u64);
            before = *page;
            out.extend_from_slice(&mask.to_le_bytes());
        }
        parts_begun(&out, begun, &[rest], level)
    }

    /// The state, and the lines ready for questions.
    pub fn open(&self) -> Option<(State, Framed)> {
        let (raw, [lines]) = unpack_parts(&self.blob)?;
        let mut r = Reader { b: &raw, at: 0 };
        let state = state_of(&mut r, self.position)?;
        let framed = Framed::read(&mut r, lines)?;
        (r.at == raw.len()).then_some((state, framed))
    }

    /// The state at the start of the interval, and what the interval needs in the window. `spare` is a buffer that is
    /// no longer needed: the content goes there.
    pub fn load(&self, spare: Vec<u8>) -> Option<(State, Content)> {
        let (state, framed) = self.open()?;
        Some((state, framed.content(spare)?))
    }
}

/// A frame in the making. Lines are packed on the way, so there are never many.
#[derive(Default)]
pub struct FrameMaker {
    pages: Vec<(u32, u64)>,
    begun: Packing,
    bytes: Vec<u8>,
}

impl FrameMaker {
    /// What is packed goes to this file, if there is much.
    pub fn with(scratch: Option<Arc<Scratch>>) -> FrameMaker {
        FrameMaker {
            begun: Packing::with(scratch),
            ..FrameMaker::default()
        }
    }

    /// Adds a line to the page that comes next.
    pub fn line(&mut self, line: &[u8; LINE]) {
        self.bytes.extend_from_slice(line);
    }

    /// Adds the next page. `mask` says which of its lines were added.
    pub fn page(&mut self, page: u32, mask: u64, level: i32) -> Result<()> {
        self.pages.push((page, mask));
        self.begun.relieve(&mut self.bytes, level)
    }

    /// The frame. The next one can be made then.
    pub fn finish(&mut self, state: &State, level: i32) -> Result<Stored> {
        let begun = self.begun.take();
        let frame = IndexFrame::begun(state, &self.pages, begun, &self.bytes, level);
        self.pages.clear();
        self.bytes.clear();
        frame
    }
}

/// The lines of a frame, still compressed.
pub struct Framed {
    /// For each page: its number, the mask of its lines, and the number of lines in earlier pages.
    pub pages: Vec<(u32, u64, usize)>,
    pub lines: Pieces,
}

impl Framed {
    /// Reads the list of pages.
    pub fn read(r: &mut Reader, lines: Pieces) -> Option<Framed> {
        let mut pages = Vec::new();
        let (mut page, mut count) = (0u32, 0);
        for _ in 0..r.int()? {
            let step = u32::try_from(r.int()?).ok()?;
            if step == 0 && !pages.is_empty() {
                return None;
            }
            page = page.checked_add(step)?;
            let mask = r.word()?;
            pages.push((page, mask, count));
            count += mask.count_ones() as usize;
        }
        (lines.len() == count * LINE && page < 1 << 20).then_some(Framed { pages, lines })
    }

    /// Whether it has any lines. In the coarse level most frames have none: memory is led to them.
    pub fn has_lines(&self) -> bool {
        self.lines.len() > 0
    }

    /// Its approximate size in memory, in bytes.
    pub fn size(&self) -> usize {
        self.pages.len() * 24 + self.lines.size()
    }

    /// All pages with their lines. `spare` is a buffer that is no longer needed: the content goes there. `None`: the data is
    /// damaged.
    pub fn content(&self, spare: Vec<u8>) -> Option<Content> {
        let pages = self.pages.iter().map(|(page, mask, _)| (*page, *mask));
        Content::new(pages.collect(), self.lines.all_into(spare)?)
    }

    /// The mask of the lines that the frame has of a page.
    pub fn mask(&self, page: u32) -> u64 {
        let found = self.pages.binary_search_by_key(&page, |p| p.0);
        found.map_or(0, |i| self.pages[i].1)
    }

    /// A line of a page. Zeros if the frame does not have it. `None`: the data is damaged.
    pub fn line(&self, page: u32, line: usize) -> Option<[u8; LINE]> {
        if let Ok(i) = self.pages.binary_search_by_key(&page, |p| p.0)
            && let (_, mask, before) = self.pages[i]
            && mask & (1 << line) != 0
        {
            let rank = before + (mask & ((1 << line) - 1)).count_ones() as usize;
            return self.lines.get(rank * LINE);
        }
        Some([0; LINE])
    }
}

thread_local! {
    /// A buffer that is used again: fresh memory would cost page faults.
    static PARTS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Packs a head, which is read as a whole, and parts that can be read piece by piece.
pub fn parts(head: &[u8], rest: &[&[u8]], level: i32) -> Result<Arc<[u8]>> {
    let head = pack(head, level)?;
    PARTS.with_borrow_mut(|out| {
        out.clear();
        put(out, head.len() as u64);
        out.extend_from_slice(&head);
        for bytes in rest {
            pieces::pack(bytes, level, out)?;
        }
        let all = Arc::from(&out[..]);
        if out.capacity() > SOME {
            *out = Vec::new();
        }
        Ok(all)
    })
}

/// The same. The beginning of the first part is packed already.
pub fn parts_begun(head: &[u8], mut begun: Packing, rest: &[&[u8]], level: i32) -> Result<Stored> {
    let Some((first, others)) = rest.split_first().filter(|_| !begun.is_empty()) else {
        return Ok(Stored::Memory(parts(head, rest, level)?));
    };
    begun.add(first, level)?;
    let head = pack(head, level)?;
    let (mut start, mut end) = (Vec::new(), Vec::new());
    put(&mut start, head.len() as u64);
    start.extend_from_slice(&head);
    let (lengths, written, pieces) = begun.finished();
    start.extend_from_slice(&lengths);
    for bytes in others {
        pieces::pack(bytes, level, &mut end)?;
    }
    // Pieces are copied once, since there are many.
    let some = |bytes: &[u8]| Stored::Memory(bytes.into());
    let all = [some(&start)].into_iter().chain(written.iter().cloned());
    Ok(Stored::Several(
        all.chain([some(pieces), some(&end)]).collect(),
    ))
}

/// Inverse of [`parts`].
pub fn unpack_parts<const N: usize>(blob: &Arc<[u8]>) -> Option<(Vec<u8>, [Pieces; N])> {
    let mut r = Reader { b: blob, at: 0 };
    let n = usize::try_from(r.int()?).ok()?;
    let head = unpack(r.take(n)?)?;
    let mut at = r.at;
    let mut rest = Vec::with_capacity(N);
    for _ in 0..N {
        let p = Pieces::new(blob, at)?;
        at = p.end();
        rest.push(p);
    }
    (at == blob.len()).then_some(())?;
    Some((head, rest.try_into().ok()?))
}
