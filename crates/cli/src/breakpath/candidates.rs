//! What may be set on the way: the option `--candidates`.

use anyhow::{Context, Result, bail};
use hindsight_inspect::Inspector;
use hindsight_inspect::symbols::Space;
use hindsight_timeline::{Candidates, Position, Timeline, did_you_mean};
use std::collections::BTreeSet;
use std::io::Read;

/// A list may have this many bytes.
const MOST: u64 = 1 << 24;
const PROT_EXEC: u32 = 4;
/// Bytes that one hardware watchpoint watches.
const WORD: u64 = 8;

/// What the user wants, before the recording is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    All,
    Instructions,
    Data,
    Lines,
    Functions,
    /// The file's name, and what it lists.
    Listed(String, Vec<Item>),
}

/// One line of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// From 1.
    line: usize,
    /// Where it begins in its line, in characters from 1.
    column: usize,
    what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    /// The end of a file's path, and the offset from its lowest address.
    Offset(String, u64),
    Function(String),
    /// The end of a source file's path, and a line.
    Line(String, u32),
}

impl Wanted {
    /// Reads the option. What is no word that it knows is a file.
    pub fn read(option: &str) -> Result<Wanted> {
        Ok(match option {
            "all" => Wanted::All,
            "instructions" => Wanted::Instructions,
            "data" => Wanted::Data,
            "lines" => Wanted::Lines,
            "functions" => Wanted::Functions,
            file => {
                let mut text = String::new();
                let open = std::fs::File::open(file).with_context(|| {
                    format!("--candidates {file}: no such file, and none of all, instructions, lines, functions, data")
                })?;
                open.take(MOST + 1)
                    .read_to_string(&mut text)
                    .with_context(|| file.to_owned())?;
                if text.len() as u64 > MOST {
                    bail!("{file} has more than {} MiB", MOST >> 20);
                }
                Wanted::Listed(file.into(), list(file, &text)?)
            }
        })
    }

    /// What needs no symbols.
    pub fn plain(&self) -> Option<Candidates> {
        match self {
            Wanted::All => Some(Candidates::All),
            Wanted::Instructions => Some(Candidates::Instructions),
            Wanted::Data => Some(Candidates::Data),
            _ => None,
        }
    }

    /// Finds the addresses in the first program image of a recording, as of a position.
    pub fn resolve(&self, timeline: &Timeline, at: Position) -> Result<Candidates> {
        let mut inspector = Inspector::new(timeline.clone());
        let processes = timeline.processes()?;
        let image = processes.first().map_or(1, |p| p.image);
        let space = inspector.space(image, at)?;
        let (mut code, mut words) = (BTreeSet::new(), BTreeSet::new());
        match self {
            Wanted::Functions => {
                for m in space.mappings() {
                    let all = m.module.functions().iter();
                    code.extend(all.map(|f| f.addr.wrapping_add(m.bias)));
                }
                if code.is_empty() {
                    bail!("no file of the program names functions");
                }
            }
            Wanted::Lines => lines(&space, &mut code)?,
            Wanted::Listed(file, items) => {
                for i in items {
                    i.resolve(
                        &mut inspector,
                        (timeline, at),
                        (image, &space),
                        (&mut code, &mut words),
                    )
                    .with_context(|| format!("{file}:{}:{}", i.line, i.column))?;
                }
            }
            _ => {}
        }
        Ok(Candidates::Listed { code, words })
    }
}

/// Where source lines begin.
fn lines(space: &Space, code: &mut BTreeSet<u64>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for m in space.mappings() {
        if !seen.insert((m.module.path(), m.bias)) {
            continue;
        }
        let Some(all) = m.module.lines() else {
            bail!("{} has too many lines", m.module.path());
        };
        code.extend(all.ranges.iter().map(|r| r.addr.wrapping_add(m.bias)));
    }
    if code.is_empty() {
        bail!("no file of the program has debug information that names lines");
    }
    Ok(())
}

/// Reads a list: one setting in each line. Empty lines, and what follows `#`, are left out.
fn list(file: &str, text: &str) -> Result<Vec<Item>> {
    let mut out = Vec::new();
    for (n, all) in text.lines().enumerate() {
        let plain = all.split('#').next().unwrap_or("");
        let word = plain.trim();
        if word.is_empty() {
            continue;
        }
        let before = plain.len() - plain.trim_start().len();
        let column = |at: usize| plain[..before + at].chars().count() + 1;
        let place = |at: usize| format!("{file}:{}:{}", n + 1, column(at));
        let what = match (word.rsplit_once("+0x"), word.rsplit_once(':')) {
            (Some((module, offset)), _) => {
                let at = module.len() + 1;
                let offset = u64::from_str_radix(offset, 16);
                let offset = offset
                    .with_context(|| format!("{}: {:?} is no offset", place(at), &word[at..]))?;
                if module.is_empty() {
                    bail!(
                        "{}: the name of a file is missing before the offset",
                        place(0)
                    );
                }
                What::Offset(module.into(), offset)
            }
            // Names in C++ have two colons.
            (_, Some((source, number))) if !source.ends_with(':') => {
                let at = source.len() + 1;
                let parsed = number.parse::<u32>().ok().filter(|l| *l > 0);
                let Some(parsed) = parsed else {
                    bail!("{}: {number:?} is no number of a line", place(at));
                };
                if source.is_empty() {
                    bail!(
                        "{}: the name of a file is missing before the line",
                        place(0)
                    );
                }
                What::Line(source.into(), parsed)
            }
            _ => What::Function(word.into()),
        };
        out.push(Item {
            line: n + 1,
            column: column(0),
            what,
        });
    }
    if out.is_empty() {
        bail!("{file} lists nothing");
    }
    Ok(out)
}

impl Item {
    fn resolve(
        &self,
        inspector: &mut Inspector,
        (timeline, at): (&Timeline, Position),
        (image, space): (u32, &Space),
        (code, words): (&mut BTreeSet<u64>, &mut BTreeSet<u64>),
    ) -> Result<()> {
        match &self.what {
            What::Function(name) => {
                let found = inspector.functions(image, name)?;
                if found.is_empty() {
                    let near = inspector.similar(image, name)?;
                    bail!("there is no function {name}{}", did_you_mean(name, near));
                }
                code.extend(found.into_iter().map(|f| f.0));
            }
            What::Line(file, line) => {
                let found = space.addresses_of_line(file, *line);
                if found.is_empty() {
                    bail!("no code is known for line {line} of {file}");
                }
                code.extend(found);
            }
            What::Offset(module, offset) => {
                let named = |path: &str| {
                    let end = path.strip_suffix(module.as_str());
                    end.is_some_and(|before| before.is_empty() || before.ends_with('/'))
                };
                let all = timeline.modules(image)?;
                let mut found = all.iter().filter(|m| named(&m.path));
                let Some(m) = found.next() else {
                    bail!("the program has no file {module}");
                };
                if let Some(other) = found.find(|o| o.path != m.path) {
                    bail!(
                        "the program has {} and {}: give more of the path than {module}",
                        hindsight_text::line(&m.path),
                        hindsight_text::line(&other.path)
                    );
                }
                // The file may be mapped elsewhere, too, behind this position.
                let now = timeline.mappings(image, at)?;
                let now = (now.iter()).filter(|n| n.path == m.path && n.start >= m.start);
                let start = now.map(|n| n.start).min().unwrap_or(m.start);
                let address = start.checked_add(*offset).filter(|a| *a < m.end);
                let Some(address) = address else {
                    bail!("{module} has only {:#x} bytes", m.end - start);
                };
                let part = m.parts.iter().find(|p| (p.start..p.end).contains(&address));
                match part.is_some_and(|p| p.prot & PROT_EXEC != 0) {
                    true => code.insert(address),
                    false => words.insert(address / WORD * WORD),
                };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_three_kinds_of_settings() {
        let text =
            "# what may be set\nlibc.so.6+0x1f0\n\n  main # the program\nsrc/a.c:12\nstd::find\n";
        let what: Vec<What> = list("f", text)
            .unwrap()
            .into_iter()
            .map(|i| i.what)
            .collect();
        assert_eq!(
            what,
            [
                What::Offset("libc.so.6".into(), 0x1f0),
                What::Function("main".into()),
                What::Line("src/a.c".into(), 12),
                What::Function("std::find".into()),
            ]
        );
    }

    #[test]
    fn errors_name_line_and_column() {
        let says = |text: &str| format!("{:#}", list("f", text).unwrap_err());
        assert!(says("main\n  a.c:x").starts_with("f:2:7: \"x\" is no number"));
        assert!(
            says("a+0xzz").starts_with("f:1:3: \"0xzz\" is no offset"),
            "{}",
            says("a+0xzz")
        );
        assert!(says("  +0x1").starts_with("f:1:3: the name"));
        assert!(says(":5").starts_with("f:1:1: the name"));
        assert!(says("# nothing\n").contains("lists nothing"));
    }
}
