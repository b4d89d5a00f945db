//! The two processes that record a program.
//!
//! The one that was started is the program's parent and stands for it ([`super::foreground`]). It is in the program's
//! process group, is stopped with it, and ends as it ends. The one that collects is in a session of its own. No signal to
//! the group and no key reaches it. So the recording is finished whatever becomes of the group. The two tell each other by
//! lines of JSON what has happened.

use super::foreground::{BEAT, Foreground, News};
use super::parent::Parent;
use super::untaken::{Fate, OVERDUE, Sent};
use crate::detach;
use crate::error::{During, Error, Result};
use crate::notice::{Notice, Tell};
use crate::outcome::Outcome;
use crate::sys::files::close;
use crate::sys::process::{self, Ended};
use crate::sys::signals::{Signals, is_told_to_end};
use hindsight_collector::Control;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Time for those who outlive a program that was sent a signal to end and died of it.
const OTHERS: Duration = Duration::from_secs(1);

/// One end of the line between the two.
struct Line {
    out: UnixStream,
    input: RefCell<BufReader<UnixStream>>,
    /// The part of a line that has come.
    part: RefCell<String>,
}

/// What has come of the other side.
enum Heard {
    Message(Value),
    Nothing,
    /// It has ended.
    Gone,
}

impl Line {
    fn new(stream: UnixStream) -> Result<Line> {
        Ok(Line {
            out: stream.try_clone()?,
            input: RefCell::new(BufReader::new(stream)),
            part: RefCell::default(),
        })
    }

    /// If the other side is gone that is found when it is listened to.
    fn say(&self, message: Value) {
        let _ = (&self.out).write_all(format!("{message}\n").as_bytes());
    }

    /// Waits for a message, but no longer than `patience`; for ever if there is none.
    fn hear(&self, patience: Option<Duration>) -> Heard {
        let mut input = self.input.borrow_mut();
        let mut part = self.part.borrow_mut();
        // Zero would be for ever.
        let limit = patience.map(|p| p.max(Duration::from_micros(1)));
        if input.get_ref().set_read_timeout(limit).is_err() {
            return Heard::Gone;
        }
        match input.read_line(&mut part) {
            Ok(_) if part.ends_with('\n') => {
                let line = std::mem::take(&mut *part);
                serde_json::from_str(&line).map_or(Heard::Gone, Heard::Message)
            }
            Ok(_) => Heard::Gone,
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
                    Heard::Nothing
                }
                _ => Heard::Gone,
            },
        }
    }
}

/// The process that collects, as the other one sees it.
pub struct Worker {
    pid: i32,
    line: Line,
    /// It has ended, and that was noticed.
    gone: Cell<bool>,
}

impl Worker {
    /// Starts the process that collects, which runs `work`; returns when that is ready for the program. All signals are
    /// blocked, and this process has one thread.
    pub fn start(work: impl FnOnce(&Face) -> Result<Outcome>) -> Result<Worker> {
        let (ours, theirs) = UnixStream::pair()?;
        let front = process::own_id();
        let mut theirs = Some(theirs);
        let pid = process::fork(|| {
            // Of this end there is to be one copy: whoever listens at the other sees when it is closed.
            close(ours.as_raw_fd());
            if let Some(Ok(line)) = theirs.take().map(Line::new) {
                process::leave_session();
                process::set_name(c"collector");
                let face = Face::new(line, front);
                let answer = match work(&face) {
                    Ok(outcome) => json!({ "outcome": outcome }),
                    Err(e) => json!({"error": e.to_string()}),
                };
                face.line.say(answer);
            }
        })
        .during("fork")?;
        drop(theirs);
        let worker = Worker {
            pid,
            line: Line::new(ours)?,
            gone: Cell::new(false),
        };
        match worker.line.hear(None) {
            Heard::Message(v) if v["ready"] == true => Ok(worker),
            heard => Err(worker.failure(heard)),
        }
    }

    /// The program has been started.
    pub fn started(&self, pid: i32) {
        self.line.say(json!({"started": pid}));
    }

    /// Something has happened.
    pub fn tell(&self, news: News) {
        self.line.say(match news {
            News::Stops => json!({"stops": true}),
            News::GoesOn => json!({"stops": false}),
            News::EndIsWanted(signal) => json!({"end": true, "signal": signal}),
        });
    }

    /// A few times a second: the number of a dead process is given back, so that the recorder sees that it is dead.
    pub fn look(&self) {
        if !self.gone.get() && process::reap(self.pid) {
            self.gone.set(true);
        }
    }

    /// The program has ended. Waits for the end of the recording; `beat` is called a few times a second.
    pub fn finish(&self, ended: &Ended, front: &Foreground, beat: impl Fn()) -> Result<Outcome> {
        self.line.say(json!({"ended": {
            "exit": ended.status.ok(),
            "signal": ended.status.err(),
            "cpu": ended.cpu.as_micros() as u64,
            "peak": ended.peak_kib,
        }}));
        loop {
            match self.line.hear(Some(BEAT)) {
                Heard::Nothing => {
                    beat();
                    if front.told_to_end() {
                        self.line.say(json!({"stop": true}));
                    }
                }
                Heard::Message(mut v) if v.get("outcome").is_some() => {
                    self.reap();
                    return serde_json::from_value(v["outcome"].take())
                        .map_err(|e| Error::Collector(format!("the collector's answer: {e}")));
                }
                heard => return Err(self.failure(heard)),
            }
        }
    }

    fn reap(&self) {
        if !self.gone.replace(true) {
            process::reap_at_once(self.pid);
        }
    }

    /// What it says that has gone wrong, or that it is gone.
    fn failure(&self, heard: Heard) -> Error {
        self.reap();
        match heard {
            Heard::Message(v) => match v["error"].as_str() {
                Some(why) => Error::Collector(why.into()),
                None => Error::CollectorFailed,
            },
            _ => Error::CollectorGone,
        }
    }
}

/// The process that stands for the program, as the one that collects sees it.
pub struct Face {
    line: Line,
    front: i32,
    /// The program's id, as soon as there is one.
    program: Cell<i32>,
    /// The other process was stopped when it was last looked at.
    stopped: Cell<bool>,
    /// And so was the program at the same time, or before.
    together: Cell<bool>,
    /// When an end was wanted first.
    asked: Cell<Option<Instant>>,
    /// The signal that the program was sent for that.
    sent: RefCell<Option<Sent>>,
    /// Signals (bits by number) that the program has taken: what it does then is its own affair.
    taken: Cell<u64>,
    /// It did not take that, and was killed.
    forced: Cell<bool>,
    /// The last such signal, and when it was sent; and the one that the program died of.
    asked_by: Cell<Option<(i32, Instant)>>,
    died: Cell<Option<(i32, Instant)>>,
}

impl Face {
    fn new(line: Line, front: i32) -> Face {
        Face {
            line,
            front,
            program: Cell::new(0),
            stopped: Cell::new(false),
            together: Cell::new(false),
            asked: Cell::new(None),
            sent: RefCell::default(),
            taken: Cell::new(0),
            forced: Cell::new(false),
            asked_by: Cell::new(None),
            died: Cell::new(None),
        }
    }

    /// Kills a program that does not take the signal which asks for its end. If its recorder is damaged, that may wait for
    /// what never comes, and then nothing else ends it.
    fn insist(&self, control: &Control, tell: &Tell) {
        let (damaged, header) = (control.is_damaged(), control.header());
        let overdue = self.asked.get().is_some_and(|a| a.elapsed() > OVERDUE);
        let mut sent = self.sent.borrow_mut();
        let fate = sent.as_mut().map(|s| s.look(header));
        if fate == Some(Fate::Taken)
            && let Some(s) = sent.take()
        {
            self.taken.set(self.taken.get() | 1 << s.signal());
        }
        if !(overdue && damaged || fate == Some(Fate::Overdue)) {
            return;
        }
        if !self.forced.replace(true) {
            tell(&Notice::Killed);
        }
        process::kill(self.program.get(), libc::SIGKILL);
    }

    /// A process that is stopped notices nothing. So it is continued from here when the program goes on or has ended. If
    /// somebody has stopped only that process, the program is stopped from here: SIGSTOP cannot be passed on.
    fn keep_together(&self) {
        const STOPPED: Option<u8> = Some(b'T');
        if process::state(self.front) != STOPPED {
            if self.stopped.replace(false) {
                self.together.set(false);
            }
            return;
        }
        let before = self.stopped.replace(true);
        match process::state(self.program.get()) {
            STOPPED => self.together.set(true),
            Some(b'Z' | b'X') | None => process::kill(self.front, libc::SIGCONT),
            _ if self.together.get() => process::kill(self.front, libc::SIGCONT),
            // The program may be about to stop.
            _ if !before => {}
            _ => {
                process::kill(self.program.get(), libc::SIGSTOP);
                self.together.set(true);
            }
        }
    }
}

impl Parent for Face {
    fn start(&self) -> Result<i32> {
        self.line.say(json!({"ready": true}));
        match self.line.hear(None) {
            Heard::Message(v) if v["started"].is_i64() => {
                self.program.set(v["started"].as_i64().unwrap_or(0) as i32);
                Ok(self.program.get())
            }
            _ => Err(Error::NotStarted),
        }
    }

    fn id(&self) -> i32 {
        self.front
    }

    fn look(&self, control: &Control, tell: &Tell) {
        self.insist(control, tell);
        // While it runs it does that itself: tracing may be allowed to parents only.
        if self.stopped.get() {
            detach::serve(control, tell, &is_told_to_end);
        }
    }

    fn wait(&self, beat: &dyn Fn()) -> Option<Ended> {
        loop {
            match self.line.hear(Some(BEAT)) {
                Heard::Message(v) if v["ended"].is_object() => {
                    let ended = ended(&v["ended"]);
                    self.died
                        .set(self.asked_by.get().filter(|(s, _)| ended.status == Err(*s)));
                    return Some(ended);
                }
                Heard::Message(v) if v["end"] == true => {
                    self.asked.set(self.asked.get().or(Some(Instant::now())));
                    if let Some(signal) = v["signal"].as_i64() {
                        self.asked_by.set(Some((signal as i32, Instant::now())));
                        let counts = matches!(signal as i32, libc::SIGINT | libc::SIGTERM)
                            && self.taken.get() >> signal & 1 == 0;
                        if counts {
                            let sent = || Sent::new(self.program.get(), signal as i32);
                            self.sent.borrow_mut().get_or_insert_with(sent);
                        }
                    }
                }
                Heard::Message(v) => {
                    self.together.set(v["stops"] == true);
                    self.stopped.set(false);
                }
                Heard::Nothing => {
                    beat();
                    self.keep_together();
                }
                Heard::Gone => {
                    // Who kills the process that stands for the program means the program.
                    process::kill(self.program.get(), libc::SIGKILL);
                    return Some(Ended {
                        status: Err(libc::SIGKILL),
                        cpu: Duration::ZERO,
                        peak_kib: 0,
                    });
                }
            }
        }
    }

    fn told_to_end(&self) -> bool {
        let ending = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        let asked = Signals::of(&ending).take(Duration::ZERO).is_some();
        // Nobody waits for what is still recorded when the other process is gone.
        let overdue = self
            .died
            .get()
            .is_some_and(|(_, when)| when.elapsed() > OTHERS);
        self.forced.get()
            || overdue
            || asked
            || !matches!(self.line.hear(Some(Duration::ZERO)), Heard::Nothing)
    }

    fn give_up(&self) {
        // This process has nothing else to do, and a thread that waits for a reader cannot be ended.
        process::end_at_once();
    }
}

fn ended(v: &Value) -> Ended {
    let number = |name| v[name].as_u64().unwrap_or(0);
    Ended {
        status: match v["signal"].as_i64() {
            Some(signal) => Err(signal as i32),
            None => Ok(v["exit"].as_i64().unwrap_or(0) as i32),
        },
        cpu: Duration::from_micros(number("cpu")),
        peak_kib: number("peak"),
    }
}
