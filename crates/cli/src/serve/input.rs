//! What a client asks, and whom it interrupts.

use super::{Answers, Fail};
use hindsight_timeline::Cancel;
use serde_json::{Map, Value as Json, json};
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest line, in bytes.
const LINE: u64 = 1 << 20;
/// So many requests may wait.
const WAITING: usize = 64;
/// How often progress is told.
const OFTEN: Duration = Duration::from_millis(100);

/// A request that is to be answered.
pub struct Request {
    pub id: Json,
    /// All but its id.
    pub fields: Map<String, Json>,
}

/// Which request is being answered, and which are not wanted any more.
pub struct Desk {
    pub answers: Answers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The request that is being answered, and what cancels it.
    running: Option<(Json, Cancel)>,
    /// When progress was told, or the request began.
    told: Option<Instant>,
    /// Requests that wait, in order; whether each was cancelled.
    waiting: Vec<(Json, bool)>,
}

impl Desk {
    pub fn new() -> Desk {
        Desk {
            answers: Answers::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the request that waited longest.
    pub fn begin(&self, id: &Json) -> Cancel {
        let mut state = self.state();
        let cancel = Cancel::new();
        if !state.waiting.is_empty() && state.waiting.remove(0).1 {
            cancel.cancel();
        }
        state.running = Some((id.clone(), cancel.clone()));
        state.told = Some(Instant::now());
        cancel
    }

    pub fn end(&self) {
        self.state().running = None;
    }

    /// Cancels the request that is being answered, if there is one.
    pub fn interrupt(&self) {
        if let Some((_, cancel)) = &self.state().running {
            cancel.cancel();
        }
    }

    /// Cancels a request. One that is answered is none of our business any more.
    fn cancel(&self, id: &Json) {
        let mut state = self.state();
        match &state.running {
            Some((running, cancel)) if running == id => cancel.cancel(),
            _ => {
                let found = state.waiting.iter_mut().find(|(waits, _)| waits == id);
                if let Some((_, cancelled)) = found {
                    *cancelled = true;
                }
            }
        }
    }

    /// Tells how many instructions were replayed for the index.
    pub fn progress(&self, done: Option<u64>) {
        let Some(done) = done else { return };
        let mut state = self.state();
        let now = Instant::now();
        if state.told.is_none_or(|t| now - t < OFTEN) {
            return;
        }
        let Some((id, _)) = &state.running else {
            return;
        };
        let line = json!({ "id": id, "progress": { "instructions": done } });
        state.told = Some(now);
        drop(state);
        self.answers.line(&line);
    }

    /// Takes a line. False: nobody answers any more.
    fn take(&self, line: &[u8], to: &SyncSender<Request>) -> bool {
        let refuse = |id: Json, kind, why: String| {
            self.answers.done(&id, Err(Fail::new(kind, why)));
            true
        };
        let object = match serde_json::from_slice(line) {
            Ok(Json::Object(object)) => object,
            Ok(_) => return refuse(Json::Null, Fail::MALFORMED, "this is no object".into()),
            Err(e) => return refuse(Json::Null, Fail::MALFORMED, format!("this is no JSON: {e}")),
        };
        let mut fields = object;
        if let Some(id) = fields.remove("cancel") {
            if !fields.is_empty() {
                let why = "a line with `cancel` has no other fields";
                return refuse(Json::Null, Fail::MALFORMED, why.into());
            }
            self.cancel(&id);
            return true;
        }
        let id = match fields.remove("id") {
            Some(id @ (Json::Number(_) | Json::String(_))) => id,
            _ => {
                let why = "a request has an `id`, which is a number or text";
                return refuse(Json::Null, Fail::MALFORMED, why.into());
            }
        };
        let mut state = self.state();
        // It must be there before the other thread can begin with it.
        state.waiting.push((id.clone(), false));
        match to.try_send(Request { id, fields }) {
            Ok(()) => true,
            Err(TrySendError::Disconnected(_)) => false,
            Err(TrySendError::Full(r)) => {
                state.waiting.pop();
                drop(state);
                refuse(r.id, Fail::BUSY, format!("{WAITING} requests wait already"))
            }
        }
    }
}

/// The requests that come. They end when the client says no more.
pub fn requests(desk: &Arc<Desk>) -> Receiver<Request> {
    let (to, requests) = sync_channel(WAITING);
    let desk = Arc::clone(desk);
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin());
        let mut line = Vec::new();
        loop {
            line.clear();
            let n = input.by_ref().take(LINE + 1).read_until(b'\n', &mut line);
            match n {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if line.len() as u64 > LINE {
                let why = format!("a line has at most {LINE} bytes");
                let fail = Fail::new(Fail::MALFORMED, why);
                desk.answers.done(&Json::Null, Err(fail));
                if line.last() != Some(&b'\n') && input.skip_until(b'\n').is_err() {
                    break;
                }
                continue;
            }
            if !line.trim_ascii().is_empty() && !desk.take(&line, &to) {
                break;
            }
        }
        drop(to);
        leave_with_reader();
    });
    requests
}

/// Ends the process when nobody reads standard output any more: a question that takes an hour is not wanted then.
fn leave_with_reader() {
    let mut out = libc::pollfd {
        fd: 1,
        events: 0,
        revents: 0,
    };
    loop {
        // SAFETY: there is one structure.
        let n = unsafe { libc::poll(&mut out, 1, -1) };
        if n > 0 && out.revents != 0 {
            std::process::exit(0);
        }
        if n < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return;
        }
    }
}
