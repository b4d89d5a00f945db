//! How often code was executed.

use super::numbers::{Front, Numbers};
use super::{file_at, instructions, runs, share, threads};
use crate::bounds::Bounds;
use crate::recording::Recording;
use crate::rows::Stop;
use hindsight_timeline::{Cancel, Executed, Run, ThreadId};
use std::collections::HashMap;

/// Instructions that stand one behind the other, and how often they were executed.
#[derive(Clone, Debug)]
pub struct Block {
    /// The program image.
    pub image: u32,
    /// The file that has it; see [`Recording::file`].
    pub file: Option<usize>,
    /// The address of each instruction, and that behind the last one.
    pub pcs: Box<[u64]>,
    /// How often.
    pub count: u64,
}

/// A part has at least this many instructions: where it begins, memory is laid out.
const LEAST: u64 = 500_000_000;
/// So many parts for each worker, so that all end at about the same time.
const PARTS: u64 = 3;

/// A part of a thread.
struct Part {
    thread: ThreadId,
    image: u32,
    from: u64,
    until: u64,
}

/// A block without its count: program image, file, addresses.
type Code = (u32, Option<usize>, Box<[u64]>);

/// A worker keeps at most this many addresses of instructions.
const MOST: usize = 1 << 26;

/// What one worker has found.
#[derive(Default)]
struct Counted {
    /// Addresses in blocks.
    size: usize,
    numbers: Numbers,
    blocks: Vec<Block>,
    /// Of each block. They lie together, as they change all the time.
    counts: Vec<u64>,
}

/// All code that was executed by the threads that lie within the bounds. The same code may stand there several times if it
/// overlaps, or changed in between.
pub fn blocks(r: &Recording, bounds: &Bounds, cancel: &Cancel) -> Result<Vec<Block>, Stop> {
    let mut parts = Vec::new();
    let threads = threads(r, bounds)?;
    let all: u64 = threads.iter().map(|t| t.3 - t.2).sum();
    let least = LEAST.max(all / (super::jobs() as u64 * PARTS));
    for (thread, image, from, until) in threads {
        let mut last = from;
        for at in runs(r, thread, cancel)?.starts()? {
            if at >= last + least && at < until {
                parts.push(Part {
                    thread,
                    image,
                    from: last,
                    until: at,
                });
                last = at;
            }
        }
        parts.push(Part {
            thread,
            image,
            from: last,
            until,
        });
    }
    let counted = share(&parts, Counted::default, |all, part| {
        all.play(r, part, cancel)
    })?;
    let mut sums: HashMap<Code, u64> = HashMap::new();
    for all in counted {
        for (block, count) in all.blocks.into_iter().zip(all.counts) {
            *sums
                .entry((block.image, block.file, block.pcs))
                .or_default() += count;
        }
    }
    let mut all: Vec<Block> = sums
        .into_iter()
        .map(|((image, file, pcs), count)| Block {
            image,
            file,
            pcs,
            count,
        })
        .collect();
    all.sort_by(|a, b| (a.image, &a.pcs).cmp(&(b.image, &b.pcs)));
    Ok(all)
}

/// How often a block was executed, as far as its count does not say so yet.
#[derive(Clone, Copy, Default)]
struct Hits {
    /// Number of the block, from 1. 0 is none.
    number: u32,
    hits: u32,
}

impl Hits {
    fn add(self, counts: &mut [u64]) {
        if let Some(at) = self.number.checked_sub(1) {
            counts[at as usize] += u64::from(self.hits);
        }
    }
}

impl Counted {
    fn play(&mut self, r: &Recording, part: &Part, cancel: &Cancel) -> Result<(), Stop> {
        let mut failed = None;
        let mut runs = runs(r, part.thread, cancel)?;
        let mut front: Front<Hits> = Front::default();
        runs.play((part.from, part.until), |e, taken| {
            if e.interrupted {
                // It goes on, and counts when it is done.
                return true;
            }
            let (blocks, counts) = (&mut self.blocks, &mut self.counts);
            front.begin(e, |hits| hits.add(counts));
            for run in taken {
                let found = front.of(run, |old| {
                    old.unwrap_or_default().add(counts);
                    let size = &mut self.size;
                    let number = self.numbers.find(part.image, e, run, || {
                        blocks.push(block(r, part, e, run)?);
                        *size += run.instructions() as usize + 1;
                        if *size > MOST {
                            return Err(too_much());
                        }
                        counts.push(0);
                        Ok::<_, Stop>(counts.len() as u32)
                    })?;
                    Ok(Hits { number, hits: 0 })
                });
                match found {
                    Ok(h) => {
                        h.hits += 1;
                        if h.hits == u32::MAX {
                            h.add(counts);
                            h.hits = 0;
                        }
                    }
                    Err(e) => {
                        failed = Some(e);
                        return false;
                    }
                }
            }
            true
        })?;
        front.empty(|hits| hits.add(&mut self.counts));
        failed.map_or(Ok(()), Err)
    }
}

fn too_much() -> Stop {
    anyhow::anyhow!("the program changed its code too often to count it").into()
}

fn block(r: &Recording, part: &Part, e: &Executed, run: Run) -> Result<Block, Stop> {
    let list = instructions(e, run);
    let mut pcs: Vec<u64> = list.iter().map(|i| i.ip()).collect();
    pcs.push(list.last().map_or(run.pc(), |i| i.next_ip()));
    Ok(Block {
        image: part.image,
        file: file_at(r, part.image, run.pc(), part.thread, e.count)?,
        pcs: pcs.into(),
        count: 0,
    })
}
