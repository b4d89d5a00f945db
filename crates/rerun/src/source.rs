//! The half that reads the recording. It answers the questions of the half that runs the program.

mod calls;
mod clocks;
mod lanes;

use crate::wire::{self, Begin, Call, End, Guest, Image, Member, Question};
use calls::{Calls, Next};
use hindsight_inspect::{Inspector, auxiliary_vector};
use hindsight_timeline::{Cursor, Ending, Process, ThreadId, Timeline};
use lanes::Lanes;
use std::collections::HashMap;
use std::io::{self, Read, Write};

/// Calls that are sent at a time.
const AT_A_TIME: usize = 64;
/// No more are added to a message that has so many bytes.
const LARGE: usize = 1 << 20;
/// The entry of the auxiliary vector that points to random bytes.
const AT_RANDOM: u64 = 25;
/// Frames of a call stack that are sent.
const FRAMES: usize = 16;

/// Why the recording does not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be read.
    #[error(transparent)]
    Timeline(#[from] hindsight_timeline::Error),
    /// The trace is damaged.
    #[error(transparent)]
    Trace(#[from] hindsight_trace::Error),
    /// Functions and lines cannot be found.
    #[error(transparent)]
    Inspect(#[from] hindsight_inspect::Error),
    /// A call moved more bytes than are kept in memory.
    #[error("a system call moved more than {} MiB, and such a call cannot be answered", wire::LARGEST >> 20)]
    TooLarge,
    /// The other half has gone, or does not understand.
    #[error(transparent)]
    Wire(#[from] io::Error),
}

/// Answers questions about a recording until the other half has gone.
///
/// # Errors
/// The recording is damaged, or the other half asks nonsense.
pub fn serve(timeline: Timeline, stream: impl Read + Write) -> Result<(), Error> {
    match answer(timeline, stream) {
        // It has gone while an answer was on its way. It says why.
        Err(Error::Wire(e)) if is_gone(&e) => Ok(()),
        done => done,
    }
}

fn is_gone(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn answer(timeline: Timeline, mut stream: impl Read + Write) -> Result<(), Error> {
    let mut source = Source {
        cursor: timeline.cursor()?,
        inspector: Inspector::new(timeline.clone()),
        timeline,
        readers: HashMap::new(),
    };
    while let Some(question) = wire::receive::<Question>(&mut stream)? {
        match question {
            Question::Begin => {
                source.readers.clear();
                wire::send(&mut stream, &source.begin()?)?;
            }
            Question::Calls(thread) => wire::send(&mut stream, &source.calls(ThreadId(thread))?)?,
            Question::Stack(thread, count) => {
                let stack = source.stack(ThreadId(thread), count)?;
                wire::send(&mut stream, &stack)?;
            }
            Question::Content(path) => wire::send(&mut stream, &source.content(&path)?)?,
        }
    }
    Ok(())
}

struct Source {
    timeline: Timeline,
    cursor: Cursor,
    inspector: Inspector,
    readers: HashMap<ThreadId, Lanes>,
}

impl Source {
    fn begin(&mut self) -> Result<Begin, Error> {
        let timeline = self.timeline.clone();
        let header = timeline.trace().header();
        let texts =
            |list: &[hindsight_trace::Text]| list.iter().map(|t| t.as_bytes().to_vec()).collect();
        let mut images = Vec::new();
        for p in timeline.processes()? {
            images.push(self.image(&p)?);
        }
        Ok(Begin {
            program: header.execfn.as_bytes().to_vec(),
            args: texts(&header.argv),
            env: texts(&header.env),
            folder: header.cwd.as_bytes().to_vec(),
            started: header.started_ms.saturating_mul(1_000_000),
            images,
        })
    }

    fn image(&mut self, p: &Process) -> Result<Image, Error> {
        let mut image = Image {
            number: p.image,
            parent: p.parent,
            by_exec: p.by_exec,
            is_whole: p.is_whole,
            pid: p.pid,
            ..Image::default()
        };
        let mut ends = Vec::new();
        for id in &p.threads {
            let thread = self.timeline.thread(*id)?;
            let end = match thread.ending {
                Ending::Exit(n) => End::Status(n as i32 & 0xff),
                Ending::Signal(n) => End::Signal(n as i32),
                Ending::Exec => End::Exec,
                _ => End::Unknown,
            };
            let (calls, last) = Calls::new(*id).count(&self.timeline)?;
            if thread.pid != p.pid {
                image.guests.push(Guest {
                    pid: thread.pid,
                    thread: id.0,
                    calls,
                    length: thread.to,
                    end,
                });
                continue;
            }
            image.calls += calls;
            ends.push((id.0, end, last == Some(libc::SYS_exit_group as u64)));
            if image.thread == 0 {
                (image.thread, image.length) = (id.0, thread.to);
                continue;
            }
            image.others.push(Member {
                thread: id.0,
                tid: thread.tid,
                length: thread.to,
            });
        }
        (image.ended_by, image.end) = end_of(&ends);
        if p.is_whole {
            image.random = self.random(p)?;
        }
        Ok(image)
    }

    /// The random bytes that the kernel gave to a program.
    fn random(&mut self, p: &Process) -> Result<Option<[u8; 16]>, Error> {
        let vector = auxiliary_vector(&self.timeline, p.image)?;
        let word = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
        let found = vector.chunks_exact(16).find(|e| word(&e[..8]) == AT_RANDOM);
        let Some(entry) = found else { return Ok(None) };
        self.cursor.seek(p.begin)?;
        let bytes = self.cursor.known_memory(word(&entry[8..]), 16)?.whole();
        Ok(bytes.and_then(|b| b.try_into().ok()))
    }

    fn calls(&mut self, thread: ThreadId) -> Result<Vec<Call>, Error> {
        let lanes = match self.readers.entry(thread) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => {
                e.insert(Lanes::new(&self.timeline, thread)?)
            }
        };
        let (mut out, mut bytes) = (Vec::new(), 0);
        while out.len() < AT_A_TIME && bytes < LARGE {
            let Some((lane, next)) = lanes.next(&self.timeline)? else {
                break;
            };
            let call = match next {
                Next::Call(raw) => {
                    let mut call = lane.calls.whole(&mut self.cursor, raw)?;
                    call.time = lane.clocks.time(call.count);
                    Some(call)
                }
                Next::Counter(counter) => lane.clocks.asked(&mut self.cursor, counter)?,
            };
            if let Some(mut call) = call {
                call.lane = lane.number;
                bytes += call.size();
                out.push(call);
            }
        }
        Ok(out)
    }

    /// The call stack of a thread. The first text says where it is.
    fn stack(&mut self, thread: ThreadId, count: u64) -> Result<Vec<Vec<u8>>, Error> {
        self.cursor.seek_count(thread, count)?;
        let position = self.cursor.position()?.to_string();
        let frames = self.inspector.backtrace(&mut self.cursor)?;
        let mut out = vec![position.into_bytes()];
        out.extend(
            crate::frames(&frames)
                .into_iter()
                .take(FRAMES)
                .map(String::into_bytes),
        );
        Ok(out)
    }

    /// The content of a file that was mapped, as it was recorded.
    fn content(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        for p in self.timeline.processes()? {
            for m in self.timeline.modules(p.image)? {
                if let Some(hash) = m.hash
                    && m.path.as_bytes() == path
                {
                    return Ok(Some(self.timeline.module_bytes(hash)?));
                }
            }
        }
        Ok(None)
    }
}

/// How a process ended whose threads ended so, and the thread whose end that was. With each thread it is said whether its last
/// call ends the whole process.
fn end_of(threads: &[(u32, End, bool)]) -> (u32, End) {
    let whole = |t: &&(u32, End, bool)| t.2 || matches!(t.1, End::Signal(_) | End::Exec);
    let known = |t: &&(u32, End, bool)| t.1 != End::Unknown;
    if let Some(t) = threads.iter().filter(known).find(whole) {
        return (t.0, t.1);
    }
    // All have ended by themselves. The first one's status is that of the process.
    match (threads.first(), threads.iter().all(|t| known(&t))) {
        (Some(t), true) => (t.0, t.1),
        (first, _) => (first.map_or(0, |t| t.0), End::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_as_the_thread_says_that_ends_it() {
        let zero = End::Status(0);
        assert_eq!(end_of(&[(2, End::Status(3), false)]), (2, End::Status(3)));
        let other = [(2, End::Unknown, false), (3, End::Status(4), true)];
        assert_eq!(end_of(&other), (3, End::Status(4)));
        let killed = [(2, zero, false), (3, End::Signal(6), false)];
        assert_eq!(end_of(&killed), (3, End::Signal(6)));
        let singly = [(2, End::Status(5), false), (3, zero, false)];
        assert_eq!(end_of(&singly), (2, End::Status(5)));
        // The recording was cut: one thread's end says nothing about the others.
        let cut = [(2, End::Unknown, false), (3, zero, false)];
        assert_eq!(end_of(&cut), (2, End::Unknown));
        assert_eq!(end_of(&[]), (0, End::Unknown));
    }
}
