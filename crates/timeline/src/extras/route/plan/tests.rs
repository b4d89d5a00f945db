//! The search against a plain simulation: what a debugger counts that sets one thing at a time, over the list of all
//! instructions that were executed.

use super::super::code::Mark;
use super::super::spans::Span;
use super::*;
use hindsight_random::Rng;
use hindsight_replay::Run;
use std::collections::BTreeSet;

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;

/// A program of instructions of one byte, as it was executed.
struct Program {
    /// The runs, one behind the other.
    runs: Vec<(u64, u16)>,
    /// For each step the address of its next instruction.
    pcs: Vec<u64>,
    /// What the instruction of each step accesses.
    words: Vec<Option<u64>>,
}

impl Program {
    /// Loops in loops, of runs that begin and end anywhere.
    fn new(random: &mut Rng) -> Program {
        let (mut runs, count) = (Vec::new(), 1 + random.below(4));
        for _ in 0..count {
            let body: Vec<(u64, u16)> = (0..1 + random.below(4))
                .map(|_| (CODE + random.below(24), 1 + random.below(6) as u16))
                .collect();
            for _ in 0..1 + random.below(6) {
                let part = random.below(body.len() as u64 + 1) as usize;
                runs.extend(&body[part..]);
                runs.extend(&body);
            }
        }
        let each = |r: &(u64, u16)| r.0..r.0 + u64::from(r.1);
        let pcs: Vec<u64> = runs.iter().flat_map(each).collect();
        let words = pcs.iter().map(|pc| {
            // Some instructions access always the same, some others not.
            match pc % 5 {
                0 => Some(DATA + pc % 3 * 8),
                1 => Some(DATA + random.below(4) * 8),
                _ => None,
            }
        });
        let words = words.collect();
        Program { runs, pcs, words }
    }

    fn spans(&self) -> Spans {
        let span = |start: u64, code: bool| Span {
            path: "/program".into(),
            range: start..start + 0x1000,
            usable: 0,
            gone: u64::MAX,
            has_code: code,
            code: code.then_some(start..start + 0x1000).into_iter().collect(),
        };
        Spans::of(vec![span(CODE, true), span(DATA, false)])
    }

    /// Tells the runs of a part, as a replay does.
    fn play(&self, spans: &mut Spans, code: &mut Code, kept: &mut Kept, range: (u64, u64)) {
        let mut at = 0;
        for (pc, len) in &self.runs {
            let (begin, end) = (at, at + u64::from(*len));
            at = end;
            let (from, to) = (begin.max(range.0), end.min(range.1));
            if from >= to {
                continue;
            }
            let run = Run::of(pc + (from - begin), (to - from) as u16).unwrap();
            let number = code.number(run, spans, |_, buf| {
                buf.fill(0x90);
                buf.len()
            });
            kept.push(number, (from, to));
        }
    }

    /// Whether a setting stops at a step, which is at least 1.
    fn stops(&self, (address, data): (u64, bool), step: u64) -> bool {
        match data {
            false => self.pcs[step as usize] == address,
            true => self.words[step as usize - 1] == Some(address),
        }
    }

    /// The way to a step, and the fewest stops if everything may be set.
    fn find(
        &self,
        (goal, data_from): (u64, u64),
        candidates: &Candidates,
        most_runs: usize,
        data: bool,
    ) -> (Plan<'static>, Found) {
        let candidates: &'static Candidates = Box::leak(Box::new(candidates.clone()));
        let search = (ThreadId(1), goal, data_from);
        let mut plan = Plan::new(self.spans(), candidates, search, most_runs);
        plan.goal = Some(self.pcs[goal as usize]);
        let (mut code, mut kept) = (Code::default(), Kept::new(most_runs));
        self.play(&mut plan.spans, &mut code, &mut kept, (0, goal));
        let mut marks = plan.marks(&code);
        let mut log = Log::new(data_from, 1 << 20);
        let mut words = std::collections::BTreeMap::new();
        for step in data_from.max(1)..=goal {
            let mut stops = Vec::new();
            let word = self.words[step as usize - 1].filter(|_| data && step > data_from);
            stops.extend(word.map(|w| {
                *words.entry(w).or_insert_with(|| {
                    plan.settings.push(Named {
                        address: w,
                        module: 1,
                        data: true,
                        near: true,
                        counts: ALL,
                    });
                    plan.settings.len() as u32 - 1
                })
            }));
            let at = marks.at.get(&self.pcs[step as usize]);
            stops.extend(
                at.into_iter()
                    .flat_map(|at| at.mark.into_iter().chain(at.near)),
            );
            let exact = |setting| StopCandidate {
                setting,
                exact: true,
            };
            let stops: Vec<StopCandidate> = stops.into_iter().map(exact).collect();
            log.add(step, &stops);
        }
        let mut searches = plan.searches();
        log.backwards(|step, stops| searches.push(step, stops));
        let mut spans = self.spans();
        let kept = (&mut kept, &mut code, &mut marks);
        coarse(data_from, kept, &mut searches, |kept, code, range| {
            self.play(&mut spans, code, kept, range);
            Ok(())
        })
        .unwrap();
        (plan, searches.found())
    }

    /// Follows a way as a debugger would.
    fn walk(&self, plan: &Plan, way: &[Leg]) {
        let mut at = 0;
        for leg in way {
            let (setting, address) = plan.setting(leg.setting);
            for _ in 0..leg.hits {
                at += 1;
                while !self.stops((address, setting.data), at) {
                    at += 1;
                }
            }
            assert_eq!(at, leg.step, "{way:?}");
        }
        assert_eq!(at, plan.steps);
    }

    /// The fewest stops with these settings, by trying all of them from each step.
    fn fewest(&self, goal: u64, settings: &BTreeSet<(u64, bool)>) -> Option<u64> {
        let mut fewest = vec![None; goal as usize + 1];
        fewest[0] = Some(0);
        for from in 0..goal {
            let Some(before) = fewest[from as usize] else {
                continue;
            };
            for setting in settings {
                let next = (from + 1..=goal).find(|s| self.stops(*setting, *s));
                if let Some(next) = next {
                    let n: &mut Option<u64> = &mut fewest[next as usize];
                    *n = Some(n.map_or(before + 1, |n| n.min(before + 1)));
                }
            }
        }
        fewest[goal as usize]
    }
}

fn stops(way: &[Leg]) -> u64 {
    way.iter().map(|l| l.hits).sum()
}

/// Wherever the part ends that is looked at one by one, also in the middle of a run, and however much is kept.
#[test]
fn ways_are_as_a_debugger_counts_and_the_shortest_ones() {
    let mut random = Rng(11);
    let (mut far, mut lost, mut listed_ways) = (0, 0, 0);
    for _ in 0..150 {
        let p = Program::new(&mut random);
        let goal = 1 + random.below(p.pcs.len() as u64 - 1).min(110);
        if goal as usize >= p.pcs.len() {
            continue;
        }
        let code: BTreeSet<(u64, bool)> = p.pcs.iter().map(|pc| (*pc, false)).collect();
        let words = p.words.iter().flatten().map(|w| (*w, true));
        let all: BTreeSet<(u64, bool)> = code.iter().copied().chain(words).collect();
        let most = p.fewest(goal, &code);
        let least = p.fewest(goal, &all);
        far = far.max(most.unwrap_or(0));
        let list: BTreeSet<u64> = (code.iter().map(|c| c.0))
            .filter(|pc| random.below(4) == 0 || *pc == p.pcs[goal as usize])
            .collect();
        let listed = p.fewest(goal, &list.iter().map(|pc| (*pc, false)).collect());
        let candidates = Candidates::Listed {
            code: list,
            words: BTreeSet::new(),
        };
        for data_from in 0..=goal {
            // The whole is kept, and next to nothing is.
            for runs in [1 << 20, 1] {
                let (plan, found) =
                    p.find((goal, data_from), &Candidates::Instructions, runs, false);
                let way = found.way.ok();
                assert_eq!(
                    way.as_deref().map(stops),
                    most,
                    "{:?} to {goal} from {data_from}",
                    p.runs
                );
                if let Some(way) = way {
                    p.walk(&plan, &way);
                }
                let (plan, found) = p.find((goal, data_from), &candidates, runs, false);
                let way = found.way.ok();
                assert_eq!(
                    way.as_deref().map(stops),
                    listed,
                    "{:?} to {goal} from {data_from}",
                    p.runs
                );
                match way {
                    Some(way) => {
                        listed_ways += 1;
                        p.walk(&plan, &way);
                    }
                    None => lost += 1,
                }
            }
            let (plan, found) = p.find((goal, data_from), &Candidates::All, 1 << 20, true);
            let way = found.way.unwrap();
            p.walk(&plan, &way);
            assert!(Some(stops(&way)) >= least && Some(stops(&way)) <= most);
            if data_from == 0 {
                assert_eq!(Some(stops(&way)), least, "{:?} to {goal}", p.runs);
            }
        }
    }
    assert!(
        far > 8 && listed_ways > 1000,
        "{far} stops, {listed_ways} ways, {lost} without"
    );
}

/// Passes begin where they must, not at the start. A replay that tells what the first one did not is an error.
#[test]
fn what_was_not_kept_is_played_from_the_right_step() {
    let runs = 5000u64;
    let p = Program {
        runs: (0..runs).map(|i| (CODE + i % 7, 2)).collect(),
        pcs: (0..runs)
            .flat_map(|i| [CODE + i % 7, CODE + i % 7 + 1])
            .collect(),
        words: vec![None; 2 * runs as usize],
    };
    let (goal, mut spans) = (2 * runs - 1, p.spans());
    let (mut code, mut kept) = (Code::default(), Kept::new(BLOCKS * 3));
    p.play(&mut spans, &mut code, &mut kept, (0, goal));
    let search = (ThreadId(1), goal, goal);
    let mut plan = Plan::new(p.spans(), &Candidates::Instructions, search, 1);
    let mut marks = plan.marks(&code);
    let mut searches = plan.searches();
    let mut played = 0;
    let parts = (&mut kept, &mut code, &mut marks);
    coarse(goal, parts, &mut searches, |kept, code, range| {
        played += range.1 - range.0;
        p.play(&mut spans, code, kept, range);
        Ok(())
    })
    .unwrap();
    // All that was not kept, once.
    let once = goal - 2 * 3 * BLOCKS as u64;
    assert!((once..once + 12).contains(&played), "{played} of {goal}");
    let unknown = Block {
        from: 0,
        to: 5,
        runs: vec![1 << 20],
    };
    assert!(unknown.backwards(&marks, 5, &mut plan.searches()).is_err());
}

/// The program stands at its first instruction when it starts, and the second one is where it stops first.
#[test]
fn a_program_of_few_instructions() {
    let p = Program {
        runs: vec![(CODE, 4)],
        pcs: (CODE..CODE + 4).collect(),
        words: vec![None; 4],
    };
    for goal in 1..4 {
        for list in [CODE + 1, CODE + 2] {
            let candidates = Candidates::Listed {
                code: [list, CODE + goal].into(),
                words: BTreeSet::new(),
            };
            let (plan, found) = p.find((goal, goal), &candidates, 1, false);
            let way = found.way.unwrap();
            assert_eq!(stops(&way), 1);
            p.walk(&plan, &way);
        }
    }
}

/// Where the first listed instruction of some that are always executed together cannot be set, the next one serves.
#[test]
fn what_cannot_be_set_is_not_in_the_way_of_others() {
    let p = Program {
        runs: vec![(CODE + 0x10, 1), (CODE, 4), (CODE, 4)],
        pcs: Vec::new(),
        words: Vec::new(),
    };
    let (mut code, mut kept) = (Code::default(), Kept::new(1));
    let mut spans = p.spans();
    p.play(&mut spans, &mut code, &mut kept, (0, 9));
    code.strings.insert(CODE + 1);
    let list = [CODE + 1, CODE + 3];
    let mut names = Vec::new();
    let marks = code.marks(
        None,
        |pc| list.contains(&pc),
        |pc, role| {
            names.push((pc, role));
            names.len() as u32 - 1
        },
    );
    assert!(names.contains(&(CODE + 3, Role::Listed)), "{names:x?}");
    assert!(!names.iter().any(|n| n.0 == CODE + 1));
    let of: Vec<&Mark> = marks.of(1).unwrap().1.iter().collect();
    assert_eq!(of.last().map(|m| m.behind), Some(3));
}
