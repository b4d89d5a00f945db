//! What the two halves say to each other.
//!
//! One half reads the recording, which may be anybody's, in a process that can do nothing else. The other one runs the
//! program. It believes nothing that it is told: a message that does not decode is an error, and lengths are limited.

use std::io::{self, Read, Write};

/// The longest message, in bytes.
pub const MOST: usize = 1 << 28;
/// A call that moved or wrote more bytes cannot be fed to a program.
pub const LARGEST: usize = 1 << 26;

/// A question to the half that reads the recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// What was recorded. Answered by a [`Begin`]. All calls come again behind it.
    Begin,
    /// The next calls of a thread: a list of [`Call`]. An empty list is the end.
    Calls(u32),
    /// The call stack of a thread after so many instructions: a list of texts, the position first.
    Stack(u32, u64),
    /// The content of a file that the recorded program mapped: its path. Bytes, or an error if there is none.
    Content(Vec<u8>),
}

/// What was recorded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Begin {
    /// The path that was executed.
    pub program: Vec<u8>,
    /// The program's arguments, its name first.
    pub args: Vec<Vec<u8>>,
    /// The program's environment, as `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// The working directory.
    pub folder: Vec<u8>,
    /// When the recording began, in nanoseconds since 1970.
    pub started: u64,
    /// The program images.
    pub images: Vec<Image>,
}

/// A program image: a process from `fork` or `execve` to the next `execve` or its end.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Image {
    /// Its number.
    pub number: u32,
    /// The image that it came from; 0 for the first.
    pub parent: u32,
    /// It came by `execve`.
    pub by_exec: bool,
    /// The recording has all that its program did since it was loaded.
    pub is_whole: bool,
    /// The process id.
    pub pid: i32,
    /// Its first thread. 0: it has none.
    pub thread: u32,
    /// Its other threads, in the order in which they began.
    pub others: Vec<Member>,
    /// How many system calls all of them made.
    pub calls: u64,
    /// How many instructions its first thread had completed at its end.
    pub length: u64,
    /// How it ended.
    pub end: End,
    /// The thread whose end was that of the process.
    pub ended_by: u32,
    /// Processes that ran in its memory, until they loaded programs of their own (`vfork`).
    pub guests: Vec<Guest>,
    /// The sixteen random bytes that the kernel gave it, if they are known.
    pub random: Option<[u8; 16]>,
}

/// A thread besides the first one of a process.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Member {
    /// Its number.
    pub thread: u32,
    /// Its thread id.
    pub tid: i32,
    /// How many instructions it had completed at its end.
    pub length: u64,
}

/// A process that runs in the memory of another one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Guest {
    /// Its process id.
    pub pid: i32,
    /// Its thread.
    pub thread: u32,
    /// How many system calls it made.
    pub calls: u64,
    /// How many instructions it had completed at its end.
    pub length: u64,
    /// How it ended.
    pub end: End,
}

impl Image {
    /// The number of the thread that has a lane.
    pub fn of_lane(&self, lane: u32) -> u32 {
        if lane == 0 { self.thread } else { lane }
    }

    /// How many instructions a thread had completed at its end.
    pub fn length_of(&self, lane: u32) -> u64 {
        let other = self.others.iter().find(|m| m.thread == lane);
        other.map_or(self.length, |m| m.length)
    }

    /// The processes that ran in its memory, as if they were images of their own.
    pub fn of_guests(&self) -> impl Iterator<Item = Image> {
        self.guests.iter().map(|g| Image {
            thread: g.thread,
            calls: g.calls,
            length: g.length,
            end: g.end,
            ended_by: g.thread,
            pid: g.pid,
            others: Vec::new(),
            guests: Vec::new(),
            number: self.number,
            parent: self.parent,
            by_exec: self.by_exec,
            is_whole: self.is_whole,
            random: self.random,
        })
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum End {
    /// The recording does not say.
    #[default]
    Unknown,
    /// With a status.
    Status(i32),
    /// By a signal.
    Signal(i32),
    /// It loaded another program.
    Exec,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            End::Unknown => f.write_str("an unknown end"),
            End::Status(n) => write!(f, "exit status {n}"),
            End::Signal(n) => write!(f, "{}", crate::signal_name(*n)),
            End::Exec => f.write_str("another program"),
        }
    }
}

/// A recorded system call.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Call {
    /// The thread that made it: 0 is the first one of its process, and all others have their numbers.
    pub lane: u32,
    /// Its place in the order of the calls of all threads.
    pub order: u64,
    /// The place in this order of what its thread did first behind the call before.
    pub from: u64,
    /// The number of instructions that the thread had completed.
    pub count: u64,
    /// Its number.
    pub number: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// What it returned. `None`: it did not return.
    pub result: Option<u64>,
    /// About when it was, in nanoseconds since 1970.
    pub time: u64,
    /// The texts that it was given, in the order of its arguments. `None`: that is not known.
    pub texts: Vec<Option<Vec<u8>>>,
    /// A structure that it was given, as far as that says what its results are about.
    pub given: Vec<u8>,
    /// The bytes that it sent somewhere.
    pub sent: Blob,
    /// Those of them that are not known: from where on, and how many. They are zero.
    pub unsure: Vec<(u64, u64)>,
    /// The bytes that it received.
    pub received: Blob,
    /// How many of them are not known. They are zero.
    pub unknown: u64,
    /// What else it wrote into memory, in the order in which [`hindsight_syscalls::outputs`] names it.
    pub written: Vec<Written>,
    /// Signals that came in it or behind it.
    pub signals: Vec<Signal>,
    /// It opened a file that was later mapped as code.
    pub library: bool,
}

impl Call {
    /// About how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        let texts = self.texts.iter().flatten().map(Vec::len).sum::<usize>()
            + size_of_val(self.texts.as_slice());
        let written = self
            .written
            .iter()
            .map(|w| 2 * w.bytes.len() + size_of::<Written>());
        size_of::<Call>()
            + texts
            + written.sum::<usize>()
            + self.given.len()
            + self.sent.len()
            + self.received.len()
            + size_of_val(self.unsure.as_slice())
            + size_of_val(self.signals.as_slice())
    }
}

/// Bytes, which may be many.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Blob(pub Vec<u8>);

impl std::ops::Deref for Blob {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

/// Memory that a call wrote.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Written {
    /// Where.
    pub address: u64,
    /// What it held then. `None` for a byte that is not known.
    pub bytes: Vec<Option<u8>>,
}

/// A signal that somebody sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// Who sent it (`si_code`).
    pub code: i32,
    /// It came while the call waited, and ended or interrupted it.
    pub during: bool,
}

/// A value that is sent.
pub trait Wire: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes one from the front. `None`: the bytes are something else.
    fn get(from: &mut &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn get(from: &mut &[u8]) -> Option<Self> {
                let (b, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(<$t>::from_le_bytes(*b))
            }
        }
    )*};
}

numbers!(u32, u64, i32);

macro_rules! structures {
    ($($t:ident { $($field:ident),* })*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn get(from: &mut &[u8]) -> Option<Self> {
                Some($t { $($field: Wire::get(from)?),* })
            }
        }
    )*};
}

structures! {
    Begin { program, args, env, folder, started, images }
    Image { number, parent, by_exec, is_whole, pid, thread, others, calls, length, end, ended_by, guests, random }
    Member { thread, tid, length }
    Guest { pid, thread, calls, length, end }
    Call {
        lane, order, from, count, number, args, result, time, texts, given, sent, unsure, received, unknown, written, signals, library
    }
    Written { address, bytes }
    Signal { number, code, during }
}

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn get(from: &mut &[u8]) -> Option<u8> {
        let (b, rest) = from.split_first()?;
        *from = rest;
        Some(*b)
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn get(from: &mut &[u8]) -> Option<bool> {
        match u8::get(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Wire for [u64; 6] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|n| n.put(out));
    }
    fn get(from: &mut &[u8]) -> Option<Self> {
        let mut all = [0; 6];
        for n in &mut all {
            *n = u64::get(from)?;
        }
        Some(all)
    }
}

impl Wire for [u8; 16] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
    fn get(from: &mut &[u8]) -> Option<Self> {
        let (b, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(*b)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(v) = self {
            v.put(out);
        }
    }
    fn get(from: &mut &[u8]) -> Option<Self> {
        match bool::get(from)? {
            true => T::get(from).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|v| v.put(out));
    }
    fn get(from: &mut &[u8]) -> Option<Self> {
        let n = u64::get(from)?;
        // Each element takes a byte at least.
        if n > from.len() as u64 {
            return None;
        }
        (0..n).map(|_| T::get(from)).collect()
    }
}

impl Wire for Blob {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self);
    }
    fn get(from: &mut &[u8]) -> Option<Blob> {
        let n = usize::try_from(u64::get(from)?).ok()?;
        let (bytes, rest) = from.split_at_checked(n)?;
        *from = rest;
        Some(Blob(bytes.to_vec()))
    }
}

impl Wire for (u64, u64) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(from: &mut &[u8]) -> Option<Self> {
        Some((u64::get(from)?, u64::get(from)?))
    }
}

impl Wire for End {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, n) = match self {
            End::Unknown => (0u8, 0),
            End::Status(n) => (1, *n),
            End::Signal(n) => (2, *n),
            End::Exec => (3, 0),
        };
        kind.put(out);
        n.put(out);
    }
    fn get(from: &mut &[u8]) -> Option<End> {
        let (kind, n) = (u8::get(from)?, i32::get(from)?);
        Some(match kind {
            0 => End::Unknown,
            1 => End::Status(n),
            2 => End::Signal(n),
            3 => End::Exec,
            _ => return None,
        })
    }
}

impl Wire for Question {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Question::Begin => out.push(0),
            Question::Calls(thread) => {
                out.push(1);
                thread.put(out);
            }
            Question::Stack(thread, count) => {
                out.push(2);
                thread.put(out);
                count.put(out);
            }
            Question::Content(path) => {
                out.push(3);
                path.put(out);
            }
        }
    }
    fn get(from: &mut &[u8]) -> Option<Question> {
        Some(match u8::get(from)? {
            0 => Question::Begin,
            1 => Question::Calls(u32::get(from)?),
            2 => Question::Stack(u32::get(from)?, u64::get(from)?),
            3 => Question::Content(Vec::get(from)?),
            _ => return None,
        })
    }
}

/// Sends a message.
///
/// # Errors
/// It is too long, or nobody is there.
pub fn send(to: &mut impl Write, message: &impl Wire) -> io::Result<()> {
    let mut bytes = vec![0; 8];
    message.put(&mut bytes);
    let len = bytes.len() - 8;
    if len > MOST {
        return Err(io::Error::other("there is too much to say at once"));
    }
    bytes[..8].copy_from_slice(&(len as u64).to_le_bytes());
    to.write_all(&bytes)
}

/// Receives a message. `None`: the other half has ended.
///
/// # Errors
/// It is something else than was expected.
pub fn receive<T: Wire>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 8];
    match from.read_exact(&mut len) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    }
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a message does not decode");
    let len = u64::from_le_bytes(len);
    if len > MOST as u64 {
        return Err(wrong());
    }
    let mut bytes = Vec::new();
    from.take(len).read_to_end(&mut bytes)?;
    let mut rest = bytes.as_slice();
    let value = T::get(&mut rest).filter(|_| rest.is_empty() && bytes.len() as u64 == len);
    value.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn back<T: Wire>(value: &T) -> Option<T> {
        let mut bytes = Vec::new();
        send(&mut bytes, value).unwrap();
        receive(&mut bytes.as_slice()).unwrap()
    }

    #[test]
    fn what_is_sent_comes() {
        for q in [
            Question::Begin,
            Question::Calls(7),
            Question::Stack(3, u64::MAX),
            Question::Content(b"/etc/x".to_vec()),
        ] {
            assert_eq!(back(&q), Some(q));
        }
        let image = Image {
            number: 4,
            end: End::Signal(11),
            random: Some([7; 16]),
            ..Image::default()
        };
        let begin = Begin {
            args: vec![b"a".to_vec(), Vec::new()],
            images: vec![image],
            ..Begin::default()
        };
        assert_eq!(back(&begin), Some(begin));
        assert_eq!(receive::<Begin>(&mut [].as_slice()).unwrap(), None);
    }

    proptest! {
        #[test]
        fn calls_come_as_they_were_sent(
            number: u64, result: Option<u64>, received: Vec<u8>, bytes: Vec<Option<u8>>, text: Option<Vec<u8>>,
            address: u64,
        ) {
            let call = Call {
                number, result,
                received: Blob(received.clone()),
                sent: Blob(received),
                unsure: vec![(address, number)],
                written: vec![Written { address, bytes }],
                texts: vec![text, None],
                signals: vec![Signal { number: 2, code: -6, during: true }],
                ..Call::default()
            };
            let list = vec![call.clone(), call];
            prop_assert_eq!(back(&list), Some(list));
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            let mut message = (bytes.len() as u64).to_le_bytes().to_vec();
            message.extend(&bytes);
            let _ = receive::<Vec<Call>>(&mut message.as_slice());
            let _ = receive::<Begin>(&mut message.as_slice());
            let _ = receive::<Question>(&mut bytes.as_slice());
        }
    }
}
