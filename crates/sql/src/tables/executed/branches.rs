//! Jumps, calls, returns and conditional branches.

use super::names::Names;
use super::tape::{LONGEST, each_run, next_pc, split};
use super::{FUNCTION, PC};
use crate::bounds::Bounds;
use crate::clock::Stretch;
use crate::column::Kind::{Address, Bool, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::sums::Numbers;
use crate::table::Table;
use crate::tables::instant;
use hindsight_timeline::ThreadId;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::HashMap;

/// Table `branches`.
pub struct Branches;

const BRANCHES: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    PC,
    column("kind", Word, "jump, conditional, call or return"),
    column(
        "target",
        Address,
        "where it led to; NULL: not known, since a signal comes there, a gap begins, or the thread ends",
    ),
    column(
        "taken",
        Bool,
        "false: a conditional branch went on to the instruction behind it; NULL as `target`",
    ),
    FUNCTION,
    column(
        "target_function",
        Word,
        "the function of `target`; NULL: not known",
    ),
];

impl Table for Branches {
    fn name(&self) -> &str {
        "branches"
    }

    fn columns(&self) -> &'static [Column] {
        BRANCHES
    }

    fn order(&self) -> &'static [&'static str] {
        // Where a thread goes is known only when it executes again, and others may do so before.
        &[]
    }

    fn split(&self, r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
        split(r, bounds, most)
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut names = Names::default();
        let mut last: HashMap<ThreadId, Branch> = HashMap::new();
        let mut numbers = Numbers::default();
        let mut ends: Vec<Option<End>> = Vec::new();
        each_run(r, bounds, out, |out, piece, count, run| {
            let thread = piece.stretch.segment.thread;
            if let Some(b) = last.remove(&thread) {
                let follows = count == b.count + 1 && !piece.entered;
                b.say(r, out, &mut names, follows.then_some(run.pc()))?;
            }
            let look = || {
                let mut buf = [0; LONGEST];
                let code = piece.code(run, &mut buf);
                let decoder = Decoder::with_ip(64, code, run.pc(), DecoderOptions::NONE);
                let last = decoder.into_iter().nth(run.instructions() as usize - 1);
                last.and_then(|i| End::of(&i))
            };
            let end = match piece.logged() {
                None => look(),
                Some(executed) => {
                    if ends.len() >= MOST {
                        ends.clear();
                        numbers.clear();
                    }
                    let number = numbers.find(piece.image, executed, run, || {
                        ends.push(look());
                        Ok::<_, Stop>(ends.len() as u32)
                    })?;
                    ends[number as usize - 1]
                }
            };
            if let Some(end) = end {
                let b = Branch {
                    stretch: *piece.stretch,
                    count: count + run.instructions() - 1,
                    end,
                };
                last.insert(thread, b);
            }
            Ok(())
        })?;
        for (thread, b) in last {
            // The next instruction lies behind what was asked for.
            let next = next_pc(r, out, thread, b.count + 1)?;
            b.say(r, out, &mut names, next)?;
        }
        Ok(())
    }
}

/// The ends of this many runs are known at a time.
const MOST: usize = 1 << 16;

/// The branch that ends a run. Within a run there is none.
#[derive(Clone, Copy)]
struct End {
    pc: u64,
    behind: u64,
    kind: &'static str,
}

impl End {
    fn of(i: &Instruction) -> Option<End> {
        kind(i).map(|kind| End {
            pc: i.ip(),
            behind: i.next_ip(),
            kind,
        })
    }
}

/// A branch of which it is not known yet where it went.
struct Branch {
    stretch: Stretch,
    count: u64,
    end: End,
}

impl Branch {
    fn say(
        self,
        r: &Recording,
        out: &mut Rows,
        names: &mut Names,
        next: Option<u64>,
    ) -> Result<(), Stop> {
        let s = &self.stretch.segment;
        let time = self.stretch.at(self.count);
        let position = s.position(self.count);
        instant(r, out, position, time, (s.thread, self.count))?;
        let image = r.image(s.thread)?;
        out.uint(5, self.end.pc);
        out.text(6, self.end.kind);
        out.uint(7, next);
        out.bool(
            8,
            next.map(|n| self.end.kind != CONDITIONAL || n != self.end.behind),
        );
        if out.wants(&[9]) {
            out.maybe(9, names.function(r, image, self.end.pc, time)?);
        }
        if let Some(next) = next
            && out.wants(&[10])
        {
            out.maybe(10, names.function(r, image, next, time)?);
        }
        out.end()
    }
}

const CONDITIONAL: &str = "conditional";

/// What kind of a branch an instruction is.
fn kind(i: &Instruction) -> Option<&'static str> {
    Some(match i.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => "jump",
        FlowControl::ConditionalBranch => CONDITIONAL,
        FlowControl::Call | FlowControl::IndirectCall
            if i.mnemonic() == iced_x86::Mnemonic::Call =>
        {
            "call"
        }
        FlowControl::Return if i.mnemonic() == iced_x86::Mnemonic::Ret => "return",
        _ => return None,
    })
}
