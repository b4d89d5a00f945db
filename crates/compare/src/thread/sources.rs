//! Where an argument, or the bytes of a call, came from.

use super::Work;
use crate::cause::{At, Trail};
use crate::model::{Datum, Kind};
use crate::{Both, Result};
use hindsight_timeline::Kind as Event;

impl Work<'_> {
    /// Where an argument, or bytes that a call gives out, come from.
    pub(super) fn trail_of(
        &mut self,
        kind: &Kind,
        at: At,
        calls: Both<Event>,
    ) -> Result<Option<Trail>> {
        let args = calls.map(|c| match c {
            Event::Syscall { args, .. } => args,
            _ => [0; 6],
        });
        use iced_x86::Register::{R8, R9, R10, RDI, RDX, RSI};
        const ARGUMENTS: [iced_x86::Register; 6] = [RDI, RSI, RDX, R10, R8, R9];
        match kind {
            Kind::Argument { index, .. } => {
                let values = args.map(|a| a.get(*index).copied().unwrap_or(0));
                if let Some((place, datum)) = self.text(at, values)? {
                    return self
                        .causes
                        .of_memory(self.sides, at, place, datum)
                        .map(Some);
                }
                let Some(register) = ARGUMENTS.get(*index) else {
                    return Ok(None);
                };
                let name = format!("{register:?}").to_lowercase();
                let datum = Datum {
                    names: [name.clone(), name],
                    bytes: values.map(|v| v.to_le_bytes().to_vec()),
                };
                let trail = self.causes.of_register(self.sides, at, *register, datum)?;
                Ok(Some(trail))
            }
            Kind::Bytes {
                at: byte, bytes, ..
            } => {
                let events = [0, 1].map(|s| self.sides[s].buffer(at[s].0, at[s].1));
                let [Some(a), Some(b)] = events else {
                    return Ok(None);
                };
                let address = [a, b].map(|a| a.wrapping_add(*byte));
                let datum = Datum {
                    names: address.map(|a| format!("memory at {a:#x}")),
                    bytes: bytes.clone().map(|b| b.into_iter().take(1).collect()),
                };
                let trail = self.causes.of_memory(self.sides, at, address, datum)?;
                Ok(Some(trail))
            }
            _ => Ok(None),
        }
    }

    /// The first byte that differs in memory that arguments point to.
    pub(super) fn text(&mut self, at: At, values: Both<u64>) -> Result<Option<(Both<u64>, Datum)>> {
        const LONGEST: usize = 4096;
        let mut bytes = [Vec::new(), Vec::new()];
        for s in 0..2 {
            if values[s] < 1 << 16 {
                return Ok(None);
            }
            let c = &mut self.sides[s].cursor;
            c.seek_count(at[s].0, at[s].1)?;
            bytes[s] = c.known_memory(values[s], LONGEST)?.prefix();
        }
        let both = bytes[0].iter().zip(&bytes[1]);
        let Some(first) = both.clone().position(|(a, b)| a != b) else {
            return Ok(None);
        };
        let address = values.map(|v| v.wrapping_add(first as u64));
        Ok(Some((
            address,
            Datum {
                names: address.map(|a| format!("memory at {a:#x}")),
                bytes: bytes.map(|b| vec![b[first]]),
            },
        )))
    }
}
