//! Finds the fewest stops with which a live program reaches a step. Only one breakpoint is set at a time.
//!
//! A *setting* is what a debugger can be told to stop at: the address of an instruction, or of data that is read or
//! written. Steps are numbered from 0, the start. Each step is given with the settings that stop at it.
//!
//! A setting leads to a step from any step between its latest earlier stop and here, if it is usable there. Of these
//! places, the one with the fewest stops from the start is best.
//!
//! The best place is found along the chain of best places. All steps between a step and its best place need more stops
//! than that place. So the chain from a step leads through all candidates. A step that the search passes once is never
//! passed again. So all steps together take linear time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What stops: a number that the caller chooses.
pub type Setting = u64;

/// A setting that stops at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopCandidate {
    /// What stops.
    pub setting: Setting,
    /// The first step at which it can be set; 0: from the start.
    pub usable: u32,
    /// It stops here exactly once. A setting that does not still counts as a stop, but leads nowhere.
    pub exact: bool,
}

/// One part of the way: use this setting, run, and be at this step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg {
    /// The step that is reached.
    pub step: u32,
    /// The setting to use.
    pub setting: Setting,
}

/// No setting leads to the step.
const NONE: u32 = u32::MAX;

/// Finds ways to steps, which are given one after the other.
#[derive(Default)]
pub struct Breakpath {
    /// For each step, the best place to have stopped before.
    before: Vec<u32>,
    /// The number of the setting that leads from there to the step, or [`NONE`].
    by: Vec<u32>,
    /// For each setting, its number and its latest stop.
    latest: HashMap<Setting, (u32, u32), BuildHasherDefault<Mix>>,
    settings: Vec<Setting>,
}

impl Breakpath {
    /// Begins at step 0.
    pub fn new() -> Breakpath {
        Breakpath {
            before: vec![0],
            by: vec![NONE],
            ..Breakpath::default()
        }
    }

    /// The approximate number of bytes that each step takes, and each setting in addition.
    pub const BYTES: (usize, usize) = (8, 40);

    /// The number of the next step.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// The number of different settings so far.
    pub fn settings(&self) -> usize {
        self.settings.len()
    }

    /// Adds a step with what stops at it. If several settings serve equally well, the first one counts.
    ///
    /// # Panics
    /// After 2^32 - 2 steps.
    pub fn push(&mut self, touches: &[StopCandidate]) {
        let i = u32::try_from(self.before.len()).ok().filter(|i| *i < NONE);
        let i = i.expect("fewer steps than numbers");
        let (mut earliest, mut by) = (i, NONE);
        for t in touches {
            let count = self.settings.len() as u32;
            let known = self.latest.entry(t.setting).or_insert_with(|| {
                self.settings.push(t.setting);
                (count, 0)
            });
            let from = known.1.max(t.usable);
            known.1 = i;
            if t.exact && from < earliest {
                (earliest, by) = (from, known.0);
            }
        }
        let mut best = i - 1;
        while best > 0 && (self.before[best as usize] >= earliest || by == NONE) {
            if by == NONE && self.reached(best) {
                break;
            }
            best = self.before[best as usize];
        }
        // No place from which it could be reached can be reached itself.
        if by != NONE && !self.reached(best) {
            by = NONE;
            while !self.reached(best) {
                best = self.before[best as usize];
            }
        }
        self.before.push(best);
        self.by.push(by);
    }

    /// Whether a way leads to a step.
    fn reached(&self, step: u32) -> bool {
        step == 0 || self.by[step as usize] != NONE
    }

    /// The way to a step. `None`: no settings lead there, or there is no such step.
    pub fn way(&self, step: u32) -> Option<Vec<Leg>> {
        let mut at = step;
        let mut out = Vec::new();
        while at > 0 {
            let by = *self.by.get(at as usize)?;
            let setting = *self.settings.get(by as usize)?;
            out.push(Leg { step: at, setting });
            at = self.before[at as usize];
        }
        out.reverse();
        Some(out)
    }
}

/// A quick hash. The numbers are neither secret nor chosen by an attacker.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(*b as u64));
    }
    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(setting: Setting) -> StopCandidate {
        StopCandidate {
            setting,
            usable: 0,
            exact: true,
        }
    }

    fn plan(steps: &[Vec<StopCandidate>]) -> Breakpath {
        let mut b = Breakpath::new();
        steps.iter().for_each(|s| b.push(s));
        b
    }

    /// The fewest stops to every step, by trying all pairs of steps.
    fn brute(steps: &[Vec<StopCandidate>]) -> Vec<Option<usize>> {
        let mut stops = vec![Some(0)];
        for i in 1..=steps.len() {
            let mut best = None;
            for (j, before) in stops.iter().enumerate() {
                let Some(before) = before else { continue };
                let leads = |t: &&StopCandidate| {
                    let again =
                        (j + 1..i).any(|k| steps[k - 1].iter().any(|o| o.setting == t.setting));
                    t.exact && t.usable as usize <= j && !again
                };
                if steps[i - 1].iter().any(|t| leads(&t)) && best.is_none_or(|b| before + 1 < b) {
                    best = Some(before + 1);
                }
            }
            stops.push(best);
        }
        stops
    }

    /// Follows a way. Fails where a setting would stop elsewhere.
    fn walk(steps: &[Vec<StopCandidate>], way: &[Leg]) {
        let mut at = 0;
        for leg in way {
            let usable = |t: &StopCandidate| t.setting == leg.setting && t.usable as usize <= at;
            let next = (at + 1..=steps.len())
                .find(|i| steps[i - 1].iter().any(|t| t.setting == leg.setting))
                .unwrap();
            assert_eq!(next, leg.step as usize);
            assert!(steps[next - 1].iter().any(|t| usable(t) && t.exact));
            at = next;
        }
    }

    #[test]
    fn five_steps() {
        let (x, y) = (vec![touch(1)], vec![touch(2)]);
        let steps = [x.clone(), x.clone(), x.clone(), y, x];
        let b = plan(&steps);
        let stops: Vec<usize> = (1..=5).map(|i| b.way(i).unwrap().len()).collect();
        assert_eq!(stops, [1, 2, 3, 1, 2]);
        assert_eq!((b.before[5], b.before[4], b.before[3]), (4, 0, 2));
        let way = b.way(5).unwrap();
        let leg = |step, setting| Leg { step, setting };
        assert_eq!(way, [leg(4, 2), leg(5, 1)]);
        assert_eq!(b.way(0), Some(vec![]));
        assert_eq!(b.way(6), None);
    }

    #[test]
    fn as_brute_force() {
        let mut state = 0x1234_5678_9abc_def0u64;
        let mut random = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let mut far = 0;
        for round in 0..600 {
            let kinds = 1 + random(12);
            let steps: Vec<Vec<StopCandidate>> = (0..random(60))
                .map(|_| {
                    let mut list: Vec<StopCandidate> = Vec::new();
                    for _ in 0..random(4) {
                        // A few settings are touched often. Some become usable late or are not exact.
                        let setting = random(kinds).min(random(kinds));
                        if list.iter().all(|t| t.setting != setting) {
                            list.push(StopCandidate {
                                setting,
                                usable: (setting * 7 % 23) as u32 * (round % 3 == 0) as u32,
                                exact: round % 2 == 0 || random(4) > 0,
                            });
                        }
                    }
                    list
                })
                .collect();
            let b = plan(&steps);
            for (i, want) in brute(&steps).iter().enumerate() {
                let way = b.way(i as u32);
                assert_eq!(way.as_ref().map(Vec::len), *want, "step {i} of {steps:?}");
                if let Some(way) = way {
                    walk(&steps, &way);
                    far = far.max(way.len());
                }
            }
        }
        assert!(far > 8, "the cases are too easy: {far}");
    }

    /// The time per step must not grow with the number of steps. The test prints what it measured.
    #[test]
    fn is_linear() {
        let time = |steps: u32| {
            let now = std::time::Instant::now();
            let mut b = Breakpath::new();
            for i in 0..steps {
                // A loop in a loop, with data.
                let pc = if i % 4096 < 4000 { i % 64 } else { i % 4096 };
                let data = 100_000 + (i / 64) % 5000;
                b.push(&[touch(pc as u64 * 4), touch(data as u64 * 8)]);
            }
            assert!(b.way(steps).unwrap().len() < 100_000);
            steps as f64 / now.elapsed().as_secs_f64()
        };
        time(100_000);
        let (short, long) = (time(200_000), time(3_200_000));
        println!("{short:.0} and {long:.0} steps a second");
        // Sixteen times the steps take not much more than sixteen times the time.
        assert!(
            long > short / 10.0,
            "{short:.0} and {long:.0} steps a second"
        );
    }
}
