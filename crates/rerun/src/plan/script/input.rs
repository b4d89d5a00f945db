//! What bytes come from. Random bytes: how often a program asks for them may depend on what it got, and on addresses.

use super::{Script, Slot, Stream};
use crate::plan::class::Class;
use crate::plan::key::File;
use crate::plan::offset::place;
use crate::plan::table::FileId;
use crate::wire::Call;

/// What a read takes its bytes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// An open file.
    File(FileId),
    /// `getrandom`, of a thread. Each one has its own bytes, in whatever order the threads ask.
    Random(u32),
}

impl Input {
    /// That of a recorded read, which is about this file. `None`: its descriptor was closed.
    pub(super) fn of(call: &Call, file: File) -> Option<Input> {
        match file {
            File::Is(id) => Some(Input::File(id)),
            _ if call.number as i64 == libc::SYS_getrandom => Some(Input::Random(call.lane)),
            _ => None,
        }
    }
}

impl Slot {
    /// Whether a program may make it more often, or less often, than recorded. How often it asks for the time depends on how fast it
    /// is. How often it asks for random bytes may depend on addresses, as in names of temporary files.
    pub(super) fn is_free(&self) -> bool {
        self.class == Class::Time || self.call.number as i64 == libc::SYS_getrandom
    }
}

impl Script {
    /// A recorded call read from this.
    pub(super) fn reads(&mut self, input: Input, call: &Call, index: usize) {
        let stream = self.streams.entry(input).or_default();
        let len = call.received.len() as u64;
        self.kept += call.received.len();
        match place(call.number, &call.args) {
            Some(at) => stream.chunks.push((at, index)),
            None => {
                stream.chunks.push((stream.pos, index));
                stream.pos = stream.pos.saturating_add(len);
            }
        }
    }

    /// What else moves the place where a file is read.
    pub(super) fn moves(&mut self, call: &Call, file: File) {
        let (File::Is(file), Some(r)) = (file, call.result) else {
            return;
        };
        if (r as i64) < 0 {
            return;
        }
        match call.number as i64 {
            libc::SYS_lseek => self.stream(file).pos = r,
            libc::SYS_copy_file_range | libc::SYS_splice if call.args[1] == 0 => {
                let stream = self.stream(file);
                stream.pos = stream.pos.saturating_add(r);
            }
            _ => {}
        }
    }

    pub(super) fn stream(&mut self, file: FileId) -> &mut Stream {
        self.streams.entry(Input::File(file)).or_default()
    }

    /// Where the next bytes are. `at` is behind those that were read last. A thread does not get random bytes any more that it left
    /// out long ago. `None`: the next ones come much later.
    pub fn next_place(&self, input: Input, at: u64) -> Option<u64> {
        let (Input::Random(_), Some(stream)) = (input, self.streams.get(&input)) else {
            return Some(at);
        };
        let is_left =
            |(_, index): &&(u64, usize)| !self.slots[*index].used && !self.is_long_ago(*index);
        let mut left = stream.chunks.iter().skip(stream.first).filter(is_left);
        match left.next() {
            // It may have been read in part.
            Some((from, index)) if *from < at => {
                let len = self.slots[*index].call.received.len() as u64;
                Some(if at - from < len { at } else { *from })
            }
            Some((_, index)) if self.is_far(*index) => None,
            Some((from, _)) => Some(*from),
            // Behind all that are loaded.
            None => Some(stream.pos),
        }
    }
}
