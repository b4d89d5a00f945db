//! Which recordings are kept.

use hindsight_trace::meta::Ending;
use std::str::FromStr;

/// Which ends make a recording worth keeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepOn {
    /// Any end.
    Always,
    /// A signal, an exit status other than 0, or a hang.
    Failure,
    /// It took longer than it was given ([`crate::Builder::timeout`]).
    Hang,
    /// A signal.
    Crash,
    /// This signal.
    Signal(i32),
}

/// `always`, `failure`, `crash`, `hang`, or `signal=N` with a number or a name.
impl FromStr for KeepOn {
    type Err = String;

    fn from_str(s: &str) -> Result<KeepOn, String> {
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
}

impl KeepOn {
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
            let k = option.parse::<KeepOn>().unwrap();
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
            let k = option.parse::<KeepOn>().unwrap();
            assert_eq!(
                k.keeps(&Ending::Signal(libc::SIGKILL), true),
                kept,
                "{option}"
            );
        }
        assert!("signal=".parse::<KeepOn>().is_err() && "signal=99".parse::<KeepOn>().is_err());
    }
}
