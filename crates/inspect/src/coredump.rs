//! A core dump of an instant, as the kernel would have made it: an ELF file that debuggers open.
//!
//! The file begins with the notes (registers of all threads, files, the auxiliary vector), then has the bytes of memory,
//! and at its end the table that says where everything is.
//!
//! **Unknown memory is not there.** Each stretch of known bytes is a segment of exactly its length: what no segment
//! covers cannot be read. A segment for each whole mapping would be wrong, because debuggers show zeros where a segment
//! has more memory than bytes. For the same reason a file that is mapped writable, with bytes that are not known, is not
//! in the list of mapped files: gdb would show what is in the file.

pub(crate) mod notes;
mod segments;

use crate::mappings::grow_stacks;
use crate::siginfo::{SIGNAL_INFO_LEN, SignalInfo};
use crate::{Result, auxiliary_vector};
use hindsight_timeline::{
    Cancel, Cursor, Filter, Kind, KindOf, Mapping, Process, Thread, ThreadId,
};
use notes::{FileMapping, Notes};
use object::elf;
use segments::{Segment, Segments};
use std::io::{Seek, SeekFrom, Write};

/// Bytes that are asked for at a time. An answer takes a hundred times as much memory.
const AT_A_TIME: u64 = 1 << 15;
/// Larger mappings are left out: they are reserved address space. Each byte that is asked for takes time.
const LARGEST: u64 = 4 << 30;
/// Bytes of the headers of an ELF file, of a segment and of a section.
const HEADER: u64 = 64;
const SEGMENT: u64 = 56;
const SECTION: u64 = 64;
const PROT_WRITE: u32 = 2;

/// What a core dump has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CoreDump {
    /// Threads with their registers.
    pub threads: usize,
    /// Bytes of memory in the file.
    pub known: u64,
    /// Bytes of mappings that can be accessed, and that are not known.
    pub unknown: u64,
    /// Known bytes that are left out: there were too many short stretches of them.
    pub left_out: u64,
    /// Mappings that are left out because they are too large: their addresses.
    pub too_large: Vec<(u64, u64)>,
    /// Stretches of memory in the file.
    pub segments: usize,
    /// Length of the file. Pages of zeros take no room in it.
    pub len: u64,
}

/// A stretch of memory to look at.
struct MemoryRange {
    start: u64,
    end: u64,
    prot: u32,
    /// The mapping's number.
    of: usize,
}

/// Writes the process in which the cursor stands as a core dump. Its thread is the first. `progress` gets the bytes of
/// memory that were looked at, and how many there are.
///
/// # Errors
/// - The recording does not answer.
/// - It was cancelled.
/// - The file cannot be written.
pub fn core_dump<W: Write + Seek>(
    cursor: &mut Cursor,
    out: W,
    progress: &mut dyn FnMut(u64, u64),
    cancel: &Cancel,
) -> Result<CoreDump> {
    let mut done = CoreDump::default();
    let threads = threads(cursor, cancel)?;
    done.threads = threads.len();
    let timeline = cursor.timeline().clone();
    let mut mappings = timeline.mappings(cursor.image(), cursor.position()?)?;
    grow_stacks(&mut mappings, &threads);
    let stretches = stretches(&mappings, &mut done);

    // The notes come first in the file. How long they are does not depend on memory, except for the list of files.
    let told = Told::by(cursor)?;
    let most = told.notes(&threads, &file_mappings(&mappings, &[]));
    let mut memory = Segments::new(out, HEADER + most.0.len() as u64);
    let total: u64 = stretches.iter().map(|s| s.end - s.start).sum();
    let mut uncertain = vec![false; mappings.len()];
    let mut looked = 0;
    for s in &stretches {
        let mut at = s.start;
        while at < s.end {
            let len = AT_A_TIME.min(s.end - at);
            let found = cursor.cancellable(cancel, |c| c.known_memory(at, len as usize))?;
            let known = found.bytes.iter().flatten().count() as u64;
            done.known += known;
            done.unknown += len - known;
            uncertain[s.of] |= known < len;
            memory.add(at, &found.bytes, s.prot)?;
            at += len;
            looked += len;
            progress(looked, total);
        }
    }
    done.left_out = memory.left_out;
    done.known -= done.left_out;
    let notes = told.notes(&threads, &file_mappings(&mappings, &uncertain));
    let (mut out, end, list) = memory.finish();
    done.segments = list.len();
    done.len = write_tables(&mut out, &notes.0, end, &list)?;
    Ok(done)
}

/// The threads that live where the cursor stands, with their registers. The cursor's is the first, even if it has ended.
pub(crate) fn threads(cursor: &mut Cursor, cancel: &Cancel) -> Result<Vec<notes::Thread>> {
    let (timeline, here) = (cursor.timeline().clone(), cursor.position()?);
    let first = timeline.thread(cursor.thread())?;
    let mut all = timeline.threads()?;
    all.retain(|t| (t.image, t.pid) == (first.image, first.pid) && t.id != first.id);
    let mut out = Vec::new();
    for t in std::iter::once(first).chain(all) {
        if !out.is_empty() && !timeline.is_alive(t.id, here)? {
            continue;
        }
        let found = cursor.cancellable(cancel, |c| c.registers_of(t.id))?;
        out.extend(found.map(|r| notes::Thread {
            tid: t.tid,
            cpu: r.general,
            vectors: Box::new(r.vectors),
        }));
    }
    Ok(out)
}

/// What may be looked at. Nothing can read what is mapped without any right.
fn stretches(mappings: &[Mapping], done: &mut CoreDump) -> Vec<MemoryRange> {
    let mut out = Vec::new();
    for (of, m) in mappings.iter().enumerate() {
        if m.prot == 0 || m.end <= m.start {
            continue;
        }
        if m.end - m.start > LARGEST {
            done.too_large.push((m.start, m.end));
            continue;
        }
        out.push(MemoryRange {
            start: m.start,
            end: m.end,
            prot: m.prot,
            of,
        });
    }
    out
}

/// The mapped files, without those that are writable and have bytes that are not known.
fn file_mappings(mappings: &[Mapping], uncertain: &[bool]) -> Vec<FileMapping> {
    let mut out = Vec::new();
    for (i, m) in mappings.iter().enumerate() {
        let changed = m.prot & PROT_WRITE != 0 && uncertain.get(i) == Some(&true);
        if m.path.starts_with('/') && !changed {
            out.push(FileMapping {
                start: m.start,
                end: m.end,
                offset: m.offset,
                path: m.path.clone(),
            });
        }
    }
    out
}

/// What the recording says of the process in which a cursor stands, besides memory and threads.
struct Told {
    process: notes::Process,
    signal: Option<(SignalInfo, [u8; SIGNAL_INFO_LEN])>,
    auxv: Vec<u8>,
}

impl Told {
    fn by(cursor: &mut Cursor) -> Result<Told> {
        let timeline = cursor.timeline().clone();
        let thread = timeline.thread(cursor.thread())?;
        Ok(Told {
            process: process(cursor, &timeline.processes()?, &thread)?,
            signal: signal(cursor)?,
            auxv: auxiliary_vector(&timeline, cursor.image())?,
        })
    }

    /// All notes of the core dump.
    fn notes(&self, threads: &[notes::Thread], files: &[FileMapping]) -> Notes {
        let (process, signal) = (&self.process, self.signal);
        let mut notes = Notes::default();
        for (i, t) in threads.iter().enumerate() {
            match i {
                0 => notes.first(t, process, signal, &self.auxv, files),
                _ => notes.other(t, process, signal.map(|s| s.0)),
            }
        }
        notes
    }
}

fn process(cursor: &Cursor, all: &[Process], thread: &Thread) -> Result<notes::Process> {
    let (timeline, here) = (cursor.timeline(), cursor.position()?);
    let find = |image: u32| all.iter().find(|p| p.image == image);
    let own = find(thread.image);
    // An image that came by `execve` has its parent's process id, and the parent of that.
    let mut from = own;
    while let Some(p) = from.filter(|p| p.by_exec) {
        from = find(p.parent);
    }
    let parent = from.and_then(|p| find(p.parent));
    let leader = timeline.threads()?.into_iter();
    let mut leader = leader.filter(|t| (t.image, t.tid) == (thread.image, thread.pid));
    let leader: &Thread = &leader.next().unwrap_or_else(|| thread.clone());
    Ok(notes::Process {
        pid: thread.pid,
        parent: parent.map_or(0, |p| p.pid),
        name: timeline.names(thread.image)?.of(timeline, leader, here)?,
        arguments: own.map_or_else(String::new, |p| p.command.clone()),
    })
}

/// The signal that the thread gets where the cursor stands.
fn signal(cursor: &mut Cursor) -> Result<Option<(SignalInfo, [u8; SIGNAL_INFO_LEN])>> {
    let (thread, count): (ThreadId, u64) = (cursor.thread(), cursor.count());
    let events = cursor.timeline().events(&Filter {
        thread: Some(thread),
        kinds: vec![KindOf::Signal, KindOf::Exception],
        ..Filter::default()
    })?;
    // Of several the last: it is the one that may have killed the program.
    let here = events.iter().rev().find(|h| h.count == count);
    Ok(here.and_then(|h| match h.kind {
        Kind::Signal {
            number,
            code,
            address,
        } => {
            let info = SignalInfo {
                number,
                code,
                address,
            };
            Some((info, info.whole(cursor)))
        }
        _ => None,
    }))
}

/// Writes the notes to the beginning of the file, and the tables to its end; its length.
fn write_tables<W: Write + Seek>(
    out: &mut W,
    notes: &[u8],
    end: u64,
    list: &[Segment],
) -> std::io::Result<u64> {
    let table = end.next_multiple_of(8);
    let count = list.len() as u64 + 1;
    let sections = table + count * SEGMENT;
    // The number may not fit. Then a section that is not there has it.
    let many = count >= u64::from(elf::PN_XNUM);
    let short = if many { elf::PN_XNUM } else { count as u16 };

    let mut header = elf::ELFMAG.to_vec();
    header.extend([elf::ELFCLASS64, elf::ELFDATA2LSB, elf::EV_CURRENT]);
    header.resize(16, 0);
    header.extend(elf::ET_CORE.to_le_bytes());
    header.extend(elf::EM_X86_64.to_le_bytes());
    header.extend(u32::from(elf::EV_CURRENT).to_le_bytes());
    let places = [0, table, if many { sections } else { 0 }];
    header.extend(places.iter().flat_map(|n| n.to_le_bytes()));
    header.extend(0u32.to_le_bytes());
    let section = if many { SECTION as u16 } else { 0 };
    let sizes = [
        HEADER as u16,
        SEGMENT as u16,
        short,
        section,
        many.into(),
        0,
    ];
    header.extend(sizes.iter().flat_map(|n| n.to_le_bytes()));

    let mut all = segment(elf::PT_NOTE, 0, [HEADER, 0, notes.len() as u64, 0, 4]);
    for s in list {
        // Readers take a page around a segment whose alignment is a page, with what is not known.
        let words = [s.offset, s.address, s.len, s.len, 1];
        all.extend(segment(elf::PT_LOAD, protection(s.prot), words));
    }
    if many {
        let mut section = vec![0; SECTION as usize];
        section[44..48].copy_from_slice(&(count as u32).to_le_bytes());
        all.extend(section);
    }
    out.seek(SeekFrom::Start(table))?;
    out.write_all(&all)?;
    // The header comes last. Nobody takes the file for a core dump if this process is killed before.
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&header)?;
    out.write_all(notes)?;
    out.flush()?;
    Ok(table + all.len() as u64)
}

/// An entry of the table of segments: offset, address, length in the file and in memory, alignment.
fn segment(kind: u32, flags: u32, [offset, address, file, memory, align]: [u64; 5]) -> Vec<u8> {
    let mut out = [kind, flags].map(u32::to_le_bytes).concat();
    let words = [offset, address, 0, file, memory, align];
    out.extend(words.iter().flat_map(|n| n.to_le_bytes()));
    out
}

/// What `mmap` calls reading, writing and executing, in the bits of ELF.
fn protection(prot: u32) -> u32 {
    let bits = [(1, elf::PF_R), (2, elf::PF_W), (4, elf::PF_X)];
    let set = bits.iter().filter(|(bit, _)| prot & bit != 0);
    set.fold(0, |all, (_, flag)| all | flag)
}
