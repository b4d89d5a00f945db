//! Searches for last accesses on several processors. The searches do not depend on one another.

use super::last::{Lasts, Target, last_effects};
use crate::base::sync::{lock, spawn};
use crate::model::stops::Watch;
use crate::play::Player;
use crate::play::Viewpoint;
use crate::{Error, Result, ThreadId};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The virtual processors of this many threads are in use at the same time.
const THREADS: usize = 8;
/// At most this many processors are used.
const PROCESSORS: usize = 8;

/// A question to one thread.
pub struct Asked {
    pub thread: ThreadId,
    pub targets: Vec<Target>,
}

/// A virtual processor, the numbers of the questions that it answers one after the other, and the answers.
struct Lane {
    player: Player,
    asked: Vec<usize>,
    found: Vec<Result<Vec<Lasts>>>,
}

/// Like [`last_effects`], for several questions, each to a thread. A thread with several questions gets two virtual
/// processors.
pub fn last_of_several(
    view: &mut Viewpoint,
    asked: &[Asked],
    watch: Watch,
    most: usize,
) -> Result<Vec<Vec<Lasts>>> {
    let processors = hindsight_guard::processors();
    let mut out: Vec<Vec<Lasts>> = asked.iter().map(|_| Vec::new()).collect();
    let mut threads: BTreeMap<ThreadId, Vec<usize>> = BTreeMap::new();
    // Questions that are answered one after the other.
    let mut rest = Vec::new();
    for (i, a) in asked.iter().enumerate() {
        match asked.len() < 2 || processors < 2 {
            true => rest.push(i),
            false => threads.entry(a.thread).or_default().push(i),
        }
    }
    let threads: Vec<_> = threads.into_iter().collect();
    for some in threads.chunks(THREADS) {
        let mut lanes = Vec::new();
        let mut failed = None;
        for (t, list) in some {
            match lanes_of(view, *t, list) {
                Ok(l) => lanes.extend(l),
                Err(e) if is_space(&e) => rest.extend(list),
                Err(e) => failed = Some(e),
            }
        }
        if failed.is_none() {
            lanes = run(lanes, asked, watch, most, processors.min(PROCESSORS));
        }
        for lane in lanes {
            for (i, found) in lane.asked.into_iter().zip(lane.found) {
                match found {
                    Ok(f) => out[i] = f,
                    Err(e) => failed = failed.or(Some(e)),
                }
            }
            view.give_player(lane.player);
        }
        if let Some(e) = failed {
            return Err(e);
        }
    }
    for i in rest {
        let p = view.player(asked[i].thread)?;
        out[i] = last_effects(p, &asked[i].targets, watch, most)?;
    }
    Ok(out)
}

/// Whether a virtual processor could not get address space.
fn is_space(e: &Error) -> bool {
    let Error::Replay { cause, .. } = e else {
        return false;
    };
    matches!(cause, hindsight_replay::Error::AddressSpace { .. })
}

/// One or two virtual processors for the questions to a thread.
fn lanes_of(view: &mut Viewpoint, thread: ThreadId, asked: &[usize]) -> Result<Vec<Lane>> {
    let lane = |player, asked: Vec<usize>| Lane {
        player,
        asked,
        found: Vec::new(),
    };
    let mut player = view.take_player(thread)?;
    if asked.len() < 2 {
        return Ok(vec![lane(player, asked.to_vec())]);
    }
    let helper = match player.take_helper() {
        Ok(h) => h,
        Err(e) if is_space(&e) => return Ok(vec![lane(player, asked.to_vec())]),
        Err(e) => {
            view.give_player(player);
            return Err(e);
        }
    };
    let (first, second) = asked.split_at(asked.len().div_ceil(2));
    Ok(vec![
        lane(player, first.to_vec()),
        lane(*helper, second.to_vec()),
    ])
}

/// Runs all lanes, as many at the same time as there are processors.
fn run(
    lanes: Vec<Lane>,
    asked: &[Asked],
    watch: Watch,
    most: usize,
    processors: usize,
) -> Vec<Lane> {
    let count = lanes.len();
    let lanes: Vec<Mutex<Lane>> = lanes.into_iter().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(lane) = lanes.get(next.fetch_add(1, Relaxed)) {
            let lane = &mut *lock(lane);
            for i in &lane.asked {
                let a = &asked[*i];
                let found = last_effects(&mut lane.player, &a.targets, watch, most);
                lane.found.push(found);
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 1..processors.min(count) {
            spawn(s, work);
        }
        work();
    });
    let lanes = lanes.into_iter();
    let engine = lanes.map(|l| l.into_inner().unwrap_or_else(|e| e.into_inner()));
    engine.collect()
}
