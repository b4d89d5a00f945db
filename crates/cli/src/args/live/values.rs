//! What options of recording take as values.

use super::super::values::bytes;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hindsight_events::select::Function;
use hindsight_launch::{Baseline, Children, Limit, Predictor, StatePoints};
use std::ffi::OsString;
use std::time::Duration;

/// Where a recording goes.
pub fn destination() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|s| match s.is_empty() {
        true => Err("expected a file, `-` or `tcp:HOST:PORT`"),
        false => Ok(s),
    })
}

pub fn pattern(text: &str) -> Result<String, &'static str> {
    match text.is_empty() || text.contains('\0') {
        true => Err("expected a path or file name, with `*` and `?` for what may be anything"),
        false => Ok(text.into()),
    }
}

pub fn system_call(text: &str) -> Result<u64, String> {
    hindsight_timeline::syscall_number(text)
}

pub fn function(text: &str) -> Result<String, &'static str> {
    match Function::parse(text.as_bytes()) {
        Some(_) => Ok(text.into()),
        None => Err("a function is `name`, `module!name` or `module+0x123`"),
    }
}

pub fn predictor(s: &str) -> Result<Predictor, &'static str> {
    Predictor::parse(s).ok_or("expected `window` or `cache:SIZE`, a power of two from 4k to 2g")
}

/// Bytes of a system call, such as `4096` or `64K`; `all` or `none`.
pub fn data_limit(s: &str) -> Result<u64, &'static str> {
    match s {
        "all" => Ok(u64::MAX),
        "none" => Ok(0),
        s if s.bytes().all(|b| b.is_ascii_digit()) => s.parse().map_err(|_| DATA_LIMIT),
        s => bytes(s).map_err(|_| DATA_LIMIT),
    }
}

const DATA_LIMIT: &str = "expected a number of bytes such as `4096` or `64K`, `all` or `none`";

/// A time, such as `10`, `1.5s` or `2m`; not 0.
pub fn duration(s: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "expected a time such as `10s`, `500ms`, `2m` or `1h`";
    let unit = s.find(|c: char| c != '.' && !c.is_ascii_digit());
    let (number, unit) = s.split_at(unit.unwrap_or(s.len()));
    let factor = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(EXPECTED),
    };
    let n: f64 = number.parse().map_err(|_| EXPECTED)?;
    let time = Duration::try_from_secs_f64(n * factor).ok();
    time.filter(|t| !t.is_zero()).ok_or(EXPECTED)
}

pub fn state_points(s: &str) -> Result<StatePoints, &'static str> {
    const EXPECTED: &str = "expected a time such as `5s`, `every=5s`, `events=100000`, or `calls`";
    if s == "calls" {
        return Ok(StatePoints::Calls);
    }
    if let Some(n) = s.strip_prefix("events=") {
        let n = n.parse().ok().filter(|n| *n > 0);
        return n.map(StatePoints::Events).ok_or(EXPECTED);
    }
    let time = duration(s.strip_prefix("every=").unwrap_or(s));
    time.map(StatePoints::Every).map_err(|_| EXPECTED)
}

pub fn count(s: &str) -> Result<usize, &'static str> {
    let n = s.parse().ok().filter(|n| *n > 0);
    n.ok_or("expected a number from 1 on")
}

pub fn baseline(s: &str) -> Result<Baseline, String> {
    Baseline::parse(s).ok_or_else(|| format!("expected one of {}", Baseline::NAMES.join(", ")))
}

pub fn children(s: &str) -> Result<Children, String> {
    use hindsight_events::config::PATTERN_LEN;
    match s {
        "follow" => return Ok(Children::Follow),
        "none" => return Ok(Children::None),
        _ => {}
    }
    let pattern = s.strip_prefix("only-matching=");
    match pattern.filter(|p| !p.is_empty() && p.len() < PATTERN_LEN && !p.contains('\0')) {
        Some(p) => Ok(Children::Matching(p.into())),
        None => Err(format!(
            "expected `follow`, `none` or `only-matching=GLOB` (shorter than {PATTERN_LEN} bytes)"
        )),
    }
}

/// How often a program is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry(pub u64);

impl Retry {
    /// What `--retry` says.
    pub fn parse(s: &str) -> Result<Retry, &'static str> {
        if s == "until-failure" {
            return Ok(Retry(u64::MAX));
        }
        let n = s.parse().ok().filter(|n| *n > 0);
        n.map(Retry)
            .ok_or("expected a number of runs or `until-failure`")
    }
}

/// Smallest ring: a few key frames with what they cost.
const LEAST: u64 = 1 << 20;

/// What `--ring` says: `64M` or `10s`.
pub fn ring(s: &str) -> Result<Limit, &'static str> {
    const EXPECTED: &str = "expected a size such as `64M` (at least 1M) or a time such as `10s`";
    let unit = s.find(|c: char| !c.is_ascii_digit()).ok_or(EXPECTED)?;
    let n: u64 = s[..unit].parse().map_err(|_| EXPECTED)?;
    let bytes = |shift: u32| {
        let n = n.checked_mul(1 << shift).filter(|n| *n >= LEAST);
        n.map(Limit::Bytes).ok_or(EXPECTED)
    };
    match &s[unit..] {
        "s" if (1..=1_000_000).contains(&n) => Ok(Limit::Time(Duration::from_secs(n))),
        "k" | "K" => bytes(10),
        "m" | "M" => bytes(20),
        "g" | "G" => bytes(30),
        _ => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ms = |s| duration(s).map(|d| d.as_millis());
        assert_eq!(
            (ms("2"), ms("1.5s"), ms("250ms")),
            (Ok(2000), Ok(1500), Ok(250))
        );
        assert_eq!((ms("2m"), ms("1h")), (Ok(120_000), Ok(3_600_000)));
        for wrong in [
            "",
            "0",
            "s",
            "1.2.3",
            "-1",
            "5 s",
            "99999999999999999999d",
            "1w",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn state_points_come_by_time_by_events_or_before_calls() {
        assert_eq!(state_points("calls"), Ok(StatePoints::Calls));
        let second = Ok(StatePoints::Every(Duration::from_secs(1)));
        assert_eq!(
            (state_points("1s"), state_points("every=1s")),
            (second, second)
        );
        assert_eq!(state_points("events=7"), Ok(StatePoints::Events(7)));
        for wrong in ["", "every=", "events=0", "events=1s", "events=", "each=1s"] {
            assert!(state_points(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!(ring("64M"), Ok(Limit::Bytes(64 << 20)));
        assert_eq!(ring("2048k"), Ok(Limit::Bytes(2 << 20)));
        assert_eq!(ring("10s"), Ok(Limit::Time(Duration::from_secs(10))));
        for wrong in ["", "64", "M", "1k", "0s", "10m30", "99999999999G", "-1s"] {
            assert!(ring(wrong).is_err(), "{wrong}");
        }
    }
}
