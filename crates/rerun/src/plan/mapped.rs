//! Files that a recorded program mapped after it had read them. What it did not look at in that memory is known all the same.
//!
//! Others may have changed the file in between, so such bytes are believed only as long as nothing contradicts them.

use super::class::{Class, class, is_lasting};
use super::key::File;
use super::script::place;
use super::table::FileId;
use crate::wire::Call;
use libc::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Larger files are not kept.
const LARGEST: usize = 1 << 20;
/// So many mapped files are kept.
const MOST: usize = 256;

/// What was read of a file, from its first byte on.
#[derive(Debug, Default)]
struct Read {
    bytes: Vec<u8>,
    /// Where the next bytes are read.
    next: u64,
    /// Its end was seen.
    is_whole: bool,
}

/// A part of a file in memory.
#[derive(Debug)]
struct Part {
    end: u64,
    /// Where in the file it begins.
    offset: u64,
    content: Arc<[u8]>,
}

/// The files of a recorded process.
#[derive(Debug, Default)]
pub struct Mapped {
    paths: HashMap<FileId, Vec<u8>>,
    /// What was read since the process last changed anything.
    read: HashMap<FileId, Read>,
    /// Open files that were mapped, with what they held, if that is known.
    known: HashMap<FileId, Option<Arc<[u8]>>>,
    /// Memory, by its address.
    parts: BTreeMap<u64, Part>,
}

impl Mapped {
    /// Follows a recorded call. `file` is what it is about, and `made` what it opened.
    pub fn follow(&mut self, call: &Call, file: File, made: &[FileId]) {
        let class = class(call.number, &call.args);
        let succeeded = call.result.is_some_and(|r| (r as i64) >= 0);
        let changes = matches!(class, Class::Write | Class::Fork | Class::Thread);
        if changes || is_lasting(call.number, &call.args) {
            self.read.clear();
        }
        match (class, file) {
            _ if !succeeded => {}
            (Class::Open, _) => {
                if let (Some(id), Some(Some(path))) = (made.first(), call.texts.first()) {
                    self.paths.insert(*id, path.clone());
                }
            }
            (Class::Read, File::Is(id)) => self.reads(id, call),
            (_, File::Is(id)) if call.number as i64 == SYS_lseek => {
                self.read.entry(id).or_default().next = call.result.unwrap_or(0);
            }
            (Class::Map, File::Is(id)) => self.maps(id, call),
            _ if matches!(call.number as i64, SYS_munmap | SYS_mmap) => {
                let from = if class == Class::Own && call.number as i64 == SYS_mmap {
                    call.result.unwrap_or(0)
                } else {
                    call.args[0]
                };
                self.forget(from, from.saturating_add(call.args[1]));
            }
            _ => {}
        }
    }

    fn reads(&mut self, id: FileId, call: &Call) {
        if self.read.len() > MOST {
            self.read.clear();
        }
        let read = self.read.entry(id).or_default();
        let said = place(call.number, &call.args);
        let at = said.unwrap_or(read.next);
        let end = at.saturating_add(call.received.len() as u64);
        if said.is_none() {
            read.next = end;
        }
        if at != read.bytes.len() as u64 || end > LARGEST as u64 || call.unknown > 0 {
            return;
        }
        read.bytes.extend_from_slice(&call.received);
        read.is_whole |= call.received.is_empty();
    }

    fn maps(&mut self, id: FileId, call: &Call) {
        let path = self.paths.get(&id);
        let is_it = |(other, r): &(&FileId, &Read)| {
            r.is_whole && path.is_some() && self.paths.get(other) == path
        };
        let content = self
            .read
            .iter()
            .find(is_it)
            .map(|(_, r)| r.bytes.as_slice().into());
        let from = call.result.unwrap_or(0);
        let end = from.saturating_add(call.args[1]);
        self.forget(from, end);
        if let Some(content) = &content
            && self.parts.len() < MOST
        {
            let part = Part {
                end,
                offset: call.args[5],
                content: Arc::clone(content),
            };
            self.parts.insert(from, part);
        }
        self.known.insert(id, content);
    }

    /// Memory holds something else.
    fn forget(&mut self, from: u64, end: u64) {
        self.parts.retain(|begin, p| end <= *begin || p.end <= from);
    }

    /// What a file held when it was mapped. The outer `None`: no such call is loaded. The inner one: it is not known.
    pub fn content(&self, file: FileId) -> Option<Option<Arc<[u8]>>> {
        self.known.get(&file).cloned()
    }

    /// Puts in what a call wrote where that is not known, as far as it came from such a file. Returns where bytes were put in.
    pub fn fill(&self, call: &mut Call) -> Vec<(u64, u64)> {
        match call.number as i64 {
            SYS_write | SYS_pwrite64 | SYS_sendto => {
                self.put(call.args[1], &mut call.sent.0, &mut call.unsure)
            }
            _ => Vec::new(),
        }
    }

    fn put(
        &self,
        address: u64,
        bytes: &mut [u8],
        unknown: &mut Vec<(u64, u64)>,
    ) -> Vec<(u64, u64)> {
        let mut believed = Vec::new();
        unknown.retain(|(from, len)| {
            let at = address.saturating_add(*from);
            let part = self.parts.range(..=at).next_back();
            let found = part.and_then(|(begin, p)| {
                let in_file = usize::try_from((at - begin).checked_add(p.offset)?).ok()?;
                p.content
                    .get(in_file..in_file.checked_add(usize::try_from(*len).ok()?)?)
            });
            let to = usize::try_from(*from).ok();
            let to = to.and_then(|n| bytes.get_mut(n..n.checked_add(*len as usize)?));
            match (found, to) {
                (Some(found), Some(to)) => {
                    to.copy_from_slice(found);
                    believed.push((*from, *len));
                    false
                }
                _ => true,
            }
        });
        believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Blob;

    fn call(number: i64, args: [u64; 6], result: u64) -> Call {
        Call {
            number: number as u64,
            args,
            result: Some(result),
            ..Call::default()
        }
    }

    /// A process opens a file twice, reads it by one descriptor, and maps it by the other one.
    fn mapped(between: Option<Call>) -> Mapped {
        let mut m = Mapped::default();
        let mut open = call(SYS_openat, [0; 6], 3);
        open.texts = vec![Some(b"file".to_vec())];
        m.follow(&open, File::None, &[7]);
        m.follow(&open, File::None, &[8]);
        for bytes in [&b"abc"[..], b"defgh", b""] {
            let mut read = call(SYS_read, [3, 0, 100, 0, 0, 0], bytes.len() as u64);
            read.received = Blob(bytes.to_vec());
            m.follow(&read, File::Is(7), &[]);
        }
        if let Some(between) = between {
            m.follow(&between, File::Is(9), &[]);
        }
        let map = [0, 4096, 1, MAP_PRIVATE as u64, 4, 0];
        m.follow(&call(SYS_mmap, map, 0x10000), File::Is(8), &[]);
        m
    }

    #[test]
    fn what_was_read_is_in_the_memory_of_the_file() {
        let m = mapped(None);
        assert_eq!(m.content(8).unwrap().unwrap()[..], *b"abcdefgh");
        assert_eq!(m.content(7), None);
        let (mut bytes, mut unknown) = (*b"..XX..", vec![(0, 2), (4, 2)]);
        let believed = m.put(0x10002, &mut bytes, &mut unknown);
        assert_eq!((&bytes, believed), (b"cdXXgh", vec![(0, 2), (4, 2)]));
        assert!(unknown.is_empty());
        // Behind its end, and elsewhere.
        for at in [0x10007, 0x0fff0, 0x20000] {
            let (mut bytes, mut unknown) = (*b"..", vec![(0, 2)]);
            assert!(m.put(at, &mut bytes, &mut unknown).is_empty());
            assert_eq!((&bytes, unknown), (b"..", vec![(0, 2)]));
        }
    }

    #[test]
    fn nothing_is_known_behind_a_change() {
        for (number, args) in [
            (SYS_write, [5, 0, 1, 0, 0, 0]),
            (SYS_rename, [0; 6]),
            (SYS_fork, [0; 6]),
        ] {
            assert_eq!(mapped(Some(call(number, args, 1))).content(8), Some(None));
        }
        assert!(
            mapped(Some(call(SYS_getpid, [0; 6], 1)))
                .content(8)
                .unwrap()
                .is_some()
        );
        let mut m = mapped(None);
        m.follow(
            &call(SYS_munmap, [0x10000, 4096, 0, 0, 0, 0], 0),
            File::None,
            &[],
        );
        let (mut bytes, mut unknown) = (*b"..", vec![(0, 2)]);
        assert!(m.put(0x10000, &mut bytes, &mut unknown).is_empty());
    }
}
