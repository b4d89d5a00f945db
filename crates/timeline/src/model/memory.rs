//! Answers to the question what memory held.

use crate::{Position, ThreadId};
use std::fmt;

/// How much a question about memory is to find out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// The known bytes. For the others, [`Memory::unnamed`] says which threads may have written something else.
    Known,
    /// The known bytes and, for the others, all candidates with their writers.
    Candidates,
}

/// Bytes in one line of text.
const ROW: usize = 16;

/// Why a byte's value is known. Several reasons may hold. Memory may have been written and then read. Or a key frame, or
/// a program's beginning, tells it as well. Which of [`Ground::Written`], [`Ground::Read`] and [`Ground::Restated`] is
/// named depends on what the index has. The value does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// An instruction of the program wrote it.
    Written,
    /// An instruction of the program read it.
    Read,
    /// The program read it later, and nothing in between can have changed it.
    Exposed,
    /// It is the content of a mapped file, which nothing has changed since.
    Module,
    /// It is zero, as the kernel gave it, and nothing has changed it since.
    Fresh,
    /// It was executed.
    Code,
    /// The recording told all memory at an instant before: at a key frame, or when the program began. Only the thread
    /// and the kernel can have changed it since, and replay has done what they did.
    Restated,
}

/// A known byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownByte {
    /// What it holds.
    pub value: u8,
    /// Why that is known.
    pub ground: Ground,
}

/// Neighbouring bytes that are known for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroundSpan {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Why they are known. `None`: they are not known.
    pub ground: Option<Ground>,
}

/// Why a value is only a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Threads accessed it at the same time: likely a race.
    Race,
    /// It held this, but the kernel or an unrecorded thread may have changed it since.
    Changed,
    /// It held this, in memory that other processes may change.
    Shared,
}

/// A value that memory may hold. It may also have held it only until something else changed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// First address.
    pub address: u64,
    /// What the bytes from that address on may hold.
    pub bytes: Vec<u8>,
    /// The thread whose access gave or found this value.
    pub thread: ThreadId,
    /// The instant before that access.
    pub position: Position,
    /// Why it is not known.
    pub why: Why,
}

/// What is known of a stretch of memory at a position.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Address of the first byte.
    pub address: u64,
    /// The value of each byte. `None`: it is not known.
    pub bytes: Vec<Option<KnownByte>>,
    /// Candidates for bytes that are not certain: values from segments that ran at the same time. A byte that is not
    /// known has the value of its last access as a candidate.
    pub candidates: Vec<Candidate>,
    /// Where the list of candidates is incomplete. It may have only the last values that a thread wrote. In an answer
    /// of [`crate::Cursor::known_memory`] it may have none.
    pub unnamed: Vec<Unnamed>,
    /// For each byte: the recording says nothing of it since the thread's last gap. It is not known, nobody has accessed it since,
    /// and it has no candidate. Who knows what the program did in the gap may look for the byte before it.
    pub silent: Vec<bool>,
}

/// Bytes to which a thread may have written more values than there are candidates. It did so in segments that ran at
/// the same time. The index says that it may have; it need not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unnamed {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Who may have written them.
    pub thread: ThreadId,
}

impl Memory {
    /// The bytes, if all are known.
    pub fn whole(&self) -> Option<Vec<u8>> {
        self.bytes.iter().map(|b| b.map(|k| k.value)).collect()
    }

    /// The known bytes at the start.
    pub fn prefix(&self) -> Vec<u8> {
        self.bytes
            .iter()
            .map_while(|b| b.map(|k| k.value))
            .collect()
    }
}

impl Memory {
    /// Neighbouring bytes with the same ground, as spans. Unknown bytes make spans too.
    pub fn grounds(&self) -> Vec<GroundSpan> {
        let mut out: Vec<GroundSpan> = Vec::new();
        for (i, b) in self.bytes.iter().enumerate() {
            let at = self.address.wrapping_add(i as u64);
            let g = b.map(|k| k.ground);
            match out.last_mut() {
                Some(last) if last.ground == g => last.len += 1,
                _ => out.push(GroundSpan {
                    address: at,
                    len: 1,
                    ground: g,
                }),
            }
        }
        out
    }
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Ground::Written => "written",
            Ground::Read => "read",
            Ground::Exposed => "exposed",
            Ground::Module => "module",
            Ground::Fresh => "fresh",
            Ground::Code => "code",
            Ground::Restated => "restated",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Why::Race => "race",
            Why::Changed => "changed",
            Why::Shared => "shared",
        })
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let bytes: Vec<String> = self.bytes.iter().map(|b| format!("{b:02x}")).collect();
        let (bytes, at) = (bytes.join(" "), self.address);
        let who = format!("thread {} at {}", self.thread, self.position);
        match self.why {
            Why::Race => write!(f, "likely race: {at:#x} may also be {bytes}, by {who}"),
            Why::Changed => write!(
                f,
                "{at:#x} was {bytes} for {who}; the kernel or what is not recorded may have changed it since"
            ),
            Why::Shared => write!(
                f,
                "{at:#x} was {bytes} for {who}; other processes may have changed it since"
            ),
        }
    }
}

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Unnamed {
            address,
            len,
            thread,
        } = self;
        write!(
            f,
            "{address:#x}+{len}: thread {thread} may have written other values too, which are not named"
        )
    }
}

/// Prints lines of bytes, then grounds, then candidates, then where there may be more.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let hex = |b: &Option<KnownByte>| b.map_or("??".into(), |k| format!("{:02x}", k.value));
        let char = |b: &Option<KnownByte>| match b {
            Some(k) if (0x20..0x7f).contains(&k.value) => k.value as char,
            Some(_) => '.',
            None => '?',
        };
        for (i, row) in self.bytes.chunks(ROW).enumerate() {
            let at = self.address.wrapping_add((i * ROW) as u64);
            let bytes: Vec<String> = row.iter().map(hex).collect();
            let text: String = row.iter().map(char).collect();
            writeln!(f, "{at:#014x}  {:<47}  {text}", bytes.join(" "))?;
        }
        for GroundSpan {
            address: at,
            len,
            ground,
        } in self.grounds()
        {
            let why = ground.map_or("not known".into(), |g| g.to_string());
            writeln!(f, "{at:#x}+{len}: {why}")?;
        }
        self.candidates
            .iter()
            .try_for_each(|c| writeln!(f, "{c}"))?;
        self.unnamed.iter().try_for_each(|u| writeln!(f, "{u}"))
    }
}

/// One write of a list of writes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Written {
    /// The write.
    pub access: Found,
    /// What the first of the bytes hold after it. `None`: that is not known.
    pub bytes: Vec<Option<u8>>,
}

/// An access to memory that a search found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Found {
    /// The thread that did it.
    pub thread: ThreadId,
    /// The instant before the instruction that did it.
    pub position: Position,
    /// The number of instructions that the thread had completed there.
    pub count: u64,
    /// Address of the instruction.
    pub pc: u64,
    /// First address that it accessed.
    pub address: u64,
    /// Number of bytes that it accessed.
    pub len: u64,
    /// It read.
    pub read: bool,
    /// It wrote.
    pub write: bool,
    /// The kernel did it, in the system call or for the signal at this position.
    pub kernel: bool,
}
