//! The auxiliary vector, which lies on the stack when a program begins.

use hindsight_symbols::{DebugPaths, Module};
use hindsight_timeline::Result;
use hindsight_timeline::regs::RSP;
use hindsight_timeline::{Process, Timeline};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

/// Words of the initial stack that are read.
const MAX_WORDS: usize = 1 << 14;
const AT_NULL: u64 = 0;
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

/// What is known of the auxiliary vector of a program image, as the kernel lays it out. It comes from the stack, behind
/// arguments and environment, and from the program's files. By it debuggers find the program in memory.
pub fn auxiliary_vector(timeline: &Timeline, image: u32) -> Result<Vec<u8>> {
    let processes = timeline.processes()?;
    let mut out = match processes.iter().find(|p| p.image == image) {
        Some(p) => initial_stack(timeline, p)?.map_or(Vec::new(), |s| s.known()),
        None => Vec::new(),
    };
    let program = Program::of(timeline, image);
    let mut add = |kind: u64, value: Option<u64>| {
        if let Some(value) = value
            && !out.iter().any(|(k, _)| *k == kind)
        {
            out.push((kind, value));
        }
    };
    if let Some(p) = program {
        add(AT_PHDR, p.headers);
        add(AT_PHENT, Some(56));
        add(AT_PHNUM, Some(p.header_count));
        add(AT_PAGESZ, Some(4096));
        add(AT_BASE, p.interpreter_bias);
        add(AT_ENTRY, Some(p.entry));
    }
    out.push((AT_NULL, 0));
    let words = out.iter().flat_map(|(k, v)| [*k, *v]);
    Ok(words.flat_map(u64::to_le_bytes).collect())
}

/// What the kernel lays on the stack of a program before its first instruction. Words that the program did not read are not
/// known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitialStack {
    /// The address of its first word, the number of arguments.
    pub pointer: u64,
    /// The addresses of the arguments.
    pub arguments: Vec<Option<u64>>,
    /// The addresses of the environment's texts.
    pub environment: Vec<Option<u64>>,
    /// The auxiliary vector, without its end: kinds and values.
    pub auxiliary: Vec<(u64, Option<u64>)>,
    /// All entries are known up to the last one.
    pub is_whole: bool,
}

impl InitialStack {
    /// The entries of the auxiliary vector whose values are known.
    fn known(&self) -> Vec<(u64, u64)> {
        let entries = self.auxiliary.iter();
        entries.filter_map(|(k, v)| Some((*k, (*v)?))).collect()
    }
}

/// The first stack of a program image. `None`: the recording does not have the program's first instant (what is on the stack
/// later is something else), or not enough of the stack is known.
///
/// # Errors
/// The recording does not answer.
pub fn initial_stack(timeline: &Timeline, process: &Process) -> Result<Option<InitialStack>> {
    if !process.is_whole {
        return Ok(None);
    }
    let mut cursor = timeline.cursor()?;
    cursor.seek(process.begin)?;
    let sp = cursor.registers()?.gpr[RSP];
    let memory = cursor.known_memory(sp, 8 * MAX_WORDS)?;
    let words: Vec<Option<u64>> = memory
        .bytes
        .chunks_exact(8)
        .map(|w| {
            w.iter()
                .rev()
                .try_fold(0u64, |acc, b| Some(acc << 8 | b.as_ref()?.value as u64))
        })
        .collect();
    Ok(parse(sp, &words))
}

fn parse(pointer: u64, words: &[Option<u64>]) -> Option<InitialStack> {
    let count = usize::try_from((*words.first()?)?).ok()?;
    let arguments = words.get(1..count.checked_add(1)?)?.to_vec();
    // The count, the arguments and their null pointer.
    let begin = count.checked_add(2)?;
    let mut at = begin;
    // The environment. A pointer that is not known does not end it.
    while *words.get(at)? != Some(0) {
        at += 1;
    }
    let environment = words[begin..at].to_vec();
    at += 1;
    let (mut auxiliary, mut is_whole) = (Vec::new(), false);
    // The program reads the kinds of all entries, but only some values.
    while let (Some(Some(kind)), Some(value)) = (words.get(at), words.get(at + 1)) {
        if *kind == AT_NULL {
            is_whole = true;
            break;
        }
        auxiliary.push((*kind, *value));
        at += 2;
    }
    Some(InitialStack {
        pointer,
        arguments,
        environment,
        auxiliary,
        is_whole,
    })
}

/// Where the program itself lies.
struct Program {
    /// Guest address of its first instruction.
    entry: u64,
    /// Guest address of its program headers.
    headers: Option<u64>,
    header_count: u64,
    /// Guest address minus file address, of its interpreter.
    interpreter_bias: Option<u64>,
}

impl Program {
    /// The first file that a program image mapped, and its interpreter. That is the file of this name, or else the second
    /// one: the name may be that of a link. Of a process that was attached to, files are in order of address.
    fn of(timeline: &Timeline, image: u32) -> Option<Program> {
        let modules = timeline.modules(image).ok()?;
        let open = |i: usize| {
            let m = modules.get(i)?;
            let bytes = timeline.module_bytes(m.hash?).ok()?;
            let parsed = Module::parse(&m.path, bytes, &DebugPaths::none()).ok()?;
            let first = m.parts.first()?;
            let bias = parsed.bias(first.start, first.offset)?;
            Some((parsed, bias))
        };
        let (program, bias) = open(0)?;
        let header = elf::FileHeader64::<Endianness>::parse(program.data()).ok()?;
        let endian = header.endian().ok()?;
        let headers = program.address_of_offset(header.e_phoff(endian));
        let name = interpreter(program.data());
        let named = |m: &hindsight_timeline::Module| m.path.rsplit('/').next() == name.as_deref();
        let interpreter = modules.iter().position(named).unwrap_or(1);
        let interpreted = dynamic(program.data()).is_some();
        Some(Program {
            entry: program.entry().wrapping_add(bias),
            headers: headers.map(|a| a.wrapping_add(bias)),
            header_count: header.e_phnum(endian) as u64,
            interpreter_bias: open(interpreter)
                .filter(|_| interpreted)
                .map(|(_, bias)| bias),
        })
    }
}

/// The file name of a program's interpreter.
fn interpreter(bytes: &[u8]) -> Option<String> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let all = header.program_headers(endian, bytes).ok()?;
    let mut found = all
        .iter()
        .filter_map(|p| p.interpreter(endian, bytes).ok()?);
    let path = String::from_utf8_lossy(found.next()?).into_owned();
    path.rsplit('/').next().map(str::to_string)
}

/// File address of the dynamic section of an ELF file.
pub fn dynamic(bytes: &[u8]) -> Option<u64> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let all = header.program_headers(endian, bytes).ok()?;
    let found = all.iter().find(|p| p.p_type(endian) == elf::PT_DYNAMIC)?;
    Some(found.p_vaddr(endian))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_behind_the_environment() {
        let parse = |words: &[Option<u64>]| parse(0x100, words);
        let words = [1, 0x10, 0, 0x20, 0x21, 0, 6, 4096, 0, 0].map(Some);
        let whole = parse(&words).unwrap();
        assert_eq!(whole.known(), [(6, 4096)]);
        assert_eq!((whole.pointer, whole.arguments), (0x100, vec![Some(0x10)]));
        assert_eq!(whole.environment, [Some(0x20), Some(0x21)]);
        let mut partly = [1, 0x10, 0, 0x20, 0x21, 0, 6, 4096, 7, 9, 0, 0].map(Some);
        partly[4] = None;
        partly[9] = None;
        let partly = parse(&partly).unwrap();
        assert_eq!(partly.known(), [(6, 4096)]);
        assert_eq!(partly.environment, [Some(0x20), None]);
        assert_eq!(partly.auxiliary, [(6, Some(4096)), (7, None)]);
        assert!(partly.is_whole && !parse(&[0, 0, 0, 6, 1].map(Some)).unwrap().is_whole);
        assert_eq!(parse(&[None, None]), None);
        assert_eq!(parse(&[Some(u64::MAX)]), None);
    }
}
