//! The address space of a process: where its modules are, and walks of its stacks.

use crate::tailcalls::Called;
use crate::{InlineFrame, Module, Registers};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder};
use hindsight_isa::regs::{RBP, RSP, SIGCONTEXT};
use hindsight_text::line;
use object::{Object, ObjectSection};
use std::fmt;
use std::sync::Arc;

/// A part of a module in memory.
#[derive(Clone)]
pub struct Mapping {
    /// First guest address.
    pub start: u64,
    /// One past its last guest address.
    pub end: u64,
    /// The module.
    pub module: Arc<Module>,
    /// Guest address minus file address.
    pub bias: u64,
}

impl Mapping {
    /// The file address of the symbol of a frame's function.
    pub(crate) fn symbol_of(&self, frame: &CallFrame) -> Option<u64> {
        let (_, distance) = frame.location.as_ref()?.function.as_ref()?;
        Some(frame.pc.wrapping_sub(self.bias).wrapping_sub(*distance))
    }

    /// The function that a call in this mapping calls, as a file address in the module of `of`.
    pub(crate) fn target(&self, called: &Called, of: &Mapping) -> Option<u64> {
        match called {
            Called::Here(at) => {
                let same = Arc::ptr_eq(&self.module, &of.module) && self.bias == of.bias;
                same.then_some(*at)
            }
            Called::Elsewhere(name) => match of.module.named(name)[..] {
                [at] => Some(at),
                _ => None,
            },
        }
    }
}

/// What lies at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeLocation {
    /// Path of the module.
    pub module: String,
    /// File address.
    pub addr: u64,
    /// The demangled function, and the distance from its start in bytes.
    pub function: Option<(String, u64)>,
}

impl CodeLocation {
    /// The location as text for programs: names are not escaped.
    pub fn exact(&self) -> String {
        let file = self.module.rsplit('/').next().unwrap_or(&self.module);
        match &self.function {
            Some((name, 0)) => format!("{file}!{name}"),
            Some((name, past)) => format!("{file}!{name}+{past:#x}"),
            None => format!("{file}+{:#x}", self.addr),
        }
    }
}

/// The location as text. Names are escaped.
impl fmt::Display for CodeLocation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&line(&self.exact()))
    }
}

/// One level of a call stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallFrame {
    /// Guest address of the next instruction in this frame: the instruction pointer, or where a call returns.
    pub pc: u64,
    /// The caller's stack pointer just before its call, if known (the canonical frame address). It identifies the
    /// frame.
    pub cfa: Option<u64>,
    /// What lies at `pc`, or at the call before it. `None`: no module is mapped there.
    pub location: Option<CodeLocation>,
    /// The functions inlined here, innermost first, and the real one last.
    pub frames: Vec<InlineFrame>,
    /// It is the code to which a signal handler returns. Nobody has called it: the next frame was interrupted.
    pub signal: bool,
    /// It went on as the function in the frame before, by a jump (a tail call). Its own frame is gone.
    pub tail: bool,
    /// The registers. In a caller's frame, only those are right that functions preserve.
    pub registers: Registers,
}

/// The code to which handlers return: `rt_sigreturn`, with both ways to load its number.
const SIGNAL_RETURNS: [&[u8]; 2] = [b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05", b"\xb8\x0f\0\0\0\x0f\x05"];
/// Bytes of the `syscall` at its end.
const SYSCALL: usize = 2;
/// Where the interrupted instruction pointer is in the kernel's `ucontext`.
const SAVED_IP: u64 = 168;

/// Where an interrupted general register is there.
fn saved(register: usize) -> u64 {
    const SIGCONTEXT_AT: u64 = 40;
    SIGCONTEXT_AT + 8 * SIGCONTEXT[register] as u64
}

/// Where the modules of a process are, at one instant.
#[derive(Default)]
pub struct Space {
    /// Sorted by address. They do not overlap.
    mappings: Vec<Mapping>,
}

impl Space {
    /// A space without mappings.
    pub fn new() -> Space {
        Space::default()
    }

    /// Maps `len` bytes of a file from `offset` on, at guest address `start`. They replace what was there. Returns
    /// whether a segment of the file lies there.
    pub fn map(&mut self, module: &Arc<Module>, start: u64, len: u64, offset: u64) -> bool {
        self.unmap(start, len);
        let biases = module.biases(start, len, offset);
        // All parts of a loaded file have one bias.
        let there = |b: &&u64| {
            let same = |m: &Mapping| Arc::ptr_eq(&m.module, module) && m.bias == **b;
            self.mappings.iter().any(same)
        };
        let Some(&bias) = biases.iter().find(there).or(biases.first()) else {
            return false;
        };
        let at = self.mappings.partition_point(|m| m.start < start);
        let mapping = Mapping {
            start,
            end: start.saturating_add(len),
            module: Arc::clone(module),
            bias,
        };
        self.mappings.insert(at, mapping);
        true
    }

    /// Removes what is mapped in `start..start + len`.
    pub fn unmap(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let old = std::mem::take(&mut self.mappings);
        for m in old {
            if m.end <= start || m.start >= end {
                self.mappings.push(m);
                continue;
            }
            if m.start < start {
                self.mappings.push(Mapping {
                    end: start,
                    ..m.clone()
                });
            }
            if m.end > end {
                self.mappings.push(Mapping { start: end, ..m });
            }
        }
    }

    /// All mappings, sorted by address.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The mapping of an address.
    pub fn mapping(&self, addr: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|m| m.start <= addr);
        let m = self.mappings[..after].last()?;
        (addr < m.end).then_some(m)
    }

    /// What lies at an address.
    pub fn location(&self, addr: u64) -> Option<CodeLocation> {
        let m = self.mapping(addr)?;
        let file = addr.wrapping_sub(m.bias);
        Some(CodeLocation {
            module: m.module.path().into(),
            addr: file,
            function: m.module.function(file).map(|(f, d)| (f.demangled(), d)),
        })
    }

    /// The functions that execute at an address, innermost first.
    pub fn frames(&self, addr: u64) -> Vec<InlineFrame> {
        self.mapping(addr)
            .map_or(Vec::new(), |m| m.module.frames(addr.wrapping_sub(m.bias)))
    }

    /// The guest addresses of a function, ascending. `name` is the function's name as for [`Module::find`], or
    /// `module!name`. The module is the file's name, or its beginning up to a `.` or `-`, as in `libc!malloc`.
    pub fn find(&self, name: &str) -> Vec<u64> {
        let mut out = Vec::new();
        let (modules, name) = self.modules_of(name);
        for m in modules {
            let at = |f: &crate::Function| f.addr.wrapping_add(m.bias);
            out.extend(m.module.find(name).into_iter().map(at));
        }
        out.sort_unstable();
        out.dedup();
        out
    }

    /// One mapping of each module that `name` or `module!name` may mean, and the name without the module.
    pub(crate) fn modules_of<'a>(
        &'a self,
        name: &'a str,
    ) -> (impl Iterator<Item = &'a Mapping>, &'a str) {
        let (module, name) = match name.split_once('!') {
            Some((m, n)) => (Some(m), n),
            None => (None, name),
        };
        let is = move |m: &&Mapping| {
            let file = m.module.path().rsplit('/').next().unwrap_or_default();
            module.is_none_or(|w| {
                file == w
                    || file
                        .strip_prefix(w)
                        .is_some_and(|r| r.starts_with(['.', '-']))
            })
        };
        (self.modules().filter(is), name)
    }

    /// The guest addresses at which code for a source line begins, ascending. See [`Module::addresses_of_line`].
    pub fn addresses_of_line(&self, file: &str, line: u32) -> Vec<u64> {
        let mut out: Vec<u64> = self
            .modules()
            .flat_map(|m| {
                let at = m.module.addresses_of_line(file, line);
                at.into_iter().map(|a| a.wrapping_add(m.bias))
            })
            .collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// One mapping of each module.
    fn modules(&self) -> impl Iterator<Item = &Mapping> {
        let mut seen = Vec::new();
        self.mappings.iter().filter(move |m| {
            let key = (Arc::as_ptr(&m.module), m.bias);
            let new = !seen.contains(&key);
            if new {
                seen.push(key);
            }
            new
        })
    }

    /// Whether a returning handler executes the instruction at an address next, or the one after it.
    fn is_signal_return(&self, pc: u64) -> bool {
        let Some(m) = self.mapping(pc) else {
            return false;
        };
        let file = pc.wrapping_sub(m.bias);
        SIGNAL_RETURNS.iter().any(|code| {
            let starts = [file, file.wrapping_sub((code.len() - SYSCALL) as u64)];
            starts
                .iter()
                .any(|s| m.module.bytes(*s, code.len()) == Some(*code))
        })
    }

    /// A frame that stands at `pc`. Its location is that of `look`, which is in the call before it.
    fn frame_at(&self, (pc, look): (u64, u64), signal: bool, registers: Registers) -> CallFrame {
        let location = self.location(look).map(|mut p| {
            // The frame shows the address itself, not the byte before it.
            p.addr = p.addr.wrapping_add(pc - look);
            if let Some((_, d)) = &mut p.function {
                *d += pc - look;
            }
            p
        });
        CallFrame {
            pc,
            cfa: None,
            location,
            frames: self.frames(look),
            signal,
            tail: false,
            registers,
        }
    }

    /// Walks the stack of a thread with these registers. `read` gives the 8 bytes at a guest address, if they are
    /// known. The walk ends where they are not known, or after `limit` frames.
    pub fn backtrace(
        &self,
        registers: &Registers,
        read: &mut dyn FnMut(u64) -> Option<u64>,
        limit: usize,
    ) -> Vec<CallFrame> {
        let (rip, rsp, rbp) = (registers.rip, registers.gpr[RSP], registers.gpr[RBP]);
        let mut all = *registers;
        let mut unwinder: UnwinderX86_64<Vec<u8>> = UnwinderX86_64::new();
        for m in self.modules() {
            if let Some(module) = unwind_module(m, &self.mappings) {
                unwinder.add_module(module);
            }
        }
        let mut cache = CacheX86_64::<_>::new();
        let mut regs = UnwindRegsX86_64::new(rip, rsp, rbp);
        let mut read = |addr: u64| read(addr).ok_or(());
        let mut address = FrameAddress::from_instruction_pointer(rip);
        let mut out: Vec<CallFrame> = Vec::new();
        while out.len() < limit {
            let pc = address.address();
            let signal = self.is_signal_return(pc);
            // A return address may be the first of the next function. So the call before it is looked up.
            let look = if signal {
                pc
            } else {
                address.address_for_lookup()
            };
            out.push(self.frame_at((pc, look), signal, all));
            if signal {
                // The unwind tables say this in expressions that the unwinder does not evaluate.
                let known = [saved(RBP), saved(RSP), SAVED_IP];
                let known = known.map(|at| read(regs.sp().wrapping_add(at)));
                let [Ok(bp), Ok(sp), Ok(ip)] = known else {
                    break;
                };
                if let Some(last) = out.last_mut() {
                    last.cfa = Some(sp);
                }
                let frame = regs.sp();
                for (n, value) in all.gpr.iter_mut().enumerate() {
                    *value = read(frame.wrapping_add(saved(n))).unwrap_or(*value);
                }
                all.rip = ip;
                regs = UnwindRegsX86_64::new(ip, sp, bp);
                address = FrameAddress::from_instruction_pointer(ip);
                continue;
            }
            let before = (regs.sp(), regs.bp());
            let interrupted = out.len() == 1 || out[out.len() - 2].signal;
            if let Some(ra) = self.bad_call(pc, regs.sp(), interrupted, &mut read) {
                if let Some(last) = out.last_mut() {
                    last.cfa = Some(before.0.wrapping_add(8));
                }
                (all.rip, all.gpr[RSP]) = (ra, before.0.wrapping_add(8));
                regs = UnwindRegsX86_64::new(ra, all.gpr[RSP], before.1);
                let Some(a) = FrameAddress::from_return_address(ra) else {
                    break;
                };
                address = a;
                continue;
            }
            let next = unwinder.unwind_frame(address, &mut regs, &mut cache, &mut read);
            let Ok(Some(ra)) = next else {
                break;
            };
            if let Some(last) = out.last_mut() {
                last.cfa = Some(regs.sp());
            }
            let tables = self.mapping(look).and_then(|m| {
                let mut read = |addr: u64| read(addr).ok();
                let file = look.wrapping_sub(m.bias);
                m.module.caller(file, &all, &mut read)
            });
            // The tables count only if both agree. Otherwise the unwinder has used something else.
            if let Some(caller) = tables.filter(|c| c.rip == ra && c.gpr[RSP] == regs.sp()) {
                all = caller;
            }
            (all.rip, all.gpr[RSP], all.gpr[RBP]) = (ra, regs.sp(), regs.bp());
            let Some(a) = FrameAddress::from_return_address(ra) else {
                break;
            };
            address = a;
        }
        self.with_tail_calls(out)
    }

    /// Adds the frames of functions that tail calls have left, where the debug information says which they were.
    fn with_tail_calls(&self, frames: Vec<CallFrame>) -> Vec<CallFrame> {
        let mut out: Vec<CallFrame> = Vec::with_capacity(frames.len());
        for frame in frames {
            if let Some(last) = out.last()
                && !last.signal
                && !frame.signal
            {
                let between = self.between(last, &frame);
                out.extend(between);
            }
            out.push(frame);
        }
        out
    }

    /// The frames between a function's frame and that of its caller.
    fn between(&self, callee: &CallFrame, caller: &CallFrame) -> Vec<CallFrame> {
        let (Some(m), Some(of)) = (self.mapping(caller.pc), self.mapping(callee.pc)) else {
            return Vec::new();
        };
        let called = m.module.called(caller.pc.wrapping_sub(m.bias));
        let (Some(symbol), Some(called)) = (of.symbol_of(callee), called) else {
            return Vec::new();
        };
        let first = match m.target(&called, of) {
            Some(first) if first != symbol => first,
            _ => return Vec::new(),
        };
        let begin = of.module.begin_of(symbol).unwrap_or(symbol);
        let chain = of.module.tail_calls(first, begin);
        let one = |behind: u64| {
            let pc = behind.wrapping_add(of.bias);
            let mut registers = caller.registers;
            (registers.rip, registers.gpr[RSP]) = (pc, registers.gpr[RSP].wrapping_sub(8));
            CallFrame {
                pc,
                cfa: callee.cfa,
                location: self.location(pc.wrapping_sub(1)).map(|mut p| {
                    p.addr = p.addr.wrapping_add(1);
                    p.function = p.function.map(|(f, d)| (f, d + 1));
                    p
                }),
                frames: self.frames(pc.wrapping_sub(1)),
                signal: false,
                tail: true,
                registers,
            }
        };
        chain.into_iter().map(one).collect()
    }

    /// Where a call returns that has led to an address without code. The call has done nothing yet: its return address
    /// is on top of the stack, and a call instruction ends there.
    fn bad_call(
        &self,
        pc: u64,
        sp: u64,
        first: bool,
        read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    ) -> Option<u64> {
        if !first || self.mapping(pc).is_some() {
            return None;
        }
        let ra = read(sp).ok()?;
        let m = self.mapping(ra)?;
        let file = ra.wrapping_sub(m.bias);
        // `call rel32`, or `call r/m64` with its operand in a register or in memory, after prefixes.
        let near = m
            .module
            .bytes(file.wrapping_sub(5), 5)
            .is_some_and(|b| b[0] == 0xe8);
        let indirect = (2..=7).any(|n| {
            let code = m.module.bytes(file.wrapping_sub(n), n as usize);
            code.is_some_and(|b| b[0] == 0xff && b[1] >> 3 & 7 == 2)
        });
        (near || indirect).then_some(ra)
    }
}

/// The unwind tables of a module, as mapped.
fn unwind_module(m: &Mapping, all: &[Mapping]) -> Option<framehop::Module<Vec<u8>>> {
    let file = object::File::parse(m.module.data()).ok()?;
    let section = |name: &str| file.section_by_name(name);
    let range = |name: &str| section(name).map(|s| s.address()..s.address() + s.size());
    let data = |name: &str| {
        let s = section(name)?;
        Some(s.uncompressed_data().ok()?.into_owned())
    };
    let info = framehop::ExplicitModuleSectionInfo {
        // File addresses are relative to this one.
        base_svma: 0,
        text_svma: range(".text"),
        text: None,
        stubs_svma: None,
        stub_helper_svma: None,
        got_svma: range(".got"),
        unwind_info: None,
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        debug_frame: data(".debug_frame"),
        text_segment_svma: None,
        text_segment: None,
    };
    let same = |o: &&Mapping| Arc::ptr_eq(&o.module, &m.module) && o.bias == m.bias;
    let start = all.iter().filter(same).map(|o| o.start).min()?;
    let end = all.iter().filter(same).map(|o| o.end).max()?;
    let path = m.module.path().to_string();
    Some(framehop::Module::new(path, start..end, m.bias, info))
}
