//! Runs to the next or previous stop.

use super::ask::{Asker, BOTH, FAR, SCOPES};
use super::log::Flow;
use super::world::StopSet;
use hindsight_isa::regs::RAX;
use hindsight_timeline::expression::{Binary, Expression, Operand, Step};
use hindsight_timeline::{
    Breakpoint, Choice, Condition, Reason, Register, Result, Stops, Watch, Watchpoint,
};

impl Asker<'_> {
    /// A function that some call leads to.
    fn function(&mut self) -> Option<u64> {
        let world = self.world;
        let log = &world.logs[self.below(world.logs.len() as u64) as usize];
        let from = self.below(log.instructions().max(1)) as usize;
        let calls = log.flow.get(from..)?.iter();
        let n = { calls }.position(|f| matches!(f, Flow::Call(_)))?;
        log.rip.get(from + n + 1).copied()
    }

    /// Breakpoints, watchpoints and events to stop at, by chance.
    fn wanted(&mut self) -> StopSet {
        let mut wanted = StopSet::default();
        let some_log = |s: &mut Self| &s.world.logs[s.below(s.world.logs.len() as u64) as usize];
        for _ in 0..self.below(3) {
            let log = some_log(self);
            let i = self.below(log.instructions().max(1)) as usize;
            let mut pc = log.rip[i];
            let mut parity = (self.below(2) == 0).then(|| self.below(2));
            if self.below(4) == 0 && !log.entered.is_empty() {
                pc = log.entered[self.below(log.entered.len() as u64) as usize].1;
                parity = None;
            }
            wanted.breaks.push((pc, parity));
        }
        for _ in 0..self.below(4) {
            let (address, len) = self.somewhere();
            let watch = self.one(&[Watch::Read, Watch::Write, Watch::Access]);
            wanted.watches.push((address, len, watch));
        }
        let r = &mut self.random;
        if r.below(6) == 0 {
            let n = r.below(16) as u8;
            wanted.registers.push(match r.below(4) {
                0 => Register::Vector(n),
                _ => Register::General(n),
            });
        }
        wanted.signals = r.below(4) == 0;
        wanted.threads = r.below(5) == 0;
        if r.below(4) == 0 {
            wanted.syscalls = Some(match r.below(2) {
                0 => Vec::new(),
                _ => vec![[0, 1, 9, 202, 56, 35, 14][r.below(7) as usize]],
            });
        }
        wanted
    }

    pub(super) fn run(&mut self, k: usize) -> Result<()> {
        let place = self.instant();
        let (direction, scope) = (self.one(&BOTH), self.one(&SCOPES));
        let mut wanted = self.wanted();
        // Calls are met like breakpoints.
        let mut calls = Vec::new();
        if self.random.below(5) == 0 {
            calls.extend(self.function());
            wanted.breaks.extend(calls.iter().map(|c| (*c, None)));
        }
        if self.below(6) == 0
            && self.world.logs.iter().all(|l| l.instructions() < FAR / 4)
            && let Some(function) = self.function()
            && (self.world.logs.iter()).all(|l| l.calls_of(function).is_some())
        {
            wanted.returns.push(function);
        }
        let modules = self.below(6) == 0;
        if modules {
            wanted.places = self.modules.clone();
        }
        let mut stops = stops(&wanted, calls, modules);
        let what = format!(
            "{}: {direction:?} {scope:?} {wanted:x?} from {place:?}",
            self.kinds[k].0
        );
        self.go(k, place)?;
        let stop = self.timed(
            || what.clone(),
            |s| s.kinds[k].2.run(direction, scope, &mut stops),
        )?;
        let want = self.world.next(place, direction, scope, &wanted);
        let ended = matches!(stop.reason, Reason::End | Reason::Begin);
        let end = self.world.end(place.0, direction, scope);
        let context = format!("{what}: {stop:?}");
        self.check("run", ended == want.is_none(), || {
            format!("{context}: not {want:?}")
        });
        if ended == want.is_none() {
            self.here(k, "run", want.unwrap_or(end), &context)?;
        }
        Ok(())
    }
}

/// The stops of the library that `wanted` means. The last breakpoints are those of `calls`.
fn stops(wanted: &StopSet, calls: Vec<u64>, modules: bool) -> Stops<'static> {
    let first = wanted.breaks.len() - calls.len();
    // Every other condition is an expression, and so evaluated elsewhere.
    let held = |i: usize, parity: Option<u64>| -> Option<Condition<'static>> {
        let p = parity?;
        if i.is_multiple_of(2) {
            return Some(Condition::code(move |v| v.registers().gpr[RAX] & 1 == p));
        }
        let program = vec![
            Step::Register(Operand::General(RAX as u8)),
            Step::Constant(1),
            Step::Binary(Binary::And),
            Step::Constant(p),
            Step::Binary(Binary::Equal),
            Step::End,
        ];
        Some(Expression::new(program).into())
    };
    let breakpoints = wanted.breaks[..first]
        .iter()
        .enumerate()
        .map(|(i, (pc, parity))| Breakpoint {
            condition: held(i, *parity),
            ..Breakpoint::at(i as u64, *pc)
        });
    let watchpoints = wanted
        .watches
        .iter()
        .enumerate()
        .map(|(i, (address, len, watch))| Watchpoint {
            id: i as u64,
            address: *address,
            len: *len,
            watch: *watch,
            image: None,
        });
    Stops {
        breakpoints: breakpoints.collect(),
        watchpoints: watchpoints.collect(),
        registers: wanted.registers.clone(),
        signals: match wanted.signals {
            true => Choice::All,
            false => Choice::Nothing,
        },
        syscalls: match &wanted.syscalls {
            None => Choice::Nothing,
            Some(list) if list.is_empty() => Choice::All,
            Some(list) => Choice::Only(list.clone()),
        },
        threads: wanted.threads,
        modules,
        calls,
        returns: wanted.returns.clone(),
        ..Stops::default()
    }
}
