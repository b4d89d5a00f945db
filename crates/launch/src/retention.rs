//! Which recordings are kept, and how often a program is run for one.

use hindsight_trace::Limit;
use hindsight_trace::meta::Ending;
use std::time::Duration;

/// Which ends make a recording worth keeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepOn {
    Always,
    /// A signal, an exit status other than 0, or a hang.
    Failure,
    /// It took longer than it was given (`--timeout`).
    Hang,
    /// A signal.
    Crash,
    /// This signal.
    Signal(i32),
}

impl KeepOn {
    /// What `--keep-on` says.
    pub fn parse(s: &str) -> Result<KeepOn, String> {
        match s {
            "always" => return Ok(KeepOn::Always),
            "failure" => return Ok(KeepOn::Failure),
            "crash" => return Ok(KeepOn::Crash),
            "hang" => return Ok(KeepOn::Hang),
            _ => {}
        }
        let signal = s.strip_prefix("signal=").and_then(signal_number);
        signal.map(KeepOn::Signal).ok_or(
            "expected `always`, `failure`, `crash`, `hang` or `signal=N` (a number, or a name such as SEGV)"
                .into(),
        )
    }

    /// Whether a recording that ended like this is kept; `hung`: it was ended because it took too long, and the signal is
    /// not the program's. One that the recorder could not go on with is: its end is not the program's.
    pub fn keeps(self, ending: &Ending, hung: bool) -> bool {
        match (self, ending) {
            (KeepOn::Always, _) | (_, Ending::Unsupported(_) | Ending::Detached) => true,
            (KeepOn::Failure | KeepOn::Hang, _) if hung => true,
            (KeepOn::Crash | KeepOn::Signal(_), _) if hung => false,
            (KeepOn::Failure, Ending::Exit(status)) => *status != 0,
            (KeepOn::Failure | KeepOn::Crash, Ending::Signal(_)) => true,
            (KeepOn::Signal(n), Ending::Signal(signal)) => n == *signal,
            (KeepOn::Crash | KeepOn::Signal(_), Ending::Exit(_)) | (KeepOn::Hang, _) => false,
        }
    }
}

fn signal_number(s: &str) -> Option<i32> {
    const NAMES: [(&str, i32); 16] = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ILL", libc::SIGILL),
        ("TRAP", libc::SIGTRAP),
        ("ABRT", libc::SIGABRT),
        ("BUS", libc::SIGBUS),
        ("FPE", libc::SIGFPE),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("SEGV", libc::SIGSEGV),
        ("USR2", libc::SIGUSR2),
        ("PIPE", libc::SIGPIPE),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("SYS", libc::SIGSYS),
    ];
    if let Ok(n) = s.parse::<i32>() {
        return (1..=64).contains(&n).then_some(n);
    }
    let name = s.strip_prefix("SIG").unwrap_or(s);
    NAMES.iter().find(|(n, _)| *n == name).map(|(_, n)| *n)
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
pub fn limit(s: &str) -> Result<Limit, &'static str> {
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
    fn what_is_kept() {
        let ends = [
            Ending::Exit(0),
            Ending::Exit(3),
            Ending::Signal(11),
            Ending::Signal(6),
            Ending::Unsupported(String::new()),
        ];
        for (option, kept) in [
            ("always", [true; 5]),
            ("failure", [false, true, true, true, true]),
            ("crash", [false, false, true, true, true]),
            ("signal=11", [false, false, true, false, true]),
            ("signal=SIGABRT", [false, false, false, true, true]),
            ("hang", [false, false, false, false, true]),
        ] {
            let k = KeepOn::parse(option).unwrap();
            assert_eq!(ends.each_ref().map(|e| k.keeps(e, false)), kept, "{option}");
        }
        // One that was killed because it took too long.
        for (option, kept) in [
            ("always", true),
            ("failure", true),
            ("hang", true),
            ("crash", false),
            ("signal=KILL", false),
        ] {
            let k = KeepOn::parse(option).unwrap();
            assert_eq!(
                k.keeps(&Ending::Signal(libc::SIGKILL), true),
                kept,
                "{option}"
            );
        }
        assert!(KeepOn::parse("signal=").is_err() && KeepOn::parse("signal=99").is_err());
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!(limit("64M"), Ok(Limit::Bytes(64 << 20)));
        assert_eq!(limit("2048k"), Ok(Limit::Bytes(2 << 20)));
        assert_eq!(limit("10s"), Ok(Limit::Time(Duration::from_secs(10))));
        for wrong in ["", "64", "M", "1k", "0s", "10m30", "99999999999G", "-1s"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
