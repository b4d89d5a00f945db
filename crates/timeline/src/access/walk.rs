//! Visits a thread's instructions one by one, with what they access.

use crate::engine::Engine;
use crate::play::Player;
use crate::{Cancel, Error, Result, ThreadId};
use hindsight_isa::CpuState;
use hindsight_isa::string::StringOp;
use hindsight_replay::Stop as Halt;
use hindsight_replay::access::{Access, Finder};
use iced_x86::{Decoder, DecoderOptions};
use std::collections::HashMap;
use std::sync::Arc;

/// What an instruction may do to control flow.
pub use iced_x86::FlowControl;

/// A value is given up to this many bytes.
const LONGEST: usize = 64;
/// So many instructions are visited between two looks at whether it was cancelled.
const LOOK: u64 = 1024;

/// An instruction that a thread executed. See [`Walk`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Walked<'a> {
    /// The number of instructions that the thread had completed before it.
    pub count: u64,
    /// Its address.
    pub pc: u64,
    /// The kernel let the thread go on there, as at the beginning of a handler: the instruction before did not lead to it.
    pub entered: bool,
    /// Its bytes. Some may follow that stand behind it; all in all there are 15 at most.
    pub code: &'a [u8],
    /// What it accessed in memory. Empty if that was not asked for.
    pub accesses: &'a [Touch],
    /// The registers that it found. `None` if accesses were not asked for.
    pub registers: Option<&'a CpuState>,
}

/// Instructions that a thread executed one after the other, as they stand in memory. Only the last one may be a branch. See
/// [`Walk::run_straight`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Straight {
    /// The number of instructions that the thread had completed before the first one.
    pub count: u64,
    /// The address of the first one.
    pub pc: u64,
    /// How many there are.
    pub len: u32,
    /// The address behind the last one.
    pub end: u64,
    /// The kernel let the thread go on at `pc`: the instruction before did not lead to it.
    pub entered: bool,
    /// What the last one may do to control flow.
    pub flow: FlowControl,
}

/// A contiguous access of an instruction to memory, with the value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Touch {
    /// Where it was, and how long. What is read and written is listed as two accesses.
    pub access: Access,
    /// The bytes that were read or written. `None`: there are more than 64, or it is not known.
    pub bytes: Option<Vec<u8>>,
}

impl Touch {
    /// An access with its value.
    pub fn new(access: Access, bytes: Option<Vec<u8>>) -> Touch {
        Touch { access, bytes }
    }
}

/// Plays one thread forwards, instruction by instruction. Instructions in gaps are not visited.
pub struct Walk {
    player: Player,
    /// The player has been somewhere.
    begun: bool,
    finder: Finder,
    found: Vec<Access>,
    touches: Vec<Touch>,
    blocks: HashMap<u64, Block>,
}

/// Instructions that are executed one after the other: only the last one may be a branch.
struct Block {
    code: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<u16>,
    /// What the last one may do to control flow.
    flow: FlowControl,
}

/// A block has at most this many instructions. Longer ones gain nothing.
const MOST: usize = 64;
/// So many blocks are kept.
const BLOCKS: usize = 1 << 13;

impl Walk {
    pub(crate) fn new(engine: &Arc<Engine>, thread: ThreadId, cancel: Cancel) -> Result<Walk> {
        let mut player = Player::new(engine, thread)?;
        player.cancel = cancel;
        Ok(Walk {
            player,
            begun: false,
            finder: Finder::new(engine.model.saves),
            found: Vec::new(),
            touches: Vec::new(),
            blocks: HashMap::new(),
        })
    }

    /// Visits the instructions from the one that the thread executes when it has completed `from`, up to `until`. Where it
    /// goes on from where it stopped before, that costs nothing. With `accesses` it also tells what they access, which takes
    /// longer. Ends early when `visit` returns false.
    ///
    /// # Errors
    /// The stream cannot be replayed, or it was cancelled.
    pub fn run(
        &mut self,
        (from, until): (u64, u64),
        accesses: bool,
        visit: &mut dyn FnMut(&Walked) -> bool,
    ) -> Result<()> {
        let until = until.min(self.player.to);
        let mut show = |e: Executed| match e {
            Executed::One(w) => visit(&w),
            Executed::Several {
                count,
                pc,
                block,
                n,
            } => block.each(count, pc, n, visit),
        };
        self.walk((from, until), accesses, &mut show)
    }

    /// The same by straights, which takes less time. A straight ends at a branch, and may end anywhere else.
    ///
    /// # Errors
    /// As [`Walk::run`].
    pub fn run_straight(
        &mut self,
        (from, until): (u64, u64),
        visit: &mut dyn FnMut(&Straight) -> bool,
    ) -> Result<()> {
        let until = until.min(self.player.to);
        let mut show = |e: Executed| {
            visit(&match e {
                Executed::One(w) => one(&w),
                Executed::Several {
                    count,
                    pc,
                    block,
                    n,
                } => {
                    let whole = n as usize == block.ends.len();
                    Straight {
                        count,
                        pc,
                        len: n,
                        end: pc.wrapping_add(block.ends[n as usize - 1].into()),
                        entered: false,
                        flow: if whole { block.flow } else { FlowControl::Next },
                    }
                }
            })
        };
        self.walk((from, until), false, &mut show)
    }

    /// Plays up to where the thread has completed `count` instructions, without a look at each. Returns the registers that it
    /// then has.
    ///
    /// # Errors
    /// As [`Walk::run`].
    pub fn go(&mut self, count: u64) -> Result<CpuState> {
        self.player.seek_straight(count)?;
        self.begun = true;
        Ok(self.player.registers())
    }

    fn walk(
        &mut self,
        (from, until): (u64, u64),
        accesses: bool,
        show: &mut dyn FnMut(Executed) -> bool,
    ) -> Result<()> {
        if from >= until {
            return Ok(());
        }
        if !self.begun || self.player.count() != from {
            self.player.seek_straight(from)?;
            self.begun = true;
        }
        let (finder, found, touches) = (&mut self.finder, &mut self.found, &mut self.touches);
        let blocks = &mut self.blocks;
        self.player.prepared(|player| {
            let mut left = 0;
            while player.count() < until {
                if left == 0 {
                    if player.cancel.is_cancelled() {
                        return Err(Error::Cancelled);
                    }
                    left = LOOK;
                }
                left -= 1;
                if !accesses && let Some(e) = block(blocks, player, until)? {
                    match show(e) {
                        true => continue,
                        false => return Ok(()),
                    }
                }
                let step = Step {
                    finder,
                    found,
                    touches,
                };
                if !step.take(player, until, accesses, show)? {
                    return Ok(());
                }
            }
            Ok(())
        })
    }
}

/// What was executed.
enum Executed<'a> {
    One(Walked<'a>),
    /// The first `n` instructions of a block, which stands at `pc`.
    Several {
        count: u64,
        pc: u64,
        block: &'a Block,
        n: u32,
    },
}

/// An instruction as a straight.
fn one(w: &Walked) -> Straight {
    let i = Decoder::with_ip(64, w.code, w.pc, DecoderOptions::NONE).decode();
    Straight {
        count: w.count,
        pc: w.pc,
        len: 1,
        end: i.next_ip(),
        entered: w.entered,
        flow: i.flow_control(),
    }
}

impl Block {
    /// Shows its first `n` instructions. False: the visitor has enough.
    fn each(&self, count: u64, pc: u64, n: u32, visit: &mut dyn FnMut(&Walked) -> bool) -> bool {
        let mut begin = 0;
        (0..n.into()).zip(&self.ends).all(|(i, end)| {
            let walked = Walked {
                count: count + i,
                pc: pc.wrapping_add(begin as u64),
                entered: false,
                code: &self.code[begin..*end as usize],
                accesses: &[],
                registers: None,
            };
            begin = *end as usize;
            visit(&walked)
        })
    }
}

/// Executes instructions up to the next branch at once. `None`: that cannot be done. The player stands before them.
fn block<'b>(
    blocks: &'b mut HashMap<u64, Block>,
    player: &mut Player,
    until: u64,
) -> Result<Option<Executed<'b>>> {
    let (count, pc) = (player.count(), player.registers().rip);
    let engine = Arc::clone(player.engine());
    let scan = engine.scan(player.thread)?;
    // What happens at this instant comes first.
    if scan.next_turn(count) == count || player.in_gap() {
        return Ok(None);
    }
    if blocks.len() >= BLOCKS {
        blocks.clear();
    }
    let mut now = [0; MOST * 15];
    let known = blocks.entry(pc).or_insert_with(|| decode(player, pc));
    let mut is_known = |player: &Player, b: &Block| {
        let now = &mut now[..b.code.len()];
        !b.ends.is_empty() && player.code(pc, now) == b.code.len() && *now == *b.code
    };
    if !is_known(player, known) {
        *known = decode(player, pc);
    }
    let room = until.min(scan.next_turn(count + 1)) - count;
    let n = (known.ends.len() as u64).min(room);
    if n < 2 {
        return Ok(None);
    }
    let stop = player.run(count + n)?;
    // If the program has changed the code meanwhile, nobody knows what was executed.
    if stop != Halt::Position || player.count() != count + n || !is_known(player, known) {
        player.seek_straight(count)?;
        return Ok(None);
    }
    Ok(Some(Executed::Several {
        count,
        pc,
        block: known,
        n: n as u32,
    }))
}

/// The instructions at `pc` up to the first branch.
fn decode(player: &Player, pc: u64) -> Block {
    let mut code = vec![0; MOST * 15];
    let n = player.code(pc, &mut code);
    let mut decoder = Decoder::with_ip(64, &code[..n], pc, DecoderOptions::NONE);
    let mut ends = Vec::new();
    let mut flow = FlowControl::Next;
    while ends.len() < MOST && decoder.can_decode() {
        let i = decoder.decode();
        if i.is_invalid() {
            break;
        }
        ends.push(decoder.position() as u16);
        flow = i.flow_control();
        if flow != FlowControl::Next {
            break;
        }
    }
    code.truncate(ends.last().map_or(0, |e| *e as usize));
    code.shrink_to_fit();
    ends.shrink_to_fit();
    Block { code, ends, flow }
}

/// One step of a walk.
struct Step<'a> {
    finder: &'a mut Finder,
    found: &'a mut Vec<Access>,
    touches: &'a mut Vec<Touch>,
}

impl Step<'_> {
    /// Executes an instruction and shows it. False: that was the last one.
    fn take(
        self,
        player: &mut Player,
        until: u64,
        accesses: bool,
        show: &mut dyn FnMut(Executed) -> bool,
    ) -> Result<bool> {
        self.touches.clear();
        let mut code = [0; 15];
        let count = player.count();
        // A signal interrupts a string instruction. What that did so far belongs to it.
        let interrupted = player.begin_string()?;
        if let (Some((before, behind)), true) = (&interrupted, accesses) {
            let n = player.code(before.rip, &mut code);
            let vec = player.vectors();
            self.finder
                .find(&code[..n], (before, &vec), behind, self.found);
            keep(self.found, self.touches, player, Kind::Read);
            keep(self.found, self.touches, player, Kind::Write);
        }
        if let Some((before, _)) = &interrupted {
            let n = player.code(before.rip, &mut code);
            let walked = Walked {
                count,
                pc: before.rip,
                entered: false,
                code: &code[..n],
                accesses: self.touches,
                registers: accesses.then_some(before),
            };
            if !show(Executed::One(walked)) {
                return Ok(false);
            }
            self.touches.clear();
        }
        let entered = player.enter()?;
        player.settle_next()?;
        let cpu = player.registers();
        let n = player.code(cpu.rip, &mut code);
        let code = &code[..n];
        // Only its end tells how far a string instruction came.
        let string = accesses && StringOp::decode(code).is_some();
        let vec = accesses.then(|| player.vectors());
        if let (Some(vec), false) = (&vec, string) {
            let held = |at: u64, buf: &mut [u8]| player.cells(at, buf);
            self.finder
                .find_in(code, (&cpu, vec), &cpu, &held, self.found);
            keep(self.found, self.touches, player, Kind::Read);
        }
        let skipped = player.skipped();
        let stop = player.run(count + 1)?;
        if stop == Halt::Position && player.skipped() != skipped {
            // What runs in a gap is not known.
            player.leave_gap(until)?;
            return Ok(true);
        }
        if let Some(vec) = &vec {
            if string {
                self.finder
                    .find(code, (&cpu, vec), &player.registers(), self.found);
                keep(self.found, self.touches, player, Kind::Read);
            }
            keep(self.found, self.touches, player, Kind::Write);
        }
        let walked = Walked {
            count,
            pc: cpu.rip,
            entered,
            code,
            accesses: self.touches,
            registers: accesses.then_some(&cpu),
        };
        let done = matches!(stop, Halt::Position);
        Ok(show(Executed::One(walked)) && done)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// Notes the accesses of a kind, with what memory holds now. An access that reads and writes becomes two. What a string
/// instruction has read is not known if it has overwritten that.
fn keep(found: &[Access], touches: &mut Vec<Touch>, player: &Player, kind: Kind) {
    let writes = kind == Kind::Write;
    let overwritten = |a: &Access| {
        let other = |o: &&Access| o.write && o.touches(a.address, a.len) && *o != a;
        !writes && found.iter().any(|o| other(&o))
    };
    for a in found {
        if !(if writes { a.write } else { a.read }) {
            continue;
        }
        let known = a.len as usize <= LONGEST && !a.unknown && !overwritten(a);
        let bytes = known.then(|| {
            let mut bytes = vec![0; a.len as usize];
            player.cells(a.address, &mut bytes);
            bytes
        });
        touches.push(Touch {
            access: Access {
                read: !writes,
                write: writes,
                ..*a
            },
            bytes,
        });
    }
}
