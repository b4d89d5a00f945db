//! A chunk without what its patches say. Where the predictor fails often, patches are nearly all of a chunk. Who wants to know the
//! other events need not read them.

use super::{Filled, LENGTHS, col, lines, measure, put, read_as, shape, split};
use hindsight_events::event::{selected, tag};
use hindsight_events::varint::get;

/// A patch that says nothing: distance of its line, and mask.
const NOTHING: [u8; 2] = [0, 0];

/// Does what [`super::merge`] does, without patches of words. Where a patch is the first event, or the first one behind a time, one
/// that says nothing stands for it, so stretches of time begin where they do. `None` if the columns do not fit together.
pub fn outline(raw: &[u8]) -> Option<Vec<u8>> {
    let columns = split(raw)?;
    let patches = columns[col::TAG]
        .iter()
        .filter(|t| **t == tag::PATCH)
        .count();
    let distances = columns[col::LINE].iter().filter(|b| **b < 0x80).count();
    let words = selected(columns[col::MASK]);
    let fits = distances == patches && words == columns[col::WORD].len();
    if !fits || columns[col::LINE].last().is_some_and(|b| *b >= 0x80) {
        return None;
    }
    let mut out = Vec::with_capacity(raw.len() - LENGTHS - words);
    let (mut position, mut int, mut bulk, mut masks) = (0, 0, 0usize, 0usize);
    // The distance from the last event that was put out.
    let mut distance = 0u64;
    let (mut begins, mut filled) = (true, Filled::default());
    for t in columns[col::TAG] {
        let (delta, behind) = get(columns[col::POSITION], position)?;
        position = behind;
        distance = distance.checked_add(delta)?;
        let is_patch = matches!(*t, tag::PATCH | tag::LINES);
        if *t == tag::LINES {
            let n = lines(columns[col::INT], int)?;
            (int, masks) = (int + n.ints, masks.checked_add(n.masks)?);
        } else if is_patch {
            masks += 1;
        }
        if is_patch && !begins {
            continue;
        }
        out.push(if is_patch { tag::PATCH } else { read_as(*t) });
        put(&mut out, distance);
        (distance, begins) = (0, *t == tag::TIME);
        if is_patch {
            out.extend_from_slice(&NOTHING);
            continue;
        }
        if *t == tag::FRESH {
            int = filled.append(columns[col::INT], int, &mut out)?;
            continue;
        }
        let (ints, bytes) = measure(&shape(*t)?, columns[col::INT], int)?;
        out.extend_from_slice(columns[col::INT].get(int..int + ints)?);
        out.extend_from_slice(columns[col::BULK].get(bulk..bulk.checked_add(bytes)?)?);
        (int, bulk) = (int + ints, bulk + bytes);
    }
    let ends = [position, int, bulk, masks];
    let all = [col::POSITION, col::INT, col::BULK, col::MASK].map(|c| columns[c].len());
    (ends == all).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::super::{ChunkBuilder, Content, Pushed, merge};
    use super::*;
    use hindsight_events::{Decoder, Encoder, Event};

    /// The events of a chunk with their positions, and where the stretch of time of each begins. Patches are left out.
    fn events(wire: &[u8]) -> Vec<(u64, u64, String)> {
        let (mut decoder, mut at) = (Decoder::default(), 0);
        let (mut first, mut out) = (None, Vec::new());
        while at < wire.len() {
            let (pos, event, n) = decoder.decode(&wire[at..]).unwrap();
            at += n;
            if let Event::Time { .. } = event {
                first = None;
            } else if first.is_none() {
                first = Some(pos);
            }
            if !matches!(event, Event::Patch { .. } | Event::Lines { .. }) {
                out.push((pos, first.unwrap_or(0), format!("{event:?}")));
            }
        }
        out
    }

    #[test]
    fn an_outline_has_all_but_patches() {
        let mut seed = 77u64;
        let mut random = move |n: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for round in 0..200 {
            let (mut encoder, mut wire, mut pos) =
                (Encoder::default(), Vec::new(), random(1 << 40));
            let bytes = [7; 40];
            for _ in 0..random(60) {
                pos += random(3) * random(1 << 20);
                let patch = Event::Patch {
                    line: 64 * random(1 << 30),
                    mask: random(256) as u8,
                    words: [random(1 << 40); 8],
                };
                let masks = [random(256) as u8; 5];
                let event = match random(10) {
                    9 => Event::Fresh {
                        addr: random(1 << 40),
                        len: random(8193) as u32,
                        key: random(1 << 60),
                    },
                    8 => Event::Lines {
                        line: 4096 * random(1 << 40) + 64 * random(60),
                        masks: &masks,
                        words: &[3; 5 * 64][..selected(&masks)],
                    },
                    0 => Event::Time {
                        since: pos,
                        until: pos + 5,
                    },
                    1 => Event::Memory {
                        addr: random(1 << 40),
                        bytes: &bytes[..random(40) as usize],
                    },
                    2 => Event::SyscallRet { ret: random(9) },
                    3 => Event::PatchBytes {
                        addr: random(1 << 40),
                        len: 1 + random(8) as u8,
                        value: 1,
                    },
                    _ => patch,
                };
                let mut buf = [0; hindsight_events::MAX_EVENT];
                let n = encoder.encode(pos, &event, &mut buf);
                wire.extend_from_slice(&buf[..n]);
            }
            let mut builder = ChunkBuilder::default();
            assert_eq!(builder.push(&wire, |_, _| None), (wire.len(), Pushed::More));
            let mut content = Content::default();
            builder.take(&mut content);
            let (all, some) = (merge(&content.raw).unwrap(), outline(&content.raw).unwrap());
            assert_eq!(events(&some), events(&all), "round {round}");
            assert!(some.len() <= all.len());
            // Cut columns are refused.
            for cut in 0..content.raw.len().min(200) {
                assert_eq!(outline(&content.raw[..cut]), None);
            }
        }
    }
}
