//! What the half that plays the recording tells the half that runs the program. That one believes nothing of it: the whole
//! is limited in size, and what does not fit the live program is an error.

use anyhow::{Context, Result, bail};
use hindsight_timeline::{Mapping, Module, Position, Route, Timeline, regs};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// The longest message, in bytes.
const MOST: u64 = 1 << 30;
/// Stops at which registers are compared: the last ones, and as many more evenly over the way. Each takes a replay.
const LAST: usize = 8;

/// The program, and the way.
#[derive(Serialize, Deserialize)]
pub struct Orders {
    pub position: String,
    /// The program's file, which its `hash` names.
    pub program: Vec<u8>,
    pub hash: String,
    /// Its arguments, its name first.
    pub args: Vec<Vec<u8>>,
    pub way: Vec<Part>,
}

/// One part of the way.
#[derive(Serialize, Deserialize)]
pub struct Part {
    pub data: bool,
    /// The setting.
    pub place: InFile,
    /// How many times it stops.
    pub hits: u64,
    /// The recording's position at the last stop.
    pub position: String,
    /// Where the program then is. `None`: not in a file.
    pub pc: Option<InFile>,
    /// General registers that can be compared, with their names.
    pub registers: Vec<(String, Value)>,
}

/// An address in a file: the file's path, and the offset from its lowest address.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct InFile {
    pub file: String,
    pub offset: u64,
}

/// A value that must be the same in each run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum Value {
    Number(u64),
    Address(InFile),
}

impl Orders {
    /// What the recording says.
    pub fn new(timeline: &Timeline, route: &Route, to: Position) -> Result<Orders> {
        let process = timeline.processes()?.into_iter().next();
        let process = process.context("the recording has no program")?;
        let modules = timeline.modules(process.image)?;
        let header = timeline.trace().header();
        let program = header.exe.as_bytes().to_vec();
        let path = String::from_utf8_lossy(&program);
        let hash = modules.iter().find(|m| m.path == path).and_then(|m| m.hash);
        let Some(hash) = hash else {
            bail!("the recording does not say what {path:?} contained");
        };
        let count = route.halts.len();
        let step = count.div_ceil(LAST).max(1);
        let mut way = Vec::new();
        for (i, h) in route.halts.iter().enumerate() {
            let compares = i + LAST >= count || i % step == 0;
            way.push(Part {
                data: h.setting.data,
                place: InFile {
                    file: h.setting.module.clone(),
                    offset: h.setting.offset,
                },
                hits: h.hits,
                position: h.position.to_string(),
                pc: in_file(&modules, h.pc, h.position),
                registers: match compares {
                    true => comparable(timeline, route, h, &modules)?,
                    false => Vec::new(),
                },
            });
        }
        Ok(Orders {
            position: to.to_string(),
            program,
            hash: hash_text(hash.0),
            args: header.argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
            way,
        })
    }

    /// # Errors
    /// The other half is gone.
    pub fn send(&self, mut stream: UnixStream) -> Result<()> {
        let bytes = serde_json::to_vec(self)?;
        stream.write_all(&bytes)?;
        Ok(())
    }

    /// What the other half sends. `None`: it ended, and has said why.
    ///
    /// # Errors
    /// It is no message, or too long.
    pub fn receive(stream: UnixStream) -> Result<Option<Orders>> {
        let mut bytes = Vec::new();
        stream.take(MOST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST {
            bail!("the way is too long");
        }
        match bytes.is_empty() {
            true => Ok(None),
            false => Ok(Some(serde_json::from_slice(&bytes)?)),
        }
    }

    /// The content that the program's file must have.
    pub fn content(&self) -> Result<[u8; 16]> {
        let number = u128::from_str_radix(&self.hash, 16);
        Ok(number
            .context("the file's name of content is damaged")?
            .to_be_bytes())
    }
}

fn hash_text(hash: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(hash))
}

fn in_file(modules: &[Module], address: u64, at: Position) -> Option<InFile> {
    let there = |m: &&Module| {
        (m.start..m.end).contains(&address)
            && m.load.is_none_or(|l| l < at)
            && m.unload.is_none_or(|u| u >= at)
            && m.path.starts_with('/')
    };
    modules.iter().find(there).map(|m| InFile {
        file: m.path.clone(),
        offset: address - m.start,
    })
}

/// The registers at a stop whose values should be the same in each run: addresses in files, and small numbers that are
/// neither ids nor halves of addresses. The stack, the heap and all that is made of their addresses lies elsewhere each time.
fn comparable(
    timeline: &Timeline,
    route: &Route,
    h: &hindsight_timeline::Halt,
    modules: &[Module],
) -> Result<Vec<(String, Value)>> {
    let thread = timeline.thread(route.thread)?;
    let mappings = timeline.mappings(thread.image, h.position)?;
    let registers = timeline.registers_at(route, h.step)?;
    let mut out = Vec::new();
    for (name, value) in regs::NAMES.iter().zip(registers.gpr) {
        let within = |m: &Mapping| (m.start..m.end).contains(&value);
        let value = match in_file(modules, value, h.position) {
            Some(place) => Value::Address(place),
            None if mappings.iter().any(within) || may_differ(value, &mappings, &thread) => {
                continue;
            }
            None => Value::Number(value),
        };
        out.push(((*name).to_owned(), value));
    }
    Ok(out)
}

/// Whether a number may be an id, or made of an address.
fn may_differ(value: u64, mappings: &[Mapping], thread: &hindsight_timeline::Thread) -> bool {
    let low = |a: u64| a & u32::MAX as u64;
    let half = |m: &Mapping| (low(m.start)..=low(m.end.saturating_sub(1))).contains(&value);
    value > u32::MAX as u64
        || [thread.pid, thread.tid].contains(&(value as i32))
        || mappings.iter().any(half)
}
