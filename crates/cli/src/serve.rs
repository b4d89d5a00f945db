//! `hindsight serve`: a session for programs. They ask by lines of JSON on standard input, and read the answers on standard
//! output. `docs/serve.md` describes the requests.
//!
//! The process that answers is confined, as those of the other commands. One thread reads (`input`), so that a request can be
//! cancelled while it is answered. The other one answers (`session`), one request after the other.

mod context;
mod fail;
mod fields;
mod go;
mod input;
mod lists;
mod look;
mod output;
mod session;
mod shapes;

use crate::{args, carried, confine, interrupts, limits, store, travel};
use anyhow::Result;
use fail::Fail;
use fields::Fields;
use hindsight_inspect::Carrier;
use hindsight_timeline::Options;
use input::{Desk, Request};
use output::Answers;
use serde_json::json;
use session::Session;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

/// The version of the protocol. It is raised when what a client relies on changes or goes.
const PROTOCOL: u32 = 1;

/// Serves one client on standard input and output, until that says no more.
pub fn run(a: &args::Serve) -> Result<i32> {
    let path = store::find(a.file.as_deref())?;
    // The process that plays the recording opens no files.
    let carrier = Carrier::new(carried::declarations(&a.declared)?, false);
    // Made before the process is confined. The other one passes interrupts on to it.
    let interrupted = interrupts::forward()?.into_raw_fd();
    confine::run(Some(&path), || {
        let allow = |t: &hindsight_trace::Trace| limits::allow(t, travel::jobs_of(0));
        let timeline = travel::open_quietly(&path, Options::default(), allow)?;
        let desk = Arc::new(Desk::new());
        timeline.tell_progress({
            let desk = Arc::clone(&desk);
            move |done| desk.progress(done)
        });
        let mut session = Session::new(timeline, carrier)?;
        desk.answers.line(&json!({
            "ready": {
                "protocol": PROTOCOL,
                "hindsight": env!("CARGO_PKG_VERSION"),
                "file": path.to_string_lossy(),
                "being_recorded": session.is_growing(),
            }
        }));
        interrupts::each(interrupted, {
            let desk = Arc::clone(&desk);
            move || desk.interrupt()
        })?;
        for request in input::requests(&desk) {
            one(&desk, &mut session, request);
        }
        Ok(0)
    })
}

/// Answers a request.
fn one(desk: &Desk, session: &mut Session, Request { id, fields }: Request) {
    let cancel = desk.begin(&id);
    let items = |items| desk.answers.line(&json!({ "id": id, "items": items }));
    let done = session.answer(Fields::new(fields), &cancel, &items);
    desk.end();
    desk.answers.done(&id, done);
}
