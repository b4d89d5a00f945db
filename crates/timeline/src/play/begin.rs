//! Where a machine without marks can begin to play: at key frames of the recording, and at borders of the coarse index.

use crate::engine::Engine;
use crate::index::{self, IndexPart};
use crate::model::error::replay;
use crate::recording::Chunks;
use crate::{Result, ThreadId};
use hindsight_replay::{Lines, Machine, State};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a machine begins to play.
pub enum Begin {
    /// At the key frame that begins this chunk.
    KeyFrame(usize),
    /// Where this interval of a coarse part begins.
    Border(Arc<IndexPart>, usize),
    /// Where the player is.
    Player(Box<State>, Lines),
}

impl Begin {
    /// Lets the machine, which belongs to the thread, begin there.
    pub fn start(
        &self,
        engine: &Arc<Engine>,
        thread: ThreadId,
        m: &mut Machine<'static>,
        progress: &index::Progress,
    ) -> Result<()> {
        let fail = |e| replay(thread, e);
        let source = |chunk| Box::new(Chunks::new(&engine.recording, thread, chunk));
        let mut resume = |state: &State, content: &Lines| {
            m.set_memory(content).map_err(fail)?;
            let chunk = index::chunk_of(engine, thread, state.position);
            m.resume(source(chunk), state).map_err(fail)
        };
        match self {
            Begin::KeyFrame(chunk) => m.from_keyframe(source(*chunk)).map_err(fail),
            Begin::Border(part, interval) => {
                let (state, content) = engine.whole_frame(part, *interval, progress)?;
                resume(&state, &content)
            }
            Begin::Player(state, content) => resume(state, content),
        }
    }
}

/// Where a machine can begin to play, ascending: all places between `lo` and `hi`, and some before `lo`.
pub fn begins(
    engine: &Arc<Engine>,
    thread: ThreadId,
    (lo, hi): (u64, u64),
) -> Result<BTreeMap<u64, Begin>> {
    let ranges = engine.part_ranges_of(thread);
    let mut all = BTreeMap::new();
    for r in ranges.iter().filter(|r| r.from < hi) {
        all.insert(r.from, Begin::KeyFrame(r.chunk));
        let coarse = engine.part_if_built(*r).filter(|_| r.is_coarse());
        let borders = coarse
            .iter()
            .flat_map(|p| p.borders.iter().enumerate().skip(1).map(move |b| (p, b)));
        for (part, (i, at)) in borders.filter(|b| *b.1.1 < hi) {
            all.insert(*at, Begin::Border(Arc::clone(part), i));
        }
    }
    if engine.has_steps(thread) {
        return Ok(all);
    }
    let scan = engine.scan(thread)?;
    let mut before = hi;
    while let Some(t) = before.checked_sub(1).and_then(|n| scan.told_at(n)) {
        if t.is_whole() {
            all.entry(t.at).or_insert(Begin::KeyFrame(t.chunk()));
        }
        if t.at < lo {
            break;
        }
        before = t.at;
    }
    Ok(all)
}
