//! Declarations: what functions do to memory that their caller may look at, as text. docs/declared-functions.md describes the
//! format.

use std::collections::HashMap;
use std::fmt;

/// The most parameters that a declaration may name: those that the ABI passes in registers.
const PARAMETERS: usize = 6;

/// What a function does to memory that its caller may look at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Declaration {
    /// As it stands in the text.
    pub text: String,
    /// What it writes.
    pub writes: Vec<Write>,
    /// It may change all memory that is neither a stack nor a file's.
    pub heap: bool,
    /// It uses a stream of the C library, whose buffer is in the heap, or memory that the program gave it.
    pub stdio: bool,
    /// The parameter that is a format. If that has `%n`, or is not known, nothing is known of the call.
    pub format: Option<usize>,
}

/// Memory that a function writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// Where it begins.
    pub at: At,
    /// How long it is at most.
    pub size: Size,
}

/// Where it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// Where this parameter points to.
    Parameter(usize),
    /// Where that points to which this parameter points to.
    Behind(usize),
}

/// At most how many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// So many.
    Bytes(u64),
    /// As many as a parameter says.
    Parameter(usize),
    /// As many as two parameters say, multiplied.
    Product(usize, usize),
    /// A parameter, so many bytes each.
    Times(usize, u64),
    /// Up to the end of the mapping.
    Open,
}

/// Declarations by the beginning of the library's file name, then by function.
#[derive(Clone, Default, Debug)]
pub struct Declarations(Vec<(String, HashMap<String, Declaration>)>);

/// A fault in the text of declarations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.what
        )
    }
}

impl std::error::Error for Fault {}

impl Declarations {
    /// Those that come with the product.
    pub fn usual() -> Declarations {
        // A test reads both.
        let read = |text| Declarations::read(text).unwrap_or_default();
        let mut all = read(include_str!("derived.txt"));
        // What was written by hand says more, or knows better.
        all.add(read(include_str!("functions.txt")));
        all
    }

    /// Reads the text of declarations.
    pub fn read(text: &str) -> Result<Declarations, Fault> {
        let mut all = Declarations::default();
        for (n, whole) in text.lines().enumerate() {
            let line = whole.split('#').next().unwrap_or("").trim();
            let fault = |(part, what): (&str, String)| Fault {
                line: n + 1,
                column: column(whole, part),
                what,
            };
            if line.is_empty() {
                continue;
            }
            if let Some(file) = line.strip_prefix('[') {
                let named = file.strip_suffix(']').filter(|f| !f.trim().is_empty());
                let named =
                    named.ok_or_else(|| fault((line, "a library is named as [libc.so]".into())))?;
                all.library(named.trim());
                continue;
            }
            let (name, d) = declaration(line).map_err(fault)?;
            let Some(last) = all.0.last_mut() else {
                return Err(fault((
                    line,
                    "the library comes first, as in [libc.so]".into(),
                )));
            };
            last.1.insert(name.into(), d);
        }
        Ok(all)
    }

    /// Adds other declarations. Where both have one for a function, the other one counts.
    pub fn add(&mut self, others: Declarations) {
        for (file, functions) in others.0 {
            self.library(&file);
            if let Some(last) = self.0.last_mut() {
                last.1.extend(functions);
            }
        }
    }

    /// The declaration of a function in a file with this name.
    pub fn of(&self, file: &str, function: &str) -> Option<&Declaration> {
        let its = self.0.iter().filter(|l| file.starts_with(&l.0));
        its.filter_map(|l| l.1.get(function)).next_back()
    }

    /// Makes a library the last one.
    fn library(&mut self, file: &str) {
        let its = match self.0.iter().position(|l| l.0 == file) {
            Some(i) => self.0.remove(i),
            None => (file.into(), HashMap::new()),
        };
        self.0.push(its);
    }
}

/// Where a part of a line begins in it, from 1.
fn column(line: &str, part: &str) -> usize {
    let at = (part.as_ptr() as usize).wrapping_sub(line.as_ptr() as usize);
    line.get(..at)
        .map_or(1, |before| before.chars().count() + 1)
}

/// A fault, and the part of the line that it is about.
type Wrong<'a> = (&'a str, String);

fn declaration(line: &str) -> Result<(&str, Declaration), Wrong<'_>> {
    let form = || (line, "a declaration has the form NAME(ITEM ...)".to_owned());
    let (name, rest) = line.split_once('(').ok_or_else(form)?;
    let items = rest.strip_suffix(')').ok_or_else(form)?;
    let word = |c: char| c.is_alphanumeric() || "_.$@".contains(c);
    if name.is_empty() || !name.chars().all(word) {
        return Err((
            line,
            "the name of a function has letters, digits and _ only".into(),
        ));
    }
    let mut d = Declaration {
        text: line.into(),
        ..Declaration::default()
    };
    for item in items.split([' ', ',']).filter(|i| !i.is_empty()) {
        match item {
            "heap" => d.heap = true,
            "stdio" => d.stdio = true,
            _ => {
                let unknown = || {
                    let known = "w:N{BYTES}, w:N[N], w:N[N*N], w:N.., w:*N.., f:N, heap, stdio";
                    (item, format!("{item} is none of {known}"))
                };
                let Some(kind) = item.get(..1) else {
                    return Err(unknown());
                };
                let rest = item.get(1..).unwrap_or("");
                match kind {
                    "f" => {
                        let n = rest.strip_prefix(':').and_then(parameter);
                        d.format = Some(n.ok_or_else(unknown)?);
                    }
                    "w" => {
                        let rest = rest.strip_prefix(':').ok_or_else(unknown)?;
                        let (behind, rest) = match rest.strip_prefix('*') {
                            Some(rest) => (true, rest),
                            None => (false, rest),
                        };
                        let n = rest.get(..1).and_then(parameter).ok_or_else(unknown)?;
                        d.writes.push(Write {
                            at: match behind {
                                true => At::Behind(n),
                                false => At::Parameter(n),
                            },
                            size: size(&rest[1..]).ok_or_else(unknown)?,
                        });
                    }
                    _ => return Err(unknown()),
                }
            }
        }
    }
    Ok((name, d))
}

fn parameter(text: &str) -> Option<usize> {
    text.parse().ok().filter(|n| *n < PARAMETERS)
}

fn size(text: &str) -> Option<Size> {
    if text == ".." {
        return Some(Size::Open);
    }
    if let Some(bytes) = text.strip_prefix('{') {
        return Some(Size::Bytes(bytes.strip_suffix('}')?.parse().ok()?));
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(match inner.split_once('*') {
        None => Size::Parameter(parameter(inner)?),
        // A number that no parameter has is one of bytes.
        Some((n, times)) => match parameter(times) {
            Some(other) => Size::Product(parameter(n)?, other),
            None => Size::Times(parameter(n)?, times.parse().ok()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_come_with_it_can_be_read() {
        Declarations::read(include_str!("functions.txt")).unwrap();
        Declarations::read(include_str!("derived.txt")).unwrap();
        let all = Declarations::usual();
        assert_eq!(all.of("libc.so.6", "strlen").unwrap().writes, []);
        let fread = all.of("libc.so.6", "fread").unwrap();
        let to = Write {
            at: At::Parameter(0),
            size: Size::Product(1, 2),
        };
        assert!(fread.writes == [to] && fread.stdio && !fread.heap);
        assert_eq!(all.of("libc.so.6", "sin"), None);
        assert_eq!(all.of("libz.so.1", "strlen"), None);
        // One that only headers describe, and one of which they say too little.
        assert_eq!(all.of("libc.so.6", "wcslen").unwrap().text, "wcslen()");
        assert!(all.of("libc.so.6", "strcoll_l").unwrap().heap);
        assert!(all.of("libc.so.6", "regcomp").is_some() && all.of("libc.so.6", "qsort").is_none());
    }

    #[test]
    fn later_ones_count() {
        let mut all = Declarations::usual();
        all.add(Declarations::read("[libc.so]\nstrlen(heap)").unwrap());
        assert!(all.of("libc.so.6", "strlen").unwrap().heap);
        assert!(!all.of("libc.so.6", "strcmp").unwrap().heap);
        all.add(Declarations::read("[libc.so]\nstrlen()").unwrap());
        assert!(!all.of("libc.so.6", "strlen").unwrap().heap);
    }

    #[test]
    fn faults_have_their_place() {
        let wrong = |text: &str| Declarations::read(text).unwrap_err().to_string();
        assert!(wrong("# one\nf()").starts_with("line 2, column 1: the library comes first"));
        assert!(wrong("[libc.so").starts_with("line 1, column 1: a library"));
        assert!(
            wrong("[a]\n  f(w:0{8} w:7{8})").starts_with("line 2, column 12: w:7{8} is none of")
        );
        for item in [
            "w:0", "w:0[", "w:0[9]", "w0{8}", "r", "f:9", "x", "w:0[1*]", "é", "w:é",
        ] {
            assert!(
                wrong(&format!("[a]\nf({item})")).starts_with("line 2, column 3: "),
                "{item}"
            );
        }
        assert!(wrong("[a]\nf").contains("the form"));
        assert!(wrong("[a]\n(w:0{8})").contains("the name"));
    }
}
