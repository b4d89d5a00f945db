//! Finds the fewest stops with which a live program reaches a step. Only one breakpoint is set at a time.
//!
//! A *setting* is what a debugger can be told to stop at: the address of an instruction, or of data that is read or
//! written. Steps are numbered from 0, the start.
//!
//! A setting leads to a step from any step between its latest earlier stop and here, if it can be set there. So the steps
//! from which the goal is reached in at most *n* stops are all steps from some step on, the *border*. The next border is
//! the smallest step from which one setting leads behind the last one. To find it, steps are given backwards, from the goal
//! on. Each setting that stops behind the border is *open* until it is met once more. The last one that is open leads
//! furthest, and where it is met is the next border. Then all are open again.
//!
//! So each step costs the same small time, and memory follows the number of different settings, however many steps there
//! are.

/// A setting that stops at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopCandidate {
    /// What stops: a number that [`Breakpath::setting`] gave.
    pub setting: u32,
    /// It stops here exactly once. A setting that does not still counts as a stop, but leads nowhere.
    pub exact: bool,
}

/// One part of the way: use this setting, run until it has stopped so many times, and be at this step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg {
    /// The setting to use.
    pub setting: u32,
    /// How many times it stops. The last time counts.
    pub hits: u64,
    /// The step that is reached.
    pub step: u64,
}

/// Why there is no way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoWay {
    /// Nothing stops there.
    Nothing,
    /// Something stops there, but no settings lead there from the start.
    Unreachable,
    /// It has more than [`MOST_LEGS`] parts.
    TooLong,
}

/// A way may have this many parts. Nobody wants more: each is a setting of its own.
pub const MOST_LEGS: usize = 100_000;

/// What is known of a setting.
struct Known {
    /// The settings that can be set from the same step on have the same class.
    class: u32,
    /// Where it stops exactly once, at the earliest step that was given.
    exact: bool,
    /// The earliest step that was given, at which it stops.
    earliest: u64,
    /// It is not open up to this level.
    closed: u64,
}

/// Finds the way to one step. Steps are given backwards.
pub struct Breakpath {
    known: Vec<Known>,
    /// The settings of each class.
    of: Vec<Vec<u32>>,
    /// For each class: it cannot be set at the steps that are still to come.
    late: Vec<bool>,
    /// From here on the goal is reached in as many stops as `level` says.
    border: u64,
    level: u64,
    /// The step that was given last.
    last: u64,
    /// Settings that are open.
    open: usize,
    /// Settings that will be open behind the next border: those that stop exactly once where they stop first.
    next: usize,
    /// From the goal back.
    legs: Vec<Leg>,
    none: Option<NoWay>,
}

impl Breakpath {
    /// Looks for a way to this step, which is at least 1. Settings can be of so many classes.
    pub fn new(goal: u64, classes: usize) -> Breakpath {
        Breakpath {
            known: Vec::new(),
            of: vec![Vec::new(); classes],
            late: vec![false; classes],
            border: goal,
            level: 0,
            last: u64::MAX,
            open: 0,
            next: 0,
            legs: Vec::new(),
            none: None,
        }
    }

    /// Adds a setting of a class. Returns its number, from 0. Of settings that serve equally well, lower ones are preferred.
    ///
    /// # Panics
    /// There is no such class, or there are 2^32 settings.
    pub fn setting(&mut self, class: u32) -> u32 {
        let number = u32::try_from(self.known.len()).expect("fewer settings than numbers");
        self.of[class as usize].push(number);
        self.known.push(Known {
            class,
            exact: false,
            earliest: 0,
            closed: 0,
        });
        number
    }

    /// Tells which settings stop at a step, each once. The goal comes first, then smaller ones. Steps at which nothing stops
    /// need not be given.
    pub fn push(&mut self, step: u64, stops: &[StopCandidate]) {
        self.falls(step);
        if self.none.is_some() {
            return;
        }
        if step < self.border && self.level == 0 {
            // Nothing stops at the goal.
            self.none = Some(NoWay::Nothing);
            return;
        }
        let mut by = None;
        for s in stops {
            let k = &mut self.known[s.setting as usize];
            if self.late[k.class as usize] {
                continue;
            }
            if k.exact && k.closed < self.level {
                self.open -= 1;
                by = preferred(&self.legs, by, (s.setting, k.earliest));
            }
            self.next -= k.exact as usize;
            self.next += s.exact as usize;
            (k.exact, k.earliest, k.closed) = (s.exact, step, self.level);
        }
        match by {
            _ if self.level == 0 => self.begin(step),
            Some(by) if self.open == 0 => self.cross(step, by),
            _ => {}
        }
    }

    /// The same for a step at which one setting stops, exactly once.
    #[inline(always)]
    pub fn push_one(&mut self, step: u64, setting: u32) {
        let level = self.level;
        match self.known.get_mut(setting as usize) {
            // It was met since the last border, as most are. Before the first border, none was met since.
            Some(k) if k.exact && k.closed == level && level > 0 => {
                k.earliest = step;
                self.falls(step);
            }
            _ => {
                let stop = StopCandidate {
                    setting,
                    exact: true,
                };
                self.push(step, &[stop]);
            }
        }
    }

    /// A step that was given twice would count as one more stop.
    #[inline(always)]
    fn falls(&mut self, step: u64) {
        debug_assert!(step < self.last, "step {step} behind step {}", self.last);
        self.last = step;
    }

    /// The settings of a class can be set from this step on, not before. All steps from this one on have been given.
    pub fn late(&mut self, class: u32, step: u64) {
        if std::mem::replace(&mut self.late[class as usize], true) {
            return;
        }
        let mut by = None;
        for i in std::mem::take(&mut self.of[class as usize]) {
            let k = &mut self.known[i as usize];
            // From now on they are nothing.
            if !std::mem::take(&mut k.exact) {
                continue;
            }
            self.next -= 1;
            if k.closed < self.level {
                self.open -= 1;
                by = preferred(&self.legs, by, (i, k.earliest));
            }
        }
        if let Some(by) = by.filter(|_| self.open == 0 && self.none.is_none()) {
            match step < self.border {
                true => self.cross(step, by),
                false => self.none = Some(NoWay::Unreachable),
            }
        }
    }

    /// The goal has been given.
    fn begin(&mut self, step: u64) {
        (self.border, self.level, self.open) = (step, 1, self.next);
        if self.open == 0 {
            self.none = Some(NoWay::Nothing);
        }
    }

    /// The border is now at `step`: from there `by` leads to its first stop behind.
    fn cross(&mut self, step: u64, by: (u32, u64)) {
        self.leg(by);
        (self.border, self.level, self.open) = (step, self.level + 1, self.next);
        if self.open == 0 {
            self.none = Some(NoWay::Unreachable);
        }
    }

    fn leg(&mut self, (setting, step): (u32, u64)) {
        let full = self.legs.len() == MOST_LEGS;
        match self.legs.last_mut().filter(|l| l.setting == setting) {
            Some(last) => last.hits += 1,
            None if full => self.none = Some(NoWay::TooLong),
            None => self.legs.push(Leg {
                setting,
                hits: 1,
                step,
            }),
        }
    }

    /// All steps have been given: the way from the start.
    ///
    /// # Errors
    /// There is none, or it is too long.
    pub fn way(mut self) -> Result<Vec<Leg>, NoWay> {
        if self.level == 0 {
            return Err(NoWay::Nothing);
        }
        let mut by = None;
        let open = |k: &Known| k.exact && k.closed < self.level;
        for (i, k) in self.known.iter().enumerate().filter(|(_, k)| open(k)) {
            by = preferred(&self.legs, by, (i as u32, k.earliest));
        }
        // Something is open, or else there is no way.
        if let Some(by) = by {
            self.leg(by);
        }
        match self.none {
            Some(why) => Err(why),
            None => {
                self.legs.reverse();
                Ok(self.legs)
            }
        }
    }
}

/// The better one of two settings, each with the step to which it leads. The one of the last part goes on with that part.
fn preferred(legs: &[Leg], old: Option<(u32, u64)>, new: (u32, u64)) -> Option<(u32, u64)> {
    let goes_on = |setting| legs.last().is_some_and(|l| l.setting == setting);
    old.filter(|o| !goes_on(new.0) && (goes_on(o.0) || o.0 < new.0))
        .or(Some(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting, the first step at which it can be set, and whether it stops exactly once.
    type Touch = (u32, u64, bool);

    fn touch(setting: u32) -> Touch {
        (setting, 0, true)
    }

    /// The way to a step. Each setting has a class of its own.
    fn way(steps: &[Vec<Touch>], goal: usize) -> Option<Vec<Leg>> {
        let all = || steps.iter().flatten();
        let count = all().map(|t| t.0 + 1).max().unwrap_or(0);
        let mut b = Breakpath::new(goal as u64, count as usize);
        for i in 0..count {
            assert_eq!(b.setting(i), i);
        }
        let late = |b: &mut Breakpath, step: u64| {
            for t in all().filter(|t| t.1 >= 1 && t.1 == step) {
                b.late(t.0, step);
            }
        };
        (goal as u64 + 1..100).for_each(|step| late(&mut b, step));
        for step in (1..=goal).rev() {
            let stops = steps[step - 1].iter();
            let stops: Vec<StopCandidate> = stops
                .map(|&(setting, _, exact)| StopCandidate { setting, exact })
                .collect();
            match stops[..] {
                [only] if only.exact => b.push_one(step as u64, only.setting),
                _ => b.push(step as u64, &stops),
            }
            late(&mut b, step as u64);
        }
        b.way().ok()
    }

    fn stops(way: &[Leg]) -> u64 {
        way.iter().map(|l| l.hits).sum()
    }

    /// The fewest stops to every step, by trying all pairs of steps.
    fn brute(steps: &[Vec<Touch>]) -> Vec<Option<u64>> {
        let mut stops = vec![Some(0)];
        for i in 1..=steps.len() {
            let mut best = None;
            for (j, before) in stops.iter().enumerate() {
                let Some(before) = before else { continue };
                let leads = |t: &&Touch| {
                    let again = (j + 1..i).any(|k| steps[k - 1].iter().any(|o| o.0 == t.0));
                    t.2 && t.1 as usize <= j && !again
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
    fn walk(steps: &[Vec<Touch>], way: &[Leg]) {
        let mut at = 0;
        for leg in way {
            for _ in 0..leg.hits {
                let next = (at + 1..=steps.len())
                    .find(|i| steps[i - 1].iter().any(|t| t.0 == leg.setting))
                    .unwrap();
                let right = |t: &Touch| t.0 == leg.setting && t.1 as usize <= at && t.2;
                assert!(steps[next - 1].iter().any(right));
                at = next;
            }
            assert_eq!(at as u64, leg.step);
        }
    }

    #[test]
    fn five_steps() {
        let (x, y) = (vec![touch(1)], vec![touch(2)]);
        let steps = [x.clone(), x.clone(), x.clone(), y, x];
        let counts: Vec<u64> = (1..=5).map(|i| stops(&way(&steps, i).unwrap())).collect();
        assert_eq!(counts, [1, 2, 3, 1, 2]);
        let leg = |setting, hits, step| Leg {
            setting,
            hits,
            step,
        };
        assert_eq!(way(&steps, 5).unwrap(), [leg(2, 1, 4), leg(1, 1, 5)]);
        // One setting that stops three times.
        assert_eq!(way(&steps, 3).unwrap(), [leg(1, 3, 3)]);
    }

    #[test]
    fn nothing_leads_to_a_step_at_which_nothing_stops() {
        let steps = [vec![touch(0)], vec![], vec![touch(0)]];
        assert_eq!(way(&steps, 2), None);
        assert!(way(&steps, 3).is_some());
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
        let (mut far, mut lost) = (0, 0);
        for round in 0..400 {
            let kinds = 1 + random(12);
            let steps: Vec<Vec<Touch>> = (0..random(60))
                .map(|_| {
                    let mut list: Vec<Touch> = Vec::new();
                    for _ in 0..random(4) {
                        // A few settings stop often. Some can be set late or do not stop exactly once.
                        let setting = random(kinds).min(random(kinds)) as u32;
                        if list.iter().all(|t| t.0 != setting) {
                            let usable = (setting * 7 % 23) as u64 * (round % 3 == 0) as u64;
                            list.push((setting, usable, round % 2 == 0 || random(4) > 0));
                        }
                    }
                    list
                })
                .collect();
            for (i, want) in brute(&steps).iter().enumerate().skip(1) {
                let way = way(&steps, i);
                let found = way.as_ref().map(|w| stops(w));
                assert_eq!(found, *want, "step {i} of {steps:?}");
                lost += want.is_none() as u32;
                if let Some(way) = way {
                    walk(&steps, &way);
                    far = far.max(stops(&way));
                }
            }
        }
        assert!(far > 8 && lost > 8, "too easy: {far} stops, {lost} without");
    }

    /// The time per step must not grow with the number of steps. The test prints what it measured.
    #[test]
    fn is_linear() {
        let time = |steps: u64| {
            let now = std::time::Instant::now();
            let mut b = Breakpath::new(steps, 1);
            (0..10_000).for_each(|_| {
                b.setting(0);
            });
            for i in (1..=steps).rev() {
                // A loop in a loop, with data.
                let pc = if i % 4096 < 4000 { i % 64 } else { i % 4096 };
                let stop = |n: u64| StopCandidate {
                    setting: n as u32,
                    exact: true,
                };
                b.push(i, &[stop(pc), stop(5000 + (i / 64) % 5000)]);
            }
            let stops = stops(&b.way().unwrap());
            assert!(0 < stops && stops < 100_000);
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
