//! The way back of a value: each instruction and call that only handed it on, to where it came from.

use crate::copies::{Gives, Part, gives};
use crate::model::{Hop, How, Operand, Origin, Piece};
use crate::past::{Past, Step, Wrote};
use crate::place::{Place, bytes_of, whole};
use crate::recorded::Recorded;
use crate::source::{Source, tell};
use crate::unseen::{Unseen, behind, differ};
use crate::writers::stored;
use crate::{Error, Point, Result, join, signal};
use hindsight_timeline::{Cancel, Happening, Kind, Position, ThreadId, VecState, syscall_name};
use iced_x86::{InstructionInfoFactory, Mnemonic, OpAccess, Register};
use std::ops::Range;

/// The most bytes that can be asked for.
pub const LONGEST: usize = 4096;
/// A value may consist of so many pieces that came from elsewhere each.
const PIECES: usize = 512;
/// How far to go.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most instructions and calls on the way of a piece.
    pub hops: usize,
    /// Ends the search.
    pub cancel: Cancel,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            hops: 1000,
            cancel: Cancel::new(),
        }
    }
}

/// A piece of the value on its way.
struct Pending {
    /// Which of the bytes that were asked for.
    bytes: Range<usize>,
    /// What they are, as far as that is known.
    value: Vec<Option<u8>>,
    place: Place,
    /// They are there when the thread has completed so many instructions.
    at: (ThreadId, u64),
    hops: Vec<Hop>,
}

impl Pending {
    /// Some of its bytes.
    fn some(&self, of: Range<usize>) -> Pending {
        Pending {
            bytes: self.bytes.start + of.start..self.bytes.start + of.end,
            value: self.value[of.clone()].to_vec(),
            place: self.place.part(of),
            at: self.at,
            hops: self.hops.clone(),
        }
    }

    /// Some of its bytes, which were somewhere else before.
    fn part(&self, of: Range<usize>, hop: Hop, at: (ThreadId, u64)) -> Pending {
        let mut part = self.some(of);
        part.hops.push(hop);
        Pending {
            place: hop.from,
            at,
            ..part
        }
    }
}

/// Where bytes of memory came from that are there before a thread executes an instruction: piece by piece, in the order of their
/// addresses.
///
/// # Errors
/// The recording does not answer, it was cancelled, or more bytes are asked for than [`LONGEST`].
pub fn origins(
    recorded: &mut Recorded,
    at: (ThreadId, u64),
    (address, len): (u64, usize),
    limits: &Limits,
) -> Result<Vec<Piece>> {
    if len == 0 || len > LONGEST {
        return Err(Error::Length(LONGEST));
    }
    recorded.cursor.seek_count(at.0, at.1)?;
    let known = recorded.cursor.known_memory(address, len)?;
    let first = Pending {
        bytes: 0..len,
        value: known.bytes.iter().map(|b| b.map(|k| k.value)).collect(),
        place: Place::Memory { at: address, len },
        at,
        hops: Vec::new(),
    };
    let mut finder = Finder {
        past: Past::new(&recorded.timeline, limits.cancel.clone()),
        unseen: Unseen::new(&recorded.timeline)?,
        recorded,
        limits,
        left: vec![first],
        out: Vec::new(),
    };
    while let Some(p) = finder.left.pop() {
        limits.cancel.check()?;
        finder.follow(p)?;
    }
    let mut all = finder.out;
    all.sort_by_key(|p| p.bytes.start);
    let mut out: Vec<Piece> = Vec::new();
    for p in all {
        if !out.last_mut().is_some_and(|last| join::join(last, &p)) {
            out.push(p);
        }
    }
    Ok(out)
}

struct Finder<'a> {
    recorded: &'a mut Recorded,
    past: Past,
    unseen: Unseen,
    limits: &'a Limits,
    left: Vec<Pending>,
    out: Vec<Piece>,
}

impl Finder<'_> {
    /// Follows a piece by one instruction or call.
    fn follow(&mut self, p: Pending) -> Result<()> {
        if p.hops.len() >= self.limits.hops || self.left.len() + self.out.len() > PIECES {
            let end = Origin::Further {
                point: self.point(p.at)?,
            };
            return self.end(p, end);
        }
        match p.place {
            Place::Memory { at, len } => self.memory(p, at, len),
            Place::Register { register, .. } => match self.past.wrote(p.at.0, p.at.1, register)? {
                Wrote::At(count) => {
                    let by = (p.at.0, count);
                    match self.unseen.between(by, p.at, true)? {
                        Some(gap) => self.hidden(p, by, gap),
                        None => self.instruction(p, count),
                    }
                }
                Wrote::Kernel(count) => self.set_by_kernel(p, count),
                Wrote::Begin => self.end(p, Origin::ThreadStart),
                Wrote::Before(count) => {
                    let thread = p.at.0;
                    let end = Origin::Further {
                        point: self.point((thread, count))?,
                    };
                    self.end(p, end)
                }
            },
        }
    }

    fn end(&mut self, p: Pending, origin: Origin) -> Result<()> {
        // What is something else now, something that is not recorded has written.
        let zeros = p.value.iter().all(|b| *b == Some(0));
        let known = p.value.iter().all(Option::is_some);
        let origin = match origin {
            Origin::Fresh if !zeros => Origin::Unknown,
            Origin::File { .. } if !known => Origin::Unknown,
            origin => origin,
        };
        self.out.push(Piece {
            bytes: p.bytes,
            value: p.value,
            place: p.place,
            hops: p.hops,
            origin,
        });
        Ok(())
    }

    fn point(&mut self, (thread, count): (ThreadId, u64)) -> Result<Box<Point>> {
        self.recorded.point(thread, count).map(Box::new)
    }

    /// The place of a step.
    fn point_of(&mut self, step: &Step, at: (ThreadId, u64)) -> Result<Box<Point>> {
        let point = self.recorded.point_of(at.0, at.1, step.cpu.rip)?;
        Ok(Box::new(point))
    }

    /// Ends where something that is not recorded may have written since.
    fn hidden(&mut self, p: Pending, by: (ThreadId, u64), gap: Position) -> Result<()> {
        let point = self.point(by)?;
        let why = format!("code that is not recorded ran since, at {gap}");
        self.end(p, Origin::Untold { point, why })
    }

    /// Follows bytes of memory to what wrote them last. What wrote some of them is one piece, the others are further ones.
    fn memory(&mut self, p: Pending, at: u64, len: usize) -> Result<()> {
        // The instructions right before it may be the ones, and are then at hand.
        self.past.step(p.at.0, p.at.1)?;
        let what = (at, len as u64);
        let found = stored(self.recorded, &self.past, p.at, what, &self.limits.cancel)?;
        let (from, to) = (found.bytes.0, found.bytes.0.saturating_add(found.bytes.1));
        let end = at.saturating_add(len as u64);
        let (from, to) = (from.clamp(at, end), to.clamp(at, end));
        let within = (from - at) as usize..(to - at) as usize;
        if within.is_empty() {
            return self.end(p, Origin::Unknown);
        }
        for other in [0..within.start, within.end..len] {
            if !other.is_empty() {
                self.left.push(p.some(other));
            }
        }
        let piece = p.some(within);
        if let Source::Written(by) | Source::Kernel { at: by, .. } = found.source {
            if let Some(gap) = self.unseen.between(by, p.at, false)? {
                return self.hidden(piece, by, gap);
            }
            if self.unseen.is_shared(p.at, from)? {
                let point = self.point(by)?;
                let why = "another process may have written to this shared memory since".into();
                return self.end(piece, Origin::Untold { point, why });
            }
        }
        match found.source {
            Source::Written(by) => self.instruction(
                Pending {
                    at: (by.0, piece.at.1),
                    ..piece
                },
                by.1,
            ),
            Source::Kernel { at, .. } => self.by_kernel(piece, at, from),
            source => {
                let source = match source {
                    Source::Beginning { thread, .. } => Source::Beginning {
                        thread,
                        address: from,
                    },
                    other => other,
                };
                let origin = self.beginning(&source, &piece)?;
                self.end(piece, origin)
            }
        }
    }

    /// Where bytes came from that nobody is known to have written. Something that is not recorded may have.
    fn beginning(&mut self, source: &Source, p: &Pending) -> Result<Origin> {
        let Source::Beginning { thread, .. } = *source else {
            return tell(self.recorded, source);
        };
        let first = (thread, self.recorded.timeline.thread(thread)?.from);
        if self.unseen.between(first, p.at, false)?.is_some() {
            return Ok(Origin::Unknown);
        }
        let origin = tell(self.recorded, source)?;
        if let Place::Memory { at, .. } = p.place
            && self.unseen.is_shared(p.at, at)?
        {
            return Ok(Origin::Unknown);
        }
        if let (Origin::File { .. }, Source::Beginning { thread, address }) = (&origin, source) {
            let image = self.recorded.timeline.thread(*thread)?.image;
            let was = self.recorded.at_beginning(image, *address, p.value.len())?;
            if differ(&was, &p.value) {
                return Ok(Origin::Unknown);
            }
        }
        Ok(origin)
    }

    /// Follows what an instruction of the piece's thread left.
    fn instruction(&mut self, p: Pending, count: u64) -> Result<()> {
        let at = (p.at.0, count);
        let Some(step) = self.past.step(at.0, at.1)? else {
            return self.end(p, Origin::Unknown);
        };
        if step.instruction.mnemonic() == Mnemonic::Syscall {
            if signal::restored(&step, &p.place).is_some() {
                return self.set_by_kernel(p, count);
            }
            return self.result(p, &step, at);
        }
        let vec = self.vectors(&step, at)?;
        let gives = gives(&step, &vec, &p.place, &p.value);
        let hop = |from: Place, to: Place| Hop {
            thread: at.0,
            count: at.1,
            pc: step.cpu.rip,
            how: How::Instruction,
            from,
            to,
        };
        let origin = match gives {
            Gives::Copies(all) => {
                // The last one that is put there is followed first.
                for (bytes, part) in all.into_iter().rev() {
                    let to = p.place.part(bytes.clone());
                    let computed = match part {
                        Part::From(from) => {
                            self.left.push(p.part(bytes, hop(from, to), at));
                            continue;
                        }
                        Part::Made { computed } => computed,
                    };
                    let point = self.point_of(&step, at)?;
                    let origin = match computed {
                        true => Origin::Computed {
                            point,
                            from: taken_in(&step, &vec),
                        },
                        false => Origin::Constant { point },
                    };
                    self.end(p.some(bytes), origin)?;
                }
                return Ok(());
            }
            Gives::Constant => Origin::Constant {
                point: self.point_of(&step, at)?,
            },
            Gives::Computed => Origin::Computed {
                point: self.point_of(&step, at)?,
                from: taken_in(&step, &vec),
            },
            Gives::Processor => Origin::Processor {
                point: self.point_of(&step, at)?,
            },
            Gives::Unknown(why) => Origin::Untold {
                point: self.point_of(&step, at)?,
                why,
            },
        };
        self.end(p, origin)
    }

    /// What a system call left in a register.
    fn result(&mut self, p: Pending, step: &Step, at: (ThreadId, u64)) -> Result<()> {
        let (rax, first) = match p.place {
            Place::Register {
                register, first, ..
            } => (register == Register::RAX, first),
            Place::Memory { .. } => (false, 0),
        };
        if !rax {
            // The address behind the call in rcx, flags in r11.
            let point = self.point_of(step, at)?;
            let why = "a system call changes this register".into();
            return self.end(p, Origin::Untold { point, why });
        }
        let origin = tell(self.recorded, &Source::Result(at))?;
        let event = self.recorded.event(at.0, at.1)?;
        if let Some(Kind::Syscall {
            result: Some(result),
            ..
        }) = event.map(|h| h.kind)
        {
            let bytes = result.to_le_bytes().map(Some);
            if differ(bytes.get(first..).unwrap_or_default(), &p.value) {
                return self.end(p, Origin::Unknown);
            }
        }
        self.end(p, origin)
    }

    /// The vector registers that an instruction found, if it has any.
    fn vectors(&mut self, step: &Step, (thread, count): (ThreadId, u64)) -> Result<VecState> {
        let mut info = InstructionInfoFactory::new();
        let used = info.info(&step.instruction).used_registers().iter();
        let mut all = used.filter_map(|u| whole(u.register()));
        if !all.any(|r| !r.is_gpr()) {
            return Ok(VecState::default());
        }
        self.recorded.cursor.seek_count(thread, count)?;
        Ok(self.recorded.cursor.vectors()?)
    }

    /// Follows bytes that the kernel wrote, from this address on.
    fn by_kernel(&mut self, p: Pending, at: (ThreadId, u64), address: u64) -> Result<()> {
        let event = self.recorded.event(at.0, at.1)?;
        if let Some(h) = &event
            && matches!(h.kind, Kind::Signal { .. })
            && let Some(step) = self.past.step(at.0, at.1)?
            && let Some((part, from)) = signal::saved(&step, &p.place)
        {
            let hop = Hop {
                thread: at.0,
                count: at.1,
                pc: step.cpu.rip,
                how: How::Signal,
                from,
                to: p.place.part(part.clone()),
            };
            self.left.push(p.part(part.clone(), hop, at));
            self.rest(&p, part);
            return Ok(());
        }
        if let Some(h) = &event
            && let Some((part, from)) = moved(h, &p.place)
        {
            let hop = Hop {
                thread: at.0,
                count: at.1,
                pc: self.recorded.pc(at)?,
                how: How::Moved,
                from,
                to: p.place.part(part.clone()),
            };
            self.left.push(p.part(part.clone(), hop, at));
            self.rest(&p, part);
            return Ok(());
        }
        if let Some(h) = event
            && let Some((giver, n)) = self.recorded.gave(&h, address)?
            && let Some((part, from)) = self.recorded.in_memory(&giver, n, p.place.len())?
        {
            let hop = Hop {
                thread: at.0,
                count: at.1,
                pc: self.recorded.pc(at)?,
                how: How::Channel {
                    thread: giver.at.0,
                    count: giver.at.1,
                },
                from,
                to: p.place.part(part.clone()),
            };
            let next = p.part(part.clone(), hop, giver.at);
            let there = self.recorded.before(giver.at, &next.place)?;
            if !differ(&there, &next.value) {
                self.left.push(next);
                self.rest(&p, part);
                return Ok(());
            }
        }
        // What the call left there must be what is there now.
        let left = behind(&mut self.recorded.cursor, at, address, p.place.len())?;
        let source = Source::Kernel { at, address };
        let origin = match differ(&left, &p.value) {
            true => Origin::Unknown,
            false => tell(self.recorded, &source)?,
        };
        self.end(p, origin)
    }

    /// Puts back the bytes of a piece behind these: what they are is asked anew.
    fn rest(&mut self, p: &Pending, done: Range<usize>) {
        let rest = done.end..p.place.len();
        if !rest.is_empty() {
            self.left.push(p.some(rest));
        }
    }

    /// Follows a register that the kernel set when it let the thread go on at an instant.
    fn set_by_kernel(&mut self, p: Pending, count: u64) -> Result<()> {
        let thread = p.at.0;
        // The call that ends a handler is itself where the kernel lets the thread go on elsewhere.
        for count in [Some(count), count.checked_sub(1)].into_iter().flatten() {
            let Some(step) = self.past.step(thread, count)? else {
                continue;
            };
            if let Some(from) = signal::restored(&step, &p.place) {
                let hop = Hop {
                    thread,
                    count,
                    pc: step.cpu.rip,
                    how: How::Signal,
                    from,
                    to: p.place,
                };
                let next = p.part(0..p.place.len(), hop, (thread, count));
                self.left.push(next);
                return Ok(());
            }
        }
        let begins = self.past.step(thread, count)?;
        let at = (thread, count);
        let origin = match (begins, p.place) {
            (Some(step), _) if signal::is_return(&step) => Origin::Untold {
                point: self.point_of(&step, at)?,
                why: "the kernel restored it behind a signal's handler".into(),
            },
            (_, Place::Register { register, .. }) if !signal::set_for_handlers(register) => {
                // A handler begins with it as it was.
                self.left.push(Pending { at, ..p });
                return Ok(());
            }
            (Some(step), _) => Origin::Signal {
                point: self.point_of(&step, at)?,
            },
            (None, _) => Origin::Unknown,
        };
        self.end(p, origin)
    }
}

/// Where the kernel moved bytes from (`mremap`): which of the bytes of `place`, and where they were.
fn moved(h: &Happening, place: &Place) -> Option<(Range<usize>, Place)> {
    let Kind::Syscall {
        number,
        args,
        result: Some(new),
    } = h.kind
    else {
        return None;
    };
    let Place::Memory { at, len } = *place else {
        return None;
    };
    let within = at.checked_sub(new)?;
    let left = args[1].checked_sub(within).filter(|l| *l > 0)?;
    let len = len.min(usize::try_from(left).unwrap_or(len));
    let from = Place::Memory {
        at: args[0].wrapping_add(within),
        len,
    };
    (syscall_name(number) == "mremap" && new != args[0]).then_some((0..len, from))
}

/// What an instruction took in.
fn taken_in(step: &Step, vec: &VecState) -> Vec<Operand> {
    let mut info = InstructionInfoFactory::new();
    let used = info.info(&step.instruction);
    let mut out: Vec<Operand> = Vec::new();
    let reads = |a: OpAccess| {
        matches!(
            a,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    for u in used.used_registers().iter().filter(|u| reads(u.access())) {
        let r = u.register();
        let Some(full) = whole(r) else { continue };
        let high = usize::from(r.is_gpr8() && matches!(r.number(), 4..=7) && is_high(r));
        let bytes = bytes_of(full, &step.cpu, vec);
        let bytes = bytes[high..].iter().take(r.size()).copied().collect();
        let name = format!("{r:?}").to_lowercase();
        if !out.iter().any(|o| o.name == name) {
            out.push(Operand { name, bytes });
        }
    }
    for t in step.touches.iter().filter(|t| t.access.read) {
        out.push(Operand {
            name: Place::Memory {
                at: t.access.address,
                len: t.access.len as usize,
            }
            .to_string(),
            bytes: t.bytes.clone().unwrap_or_default(),
        });
    }
    out
}

fn is_high(r: iced_x86::Register) -> bool {
    use iced_x86::Register::{AH, BH, CH, DH};
    matches!(r, AH | BH | CH | DH)
}
