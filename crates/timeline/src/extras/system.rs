//! Shows system calls as strace does: arguments and results with their names and structures.
//!
//! One table says what the arguments mean: `hindsight_syscalls::signature`. The bytes at pointers come from the
//! recording, before or after the call. Where the recording does not have them, the pointer is shown, or a question
//! mark.

mod errors;
mod handles;
mod lists;
mod names;
mod queues;
mod requests;
mod shapes;
mod sockets;
mod text;

use crate::scan::Raw;
use crate::{Cursor, Happening, Kind, Memory, Result, ThreadId, syscall_name};
use hindsight_syscalls::abi;
use hindsight_syscalls::{Arg, Returns, Set, Shape, arguments, signature};
use shapes::Bytes;
use text::{SHOWN, address, bits, hexadecimal, octal, one, quoted, signal};

/// The longest text that is read: that of a path.
pub(super) const PATH: usize = 4096;
/// Results from here on are errors.
pub(super) const ERRORS: u64 = -4095i64 as u64;

/// A system call in words.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SystemCall {
    /// The call's name, or `syscall_N` if it has none.
    pub name: String,
    /// One text for each argument.
    pub arguments: Vec<String>,
    /// What it returned, with the error's name. `?` if it did not return.
    pub result: String,
}

impl std::fmt::Display for SystemCall {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "{}({}) = {}",
            self.name,
            self.arguments.join(", "),
            self.result
        )
    }
}

/// The name of the error that a system call has returned, such as `ENOENT`. `None`: it has returned no error, or one without
/// a name.
pub fn error_name(result: u64) -> Option<&'static str> {
    (result >= ERRORS)
        .then(|| errors::error(result.wrapping_neg()))?
        .map(|e| e.0)
}

/// The name of a signal, such as `SIGSEGV`; its number if it has none.
pub fn signal_name(number: u64) -> String {
    signal(number)
}

/// Reads the memory that a call finds (`behind` unset), or leaves.
pub(super) trait Seen {
    fn read(&mut self, address: u64, len: usize, behind: bool) -> Result<Vec<Option<u8>>>;
}

/// The memory of a recording around the call that `thread` makes after `count` instructions.
pub(super) struct Recorded<'a> {
    pub cursor: &'a mut Cursor,
    pub thread: ThreadId,
    pub count: u64,
}

impl Seen for Recorded<'_> {
    fn read(&mut self, address: u64, len: usize, behind: bool) -> Result<Vec<Option<u8>>> {
        // The virtual processor goes there only when it is needed.
        self.cursor
            .view
            .note_position(self.thread, self.count + behind as u64);
        let mut m = self.cursor.known_memory(address, len)?;
        if !m.unnamed.is_empty() {
            // That asked only the index, which knows too little here. This looks at what the threads really wrote.
            m = self.cursor.memory(address, len)?;
        }
        Ok(certain(&m))
    }
}

/// The bytes of which no other thread may have made something else at the same time.
fn certain(m: &Memory) -> Vec<Option<u8>> {
    let mut bytes: Vec<_> = m.bytes.iter().map(|b| b.map(|k| k.value)).collect();
    let mut doubt = |at: u64, value: Option<u8>| {
        let i = usize::try_from(at.wrapping_sub(m.address)).ok();
        if let Some(b) = i.and_then(|i| bytes.get_mut(i)) {
            *b = b.filter(|b| Some(*b) == value);
        }
    };
    for c in &m.candidates {
        for (i, b) in (0..).zip(&c.bytes) {
            doubt(c.address.wrapping_add(i), Some(*b));
        }
    }
    for u in &m.unnamed {
        (0..u.len).for_each(|i| doubt(u.address.wrapping_add(i), None));
    }
    bytes
}

impl Cursor {
    /// A system call in words. `None`: the event is another one. The cursor stands before or after the call afterwards.
    pub fn system_call(&mut self, happening: &Happening) -> Result<Option<SystemCall>> {
        let Kind::Syscall {
            number,
            args,
            result,
        } = happening.kind
        else {
            return Ok(None);
        };
        let seen = &mut Recorded {
            cursor: self,
            thread: happening.thread,
            count: happening.count,
        };
        let mut call = Call {
            seen,
            name: syscall_name(number),
            number,
            args,
            result,
        };
        call.shown().map(Some)
    }
}

impl Cursor {
    /// What is certainly known of `len` bytes of memory around the system call that `thread` makes after `count`
    /// instructions: before the call, or `behind` it. The virtual processor goes there only where it is needed, and the
    /// cursor stands there afterwards.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn around_call(
        &mut self,
        (thread, count): (ThreadId, u64),
        (address, len): (u64, usize),
        behind: bool,
    ) -> Result<Vec<Option<u8>>> {
        let mut seen = Recorded {
            cursor: self,
            thread,
            count,
        };
        seen.read(address, len, behind)
    }

    /// The system call that the instruction at the cursor makes. `None`: it makes none. The cursor stays.
    pub fn system_call_here(&mut self) -> Result<Option<SystemCall>> {
        let (thread, count) = (self.thread(), self.count());
        let position = self.position()?;
        let scan = self.view.engine().scan(thread)?;
        let first = scan.events.partition_point(|e| e.0 < count);
        let mut here = scan.events[first..].iter().take_while(|e| e.0 == count);
        let Some(kind) = here.find_map(|e| match e.1 {
            Raw::Syscall {
                number,
                args,
                result,
            } => Some(Kind::Syscall {
                number,
                args,
                result,
            }),
            Raw::Signal { .. } => None,
        }) else {
            return Ok(None);
        };
        let call = self.system_call(&Happening {
            position,
            thread,
            count,
            kind,
        });
        // This also holds if it failed. The virtual processor goes back only when it is needed.
        self.view.note_position(thread, count);
        call
    }
}

struct Call<'a> {
    seen: &'a mut dyn Seen,
    name: String,
    number: u64,
    args: [u64; 6],
    result: Option<u64>,
}

impl Call<'_> {
    fn shown(&mut self) -> Result<SystemCall> {
        let known = signature(&self.name);
        let arguments = match (known, self.name.as_str()) {
            (_, "clone") => self.clone_arguments()?,
            (Some(s), _) => {
                let mut out = Vec::new();
                for (i, arg) in s.args.iter().enumerate() {
                    match self.argument(i, *arg)? {
                        Some(text) => out.push(text),
                        None => break,
                    }
                }
                out
            }
            (None, _) => {
                let n = arguments(self.number);
                self.args[..n].iter().map(|a| format!("{a:#x}")).collect()
            }
        };
        Ok(SystemCall {
            result: self.returned(known.map_or(Returns::Number, |s| s.returns))?,
            name: self.name.clone(),
            arguments,
        })
    }

    fn failed(&self) -> bool {
        self.result.is_none_or(|r| r >= ERRORS)
    }

    /// The result as a length. 0 if the call failed.
    fn len(&self) -> usize {
        match self.failed() {
            true => 0,
            false => self.result.map_or(0, |r| r.min(1 << 30) as usize),
        }
    }

    fn arg(&self, i: u8) -> u64 {
        self.args[i as usize % 6]
    }

    fn bytes(&mut self, at: u64, len: usize, behind: bool) -> Result<Bytes> {
        self.seen.read(at, len, behind).map(Bytes)
    }

    /// A number of four bytes in memory.
    fn word(&mut self, at: u64, behind: bool) -> Result<Option<u64>> {
        let b = self.seen.read(at, 4, behind)?;
        let value = |n: u64, b: &Option<u8>| b.map(|b| n << 8 | b as u64);
        Ok(b.iter().rev().try_fold(0, value))
    }

    /// A text that the call wrote.
    fn filled_text(&mut self, v: u64) -> Result<String> {
        let len = self.len().min(PATH);
        let b = self.seen.read(v, len, true)?;
        let end = b.iter().position(|b| *b == Some(0)).unwrap_or(len);
        Ok(some(&b[..end]).map_or(address(v), |b| quoted(b, false)))
    }

    /// A socket's address that the call wrote, and its length, at `len`.
    fn filled_address(&mut self, v: u64, len: u64) -> Result<String> {
        let len = match len {
            0 => None,
            at => self.word(at, true)?,
        };
        self.socket_address(v, len.unwrap_or(0), true)
    }

    /// An argument in words. `None`: the call has no more arguments.
    fn argument(&mut self, i: usize, arg: Arg) -> Result<Option<String>> {
        let v = self.args[i];
        let int = |v: u64| (v as i32).to_string();
        Ok(Some(match arg {
            Arg::Int | Arg::Fd => int(v),
            Arg::Long => (v as i64).to_string(),
            Arg::Uint => (v as u32).to_string(),
            Arg::Size => v.to_string(),
            Arg::Hex if i == 0 || self.name == "mremap" => address(v),
            Arg::Hex if v == 0 => "0".into(),
            Arg::Hex => format!("{v:#x}"),
            Arg::Dir if v as i32 == abi::AT_FDCWD => "AT_FDCWD".into(),
            Arg::Dir => int(v),
            Arg::Mode => octal(v & 0xffff),
            Arg::ModeIf(flags) => {
                let makes = abi::O_CREAT | (abi::O_TMPFILE & !abi::O_DIRECTORY);
                if self.arg(flags) as i32 & makes == 0 {
                    return Ok(None);
                }
                octal(v & 0xffff)
            }
            Arg::Device => shapes::device(v),
            Arg::Signal => signal(v),
            Arg::Flags(Set::Open) => shapes::open_flags(v as u32 as u64),
            Arg::Flags(Set::StatxFlags) => requests::statx(v),
            Arg::Flags(Set::FutexOp) => requests::futex(v),
            Arg::Flags(Set::SocketType) => requests::socket_type(v),
            Arg::Flags(set) => bits(v as u32 as u64, names::names(set)),
            Arg::One(Set::OptionName) => requests::option_name(self.args[1], v),
            Arg::One(Set::Protocol) => requests::protocol(self.args[0], v),
            Arg::One(set) => one(v as u32 as u64, names::names(set)),
            Arg::FlagsBehind(set) => match self.word(v, true)? {
                Some(v) => format!("[{}]", bits(v, names::names(set))),
                None => address(v),
            },
            Arg::Text => self.text(v)?,
            Arg::Texts => self.texts(v)?,
            Arg::Environment => self.environment(v)?,
            Arg::Bytes(len) => self.buffer(v, self.arg(len), false)?,
            Arg::Filled if self.failed() => address(v),
            Arg::Filled => self.buffer(v, self.len() as u64, true)?,
            Arg::FilledText if self.failed() => address(v),
            Arg::FilledText => self.filled_text(v)?,
            Arg::Out(Shape::Dirents) => self.entries(v)?,
            Arg::In(shape) => self.shape(v, shape, false)?,
            // A call that waited in vain has still said how long, or what it found.
            Arg::Out(_) if self.failed() => address(v),
            Arg::Out(Shape::Status | Shape::Rusage | Shape::Siginfo)
                if self.result == Some(0) && self.name == "wait4" =>
            {
                address(v)
            }
            Arg::Out(Shape::Timespec) if self.name.ends_with("nanosleep") => address(v),
            Arg::Out(shape) => self.shape(v, shape, true)?,
            Arg::InOut(shape) => self.both(v, shape)?,
            Arg::Ins(shape, count) => self.list(v, shape, self.arg(count), false)?,
            Arg::Outs(_) if self.failed() => address(v),
            Arg::Outs(shape) => self.list(v, shape, self.len() as u64, true)?,
            Arg::Buffers(count) => self.buffers(v, self.arg(count), None)?,
            Arg::FilledBuffers(_) if self.failed() => address(v),
            Arg::FilledBuffers(count) => {
                self.buffers(v, self.arg(count), Some(self.len() as u64))?
            }
            Arg::Address(len) => {
                let len = self.arg(len) as u32 as u64;
                self.socket_address(v, len, false)?
            }
            Arg::FilledAddress(_) if self.failed() => address(v),
            Arg::FilledAddress(len) => self.filled_address(v, self.arg(len))?,
            Arg::Message => self.message(v, None)?,
            Arg::FilledMessage if self.failed() => address(v),
            Arg::FilledMessage => self.message(v, Some(self.len() as u64))?,
            Arg::Polled(_) if v == 0 => "NULL".into(),
            Arg::Polled(count) => {
                let list = self.polled(v, self.arg(count), false)?;
                list.map_or(address(v), |l| format!("[{}]", l.join(", ")))
            }
            Arg::Requested => return self.requested(i),
            Arg::Value(len) => {
                let len = self.arg(len) as u32 as u64;
                self.option(v, len, false)?
            }
            Arg::FilledValue(_) if self.failed() => address(v),
            Arg::FilledValue(len) => {
                let len = self.word(self.arg(len), true)?.unwrap_or(0);
                self.option(v, len, true)?
            }
            Arg::Descriptors => self.descriptors(v, false)?,
            Arg::Processors(len) => {
                let len = self.arg(len);
                self.processors(v, len, false)?
            }
            Arg::FilledProcessors if self.failed() => address(v),
            Arg::FilledProcessors => self.processors(v, self.len() as u64, true)?,
            Arg::FileHandle => self.file_handle(v)?,
            Arg::MountId(_) if self.failed() => address(v),
            Arg::MountId(flags) => self.mount_id(v, self.arg(flags))?,
        }))
    }

    /// A text that ends with a zero byte.
    fn text(&mut self, at: u64) -> Result<String> {
        if at == 0 {
            return Ok("NULL".into());
        }
        let (b, whole) = self.until_zero(at, PATH)?;
        Ok(some(&b).map_or(address(at), |b| quoted(b, !whole)))
    }

    fn until_zero(&mut self, at: u64, most: usize) -> Result<(Vec<Option<u8>>, bool)> {
        until_zero(self.seen, at, most)
    }

    fn pointer(&mut self, at: u64) -> Result<Option<u64>> {
        let b = self.seen.read(at, 8, false)?;
        Ok(b.iter()
            .rev()
            .try_fold(0, |n, b| b.map(|b| n << 8 | b as u64)))
    }

    fn buffer(&mut self, at: u64, len: u64, behind: bool) -> Result<String> {
        let shown = len.min(SHOWN as u64) as usize;
        if at == 0 {
            return Ok("NULL".into());
        }
        if shown == 0 {
            return Ok("\"\"".into());
        }
        let b = self.seen.read(at, shown, behind)?;
        let show = match self.name.as_str() {
            "getrandom" => hexadecimal,
            _ => quoted,
        };
        Ok(some(&b).map_or(address(at), |b| show(b, len > SHOWN as u64)))
    }

    fn shape(&mut self, at: u64, shape: Shape, behind: bool) -> Result<String> {
        if at == 0 {
            return Ok("NULL".into());
        }
        let b = self.bytes(at, shapes::size(shape), behind)?;
        Ok(shapes::shown(shape, &b).unwrap_or_else(|| address(at)))
    }

    /// A structure before the call, and after it if it differs then.
    fn both(&mut self, at: u64, shape: Shape) -> Result<String> {
        let before = self.shape(at, shape, false)?;
        if at == 0 || self.failed() {
            return Ok(before);
        }
        if shape == Shape::CloneArgs {
            return self.made(before);
        }
        let behind = self.shape(at, shape, true)?;
        let inner = |t: &str| t.trim_matches(['[', ']']).to_owned();
        Ok(match before == behind || !behind.starts_with('[') {
            true => before,
            false => format!("[{} => {}]", inner(&before), inner(&behind)),
        })
    }

    fn option(&mut self, at: u64, len: u64, behind: bool) -> Result<String> {
        let is_error = (self.args[1], self.args[2]) == (1, abi::SO_ERROR as u64);
        match len {
            4 if behind && is_error => Ok(match self.word(at, true)? {
                Some(n) => match errors::error(n) {
                    Some((name, _)) => format!("[{name}]"),
                    None => format!("[{n}]"),
                },
                None => address(at),
            }),
            4 if at != 0 => self.shape(at, Shape::Int, behind),
            _ => self.buffer(at, len, behind),
        }
    }

    fn returned(&mut self, returns: Returns) -> Result<String> {
        let Some(r) = self.result.filter(|_| returns != Returns::Nothing) else {
            return Ok("?".into());
        };
        if r >= ERRORS {
            let number = r.wrapping_neg();
            return Ok(match errors::error(number) {
                Some((name, text)) if number >= 512 => format!("? {name} ({text})"),
                Some((name, text)) => format!("-1 {name} ({text})"),
                None => format!("-1 (errno {number})"),
            });
        }
        let words = self.result_in_words(r)?;
        let plain = match returns {
            Returns::Address => address(r),
            Returns::Octal => octal(r),
            _ if words.starts_with(" (flags") && r != 0 => format!("{r:#x}"),
            _ => (r as i64).to_string(),
        };
        Ok(plain + &words)
    }
}

/// Up to `most` bytes of a text in memory before a call, and whether it ended.
pub(super) fn until_zero(
    seen: &mut dyn Seen,
    at: u64,
    most: usize,
) -> Result<(Vec<Option<u8>>, bool)> {
    const STEP: usize = 64;
    let mut out = Vec::new();
    while at != 0 && out.len() < most {
        let from = at.wrapping_add(out.len() as u64);
        // It must not reach into the next page before that is needed: that page may not exist.
        let step = STEP - from as usize % STEP;
        let b = seen.read(from, step.min(most - out.len()), false)?;
        if let Some(end) = b.iter().position(|b| *b == Some(0)) {
            out.extend_from_slice(&b[..end]);
            // An unknown byte before its end may be the end, too.
            let unknown = out.iter().position(Option::is_none);
            out.truncate(unknown.map_or(out.len(), |n| n + 1));
            // A text of no bytes is empty, and known.
            return Ok((out, true));
        }
        let lost = b.iter().any(Option::is_none);
        out.extend(b);
        if lost {
            let unknown = out.iter().position(Option::is_none);
            out.truncate(unknown.map_or(out.len(), |n| n + 1));
            break;
        }
    }
    Ok((out, false))
}

/// The bytes, unless the first one is unknown. No bytes are fine.
fn some(bytes: &[Option<u8>]) -> Option<&[Option<u8>]> {
    bytes.first().is_none_or(Option::is_some).then_some(bytes)
}
