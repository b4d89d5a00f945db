//! What a debugger is told: the way, how the recorded program began, and what it has at its end. The process that plays the
//! recording makes this, and another one may make a script of it, which a debugger executes. So it holds data only.

use super::begin::Begin;
use anyhow::{Result, bail};
use hindsight_inspect::mappings;
use hindsight_isa::regs;
use hindsight_text::line;
use hindsight_timeline::{Mapping, Position, Route, Timeline};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Debuggers count the stops of a setting up to here.
const MOST_HITS: u64 = i32::MAX as u64;

/// An offset in a file, which has this number in [`Way::files`]. It counts from the file's first mapping.
pub type InFile = (usize, u64);

/// The way to a position.
#[derive(Serialize, Deserialize)]
pub struct Way {
    pub position: String,
    /// The number of stops of all parts.
    pub stops: u64,
    /// Paths.
    pub files: Vec<String>,
    pub parts: Vec<Part>,
    pub begin: Begin,
    /// The registers at the end of which it is known what a live program must have in them.
    pub registers: Vec<(String, Value)>,
}

/// Something that is set, until it has stopped the program so many times.
#[derive(Serialize, Deserialize)]
pub struct Part {
    /// A word of eight bytes that is read or written. Otherwise it is an instruction.
    pub data: bool,
    pub at: InFile,
    pub hits: u64,
    /// Where the next instruction then is, if it is in a file.
    pub pc: Option<InFile>,
}

/// What a register holds.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
pub enum Value {
    File(InFile),
    /// An address on the stack, as the recorded program had it.
    Stack(u64),
    Number(u64),
}

/// Numbers paths.
#[derive(Default)]
struct Files(Vec<String>, BTreeMap<String, usize>);

impl Files {
    fn number(&mut self, path: &str) -> usize {
        if let Some(n) = self.1.get(path) {
            return *n;
        }
        self.0.push(path.to_owned());
        self.1.insert(path.to_owned(), self.0.len() - 1);
        self.0.len() - 1
    }
}

/// Parts of a way, as `Timeline::route` has them at most, and files.
const MOST: usize = 200_000;

impl Way {
    /// Whether everything is what it should be, in the process that has not made it: that may be in the hands of whoever made
    /// the recording.
    pub fn is_sound(&self) -> bool {
        let file = |f: &InFile| f.0 < self.files.len();
        let part =
            |p: &Part| file(&p.at) && p.pc.iter().all(file) && (1..=MOST_HITS).contains(&p.hits);
        let register = |(name, value): &(String, Value)| {
            let known = name == "rip" || regs::NAMES.contains(&name.as_str());
            known && !matches!(value, Value::File(f) if !file(f))
        };
        let b = &self.begin;
        self.position.parse::<Position>().is_ok()
            && self.parts.len().max(self.files.len()).max(b.code.len()) <= MOST
            && self.parts.iter().all(part)
            && self.registers.len() <= 1 + regs::NAMES.len()
            && self.registers.iter().all(register)
            && b.stack.iter().all(|s| s.is_sound(b))
    }

    /// # Errors
    /// A setting stops more often than debuggers count, or the recording does not answer.
    pub fn new(timeline: &Timeline, route: &Route, to: Position) -> Result<Way> {
        let (mut files, mut parts) = (Files::default(), Vec::new());
        for h in &route.halts {
            let s = &h.setting;
            if h.hits > MOST_HITS {
                bail!(
                    "{}+{:#x} stops {} times: debuggers count up to {MOST_HITS}",
                    line(&s.module),
                    s.offset,
                    h.hits
                );
            }
            parts.push(Part {
                data: s.data,
                at: (files.number(&s.module), s.offset),
                hits: h.hits,
                pc: h.at.as_ref().map(|(path, o)| (files.number(path), *o)),
            });
        }
        let registers = registers(timeline, route, &mut files)?;
        Ok(Way {
            position: to.to_string(),
            stops: route.stops,
            files: files.0,
            parts,
            begin: Begin::new(timeline)?,
            registers,
        })
    }
}

/// What a live program must have in its registers at the end. Left out are values that may be others in each run: addresses
/// elsewhere and halves of addresses, ids, and r11, in which a system call leaves flags that may come from comparing
/// addresses.
fn registers(
    timeline: &Timeline,
    route: &Route,
    files: &mut Files,
) -> Result<Vec<(String, Value)>> {
    let mut cursor = timeline.cursor()?;
    cursor.seek_count(route.thread, route.steps)?;
    let maps = mappings(&mut cursor)?;
    let pid = u64::from(timeline.thread(route.thread)?.pid.unsigned_abs());
    let all = cursor.registers()?;
    let gpr = regs::NAMES.iter().zip(all.gpr);
    let all = gpr.chain([(&"rip", all.rip)]);
    let mut out = Vec::new();
    for (name, value) in all.filter(|r| *r.0 != "r11") {
        let known = match maps.iter().find(|m| (m.start..m.end).contains(&value)) {
            Some(m) if m.path.starts_with('/') => {
                let of = maps.iter().filter(|n| n.path == m.path);
                let first = of.map(|n| n.start).min().unwrap_or(m.start);
                Some(Value::File((files.number(&m.path), value - first)))
            }
            Some(m) if m.path == "[stack]" => Some(Value::Stack(value)),
            Some(_) => None,
            None => is_plain(value, pid, &maps).then_some(Value::Number(value)),
        };
        out.extend(known.map(|v| ((*name).to_owned(), v)));
    }
    Ok(out)
}

/// Whether a value can only be a number, and not the process's id or a half of an address.
fn is_plain(value: u64, pid: u64, maps: &[Mapping]) -> bool {
    let half = |m: &Mapping| {
        let last = m.end - 1;
        let high = m.start >> 32..=last >> 32;
        // The low half of an address of this mapping, below each high one that it has.
        let low = || {
            let mut all = (m.start >> 32..=last >> 32).take(2);
            all.any(|h| (m.start..=last).contains(&(h << 32 | value)))
        };
        high.contains(&value) || low()
    };
    value <= u64::from(u32::MAX) && value != pid && !maps.iter().any(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_addresses_and_ids_are_no_plain_numbers() {
        let map = |start, end| Mapping {
            start,
            end,
            prot: 1,
            flags: 0,
            offset: 0,
            path: String::new(),
        };
        let maps = [map(0x7fff_1234_5000, 0x7fff_1234_6000)];
        let plain = |value| is_plain(value, 4711, &maps);
        assert!(plain(0) && plain(42) && plain(0x1234_6000));
        assert!(!plain(0x1234_5678) && !plain(4711) && !plain(1 << 40) && !plain(0x7fff));
        // One that goes over a multiple of 4 GiB.
        let maps = [map(0x1_ffff_f000, 0x2_0000_1000)];
        let plain = |value| is_plain(value, 4711, &maps);
        assert!(!plain(0xffff_f008) && !plain(0x800) && plain(0x5000));
    }

    #[test]
    fn what_another_process_says_is_checked() {
        let way = || Way {
            position: "1:2A".into(),
            stops: 3,
            files: vec!["/bin/a".into()],
            parts: vec![Part {
                data: false,
                at: (0, 8),
                hits: 3,
                pc: Some((0, 8)),
            }],
            begin: Begin::default(),
            registers: vec![
                ("rax".into(), Value::Number(1)),
                ("rip".into(), Value::File((0, 8))),
            ],
        };
        assert!(way().is_sound());
        let changes: [&dyn Fn(&mut Way); 7] = [
            &|w| w.position = "1:2A\u{1b}".into(),
            &|w| w.parts[0].at.0 = 1,
            &|w| w.parts[0].pc = Some((7, 0)),
            &|w| w.parts[0].hits = 0,
            &|w| w.registers[0].0 = "rip + system(0)".into(),
            &|w| w.registers[0].0 = "_shell(\"true\")".into(),
            &|w| w.registers[1].1 = Value::File((1, 0)),
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut way = way();
            change(&mut way);
            assert!(!way.is_sound(), "{i}");
        }
    }
}
