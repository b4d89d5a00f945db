//! Long answers. A client opens a list and takes pages of it. So it gets the first elements at once, and no more than it
//! wants.

use super::context::{Context, here};
use super::{Fail, Fields};
use crate::calls::{self as called, Shown};
use crate::choice::{Choice, Through};
use crate::transfers::{Characters, head_json};
use crate::{args, states, travel};
use hindsight_inspect::{Callee, Inspector};
use hindsight_timeline::{
    Call, Cancel, Content, Cursor, Filter, Flow, Happening, Kind, Moment, Place, StatePoint,
    ThreadId, Timeline, Transfer, Unseen, Way, Writes, in_order,
};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::vec::IntoIter;

/// The most lists that are open at the same time.
const OPEN: usize = 64;
/// The most elements of a page.
const PAGE: u64 = 10_000;
/// A page ends behind so many bytes of JSON.
const BYTES: usize = 1 << 20;
/// Bytes that are shown of what was written.
const SHOWN: u64 = 16;

/// The lists that are open, by their numbers.
#[derive(Default)]
pub struct Lists {
    open: BTreeMap<u64, List>,
    last: u64,
}

enum List {
    Events {
        rest: IntoIter<Happening>,
        /// The arguments of system calls are shown.
        words: bool,
        /// When each was, for those that are left.
        times: Option<IntoIter<Option<Moment>>>,
    },
    Calls {
        rest: IntoIter<Call>,
        known: Vec<(u64, Option<Callee>)>,
        arguments: bool,
        image: u32,
    },
    Writes(Box<Writes>),
    States {
        rest: IntoIter<StatePoint>,
        /// The number of the first of them.
        number: usize,
    },
    Output {
        rest: IntoIter<Transfer>,
        /// How far the first of them has come.
        begun: Option<Begun>,
    },
}

/// A transfer of which pieces were handed out.
struct Begun {
    content: Content,
    /// Where its bytes are in memory.
    buffers: Vec<(u64, u64)>,
    /// How many bytes were handed out.
    from: u64,
}

impl Lists {
    /// Whether one more may be opened.
    fn room(&self) -> Result<(), Fail> {
        match self.open.len() < OPEN {
            true => Ok(()),
            false => Err(Fail::new(
                Fail::BUSY,
                format!("{OPEN} lists are open: close one"),
            )),
        }
    }

    /// The number of the list that was opened last.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Closes a list. False: it is not open.
    pub fn close(&mut self, number: u64) -> bool {
        self.open.remove(&number).is_some()
    }

    fn add(&mut self, list: List, total: Option<usize>) -> Json {
        self.last += 1;
        self.open.insert(self.last, list);
        json!({ "list": self.last, "total": total })
    }
}

/// What chooses by thread, program image and time.
struct Part {
    thread: Option<ThreadId>,
    image: Option<u32>,
    from: Option<hindsight_timeline::Place>,
    until: Option<hindsight_timeline::Place>,
}

impl Fields {
    fn part(&mut self) -> Result<Part, Fail> {
        Ok(Part {
            thread: self.small("thread")?.map(ThreadId),
            image: self.small("image")?,
            from: self.place("from")?,
            until: self.place("until")?,
        })
    }
}

impl Part {
    fn filter(&self, c: &Context) -> Result<Filter, Fail> {
        Ok(Filter {
            thread: self.thread,
            image: self.image,
            from: c.position(self.from.clone(), self.image)?,
            until: c.position(self.until.clone(), self.image)?,
            ..Filter::default()
        })
    }
}

pub fn events(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let part = f.part()?;
    let (kinds, syscalls) = (f.words("kinds")?, f.words("syscalls")?);
    let (words, time) = (f.flag("arguments")?, f.flag("time")?);
    f.end()?;
    c.lists.room()?;
    let mut filter = part.filter(c)?;
    for kind in kinds {
        let unknown = |e: hindsight_timeline::ParseKindError| Fail::new(Fail::NAME, e.to_string());
        filter.kinds.push(kind.parse().map_err(unknown)?);
    }
    for name in syscalls {
        let unknown = |e: anyhow::Error| Fail::new(Fail::NAME, e.to_string());
        filter
            .syscalls
            .push(travel::syscall(&name).map_err(unknown)?);
    }
    if filter.kinds.is_empty() && !filter.syscalls.is_empty() {
        filter.kinds.push(hindsight_timeline::KindOf::Syscall);
    }
    let all = c.timeline.events(&filter)?;
    let times = match time {
        true => Some(times(c.timeline, &all, c.cancel)?),
        false => None,
    };
    let total = all.len();
    let list = List::Events {
        rest: all.into_iter(),
        words,
        times,
    };
    Ok(c.lists.add(list, Some(total)))
}

fn times(
    t: &Timeline,
    all: &[Happening],
    cancel: &Cancel,
) -> Result<IntoIter<Option<Moment>>, Fail> {
    let mut times = Vec::with_capacity(all.len());
    for h in all {
        cancel.check()?;
        times.push(t.when(h.position)?);
    }
    in_order(&mut times);
    Ok(times.into_iter())
}

pub fn calls(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let part = f.part()?;
    let function = Fields::must("function", f.word("function")?)?;
    let arguments = f.flag("arguments")?;
    f.end()?;
    c.lists.room()?;
    let image = called::image_of(c.timeline, part.image, part.thread)?;
    let mut filter = part.filter(c)?;
    filter.image = Some(image);
    let functions = called::functions(c.inspector, image, &function)?;
    if functions.is_empty() {
        let none = called::no_function(c.inspector, image, &function)?;
        return Err(Fail::new(Fail::NAME, none));
    }
    let all = called::found(c.timeline, &functions, &filter, c.cancel)?;
    let total = all.len();
    let list = List::Calls {
        rest: all.into_iter(),
        known: Vec::new(),
        arguments,
        image,
    };
    Ok(c.lists.add(list, Some(total)))
}

pub fn writes(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let spot = f.spot()?;
    let bytes = f.bytes()?;
    f.end()?;
    c.lists.room()?;
    c.seek(&spot)?;
    let (address, length) = c.bytes(&bytes, spot.frame)?;
    let writes = c
        .cursor
        .writes(address, length, length.min(SHOWN) as usize)?;
    Ok(c.lists.add(List::Writes(Box::new(writes)), None))
}

pub fn states(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let image = f.small("image")?;
    f.end()?;
    c.lists.room()?;
    // Of an image that is not there, nothing would be said.
    c.position(Some(Place::Begin), image)?;
    let all = c.timeline.state_points(image)?;
    let total = all.len();
    let list = List::States {
        rest: all.into_iter(),
        number: 1,
    };
    Ok(c.lists.add(list, Some(total)))
}

pub fn output(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let fd = f.word("fd")?;
    let all_ways = f.flag("input")?;
    let of = args::Moved {
        thread: f.small("thread")?,
        image: f.small("image")?,
        from: f.place("from")?,
        until: f.place("until")?,
    };
    f.end()?;
    c.lists.room()?;
    let (usual, way) = match all_ways {
        true => (Through::Any, None),
        false => (Through::Standard, Some(Way::Out)),
    };
    let through = Through::new(fd.as_deref(), usual);
    let choice = Choice::new(c.timeline, through, way, &of)?;
    let mut all = Vec::new();
    let unseen = (c.timeline).flow(choice.paths(), choice.until, &mut |_, flow| {
        c.cancel.check()?;
        if let Flow::Moved(t) = flow
            && choice.has(t)
        {
            all.push(t.clone());
        }
        Ok(())
    })?;
    let total = all.len();
    let list = List::Output {
        rest: all.into_iter(),
        begun: None,
    };
    let mut opened = c.lists.add(list, Some(total));
    let Unseen { gaps, hidden, .. } = unseen;
    opened["gaps"] = gaps.into();
    opened["hidden"] = hidden.into();
    Ok(opened)
}

pub fn close(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let number = Fields::must("list", f.number("list")?)?;
    f.end()?;
    Ok(json!({ "closed": c.lists.close(number) }))
}

/// A page that is sent piece by piece, since an element may be large.
struct Page<'a> {
    items: Vec<Json>,
    /// Of those that were not sent, and of all.
    bytes: (usize, usize),
    send: &'a dyn Fn(Vec<Json>),
}

impl Page<'_> {
    /// Adds an element that was looked up. A cancelled look-up may have taken for unknown what is known.
    fn add(&mut self, item: Json, cancel: &Cancel) -> Result<(), Fail> {
        cancel.check()?;
        self.put(item);
        Ok(())
    }

    fn put(&mut self, item: Json) {
        let n = item.to_string().len();
        self.bytes = (self.bytes.0 + n, self.bytes.1.saturating_add(n));
        self.items.push(item);
        if self.bytes.0 >= BYTES / 4 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.bytes.0 = 0;
        if !self.items.is_empty() {
            (self.send)(std::mem::take(&mut self.items));
        }
    }
}

/// The next page of a list. What it has comes before the answer, which says whether that was all.
pub fn next(c: &mut Context, mut f: Fields) -> Result<Json, Fail> {
    let number = Fields::must("list", f.number("list")?)?;
    let most = f.number("count")?.unwrap_or(100);
    f.end()?;
    if !(1..=PAGE).contains(&most) {
        return Err(Fail::request(format!("`count` is from 1 to {PAGE}")));
    }
    let none = || Fail::new(Fail::PLACE, format!("no list {number} is open"));
    let list = c.lists.open.get_mut(&number).ok_or_else(none)?;
    let mut page = Page {
        items: Vec::new(),
        bytes: (0, 0),
        send: c.items,
    };
    let mut fill = || -> Result<bool, Fail> {
        for _ in 0..most {
            c.cancel.check()?;
            if !list.next(c.inspector, c.cursor, c.cancel, &mut page)? {
                return Ok(true);
            }
            if page.bytes.1 >= BYTES {
                break;
            }
        }
        Ok(false)
    };
    let done = fill();
    // What was taken before an error does not come again.
    page.flush();
    let done = done?;
    if done {
        c.lists.open.remove(&number);
    }
    Ok(json!({ "done": done }))
}

impl List {
    /// Adds the next element to a page. False: there are no more.
    fn next(
        &mut self,
        inspector: &mut Inspector,
        cursor: &mut Cursor,
        cancel: &Cancel,
        page: &mut Page,
    ) -> Result<bool, Fail> {
        match self {
            List::Events { rest, words, times } => {
                // What fails stays in the list, and may be asked for again.
                let Some(h) = rest.as_slice().first() else {
                    return Ok(false);
                };
                page.add(event(cursor, h, *words, times.as_ref())?, cancel)?;
                rest.next();
                times.as_mut().map(Iterator::next);
            }
            List::Calls {
                rest,
                known,
                arguments,
                image,
            } => {
                let Some(call) = rest.as_slice().first() else {
                    return Ok(false);
                };
                let shown = Shown::of(inspector, cursor, call, known, *arguments)?;
                let mut j = shown.json();
                j["here"] = entry(cursor, call, *image)?;
                page.add(j, cancel)?;
                rest.next();
            }
            List::Writes(writes) => match writes.next(cancel)? {
                Some(w) => page.put(travel::written_json(&w)),
                None => return Ok(false),
            },
            List::States { rest, number } => {
                let Some(s) = rest.next() else {
                    return Ok(false);
                };
                page.put(states::as_json(*number, &s));
                *number += 1;
            }
            List::Output { rest, begun } => {
                let Some(t) = rest.as_slice().first() else {
                    return Ok(false);
                };
                let (j, from) = transfer(cursor, t, begun)?;
                page.add(j, cancel)?;
                match begun {
                    Some(b) if from < t.len => b.from = from,
                    _ => {
                        *begun = None;
                        rest.next();
                    }
                }
            }
        }
        Ok(true)
    }
}

fn event(
    cursor: &mut Cursor,
    h: &Happening,
    words: bool,
    times: Option<&IntoIter<Option<Moment>>>,
) -> Result<Json, Fail> {
    let mut j = travel::event_json(h);
    if words && matches!(h.kind, Kind::Syscall { .. }) {
        // What cannot be replayed can be listed nevertheless.
        match cursor.system_call(h) {
            Ok(Some(call)) => {
                j["arguments"] = call.arguments.into();
                j["returned"] = call.result.into();
            }
            Err(e @ hindsight_timeline::Error::Cancelled) => return Err(e.into()),
            Ok(None) | Err(_) => {}
        }
    }
    if let Some(times) = times {
        let time = times.as_slice().first().copied().flatten();
        j["time"] = travel::moment_json(time);
    }
    Ok(j)
}

/// The instant at which a call begins: where the function's first instruction comes next.
fn entry(cursor: &mut Cursor, call: &Call, image: u32) -> Result<Json, Fail> {
    if call.handler {
        cursor.seek_call(call)?;
        return here(cursor);
    }
    Ok(json!({
        "position": call.position.to_string(), "thread": call.thread.0, "count": call.count,
        "image": image,
    }))
}

/// The next piece of what a call moved, at most 64 KiB, with the number of bytes before it in `from`. A piece is text where
/// that is what it is, and otherwise a list of bytes, with null for those that are not known. Also returns how many bytes
/// have been handed out with it.
fn transfer(
    cursor: &mut Cursor,
    t: &Transfer,
    begun: &mut Option<Begun>,
) -> Result<(Json, u64), Fail> {
    let mut j = head_json(t);
    if !t.is_in_memory() || t.len == 0 {
        j["from"] = 0.into();
        j["bytes"] = Json::Null;
        j["text"] = if t.len == 0 { "".into() } else { Json::Null };
        return Ok((j, t.len));
    }
    let begun = match begun {
        Some(b) => b,
        None => {
            let content = t.content();
            begun.insert(Begun {
                buffers: content.buffers(cursor)?,
                content,
                from: 0,
            })
        }
    };
    let piece = begun.content.piece(cursor, &begun.buffers, begun.from)?;
    j["from"] = begun.from.into();
    let mut characters = Characters::default();
    (j["text"], j["bytes"]) = match characters.add(&piece).filter(|_| characters.is_whole()) {
        Some(text) => (text.into(), Json::Null),
        None => (Json::Null, json!(piece)),
    };
    Ok((j, begun.from + piece.len() as u64))
}
