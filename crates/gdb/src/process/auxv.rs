//! The auxiliary vector, which lies on the stack when a program begins.

use crate::Result;
use crate::program::libraries::Program;
use crate::state::session::Session;
use hindsight_isa::regs::RSP;
use hindsight_timeline::Position;

/// Words of the initial stack that are read.
const MAX_WORDS: usize = 1 << 14;
const AT_NULL: u64 = 0;
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

/// What is known of it. It comes from the stack, behind arguments and environment, and from the program's files. By it
/// gdb finds the program in memory.
pub fn find(session: &mut Session, begin: Position) -> Result<Vec<u8>> {
    let mut out = on_stack(session, begin)?;
    let program = Program::of(&session.timeline, session.inferior.image);
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

/// Its entries on the stack. There are none for an image that began by `fork`, and if the beginning of the stack is not
/// known.
fn on_stack(session: &mut Session, begin: Position) -> Result<Vec<(u64, u64)>> {
    let processes = session.timeline.processes()?;
    let process = processes.iter().find(|p| p.image == session.inferior.image);
    if process.is_none_or(|p| !p.by_exec && p.parent != 0) {
        return Ok(Vec::new());
    }
    let back = session.inferior.cursor.position()?;
    session.inferior.cursor.seek(begin)?;
    let sp = session.inferior.cursor.registers()?.gpr[RSP];
    let memory = session.inferior.cursor.known_memory(sp, 8 * MAX_WORDS);
    session.inferior.cursor.seek(back)?;
    let memory = memory?;
    let words: Vec<Option<u64>> = memory
        .bytes
        .chunks_exact(8)
        .map(|w| {
            w.iter()
                .rev()
                .try_fold(0u64, |acc, b| Some(acc << 8 | b.as_ref()?.value as u64))
        })
        .collect();
    Ok(parse(&words).unwrap_or_default())
}

fn parse(words: &[Option<u64>]) -> Option<Vec<(u64, u64)>> {
    let arguments = usize::try_from((*words.first()?)?).ok()?;
    // The count, the arguments and their null pointer.
    let mut at = arguments.checked_add(2)?;
    // The environment. A pointer that is not known does not end it.
    while *words.get(at)? != Some(0) {
        at += 1;
    }
    at += 1;
    let mut out = Vec::new();
    // The program reads the kinds of all entries, but only some values.
    while let (Some(Some(kind)), Some(value)) = (words.get(at), words.get(at + 1)) {
        if *kind == AT_NULL {
            break;
        }
        if let Some(value) = value {
            out.push((*kind, *value));
        }
        at += 2;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_behind_the_environment() {
        let words = [1, 0x10, 0, 0x20, 0x21, 0, 6, 4096, 0, 0].map(Some);
        assert_eq!(parse(&words), Some(vec![(6, 4096)]));
        let mut partly = [1, 0x10, 0, 0x20, 0x21, 0, 6, 4096, 7, 9, 0, 0].map(Some);
        partly[4] = None;
        partly[9] = None;
        assert_eq!(parse(&partly), Some(vec![(6, 4096)]));
        assert_eq!(parse(&[None, None]), None);
        assert_eq!(parse(&[Some(u64::MAX)]), None);
    }
}
