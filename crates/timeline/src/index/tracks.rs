//! The calls of a function in a thread, in memory and in the index file.

use super::codec::{Reader, put};

/// At most this many calls of a function in one thread are stored.
pub const MOST: usize = 1 << 24;

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Track {
    pub count: u64,
    /// The instant of the return. [`NEVER`] if it did not return.
    pub returned: u64,
    pub to: u64,
    pub value: u64,
}

/// No call in a recording returns at this instant.
pub const NEVER: u64 = u64::MAX;

/// All calls of a function in a thread.
#[derive(Default, Debug)]
pub struct Tracks {
    /// The calls, in order.
    pub calls: Vec<Track>,
    /// The numbers of the calls that returned, in the order of the returns.
    pub returns: Vec<u32>,
}

impl Tracks {
    pub fn new(mut calls: Vec<Track>) -> Tracks {
        calls.sort_by_key(|c| c.count);
        let mut returns: Vec<u32> = (0..calls.len() as u32)
            .filter(|i| calls[*i as usize].returned != NEVER)
            .collect();
        returns.sort_by_key(|i| calls[*i as usize].returned);
        Tracks { calls, returns }
    }

    /// The calls as bytes: first their number, then for each call
    ///
    /// - the instructions since the call before;
    /// - the address to which it is to return;
    /// - 0 if it did not return. Otherwise the instructions until it did, plus 1, and then what rax held.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.calls.len() as u64);
        let mut before = 0;
        for c in &self.calls {
            put(&mut out, c.count - before);
            before = c.count;
            put(&mut out, c.to);
            if c.returned == NEVER {
                put(&mut out, 0);
            } else {
                put(&mut out, c.returned - c.count + 1);
                put(&mut out, c.value);
            }
        }
        out
    }

    /// Inverse of [`Tracks::encode`]. `None`: the bytes are no list of calls.
    pub fn decode(bytes: &[u8]) -> Option<Tracks> {
        let mut r = Reader { b: bytes, at: 0 };
        let n = r.int()?;
        let mut calls = Vec::new();
        let mut count = 0u64;
        for _ in 0..n {
            count = count.checked_add(r.int()?)?;
            let to = r.int()?;
            let (returned, value) = match r.int()? {
                0 => (NEVER, 0),
                after => (count.checked_add(after - 1)?, r.int()?),
            };
            calls.push(Track {
                count,
                returned,
                to,
                value,
            });
        }
        (r.at == bytes.len() && calls.len() <= MOST).then(|| Tracks::new(calls))
    }

    /// The first return at instants `lo..=hi`; with `last`, the last one.
    pub fn nearest_return(&self, lo: u64, hi: u64, last: bool) -> Option<Track> {
        let at = |i: &u32| self.calls[*i as usize].returned;
        let found = match last {
            false => self.returns.partition_point(|i| at(i) < lo),
            true => (self.returns.partition_point(|i| at(i) <= hi)).checked_sub(1)?,
        };
        let track = self.calls[*self.returns.get(found)? as usize];
        (lo..=hi).contains(&track.returned).then_some(track)
    }

    /// The first call at instants `lo..=hi`; with `last`, the last one.
    pub fn nearest_call(&self, lo: u64, hi: u64, last: bool) -> Option<Track> {
        let found = match last {
            false => self.calls.partition_point(|c| c.count < lo),
            true => (self.calls.partition_point(|c| c.count <= hi)).checked_sub(1)?,
        };
        let track = *self.calls.get(found)?;
        (lo..=hi).contains(&track.count).then_some(track)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_saved_as_they_are() {
        let track = |count, returned, value| Track {
            count,
            returned,
            to: 0x40_1000 + count,
            value,
        };
        let all = [track(5, 9, 1), track(6, NEVER, 0), track(7, 8, u64::MAX)];
        let tracks = Tracks::new(all.to_vec());
        let bytes = tracks.encode();
        let back = Tracks::decode(&bytes).unwrap();
        assert_eq!(format!("{tracks:?}"), format!("{back:?}"));
        for n in 0..bytes.len() {
            assert!(Tracks::decode(&bytes[..n]).is_none(), "{n}");
        }
    }
}
