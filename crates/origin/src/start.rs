//! What a program finds on its stack when it begins: arguments, environment, what the kernel tells it.

use crate::Result;
use hindsight_timeline::{Cursor, Process, regs};

/// Words of the stack that are read.
const WORDS: usize = 1 << 14;
/// The longest text that is read.
const TEXT: usize = 4096;
/// Nobody has more than that on its stack at the beginning.
const MOST: u64 = 1 << 23;
/// The type of the entry that points to random bytes, and how many there are.
const AT_RANDOM: u64 = 25;
const RANDOM_BYTES: u64 = 16;
/// Values below are no addresses.
const NULL_PAGES: u64 = 1 << 16;

/// What a program found.
#[derive(Clone, Default, Debug)]
pub struct Start {
    sp: u64,
    arguments: Vec<(u64, String)>,
    variables: Vec<(u64, String)>,
    auxiliary: Vec<[u64; 2]>,
}

/// What lies at an address there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// This argument.
    Argument(usize, String),
    /// A variable with its value.
    Variable(String),
    /// Random bytes.
    Random,
    /// Anything else.
    Other,
}

impl Start {
    /// Reads it. The cursor is anywhere afterwards. `None`: the recording does not have the beginning of the program.
    pub fn read(cursor: &mut Cursor, process: &Process) -> Result<Option<Start>> {
        if !process.is_whole {
            return Ok(None);
        }
        cursor.seek(process.begin)?;
        let sp = cursor.registers()?.gpr[regs::RSP];
        let bytes = cursor.known_memory(sp, 8 * WORDS)?.prefix();
        let words = bytes.as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|w| u64::from_le_bytes(*w)).collect();
        let count = words.first().copied().unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(WORDS).min(WORDS);
        let arguments = words.iter().skip(1).take(count);
        let is_text = |w: &&u64| **w != 0;
        let variables = words.iter().skip(count + 2).take_while(is_text);
        let behind = count + 3 + variables.clone().count();
        let rest = words.get(behind..).unwrap_or_default();
        let auxiliary = rest.as_chunks::<2>().0.iter();
        let auxiliary = auxiliary.take_while(|e| e[0] != 0).copied().collect();
        let mut texts = |list: Vec<u64>| -> Result<Vec<(u64, String)>> {
            let mut out = Vec::new();
            for at in list {
                let bytes = cursor.known_memory(at, TEXT)?.prefix();
                let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                out.push((at, String::from_utf8_lossy(&bytes[..end]).into_owned()));
            }
            Ok(out)
        };
        Ok(Some(Start {
            sp,
            arguments: texts(arguments.copied().collect())?,
            variables: texts(variables.copied().collect())?,
            auxiliary,
        }))
    }

    /// What lies at an address. `None`: it is not there.
    pub fn piece(&self, address: u64) -> Option<Piece> {
        if address < self.sp || address - self.sp > MOST {
            return None;
        }
        let is_in = |(at, text): &(u64, String)| {
            let within = address.checked_sub(*at);
            within.is_some_and(|w| w <= text.len() as u64)
        };
        if let Some((_, text)) = self.variables.iter().find(|v| is_in(v)) {
            return Some(Piece::Variable(text.clone()));
        }
        if let Some(i) = self.arguments.iter().position(is_in) {
            return Some(Piece::Argument(i, self.arguments[i].1.clone()));
        }
        let random = |e: &&[u64; 2]| e[0] == AT_RANDOM && address.wrapping_sub(e[1]) < RANDOM_BYTES;
        Some(match self.auxiliary.iter().any(|e| random(&e)) {
            true => Piece::Random,
            false => Piece::Other,
        })
    }
}

/// By how much what two programs began with is shifted: their arguments, variables with the same name, what the kernel
/// points to.
pub fn shifts(starts: [&Start; 2]) -> Vec<u64> {
    let [a, b] = starts;
    let mut out = vec![a.sp.wrapping_sub(b.sp)];
    let arguments = a.arguments.iter().zip(&b.arguments);
    out.extend(arguments.map(|(a, b)| a.0.wrapping_sub(b.0)));
    fn name(v: &(u64, String)) -> &str {
        v.1.split('=').next().unwrap_or_default()
    }
    for v in &a.variables {
        let same = b.variables.iter().find(|o| name(o) == name(v));
        out.extend(same.map(|o| v.0.wrapping_sub(o.0)));
    }
    for [kind, value] in &a.auxiliary {
        let same = b.auxiliary.iter().find(|o| o[0] == *kind);
        let values = same.map(|o| [*value, o[1]]);
        let values = values.filter(|v| v.iter().all(|v| *v >= NULL_PAGES));
        out.extend(values.map(|[a, b]| a.wrapping_sub(b)));
    }
    out.sort_unstable();
    out.dedup();
    out.retain(|by| *by != 0);
    out
}
