//! A plain forward replay, one instruction after the other, that logs everything.

use hindsight_events::event::words_of;
use hindsight_events::{Decoder, Event};
use hindsight_isa::{CpuState, Predictor};
use hindsight_replay::access::{Access, Finder};
use hindsight_replay::{Code, Machine, Stop, stream};
use hindsight_trace::Trace;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of a byte from an instant on. `None`: it is not known any more.
pub type Change = (u64, Option<(u8, Why)>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    Written,
    Read,
}

/// One thread, completely.
pub struct Log {
    pub thread: u32,
    /// The state before each instruction, and at the end.
    pub states: Vec<CpuState>,
    /// What each instruction accessed.
    pub accesses: Vec<Vec<Access>>,
    /// The history of each byte. An entry with `n` holds once `n` instructions are completed.
    pub bytes: BTreeMap<u64, Vec<Change>>,
}

/// Plays a thread whose positions begin at 0.
pub fn play(trace: &Trace, thread: u32) -> Log {
    let image = trace.stream_info(thread).unwrap().image;
    let code = Arc::new(Code::from_trace(trace, image).unwrap());
    let mut m = Machine::new(code, Predictor::WINDOW).unwrap();
    m.from_keyframe(stream(trace, thread)).unwrap();
    let mut log = Log {
        thread,
        states: Vec::new(),
        accesses: Vec::new(),
        bytes: BTreeMap::new(),
    };
    // What the recording says apart from instructions, by position.
    let mut patches: BTreeMap<u64, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
    let mut zeros: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    // What a system call wrote, where the recording says it. It is there when the call has ended.
    let (mut open, mut restating) = (None, false);
    for c in trace.chunks(thread) {
        let wire = trace.load(c).unwrap();
        let (mut d, mut at) = (Decoder::default(), 0);
        while at < wire.len() {
            let (pos, event, n) = d.decode(&wire[at..]).unwrap();
            at += n;
            let behind = |pos: u64| {
                if open == Some(pos) {
                    pos
                } else {
                    pos.saturating_sub(1)
                }
            };
            match event {
                Event::Restate { ends, .. } => restating = !ends,
                // Memory had this content before.
                _ if restating => {}
                Event::Syscall { .. } => open = Some(pos),
                Event::Patch { line, mask, words } => {
                    for (i, w) in words
                        .iter()
                        .enumerate()
                        .filter(|(i, _)| mask & (1 << i) != 0)
                    {
                        let word = (line + 8 * i as u64, w.to_le_bytes().to_vec());
                        patches.entry(pos).or_default().push(word);
                    }
                }
                Event::Lines { line, masks, words } => {
                    for (addr, w) in words_of(line, masks, words) {
                        let word = (addr, w.to_le_bytes().to_vec());
                        patches.entry(pos).or_default().push(word);
                    }
                }
                Event::PatchBytes { addr, len, value } => {
                    let bytes = value.to_le_bytes()[..len as usize].to_vec();
                    patches.entry(pos).or_default().push((addr, bytes));
                }
                Event::Memory { addr, bytes } => {
                    let written = (addr, bytes.to_vec());
                    patches.entry(behind(pos)).or_default().push(written);
                }
                // The content from a file is not logged.
                Event::FileOf { addr, len, .. } | Event::Changed { addr, len } => {
                    zeros.entry(behind(pos)).or_default().push((addr, len))
                }
                Event::Zero { addr, len } => zeros.entry(pos).or_default().push((addr, len)),
                _ => {}
            }
        }
    }
    let mut finder = Finder::new(hindsight_isa::xsave::Layout::usual());
    loop {
        let count = m.position();
        assert_eq!(count as usize, log.states.len());
        let (cpu, vec) = (m.registers(), m.vectors());
        log.states.push(cpu);
        let mut code = [0; 15];
        let n = m.code(cpu.rip, &mut code);
        if m.run_to(count + 1).unwrap() != Stop::Position {
            return log;
        }
        for (addr, len) in zeros.remove(&count).unwrap_or_default() {
            for (_, list) in log.bytes.range_mut(addr..addr.saturating_add(len)) {
                list.push((count + 1, None));
            }
        }
        for (addr, bytes) in patches.remove(&count).unwrap_or_default() {
            for (i, b) in bytes.iter().enumerate() {
                log.note(addr + i as u64, count + 1, Some((*b, Why::Read)));
            }
        }
        let mut list = Vec::new();
        let held = |at: u64, buf: &mut [u8]| m.read_window(at, buf);
        finder.find_in(&code[..n], (&cpu, &vec), &m.registers(), &held, &mut list);
        for a in list
            .iter()
            .filter(|a| a.read)
            .chain(list.iter().filter(|a| a.write))
        {
            let mut now = vec![0; a.len as usize];
            m.read_window(a.address, &mut now);
            for (i, b) in now.iter().enumerate() {
                let why = if a.write { Why::Written } else { Why::Read };
                let value = (!a.unknown).then_some((*b, why));
                log.note(a.address + i as u64, count + 1, value);
            }
        }
        log.accesses.push(list);
    }
}

impl Log {
    fn note(&mut self, addr: u64, count: u64, value: Option<(u8, Why)>) {
        self.bytes.entry(addr).or_default().push((count, value));
    }

    /// The number of instructions of the thread.
    pub fn instructions(&self) -> u64 {
        self.accesses.len() as u64
    }

    /// A byte when `count` instructions are completed, and whether it was written or read.
    pub fn byte(&self, addr: u64, count: u64) -> Option<(u8, Why)> {
        let list = self.bytes.get(&addr)?;
        let i = list.partition_point(|c| c.0 <= count);
        list[..i].last()?.1
    }

    /// Whether an instruction wrote the byte before `count`.
    pub fn written(&self, addr: u64, count: u64) -> bool {
        let list = self.bytes.get(&addr).map_or(&[][..], |l| l);
        list.iter()
            .take_while(|c| c.0 <= count)
            .any(|c| matches!(c.1, Some((_, Why::Written)) | None))
    }

    /// The instructions that access any of these bytes in this way, ascending.
    pub fn touching(&self, addr: u64, len: u64, read: bool, write: bool) -> Vec<u64> {
        let hits = |l: &Vec<Access>| {
            l.iter()
                .any(|a| a.touches(addr, len) && (a.read && read || a.write && write))
        };
        let all = self.accesses.iter().enumerate().filter(|(_, l)| hits(l));
        all.map(|(i, _)| i as u64).collect()
    }
}
