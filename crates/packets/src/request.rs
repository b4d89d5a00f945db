//! All requests.

use crate::{
    CatchSyscalls, Command, Features, File, Malformed, Memory, PassSignals, Points, Process,
    Register, Resume, Thread, Transfer,
};
use crate::{command, features, file, memory, point, process, register, resume, signal};
use crate::{syscall, thread, transfer};

/// What a client asks. Each family of packets has a type of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Features(Features),
    /// Packets are to be acknowledged no more.
    StopAcks,
    Thread(Thread),
    Process(Process),
    Memory(Memory),
    Register(Register),
    Resume(Resume),
    Points(Points),
    Transfer(Transfer),
    File(File),
    Command(Command),
    PassSignals(PassSignals),
    CatchSyscalls(CatchSyscalls),
    /// Nothing that is known here. The answer is [`crate::Answer::unsupported`].
    Unknown,
}

impl Request {
    /// Parses the content of a packet.
    ///
    /// # Errors
    /// The packet is of a kind that is known here, but does not have its form.
    pub fn parse(packet: &[u8]) -> Result<Request, Malformed> {
        if packet == b"QStartNoAckMode" {
            return Ok(Request::StopAcks);
        }
        // No packet belongs to two families, so their order does not matter.
        macro_rules! family {
            ($($module:ident => $kind:ident),*) => {
                $(if let Some(r) = $module::parse(packet)? {
                    return Ok(Request::$kind(r));
                })*
            };
        }
        family!(
            memory => Memory, register => Register, thread => Thread, transfer => Transfer,
            resume => Resume, point => Points, file => File, process => Process,
            command => Command, signal => PassSignals, syscall => CatchSyscalls,
            features => Features
        );
        Ok(Request::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet of each kind.
    const PACKETS: &[&[u8]] = &[
        b"qSupported:multiprocess+;fork-events+;xmlRegisters=i386",
        b"QStartNoAckMode",
        b"?",
        b"!",
        b"g",
        b"G0011",
        b"p1f",
        b"P1f=0011",
        b"m7fff0000,40",
        b"M10,2:0011",
        b"X10,2:a}\x03",
        b"Z0,401000,1;X3,220127",
        b"z2,401000,8",
        b"vCont?",
        b"vCont;s:p1.1;c",
        b"vCont;r401000,402000:1;C05:-1",
        b"c",
        b"s",
        b"C05",
        b"S05",
        b"bc",
        b"bs",
        b"Hgp1.2",
        b"Hc-1",
        b"T1",
        b"qC",
        b"qfThreadInfo",
        b"qsThreadInfo",
        b"qThreadExtraInfo,p1.1",
        b"qGetTLSAddr:p1.1,10,7f00",
        b"qXfer:features:read:target.xml:0,fff",
        b"qXfer:exec-file:read:1a:0,fff",
        b"QPassSignals:e;10",
        b"QCatchSyscalls:1;1;2",
        b"vFile:open:2f70,0,0",
        b"vFile:pread:0,1000,0",
        b"vFile:readlink:2f70",
        b"qRcmd,7768656e",
        b"D;1",
        b"k",
        b"vKill;1",
        b"vAttach;1",
        b"vRun;",
        b"qAttached:1",
    ];

    #[test]
    fn all_kinds_are_known() {
        for p in PACKETS {
            let text = String::from_utf8_lossy(p);
            assert_ne!(Request::parse(p), Ok(Request::Unknown), "{text}");
            assert!(Request::parse(p).is_ok(), "{text}");
        }
        for unknown in [
            &b""[..],
            b"qHostInfo",
            b"qProcessInfo",
            b"jThreadsInfo",
            b"qRegisterInfo0",
            b"x0,0",
            b"qCRC:0,1",
            b"vFile:unlink:2f70",
            b"qXfer:sdata:read::0,10",
            b"Z7,0,1",
            b"QThreadSuffixSupported",
        ] {
            assert_eq!(Request::parse(unknown), Ok(Request::Unknown));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Request::parse(&bytes);
        }

        /// Packets with a few bytes changed, put in, or left out.
        #[test]
        fn near_packets_are_parsed(
            which in 0..PACKETS.len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3u8, any::<u8>()), 0..5),
        ) {
            let mut p = PACKETS[which].to_vec();
            for (at, how, byte) in changes {
                let at = at.index(p.len() + 1);
                match how {
                    0 => p.insert(at, byte),
                    1 if at < p.len() => p[at] = byte,
                    _ => p.truncate(at),
                }
            }
            let _ = Request::parse(&p);
        }
    }
}
