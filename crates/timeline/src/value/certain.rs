//! Takes back values that may have changed since their last access, by something that is not recorded.

use super::query::Query;
use crate::access;
use crate::engine::Engine;
use crate::model::memory::Why;
use crate::model::stops::Watch;
use crate::play::Player;
use crate::play::Viewpoint;
use crate::scan::FORKS;
use crate::scan::Raw;
use crate::scan::When;
use crate::{Mapping, Position, Result, ThreadId};
use std::ops::Range;
use std::sync::Arc;

/// Takes back what is not certain, and makes it a candidate. `own`: the image is the cursor's.
pub fn certain(
    view: &mut Viewpoint,
    image: u32,
    here: Position,
    own: bool,
    q: &mut Query,
) -> Result<()> {
    let home = (view.thread(), view.count());
    let mut uncertain = Vec::new();
    for group in groups(q, image, &Arc::clone(view.engine())) {
        let Some(when) = q.when[group.start] else {
            continue;
        };
        if (group.clone())
            .map(|i| q.may_have_changed(i, when))
            .any(|d| !matches!(d, Ok(false)))
        {
            uncertain.push((group, when));
        }
    }
    for (part, when) in pinpoint(view, q, &uncertain)?.into_iter().flatten() {
        let mut changed = false;
        for i in part.clone() {
            changed |= q.may_have_changed(i, when)?;
        }
        if changed {
            let at = view.engine().position(when.thread, when.from)?;
            q.make_candidate(part.start, part.end, when, Why::Changed, at);
        }
    }
    shared(view, image, here, own, q)?;
    if own {
        view.set_position(home.0, home.1)?;
    }
    Ok(())
}

/// Groups of bytes of a word that threads of this image accessed at the same time.
fn groups(q: &Query, image: u32, engine: &Arc<Engine>) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for i in 0..q.m.bytes.len() {
        let Some(when) = q.when[i].filter(|_| q.m.bytes[i].is_some()) else {
            continue;
        };
        if engine.image(when.thread) != image {
            continue;
        }
        let begins = q.m.address.wrapping_add(i as u64).is_multiple_of(8);
        match out.last_mut() {
            Some(last) if last.end == i && !begins && q.when[last.start] == Some(when) => {
                last.end = i + 1;
            }
            _ => out.push(i..i + 1),
        }
    }
    out
}

/// Parts of a group, each with the time of its last access.
type Parts = Vec<(Range<usize>, When)>;

/// The exact times of the last accesses to groups of bytes. For each group an interval is known. The answer splits a
/// group where its bytes were accessed at different times.
pub fn pinpoint(
    view: &mut Viewpoint,
    q: &Query,
    groups: &[(Range<usize>, When)],
) -> Result<Vec<Parts>> {
    let mut out: Vec<Parts> = vec![Vec::new(); groups.len()];
    let mut threads: Vec<ThreadId> = Vec::new();
    for (o, (bytes, when)) in out.iter_mut().zip(groups) {
        match when.is_exact() {
            true => o.push((bytes.clone(), *when)),
            false if !threads.contains(&when.thread) => threads.push(when.thread),
            false => {}
        }
    }
    for t in threads {
        let wanted = (groups.iter().enumerate())
            .filter(|(_, (_, w))| w.thread == t && !w.is_exact())
            .flat_map(|(g, (bytes, w))| bytes.clone().map(move |i| (g, i, *w)));
        let wanted: Vec<(usize, usize, When)> = wanted.collect();
        let target = |(_, i, when): &(usize, usize, When)| access::Target {
            address: q.m.address.wrapping_add(*i as u64),
            len: 1,
            lo: when.from,
            hi: when.to,
        };
        let targets: Vec<_> = wanted.iter().map(target).collect();
        let home = view.thread() == t;
        let p = view.player(t)?;
        let ask = |p: &mut Player| access::last_effects(p, &targets, Watch::Access, 1);
        // The cursor's own player stays where it is. Others are searched for writes there next.
        let found = if home { p.with_helper(ask) } else { ask(p) }?;
        for ((g, i, when), found) in wanted.into_iter().zip(found) {
            let when = match found.all.first() {
                Some(l) => When {
                    from: l.effect.count,
                    to: l.effect.count + 1,
                    ..when
                },
                None => when,
            };
            match out[g].last_mut() {
                Some((range, w)) if *w == when && range.end == i => range.end = i + 1,
                _ => out[g].push((i..i + 1, when)),
            }
        }
    }
    Ok(out)
}

/// In memory that other processes may have too, a value is known only at the instruction that reads or writes it.
fn shared(
    view: &mut Viewpoint,
    image: u32,
    here: Position,
    own: bool,
    q: &mut Query,
) -> Result<()> {
    let engine = Arc::clone(view.engine());
    let there = engine.mappings(image, here)?;
    let start = q.m.address;
    let end = start.saturating_add(q.len());
    for r in there.iter().filter(|r| r.start < end && start < r.end) {
        if !changes_by_itself(&engine, image, r) {
            continue;
        }
        let mut inside = Vec::new();
        for group in groups(q, image, &engine) {
            let at = q.m.address.wrapping_add(group.start as u64);
            if r.start <= at
                && at < r.end
                && let Some(when) = q.when[group.start]
            {
                inside.push((group, when));
            }
        }
        for (part, when) in pinpoint(view, q, &inside)?.into_iter().flatten() {
            let now = (view.thread(), view.count());
            if !own || (when.thread, when.from + 1) != now {
                let at = engine.position(when.thread, when.from)?;
                q.make_candidate(part.start, part.end, when, Why::Shared, at);
            }
        }
    }
    Ok(())
}

/// Whether the content of a mapping can change although the image does nothing.
pub fn changes_by_itself(engine: &Arc<Engine>, image: u32, r: &Mapping) -> bool {
    const WRITE: u32 = 2;
    const ANONYMOUS: u32 = 0x20;
    if r.path.starts_with("[vvar") {
        return true;
    }
    if !r.is_shared() {
        return false;
    }
    let of_system = ["/usr/", "/lib", "/etc/"];
    if r.prot & WRITE == 0 && of_system.iter().any(|p| r.path.starts_with(p)) {
        return false;
    }
    // Nobody else has memory without a name, unless there was a fork.
    let nameless = r.flags & ANONYMOUS != 0 && r.path != "[shm]";
    !nameless || engine.is_forked(image) || forks(engine, image)
}

/// Whether an image forked: its children have copies of its mappings.
fn forks(engine: &Arc<Engine>, image: u32) -> bool {
    let threads = engine.threads_of(image);
    let tid = |t: &ThreadId| engine.trace.stream_info(t.0).map_or(0, |i| i.tid);
    let tids: Vec<i32> = threads.iter().map(tid).collect();
    threads.iter().any(|t| {
        let Ok(scan) = engine.scan(*t) else {
            return true;
        };
        scan.events.iter().any(|(_, e)| match e {
            Raw::Syscall {
                number,
                result: Some(r),
                ..
            } => FORKS.contains(number) && *r as i64 > 0 && !tids.contains(&(*r as i32)),
            _ => false,
        })
    })
}

/// Takes back words by which the kernel says that a thread has ended. The more is known of a word that somebody accessed, the
/// fewer are taken for such a one.
pub fn dead(engine: &Arc<Engine>, image: u32, q: &mut Query) -> Result<()> {
    let len = q.m.bytes.len() / 4 * 4;
    for i in (0..len).step_by(4) {
        let bytes: [Option<u8>; 4] = std::array::from_fn(|k| q.m.bytes[i + k].map(|b| b.value));
        let accessed = (i..i + 4).find(|k| {
            q.when[*k].is_some_and(|w| engine.image(w.thread) == image) && q.m.bytes[*k].is_some()
        });
        let (Some(k), Some(judge)) = (accessed, &q.judge) else {
            continue;
        };
        let word = bytes.map(|b| b.unwrap_or(0));
        let known = bytes.map(|b| b.is_some());
        if !judge.clobbers.names_the_dead(word, known, &judge.now) {
            continue;
        }
        let Some(when) = q.when[k] else { continue };
        let at = engine.position(when.thread, when.from)?;
        q.make_candidate(i, i + 4, when, Why::Changed, at);
    }
    Ok(())
}
