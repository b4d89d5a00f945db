//! Puts key frames into streams that copies of processes make (see [`hindsight_events::copied`]). Meanwhile the threads go on,
//! and what they write is held back.

use super::Collector;
use crate::alive;
use hindsight_events::copied::stage;
use hindsight_events::ring::RING_BYTES;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Bytes of a key frame that are taken at once. Between two of these the rings are looked at.
const PIECE: usize = 4 << 20;

/// Time between two looks whether a copy lives.
const LOOK: Duration = Duration::from_millis(50);

impl<W: Write> Collector<'_, W> {
    /// Puts a piece of the key frame of ring `i` into its stream, if it has come, and then what was held back. `last`: what
    /// has not come by now does not count. Returns as many bytes as a ring that is full if there is more to do at once.
    pub(super) fn place(&mut self, i: usize, last: bool) -> usize {
        let lane = &mut self.lanes[i];
        let Some(held) = &mut lane.held else { return 0 };
        let Some((file, at)) = &mut held.frame else {
            return self.await_frame(i, last);
        };
        match read(file, *at) {
            Ok(piece) if !piece.is_empty() => {
                *at += piece.len() as u64;
                lane.pending.extend_from_slice(&piece);
                self.cut(i);
                RING_BYTES
            }
            end => {
                // A file that can be read only in part, or does not end with an event, has not come from a recorder.
                let whole = end.is_ok() && lane.pending.is_empty();
                self.go_on(i, true);
                if !whole {
                    self.damaged(i);
                }
                0
            }
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
        match file {
            Some(file) => {
                held.frame = Some((file, 0));
                RING_BYTES
            }
            None => {
                self.go_on(i, false);
                0
            }
        }
    }

    /// Takes what was held back. `placed`: the key frame is in the stream.
    fn go_on(&mut self, i: usize, placed: bool) {
        let lane = &mut self.lanes[i];
        let (Some(held), Some(open)) = (lane.held.take(), &mut lane.open) else {
            return;
        };
        // The thread knows nothing of the key frame's events.
        open.builder.measure_from(held.position);
        lane.pending = held.bytes;
        lane.consumer.answer_copy(placed);
        self.cut(i);
        self.lanes[i].consumer.settle();
    }
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
