//! What options take as values.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use hindsight_inspect::Assumption;
use std::time::Duration;

/// What is assumed of stretches that are not recorded.
pub fn assumption() -> impl TypedValueParser<Value = Assumption> {
    let all = Assumption::ALL.map(|(_, name, says)| PossibleValue::new(name).help(says));
    PossibleValuesParser::new(all).try_map(|name| name.parse::<Assumption>())
}

pub fn jobs(s: &str) -> Result<usize, &'static str> {
    let n = s.parse().ok().filter(|n| *n > 0);
    n.ok_or("expected a number of processors, at least 1")
}

/// A number of bytes, such as `512M`.
pub fn bytes(s: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "expected a size such as `512M` or `4G`";
    let unit = s.find(|c: char| !c.is_ascii_digit()).ok_or(EXPECTED)?;
    let n: u64 = s[..unit].parse().map_err(|_| EXPECTED)?;
    let shift = match &s[unit..] {
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(EXPECTED),
    };
    let n = n.checked_mul(1 << shift).filter(|n| *n > 0);
    n.ok_or(EXPECTED)
}

pub fn seconds(s: &str) -> Result<Duration, &'static str> {
    s.parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or("expected a number of seconds")
}
