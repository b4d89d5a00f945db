//! `?`, `!`, `D`, `k`, `vKill`, `vAttach`, `vRun`, `R` and `qAttached`: processes, and the connection to them.

use crate::encoding::number;
use crate::error::Parsed;
use crate::{Answer, Malformed};

/// A question about processes, or an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Process {
    /// `?`: why the program stands. The answer is a [`crate::Stop`].
    WhyStopped,
    /// `!`: the connection is to outlive a process.
    Extended,
    /// `vAttach`: the client wants this process too. The answer is a [`crate::Stop`].
    Attach(u64),
    /// `D`: the client leaves this process, or all.
    Detach(Option<u64>),
    /// `vKill`: the process is to end; `k`: all are.
    Kill(Option<u64>),
    /// `vRun`: a program is to be started. The answer is a [`crate::Stop`].
    Run,
    /// `R`: the program is to start again. It has no answer.
    Restart,
    /// `qAttached`: whether the process was there before the client. [`Process::attached`] is the answer.
    IsAttached,
}

impl Process {
    /// Answers `qAttached`: the process was there before, so that a client that goes lets it live.
    pub fn attached() -> Answer {
        Answer::text("1")
    }
}

pub(crate) fn parse(packet: &[u8]) -> Parsed<Process> {
    let pid = |digits: &[u8], kind| match number(digits) {
        Some(pid @ 1..) => Ok(pid),
        _ => Err(Malformed(kind)),
    };
    Ok(Some(match packet {
        b"?" => Process::WhyStopped,
        b"!" => Process::Extended,
        b"D" => Process::Detach(None),
        b"k" => Process::Kill(None),
        [b'R', _, _] => Process::Restart,
        [b'D', b';', rest @ ..] => Process::Detach(Some(pid(rest, "D")?)),
        _ if packet == b"qAttached" || packet.starts_with(b"qAttached:") => Process::IsAttached,
        _ if packet.starts_with(b"vRun;") => Process::Run,
        _ => {
            if let Some(rest) = packet.strip_prefix(b"vKill;") {
                Process::Kill(Some(pid(rest, "vKill")?))
            } else if let Some(rest) = packet.strip_prefix(b"vAttach;") {
                Process::Attach(pid(rest, "vAttach")?)
            } else {
                return Ok(None);
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named() {
        for (packet, process) in [
            (&b"D"[..], Process::Detach(None)),
            (b"D;1a", Process::Detach(Some(0x1a))),
            (b"k", Process::Kill(None)),
            (b"vKill;1a", Process::Kill(Some(0x1a))),
            (b"vAttach;1a", Process::Attach(0x1a)),
            (b"vRun;;61", Process::Run),
            (b"R00", Process::Restart),
            (b"qAttached:1a", Process::IsAttached),
        ] {
            assert_eq!(parse(packet), Ok(Some(process)));
        }
        for bad in [&b"D;"[..], b"D;0", b"vKill;x", b"vAttach;"] {
            assert!(parse(bad).is_err());
        }
        for other in [&b"Dx"[..], b"kx", b"??", b"R", b"vKillx"] {
            assert_eq!(parse(other), Ok(None));
        }
    }
}
