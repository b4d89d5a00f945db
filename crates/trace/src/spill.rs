//! A file that holds pieces for a while and reuses the room of dropped ones.

use hindsight_guard::place;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The file. It is as large as the most that was ever held at a time.
pub struct Spill {
    file: File,
    room: Mutex<Room>,
}

/// A piece in the file. Dropping it frees its room.
pub struct Piece {
    spill: Arc<Spill>,
    offset: u64,
    len: u64,
}

impl Spill {
    pub fn new(file: File) -> Arc<Spill> {
        Arc::new(Spill {
            file,
            room: Mutex::default(),
        })
    }

    /// Writes `bytes` into the file.
    pub fn put(self: &Arc<Spill>, bytes: &[u8]) -> io::Result<Piece> {
        let len = bytes.len() as u64;
        let piece = Piece {
            spill: Arc::clone(self),
            offset: self.room().take(len),
            len,
        };
        place::write(&self.file, bytes, piece.offset)?;
        Ok(piece)
    }

    fn room(&self) -> std::sync::MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Piece {
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        place::read(&self.spill.file, &mut bytes, self.offset)?;
        Ok(bytes)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.spill.room().give(self.offset, self.len);
    }
}

/// Which parts of the file are free.
#[derive(Default)]
struct Room {
    /// Offset and length of each free stretch. No two of them touch.
    free: BTreeMap<u64, u64>,
    end: u64,
}

impl Room {
    /// Takes the first stretch that is large enough: pieces that came together are mostly freed together.
    fn take(&mut self, len: u64) -> u64 {
        let found = self.free.iter().find(|(_, n)| **n >= len);
        let Some((&at, &n)) = found else {
            self.end += len;
            return self.end - len;
        };
        self.free.remove(&at);
        if n > len {
            self.free.insert(at + len, n - len);
        }
        at
    }

    fn give(&mut self, mut at: u64, mut len: u64) {
        if let Some((&before, &n)) = self.free.range(..at).next_back()
            && before + n == at
        {
            self.free.remove(&before);
            (at, len) = (before, n + len);
        }
        if let Some(n) = self.free.remove(&(at + len)) {
            len += n;
        }
        if at + len == self.end {
            self.end = at;
        } else if len > 0 {
            self.free.insert(at, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_used_again() {
        let mut r = Room::default();
        let at: Vec<u64> = (0..6).map(|_| r.take(10)).collect();
        assert_eq!(at, [0, 10, 20, 30, 40, 50]);
        r.give(10, 10);
        r.give(30, 10);
        r.give(20, 10);
        assert_eq!(r.free, BTreeMap::from([(10, 30)]));
        assert_eq!((r.take(25), r.take(5), r.take(1)), (10, 35, 60));
        for (at, n) in [(60, 1), (50, 10), (40, 10)] {
            r.give(at, n);
        }
        assert_eq!((r.end, r.free.len()), (40, 0));
    }
}
