//! The half that reads the recording, as the other one sees it.

use crate::wire::{self, Begin, Call, Question, Wire};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;

/// So many answers wait at most before nothing is asked for ahead.
const READY: usize = 4;

/// The half that reads the recording.
pub struct Recording {
    stream: UnixStream,
    /// A thread whose next calls were asked for. They are made while the program runs.
    ahead: Option<u32>,
    ready: HashMap<u32, VecDeque<Vec<Call>>>,
}

impl Recording {
    pub fn new(stream: UnixStream) -> Recording {
        Recording {
            stream,
            ahead: None,
            ready: HashMap::new(),
        }
    }

    fn receive<T: Wire>(&mut self) -> io::Result<T> {
        let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended");
        wire::receive(&mut self.stream)?.ok_or_else(gone)
    }

    fn settle(&mut self) -> io::Result<()> {
        if let Some(thread) = self.ahead.take() {
            let calls = self.receive()?;
            self.ready.entry(thread).or_default().push_back(calls);
        }
        Ok(())
    }

    fn ask<T: Wire>(&mut self, question: &Question) -> io::Result<T> {
        self.settle()?;
        wire::send(&mut self.stream, question)?;
        self.receive()
    }

    /// What was recorded. Its calls are read from the first one on.
    pub fn begin(&mut self) -> io::Result<Begin> {
        self.settle()?;
        self.ready.clear();
        self.ask(&Question::Begin)
    }

    /// The next calls of a thread. None are the end.
    pub fn calls(&mut self, thread: u32) -> io::Result<Vec<Call>> {
        if self.ahead == Some(thread) {
            self.settle()?;
        }
        let ready = self.ready.get_mut(&thread).and_then(VecDeque::pop_front);
        let calls = match ready {
            Some(calls) => calls,
            None => self.ask(&Question::Calls(thread))?,
        };
        let waiting: usize = self.ready.values().map(VecDeque::len).sum();
        if !calls.is_empty() && self.ahead.is_none() && waiting < READY {
            wire::send(&mut self.stream, &Question::Calls(thread))?;
            self.ahead = Some(thread);
        }
        Ok(calls)
    }

    /// The call stack of a thread; its position comes first.
    pub fn stack(&mut self, thread: u32, count: u64) -> io::Result<Vec<Vec<u8>>> {
        self.ask(&Question::Stack(thread, count))
    }

    /// The content of a file that was mapped.
    pub fn content(&mut self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.ask(&Question::Content(path.to_vec()))
    }
}
