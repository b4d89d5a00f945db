//! The packets of gdb's remote protocol, for a server.
//!
//! The protocol is described in gdb's manual, appendix "Remote Serial Protocol". This crate knows packets, and
//! nothing of recordings. It has three parts:
//!
//! - The connection. [`Listener`] reads what the client says, within limits. [`Framer`] cuts it into packets.
//!   [`Sender`] frames and sends answers.
//! - Requests. [`Request::parse`] turns a packet into a value. Each family of packets has a file: its requests, their
//!   parser, and the answers that only it has. Any bytes give a request or an error.
//! - Answers. [`Answer`] is the content of one packet.
//!
//! ```
//! use hindsight_packets::{Answer, Memory, Request, Sender};
//!
//! let request = Request::parse(b"m401000,4").unwrap();
//! assert_eq!(request, Request::Memory(Memory::Read { address: 0x401000, len: 4 }));
//! let mut sender = Sender::new(Vec::new());
//! sender.answer(&Answer::hex(&[1, 2, 3, 4])).unwrap();
//! assert_eq!(sender.into_inner(), b"+$01020304#8a");
//! ```

mod answer;
mod command;
mod encoding;
mod error;
mod features;
mod file;
mod frame;
mod listen;
mod memory;
mod name;
mod point;
mod process;
mod register;
mod request;
mod resume;
mod send;
mod signal;
mod stop;
mod syscall;
mod thread;
mod transfer;

pub use answer::Answer;
pub use command::Command;
pub use encoding::escape;
pub use error::{Error, Malformed, Result};
pub use features::{Features, offer};
pub use file::{Errno, File, Status, WRITE_FLAGS};
pub use frame::{Framer, Incoming, MAX_PACKET, frame};
pub use listen::{Listener, MAX_WAITING, Patience};
pub use memory::Memory;
pub use name::{Id, Label, ThreadName, Tid};
pub use point::{Condition, Kind, Point, Points, WatchKind};
pub use process::Process;
pub use register::Register;
pub use request::Request;
pub use resume::{Action, ActionKind, Resume};
pub use send::Sender;
pub use signal::{PassSignals, Signal};
pub use stop::{Event, Stop};
pub use syscall::CatchSyscalls;
pub use thread::Thread;
pub use transfer::{Object, Transfer};

/// Bytes of memory, of a file or of an object in one answer. A client that asks for more gets a part, and asks again.
pub const MAX_DATA: usize = MAX_PACKET;
