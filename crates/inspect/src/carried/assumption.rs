//! What somebody assumes of stretches that are not recorded.

use std::str::FromStr;

/// What somebody assumes of stretches that are not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Assumption {
    /// Nothing: anything may have been written.
    #[default]
    Off,
    /// Functions write what they are declared to write.
    Declared,
    /// The same, and of which nothing is declared wrote no memory.
    Straight,
}

/// A word that names no [`Assumption`].
#[derive(Debug, thiserror::Error)]
#[error("{0}: it is `declared`, `straight` or `off`")]
pub struct NoAssumption(String);

impl Assumption {
    /// Its name, and what it says, for those who choose one.
    pub const ALL: [(Assumption, &'static str, &'static str); 3] = [
        (
            Assumption::Declared,
            "declared",
            "Functions write what they are declared to write",
        ),
        (
            Assumption::Straight,
            "straight",
            "What is not recorded wrote no memory",
        ),
        (Assumption::Off, "off", "Anything may have been written"),
    ];
}

impl FromStr for Assumption {
    type Err = NoAssumption;

    fn from_str(text: &str) -> Result<Assumption, NoAssumption> {
        let found = Assumption::ALL.iter().find(|a| a.1 == text);
        found
            .map(|a| a.0)
            .ok_or_else(|| NoAssumption(text.to_owned()))
    }
}
