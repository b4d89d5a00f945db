//! What each event of a thread's stream does to its virtual processor.

use crate::Error;
use crate::compare::{compare, show};
use crate::cpu::Cpu;
use crate::machine::{Machine, StreamEnd};
use crate::processor::Processor;
use crate::queue::Op;
use crate::restated::Before;
use crate::string::string;
use crate::window::AccessKind;
use hindsight_events::event::{MAX_BYTES, words_of};
use hindsight_events::{Event, event};
use hindsight_isa::regs::{R11, RAX, RCX, SYSCALL_ARGUMENTS, recorded};
use hindsight_isa::state::change;
use hindsight_isa::string::StringOp;
use hindsight_isa::transcendental::Left;
use hindsight_isa::{CpuState, Transcendental, VecState};
use hindsight_translate::effective::Registers;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// Most bytes of a file that one event maps, or of memory that one event moves.
/// A host of 32 bits has no room for more.
const MAX_MOVE: u64 = if cfg!(target_pointer_width = "32") {
    256 << 20
} else {
    2 << 30
};
/// Bytes of a file that are copied at a time.
const FILE_STEP: u64 = 1 << 20;

impl Machine<'_> {
    /// Applies the event at offset `at`, which is due now.
    // Long: a table, with one arm for each kind of event. What takes more than a few lines is elsewhere.
    pub(crate) fn event(&mut self, at: usize) -> Result<(), Error> {
        let event = self.queue.event(at)?;
        self.expects(&event)?;
        if self.gap && self.passes_gap(&event)? {
            self.queue.advance();
            return Ok(());
        }
        if let Some(back) = self.base
            && !matches!(
                event,
                Event::Restate { ends: false, .. } | Event::File { .. } | Event::FileOf { .. }
            )
        {
            // What the older key frames say lies above the files and below what this one says.
            let cpu = &mut self.cpu;
            self.queue.below(back, &mut |e| lay_older(cpu, e))?;
            self.base = None;
        }
        let cpu = &mut self.cpu;
        match event {
            Event::GapBegin { .. } => {
                self.gap = true;
                self.gaps += 1;
            }
            Event::GapEnd {
                mask,
                values,
                parts,
                vec,
            } => {
                let before = self.processor.vectors();
                let behind = behind_gap((cpu, before), (mask, &values), (parts, vec));
                self.end_gap(behind)?;
            }
            // The instruction has no effect besides the events that follow.
            Event::Mark { .. } => {}
            Event::KeyFrame {
                code_epoch,
                cpu: regs,
                vec,
            } => {
                let state = (CpuState::from_bytes(regs), VecState::from_bytes(vec));
                return self.key_frame(code_epoch, state);
            }
            Event::Digest { cpu: digest, vec } => {
                let vectors = || self.processor.vectors();
                self.compared
                    .count(|| digests(cpu, &vectors, digest, vec))?;
            }
            Event::Syscall { nr, args } => {
                if current(cpu)?.map(|i| i.mnemonic()) != Some(Mnemonic::Syscall) {
                    return Err(cpu.difference(format!("system call {nr}"), "another instruction"));
                }
                if !self.digests_only {
                    self.compared.count(|| call(cpu, nr, &args))?;
                }
                self.open = true;
            }
            Event::SyscallRet { ret } => return self.returns(ret),
            Event::Regs { mask, ilen, values } => self.set_some(mask, ilen, &values)?,
            Event::X87 {
                ilen,
                status,
                tags,
                registers,
            } => {
                let left = Left {
                    status,
                    tags,
                    registers,
                };
                transcendental(cpu, &mut *self.processor, ilen, &left)?;
            }
            Event::RepChunk { .. } => return self.string(),
            // The next event says what it does to the registers.
            Event::Signal { .. } => {}
            Event::SetState { cpu: regs, vec } => {
                match self.open {
                    true => cpu.complete_alone(0),
                    false => self.sent_on = Some(cpu.pos),
                }
                self.open = false;
                cpu.set_registers(&CpuState::from_bytes(regs));
                self.processor.set_vectors(&VecState::from_bytes(vec));
            }
            // It holds zeros already, or is in no use. What the instructions did there is as it was.
            Event::Zero { .. } if self.passing => {}
            Event::Zero { addr, len } if self.restating => cpu.window.zero(addr, len)?,
            Event::Zero { addr, len } => {
                cpu.window.zero(addr, len)?;
                cpu.window.forget(addr, len)?;
            }
            Event::Lines { line, masks, words } => {
                for (addr, word) in words_of(line, masks, words) {
                    cpu.window.give_word(addr, word);
                }
            }
            Event::Changed { addr, len } => cpu.window.forget(addr, len)?,
            Event::Memory { addr, bytes } => {
                if let Some(before) = &self.before {
                    let same = || before.compare(cpu, addr, bytes);
                    self.compared.count(same)?;
                }
                cpu.window.write_from_outside(addr, bytes);
                // Restated memory is not new. The instructions that access it mark it.
                if !self.restating {
                    cpu.window.given(addr, bytes.len() as u64)?;
                }
            }
            // The file is there, with what was written over it since.
            Event::FileOf { .. } | Event::File { .. } if self.passing => {}
            Event::FileOf {
                addr,
                len,
                module,
                offset,
            } => self.put_file((addr, len), module, offset)?,
            Event::File { path, .. } => {
                // It does no harm if the window is emptied before anything is executed.
                let path = String::from_utf8_lossy(path).into_owned();
                self.missing.get_or_insert(Error::MissingFile {
                    position: cpu.pos,
                    path,
                });
            }
            Event::Move { from, to, len } => self.move_memory(from, to, len)?,

            // A window with access marks may hold only the memory that the next instructions read.
            Event::Passed { .. } if cpu.window.has_marks() => {}
            Event::Passed { addr, len, digest } => {
                if !self.digests_only {
                    self.compared.count(|| passed(cpu, addr, len, digest))?;
                }
            }
            // Replay executes both regimes alike.
            Event::Regime { .. } => {}
            Event::Restate { ends, .. } => {
                self.restating = !ends;
                self.passing &= !ends;
                self.before = self.before.take().filter(|_| !ends);
            }
            Event::CodeEpoch { epoch } => self.processor.set_epoch(cpu, epoch),
            Event::End {
                kind,
                code,
                message,
            } => {
                let message = String::from_utf8_lossy(message).into_owned();
                self.end = Some(StreamEnd {
                    kind,
                    code,
                    message,
                });
            }
            Event::Patch { .. }
            | Event::PatchBytes { .. }
            | Event::Common { .. }
            | Event::Fresh { .. }
            | Event::Seq { .. }
            | Event::Time { .. }
            | Event::Code { .. }
            | Event::CodeFrom { .. }
            | Event::CodeOf { .. }
            | Event::Map { .. }
            | Event::Unmap { .. } => {
                return Err(self.corrupt("an event that does not belong to a thread"));
            }
        }
        self.queue.advance();
        Ok(())
    }

    /// Fails if the result of a system call is due, and `event` is something else.
    fn expects(&self, event: &Event) -> Result<(), Error> {
        if self.open
            && !matches!(
                event,
                Event::SyscallRet { .. }
                    | Event::SetState { .. }
                    | Event::End { .. }
                    | Event::Zero { .. }
                    | Event::Changed { .. }
                    | Event::Memory { .. }
                    | Event::Signal { .. }
                    // Somebody outside has set it while the thread waited.
                    | Event::Mark { .. }
            )
        {
            return Err(self
                .cpu
                .difference("the result of a system call", "another event"));
        }
        Ok(())
    }

    /// Whether nothing has to be done for an event within a gap. Fails if there can be none.
    fn passes_gap(&self, event: &Event) -> Result<bool, Error> {
        match event {
            Event::GapEnd { .. } | Event::End { .. } | Event::CodeEpoch { .. } => Ok(false),
            // They say when processes were made, what the program marked, and why the gap continues.
            Event::Syscall { .. }
            | Event::SyscallRet { .. }
            | Event::Mark { .. }
            | Event::GapBegin { .. } => Ok(true),
            Event::Seq { .. } => Ok(false),
            _ => Err(self.corrupt("an event within a gap")),
        }
    }

    /// Recording goes on with these registers. `None`: they make no sense.
    fn end_gap(&mut self, registers: Option<(CpuState, VecState)>) -> Result<(), Error> {
        if !self.gap {
            return Err(self.corrupt("the end of a gap that never began"));
        }
        let Some((regs, vec)) = registers else {
            return Err(self.corrupt("vector registers behind a gap"));
        };
        let cpu = &mut self.cpu;
        cpu.set_registers(&regs);
        self.processor.set_vectors(&vec);
        // Anything may have changed in the gap.
        cpu.window.forget(0, u64::MAX)?;
        self.gap = false;
        self.gap_end = Some(cpu.pos);
        Ok(())
    }

    /// The system call at hand returns.
    fn returns(&mut self, ret: u64) -> Result<(), Error> {
        let cpu = &mut self.cpu;
        let len = current(cpu)?.map_or(2, |i| i.len()) as u64;
        if !self.open {
            return Err(cpu.difference("the result of a system call", "none in progress"));
        }
        let flags = cpu.registers().rflags | 0x202;
        let next = cpu.rip.wrapping_add(len);
        let c = cpu.window.ctx_mut();
        c.gpr[RAX] = ret;
        c.gpr[RCX] = next;
        c.gpr[R11] = flags;
        cpu.complete_alone(len);
        self.open = false;
        self.queue.advance();
        self.bases()
    }

    /// Gives registers their recorded values. Completes the instruction of `ilen` bytes, if there is one.
    fn set_some(
        &mut self,
        mask: u32,
        ilen: u8,
        values: &[u64; recorded::COUNT],
    ) -> Result<(), Error> {
        let cpu = &mut self.cpu;
        if ilen != 0 {
            match current(cpu)? {
                Some(i) if i.len() == ilen as usize => mark_selector(cpu, &i),
                _ => {
                    return Err(cpu.difference(
                        format!("an instruction of {ilen} bytes with recorded results"),
                        "another",
                    ));
                }
            }
        }
        let mut s = cpu.registers();
        for (i, v) in values
            .iter()
            .enumerate()
            .filter(|(i, _)| mask & (1 << i) != 0)
        {
            match i {
                0..16 => s.gpr[i] = *v,
                recorded::FLAGS => s.rflags = *v,
                recorded::FS_BASE => s.fs_base = *v,
                _ => s.gs_base = *v,
            }
        }
        cpu.set_registers(&s);
        if ilen != 0 {
            cpu.complete_alone(ilen as u64);
        }
        Ok(())
    }

    /// A part of a file comes into memory.
    fn put_file(&mut self, (addr, len): (u64, u64), module: u32, offset: u64) -> Result<(), Error> {
        let cpu = &mut self.cpu;
        if len > MAX_MOVE {
            return Err(self.corrupt("a file in memory is too large"));
        }
        let mut done = 0;
        while done < len {
            let n = (len - done).min(FILE_STEP);
            let from = offset.saturating_add(done);
            let part = self.queue.module(module, from, n as usize)?;
            lay(cpu, addr.wrapping_add(done), &part)?;
            done += n;
        }
        cpu.window.forget(addr, len)?;
        Ok(())
    }

    /// Memory moves to another address.
    fn move_memory(&mut self, from: u64, to: u64, len: u64) -> Result<(), Error> {
        let cpu = &mut self.cpu;
        if len > MAX_MOVE {
            return Err(self.corrupt("moved memory is too large"));
        }
        // Only ranges that share cells cannot be moved in pieces. The recorder never writes such a
        // move.
        let apart = (to.wrapping_sub(from) as u32).min(from.wrapping_sub(to) as u32);
        let step = if (apart as u64) < len { len } else { FILE_STEP };
        let mut done = 0;
        while done < len {
            let mut bytes = vec![0; (len - done).min(step) as usize];
            let (from, to) = (from.wrapping_add(done), to.wrapping_add(done));
            cpu.window.read(from, &mut bytes);
            cpu.window.taken(from, &bytes);
            cpu.window.zero(from, bytes.len() as u64)?;
            lay(cpu, to, &bytes)?;
            done += bytes.len() as u64;
        }
        cpu.window.forget(from, len)?;
        cpu.window.forget(to, len)?;
        Ok(())
    }

    /// A key frame: all registers, and an empty window, unless what follows restates only what has changed since
    /// another key frame.
    fn key_frame(
        &mut self,
        code_epoch: u64,
        (regs, vec): (CpuState, VecState),
    ) -> Result<(), Error> {
        let cpu = &mut self.cpu;
        if self.started {
            let found = self.processor.vectors();
            self.compared.count(|| compare(cpu, &found, &regs, &vec))?;
        }
        self.processor.set_epoch(cpu, code_epoch);
        cpu.set_registers(&regs);
        self.processor.set_vectors(&vec);
        self.queue.advance();
        let base = self.restates()?;
        let passes = self.started && matches!(base, Some(1..));
        if self.started && self.compares_memory && base.is_some() {
            let window = &self.cpu.window;
            self.before = Some(match passes {
                true => Before::Still,
                false => self.compared.count(|| Before::of(window))?,
            });
        }
        self.passing = passes;
        self.base = base.filter(|back| *back != 0 && !passes);
        self.started = true;
        self.missing = None;
        match passes {
            true => Ok(()),
            false => self.cpu.window.clear(),
        }
    }

    /// Behind a system call, applies the segment bases that the call set. The recording has them in the next
    /// event. So nobody can stop between the two.
    fn bases(&mut self) -> Result<(), Error> {
        let next = self.queue.prepare()?;
        if let Some(Op::Other(at)) = next.filter(|e| e.pos == self.cpu.pos).map(|e| e.op)
            && matches!(self.queue.event(at)?, Event::Regs { ilen: 0, .. })
        {
            return self.event(at);
        }
        Ok(())
    }

    /// Behind a key frame: if memory is restated there, how many key frames before it its base is. 0: it has none.
    fn restates(&mut self) -> Result<Option<u64>, Error> {
        let next = self.queue.prepare()?;
        if let Some(Op::Other(at)) = next.filter(|e| e.pos == self.cpu.pos).map(|e| e.op)
            && let Event::Restate { ends: false, back } = self.queue.event(at)?
        {
            return Ok(Some(back));
        }
        Ok(None)
    }

    /// Executes the string instruction that the next event belongs to.
    fn string(&mut self) -> Result<(), Error> {
        let mut buf = [0; 15];
        let n = self.cpu.fetch(&mut buf)?;
        let Some(op) = StringOp::decode(&buf[..n]) else {
            return Err(self
                .cpu
                .difference("a string instruction", "another instruction"));
        };
        let before = self.queue.peek().map(|e| e.pos);
        if string(&mut self.cpu, &op, Some(&mut self.queue))? {
            self.cpu.complete_alone(op.len as u64);
            // An iteration that the instruction never reached has an event.
            if self.queue.prepare()?.map(|e| e.pos) == before {
                return Err(self.late());
            }
        }
        Ok(())
    }
}

/// The registers behind a gap: those before it, of which the recording says which have changed.
/// `None` if it does not fit them.
fn behind_gap(
    (cpu, before): (&Cpu, VecState),
    (mask, values): (u32, &[u64; 20]),
    (parts, vec): (u64, &[u8]),
) -> Option<(CpuState, VecState)> {
    let mut bytes = cpu.registers().to_bytes();
    for (i, v) in values.iter().enumerate() {
        if mask & (1 << i) != 0 {
            bytes[8 * i..8 * i + 8].copy_from_slice(&v.to_le_bytes());
        }
    }
    let mut vectors = before.to_bytes();
    change(&mut vectors, parts, vec)
        .then(|| (CpuState::from_bytes(&bytes), VecState::from_bytes(&vectors)))
}

/// Compares the registers with their digests. The digest of the vector registers is 0 if it was not taken.
fn digests(cpu: &Cpu, vectors: &dyn Fn() -> VecState, digest: u64, vec: u64) -> Result<(), Error> {
    let found = cpu.registers().digest();
    if digest != found {
        let found = format!("{found:016x} ({})", show(&cpu.registers()));
        return Err(cpu.difference(format!("registers with digest {digest:016x}"), found));
    }
    if vec != 0 {
        let found = vectors().digest();
        if vec != found {
            let expected = format!("vector registers with digest {vec:016x}");
            return Err(cpu.difference(expected, format!("{found:016x}")));
        }
    }
    Ok(())
}

/// Compares the program's system call with the recorded one.
fn call(cpu: &Cpu, nr: u64, args: &[u64; 6]) -> Result<(), Error> {
    let gpr = &cpu.window.ctx().gpr;
    let found = SYSCALL_ARGUMENTS.map(|r| gpr[r]);
    if gpr[RAX] != nr || found != *args {
        let found = format!("{} with {found:x?}", gpr[RAX]);
        return Err(cpu.difference(format!("system call {nr} with {args:x?}"), found));
    }
    Ok(())
}

/// Compares the bytes that the program passed to the kernel with their digest.
fn passed(cpu: &Cpu, addr: u64, len: u64, digest: u32) -> Result<(), Error> {
    let mut bytes = vec![0; len.min(MAX_BYTES as u64) as usize];
    cpu.window.read(addr, &mut bytes);
    let found = event::digest(&bytes);
    if digest != found {
        return Err(cpu.difference(
            format!("output of {len} bytes at {addr:#x} with digest {digest:08x}"),
            format!("{found:08x}"),
        ));
    }
    Ok(())
}

/// Applies what an older key frame restates.
fn lay_older(cpu: &mut Cpu, event: &Event) -> Result<(), Error> {
    match *event {
        Event::Memory { addr, bytes } => {
            cpu.window.write_from_outside(addr, bytes);
            Ok(())
        }
        Event::Zero { addr, len } => cpu.window.zero(addr, len),
        _ => Ok(()),
    }
}

/// Writes bytes of the recording into the window. Zeros take no memory, however many there are.
fn lay(cpu: &mut Cpu, addr: u64, bytes: &[u8]) -> Result<(), Error> {
    let (words, rest) = bytes.as_chunks::<16>();
    match words.iter().all(|w| *w == [0; 16]) && rest.iter().all(|b| *b == 0) {
        true => cpu.window.zero(addr, bytes.len() as u64),
        false => {
            cpu.window.write_from_outside(addr, bytes);
            Ok(())
        }
    }
}

/// `verr` and `verw` read memory, although what they find comes from the recording.
fn mark_selector(cpu: &mut Cpu, i: &Instruction) {
    if matches!(i.mnemonic(), Mnemonic::Verr | Mnemonic::Verw)
        && i.op0_kind() == OpKind::Memory
        && let Some(at) = Registers::from(cpu.window.ctx()).operand(i, 0)
    {
        cpu.mark(AccessKind::Reads, at, 2);
    }
}

/// The transcendental instruction at hand, which has `ilen` bytes, left this in the x87.
fn transcendental(
    cpu: &mut Cpu,
    processor: &mut dyn Processor,
    ilen: u8,
    left: &Left,
) -> Result<(), Error> {
    let what = current(cpu)?
        .filter(|i| i.len() == ilen as usize)
        .and_then(|i| Transcendental::of(i.mnemonic()));
    let mut v = processor.vectors();
    if !what.is_some_and(|what| left.apply(what, &mut v)) {
        let expected = format!(
            "a transcendental instruction of {ilen} bytes that leaves {} in registers",
            left.registers.len()
        );
        return Err(cpu.difference(expected, "another instruction"));
    }
    processor.set_vectors(&v);
    cpu.complete_alone(ilen as u64);
    Ok(())
}

/// The instruction at the current position.
fn current(cpu: &Cpu) -> Result<Option<Instruction>, Error> {
    let mut buf = [0; 15];
    let n = cpu.fetch(&mut buf)?;
    Ok(crate::access::decode(&buf[..n], cpu.rip))
}
