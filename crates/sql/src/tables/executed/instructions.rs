//! All instructions that were executed.

use super::names::Names;
use super::tape::{LONGEST, Piece, each_run, split};
use super::{FUNCTION, LINE, PC};
use crate::bounds::Bounds;
use crate::column::Kind::{Int, Text, Word};
use crate::column::{COUNT, Column, POSITION, PROCESS, THREAD, TIME, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::sums::Numbers;
use crate::table::Table;
use hindsight_timeline::Run;
use iced_x86::{Decoder, DecoderOptions, Instruction};

/// Table `instructions`.
pub struct Instructions;

const INSTRUCTIONS: &[Column] = &[
    POSITION,
    TIME,
    THREAD,
    PROCESS,
    COUNT,
    PC,
    column(
        "mnemonic",
        Word,
        "name of the instruction, in small letters",
    ),
    column("instruction", Text, "the instruction in Intel's notation"),
    column("length", Int, "its length in bytes"),
    FUNCTION,
    LINE,
];

impl Table for Instructions {
    fn name(&self) -> &str {
        "instructions"
    }

    fn columns(&self) -> &'static [Column] {
        INSTRUCTIONS
    }

    fn order(&self) -> &'static [&'static str] {
        &["time"]
    }

    fn split(&self, r: &Recording, bounds: &Bounds, most: usize) -> Vec<Bounds> {
        split(r, bounds, most)
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        let mut maker = Maker {
            r,
            bounds,
            some: bounds.knows("pc"),
            names: Names::default(),
            numbers: Numbers::default(),
            known: Vec::new(),
            size: 0,
            generation: 0,
        };
        each_run(r, bounds, out, |out, piece, count, run| {
            maker.run(out, piece, count, run)
        })
    }
}

/// Of this many instructions in runs something is known at a time.
const MOST: usize = 1 << 18;

/// What is known of a run: of each of its instructions.
struct Known {
    list: Vec<Instruction>,
    pcs: Vec<u64>,
    mnemonics: Vec<i32>,
    /// Filled if somebody wants it.
    texts: Vec<String>,
    /// The file that had the code last, and what it says of each instruction: keys of functions and lines, negative where none
    /// is known.
    file: Option<Option<usize>>,
    functions: Vec<i32>,
    lines: Vec<Option<String>>,
}

struct Maker<'a> {
    r: &'a Recording,
    bounds: &'a Bounds,
    /// Only some addresses count.
    some: bool,
    names: Names,
    numbers: Numbers,
    known: Vec<Known>,
    /// How many instructions these have together.
    size: usize,
    /// See [`Rows::generation`].
    generation: u32,
}

impl Maker<'_> {
    fn run(&mut self, out: &mut Rows, piece: &Piece, count: u64, run: Run) -> Result<(), Stop> {
        let known = match piece.logged() {
            None => {
                self.forget();
                self.known.push(know(&mut self.names, out, piece, run)?);
                0
            }
            Some(executed) => {
                if self.size >= MOST || self.generation != out.generation() {
                    self.forget();
                    self.generation = out.generation();
                }
                let (known, names, size) = (&mut self.known, &mut self.names, &mut self.size);
                let number = self.numbers.find(piece.image, executed, run, || {
                    known.push(know(names, out, piece, run)?);
                    *size += run.instructions() as usize;
                    Ok::<_, Stop>(known.len() as u32)
                })?;
                number as usize - 1
            }
        };
        if out.wants(&[9, 10]) {
            self.name(out, piece, count, known)?;
        }
        let k = &self.known[known];
        match self.some {
            false => fill(out, piece, count, k, 0..k.pcs.len()),
            true => {
                for (i, pc) in k.pcs.iter().enumerate() {
                    if self.bounds.has("pc", *pc) {
                        fill(out, piece, count, k, i..i + 1)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn forget(&mut self) {
        self.known.clear();
        self.numbers.clear();
        self.size = 0;
    }

    /// Finds functions and lines of a run, if other ones hold than the last time.
    fn name(&mut self, out: &mut Rows, piece: &Piece, count: u64, at: usize) -> Result<(), Stop> {
        let (r, image) = (self.r, piece.image);
        let k = &mut self.known[at];
        let Some(first) = k.pcs.first() else {
            return Ok(());
        };
        let file = r.file(image, *first, piece.stretch.at(count))?;
        if k.file == Some(file) {
            return Ok(());
        }
        k.file = Some(file);
        k.functions.clear();
        k.lines.clear();
        for pc in &k.pcs {
            if out.wants(&[9]) {
                let name = self.names.function_of(r, image, file, *pc)?;
                k.functions.push(name.map_or(-1, |n| out.key(9, n)));
            }
            if out.wants(&[10]) {
                let line = self.names.line_of(r, image, file, *pc)?;
                k.lines.push(line.map(str::to_owned));
            }
        }
        Ok(())
    }
}

fn know(names: &mut Names, out: &mut Rows, piece: &Piece, run: Run) -> Result<Known, Stop> {
    let mut buf = [0; LONGEST];
    let code = piece.code(run, &mut buf);
    let decoder = Decoder::with_ip(64, code, run.pc(), DecoderOptions::NONE);
    let list: Vec<Instruction> = decoder
        .into_iter()
        .take(run.instructions() as usize)
        .collect();
    let mut mnemonics = Vec::new();
    if out.wants(&[6]) {
        mnemonics.extend(list.iter().map(|i| out.key(6, names.mnemonic(i))));
    }
    let mut texts = Vec::new();
    if out.wants(&[7]) {
        texts.extend(list.iter().map(|i| names.text(i)));
    }
    Ok(Known {
        pcs: list.iter().map(Instruction::ip).collect(),
        list,
        mnemonics,
        texts,
        file: None,
        functions: Vec::new(),
        lines: Vec::new(),
    })
}

/// Makes the rows of some instructions of a run that begins when the thread has completed `count` instructions.
fn fill(
    out: &mut Rows,
    piece: &Piece,
    count: u64,
    k: &Known,
    some: std::ops::Range<usize>,
) -> Result<(), Stop> {
    let s = &piece.stretch.segment;
    let n = some.len();
    let (first, time) = (
        count + some.start as u64,
        piece.stretch.at(count) + some.start as i64,
    );
    if out.wants(&[0]) {
        for c in first..first + n as u64 {
            out.text(0, s.position(c).to_string());
        }
    }
    out.ints(1, time..time + n as i64);
    out.ints(2, std::iter::repeat_n(i64::from(s.thread.0), n));
    out.ints(3, std::iter::repeat_n(i64::from(piece.image), n));
    out.ints(4, first as i64..first as i64 + n as i64);
    out.uints(5, &k.pcs[some.clone()]);
    if out.wants(&[6]) {
        out.words(6, &k.mnemonics[some.clone()]);
    }
    if out.wants(&[7]) {
        k.texts[some.clone()].iter().for_each(|t| out.text(7, t));
    }
    out.ints(8, k.list[some.clone()].iter().map(|i| i.len() as i64));
    if out.wants(&[9]) {
        out.words(9, &k.functions[some.clone()]);
    }
    if out.wants(&[10]) {
        k.lines[some].iter().for_each(|l| out.maybe(10, l.as_ref()));
    }
    out.end_many(n)
}
