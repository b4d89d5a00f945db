//! Puts key frames into streams that copies of processes make (see [`hindsight_events::copied`]). Meanwhile the threads go on,
//! and what they write is held back.

use super::Collector;
use crate::alive;
use crate::lane::{Frame, Handed, Order};
use hindsight_events::Decoder;
use hindsight_events::copied::stage;
use hindsight_events::ring::RING_BYTES;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Bytes of a key frame that are taken at once. Between two of these the rings are looked at.
const PIECE: usize = 256 << 10;

/// Bytes. A key frame with all that a process may hold in the quiet regime, and what lies around it, takes less.
const MOST: u64 = 5 << 30;

/// Time between two looks whether a copy lives.
const LOOK: Duration = Duration::from_millis(50);

impl<W: Write> Collector<'_, W> {
    /// Puts a piece of the key frame of ring `i` into its stream, if it has come, and then what was held back. `last`: what
    /// has not come by now does not count. Returns as many bytes as a ring that is full if there is more to do at once.
    pub(super) fn place(&mut self, i: usize, last: bool) -> usize {
        let lane = &mut self.lanes[i];
        let Some(held) = &mut lane.held else { return 0 };
        match &mut held.frame {
            Frame::Awaited => self.await_frame(i, last),
            Frame::Handed(frame) => {
                let piece = read(&frame.file, frame.taken).unwrap_or_default();
                frame.taken += piece.len() as u64;
                lane.pending.extend_from_slice(&piece);
                let whole = frame.order == Order::Nothing && lane.pending.is_empty();
                if piece.is_empty() && whole {
                    self.go_on(i, true);
                } else if !piece.is_empty() && follows(&mut frame.order, &lane.pending) {
                    self.cut(i);
                } else {
                    // What cannot be read, or is no whole key frame, has not come from a recorder.
                    self.damaged(i);
                }
                RING_BYTES
            }
            Frame::Over(_) => self.catch_up(i),
        }
    }

    fn await_frame(&mut self, i: usize, last: bool) -> usize {
        let lane = &mut self.lanes[i];
        let (Some(held), Some(open)) = (&mut lane.held, &lane.open) else {
            return 0;
        };
        // Nothing is before the key frame but what is in the stream already.
        held.position = open.builder.position();
        let (pid, now) = (open.info.pid, Instant::now());
        let mut copy = lane.consumer.copied();
        if copy.stage == stage::AWAITED && !last {
            if now - held.looked < LOOK {
                return 0;
            }
            held.looked = now;
            let maker = if copy.pid > 0 { copy.pid } else { pid };
            if alive::process(maker) {
                return 0;
            }
            // It may have ended with success by now.
            copy = lane.consumer.copied();
        }
        let inbox = self.control.files();
        let file = match copy.stage {
            stage::HANDED => self.modules.handed(inbox, copy.file),
            _ => None,
        };
        match file.filter(is_fixed) {
            Some(file) => {
                held.frame = Frame::Handed(Handed {
                    file,
                    taken: 0,
                    order: Order::default(),
                });
            }
            None => self.go_on(i, false),
        }
        RING_BYTES
    }

    /// Begins to take what was held back. `placed`: the key frame is in the stream.
    fn go_on(&mut self, i: usize, placed: bool) {
        let lane = &mut self.lanes[i];
        if let (Some(held), Some(open)) = (&mut lane.held, &mut lane.open) {
            // The thread knows nothing of the key frame's events.
            open.builder.measure_from(held.position);
            held.frame = Frame::Over(placed);
        }
    }

    /// Takes a piece of what was held back. Meanwhile more may come behind it.
    fn catch_up(&mut self, i: usize) -> usize {
        let lane = &mut self.lanes[i];
        let Some(held) = &mut lane.held else { return 0 };
        let rest = &held.bytes[held.taken..];
        let n = rest.len().min(PIECE);
        lane.pending.extend_from_slice(&rest[..n]);
        held.taken += n;
        if held.taken >= held.bytes.len() / 2 {
            held.bytes.drain(..held.taken);
            held.taken = 0;
        }
        let placed = matches!(held.frame, Frame::Over(true));
        let done = held.bytes.is_empty();
        if done {
            lane.held = None;
        }
        self.cut(i);
        if !done {
            return RING_BYTES;
        }
        let consumer = &self.lanes[i].consumer;
        consumer.settle();
        consumer.answer_copy(placed);
        0
    }
}

/// Whether nobody can change a file any more, and it has an end that is not too far.
fn is_fixed(file: &File) -> bool {
    let wanted = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: the call takes no pointers, and the descriptor is open.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & wanted == wanted && file.metadata().is_ok_and(|m| m.len() <= MOST)
}

/// Whether the whole events at the start of `bytes` have their place in a key frame. `order` is what may come first, then
/// what may come behind them.
fn follows(order: &mut Order, bytes: &[u8]) -> bool {
    let (mut decoder, mut at) = (Decoder::default(), 0);
    while let Some((_, event, n)) = decoder.decode(&bytes[at..]) {
        let Some(next) = order.behind(&event) else {
            return false;
        };
        (*order, at) = (next, at + n);
    }
    true
}

/// Reads a piece at `at`. It is empty at the end.
fn read(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; PIECE];
    let n = loop {
        match file.read_at(&mut piece, at) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            n => break n?,
        }
    };
    piece.truncate(n);
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    const ALL: i32 =
        libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

    /// A file in memory of that many bytes, none of which takes room.
    fn memory(len: u64, seals: i32) -> File {
        // SAFETY: the calls use no memory but the name, and the descriptor belongs to nobody else.
        let file = unsafe {
            let fd = libc::memfd_create(c"frame".as_ptr(), libc::MFD_ALLOW_SEALING);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        file.set_len(len).unwrap();
        // SAFETY: the call takes no pointers, and the descriptor is open.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
        assert_eq!(done, 0);
        file
    }

    #[test]
    fn only_files_that_stay_as_they_are_are_taken() {
        assert!(is_fixed(&memory(4096, ALL)));
        assert!(is_fixed(&memory(MOST, ALL)));
        assert!(!is_fixed(&memory(MOST + 1, ALL)), "too long");
        for seal in (0..4).map(|bit| 1 << bit) {
            assert!(!is_fixed(&memory(4096, ALL & !seal)), "{seal}");
        }
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        assert!(!is_fixed(&file), "a file of a disk has no seals");
    }
}
