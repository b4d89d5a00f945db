//! What a key frame builds on. A key frame of a quiet thread may restate only what has changed since an earlier one, its
//! base, which may have a base of its own. The last one restates all memory.

use crate::Error;
use hindsight_events::{Decoder, Event};
use hindsight_trace::ChunkMeta;
use std::sync::Arc;

/// Most key frames that one may build on, directly or not. The recorder needs less than half as many.
pub const MOST: usize = 64;

/// Reads the chunk of this number of a stream. `None` if the stream has fewer.
pub type Load<'a> = dyn FnMut(usize) -> Result<Option<Arc<Vec<u8>>>, Error> + 'a;

/// Takes an event that restates a part of memory.
pub type Lay<'a> = dyn FnMut(&Event) -> Result<(), Error> + 'a;

/// The position of a chunk's first event, and whether that is a key frame. `None` if the stream has fewer chunks.
pub type Look<'a> = dyn Fn(usize) -> Option<(u64, bool)> + 'a;

/// What [`Look`] answers for these chunks of a stream.
pub fn look(chunks: &[ChunkMeta], i: usize) -> Option<(u64, bool)> {
    chunks.get(i).map(|c| (c.first_pos, c.keyframe))
}

/// Shows the memory that is restated by the key frames on which the one in chunk `frame` builds, the oldest first. `back`
/// says which is its base (see [`Event::Restate`]).
///
/// Only memory is shown, not files: a key frame names all files that are in memory.
pub fn below(
    look: &Look,
    frame: usize,
    back: u64,
    load: &mut Load,
    lay: &mut Lay,
) -> Result<(), Error> {
    let mut bases = Vec::new();
    let (mut at, mut back) = (frame, back);
    while back != 0 {
        let position = look(at).map_or(0, |c| c.0);
        if bases.len() == MOST {
            let what = "a key frame builds on more than 64 others";
            return Err(Error::Corrupt { position, what });
        }
        at = base(look, at, back).ok_or(Error::MissingBase { position, back })?;
        bases.push(at);
        let wire = load(at)?.unwrap_or_default();
        back = begin(&wire).ok_or(Error::Corrupt {
            position,
            what: "a key frame builds on one that restates nothing",
        })?;
    }
    bases.into_iter().rev().try_for_each(|at| {
        let position = look(at).map_or(0, |c| c.0);
        show(at, position, load, lay)
    })
}

/// The chunk of the key frame that is `back` key frames before the one in chunk `frame`.
pub fn base(look: &Look, frame: usize, back: u64) -> Option<usize> {
    let nth = usize::try_from(back.checked_sub(1)?).ok()?;
    let is_frame = |i: &usize| look(*i).is_some_and(|c| c.1);
    (0..frame).rev().filter(is_frame).nth(nth)
}

/// Which base a chunk's key frame has: how many key frames before it that is. 0: it has none. `None` if the chunk does not begin with a key frame that restates memory.
pub fn begin(wire: &[u8]) -> Option<u64> {
    let (mut decoder, mut at) = (Decoder::default(), 0);
    loop {
        let (_, event, n) = decoder.decode(&wire[at..])?;
        match event {
            Event::KeyFrame { .. } if at == 0 => {}
            Event::Time { .. } if at != 0 => {}
            Event::Restate { ends: false, back } if at != 0 => return Some(back),
            _ => return None,
        }
        at += n;
    }
}

/// Shows the memory that is restated at the beginning of chunk `first`. The next chunks may have the rest of it.
fn show(first: usize, position: u64, load: &mut Load, lay: &mut Lay) -> Result<(), Error> {
    let corrupt = |what| Error::Corrupt { position, what };
    let mut next = first;
    while let Some(wire) = load(next)? {
        let (mut decoder, mut at) = (Decoder::default(), 0);
        while let Some((_, event, n)) = decoder.decode(&wire[at..]) {
            at += n;
            match event {
                Event::Restate { ends: true, .. } => return Ok(()),
                Event::Memory { .. } | Event::Zero { .. } => lay(&event)?,
                Event::KeyFrame { .. } | Event::Restate { .. } if next == first => {}
                Event::File { .. } | Event::FileOf { .. } | Event::Time { .. } => {}
                _ => return Err(corrupt("something else than memory is restated")),
            }
        }
        if at < wire.len() {
            return Err(corrupt("an event does not decode"));
        }
        next += 1;
    }
    Err(corrupt("the memory that a key frame restates has no end"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_events::event::tag;
    use hindsight_events::{Encoder, MAX_EVENT};
    use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};

    fn encode(pos: u64, events: &[Event]) -> Vec<u8> {
        let mut e = Encoder::default();
        let mut buf = vec![0; MAX_EVENT];
        let mut out = Vec::new();
        for ev in events {
            let n = e.encode(pos, ev, &mut buf);
            out.extend_from_slice(&buf[..n]);
        }
        out
    }

    const FRAME: Event = Event::KeyFrame {
        code_epoch: 0,
        cpu: &[0; CPU_STATE_LEN],
        vec: &[0; VEC_STATE_LEN],
    };
    const ENDS: Event = Event::Restate {
        ends: true,
        back: 0,
    };

    fn begins(back: u64) -> Event<'static> {
        Event::Restate { ends: false, back }
    }

    fn says(byte: &u8) -> Event<'_> {
        Event::Memory {
            addr: *byte as u64,
            bytes: std::slice::from_ref(byte),
        }
    }

    /// What is shown below the last of these chunks, whose base is `back`. An empty chunk is none of a key frame.
    fn shown(chunks: &[Vec<u8>], back: u64) -> Result<Vec<u64>, Error> {
        let mut out = Vec::new();
        let look = |i: usize| {
            let c = chunks.get(i)?;
            Some((10 * i as u64, c.first() == Some(&tag::KEY_FRAME)))
        };
        let mut load = |i: usize| Ok(chunks.get(i).cloned().map(Arc::new));
        let mut lay = |e: &Event| {
            match e {
                Event::Memory { addr, .. } | Event::Zero { addr, .. } => out.push(*addr),
                _ => panic!("{e:?}"),
            }
            Ok(())
        };
        below(&look, chunks.len() - 1, back, &mut load, &mut lay)?;
        Ok(out)
    }

    /// A key frame that restates these bytes.
    fn frame(back: u64, bytes: &[u8]) -> Vec<u8> {
        let memory = bytes.iter().map(says);
        let begin = [FRAME, Event::Time { since: 0, until: 1 }, begins(back)];
        let all: Vec<Event> = begin.into_iter().chain(memory).chain([ENDS]).collect();
        encode(0, &all)
    }

    #[test]
    fn the_oldest_comes_first() {
        let other = encode(0, &[Event::RepChunk { iterations: 1 }]);
        let zero = Event::Zero { addr: 7, len: 1 };
        let file = Event::FileOf {
            addr: 99,
            len: 1,
            module: 0,
            offset: 0,
        };
        let chunks = [
            encode(0, &[FRAME, begins(0), file, says(&1)]),
            encode(0, &[says(&2), ENDS]),
            other.clone(),
            frame(1, &[3]),
            encode(0, &[FRAME, begins(2), zero, ENDS, says(&50)]),
            other,
            frame(1, &[8]),
            frame(1, &[60]),
        ];
        assert_eq!(shown(&chunks, 1).unwrap(), [1, 2, 7, 8]);
        assert_eq!(shown(&chunks, 2).unwrap(), [1, 2, 7]);
        assert_eq!(shown(&chunks, 3).unwrap(), [1, 2, 3]);
        assert_eq!(shown(&chunks, 4).unwrap(), [1, 2]);
        assert_eq!(shown(&chunks, 0).unwrap(), [0; 0]);
    }

    #[test]
    fn chains_that_make_no_sense_are_refused() {
        let last = frame(1, &[]);
        let says_why = |chunks: &[Vec<u8>], back: u64| shown(chunks, back).unwrap_err().to_string();
        // The base is missing: before the stream, or dropped.
        for back in [2, 3, u64::MAX] {
            let e = says_why(&[frame(0, &[1]), last.clone()], back);
            assert!(e.contains(&format!("{back} key frames before")), "{e}");
        }
        let e = says_why(&[frame(3, &[1]), last.clone()], 1);
        assert!(e.contains("position 0 builds on the one that is 3"), "{e}");
        // The base restates nothing.
        let nothing = "builds on one that restates nothing";
        let time = Event::Time { since: 0, until: 1 };
        for base in [vec![FRAME], vec![FRAME, time, says(&1)], vec![FRAME, ENDS]] {
            let e = says_why(&[encode(0, &base), last.clone()], 1);
            assert!(e.contains(nothing), "{e}");
        }
        // It has no end, does not decode, or restates something else.
        let open = encode(0, &[FRAME, begins(0), says(&1)]);
        let mut cut = open.clone();
        cut.pop();
        let strange = encode(0, &[FRAME, begins(0), Event::RepChunk { iterations: 1 }]);
        let within = [open.clone(), encode(0, &[FRAME]), last.clone()];
        assert!(says_why(&within, 2).contains("something else than memory"));
        assert!(says_why(&[cut, last.clone()], 1).contains("does not decode"));
        assert!(says_why(&[strange, last.clone()], 1).contains("something else than memory"));
        let end = |e: Error| matches!(e, Error::Corrupt { .. });
        assert!(shown(&[open, encode(0, &[]), vec![], last.clone()], 1).is_err_and(end));
        // Too many.
        let mut long = vec![frame(0, &[1])];
        long.resize(MOST, last.clone());
        long.push(last.clone());
        assert_eq!(shown(&long, 1).unwrap(), [1]);
        long.push(last);
        assert!(says_why(&long, 1).contains("more than 64"));
    }
}
