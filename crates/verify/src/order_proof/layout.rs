//! Which memory of a process other processes share.
//!
//! A mapping of shared memory says which memory it is (`object` of `Event::Map`). A word of such memory gets
//! a *key*. The key is the same in all processes, and at all addresses of one process.

use hindsight_events::{Decoder, Event};
use hindsight_replay::Error;
use hindsight_trace::{StreamKind, Trace};
use std::collections::HashMap;
use std::ops::Range;

const MAP_SHARED: u32 = 1;

/// The low bits of a key are the offset in its object.
const OFFSET_BITS: u32 = 44;
/// Most objects that can be told apart.
const MOST: usize = 1 << (64 - OFFSET_BITS);

/// The shared memory of a whole recording.
#[derive(Default)]
pub struct Objects {
    numbers: HashMap<u64, usize>,
    /// For each object: only processes of the recording can have it.
    own: Vec<bool>,
}

impl Objects {
    /// The index of the object that events call `name`. `None` if the name is 0 or there are too many
    /// objects.
    fn index(&mut self, name: u64) -> Option<usize> {
        if name == 0 {
            return None;
        }
        let next = self.own.len();
        let i = *self.numbers.entry(name & !1).or_insert(next);
        if i >= MOST {
            return None;
        }
        if i == next {
            self.own.push(true);
        }
        self.own[i] &= name & 1 != 0;
        Some(i)
    }

    /// Whether only processes of the recording can have changed the memory of `key`.
    pub fn is_own(&self, key: u64) -> bool {
        let i = (key >> OFFSET_BITS) as usize;
        self.own.get(i).is_some_and(|own| *own)
    }
}

/// One mapping of shared memory.
#[derive(Clone, Debug)]
struct Mapping {
    range: Range<u64>,
    /// The order numbers between which it existed.
    from: u64,
    to: u64,
    /// What must be added to an address to get the key. `None`: nobody knows which memory it is.
    delta: Option<u64>,
}

/// Where and when a process has shared memory. All other memory is its own.
#[derive(Default, Debug)]
pub struct Layout {
    /// Sorted by their start addresses.
    mappings: Vec<Mapping>,
    /// For each mapping, the greatest end of it and all before it.
    reach: Vec<u64>,
}

impl Layout {
    /// The layout of the image `image` of `trace`.
    pub fn new(trace: &Trace, image: u32, objects: &mut Objects) -> Result<Layout, Error> {
        let mut building = Building::default();
        let streams = trace.image(image).map_or(&[][..], |i| &i.streams);
        let is_image = |s: &&_| {
            trace
                .stream_info(**s)
                .is_some_and(|i| i.kind == StreamKind::Image)
        };
        for s in streams.iter().filter(is_image) {
            for c in trace.chunks(*s) {
                let wire = trace.load(c)?;
                let (mut decoder, mut at) = (Decoder::default(), 0);
                while let Some((_, event, n)) = wire.get(at..).and_then(|b| decoder.decode(b)) {
                    at += n;
                    building.see(&event, objects);
                }
            }
        }
        Ok(building.finish())
    }

    /// The mapping that had `address` at some time between two order numbers.
    fn find(&self, address: u64, (open, close): (u64, u64)) -> Option<&Mapping> {
        let n = self.mappings.partition_point(|m| m.range.start <= address);
        (0..n)
            .rev()
            .take_while(|i| self.reach[*i] > address)
            .map(|i| &self.mappings[i])
            .find(|m| m.range.contains(&address) && open < m.to && m.from < close)
    }

    /// The key of the word at `address` between two order numbers. `None` if it is not shared, or nobody
    /// knows which memory it is.
    pub fn key(&self, address: u64, when: (u64, u64)) -> Option<u64> {
        let delta = self.find(address, when)?.delta?;
        Some(address.wrapping_add(delta))
    }

    /// Whether unknown other processes may have shared the memory at `address`.
    pub fn is_unclear(&self, address: u64, when: (u64, u64)) -> bool {
        self.find(address, when).is_some_and(|m| m.delta.is_none())
    }

    /// Whether any memory has a key.
    pub fn has_keys(&self) -> bool {
        self.mappings.iter().any(|m| m.delta.is_some())
    }

    /// The addresses at which the word with this key ever is. There may be none, or several.
    pub fn addresses(&self, key: u64) -> impl Iterator<Item = u64> {
        self.mappings.iter().filter_map(move |m| {
            let address = key.wrapping_sub(m.delta?);
            m.range.contains(&address).then_some(address)
        })
    }
}

/// A layout whose events are being read.
#[derive(Default)]
struct Building {
    /// The order number after the last change of shared memory.
    now: u64,
    /// The mappings at present. They do not overlap.
    present: Vec<Mapping>,
    past: Vec<Mapping>,
}

impl Building {
    fn see(&mut self, event: &Event, objects: &mut Objects) {
        match *event {
            Event::Seq { number } => self.now = number,
            Event::Unmap { addr, len } => self.cut(addr..addr.saturating_add(len)),
            Event::Map {
                addr,
                len,
                flags,
                offset,
                object,
                ..
            } => {
                let range = addr..addr.saturating_add(len);
                self.cut(range.clone());
                if flags & MAP_SHARED == 0 {
                    return;
                }
                let fits = offset.saturating_add(len) < 1 << OFFSET_BITS;
                let index = objects.index(object).filter(|_| fits);
                let key = index.map(|i| (i as u64) << OFFSET_BITS | offset);
                self.present.push(Mapping {
                    range,
                    // If the memory has no name, nobody knows either since when it is there.
                    from: if object == 0 { 0 } else { self.now },
                    to: u64::MAX,
                    delta: key.map(|k| k.wrapping_sub(addr)),
                });
            }
            _ => {}
        }
    }

    /// Removes the mappings in `range`: something else is there now.
    fn cut(&mut self, range: Range<u64>) {
        let mut rest = Vec::new();
        let now = self.now;
        let past = &mut self.past;
        self.present.retain(|m| {
            let r = &m.range;
            if r.end <= range.start || range.end <= r.start {
                return true;
            }
            let part = |range: Range<u64>, to| Mapping {
                range,
                to,
                ..m.clone()
            };
            let gone = r.start.max(range.start)..r.end.min(range.end);
            past.push(part(gone, now.max(m.from)));
            let left = [r.start..range.start, range.end..r.end];
            let left = left.into_iter().filter(|r| !r.is_empty());
            rest.extend(left.map(|r| part(r, m.to)));
            false
        });
        self.present.append(&mut rest);
    }

    fn finish(mut self) -> Layout {
        let mut mappings = self.past;
        mappings.append(&mut self.present);
        mappings.sort_by_key(|m| (m.range.start, m.from));
        let mut end = 0;
        let reach = mappings.iter().map(|m| {
            end = m.range.end.max(end);
            end
        });
        Layout {
            reach: reach.collect(),
            mappings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALWAYS: (u64, u64) = (0, u64::MAX);

    fn map(addr: u64, len: u64, flags: u32, offset: u64, object: u64) -> Event<'static> {
        Event::Map {
            addr,
            len,
            prot: 3,
            flags,
            offset,
            object,
            path: b"",
        }
    }

    #[test]
    fn memory_is_the_same_at_times() {
        let mut objects = Objects::default();
        let mut b = Building::default();
        for event in [
            Event::Seq { number: 10 },
            map(0x1000, 0x3000, MAP_SHARED, 0x5000, 7),
            Event::Seq { number: 20 },
            map(0x2000, 0x1000, 2, 0, 0),
            map(0x2000, 0x1000, MAP_SHARED, 0, 0),
            Event::Seq { number: 30 },
            map(0x2000, 0x4000, MAP_SHARED, 0x6000, 7),
            Event::Seq { number: 40 },
            Event::Unmap {
                addr: 0x1000,
                len: 0x2000,
            },
        ] {
            b.see(&event, &mut objects);
        }
        let l = b.finish();
        assert_eq!(l.key(0x1008, (12, 13)), Some(0x5008));
        assert_eq!(l.key(0x3000, (12, 13)), Some(0x7000));
        for (address, when) in [
            (0xfff, ALWAYS),
            (0x1008, (0, 10)),
            (0x1008, (40, 41)),
            (0x2000, (25, 26)),
            (0x2000, (40, 50)),
            (0x6000, ALWAYS),
        ] {
            assert_eq!(l.key(address, when), None, "{address:x} {when:?}");
        }
        assert!(l.is_unclear(0x2000, (25, 26)) && !l.is_unclear(0x2000, (31, 32)));
        assert_eq!(l.key(0x2000, (31, 32)), Some(0x6000));
        assert_eq!(l.key(0x5ff8, (50, 60)), Some(0x9ff8));
        let at: Vec<u64> = l.addresses(0x6008).collect();
        assert!(at.iter().all(|a| *a == 0x2008) && !at.is_empty());
    }

    #[test]
    fn objects_are_known_by_name() {
        let mut o = Objects::default();
        assert_eq!(o.index(0), None);
        let (a, b) = (o.index(7).unwrap(), o.index(8).unwrap());
        assert!(o.is_own((a as u64) << OFFSET_BITS) && !o.is_own((b as u64) << OFFSET_BITS));
        // The same object, and now the event says that others have it.
        assert_eq!(o.index(6), Some(a));
        assert!(!o.is_own((a as u64) << OFFSET_BITS | 0x1000));
    }
}
