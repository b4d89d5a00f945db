//! A plain forward replay of one thread, one instruction at a time. It logs everything that is asked about.

use hindsight_events::{Decoder, Event};
use hindsight_isa::regs::{RAX, RSP};
use hindsight_isa::{CpuState, Predictor, VecState};
use hindsight_replay::access::{Access, Finder, decode};
use hindsight_replay::{Code, Error, Machine, Stop, stream};
use hindsight_timeline::{Position, Register};
use hindsight_trace::Trace;
use iced_x86::Mnemonic;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Bytes of a line. Accesses are listed by line.
const LINE: u64 = 64;
/// Longest access, in lines, that is listed by line. Longer ones (of string instructions) have their own
/// list.
const LINES: u64 = 64;

/// A contiguous access of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct One {
    /// Number of instructions between the log's beginning and this instruction.
    pub at: u32,
    pub read: bool,
    pub write: bool,
    pub address: u64,
    pub len: u64,
    /// Where in [`Log::data`] the value is that it read or wrote. `None` if the value is not logged.
    data: Option<u32>,
}

/// A statement of the recording about memory.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// Instructions completed before.
    pub at: u64,
    pub address: u64,
    pub len: u64,
}

/// What an instruction does to the control flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// A call, with the length of the instruction.
    Call(u8),
    Return,
    Other,
}

/// One thread, from its first instruction to its last.
pub struct Log {
    pub thread: u32,
    pub image: u32,
    /// Instructions completed at the beginning.
    pub from: u64,
    /// Before each instruction and at the end: instruction pointer, then stack pointer, rax, and digests of
    /// registers.
    pub rip: Vec<u64>,
    pub rsp: Vec<u64>,
    pub rax: Vec<u64>,
    pub digest: Vec<u64>,
    pub vectors: Vec<u64>,
    /// The registers that differ behind each instruction, as bits of [`bit`].
    pub changed: Vec<u64>,
    /// What each instruction that is executed does to the control flow.
    pub flow: Vec<Flow>,
    /// Instruction pointer and stack pointer before each instruction that is executed. They differ from `rip`
    /// and `rsp` where the kernel makes the thread continue elsewhere.
    pub done: Vec<(u64, u64)>,
    pub accesses: Vec<One>,
    data: Vec<u8>,
    lines: HashMap<u64, Vec<u32>>,
    long: Vec<u32>,
    /// What the kernel wrote, with the instructions completed before the call.
    pub kernel: Vec<Said>,
    /// All statements of the recording about memory, except patches.
    pub said: Vec<Said>,
    /// System calls: instant and number.
    pub calls: Vec<(u64, u64)>,
    /// Signals: instant and number.
    pub signals: Vec<(u64, u8)>,
    /// Order numbers and their instants.
    pub numbers: Vec<(u64, u64)>,
    /// The instants at which a signal's handler begins or has just ended.
    pub entered: Vec<Entry>,
    /// The instants at which a string instruction is interrupted before its end.
    interrupted: Vec<u64>,
    /// Parts of the thread were not recorded.
    pub gaps: bool,
}

/// An instant, the instruction pointer there, and digests of the general and the other registers.
pub type Entry = (u64, u64, (u64, u64));

/// The bit of a register.
pub fn bit(r: Register) -> u64 {
    1 << match r {
        Register::General(n) => n as u32,
        Register::Flags => 16,
        Register::FsBase => 17,
        Register::GsBase => 18,
        Register::Mask(n) => 20 + n as u32,
        Register::Vector(n) => 32 + n as u32,
    }
}

/// Digest of the general registers that are compared.
pub fn digest(cpu: &CpuState) -> u64 {
    cpu.digest()
}

/// Digest of all vector, mask and x87 registers.
pub fn digest_of(vec: &VecState) -> u64 {
    let mut h = DefaultHasher::new();
    (vec.zmm, vec.k).hash(&mut h);
    h.finish()
}

impl Log {
    /// Plays a thread and logs it.
    pub fn play(trace: &Trace, thread: u32) -> Result<Log, Error> {
        let image = trace.stream_info(thread).map_or(0, |i| i.image);
        let mut log = Log {
            thread,
            image,
            from: trace.chunks(thread).first().map_or(0, |c| c.first_pos),
            rip: Vec::new(),
            rsp: Vec::new(),
            rax: Vec::new(),
            digest: Vec::new(),
            vectors: Vec::new(),
            changed: Vec::new(),
            flow: Vec::new(),
            done: Vec::new(),
            accesses: Vec::new(),
            data: Vec::new(),
            lines: HashMap::new(),
            long: Vec::new(),
            kernel: Vec::new(),
            said: Vec::new(),
            calls: Vec::new(),
            signals: Vec::new(),
            numbers: Vec::new(),
            entered: Vec::new(),
            interrupted: Vec::new(),
            gaps: false,
        };
        log.read(trace)?;
        if !log.gaps {
            log.follow(trace)?;
        }
        Ok(log)
    }

    /// Reads what the stream says besides patches.
    fn read(&mut self, trace: &Trace) -> Result<(), Error> {
        // The last system call, and a frame that a signal may follow.
        let mut call = None;
        let mut frame: Option<(usize, Said)> = None;
        // Memory that a key frame restates is not new.
        let mut restating = false;
        let mut string = None;
        for c in trace.chunks(self.thread) {
            let wire = trace.load(c)?;
            let (mut d, mut i) = (Decoder::default(), 0);
            while let Some((at, event, n)) = d.decode(&wire[i..]) {
                i += n;
                let mut say = |address, len| self.said.push(Said { at, address, len });
                match event {
                    Event::Restate { ends, .. } => restating = !ends,
                    _ if restating => {}
                    Event::Time { .. }
                    | Event::Patch { .. }
                    | Event::Lines { .. }
                    | Event::PatchBytes { .. } => continue,
                    Event::Seq { number } => self.numbers.push((number, at)),
                    Event::Syscall { nr, .. } => {
                        self.calls.push((at, nr));
                        call = Some(at);
                    }
                    Event::GapBegin { .. } => self.gaps = true,
                    Event::Memory { addr, bytes } => {
                        let len = bytes.len() as u64;
                        say(addr, len);
                        let before = self.kernel.len();
                        if let Some(c) = call.filter(|c| *c == at || c + 1 == at) {
                            self.kernel.push(Said {
                                at: c,
                                address: addr,
                                len,
                            });
                        }
                        frame = Some((
                            before,
                            Said {
                                at,
                                address: addr,
                                len,
                            },
                        ));
                        continue;
                    }
                    Event::FileOf { addr, len, .. } => {
                        say(addr, len);
                        if let Some(c) = call.filter(|c| *c == at || c + 1 == at) {
                            self.kernel.push(Said {
                                at: c,
                                address: addr,
                                len,
                            });
                        }
                    }
                    Event::Move { from, to, len } => {
                        say(from, len);
                        say(to, len);
                        if let Some(c) = call.filter(|c| *c == at || c + 1 == at) {
                            self.kernel.push(Said {
                                at: c,
                                address: to,
                                len,
                            });
                        }
                    }
                    Event::Zero { addr, len } | Event::Changed { addr, len } => say(addr, len),
                    Event::Signal { signo, .. } => {
                        self.signals.push((at, signo));
                        // The frame belongs to the signal, not to an earlier call.
                        if let Some((before, f)) = frame
                            && f.len >= 440
                            && f.address % 16 == 8
                        {
                            self.kernel.truncate(before);
                            self.kernel.push(Said { at, ..f });
                        }
                    }
                    Event::RepChunk { .. } => string = Some(at),
                    Event::SetState { .. } if string == Some(at) => self.interrupted.push(at),
                    _ => {}
                }
                frame = None;
            }
        }
        Ok(())
    }

    fn follow(&mut self, trace: &Trace) -> Result<(), Error> {
        let code = Arc::new(Code::from_trace(trace, self.image)?);
        let mut m = Machine::new(code, Predictor::WINDOW)?;
        m.from_keyframe(stream(trace, self.thread))?;
        let mut finder = Finder::new(hindsight_isa::xsave::Layout::usual());
        let mut before: Option<(CpuState, VecState)> = None;
        loop {
            let count = m.position();
            let at = (count - self.from) as u32;
            let (cpu, vec) = (m.registers(), m.vectors());
            self.rip.push(cpu.rip);
            self.rsp.push(cpu.gpr[RSP]);
            self.rax.push(cpu.gpr[RAX]);
            self.digest.push(digest(&cpu));
            self.vectors.push(digest_of(&vec));
            if let Some((c, v)) = &before {
                self.changed.push(changes((c, v), (&cpu, &vec)));
            }
            before = Some((cpu, vec));
            // A signal's handler may begin here before the instruction, or in the middle of another handler.
            let interrupted = cpu.rip;
            m.settle()?;
            if self.interrupted.contains(&count) {
                self.begin(&mut m, at, &mut finder)?;
            }
            let (cpu, vec) = (m.registers(), m.vectors());
            if cpu.rip != interrupted {
                let state = (digest(&cpu), digest_of(&vec));
                self.entered.push((count, cpu.rip, state));
            }
            let mut code = [0; 15];
            let n = m.code(cpu.rip, &mut code);
            let code = &code[..n];
            self.flow.push(flow(code, cpu.rip));
            self.done.push((cpu.rip, cpu.gpr[RSP]));
            let mut list = Vec::new();
            let string = hindsight_isa::string::StringOp::decode(code).is_some();
            if !string {
                let held = |at: u64, buf: &mut [u8]| m.read_window(at, buf);
                finder.find_in(code, (&cpu, &vec), &cpu, &held, &mut list);
            }
            let reads: Vec<Option<Vec<u8>>> = list.iter().map(|a| held(&m, a, a.read)).collect();
            if m.run_to(count + 1)? != Stop::Position {
                return Ok(());
            }
            if string {
                finder.find(code, (&cpu, &vec), &m.registers(), &mut list);
            }
            match string {
                true => self.push_string(&m, at, &list),
                false => self.push_all(&m, at, &list, reads),
            }
        }
    }

    /// Executes a string instruction up to its interruption.
    fn begin(&mut self, m: &mut Machine, at: u32, finder: &mut Finder) -> Result<(), Error> {
        let (cpu, vec) = (m.registers(), m.vectors());
        let (mut code, mut list) = ([0; 15], Vec::new());
        let n = m.code(cpu.rip, &mut code);
        m.begin_string()?;
        finder.find(&code[..n], (&cpu, &vec), &m.registers(), &mut list);
        self.push_string(m, at, &list);
        m.settle()
    }

    /// What a string instruction did is known only behind it.
    fn push_string(&mut self, m: &Machine, at: u32, list: &[Access]) {
        let apart = |a: &Access| {
            list.iter()
                .all(|w| !w.write || !w.touches(a.address, a.len))
        };
        let reads = { list.iter() }.map(|a| held(m, a, a.read && apart(a)));
        self.push_all(m, at, list, reads.collect());
    }

    fn push_all(&mut self, m: &Machine, at: u32, list: &[Access], reads: Vec<Option<Vec<u8>>>) {
        for (a, read) in list.iter().zip(reads).filter(|(a, _)| a.read) {
            self.push(at, a, false, read);
        }
        for a in list.iter().filter(|a| a.write) {
            let data = held(m, a, !a.unknown);
            self.push(at, a, true, data);
        }
    }

    fn push(&mut self, at: u32, a: &Access, write: bool, data: Option<Vec<u8>>) {
        let n = self.accesses.len() as u32;
        let data = data.map(|d| {
            let from = self.data.len() as u32;
            self.data.extend(d);
            from
        });
        self.accesses.push(One {
            at,
            read: !write,
            write,
            address: a.address,
            len: a.len,
            data,
        });
        let (first, last) = (
            a.address / LINE,
            a.address.saturating_add(a.len.max(1) - 1) / LINE,
        );
        if last - first >= LINES {
            return self.long.push(n);
        }
        for l in first..=last {
            self.lines.entry(l).or_default().push(n);
        }
    }

    /// Number of instructions of the thread.
    pub fn instructions(&self) -> u64 {
        self.rip.len() as u64 - 1
    }

    /// The last instant of the thread.
    pub fn to(&self) -> u64 {
        self.from + self.instructions()
    }

    /// The position of an instant in the total order.
    pub fn position(&self, count: u64) -> Position {
        let i = self.numbers.partition_point(|n| n.1 <= count);
        let (opens, from) = match i.checked_sub(1) {
            Some(i) => self.numbers[i],
            None => (0, self.from),
        };
        Position::new(opens, count - from)
    }

    /// A byte of an access, if it is logged.
    pub fn value(&self, a: &One, address: u64) -> Option<u8> {
        let from = a.data? as u64 + (address - a.address);
        self.data.get(from as usize).copied()
    }

    /// The accesses that share bytes with these `len` bytes, ascending.
    pub fn touching(&self, address: u64, len: u64) -> Vec<&One> {
        let (first, last) = (
            address / LINE,
            address.saturating_add(len.max(1) - 1) / LINE,
        );
        let near = (first..=last).filter_map(|l| self.lines.get(&l)).flatten();
        let mut all: Vec<u32> = near.chain(&self.long).copied().collect();
        all.sort_unstable();
        all.dedup();
        let all = all.into_iter().map(|i| &self.accesses[i as usize]);
        all.filter(|a| {
            a.len > 0
                && a.address < address.saturating_add(len)
                && address < a.address.saturating_add(a.len)
        })
        .collect()
    }
}

fn held(m: &Machine, a: &Access, wanted: bool) -> Option<Vec<u8>> {
    wanted.then(|| {
        let mut now = vec![0; a.len as usize];
        m.read_window(a.address, &mut now);
        now
    })
}

fn flow(code: &[u8], pc: u64) -> Flow {
    let Some(i) = decode(code, pc) else {
        return Flow::Other;
    };
    match i.mnemonic() {
        Mnemonic::Call => Flow::Call(i.len() as u8),
        Mnemonic::Ret => Flow::Return,
        _ => Flow::Other,
    }
}

/// The registers that differ, as bits of [`bit`].
fn changes(a: (&CpuState, &VecState), b: (&CpuState, &VecState)) -> u64 {
    let general = (0..16).map(Register::General);
    let vectors = (0..32).map(Register::Vector);
    let masks = (0..8).map(Register::Mask);
    let all = general
        .chain(vectors)
        .chain(masks)
        .chain([Register::FsBase, Register::GsBase]);
    all.filter(|r| r.differs(a, b)).fold(0, |m, r| m | bit(r))
}
