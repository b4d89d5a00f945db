//! The half that reads the recording.

use crate::wire::{self, Frame};
use crate::{Error, Result};
use hindsight_inspect::process_state;
use hindsight_inspect::state::{MappedRange, known};
use hindsight_timeline::{Cancel, Cursor};
use std::io::{self, BufWriter, Write};

/// So many stretches of unknown memory are told at most.
pub const MOST_UNKNOWN: usize = 64;
/// Code and data of the kernel's, which every kernel brings by itself.
const KERNELS: [&str; 2] = ["[vvar]", "[vvar_vclock]"];

/// Sends the process in which the cursor stands.
///
/// # Errors
/// - The recording does not answer.
/// - The other half has gone.
pub fn send(cursor: &mut Cursor, to: impl Write, cancel: &Cancel) -> Result<()> {
    let mut to = BufWriter::with_capacity(1 << 20, to);
    let (mut state, stored) = process_state(cursor, cancel)?;
    // It is no memory of the process.
    state.mappings.retain(|m| m.name != "[vsyscall]");
    let gone = |e: io::Error| Error::Step("the other half".into(), e);
    let json = serde_json::to_vec(&state).map_err(|e| gone(e.into()))?;
    wire::send(&mut to, &Frame::State(json)).map_err(gone)?;
    // The other half may refuse it, before memory takes its time.
    to.flush().map_err(gone)?;
    let ranges: Vec<MappedRange> = state
        .mappings
        .iter()
        .filter(|m| !KERNELS.contains(&m.name.as_str()))
        .cloned()
        .collect();
    let mut each = |at: u64, bytes: &[u8]| {
        bytes
            .chunks(wire::MOST)
            .enumerate()
            .try_for_each(|(i, part)| {
                let at = at + (i * wire::MOST) as u64;
                wire::send(&mut to, &Frame::Memory(at, part.to_vec()))
            })
    };
    let unknown = known(
        cursor,
        &ranges,
        &stored.threads,
        MOST_UNKNOWN,
        cancel,
        &mut each,
    )?;
    for u in unknown {
        let frame = Frame::Unknown(u.address, u.len, u.why);
        wire::send(&mut to, &frame).map_err(gone)?;
    }
    for (n, file) in stored.files.iter().enumerate() {
        let n = n as u32;
        wire::send(&mut to, &Frame::File(n, file.size)).map_err(gone)?;
        for (at, bytes) in file.stretches() {
            let frame = Frame::Content(n, at, bytes.to_vec());
            wire::send(&mut to, &frame).map_err(gone)?;
        }
    }
    wire::send(&mut to, &Frame::End).map_err(gone)?;
    to.flush().map_err(gone)
}
