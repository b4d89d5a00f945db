//! What a process is at an instant: all that somebody needs who wants to make it again. Memory is left to [`known`], since it is
//! large.
//!
//! Registers and memory come from replay. All else (signal handlers, descriptors, where in its files it stands) the kernel
//! kept, and no instruction sees it. It follows from the recorded system calls. What a process inherited from outside of the
//! recording and never asked for is not known: it is not in here.

mod born;
mod calls;
mod contents;
mod files;
mod folders;
mod history;
mod made;
mod mapped;
mod memory;
mod names;
mod open;
mod past;
mod progress;
mod signals;
mod threads;

pub use contents::Known;
pub use memory::{Unknown, Why, known};
pub use names::plain;
pub use open::{Open, OpenKind, Stat};
pub use signals::Action;
pub use threads::Threads;

use crate::coredump::threads;
use crate::{Error, Result, auxiliary_vector};
use hindsight_timeline::{
    Cancel, Cursor, Mapping, ModuleHash, Position, Process, Thread, ThreadId, Timeline, VecState,
};
use history::History;
use progress::InCall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A process at an instant. Sizes are in bytes.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct ProcessState {
    /// The instant.
    pub position: String,
    /// Process id on the recording machine.
    pub pid: i32,
    /// The program's file, and the hash of its content if the recording has that.
    pub program: (Vec<u8>, Option<[u8; 16]>),
    /// Its arguments, as a command line that people read.
    pub command: String,
    /// When the recording began, in milliseconds since 1970.
    pub began_ms: u64,
    /// The release of the kernel on which it was recorded.
    pub kernel: String,
    /// The processor on which it was recorded.
    pub processor: String,
    /// Its threads. The first one is the process's first if that still lives.
    pub threads: Vec<ThreadState>,
    /// What is mapped, in order of address.
    pub mappings: Vec<MappedRange>,
    /// Where the heap of `brk` begins and ends. `None`: that is not known.
    pub heap: Option<(u64, u64)>,
    /// The auxiliary vector, as it lies on the stack.
    pub auxiliary: Vec<u8>,
    /// What it does with signals; those that are not named are as at first.
    pub actions: Vec<Action>,
    /// The mask for files that it makes. `None`: the program never chose it.
    pub umask: Option<u32>,
    /// The working directory. `None`: it is not known.
    pub folder: Option<Vec<u8>>,
    /// Names that files and folders lost or got in the recording before the instant. A path of which one is a part may lead
    /// elsewhere since. In order. `None`: they are not known, or too many.
    pub renamed: Option<Vec<Vec<u8>>>,
    /// What it has open: files, pipes and others. Descriptors lead to them.
    pub open: Vec<Open>,
    /// Descriptors: number, which of `open` it leads to, whether the next program does not get it.
    pub descriptors: Vec<(i32, u32, bool)>,
    /// Why it must not be made again, in words: something is not known without which it would go on wrongly.
    pub refused: Vec<String>,
    /// What the process had and nobody can make again, in words.
    pub lost: Vec<String>,
    /// What is different all the same, in words.
    pub notes: Vec<String>,
}

/// A thread at an instant.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct ThreadState {
    /// Thread id on the recording machine.
    pub tid: i32,
    /// Registers: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15, rip, flags, FS base, GS base.
    pub registers: Vec<u64>,
    /// Vector registers: zmm0 to zmm31.
    pub zmm: Vec<u8>,
    /// The masks k0 to k7.
    pub masks: Vec<u64>,
    /// The x87's registers: ten bytes of each count.
    pub x87: Vec<u8>,
    /// `mxcsr`, then the x87's control, status and abridged tag words.
    pub control: [u32; 4],
    /// The signals that it blocks.
    pub blocked: u64,
    /// The alternate stack for signals: address, flags, size.
    pub alternate: Option<[u64; 3]>,
    /// The word that the kernel clears when it ends; 0: none.
    pub clears: u64,
    /// Where its stack begins and ends. `None`: that is not known.
    pub stack: Option<[u64; 2]>,
    /// The list of robust locks, and the length of its head; 0: none.
    pub robust: [u64; 2],
    /// The area of restartable sequences: address, length, signature.
    pub rseq: Option<[u64; 3]>,
    /// Its name, if it is not that of the program.
    pub name: String,
    /// The system call that it makes next. It may have been in it.
    pub call: Option<String>,
}

/// A stretch of mapped memory.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct MappedRange {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Protection, as `mmap` takes it.
    pub prot: u32,
    /// Where in its file it begins.
    pub offset: u64,
    /// It was shared with others (`MAP_SHARED`).
    pub shared: bool,
    /// The file's path, a name such as `[stack]`, or empty.
    pub name: String,
    /// What the kernel said of the file to the program, if it is shared and mapped only to be read.
    pub stat: Option<Stat>,
}

/// What else is known at an instant.
pub struct Stored {
    /// What its threads say of memory that is not known.
    pub threads: Threads,
    /// Contents of files, as far as the program has seen them.
    /// By the numbers that [`OpenKind`] has.
    pub files: Vec<Known>,
}

/// The process in which the cursor stands.
///
/// # Errors
/// - The recording does not answer.
/// - It was cancelled.
pub fn process_state(cursor: &mut Cursor, cancel: &Cancel) -> Result<(ProcessState, Stored)> {
    let timeline = cursor.timeline().clone();
    let here = cursor.position()?;
    let own = timeline.thread(cursor.thread())?;
    let all = threads(cursor, cancel)?;
    let header = timeline.trace().header();
    let mut state = ProcessState {
        position: here.to_string(),
        pid: own.pid,
        kernel: header.machine.kernel.clone(),
        processor: header.machine.processor.clone(),
        began_ms: header.started_ms,
        auxiliary: auxiliary_vector(&timeline, own.image)?,
        ..ProcessState::default()
    };
    let processes = timeline.processes()?;
    if let Some(p) = processes.iter().find(|p| p.image == own.image) {
        state.command = p.command.clone();
    }
    if !is_whole(&processes, own.image) {
        let why = "the recording does not begin with the program, so what the kernel kept for it is not known";
        state.refused.push(why.into());
    }
    state.mappings = mappings(cursor, &all)?;
    state.program = program(&timeline, own.image)?;

    let history = History::new(cursor, &own)?;
    let mut looker = timeline.cursor()?;
    signals::actions(&history, &mut looker, &mut state)?;
    history.calls(&mut looker, &mut state)?;
    for signal in &history.arriving {
        let name = hindsight_timeline::signal_name((*signal).into());
        let what = format!("{name}, which arrives at this place: it does not arrive");
        state.lost.push(what);
    }
    if history.is_apart(&mut looker, &own)? {
        let why = "it has a root of its own, mounted something or has namespaces of its own (`chroot`, `mount`, `unshare` and others), so its paths would lead elsewhere, or it was made without its parent's handlers (`CLONE_CLEAR_SIGHAND`)";
        state.refused.push(why.into());
    }
    if !history.is_cut {
        let why = "which call made it is not known, and so not what its parent had chosen for it";
        state.refused.push(why.into());
    }
    if history.is_borrower(&mut looker, &own)? {
        let why = "it shares its memory with the process that made it (`vfork`)";
        state.refused.push(why.into());
    }
    let names = timeline.names(own.image)?;
    let live = timeline.threads()?;
    let (mut there, mut in_calls) = (BTreeSet::new(), Vec::new());
    for t in &all {
        let thread = found(&timeline, &live, &own, t.tid, here)?;
        let mut made = registers(t.tid, t.cpu.words().to_vec(), &t.vectors);
        if let Some(call) = InCall::of(&mut looker, (thread.id, t.tid), here)? {
            let general = looker.registers()?.words().to_vec();
            made = registers(t.tid, general, &looker.vectors()?);
            in_calls.push(call);
        }
        made.name = names.of(&timeline, thread, here)?;
        made.blocked = match signals::blocked(&history, &mut looker, thread.id)? {
            Some(mask) => mask,
            None => {
                state
                    .refused
                    .push("which signals it blocks is not known".into());
                0
            }
        };
        history.thread(&mut looker, thread.id, &mut made, &mut state.refused)?;
        made.call = call_of(&timeline, &mut looker, thread.id, here)?;
        state.threads.push(made);
        there.insert(thread.id);
    }
    let ended = history.not_there(&mut looker, &there, here, &mut state.refused)?;
    // The process's first thread is made first, since its id is the process's.
    match state.threads.iter().position(|t| t.tid == own.pid) {
        Some(i) => state.threads.swap(0, i),
        None => state
            .refused
            .push("the process's first thread has ended".into()),
    }
    let files = files::opened(&timeline, &own, here, &mut state)?;
    progress::check(cursor, &in_calls, &mut state)?;
    let threads = Threads::new(&state, ended, &in_calls);
    Ok((state, Stored { threads, files }))
}

/// Whether the recording has all that the program did since it was loaded, and so for those before it.
fn is_whole(processes: &[Process], image: u32) -> bool {
    let mut image = image;
    // Who makes another has a lower number.
    for _ in 0..=processes.len() {
        let Some(p) = processes.iter().find(|p| p.image == image) else {
            return false;
        };
        let loaded = p.by_exec || p.parent == 0;
        if loaded && !p.is_whole {
            return false;
        }
        if p.parent == 0 {
            return true;
        }
        image = p.parent;
    }
    false
}

/// The thread of a process that has this id at an instant.
fn found<'a>(
    timeline: &Timeline,
    all: &'a [Thread],
    own: &Thread,
    tid: i32,
    here: Position,
) -> Result<&'a Thread> {
    for t in all {
        if (t.image, t.pid, t.tid) != (own.image, own.pid, tid) {
            continue;
        }
        if t.id == own.id || timeline.is_alive(t.id, here)? {
            return Ok(t);
        }
    }
    Err(Error::Expression(format!(
        "thread {tid} is not found again"
    )))
}

fn registers(tid: i32, general: Vec<u64>, v: &VecState) -> ThreadState {
    ThreadState {
        tid,
        registers: general,
        zmm: v.zmm.as_flattened().to_vec(),
        masks: v.k.to_vec(),
        x87: v.st.as_flattened().to_vec(),
        control: [v.mxcsr, v.fcw.into(), v.fsw.into(), v.ftw.into()],
        ..ThreadState::default()
    }
}

fn mappings(
    cursor: &mut Cursor,
    threads: &[crate::coredump::notes::Thread],
) -> Result<Vec<MappedRange>> {
    let here = cursor.position()?;
    let mut all: Vec<Mapping> = cursor.timeline().mappings(cursor.image(), here)?;
    crate::mappings::grow_stacks(&mut all, threads);
    let range = |m: Mapping| MappedRange {
        start: m.start,
        end: m.end,
        prot: m.prot,
        offset: m.offset,
        shared: m.is_shared(),
        name: m.path,
        stat: None,
    };
    Ok(all.into_iter().map(range).collect())
}

/// The file of a program: the first one that its image has mapped, with the hash of its content.
fn program(timeline: &Timeline, image: u32) -> Result<(Vec<u8>, Option<[u8; 16]>)> {
    let modules = timeline.modules(image)?;
    let first = modules.into_iter().find(|m| m.path.starts_with('/'));
    Ok(first.map_or_else(Default::default, |m| {
        (m.path.into_bytes(), m.hash.map(|ModuleHash(h)| h))
    }))
}

/// The system call that a thread makes next, if it stands before one.
fn call_of(
    timeline: &Timeline,
    cursor: &mut Cursor,
    thread: ThreadId,
    at: Position,
) -> Result<Option<String>> {
    let Some(count) = timeline.returned_at(thread, at)? else {
        return Ok(None);
    };
    cursor.seek_count(thread, count)?;
    let call = cursor.system_call_here()?;
    Ok(call.map(|c| c.to_string()))
}
