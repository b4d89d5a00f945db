//! What is answered to each request of a client. Each family of packets has a file, as in [`hindsight_packets`].

mod choice;
mod command;
mod file;
mod memory;
mod points;
mod process;
mod registers;
mod resume;
mod thread;
mod tls;
mod transfer;

use crate::Result;
use crate::state::session::Session;
use crate::state::signals;
use crate::state::told::Told;
use choice::Choice;
use hindsight_packets::{Answer, CatchSyscalls, PassSignals, Request, Stop, offer};

/// The number of errors that gdb's user need not tell apart.
const FAILED: u8 = 1;
/// What one question ran into: EREMOTEIO.
const TROUBLE: u8 = 121;

/// What follows a request.
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// This is the answer.
    Answer(Answer),
    /// The client shows this text, and then takes the answer.
    Show(String, Answer),
    /// This is the answer, and packets are acknowledged no more.
    StopAcks(Answer),
    /// The session runs. The answer is where it stops.
    Run,
    /// This is the last answer: the client goes.
    Leave(Answer),
}

impl From<Answer> for Next {
    fn from(answer: Answer) -> Next {
        Next::Answer(answer)
    }
}

/// Answers one client.
#[derive(Default)]
pub struct Answers {
    choice: Choice,
}

impl Answers {
    /// Answers a packet. What fails is an error for the client, which goes on; `monitor why` says the reason.
    pub fn next(&mut self, session: &mut Session, packet: &[u8]) -> Next {
        let why = match Request::parse(packet) {
            Ok(request) => match self.request(session, request) {
                Ok(next) => return next,
                Err(e) => e.to_string(),
            },
            Err(malformed) => malformed.to_string(),
        };
        session.trouble = Some(why);
        Answer::error(FAILED).into()
    }

    fn request(&mut self, session: &mut Session, request: Request) -> Result<Next> {
        if let Some(answer) = self.choice.make(session, &request)? {
            return Ok(answer.into());
        }
        let choice = &mut self.choice;
        Ok(match request {
            Request::Features(features) => {
                session.features = features;
                offer().into()
            }
            Request::StopAcks => Next::StopAcks(Answer::ok()),
            Request::Thread(t) => thread::answer(session, choice, t)?.into(),
            Request::Process(p) => process::answer(session, p),
            Request::Memory(m) => memory::answer(session, choice.thread(session)?, m).into(),
            Request::Register(r) => registers::answer(session, choice.thread(session)?, r).into(),
            Request::Resume(r) => resume::answer(session, choice, r),
            Request::Points(p) => points::answer(session, p).into(),
            Request::Transfer(t) => transfer::answer(session, choice, &t)?.into(),
            Request::File(f) => file::answer(session, &f)?.into(),
            Request::Command(c) => command::answer(session, &c),
            Request::PassSignals(PassSignals(list)) => {
                let linux = list.iter().filter_map(|s| signals::from_gdb(s.0));
                session.passed = linux.collect();
                Answer::ok().into()
            }
            Request::CatchSyscalls(which) => {
                session.inferior.catch = match which {
                    CatchSyscalls::Nothing => None,
                    CatchSyscalls::All => Some(Vec::new()),
                    CatchSyscalls::Only(list) => Some(list),
                };
                Answer::ok().into()
            }
            Request::Unknown => Answer::unsupported().into(),
        })
    }

    /// The answer to a run or a step. The client takes the thread of the stop for the chosen one.
    pub fn stopped(&mut self, session: &Session, told: Told) -> Answer {
        self.choice.stopped(told.tid);
        stop(session, told)
    }
}

fn stop(session: &Session, told: Told) -> Answer {
    let stop = Stop {
        thread: session.label(told.tid),
        signal: told.signal,
        event: told.event,
    };
    stop.answer()
}

/// The answer, or the error of a question that has run into trouble. The session goes on.
fn or_trouble(answer: Result<Answer>) -> Answer {
    answer.unwrap_or_else(|_| Answer::error(TROUBLE))
}
