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
        let execfn = header.execfn.as_bytes().to_vec();
        out.stack = out.place(&mut cursor, &s, execfn)?;
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
    fn place(
        &self,
        cursor: &mut Cursor,
        s: &InitialStack,
        execfn: Vec<u8>,
    ) -> Result<Option<Stack>> {
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
                EXECFN => Some(with_end(execfn.clone())),
                PLATFORM | BASE_PLATFORM => match value {
                    Some(at) => text(cursor, *at, MOST)?.map(with_end),
                    None => None,
                },
                RANDOM => match value {
                    Some(at) => cursor.known_memory(*at, 16)?.whole(),
                    None => None,
                },
                _ => continue,
            };
            let room = bytes.as_ref().map_or(16, |b| b.len() as u64);
            let at = match value {
                Some(at) if (s.pointer..end).contains(at) => *at,
                // The recorder lays one elsewhere. It keeps its place in a page.
                Some(at) => end.next_multiple_of(PAGE) + at % PAGE,
                // The program did not read the pointer.
                None => end,
            };
            end = end.max(at + room);
            pointed.push((*kind, at, bytes));
        }
        let words = 1 + self.args.len() + 1 + self.env.len() + 1 + 2 * (s.auxiliary.len() + 1);
        let words = s.pointer.checked_add(WORD * words as u64);
        let lowest = pointed.iter().map(|p| p.1).min().unwrap_or(texts);
        Ok(words
            .filter(|above| *above <= texts.min(lowest))
            .map(|_| Stack {
                pointer: s.pointer,
                texts,
                auxiliary: s.auxiliary.clone(),
                pointed,
                end,
            }))
    }
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
