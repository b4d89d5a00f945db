//! A recording, and where somebody stands in it.

use crate::answers;
use crate::fail::Fail;
use crate::request::Fields;
use hindsight_timeline::{
    Cancel, Cursor, Direction, Error, Options, Place, Reason, Scope, ThreadId, Timeline,
};
use serde_json::{Value as Json, json};

/// The most bytes of memory in an answer.
const MOST_BYTES: u64 = 64 << 10;
/// The most writes in an answer, and bytes that are shown of each.
const MOST_WRITES: u64 = 1000;
const SHOWN: u64 = 16;
/// The most steps of one request.
const MOST_STEPS: u64 = 100_000;

/// Bytes of the index that are kept, and of its finer parts.
const INDEX: u64 = 128 << 20;
const FINE: usize = 64 << 20;

/// An open recording. Its cursor stands where the last question has left it.
pub struct Session {
    timeline: Timeline,
    cursor: Cursor,
    /// A question has put the cursor somewhere.
    placed: bool,
}

impl Session {
    /// Opens a recording. The text is the answer: `{"result":…}` with what `info` tells, or `{"error":…}`.
    pub fn open(recording: Vec<u8>) -> (Option<Session>, String) {
        match Session::begin(recording) {
            Ok((session, info)) => (Some(session), json!({"result": info}).to_string()),
            Err(fail) => (None, fail.said()),
        }
    }

    fn begin(recording: Vec<u8>) -> Result<(Session, Json), Fail> {
        let options = Options {
            index_size: INDEX,
            fine_memory: FINE,
            ..Options::default()
        };
        let timeline = Timeline::from_bytes(recording, options)?;
        let session = Session {
            cursor: timeline.cursor()?,
            timeline,
            placed: false,
        };
        let info = session.info()?;
        Ok((session, info))
    }

    /// Answers a request. `README.md` of this crate lists them.
    pub fn ask(&mut self, request: &[u8]) -> String {
        let done = Fields::read(request).and_then(|fields| self.answer(fields));
        match done {
            Ok(result) => json!({"result": result}).to_string(),
            Err(fail) => fail.said(),
        }
    }

    fn answer(&mut self, mut f: Fields) -> Result<Json, Fail> {
        let ask = f.text("ask")?;
        match ask.as_deref() {
            Some("info") => {
                f.end()?;
                self.info()
            }
            Some("at") => self.at(f),
            Some("memory") => self.memory(f),
            Some("writes") => self.writes(f),
            Some("step") => self.step(f),
            Some(other) => Err(Fail::request(format!(
                "there is no request {other}; there are info, at, memory, writes, step"
            ))),
            None => Err(Fail::request("`ask` is missing")),
        }
    }

    fn info(&self) -> Result<Json, Fail> {
        Ok(answers::info(&self.timeline, &self.timeline.threads()?))
    }

    /// Goes where the field `at` says. Without it the cursor stays where it is, at first at the crash, or else at the end.
    fn go(&mut self, at: Option<Json>) -> Result<(), Fail> {
        self.seek(at)?;
        self.placed = true;
        Ok(())
    }

    fn seek(&mut self, at: Option<Json>) -> Result<(), Fail> {
        match at {
            None if self.placed => Ok(()),
            None => {
                let usual = match self.timeline.find(Place::Crash, None) {
                    Err(Error::NoPlace(_)) => self.timeline.find(Place::End, None)?,
                    found => found?,
                };
                Ok(self.cursor.seek(usual)?)
            }
            Some(Json::String(place)) => {
                let position = self.timeline.find(place.parse()?, None)?;
                Ok(self.cursor.seek(position)?)
            }
            Some(Json::Object(instant)) => {
                let number = |name: &str| instant.get(name).and_then(Json::as_u64);
                let thread = number("thread").and_then(|n| u32::try_from(n).ok());
                let (Some(thread), Some(count)) = (thread, number("count")) else {
                    return Err(Fail::request("an instant has `thread` and `count`"));
                };
                let its = self.timeline.thread(ThreadId(thread))?;
                if !(its.from..=its.to).contains(&count) {
                    return Err(Fail::place(format!(
                        "thread {thread} has no instant {count}: it has those from {} to {}",
                        its.from, its.to
                    )));
                }
                Ok(self.cursor.seek_count(ThreadId(thread), count)?)
            }
            Some(_) => Err(Fail::request("`at` is neither text nor an instant")),
        }
    }

    /// Where the cursor stands.
    fn here(&mut self) -> Result<Json, Fail> {
        let c = &mut self.cursor;
        Ok(json!({
            "position": c.position()?.to_string(), "thread": c.thread().0, "count": c.count(),
            "image": c.image(), "entered": c.has_entered()?,
        }))
    }

    fn at(&mut self, mut f: Fields) -> Result<Json, Fail> {
        let at = f.take("at");
        f.end()?;
        self.go(at)?;
        let registers = answers::registers(&self.cursor.registers()?);
        Ok(json!({"here": self.here()?, "registers": registers}))
    }

    fn memory(&mut self, mut f: Fields) -> Result<Json, Fail> {
        let (at, address) = (f.take("at"), f.must("address")?);
        let length = f.count("length", 8, MOST_BYTES)?;
        f.end()?;
        self.go(at)?;
        let memory = self.cursor.known_memory(address, length as usize)?;
        Ok(answers::memory(&memory))
    }

    fn writes(&mut self, mut f: Fields) -> Result<Json, Fail> {
        let (at, address) = (f.take("at"), f.must("address")?);
        let length = f.count("length", 8, 1 << 32)?;
        let most = f.count("most", 1, MOST_WRITES)?;
        f.end()?;
        self.go(at)?;
        let shown = length.min(SHOWN) as usize;
        let mut list = self.cursor.writes(address, length, shown)?;
        let (mut all, cancel) = (Vec::new(), Cancel::new());
        while (all.len() as u64) < most
            && let Some(next) = list.next(&cancel)?
        {
            all.push(answers::written(&next));
        }
        Ok(all.into())
    }

    fn step(&mut self, mut f: Fields) -> Result<Json, Fail> {
        let at = f.take("at");
        let direction = match f.text("direction")?.as_deref().unwrap_or("forward") {
            "forward" => Direction::Forward,
            "backward" => Direction::Backward,
            other => {
                return Err(Fail::request(format!(
                    "`direction` is forward or backward, and not {other}"
                )));
            }
        };
        let count = f.count("count", 1, MOST_STEPS)?;
        f.end()?;
        self.go(at)?;
        let mut done = 0;
        while done < count && self.cursor.step(direction, Scope::Thread)?.reason == Reason::Step {
            done += 1;
        }
        let registers = answers::registers(&self.cursor.registers()?);
        Ok(json!({"here": self.here()?, "registers": registers, "steps": done}))
    }
}
