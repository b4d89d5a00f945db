//! Asks random questions about recordings. Compares the answers with a plain forward replay that logs
//! everything.

mod ask;
mod log;
mod memory;
mod more;
mod runs;
mod world;

use ask::{Asker, Tally};
use hindsight_timeline::{
    Cancel, Dense, Depth, Error, Options, Processor, Result, Timeline, index_path,
};
use log::Log;
use std::path::Path;
use std::time::{Duration, Instant};
use world::World;

/// Instructions of an interval. So few that even a short recording has many intervals.
const FINE: u64 = 3000;

/// How much is asked.
pub struct Plan {
    pub seed: u64,
    /// Number of rounds.
    pub rounds: u32,
    /// Longest time for all rounds.
    pub limit: Duration,
    /// Recordings with more instructions are left out: each instruction is kept in memory.
    pub most: u64,
}

/// Asks about one recording and prints the answers that are wrong. Says whether all are right. `None` if the
/// recording was left out.
pub fn run(trace: &Path, plan: &Plan) -> Result<Option<bool>> {
    let plain = Timeline::open(trace, unsaved(0))?;
    let threads = plain.threads()?;
    let total: u64 = threads.iter().map(|t| t.to - t.from).sum();
    let name = trace.display();
    if total > plan.most {
        println!("{name}: left out, {total} instructions");
        return Ok(None);
    }
    let started = Instant::now();
    let mut logs = Vec::new();
    for t in &threads {
        let log = Log::play(plain.trace(), t.id.0).map_err(|cause| Error::Replay {
            thread: t.id,
            cause,
        })?;
        if log.gaps {
            println!("{name}: left out, parts of it were not recorded");
            return Ok(None);
        }
        logs.push(log);
    }
    let world = World::new(logs);
    let logged = started.elapsed();
    let kinds = timelines(trace, plain)?;
    let mut tally = Tally::default();
    let mut asker = Asker::new(&world, &kinds, plan.seed, &mut tally)?;
    let started = Instant::now();
    let mut rounds = 0;
    while rounds < plan.rounds && started.elapsed() < plan.limit {
        asker.round()?;
        rounds += 1;
    }
    drop(asker);
    let _ = std::fs::remove_file(index_path(&leveled_path(trace)));
    println!(
        "{name}: {} threads, {total} instructions ({:.1} s), {rounds} rounds: {tally}",
        threads.len(),
        logged.as_secs_f64()
    );
    Ok(Some(tally.misses == 0))
}

fn unsaved(interval: u64) -> Options {
    Options {
        interval,
        unsaved: true,
        ..Options::default()
    }
}

/// The index in two levels.
fn leveled(coarse: u64) -> Options {
    Options {
        coarse,
        ..unsaved(FINE)
    }
}

/// Opens the recording without an index, with whole indexes, and with an index that was cut in its middle. Others are
/// made in levels: with all of the fine level in memory, with one part of it at a time, and with some of it in the file. One is played by the interpreter.
fn timelines(trace: &Path, plain: Timeline) -> Result<Vec<(&'static str, Timeline)>> {
    let index = index_path(trace);
    let fail = |e: std::io::Error| Error::Index {
        path: index.display().to_string(),
        what: e.to_string(),
    };
    let fine = Timeline::open(trace, unsaved(FINE))?;
    // An index with a range of interest is saved, so it gets a name of its own.
    let other = trace.with_extension("dense.hst");
    let _ = std::fs::remove_file(&other);
    std::fs::hard_link(trace, &other).map_err(fail)?;
    let dense = Timeline::open(&other, unsaved(FINE * 40))?;
    let [from, until] = [30.0, 60.0].map(|p| dense.percent(p, None));
    let done = from.and_then(|from| {
        dense.interest(
            Dense {
                from,
                until: until?,
                interval: 1024,
            },
            &|_, _| {},
            &Cancel::new(),
        )
    });
    let _ = std::fs::remove_file(&other);
    let _ = std::fs::remove_file(index_path(&other));
    done?;
    // A whole index is made, read, and cut.
    let _ = std::fs::remove_file(&index);
    let made = Timeline::open(
        trace,
        Options {
            interval: 7 * FINE,
            ..Options::default()
        },
    )?;
    made.build_index(Depth::Full, &|_, _| {}, &Cancel::new())?;
    let bytes = std::fs::read(&index).map_err(fail)?;
    std::fs::write(&index, &bytes[..bytes.len() / 2]).map_err(fail)?;
    let cut = Timeline::open(trace, unsaved(2 * FINE))?;
    let levels = Timeline::open(trace, leveled(5 * FINE))?;
    let one = Timeline::open(
        trace,
        Options {
            fine_memory: 1,
            ..leveled(3 * FINE)
        },
    )?;
    let some = some_levels(trace).map_err(fail)??;
    let interpreted = Timeline::open(
        trace,
        Options {
            processor: Processor::Interpreter,
            ..unsaved(FINE)
        },
    )?;
    Ok(vec![
        ("none", plain),
        ("fine", fine),
        ("whole", made),
        ("cut", cut),
        ("dense", dense),
        ("levels", levels),
        ("one fine part", one),
        ("some fine parts", some),
        ("interpreted", interpreted),
    ])
}

/// A recording with an index in levels that is saved gets a name of its own.
fn leveled_path(trace: &Path) -> std::path::PathBuf {
    trace.with_extension("levels.hst")
}

/// Opens the recording with an index in levels. Its file has room for about a third of the fine level: parts of it make
/// room for others while questions are asked.
fn some_levels(trace: &Path) -> std::io::Result<Result<Timeline>> {
    let other = leveled_path(trace);
    let index = index_path(&other);
    let _ = std::fs::remove_file(&other);
    let _ = std::fs::remove_file(&index);
    std::fs::hard_link(trace, &other)?;
    let options = Options {
        unsaved: false,
        ..leveled(5 * FINE)
    };
    let made = || {
        let t = Timeline::open(&other, options.clone())?;
        let all = t
            .build_index(Depth::Full, &|_, _| {}, &Cancel::new())?
            .bytes;
        drop(t);
        let _ = std::fs::remove_file(&index);
        let options = Options {
            index_size: all / 2,
            fine_memory: 1,
            ..options.clone()
        };
        let t = Timeline::open(&other, options)?;
        t.build_index(Depth::Full, &|_, _| {}, &Cancel::new())?;
        Ok(t)
    };
    let made = made();
    let _ = std::fs::remove_file(&other);
    Ok(made)
}
