//! What comes with messages besides their bytes: the address of the peer, and descriptors.

use super::answer::restore;
use super::calls::Made;
use super::{After, Done, Error, Rerun};
use crate::plan::message::{self, CONTROL_WRITTEN, HEADER, HEADER_WRITTEN, NAME_WRITTEN};
use hindsight_remote::Regs;
use libc::*;

/// A message that came, and descriptors that are made for it. Each stands for a recorded one.
pub struct Came {
    /// The registers at the call.
    before: Regs,
    /// The recorded call.
    slot: usize,
    /// What the call returns.
    result: u64,
    /// So many descriptors are made.
    made: usize,
}

impl Came {
    /// Whether this is the call, made again to make the next descriptor.
    pub fn is_call(&self, r: &Regs) -> bool {
        (self.before.orig_rax, self.before.rip, self.before.rsp) == (r.orig_rax, r.rip, r.rsp)
    }
}

impl Rerun<'_> {
    /// Answers a call that read, with what came besides the bytes of these recorded ones.
    pub fn handed(&mut self, pid: i32, made: &Made, used: &[usize], result: u64) -> Done {
        let mut brings = None;
        for slot in used {
            let call = &self.process(pid).script.slot(*slot).call;
            if call.unknown > 0 {
                let what = format!(
                    "the recording does not have {} of the bytes that the program read",
                    call.unknown
                );
                return Err(Error::Limit(what).into());
            }
            let same = call.number == made.number;
            match made.number as i64 {
                // The first place has the bytes, if there are any.
                SYS_recvfrom if same => self.copy(pid, made, *slot, usize::from(result > 0))?,
                SYS_recvfrom if made.args[5] != 0 => {
                    // Another call was not told from whom it is.
                    self.process(pid).memory.write(made.args[5], &[0; 4])?;
                }
                SYS_recvmsg => self.headed(pid, made, *slot)?,
                _ => {}
            }
            let s = self.process(pid).script.slot(*slot);
            if made.number as i64 == SYS_recvmsg && !s.made.is_empty() {
                if brings.replace(*slot).is_some() {
                    let why = "it reads several messages with descriptors at once";
                    return Err(self.refused(pid, made, why));
                }
            } else {
                self.send(pid, *slot);
            }
        }
        let Some(slot) = brings else {
            return self.answer(pid, result);
        };
        let before = self.process(pid).task.thread.regs()?;
        self.bring(
            pid,
            Box::new(Came {
                before,
                slot,
                result,
                made: 0,
            }),
        )
    }

    /// Writes what a message brings besides its bytes. Descriptors in it have the recorded numbers until they are made.
    fn headed(&mut self, pid: i32, made: &Made, slot: usize) -> Done {
        let p = self.process(pid);
        let call = &p.script.slot(slot).call;
        // Where another call has read it, nothing but bytes came.
        let same = call.number == made.number;
        let written = |n: usize| call.written.get(n).filter(|_| same);
        let bytes = |n: usize| written(n).map_or(&[][..], |w| &w.bytes[..]);
        let header = match same {
            true => bytes(HEADER_WRITTEN),
            false => &[Some(0); HEADER],
        };
        let at = made.args[1];
        let field = |n: u64| p.memory.word(at.wrapping_add(n)).unwrap_or(0);
        let name = bytes(NAME_WRITTEN);
        let room = (field(message::NAME_LEN) as u32 as usize).min(name.len());
        let (control, len) = (field(message::CONTROL), field(message::CONTROL_LEN));
        let besides = bytes(CONTROL_WRITTEN);
        if (besides.len() as u64) > len {
            let why = "it has no room for all that came with a message";
            return Err(self.refused(pid, made, why));
        }
        p.memory.write_known(field(message::NAME), &name[..room])?;
        p.memory.write_known(control, besides)?;
        // The lengths of the address and of what comes besides, and flags.
        for part in [8..12, 40..48, 48..52] {
            if let Some(bytes) = header.get(part.clone()) {
                let at = at.wrapping_add(part.start as u64);
                p.memory.write_known(at, bytes)?;
            }
        }
        Ok(())
    }

    /// Makes the next descriptor of a message: a call makes one.
    pub fn bring(&mut self, pid: i32, came: Box<Came>) -> Done {
        let args = arguments(&came.before);
        self.placeholder(pid, message::closes_on_exec(&args), After::Came(came))
    }

    /// A descriptor of a message was made. Returns whether it is the last one.
    pub fn has_come(&mut self, pid: i32, mut came: Box<Came>, r: &Regs) -> Done<bool> {
        if (r.rax as i64) < 0 {
            let e = std::io::Error::from_raw_os_error(-(r.rax as i64) as i32);
            let what = format!("a descriptor that came in a message cannot be made: {e}");
            return Err(Error::Limit(what).into());
        }
        let fd = r.rax as i32;
        let args = arguments(&came.before);
        let p = self.process(pid);
        let s = p.script.slot(came.slot);
        let place = message::received(&s.call).get(came.made).map(|d| d.0);
        let file = s.made.get(came.made).copied();
        let (Some(place), Some(file)) = (place, file) else {
            unreachable!("each descriptor that came has a place, and leads to a file");
        };
        let last = came.made + 1 == s.made.len();
        p.table.put(fd, file, message::closes_on_exec(&args));
        let at = args[1].wrapping_add(message::CONTROL);
        let control = p.memory.word(at).unwrap_or(0);
        let at = control.wrapping_add(place as u64);
        p.memory.write(at, &fd.to_le_bytes())?;
        self.names.insert(file, "what came in a message".into());
        if last {
            restore(self.process(pid), came.before, came.result)?;
            self.send(pid, came.slot);
        } else {
            came.made += 1;
            let before = came.before;
            self.process(pid).task.after = Some(After::Came(came));
            self.make_again(pid, before)?;
        }
        Ok(last)
    }
}

fn arguments(r: &Regs) -> [u64; 6] {
    [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
}
