//! Where code at some addresses can be left.

use crate::{Cursor, Result};
use hindsight_replay::access::decode;
use iced_x86::{FlowControl, OpKind};

/// The longest stretch that is looked at, in bytes.
const LONGEST: u64 = 16 << 10;
const WRITE: u32 = 2;
/// The longest instruction, in bytes.
const INSTRUCTION: usize = 15;

impl Cursor {
    /// Where a thread can leave the code at `start..end`. An instruction must begin at `start`. The answer has
    ///
    /// - the addresses outside to which the code leads;
    /// - the instructions inside that may lead anywhere.
    ///
    /// A run with breakpoints at all of these stops when the code is left, except by a signal. `None`: the code may
    /// change, or is not known.
    pub fn exits(&mut self, start: u64, end: u64) -> Result<Option<Vec<u64>>> {
        if end <= start || end - start > LONGEST {
            return Ok(None);
        }
        let changes = (self
            .timeline()
            .mappings(self.image(), self.position()?)?
            .iter())
        .any(|m| m.start < end && start < m.end && m.prot & WRITE != 0);
        let code = self.known_memory(start, (end - start) as usize + INSTRUCTION)?;
        let code = code.prefix();
        if changes || (code.len() as u64) < end - start {
            return Ok(None);
        }
        Ok(exits(&code, start, end))
    }
}

/// See [`Cursor::exits`].
fn exits(code: &[u8], start: u64, end: u64) -> Option<Vec<u64>> {
    let (mut out, mut inner, mut begins) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = start;
    while at < end {
        let i = decode(&code[(at - start) as usize..], at)?;
        begins.push(at);
        let direct = matches!(
            i.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        );
        match i.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::Call
                if direct =>
            {
                let to = i.near_branch_target();
                match (start..end).contains(&to) {
                    true => inner.push(to),
                    false => out.push(to),
                }
            }
            // A system call may lead anywhere, too.
            _ => out.push(at),
        }
        at = i.next_ip();
    }
    // The address after the stretch. And targets in the middle of an instruction: nothing is known of what begins
    // there.
    out.push(at);
    out.extend(
        inner
            .into_iter()
            .filter(|to| begins.binary_search(to).is_err()),
    );
    out.sort_unstable();
    out.dedup();
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_ways_out() {
        let code = [
            0x48, 0xff, 0xc9, // 1000: dec rcx
            0x75, 0xfb, // 1003: jne 1000
            0x74, 0x10, // 1005: je 1017
            0xff, 0xd0, // 1007: call rax
            0xe8, 0xf2, 0x00, 0x00, 0x00, // 1009: call 1100
            0xeb, 0xf2, // 100e: jmp 1002
            0x0f, 0x05, // 1010: syscall
        ];
        let wanted = [0x1002, 0x1007, 0x1010, 0x1012, 0x1017, 0x1100];
        assert_eq!(exits(&code, 0x1000, 0x1012).unwrap(), wanted);
        // An instruction that is cut off.
        assert_eq!(exits(&code[..0x11], 0x1000, 0x1012), None);
    }
}
