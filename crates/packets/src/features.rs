//! `qSupported`: what both sides know.

use crate::error::Parsed;
use crate::{Answer, MAX_PACKET};

/// What a client can be told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Features {
    /// It tells processes apart, in the names of threads.
    pub processes: bool,
    /// Events of a stop.
    pub forks: bool,
    pub vforks: bool,
    pub execs: bool,
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Features> {
    let list = match packet.strip_prefix(b"qSupported") {
        Some(b"") => &b""[..],
        Some([b':', list @ ..]) => list,
        _ => return Ok(None),
    };
    let mut all = Features::default();
    for feature in list.split(|b| *b == b';') {
        match feature {
            b"multiprocess+" => all.processes = true,
            b"fork-events+" => all.forks = true,
            b"vfork-events+" => all.vforks = true,
            b"exec-events+" => all.execs = true,
            _ => {}
        }
    }
    Ok(Some(all))
}

/// Answers `qSupported`: packets of this crate that a client uses only where a server says that it knows them.
pub fn offer() -> Answer {
    const KNOWN: [&str; 21] = [
        "vContSupported",
        "multiprocess",
        "QStartNoAckMode",
        "fork-events",
        "vfork-events",
        "vforkdone-events",
        "exec-events",
        "ReverseContinue",
        "ReverseStep",
        "swbreak",
        "hwbreak",
        "ConditionalBreakpoints",
        "QCatchSyscalls",
        "QPassSignals",
        "qXfer:features:read",
        "qXfer:exec-file:read",
        "qXfer:auxv:read",
        "qXfer:libraries-svr4:read",
        "qXfer:osdata:read",
        "qXfer:siginfo:read",
        "qXfer:threads:read",
    ];
    let mut out = format!("PacketSize={MAX_PACKET:x}");
    for feature in KNOWN {
        out += &format!(";{feature}+");
    }
    Answer::text(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_told_apart() {
        let of = |list: &str| {
            parse(format!("qSupported{list}").as_bytes())
                .unwrap()
                .unwrap()
        };
        let f = of(":multiprocess+;vfork-events+;exec-events+");
        assert!(!f.forks && f.vforks && f.execs && f.processes);
        let f = of(":swbreak+;fork-events+;exec-events-;xmlRegisters=i386");
        assert!(f.forks && !f.vforks && !f.execs && !f.processes);
        assert_eq!(of(""), Features::default());
        assert_eq!(parse(b"qSupportedx"), Ok(None));
    }
}
