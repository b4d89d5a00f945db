//! Live programs that gdb leads to a place of their recording, and whether that is the place.

use hindsight_isa::regs;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The registers that are compared, as gdb and `hindsight at --json` call them.
const REGISTERS: [&str; 17] = {
    let mut out = ["rip"; 17];
    let mut n = 0;
    while n < regs::NAMES.len() {
        out[n + 1] = regs::NAMES[n];
        n += 1;
    }
    out
};

/// What a process has mapped: begin, end, and the file or another name.
type Map = (u64, u64, String);

/// The registers of a program that stands somewhere, and what it has mapped.
#[derive(Debug)]
pub struct State {
    registers: Vec<u64>,
    maps: Vec<Map>,
    pid: u64,
}

/// Where gdb led a live program.
#[derive(Debug)]
pub struct Arrived {
    /// How many times breakpoints and watchpoints stopped it, as gdb counts them.
    pub stops: u64,
    pub state: State,
}

/// Leads a program to a place by a script of `breakpath --gdb`. `run` runs gdb with these arguments and returns what it said,
/// `folder` is for files of this call. Addresses are others each time if they are to be `random`.
///
/// # Errors
/// What gdb said, if the script did not come to its end.
pub fn lead(
    folder: &Path,
    way: &str,
    argv: &[&str],
    random: bool,
    run: impl FnOnce(&mut Command) -> String,
) -> Result<Arrived, String> {
    let (script, arrived) = (folder.join("way.gdb"), folder.join("arrived"));
    let _ = std::fs::remove_file(&arrived);
    let names = REGISTERS.map(|r| format!("{r:?}")).join(", ");
    let random = if random { "off" } else { "on" };
    let text = format!(
        r#"set disable-randomization {random}
python
counts = []
gdb.events.breakpoint_deleted.connect(lambda stop: counts.append(stop.hit_count))
end
{way}
python
with open({arrived:?}, "w") as out:
    out.write("%d %d\n" % (sum(counts), gdb.selected_inferior().pid))
    for name in [{names}]:
        out.write("%x\n" % (int(gdb.parse_and_eval("$" + name)) % 2**64))
    with open("/proc/%d/maps" % gdb.selected_inferior().pid) as maps:
        out.write(maps.read())
end
kill
"#
    );
    std::fs::write(&script, text).map_err(|e| e.to_string())?;
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off", "-x"]);
    gdb.arg(&script).arg("--args").args(argv);
    let said = run(&mut gdb);
    let text = std::fs::read_to_string(&arrived).map_err(|_| said.clone())?;
    read(&text).ok_or_else(|| format!("{said}\n{text}"))
}

fn read(text: &str) -> Option<Arrived> {
    let mut lines = text.lines();
    let (stops, pid) = lines.next()?.split_once(' ')?;
    let mut registers = Vec::new();
    for _ in REGISTERS {
        registers.push(u64::from_str_radix(lines.next()?, 16).ok()?);
    }
    let map = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (begin, end) = range.split_once('-')?;
        let number = |n| u64::from_str_radix(n, 16).ok();
        let name = rest.splitn(4, ' ').nth(3)?.split_once(' ');
        let name = name.map_or("", |n| n.1.trim());
        Some((number(begin)?, number(end)?, name.to_owned()))
    };
    Some(Arrived {
        stops: stops.parse().ok()?,
        state: State {
            registers,
            maps: lines.filter_map(map).collect(),
            pid: pid.parse().ok()?,
        },
    })
}

impl State {
    /// What the recording has there: the answers of `at --json` and `maps --json`. `None`: they do not say it.
    pub fn recorded(at: &Value, maps: &Value, pid: u64) -> Option<State> {
        let registers = REGISTERS.iter().map(|r| super::hex(&at["registers"][r]));
        let maps = maps["mappings"].as_array()?.iter().map(|m| {
            let name = m["path"].as_str().unwrap_or("");
            Some((
                super::hex(&m["start"])?,
                super::hex(&m["end"])?,
                name.to_owned(),
            ))
        });
        Some(State {
            registers: registers.collect::<Option<_>>()?,
            maps: maps.collect::<Option<_>>()?,
            pid,
        })
    }

    /// The file to which an address belongs, and the offset from its lowest address. What a file only reserves, such as
    /// variables that begin as zero, belongs to none.
    fn in_file(&self, address: u64) -> Option<(&str, u64)> {
        let has = |m: &&Map| (m.0..m.1).contains(&address) && m.2.starts_with('/');
        let name = &self.maps.iter().find(has)?.2;
        let same = self.maps.iter().filter(|m| m.2 == *name);
        Some((name, address - same.map(|m| m.0).min()?))
    }

    /// Whether a value may be an address outside of files, a half of an address, or an id. Of a half, the upper bits
    /// suffice: bit fields that are set in memory which held an address leave the rest of it.
    fn may_differ(&self, value: u64) -> bool {
        let upper = |a: u64| (a & u64::from(u32::MAX)) >> 20;
        let half = |m: &Map| (upper(m.0)..=upper(m.1 - 1)).contains(&upper(value));
        let rest = upper(value) != 0 && self.maps.iter().any(half);
        value > u64::from(u32::MAX) || value == self.pid || rest
    }

    /// The registers that hold another thing there: another address in a file, or another small number. Each with both
    /// values. Addresses elsewhere, halves of addresses, ids and r11 may differ.
    pub fn differences(&self, other: &State) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        for ((name, a), b) in REGISTERS.iter().zip(&self.registers).zip(&other.registers) {
            // A system call leaves the flags there, and they may come from comparing addresses.
            if *name == "r11" {
                continue;
            }
            let same = match (self.in_file(*a), other.in_file(*b)) {
                (None, None) => a == b || self.may_differ(*a) || other.may_differ(*b),
                (a, b) => a == b,
            };
            if !same {
                let say = |s: &State, v: u64| match s.in_file(v) {
                    Some((file, offset)) => format!("{file}+{offset:#x}"),
                    None => format!("{v:#x}"),
                };
                out.push((*name, format!("{} and {}", say(self, *a), say(other, *b))));
            }
        }
        out
    }
}
