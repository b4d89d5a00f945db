//! Names of instructions and of where they stand.

use super::tape::Step;
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use hindsight_timeline::Walked;
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What is known of this many addresses of code.
const MOST_KNOWN: usize = 1 << 16;

/// What is known of the instruction at an address.
#[derive(Clone, Copy)]
struct Known {
    code: [u8; 15],
    instruction: Instruction,
}

/// What instructions are, and where.
#[derive(Default)]
pub struct Names {
    known: HashMap<u64, Known>,
    /// By program image, file and address.
    functions: HashMap<(u32, usize, u64), Option<String>>,
    lines: HashMap<(u32, usize, u64), Option<String>>,
    formatter: Option<IntelFormatter>,
    /// By iced's number. Empty: not made yet.
    mnemonics: Vec<String>,
}

/// What is known of an address of a file, or what `find` finds.
fn remembered(
    known: &mut HashMap<(u32, usize, u64), Option<String>>,
    (image, file, at): (u32, Option<usize>, u64),
    find: impl FnOnce(usize) -> anyhow::Result<Option<String>>,
) -> Result<Option<&str>, Stop> {
    let Some(file) = file else {
        return Ok(None);
    };
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    let found = match known.entry((image, file, at)) {
        Entry::Occupied(o) => o.into_mut(),
        Entry::Vacant(v) => v.insert(find(file)?),
    };
    Ok(found.as_deref())
}

impl Names {
    pub fn instruction(&mut self, walked: &Walked) -> Instruction {
        let mut code = [0; 15];
        code[..walked.code.len()].copy_from_slice(walked.code);
        if let Some(k) = self.known.get(&walked.pc)
            && k.code == code
        {
            return k.instruction;
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let mut decoder = Decoder::with_ip(64, walked.code, walked.pc, DecoderOptions::NONE);
        let instruction = decoder.decode();
        self.known.insert(walked.pc, Known { code, instruction });
        instruction
    }

    /// The function at an address, at a time.
    pub fn function(
        &mut self,
        r: &Recording,
        image: u32,
        at: u64,
        time: i64,
    ) -> Result<Option<&str>, Stop> {
        let file = r.file(image, at, time)?;
        self.function_of(r, image, file, at)
    }

    /// The function at an address that belongs to a file.
    pub fn function_of(
        &mut self,
        r: &Recording,
        image: u32,
        file: Option<usize>,
        at: u64,
    ) -> Result<Option<&str>, Stop> {
        let find = |file| {
            let location = r.location(image, file, at)?;
            Ok(location.and_then(|l| Some(l.function?.0)))
        };
        remembered(&mut self.functions, (image, file, at), find)
    }

    /// The source line at an address that belongs to a file.
    pub fn line_of(
        &mut self,
        r: &Recording,
        image: u32,
        file: Option<usize>,
        at: u64,
    ) -> Result<Option<&str>, Stop> {
        remembered(&mut self.lines, (image, file, at), |file| {
            r.line(image, file, at)
        })
    }

    /// The name of an instruction in small letters.
    pub fn mnemonic(&mut self, instruction: &Instruction) -> &str {
        let number = instruction.mnemonic() as usize;
        if self.mnemonics.len() <= number {
            self.mnemonics.resize(number + 1, String::new());
        }
        let name = &mut self.mnemonics[number];
        if name.is_empty() {
            *name = format!("{:?}", instruction.mnemonic()).to_lowercase();
        }
        name
    }

    pub fn text(&mut self, instruction: &Instruction) -> String {
        let mut out = String::new();
        let formatter = self.formatter.get_or_insert_with(IntelFormatter::new);
        formatter.format(instruction, &mut out);
        out
    }
}

/// Fills two columns: function and line.
pub fn whereabouts(
    r: &Recording,
    out: &mut Rows,
    names: &mut Names,
    e: &Step,
    column: usize,
) -> Result<(), Stop> {
    if out.wants(&[column, column + 1]) {
        let image = r.image(e.stretch.segment.thread)?;
        let pc = e.walked.pc;
        let file = r.file(image, pc, e.time)?;
        if out.wants(&[column]) {
            out.maybe(column, names.function_of(r, image, file, pc)?);
        }
        if out.wants(&[column + 1]) {
            out.maybe(column + 1, names.line_of(r, image, file, pc)?);
        }
    }
    Ok(())
}
