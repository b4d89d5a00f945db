//! The words of a command line that are no options: a recording, which may be left out, and a question about it.

use crate::parse;
use crate::{args, store, travel};
use anyhow::{Result, bail};
use hindsight_inspect::Inspector;
use hindsight_timeline::{Cursor, Error, Options, Place, Position, ThreadId, Timeline};
use std::path::{Path, PathBuf};

/// Bytes where neither the user nor a type says how many.
const WORD: u64 = 8;

/// Takes the recording out of some words, if it is named there. Besides it there are `least` to `most` words. If the first
/// word could be either, it is the recording if it is a file, ends in `.hst`, or is no place but a name in the store.
pub fn take(words: &mut Vec<String>, least: usize, most: usize) -> Option<PathBuf> {
    let first = words.first()?;
    let named = words.len() > most || words.len() > least && store::is_meant(first);
    named.then(|| PathBuf::from(words.remove(0)))
}

/// The same for a recording and a place in one word, `FILE@PLACE`, before any number of others. Without FILE the latest
/// recording is meant. A word stays if neither its FILE is a recording nor its PLACE a place: names of functions may have
/// an `@`.
pub fn take_with_place(words: &mut Vec<String>) -> (Option<PathBuf>, Option<String>) {
    let file = take(words, 1, usize::MAX);
    if file.is_some() || words.len() < 2 {
        return (file, None);
    }
    let Some((file, place)) = words[0].rsplit_once('@') else {
        return (None, None);
    };
    let named = !file.is_empty() && store::is_meant(file);
    if !named && place.parse::<Place>().is_err() {
        return (None, None);
    }
    let taken = (!file.is_empty()).then(|| PathBuf::from(file));
    let place = place.to_owned();
    words.remove(0);
    (taken, Some(place))
}

/// Takes recordings out of some words: all but the last one, which may be a question in a language of its own. A word with a
/// space or a line in it is a question, unless it is a file or a pattern of files. If the only word is neither, it is a
/// recording. If the last of several words is neither, it is a question.
pub fn take_before_question(words: &mut Vec<String>) -> Result<Vec<String>> {
    let is_file = |w: &str| Path::new(w).is_file() || store::matches(w);
    let is_question = |w: &String| w.contains([' ', '\n', '\t', ';']) && !is_file(w);
    let asks = match &words[..] {
        [] => false,
        [one] => is_question(one),
        [.., last] if is_question(last) => true,
        [.., last] if is_file(last) || store::is_meant(last) => false,
        [.., last] if is_word(last) => bail!("{last} is neither a recording nor a question"),
        _ => true,
    };
    let question = match asks {
        true => words.split_off(words.len() - 1),
        false => Vec::new(),
    };
    if words.iter().any(is_question) {
        bail!("recordings come first, then the question");
    }
    Ok(std::mem::replace(words, question))
}

/// Whether a text may name something, and is no statement that needs no spaces.
fn is_word(text: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    let begin = text.get(..6).unwrap_or("");
    text.chars().all(part) && !begin.eq_ignore_ascii_case("select")
}

/// The crash, or else the end.
pub fn usual(timeline: &Timeline, image: Option<u32>) -> hindsight_timeline::Result<Position> {
    match timeline.find(Place::Crash, image) {
        Err(Error::NoPlace(_)) => timeline.find(Place::End, image),
        found => found,
    }
}

/// Where a recording is looked at.
pub struct Spot {
    pub inspector: Inspector,
    pub cursor: Cursor,
}

impl Spot {
    /// Opens the recording of this process at a place; default: the crash, or else the end.
    pub fn open(place: Option<&String>, at: &args::Within) -> Result<Spot> {
        let timeline = travel::open(None, Options::default())?;
        let position = match place {
            Some(p) => timeline.find(p.parse::<Place>()?, at.image)?,
            None => usual(&timeline, at.image)?,
        };
        let mut cursor = timeline.cursor()?;
        cursor.seek_within(position, at.image, at.thread.map(ThreadId))?;
        Ok(Spot {
            inspector: Inspector::new(timeline),
            cursor,
        })
    }

    /// The bytes that an address and perhaps a length stand for, in a frame.
    pub fn bytes(&mut self, words: &[String], frame: usize) -> Result<(u64, u64)> {
        let length = words.get(1).map(|l| length(l)).transpose()?;
        bytes(
            &mut self.inspector,
            &mut self.cursor,
            (&words[0], length),
            frame,
        )
    }
}

/// The same at a cursor. There is a length if the user said one.
pub fn bytes(
    inspector: &mut Inspector,
    cursor: &mut Cursor,
    (address, length): (&str, Option<u64>),
    frame: usize,
) -> Result<(u64, u64)> {
    if let Ok(address) = parse::number(address) {
        return Ok((address, length.unwrap_or(WORD)));
    }
    let named = inspector.named(cursor, address, frame)?;
    let size = named.size.unwrap_or(WORD).min(MOST);
    Ok((named.address, length.unwrap_or(size)))
}

/// A number of bytes.
pub const MOST: u64 = 1 << 20;

fn length(text: &str) -> Result<u64> {
    match parse::number(text) {
        Ok(0) => bail!("{text}: expected at least one byte"),
        Ok(n) if n > MOST => bail!("{text}: at most a mebibyte at a time"),
        Ok(n) => Ok(n),
        Err(e) => bail!("{text}: {e}"),
    }
}
