//! Compares whole recordings, one pair of threads after the other.

use crate::align::Alignment;
use crate::cause::Family;
use crate::events::{Events, events};
use crate::model::Report;
use crate::side::Side;
use crate::thread::{Found, Pair, compare_threads};
use crate::{Both, Error, Options, Result};
use hindsight_timeline::{Kind, Thread, ThreadId, Timeline, syscall_name};
use std::collections::{HashSet, VecDeque};

/// The most inputs that are listed.
const INPUTS: usize = 10;

/// Compares two recordings. `progress` gets the numbers of instructions done and to do, of the first one.
///
/// # Errors
/// A recording cannot be replayed.
pub fn compare(
    timelines: Both<&Timeline>,
    options: &Options,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Report> {
    let (a, b) = std::thread::scope(|s| {
        let other = s.spawn(|| Side::new(timelines[1]));
        (Side::new(timelines[0]), other.join())
    });
    let mut sides = [a?, b.map_err(|_| Error::Stopped)??];
    let pairing = pair(&sides, options)?;
    let mut report = Report {
        alone: pairing.alone,
        ..Report::default()
    };
    let total = |p: &Pair| p.threads[0].to - p.threads[0].from;
    report.compared[1] = pairing.pairs.iter().map(total).sum();
    let mut family = Family::default();
    for p in &pairing.pairs {
        let [a, b] = [0, 1].map(|s| p.threads[s].id);
        family.threads.insert(a, b);
        let begin = [0, 1].map(|s| p.threads[s].from);
        let aligned = Alignment::new(p.events.handlers.clone(), begin);
        family.aligned.insert(a, aligned);
    }
    let mut all = Found::default();
    let mut before = 0;
    for p in &pairing.pairs {
        let told = |done: u64| progress(before + done, report.compared[1]);
        // Behind the last difference that is wanted nothing matters.
        let until = match all.differences.len() >= options.limit {
            true => all.differences.get(options.limit - 1).map(|d| d.0),
            false => None,
        };
        let found = compare_threads(&mut sides, p, &mut family, (options, until), &told)?;
        before += total(p);
        report.compared[0] += found.compared;
        all.add(found, options.limit);
    }
    report.threads = pairing.pairs.len();
    report.handlers = [0, 1].map(|s| {
        let all = pairing.pairs.iter().map(|p| p.events.handlers[s].len());
        all.sum()
    });
    report.more = all.more;
    let first = all.differences.first().map(|d| d.0);
    all.inputs
        .retain(|i| first.is_none_or(|f| i.positions[0] <= f));
    all.inputs.sort_by_key(|i| i.positions[0]);
    report.more_inputs = all.inputs.len() > INPUTS || all.more_inputs;
    all.inputs.truncate(INPUTS);
    report.inputs = all.inputs;
    report.differences = all.differences.into_iter().map(|d| d.1).collect();
    let mut reasons: Vec<_> = all.passed_over.into_iter().collect();
    reasons.sort_unstable();
    report.passed_over = reasons;
    Ok(report)
}

struct Pairing {
    pairs: Vec<Pair>,
    alone: Both<Vec<ThreadId>>,
}

/// Pairs threads: first those that began the recordings, then those that paired calls made.
fn pair(sides: &Both<Side>, options: &Options) -> Result<Pairing> {
    let timelines = [&sides[0].timeline, &sides[1].timeline];
    let lists = [&sides[0].threads, &sides[1].threads];
    let mut taken: Both<HashSet<ThreadId>> = Default::default();
    let mut todo = VecDeque::new();
    let mut begin = |taken: &mut Both<HashSet<ThreadId>>, a: &Thread, b: &Thread| {
        let free = !taken[0].contains(&a.id) && !taken[1].contains(&b.id);
        if free {
            taken[0].insert(a.id);
            taken[1].insert(b.id);
            todo.push_back([a.clone(), b.clone()]);
        }
    };
    if let [Some(a), Some(b)] = lists.map(|l| l.first()) {
        begin(&mut taken, a, b);
    }
    let mut pairs = Vec::new();
    let mut rest = 0;
    loop {
        let Some(threads) = todo.pop_front() else {
            // Those whose making is not recorded, in their order.
            let free = |s: usize| lists[s].iter().find(|t| !taken[s].contains(&t.id));
            let is_root = |t: &Thread, s: usize| is_root(&sides[s], t);
            if let [Some(a), Some(b)] = [free(0), free(1)]
                && is_root(a, 0)
                && is_root(b, 1)
                && rest < lists[0].len()
            {
                rest += 1;
                taken[0].insert(a.id);
                taken[1].insert(b.id);
                todo.push_back([a.clone(), b.clone()]);
                continue;
            }
            break;
        };
        let events = events(timelines, [threads[0].id, threads[1].id])?;
        for made in made(sides, &threads, &events)? {
            let [a, b] = made;
            if !taken[0].contains(&a.id) && !taken[1].contains(&b.id) {
                taken[0].insert(a.id);
                taken[1].insert(b.id);
                todo.push_back([a, b]);
            }
        }
        pairs.push(Pair { threads, events });
    }
    let alone = [0, 1].map(|s| {
        let free = lists[s].iter().filter(|t| !taken[s].contains(&t.id));
        free.map(|t| t.id).collect::<Vec<_>>()
    });
    let wanted = |p: &Pair| {
        let t = &p.threads[0];
        options.thread.is_none_or(|w| w == t.id) && options.image.is_none_or(|w| w == t.image)
    };
    let all = pairs.len();
    pairs.retain(wanted);
    if pairs.is_empty() && all > 0 {
        return Err(Error::Nothing(match (options.thread, options.image) {
            (Some(t), _) => format!("thread {t} that the second one has too"),
            (None, image) => format!(
                "program image {} that the second one has too",
                image.unwrap_or(0)
            ),
        }));
    }
    let some = options.thread.is_some() || options.image.is_some();
    Ok(Pairing {
        alone: if some { Default::default() } else { alone },
        pairs,
    })
}

/// Whether no call of a recorded thread made a thread.
fn is_root(side: &Side, t: &Thread) -> bool {
    let first = side.threads.iter().find(|o| o.image == t.image);
    let parent = side.timeline.processes().ok();
    let parent = parent.and_then(|all| all.into_iter().find(|p| p.image == t.image));
    first.is_some_and(|f| f.id == t.id) && parent.is_some_and(|p| p.parent == 0)
}

/// The threads and processes that two threads made with calls that belong to each other.
fn made(sides: &Both<Side>, threads: &Both<Thread>, events: &Events) -> Result<Vec<Both<Thread>>> {
    let mut out = Vec::new();
    let mut used: Both<HashSet<ThreadId>> = Default::default();
    for pair in &events.pairs {
        let mut found = [None, None];
        for s in 0..2 {
            let h = &events.each[s][pair[s]];
            let Kind::Syscall { number, result, .. } = h.kind else {
                continue;
            };
            let all = &sides[s].threads;
            let later = |t: &&Thread| t.first >= h.position && !used[s].contains(&t.id);
            found[s] = match syscall_name(number).as_str() {
                "clone" | "clone3" | "fork" | "vfork" => {
                    let is = |t: &&Thread| Some(t.tid as u64) == result;
                    all.iter().filter(later).find(is)
                }
                // It becomes another program.
                "execve" | "execveat" if result.is_none() => {
                    let by = &threads[s];
                    let is = |t: &&Thread| t.tid == by.tid && t.id != by.id;
                    all.iter().filter(later).find(is)
                }
                _ => None,
            };
        }
        if let [Some(a), Some(b)] = found {
            used[0].insert(a.id);
            used[1].insert(b.id);
            out.push([a.clone(), b.clone()]);
        }
    }
    Ok(out)
}
