//! Declarations of what C functions write, derived from the attributes in their headers: `access`, `pure`, `const`,
//! `malloc`, `alloc_size`, `format`. docs/declared-functions.md says by which rules, and what is taken on trust.
//!
//! [`derive`] has the compiler preprocess the headers, reads the declarations, and finds for each function an upper bound
//! of what it may write, or why there is none.

mod attributes;
mod compiler;
mod effect;
mod parse;
mod text;
mod tokens;
mod types;

pub use compiler::Compiler;
pub use effect::{Ground, Item, Outcome, Rules};
pub use text::Choice;

use attributes::Attributes;
use parse::Unit;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Something in a header that is not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    pub file: String,
    /// From 1; 0: the whole file.
    pub line: u32,
    /// What is wrong.
    pub what: String,
}

impl Fault {
    fn at(file: &str, line: u32, what: impl Into<String>) -> Fault {
        Fault {
            file: file.into(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

/// Why headers could not be read.
#[derive(Debug)]
pub enum Error {
    /// The compiler's command has no words.
    Nothing,
    /// The compiler cannot be run.
    Run(String, std::io::Error),
    /// An option of the compiler changes how functions are called.
    Option(String),
    /// The compiler refuses a header.
    Header(String, String),
    /// A header is not C.
    Fault(Fault),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::Nothing => write!(f, "the compiler's command is empty"),
            Error::Run(program, e) => write!(f, "cannot run the compiler {program}: {e}"),
            Error::Option(option) => write!(
                f,
                "the compiler's option {option} changes how functions are called"
            ),
            Error::Header(header, what) => write!(f, "{header}: the compiler says: {what}"),
            Error::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// A function of the headers, and what it may write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Derived {
    /// The symbol that is called.
    pub symbol: String,
    /// The header that was asked for.
    pub header: String,
    /// Where it is declared.
    pub file: String,
    pub line: u32,
    pub outcome: Outcome,
    /// What attributes say that it writes. It may write more, if it is left out.
    pub stated: Vec<Item>,
}

impl Derived {
    /// The line of a file of declarations. `None`: it is left out.
    pub fn text(&self) -> Option<String> {
        let Outcome::Declared { items, .. } = &self.outcome else {
            return None;
        };
        let items: Vec<String> = items.iter().map(Item::to_string).collect();
        Some(format!("{}({})", self.symbol, items.join(" ")))
    }
}

/// What was derived.
#[derive(Clone, Debug)]
pub struct Found {
    /// By header, as they were named, then by symbol.
    pub functions: Vec<Derived>,
    /// What of the headers was not understood. It is left out.
    pub faults: Vec<Fault>,
}

/// Derives declarations of the functions of these headers. Where several declare one,
/// all that they say counts.
pub fn derive(compiler: &Compiler, headers: &[String], rules: &Rules) -> Result<Found, Error> {
    let mut units = Vec::new();
    let mut faults = Vec::new();
    for header in headers {
        let text = compiler.preprocess(header)?;
        let mut unit = unit(&text, header, &rules.included).map_err(Error::Fault)?;
        for fault in std::mem::take(&mut unit.faults) {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        units.push(unit);
    }
    Ok(Found {
        functions: outcomes(units, rules),
        faults,
    })
}

fn unit(text: &str, header: &str, included: &[String]) -> Result<Unit, Fault> {
    let tokens = tokens::read(text, header)?;
    parse::parse(&tokens, &|t| {
        t.source.is_named || included.iter().any(|i| t.source.path.contains(i.as_str()))
    })
}

/// What becomes of the functions of all headers. Where several declare one, all their attributes count.
fn outcomes(mut units: Vec<Unit>, rules: &Rules) -> Vec<Derived> {
    let mut attributes: HashMap<String, Attributes> = HashMap::new();
    for f in units.iter().flat_map(|u| u.functions.values()) {
        let its = attributes.entry(f.symbol.clone()).or_default();
        its.add(&f.attributes);
    }
    let mut order: Vec<String> = Vec::new();
    let mut found: BTreeMap<(usize, String), Derived> = BTreeMap::new();
    let mut place: HashMap<String, usize> = HashMap::new();
    for unit in &mut units {
        for f in unit.functions.values_mut().filter(|f| f.is_wanted) {
            if let Some(all) = attributes.get(&f.symbol) {
                f.attributes = all.clone();
            }
            let outcome = effect::of(f, &unit.structures, rules);
            if !order.contains(&f.header) {
                order.push(f.header.clone());
            }
            let header = order.iter().position(|h| *h == f.header).unwrap_or(0);
            let header = *place.entry(f.symbol.clone()).or_insert(header);
            let fresh = Derived {
                symbol: f.symbol.clone(),
                header: f.header.clone(),
                file: f.file.clone(),
                line: f.line,
                outcome,
                stated: effect::stated(f, &unit.structures),
            };
            let known = found.entry((header, f.symbol.clone()));
            let known = known.or_insert_with(|| fresh.clone());
            if known.outcome != fresh.outcome {
                let other = format!("{}:{} declares it in another way", f.file, f.line);
                known.outcome = match (&known.outcome, fresh.outcome) {
                    (left @ Outcome::LeftOut(_), _) => left.clone(),
                    (_, left @ Outcome::LeftOut(_)) => left,
                    _ => Outcome::LeftOut(other),
                };
            }
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests;
