//! Names for places in code that are the same in both recordings, wherever files are mapped.

use crate::side::Side;
use crate::{Both, Result};
use hindsight_inspect::Inspector;
use hindsight_timeline::{Module, Position, ThreadId, Timeline};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The offset in a file takes the low bits of a key.
const OFFSET_BITS: u32 = 40;
/// This bit says that a key names a function of a file that was built anew.
pub const FUNCTION: u64 = 1 << 62;
/// This bit says that a key names an event.
pub const EVENT: u64 = 1 << 63;
/// What is known of this many addresses of code.
const MOST_KNOWN: usize = 1 << 16;

/// What a place in code is for the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// An instruction: equal in both recordings if it is the same one.
    Exact(u64),
    /// A function of a file that is another build in the other recording.
    Function(u64),
    /// Not compared: code without a name in a file that is another build in the other recording.
    Nothing,
}

/// A mapped part of a file.
#[derive(Clone, Debug)]
struct Part {
    start: u64,
    end: u64,
    offset: u64,
    module: u64,
    rebuilt: bool,
    load: Option<Position>,
    unload: Option<Position>,
}

/// The code of a program image.
#[derive(Clone)]
pub struct Code {
    parts: Vec<Part>,
    last: usize,
    image: u32,
}

/// The code of two program images, and by how much what is in memory is shifted between them.
pub struct Codes {
    /// Of each.
    pub each: Both<Code>,
    /// What an address of the first recording is less than the one of the second, modulo 2^64, for each file and for the heap.
    pub shifts: Vec<u64>,
    /// Some file is another build in the other recording.
    pub rebuilt: bool,
    /// The number of the program's ELF interpreter in keys, if there is one.
    pub loader: Option<u64>,
}

/// Pairs the files of two program images.
pub fn codes(sides: [&Timeline; 2], images: Both<u32>) -> Result<Codes> {
    let modules = [sides[0].modules(images[0])?, sides[1].modules(images[1])?];
    let pairs = paired(&modules);
    let mut each = [0, 1].map(|side| Code {
        parts: Vec::new(),
        last: 0,
        image: images[side],
    });
    let mut shifts = Vec::new();
    let (mut rebuilt, mut loader) = (false, None);
    for (number, (of, same)) in (1u64..).zip(&pairs) {
        for side in 0..2 {
            let Some(m) = of[side].map(|i| &modules[side][i]) else {
                continue;
            };
            let is_paired = of.iter().all(Option::is_some);
            if is_loader(m) {
                loader = Some(number);
            }
            each[side].parts.extend(m.parts.iter().map(|p| Part {
                start: p.start,
                end: p.end,
                offset: p.offset,
                module: number,
                rebuilt: is_paired && !same,
                load: m.load,
                unload: m.unload,
            }));
            rebuilt |= is_paired && !same;
        }
        if let [Some(a), Some(b)] = *of {
            let (a, b) = (&modules[0][a], &modules[1][b]);
            shifts.push(a.start.wrapping_sub(b.start));
        }
    }
    for code in &mut each {
        code.parts.sort_by_key(|p| (p.start, p.load));
    }
    shifts.extend(heap(sides, images)?);
    shifts.sort_unstable();
    shifts.dedup();
    Ok(Codes {
        each,
        shifts,
        rebuilt,
        loader,
    })
}

fn is_loader(m: &Module) -> bool {
    let name = m.path.rsplit('/').next().unwrap_or_default();
    name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld-2.")
}

/// By how much heaps are shifted. They are where `brk` puts them.
fn heap(sides: [&Timeline; 2], images: Both<u32>) -> Result<Option<u64>> {
    let mut starts = Vec::new();
    for (t, image) in sides.into_iter().zip(images) {
        let end = t.processes()?.into_iter().find(|p| p.image == image);
        let Some(end) = end.map(|p| p.end) else {
            continue;
        };
        let all = t.mappings(image, end)?;
        starts.extend(all.iter().find(|m| m.path == "[heap]").map(|m| m.start));
    }
    Ok(match starts[..] {
        [a, b] => Some(a.wrapping_sub(b)),
        _ => None,
    })
}

type Pair = ([Option<usize>; 2], bool);

/// Which file of one image is which of the other, and whether they have the same content.
fn paired(modules: &Both<Vec<Module>>) -> Vec<Pair> {
    let [a, b] = modules;
    let mut of: Vec<Option<usize>> = vec![None; a.len()];
    let mut taken = vec![false; b.len()];
    let mut pair = |fits: &dyn Fn(usize, usize) -> bool| {
        for (i, of) in of.iter_mut().enumerate().filter(|(_, of)| of.is_none()) {
            *of = (0..b.len()).find(|j| !taken[*j] && fits(i, *j));
            if let Some(j) = *of {
                taken[j] = true;
            }
        }
    };
    let name = |m: &Module| m.path.rsplit('/').next().map(str::to_owned);
    let same = |i: usize, j: usize| match (a[i].hash, b[j].hash) {
        (Some(x), Some(y)) => x == y,
        _ => a[i].path == b[j].path && a[i].hash == b[j].hash,
    };
    pair(&|i, j| same(i, j) && a[i].path == b[j].path);
    pair(&same);
    pair(&|i, j| a[i].path == b[j].path);
    // The program itself may have another name. It is mapped first.
    pair(&|i, j| i == 0 && j == 0);
    pair(&|i, j| name(&a[i]) == name(&b[j]));
    let mut out: Vec<Pair> = (0..a.len())
        .map(|i| ([Some(i), of[i]], of[i].is_some_and(|j| same(i, j))))
        .collect();
    let rest = (0..b.len()).filter(|j| !taken[*j]);
    out.extend(rest.map(|j| ([None, Some(j)], false)));
    out
}

impl Code {
    /// The part at an address at some time, which is only asked for where several were there.
    fn part(&mut self, pc: u64, now: &mut dyn FnMut() -> Option<Position>) -> Option<&Part> {
        let is_in = |p: &Part| p.start <= pc && pc < p.end;
        if !self.parts.get(self.last).is_some_and(is_in) {
            self.last = self.parts.iter().position(is_in)?;
        }
        let several = |p: &Part| p.load.is_some() && p.unload.is_some();
        if several(&self.parts[self.last]) {
            let now = now();
            let then = |p: &Part| p.load <= now && (p.unload.is_none() || now < p.unload);
            let here = self.parts.iter().position(|p| is_in(p) && then(p));
            self.last = here.unwrap_or(self.last);
        }
        self.parts.get(self.last)
    }

    /// The key of an instruction, whether or not its file was built anew. `None`: it is in no file.
    pub fn exact(&mut self, pc: u64, now: &mut dyn FnMut() -> Option<Position>) -> Option<u64> {
        let p = self.part(pc, now)?;
        let offset = (pc - p.start).wrapping_add(p.offset) & ((1 << OFFSET_BITS) - 1);
        Some(p.module << OFFSET_BITS & !(EVENT | FUNCTION) | offset)
    }
}

impl Code {
    /// Whether an address is in a file that is another build in the other recording.
    pub fn is_rebuilt(&mut self, pc: u64) -> bool {
        self.part(pc, &mut || None).is_some_and(|p| p.rebuilt)
    }
}

/// The number of the file that an exact key is in.
pub fn module_of(key: u64) -> u64 {
    (key & !(EVENT | FUNCTION)) >> OFFSET_BITS
}

/// A function's name without what compilers add to that of a copy.
fn plain(name: &str) -> &str {
    const COPIES: [&str; 5] = [".constprop.", ".isra.", ".part.", ".cold", ".lto_priv."];
    let begins = COPIES.iter().filter_map(|c| name.find(c));
    begins.min().map_or(name, |at| &name[..at])
}

/// Makes keys for one thread.
pub struct Keys {
    timeline: Timeline,
    thread: ThreadId,
    code: Code,
    /// A file whose code is not compared.
    left_out: Option<u64>,
    names: Option<Inspector>,
    known: HashMap<u64, Key>,
}

impl Keys {
    /// For a thread of a side.
    pub fn new(side: &Side, thread: ThreadId, codes: &Codes, which: usize) -> Keys {
        Keys {
            timeline: side.timeline.clone(),
            thread,
            code: codes.each[which].clone(),
            // It puts other files together in another way.
            left_out: codes.loader.filter(|_| codes.rebuilt),
            names: codes.rebuilt.then(|| Inspector::new(side.timeline.clone())),
            known: HashMap::new(),
        }
    }

    /// The key of an address where the thread has completed `count` instructions.
    pub fn key(&mut self, pc: u64, count: u64) -> Key {
        let (timeline, thread) = (&self.timeline, self.thread);
        let mut now = || timeline.position(thread, count).ok();
        let Some(part) = self.code.part(pc, &mut now) else {
            // It belongs to no file, and where it is says nothing.
            return Key::Exact(pc & 0xfff);
        };
        if Some(part.module) == self.left_out {
            return Key::Nothing;
        }
        if !part.rebuilt {
            let exact = self.code.exact(pc, &mut now);
            return exact.map_or(Key::Nothing, Key::Exact);
        }
        if let Some(k) = self.known.get(&pc) {
            return *k;
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let name = self.function(pc, count);
        let key = name.map_or(Key::Nothing, |name| {
            let mut h = DefaultHasher::new();
            name.hash(&mut h);
            Key::Function(FUNCTION | h.finish() & !(EVENT | FUNCTION))
        });
        self.known.insert(pc, key);
        key
    }

    fn function(&mut self, pc: u64, count: u64) -> Option<String> {
        let at = self.timeline.position(self.thread, count).ok()?;
        let space = self.names.as_mut()?.space(self.code.image, at).ok()?;
        let m = space.mapping(pc)?;
        let (function, distance) = m.module.function(pc.wrapping_sub(m.bias))?;
        // Of a function without a size nobody knows what belongs to it.
        let is_in = function.size > 0 || distance == 0;
        is_in.then(|| plain(&function.name).to_owned())
    }
}
