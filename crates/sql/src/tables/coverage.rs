//! What was executed, and how often.

use crate::bounds::Bounds;
use crate::column::Kind::{Address, Int, Word};
use crate::column::{Column, PROCESS, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::sums::{Block, blocks, whole};
use crate::table::Table;
use hindsight_inspect::symbols::{InlineFrame, Module};
use std::collections::{BTreeMap, HashSet};

/// Table `coverage`.
pub struct Coverage;

const COVERAGE: &[Column] = &[
    column(
        "kind",
        Word,
        "block: instructions that were executed one after the other; line: a source line; function: a function",
    ),
    PROCESS,
    column(
        "module",
        Word,
        "path of its file; NULL: code that the program made",
    ),
    column("function", Word, "its function; NULL: not known"),
    column("file", Word, "path of its source; NULL: not known"),
    column(
        "line",
        Int,
        "number of the source line, or of the one at which the block or function begins; NULL: not known",
    ),
    column(
        "address",
        Address,
        "where the block or function begins in memory; NULL: a line, or it was not executed",
    ),
    column("length", Int, "bytes of the block; NULL: not a block"),
    column(
        "count",
        Int,
        "how often it was executed, from its beginning; a line: how often its most executed instruction was, summed over all \
         copies that were inlined",
    ),
    column("instructions", Int, "instructions that were executed in it"),
];

impl Table for Coverage {
    fn name(&self) -> &str {
        "coverage"
    }

    fn columns(&self) -> &'static [Column] {
        COVERAGE
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let kinds = bounds.texts("kind");
        let wants = |kind: &str| kinds.is_none_or(|k| k.contains(kind));
        if ![BLOCK, LINE, FUNCTION].into_iter().any(wants) {
            return Ok(());
        }
        let all = blocks(r, bounds, &out.cancel)?;
        let mut files: Files = BTreeMap::new();
        for b in &all {
            files.entry((b.image, b.file)).or_default().push(b);
        }
        // Of some files nothing was executed.
        let images: Vec<u32> = files.keys().map(|f| f.0).collect();
        for image in images {
            for file in 0..r.files(image)? {
                files.entry((image, Some(file))).or_default();
            }
        }
        for ((image, file), blocks) in files {
            out.cancel.check()?;
            let module = file.map(|f| r.module(image, f)).transpose()?.flatten();
            let part = Part {
                image,
                module: module.as_ref().map(|(m, bias)| (&**m, *bias)),
                counts: counts(&blocks),
            };
            if wants(BLOCK) {
                for b in &blocks {
                    part.block(b, out)?;
                }
            }
            if wants(FUNCTION) {
                part.functions(out)?;
            }
            if wants(LINE) {
                part.lines(out)?;
            }
        }
        Ok(())
    }
}

const BLOCK: &str = "block";
const LINE: &str = "line";
const FUNCTION: &str = "function";

/// The blocks of each file of each program image.
type Files<'a> = BTreeMap<(u32, Option<usize>), Vec<&'a Block>>;

/// How often each instruction was executed, ascending by address.
fn counts(blocks: &[&Block]) -> Vec<(u64, u64)> {
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    for b in blocks {
        let Some((_, instructions)) = b.pcs.split_last() else {
            continue;
        };
        for pc in instructions {
            *sums.entry(*pc).or_default() += b.count;
        }
    }
    sums.into_iter().collect()
}

/// What was executed of a file.
struct Part<'a> {
    image: u32,
    /// The file, and what is to be taken from addresses in memory to get those in the file.
    module: Option<(&'a Module, u64)>,
    counts: Vec<(u64, u64)>,
}

impl Part<'_> {
    /// Says kind, process, module and function.
    fn begin(&self, out: &mut Rows, kind: &str, function: Option<&str>) {
        out.text(0, kind);
        out.int(1, i64::from(self.image));
        out.maybe(2, self.module.map(|m| m.0.path()));
        out.maybe(3, function);
    }

    fn block(&self, b: &Block, out: &mut Rows) -> Result<(), Stop> {
        let (Some(first), Some(behind)) = (b.pcs.first(), b.pcs.last()) else {
            return Ok(());
        };
        let innermost = self.frames(*first).into_iter().next();
        let function = innermost.as_ref().and_then(|f| f.function.as_deref());
        self.begin(out, BLOCK, function);
        if let Some(s) = innermost.as_ref().and_then(|f| f.source.as_ref()) {
            out.text(4, &s.file);
            out.int(5, i64::from(s.line));
        }
        out.uint(6, *first);
        out.int(7, (behind - first) as i64);
        out.int(8, b.count as i64);
        let each = b.pcs.len() as u64 - 1;
        out.int(9, b.count.saturating_mul(each) as i64);
        out.end()
    }

    /// The functions at an address in memory, the innermost one first.
    fn frames(&self, at: u64) -> Vec<InlineFrame> {
        let of = |(m, bias): (&Module, u64)| m.frames(at.wrapping_sub(bias));
        self.module.map_or(Vec::new(), of)
    }

    fn functions(&self, out: &mut Rows) -> Result<(), Stop> {
        let Some((module, bias)) = self.module else {
            return Ok(());
        };
        // By the address in memory: name, how often, instructions.
        let mut found: BTreeMap<u64, (String, u64, u64)> = BTreeMap::new();
        for (pc, count) in &self.counts {
            let at = pc.wrapping_sub(bias);
            if let Some((f, past)) = module.function(at) {
                let its = found.entry(pc - past);
                let its = its.or_insert_with(|| (f.demangled(), 0, 0));
                its.1 += if past == 0 { *count } else { 0 };
                its.2 += count;
            }
        }
        for (at, (name, count, instructions)) in &found {
            self.begin(out, FUNCTION, Some(name));
            if let Some(line) = module.line(at.wrapping_sub(bias)) {
                out.text(4, &line.file);
                out.int(5, i64::from(line.line));
            }
            out.uint(6, *at);
            out.int(8, *count as i64);
            out.int(9, *instructions as i64);
            out.end()?;
        }
        let were: HashSet<u64> = found.keys().map(|at| at.wrapping_sub(bias)).collect();
        let mut others: Vec<_> = (module.functions().iter())
            .filter(|f| f.size > 0 && !were.contains(&f.addr))
            .collect();
        others.dedup_by_key(|f| f.addr);
        for f in others {
            self.begin(out, FUNCTION, Some(&f.demangled()));
            if let Some(line) = module.line(f.addr) {
                out.text(4, &line.file);
                out.int(5, i64::from(line.line));
            }
            out.int(8, 0);
            out.int(9, 0);
            out.end()?;
        }
        Ok(())
    }

    fn lines(&self, out: &mut Rows) -> Result<(), Stop> {
        let Some((module, bias)) = self.module else {
            return Ok(());
        };
        let Some(table) = module.lines() else {
            return Err(anyhow::anyhow!("the line table of {} is too long", module.path()).into());
        };
        let mut all: BTreeMap<(&str, u32), Line> = BTreeMap::new();
        for (i, range) in table.ranges.iter().enumerate() {
            if i.is_multiple_of(LOOK) {
                out.cancel.check()?;
            }
            let its = all.entry((&table.files[range.file as usize], range.line));
            let its = its.or_default();
            let (from, until) = (range.addr.wrapping_add(bias), range.len);
            let first = self.counts.partition_point(|c| c.0 < from);
            let here = self.counts[first..].iter();
            let here = here.take_while(|c| c.0 - from < until);
            let (mut most, mut sum) = (0, 0);
            for (_, count) in here {
                most = most.max(*count);
                sum += count;
            }
            if sum == 0 {
                continue;
            }
            let frames = module.frames(range.addr);
            if its.function.is_none() {
                its.function = frames.first().and_then(|f| f.function.clone());
            }
            its.instructions += sum;
            let copy = its
                .copies
                .entry(copy(module, range.addr, &frames))
                .or_default();
            *copy = (*copy).max(most);
        }
        for ((file, line), its) in all {
            self.begin(out, LINE, its.function.as_deref());
            out.text(4, file);
            out.int(5, i64::from(line));
            out.int(8, its.copies.values().sum::<u64>() as i64);
            out.int(9, its.instructions as i64);
            out.end()?;
        }
        Ok(())
    }
}

/// After so many ranges it looks whether it was cancelled.
const LOOK: usize = 1 << 12;

/// A source line.
#[derive(Default)]
struct Line {
    function: Option<String>,
    /// How often each copy was executed.
    copies: BTreeMap<Copy, u64>,
    instructions: u64,
}

/// Tells copies of the same code apart: the function of its own that has it, and the places at which functions are inlined.
type Copy = (String, Vec<(String, u32, u32)>);

fn copy(module: &Module, at: u64, frames: &[InlineFrame]) -> Copy {
    let function = module.function(at).map_or("", |(f, _)| &f.name);
    let function = whole(function).unwrap_or(function).to_owned();
    let places = frames.iter().skip(1).filter_map(|f| f.source.as_ref());
    let places = places.map(|s| (s.file.clone(), s.line, s.column));
    (function, places.collect())
}
