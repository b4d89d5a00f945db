//! Frames: states from which replay can begin, with the memory that it needs.

use super::codec::{LINE, Lines, PAGE, Reader, pack, put, unpack};
use super::pieces::{self, Packing, Pieces};
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
    pub fn pack(state: &State, lines: &Lines, level: i32) -> Result<IndexFrame> {
        let pages: Vec<(u32, u64)> = lines.iter().map(|(p, l)| (*p, l.0)).collect();
        let mut bodies = Vec::new();
        for (mask, bytes) in lines.values() {
            for i in (0..64).filter(|i| mask & (1 << i) != 0) {
                bodies.extend_from_slice(&bytes[i * LINE..(i + 1) * LINE]);
            }
        }
        IndexFrame::made(state, &pages, &bodies, level)
    }

    /// Makes a frame from pages with masks of their lines, ascending, and the bytes of these lines.
    pub(super) fn made(
        state: &State,
        pages: &[(u32, u64)],
        lines: &[u8],
        level: i32,
    ) -> Result<IndexFrame> {
        let mut out = Vec::new();
        put_state(&mut out, state);
        put(&mut out, pages.len() as u64);
        let mut before = 0;
        for (page, mask) in pages {
            put(&mut out, (*page - before) as u64);
            before = *page;
            out.extend_from_slice(&mask.to_le_bytes());
        }
        Ok(IndexFrame {
            position: state.position,
            blob: parts(&out, &[lines], level)?,
        })
    }

    /// The state, and the lines ready for questions.
    pub fn open(&self) -> Option<(State, Framed)> {
        let (raw, [lines]) = unpack_parts(&self.blob)?;
        let mut r = Reader { b: &raw, at: 0 };
        let state = state_of(&mut r, self.position)?;
        let framed = Framed::read(&mut r, lines)?;
        (r.at == raw.len()).then_some((state, framed))
    }

    /// The state, and all lines by page.
    pub fn unpack(&self) -> Option<(State, Lines)> {
        let (state, framed) = self.open()?;
        let raw = framed.lines.all()?;
        let mut rest = raw.chunks_exact(LINE);
        let mut lines = Lines::new();
        for (page, mask, _) in &framed.pages {
            let mut bytes = Box::new([0; PAGE]);
            for i in (0..64).filter(|i| mask & (1 << i) != 0) {
                bytes[i * LINE..(i + 1) * LINE].copy_from_slice(rest.next()?);
            }
            lines.insert(*page, (*mask, bytes));
        }
        Some((state, lines))
    }

    /// The state at the start of the interval, and what the interval needs in the window. `spare` is a buffer that is
    /// no longer needed: the content goes there.
    pub fn load(&self, spare: Vec<u8>) -> Option<(State, Content)> {
        let (state, framed) = self.open()?;
        Some((state, framed.content(spare)?))
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
    parts_with(head, None, rest, level)
}

/// The same, with a first part that is packed already.
pub fn parts_with(
    head: &[u8],
    first: Option<&Packing>,
    rest: &[&[u8]],
    level: i32,
) -> Result<Arc<[u8]>> {
    let head = pack(head, level)?;
    PARTS.with_borrow_mut(|out| {
        out.clear();
        put(out, head.len() as u64);
        out.extend_from_slice(&head);
        if let Some(first) = first {
            first.finish(out);
        }
        for bytes in rest {
            pieces::pack(bytes, level, out)?;
        }
        Ok(Arc::from(&out[..]))
    })
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
