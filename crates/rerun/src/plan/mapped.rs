//! Files that a recorded program mapped after it had read them. What it did not look at in that memory is known all the same.
//!
//! Others may have changed the file in between, so such bytes are believed only as long as nothing contradicts them.

use super::class::{Class, class, is_lasting};
use super::key::File;
use super::offset::place;
use super::table::FileId;
use crate::wire::Call;
use libc::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Larger files are not kept.
const LARGEST: usize = 1 << 20;
/// So many files that were read are kept, and so many parts in memory.
const MOST: usize = 256;
/// So many bytes of mapped files are kept in all.
const KEPT: usize = 1 << 27;

/// What was read of a file, from its first byte on.
#[derive(Debug, Default)]
struct Read {
    bytes: Vec<u8>,
    /// Its end was seen.
    is_whole: bool,
    /// The same bytes, since the file was mapped.
    content: Option<Arc<[u8]>>,
}

/// A part of a file in memory.
#[derive(Debug)]
struct Part {
    end: u64,
    /// Where in the file it begins.
    offset: u64,
    path: Vec<u8>,
    content: Arc<[u8]>,
}

/// The files of a recorded process.
#[derive(Debug, Default)]
pub struct Mapped {
    /// Open files, and where they are. Paths that depend on an open folder are not known.
    paths: HashMap<FileId, Vec<u8>>,
    /// Where the next bytes of them are read. Other processes move those places that they share, so these are not known.
    next: HashMap<FileId, u64>,
    /// What was read since the process last changed anything. The last one that was opened tells what a path leads to.
    read: BTreeMap<FileId, Read>,
    /// Open files that were mapped, with what they held each time, if that is known.
    known: HashMap<FileId, Vec<Option<Arc<[u8]>>>>,
    /// How often the program that runs has mapped them.
    taken: HashMap<FileId, usize>,
    /// Memory, by its address.
    parts: BTreeMap<u64, Part>,
    kept: usize,
}

impl Mapped {
    /// Follows a recorded call. `file` is what it is about, and `made` what it opened.
    pub fn follow(&mut self, call: &Call, file: File, made: &[FileId]) {
        let class = class(call.number, &call.args);
        let succeeded = call.result.is_some_and(|r| (r as i64) >= 0);
        let changes = class == Class::Write || is_lasting(call.number, &call.args);
        if changes {
            self.has_changed(call, file);
        }
        let moves = matches!(call.number as i64, SYS_chdir | SYS_fchdir);
        if changes || moves || matches!(class, Class::Fork | Class::Thread) {
            self.read.clear();
        }
        if moves {
            // Other files have these names now.
            self.paths.retain(|_, p| p.starts_with(b"/"));
            self.parts.retain(|_, p| p.path.starts_with(b"/"));
        }
        if class == Class::Fork || shares_or_moves_places(call.number) {
            self.next.clear();
        }
        match (class, file) {
            _ if !succeeded => {}
            (Class::Open, _) => {
                if let (Some(id), Some(Some(path))) = (made.first(), call.texts.first())
                    && is_absolute_or_here(call, path)
                {
                    self.paths.insert(*id, path.clone());
                    self.next.insert(*id, 0);
                }
            }
            (Class::Read, File::Is(id)) => self.reads(id, call),
            (_, File::Is(id)) if call.number as i64 == SYS_lseek => {
                if let Some(next) = self.next.get_mut(&id) {
                    *next = call.result.unwrap_or(0);
                }
            }
            (Class::Map, File::Is(id)) => self.maps(id, call),
            _ => {
                let result = call.result.unwrap_or(0);
                let holes = match call.number as i64 {
                    SYS_munmap => [(call.args[0], call.args[1]), (0, 0)],
                    SYS_mmap => [(result, call.args[1]), (0, 0)],
                    SYS_mremap => [(call.args[0], call.args[1]), (result, call.args[2])],
                    _ => return,
                };
                for (from, len) in holes {
                    self.forget(from, from.saturating_add(len));
                }
            }
        }
    }

    /// The process loads another program, which has other memory.
    pub fn next_program(&mut self) {
        self.parts.clear();
    }

    /// The program changes a file. That changes the memory in which it is mapped, too.
    fn has_changed(&mut self, call: &Call, file: File) {
        let path = match file {
            File::Is(id) => self.paths.get(&id),
            _ => call.texts.first().and_then(Option::as_ref),
        };
        if let Some(path) = path {
            self.parts.retain(|_, p| p.path != *path);
        }
    }

    fn reads(&mut self, id: FileId, call: &Call) {
        let said = place(call.number, &call.args);
        let Some(at) = said.or_else(|| self.next.get(&id).copied()) else {
            return;
        };
        let end = at.saturating_add(call.received.len() as u64);
        if said.is_none() {
            self.next.insert(id, end);
        }
        if self.read.len() > MOST {
            self.read.clear();
        }
        let read = self.read.entry(id).or_default();
        if at != read.bytes.len() as u64 || end > LARGEST as u64 || call.unknown > 0 {
            return;
        }
        // A read that asks for nothing gets nothing, wherever it is.
        let asks = matches!(call.number as i64, SYS_read | SYS_pread64) && call.args[2] > 0;
        read.is_whole |= asks && call.received.is_empty();
        if !call.received.is_empty() {
            read.bytes.extend_from_slice(&call.received);
            (read.is_whole, read.content) = (false, None);
        }
    }

    fn maps(&mut self, id: FileId, call: &Call) {
        let path = self.paths.get(&id).cloned();
        let content = path.as_ref().and_then(|p| self.whole(p));
        let from = call.result.unwrap_or(0);
        let end = from.saturating_add(call.args[1]);
        self.forget(from, end);
        if let (Some(content), Some(path)) = (&content, path)
            && self.parts.len() < MOST
        {
            let part = Part {
                end,
                offset: call.args[5],
                path,
                content: Arc::clone(content),
            };
            self.parts.insert(from, part);
        }
        self.known.entry(id).or_default().push(content);
    }

    /// All that a path leads to, if it was read. It is kept once.
    fn whole(&mut self, path: &[u8]) -> Option<Arc<[u8]>> {
        let paths = &self.paths;
        let is_it = |id: &FileId| paths.get(id).is_some_and(|p| p == path);
        let mut all = self.read.iter_mut().rev();
        let (_, read) = all.find(|(id, r)| r.is_whole && is_it(id))?;
        if read.content.is_none() && self.kept + read.bytes.len() <= KEPT {
            self.kept += read.bytes.len();
            read.content = Some(read.bytes.as_slice().into());
        }
        read.content.clone()
    }

    /// Memory holds something else.
    fn forget(&mut self, from: u64, end: u64) {
        self.parts.retain(|begin, p| end <= *begin || p.end <= from);
    }

    /// What a file held when it was mapped the next time. The outer `None`: no such call is loaded. The inner one: it is not known.
    pub fn content(&self, file: FileId) -> Option<Option<Arc<[u8]>>> {
        let nth = self.taken.get(&file).copied().unwrap_or(0);
        self.known.get(&file)?.get(nth).cloned()
    }

    /// The program that runs has mapped a file.
    pub fn take(&mut self, file: FileId) {
        *self.taken.entry(file).or_default() += 1;
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

/// Whether a call gives open files to others, or reads them by itself.
fn shares_or_moves_places(number: u64) -> bool {
    matches!(
        number as i64,
        SYS_sendmsg | SYS_sendfile | SYS_splice | SYS_copy_file_range
    )
}

/// Whether a path leads to the same wherever it is used, until the process goes to another folder.
fn is_absolute_or_here(call: &Call, path: &[u8]) -> bool {
    let at = match call.number as i64 {
        SYS_open | SYS_creat => AT_FDCWD,
        _ => call.args[0] as i32,
    };
    at == AT_FDCWD || path.starts_with(b"/")
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

    fn open(path: &[u8]) -> Call {
        let here = [AT_FDCWD as u64, 0, 0, 0, 0, 0];
        let mut open = call(SYS_openat, here, 3);
        open.texts = vec![Some(path.to_vec())];
        open
    }

    fn read(bytes: &[u8]) -> Call {
        let mut read = call(SYS_read, [3, 0, 100, 0, 0, 0], bytes.len() as u64);
        read.received = Blob(bytes.to_vec());
        read
    }

    fn map() -> Call {
        let args = [0, 4096, 1, MAP_PRIVATE as u64, 4, 0];
        call(SYS_mmap, args, 0x10000)
    }

    /// A process opens a file twice, reads it by one descriptor, and maps it by the other one.
    fn mapped(between: Option<Call>) -> Mapped {
        let mut m = Mapped::default();
        let open = open(b"file");
        m.follow(&open, File::None, &[7]);
        m.follow(&open, File::None, &[8]);
        for bytes in [&b"abc"[..], b"defgh", b""] {
            m.follow(&read(bytes), File::Is(7), &[]);
        }
        if let Some(between) = between {
            m.follow(&between, File::Is(9), &[]);
        }
        m.follow(&map(), File::Is(8), &[]);
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

    /// A part of a file is not all of it, even if the end was seen.
    #[test]
    fn only_what_was_read_from_the_first_byte_on_is_all() {
        let content = |list: &[(Call, FileId)]| {
            let mut m = Mapped::default();
            m.follow(&open(b"file"), File::None, &[7]);
            m.follow(&open(b"file"), File::None, &[8]);
            for (call, file) in list {
                m.follow(call, File::Is(*file), &[]);
            }
            m.follow(&map(), File::Is(8), &[]);
            m.content(8).flatten().map(|c| c.to_vec())
        };
        let shown = call(SYS_write, [1, 0, 3, 0, 0, 0], 3);
        let forked = call(SYS_fork, [0; 6], 9);
        let sent = call(SYS_sendfile, [1, 3, 0, 3, 0, 0], 3);
        for between in [shown, forked, sent] {
            // Something comes in between. It may be that nothing is left to be read.
            for rest in [&b"def"[..], b""] {
                let mut list = vec![(read(b"abc"), 7), (between.clone(), 1)];
                list.extend([(read(rest), 7), (read(b""), 7)]);
                assert_eq!(content(&list), None, "{list:?}");
            }
        }
        let mut nothing = read(b"");
        nothing.args[2] = 0;
        assert_eq!(content(&[(read(b"abc"), 7), (nothing, 7)]), None);
        let back = call(SYS_lseek, [3, 0, 0, 0, 0, 0], 0);
        let all = [read(b"xyz"), back, read(b"abc"), read(b"def"), read(b"")];
        let all = all.map(|c| (c, 7));
        assert_eq!(content(&all[..4]), None);
        let shown = call(SYS_write, [1, 0, 3, 0, 0, 0], 3);
        let list = [&[(read(b"abc"), 7), (shown, 1)], &all[1..]].concat();
        assert_eq!(content(&list), Some(b"abcdef".to_vec()));
    }

    /// Another folder may have a file of the same name.
    #[test]
    fn names_lead_elsewhere_in_another_folder() {
        let content = |other: &Call, between: Option<Call>| {
            let mut m = Mapped::default();
            m.follow(&open(b"file"), File::None, &[7]);
            if let Some(between) = between {
                m.follow(&between, File::None, &[]);
            }
            for bytes in [&b"abc"[..], b""] {
                m.follow(&read(bytes), File::Is(7), &[]);
            }
            m.follow(other, File::None, &[8]);
            m.follow(&map(), File::Is(8), &[]);
            m.content(8).flatten().map(|c| c.to_vec())
        };
        let all = Some(b"abc".to_vec());
        assert_eq!(content(&open(b"file"), None), all);
        let mut elsewhere = open(b"file");
        elsewhere.args[0] = 5;
        assert_eq!(content(&elsewhere, None), None);
        let moved = call(SYS_chdir, [0; 6], 0);
        assert_eq!(content(&open(b"file"), Some(moved)), None);
    }

    /// Each mapping has what the file held then.
    #[test]
    fn a_file_that_changes_is_mapped_as_it_was() {
        let mut m = mapped(None);
        let change = call(SYS_write, [3, 0, 3, 0, 0, 0], 3);
        m.follow(&change, File::Is(7), &[]);
        // What is in memory has changed, too.
        let (mut bytes, mut unknown) = (*b"..", vec![(0, 2)]);
        assert!(m.put(0x10000, &mut bytes, &mut unknown).is_empty());
        for bytes in [&b"later"[..], b""] {
            let mut read = read(bytes);
            read.number = SYS_pread64 as u64;
            read.args[3] = 5 * u64::from(bytes.is_empty());
            m.follow(&read, File::Is(7), &[]);
        }
        m.follow(&map(), File::Is(8), &[]);
        assert_eq!(m.content(8).unwrap().unwrap()[..], *b"abcdefgh");
        m.take(8);
        assert_eq!(m.content(8).unwrap().unwrap()[..], *b"later");
        m.take(8);
        assert_eq!(m.content(8), None);
        m.next_program();
        assert!(m.parts.is_empty());
    }

    /// A recording with many mappings of a file does not take more and more memory.
    #[test]
    fn what_a_file_held_is_kept_once() {
        let mut m = mapped(None);
        let before = m.kept;
        for _ in 0..100 {
            m.follow(&map(), File::Is(8), &[]);
        }
        assert_eq!((before, m.kept), (8, 8));
        m.kept = KEPT;
        m.read.values_mut().for_each(|r| r.content = None);
        m.follow(&map(), File::Is(8), &[]);
        assert_eq!(m.known[&8].last(), Some(&None));
    }
}
