//! How the recorded program began: what was executed, where, with which arguments and environment, and where all that lay on
//! its stack. A live program that begins so takes the same ways, also where code looks at addresses: string functions of the C
//! library compare where in its page a text lies.

use anyhow::Result;
use hindsight_inspect::{InitialStack, initial_stack};
use hindsight_timeline::{Cursor, Timeline};
use hindsight_trace::{ModuleHash, Text};
use serde::{Deserialize, Serialize};

/// Kinds of entries of the auxiliary vector that point to texts.
const PLATFORM: u64 = 15;
const BASE_PLATFORM: u64 = 24;
const RANDOM: u64 = 25;
const EXECFN: u64 = 31;
const POINTERS: [u64; 4] = [PLATFORM, BASE_PLATFORM, RANDOM, EXECFN];
/// The kind of entries that say nothing.
const IGNORE: u64 = 1;
/// The kernel has some twenty.
const ENTRIES: usize = 64;
const RANDOM_LEN: usize = 16;
/// `x86_64` and its zero, which all kernels say of a 64-bit program. The kernel lays it right below what is next: where more room
/// were kept for it, it would seem to overlap a text now and then.
const PLATFORM_LEN: usize = 7;
/// Bytes from the first word to the last text. The kernel allows six mebibytes of texts.
const LARGEST: u64 = 8 << 20;
/// Files whose contents are looked at.
const MODULES: usize = 1024;
const PROT_EXEC: u32 = 4;
/// Bytes of all texts that are read from the recorded stack.
const MOST: usize = 1 << 21;
const WORD: u64 = 8;
const PAGE: u64 = 4096;
/// Texts begin at most so many bytes behind the first word. The kernel allows six mebibytes for all.
const FARTHEST: u64 = 1 << 24;
/// The highest address of a stack.
const TOP: u64 = 1 << 56;

/// What was executed.
#[derive(Serialize, Deserialize, Default)]
pub struct Begin {
    /// The path of the file. For a script it is that of its interpreter.
    pub program: Vec<u8>,
    /// The name of its content, and its size. `None`: the recording does not have it.
    pub content: Option<(ModuleHash, u64)>,
    /// The other files whose code the program had mapped at any time: paths, names of contents and sizes.
    pub code: Vec<(String, ModuleHash, u64)>,
    /// The path that was executed. For a script it is the script.
    pub executed: Vec<u8>,
    pub folder: Vec<u8>,
    pub args: Vec<Vec<u8>>,
    pub env: Vec<Vec<u8>>,
    /// `None`: it is not known.
    pub stack: Option<Stack>,
}

/// Where the kernel laid what on the stack.
#[derive(Serialize, Deserialize)]
pub struct Stack {
    /// The address of the first word.
    pub pointer: u64,
    /// The address of the first argument's text. The texts of the others and of the environment follow without a gap.
    pub texts: u64,
    /// The entries of the auxiliary vector with their values, if the program read them.
    pub auxiliary: Vec<(u64, Option<u64>)>,
    /// The entries that point to something: their kinds, where that is, and its bytes, if they are known.
    pub pointed: Vec<(u64, u64, Option<Vec<u8>>)>,
    /// One past the highest address.
    pub end: u64,
}

impl Begin {
    /// # Errors
    /// The recording does not answer.
    pub fn new(timeline: &Timeline) -> Result<Begin> {
        let header = timeline.trace().header();
        let texts = |list: &[Text]| list.iter().map(|t| t.as_bytes().to_vec()).collect();
        let mut out = Begin {
            program: header.exe.as_bytes().to_vec(),
            executed: header.execfn.as_bytes().to_vec(),
            folder: header.cwd.as_bytes().to_vec(),
            args: texts(&header.argv),
            env: texts(&header.env),
            ..Begin::default()
        };
        let Some(first) = timeline.processes()?.into_iter().next() else {
            return Ok(out);
        };
        out.contents(timeline, first.image)?;
        let Some(s) = initial_stack(timeline, &first)? else {
            return Ok(out);
        };
        let mut cursor = timeline.cursor()?;
        cursor.seek(first.begin)?;
        if !out.is_as_on(&s) {
            // The kernel gives a script's interpreter other arguments than the script got.
            let both = (
                text_list(&mut cursor, &s.arguments)?,
                text_list(&mut cursor, &s.environment)?,
            );
            let (Some(args), Some(env)) = both else {
                return Ok(out);
            };
            (out.args, out.env) = (args, env);
        }
        out.stack = out.place(&mut cursor, &s)?;
        Ok(out)
    }

    /// What the program's file and others contain.
    fn contents(&mut self, timeline: &Timeline, image: u32) -> Result<()> {
        for m in timeline.modules(image)?.iter().take(MODULES) {
            let is_code = m.parts.iter().any(|p| p.prot & PROT_EXEC != 0);
            let Some(hash) = m.hash.filter(|_| is_code) else {
                continue;
            };
            let Ok(bytes) = timeline.module_bytes(hash) else {
                continue;
            };
            let size = bytes.len() as u64;
            if m.path.as_bytes() != self.program {
                self.code.push((m.path.clone(), hash, size));
            } else if self.content.is_none() {
                self.content = Some((hash, size));
            }
        }
        Ok(())
    }

    /// Whether these are as many texts as there are on the stack.
    fn is_as_on(&self, s: &InitialStack) -> bool {
        (self.args.len(), self.env.len()) == (s.arguments.len(), s.environment.len())
    }

    /// Where everything is. `None`: not where the kernel would lay it.
    fn place(&self, cursor: &mut Cursor, s: &InitialStack) -> Result<Option<Stack>> {
        if s.pointer > TOP {
            return Ok(None);
        }
        // The texts lie one behind the other.
        let (mut begin, mut len) = (None, 0u64);
        let pointers = s.arguments.iter().chain(&s.environment);
        for (pointer, text) in pointers.zip(self.args.iter().chain(&self.env)) {
            if let Some(p) = pointer {
                let first = p.wrapping_sub(len);
                if *begin.get_or_insert(first) != first {
                    return Ok(None);
                }
            }
            len += text.len() as u64 + 1;
        }
        let Some(texts) =
            begin.filter(|at| (s.pointer..=s.pointer.saturating_add(FARTHEST)).contains(at))
        else {
            return Ok(None);
        };
        let mut end = texts + len;
        let mut pointed = Vec::new();
        for (kind, value) in &s.auxiliary {
            let bytes = match *kind {
                EXECFN => Some(with_end(self.executed.clone())),
                // That of this machine: the loader may look for libraries by it.
                PLATFORM | BASE_PLATFORM => None,
                RANDOM => match value {
                    Some(at) => cursor.known_memory(*at, RANDOM_LEN)?.whole(),
                    None => None,
                },
                _ => continue,
            };
            if pointed.len() == POINTERS.len() {
                return Ok(None);
            }
            let at = match value {
                Some(at) if (s.pointer..end).contains(at) => *at,
                // The recorder lays one elsewhere. It keeps its place in a page.
                Some(at) => end.next_multiple_of(PAGE) + at % PAGE,
                // The program did not read the pointer.
                None => end,
            };
            end = end.max(at + room(*kind, &bytes));
            pointed.push((*kind, at, bytes));
        }
        let stack = Stack {
            pointer: s.pointer,
            texts,
            auxiliary: s.auxiliary.clone(),
            pointed,
            end,
        };
        Ok(Some(stack).filter(|stack| s.is_whole && stack.is_sound(self)))
    }
}

/// Bytes for something that a pointer of the auxiliary vector leads to.
pub fn room(kind: u64, bytes: &Option<Vec<u8>>) -> u64 {
    let own = match kind {
        RANDOM => RANDOM_LEN,
        _ => PLATFORM_LEN,
    };
    bytes.as_ref().map_or(own, |b| b.len()) as u64
}

impl Stack {
    /// Whether everything has a place of its own, as the kernel would lay it. Otherwise one thing could take the place of another
    /// one, which was shown.
    pub fn is_sound(&self, begin: &Begin) -> bool {
        let kinds: Vec<u64> = self.auxiliary.iter().map(|e| e.0).collect();
        let pointers: Vec<u64> = self.pointed.iter().map(|p| p.0).collect();
        if kinds.len() > ENTRIES
            || !are_different(kinds.iter().filter(|k| **k != IGNORE))
            || !are_different(&pointers)
            || !pointers.iter().all(|k| POINTERS.contains(k))
            || !pointers.iter().all(|k| kinds.contains(k))
        {
            return false;
        }
        let fits = |(kind, _, bytes): &(u64, u64, Option<Vec<u8>>)| match (*kind, bytes) {
            (RANDOM, Some(b)) => b.len() == RANDOM_LEN,
            (EXECFN, Some(b)) => b.iter().position(|b| *b == 0) == Some(b.len() - 1),
            (_, bytes) => bytes.is_none(),
        };
        if !self.pointed.iter().all(fits) || self.pointer > TOP || self.end > TOP {
            return false;
        }
        let texts = begin.args.iter().chain(&begin.env);
        if texts.clone().any(|t| t.contains(&0)) {
            return false;
        }
        let words = 1 + begin.args.len() + 1 + begin.env.len() + 1 + 2 * (kinds.len() + 1);
        let len: u64 = texts.map(|t| t.len() as u64 + 1).sum();
        let mut parts = vec![(self.pointer, WORD * words as u64), (self.texts, len)];
        let pointed = self
            .pointed
            .iter()
            .map(|(kind, at, b)| (*at, room(*kind, b)));
        parts.extend(pointed);
        parts.sort_unstable();
        let mut above = self.pointer;
        for (at, len) in parts {
            // Both are far below the largest number.
            if at < above || at > TOP {
                return false;
            }
            above = at + len;
        }
        above <= self.end && self.end - self.pointer <= LARGEST
    }
}

/// Whether no number is there twice.
fn are_different<'a>(all: impl IntoIterator<Item = &'a u64>) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    all.into_iter().all(|n| seen.insert(n))
}

fn with_end(mut text: Vec<u8>) -> Vec<u8> {
    text.push(0);
    text
}

/// The text at an address, if all of it is known and it has not more than so many bytes.
fn text(cursor: &mut Cursor, at: u64, most: usize) -> Result<Option<Vec<u8>>> {
    let mut out = Vec::new();
    while out.len() < most {
        let memory = cursor.known_memory(at.wrapping_add(out.len() as u64), 64)?;
        for b in &memory.bytes {
            match b {
                None => return Ok(None),
                Some(b) if b.value == 0 => return Ok(Some(out)),
                Some(b) => out.push(b.value),
            }
        }
    }
    Ok(None)
}

/// The texts at these addresses, if all are known.
fn text_list(cursor: &mut Cursor, pointers: &[Option<u64>]) -> Result<Option<Vec<Vec<u8>>>> {
    let (mut out, mut left) = (Vec::new(), MOST);
    for p in pointers {
        let found = match p {
            Some(at) => text(cursor, *at, left)?,
            None => None,
        };
        let Some(found) = found else {
            return Ok(None);
        };
        left = left.saturating_sub(found.len());
        out.push(found);
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> (Begin, Stack) {
        let begin = Begin {
            args: vec![b"sh".to_vec(), b"-c".to_vec(), b"true      ".to_vec()],
            env: vec![b"A=1".to_vec()],
            ..Begin::default()
        };
        let stack = Stack {
            pointer: 0x7000,
            texts: 0x7800,
            auxiliary: vec![
                (6, Some(4096)),
                (RANDOM, None),
                (EXECFN, None),
                (IGNORE, None),
                (IGNORE, None),
            ],
            pointed: vec![
                (RANDOM, 0x7700, Some(vec![1; 16])),
                (EXECFN, 0x7900, Some(b"/bin/sh\0".to_vec())),
            ],
            end: 0x7a00,
        };
        (begin, stack)
    }

    #[test]
    fn nothing_takes_the_place_of_something_else() {
        let sound = |change: &dyn Fn(&mut Stack)| {
            let (begin, mut stack) = begin();
            change(&mut stack);
            stack.is_sound(&begin)
        };
        assert!(sound(&|_| {}));
        // As the kernel lays them, where the stack begins without a random distance.
        assert!(sound(&|s| {
            s.auxiliary.push((PLATFORM, None));
            s.pointed.push((PLATFORM, 0x77f9, None));
        }));
        let changes: [&dyn Fn(&mut Stack); 12] = [
            // What was executed would be written over an argument, or over the words.
            &|s| s.pointed[1].1 = 0x7806,
            &|s| s.pointed[1].1 = 0x7010,
            &|s| s.pointed[1].1 = s.pointed[0].1 + 8,
            &|s| s.pointed[1].1 = 0x79ff,
            &|s| s.pointed[1].1 = u64::MAX,
            &|s| s.texts = 0x7008,
            &|s| s.pointed.push((EXECFN, 0x7980, Some(b"x\0".to_vec()))),
            &|s| s.pointed[0].0 = 9,
            &|s| s.pointed[0].2 = Some(vec![1; 17]),
            &|s| s.auxiliary.push((6, None)),
            &|s| s.end = 0x7000 + LARGEST + 1,
            &|s| s.pointed[1].2 = Some(b"a\0b\0".to_vec()),
        ];
        for (i, change) in changes.into_iter().enumerate() {
            assert!(!sound(change), "{i}");
        }
    }
}
