//! Bytes that the program reads and writes.

use super::calls::Made;
use super::processes::too_much;
use super::threads::State;
use super::{After, Done, Rerun};
use crate::plan::compare::Move;
use crate::plan::key::File;
use crate::plan::offset::{place, place_written};
use crate::plan::script::{Bytes, Input};
use crate::plan::table::FileId;
use hindsight_guard::regular::{self, Links};
use hindsight_remote::Regs;
use libc::*;
use std::os::unix::fs::FileExt;

/// So many bytes of a file are compared before it is read on.
const COMPARED: u64 = 1 << 16;
/// No more bytes are moved in a call.
const MOST: u64 = 1 << 30;

impl Rerun<'_> {
    /// The program reads.
    pub fn read(&mut self, pid: i32, made: &Made, r: Regs) -> Done {
        let number = made.number as i64;
        let input = match made.key.file() {
            File::Is(id) => Input::File(id),
            File::None if number == SYS_getrandom => Input::Random(self.process(pid).task.lane),
            File::Foreign(_) => {
                // It stands for something that has no bytes.
                return self.answer(pid, 0);
            }
            _ => return self.answer(pid, -EBADF as i64 as u64),
        };
        let buffers = self.buffers(pid, made);
        let want = buffers
            .iter()
            .map(|b| b.1)
            .fold(0, u64::saturating_add)
            .min(MOST) as usize;
        let said = place(made.number, &made.args);
        let at = match said {
            Some(at) => at,
            None => self.process(pid).places.get(&input).copied().unwrap_or(0),
        };
        loop {
            let script = &self.process(pid).script;
            let next = script.next_place(input, at);
            let found = next.map_or(Bytes::Nothing, |at| script.read(input, at, want));
            match found {
                Bytes::More => self.load(pid)?,
                Bytes::Returned(slot) => {
                    self.agree(pid, slot, made)?;
                    if self.stays(pid, slot) {
                        return Ok(());
                    }
                    // An empty message may bring something, too.
                    let empty = self.process(pid).script.slot(slot).call.result == Some(0);
                    return match empty {
                        true => self.handed(pid, made, &[slot], 0),
                        false => self.replay(pid, made, slot, true),
                    };
                }
                Bytes::Are(bytes, used) => {
                    if said.is_none() {
                        let to = next.unwrap_or(at).saturating_add(bytes.len() as u64);
                        self.process(pid).places.insert(input, to);
                    }
                    return self.deliver(pid, made, &buffers, (bytes, used));
                }
                Bytes::Nothing => {
                    let Input::File(file) = input else {
                        return self.made_up(pid, &buffers);
                    };
                    if !self.is_all(pid)? {
                        continue;
                    }
                    if self.stays_in_read(pid)? {
                        return Ok(());
                    }
                    return self.read_on(pid, made, (file, at), r);
                }
            }
        }
    }

    /// Whether the recorded thread read, and nothing came before its process ended. All of the recording is loaded then.
    fn stays_in_read(&mut self, pid: i32) -> Done<bool> {
        if !self.process(pid).is_shared() {
            return Ok(false);
        }
        while !self.process(pid).script.is_loaded() {
            self.load(pid)?;
        }
        let p = self.process(pid);
        let stays = p.script.ends_in_read(p.task.lane);
        if stays {
            self.stand(pid, State::Stays);
        }
        Ok(stays)
    }

    /// Where a read wants its bytes.
    fn buffers(&mut self, pid: i32, made: &Made) -> Vec<(u64, u64)> {
        let (p, a) = (self.process(pid), made.args);
        match made.number as i64 {
            SYS_getrandom => vec![(a[0], a[1])],
            SYS_readv | SYS_preadv | SYS_preadv2 => p.memory.buffers(a[1], a[2]),
            SYS_recvmsg => {
                let field = |n: u64| p.memory.word(a[1].wrapping_add(n)).unwrap_or(0);
                p.memory.buffers(field(16), field(24))
            }
            _ => vec![(a[1], a[2])],
        }
    }

    /// Gives bytes to a read.
    fn deliver(
        &mut self,
        pid: i32,
        made: &Made,
        buffers: &[(u64, u64)],
        (bytes, used): (Vec<u8>, Vec<usize>),
    ) -> Done {
        let p = self.process(pid);
        let mut rest = bytes.as_slice();
        for (at, len) in buffers {
            let (part, behind) = rest.split_at((*len).min(rest.len() as u64) as usize);
            if !part.is_empty() && p.memory.write(*at, part).is_err() {
                return self.answer(pid, -EFAULT as i64 as u64);
            }
            rest = behind;
        }
        for slot in &used {
            self.agree(pid, *slot, made)?;
        }
        self.handed(pid, made, &used, bytes.len() as u64)
    }

    /// A read of which the recording has nothing.
    fn read_on(&mut self, pid: i32, made: &Made, (file, at): (FileId, u64), r: Regs) -> Done {
        let past = self.is_past(pid)?;
        let plain = matches!(made.number as i64, SYS_read | SYS_pread64);
        if plain && self.goes_on_here(pid, made, (file, at)) {
            self.tally.here += 1;
            self.added(pid, made, "this machine's file was read on")?;
            let mut new = r;
            (new.orig_rax, new.r10) = (SYS_pread64 as u64, at);
            self.process(pid).task.thread.set_regs(&new)?;
            return match made.number as i64 {
                SYS_read => self.pass_and(pid, After::Read(Box::new(r), file)),
                _ => self.pass_and(pid, After::Restore(Box::new(r))),
            };
        }
        if past {
            let then = "it was told that there is no more, behind the recorded failure";
            self.made_up_behind(made, "that there is no more");
            self.added(pid, made, then)?;
            return self.answer(pid, 0);
        }
        Err(self.nothing(pid, made))
    }

    /// Loads more where the recorded process failed: all that it read must be known. Returns whether all is loaded.
    fn is_all(&mut self, pid: i32) -> Done<bool> {
        let loaded = self.process(pid).script.is_loaded();
        Ok(loaded || !self.is_past(pid)?)
    }

    /// Whether this machine has the file that was read, so that it may be read on. What was read last must be the same.
    fn goes_on_here(&mut self, pid: i32, made: &Made, (file, at): (FileId, u64)) -> bool {
        if !self.real.contains(&file) {
            return false;
        }
        let len = at.min(COMPARED);
        let from = at - len;
        let mut recorded = Vec::new();
        while (recorded.len() as u64) < len {
            let (here, rest) = (from + recorded.len() as u64, len as usize - recorded.len());
            match (self.process(pid).script).read(Input::File(file), here, rest) {
                Bytes::Are(bytes, _) if !bytes.is_empty() => recorded.extend(bytes),
                _ => return false,
            }
        }
        let mut now = vec![0; len as usize];
        let path = format!("/proc/{pid}/fd/{}", made.args[0] as i32);
        let read = regular::open(path, Links::Follow).and_then(|f| f.read_exact_at(&mut now, from));
        read.is_ok() && now == recorded
    }

    /// Random bytes that are the same each time, since no more are recorded.
    fn made_up(&mut self, pid: i32, buffers: &[(u64, u64)]) -> Done {
        self.tally.random += 1;
        self.strayed()?;
        let (mut state, mut done) = (0x9e37_79b9_7f4a_7c15u64 ^ self.tally.random, 0);
        for (at, len) in buffers {
            let mut bytes = Vec::new();
            for _ in 0..(*len).min(1 << 20) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.push(state as u8);
            }
            done += bytes.len() as u64;
            self.process(pid).memory.write(*at, &bytes)?;
        }
        self.answer(pid, done)
    }

    /// The program writes.
    pub fn write(&mut self, pid: i32, made: &Made, slot: Option<usize>) -> Done {
        let a = made.args;
        if let Some(slot) = slot {
            if self.ends_in(pid, slot)? {
                return Ok(());
            }
            self.send(pid, slot);
        } else {
            let then = "it was taken, and goes nowhere";
            self.added(pid, made, then)?;
        }
        let p = self.process(pid);
        let buffers = match made.number as i64 {
            SYS_writev | SYS_pwritev | SYS_pwritev2 => p.memory.buffers(a[1], a[2]),
            SYS_sendmsg => {
                let field = |n: u64| p.memory.word(a[1].wrapping_add(n)).unwrap_or(0);
                p.memory.buffers(field(16), field(24))
            }
            _ => vec![(a[1], a[2])],
        };
        let mut bytes = Vec::new();
        for (at, len) in buffers {
            let left = MOST - bytes.len() as u64;
            match p.memory.bytes(at, len.min(left) as usize) {
                Ok(b) => bytes.extend(b),
                Err(_) => return self.answer(pid, -EFAULT as i64 as u64),
            }
        }
        let recorded = slot.map(|s| &p.script.slot(s).call);
        let same = recorded.is_some_and(|c| asked(c.number, &c.args) == asked(made.number, &a));
        let result = match recorded.and_then(|c| c.result) {
            // It failed, or not all of it was taken.
            Some(r) if (r as i64) < 0 => r,
            Some(r) if same => r.min(bytes.len() as u64),
            _ => bytes.len() as u64,
        };
        if (result as i64) >= 0 {
            bytes.truncate(result as usize);
            self.wrote(pid, made, &bytes);
            too_much(&self.process(pid).outputs)?;
        }
        self.answer(pid, result)
    }

    fn wrote(&mut self, pid: i32, made: &Made, bytes: &[u8]) {
        let Some(file) = made.file() else { return };
        if matches!(file, 1 | 2) {
            (self.show)(file == 1, bytes);
        }
        match made.key.file() {
            File::Is(_) => {
                let outputs = &mut self.process(pid).outputs;
                if let Some(at) = place_written(made.number, &made.args) {
                    outputs.now_goes(file, Move::Once(at));
                }
                outputs.now(file, bytes);
            }
            // Nobody has recorded what is written there. What stays in the program, or is taken by nobody, does not count.
            _ if !self.memory.contains(&file) => {
                self.tally.elsewhere = self.tally.elsewhere.saturating_add(bytes.len() as u64);
            }
            _ => {}
        }
    }
}

/// How many bytes a call was to write. 0: that stands in memory.
fn asked(number: u64, args: &[u64; 6]) -> u64 {
    match number as i64 {
        SYS_write | SYS_pwrite64 | SYS_sendto => args[2],
        _ => 0,
    }
}
