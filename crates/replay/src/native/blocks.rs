//! Makes a processor's translated blocks, and finds the guest instruction of a host address.

use super::Native;
use super::host::Fault;
use crate::Error;
use crate::code::Code;
use crate::cpu::{Cpu, Observe};
use crate::library::Key;
use hindsight_confine::{Code as Parts, Kind, Marks, Refusal, Rules};
use hindsight_translate::{Input, Translator};
use std::sync::Arc;

/// Most instructions of an unlimited block.
const BLOCK: u32 = 64;
/// Code bytes that the translator gets at most.
const FETCH: usize = 1024;
/// Code bytes behind an exit that the translator may look at.
const LOOK: usize = 128;
const PAGE: u64 = 4096;
/// Most attempts to translate a block: one for each instruction that may be refused, one more, and one for a
/// block from the library.
const REFUSALS: usize = BLOCK as usize + 2;

impl Native {
    /// Translates a block. The code check reads it before it may run.
    pub(crate) fn translate(&mut self, cpu: &mut Cpu, key: Key) -> Result<(), Error> {
        let mut shared = true;
        for _ in 0..REFUSALS {
            let made = self.make(cpu, key, shared);
            // The translator adds the atomic operations that it meets.
            if self.translator.breaks.len() != cpu.breaks().len() {
                cpu.replace_breaks(self.translator.breaks.clone());
            }
            let pages = made?;
            let Err(refusal) = self.install(cpu)? else {
                self.cache.insert(key, &self.translator.block, &pages);
                return Ok(());
            };
            // A block from the library is first translated anew.
            if !std::mem::take(&mut shared) {
                self.refuse(cpu, key, refusal)?;
            }
        }
        Err(cpu.unsupported("too much of its translation is not allowed"))
    }

    /// Lets the translator make a block, or takes it from the library if `shared` allows it. Returns the
    /// pages that the block depends on.
    fn make(&mut self, cpu: &Cpu, key: Key, shared: bool) -> Result<Vec<u64>, Error> {
        let code = Arc::clone(&cpu.code);
        let mut buf = [0; FETCH];
        let input = input(&code, key, cpu.epoch, &mut buf);
        // The page of the first byte counts even if none of its bytes is known.
        let mut pages = vec![key.pc / PAGE * PAGE];
        let mut note = |addr: u64| {
            let page = addr / PAGE * PAGE;
            if !pages.contains(&page) {
                pages.push(page);
            }
        };
        let epoch = cpu.epoch;
        let mut look = |addr| {
            note(addr);
            code.peek(addr, epoch, LOOK)
        };
        // Two things keep a block out of the library. Stops are part of a translation and belong to one
        // machine. And on a page whose code changes, less is known about flags.
        let source = input.code;
        let changing = cpu.code.is_changing(key.pc, source.len());
        self.translator.changing = changing;
        let own = !self.translator.breaks.is_empty() || !self.translator.refused.is_empty();
        let library = self.library.as_deref();
        let library = library.filter(|_| shared && !own && !changing);
        if !library.is_some_and(|l| l.restore(&mut self.translator, key, source, &mut look)) {
            if let Err(e) = translate(&mut self.translator, key, &input, &mut look) {
                return Err(match e {
                    hindsight_translate::Error::Truncated => cpu.missing_code(),
                    // Whoever asks for a translation has looked at the instruction before.
                    hindsight_translate::Error::Lacking => {
                        cpu.unsupported("this processor lacks the instruction")
                    }
                });
            }
            if let Some(l) = library {
                l.insert(&self.translator, key, source);
            }
        }
        let block = &self.translator.block;
        note(
            key.pc
                .wrapping_add((block.src_len as u64).saturating_sub(1)),
        );
        Ok(pages)
    }

    /// Places the translator's block and lets the code check read it there.
    fn install(&mut self, cpu: &mut Cpu) -> Result<Result<(), Refusal>, Error> {
        let block = &self.translator.block;
        let (hot, cold) = (block.hot.len(), block.cold.len());
        if self.cache.room(hot, cold).is_none() {
            self.cache.flush(cpu.window.ctx_mut());
            self.lose_way();
        }
        let Some((hot, cold)) = self.cache.room(hot, cold) else {
            return Err(cpu.unsupported("its translation is larger than the code cache"));
        };
        let base = self.cache.base();
        self.translator.relocate(hot, cold, base);
        let block = &self.translator.block;
        let parts = Parts {
            hot: &block.hot,
            cold: &block.cold,
            hot_at: (hot - base) as u32,
            cold_at: (cold - base) as u32,
        };
        Ok(self.checker.check(&self.rules(cpu), &parts))
    }

    /// What translated code may do in this processor.
    fn rules(&self, cpu: &Cpu) -> Rules {
        Rules {
            kind: Kind::Replay,
            bits: self.translator.policy.predictor.bits,
            marks: match cpu.marking {
                Observe::Not => Marks::None,
                Observe::Anywhere => Marks::Beside,
                Observe::Near => Marks::Near,
                Observe::Runs => Marks::Runs,
            },
            watch: self.translator.watch,
        }
    }

    /// Remembers not to translate the instruction whose translation was refused. Replay reports the reason
    /// when it reaches the instruction.
    fn refuse(&mut self, cpu: &Cpu, key: Key, refusal: Refusal) -> Result<(), Error> {
        let known = self.mapped(cpu, key, &[]).and_then(|()| {
            let map = &self.translator.block.map;
            let entry = map.iter().rev().find(|e| match refusal.cold {
                false => e.hot <= refusal.at,
                true => e.cold <= refusal.at,
            });
            entry.map(|e| e.pc)
        });
        match known {
            Some(pc) if !self.translator.refused.contains(&pc) => {
                self.translator.refused.push(pc);
                self.refusals.insert(pc, refusal);
                Ok(())
            }
            _ => Err(cpu.unsupported(refusal.to_string())),
        }
    }

    /// Turns a fault into an error at the guest instruction that caused it.
    pub(crate) fn fault(&mut self, cpu: &mut Cpu, fault: Fault, counter: u64) -> Error {
        if let Some((pc, ahead)) = self.guest_place(cpu, fault.host_pc) {
            cpu.rip = pc;
            cpu.pos = cpu.pos.max(counter.saturating_sub(ahead));
        }
        let name = match fault.signal {
            libc::SIGILL => return cpu.unsupported("this processor does not have it"),
            libc::SIGFPE => "an arithmetic exception",
            libc::SIGSEGV | libc::SIGBUS => "a memory fault",
            _ => "a trap",
        };
        cpu.difference("no event", name)
    }

    /// The guest instruction of a host address in the translation cache.
    fn guest_place(&mut self, cpu: &Cpu, host_pc: u64) -> Option<(u64, u64)> {
        let (block, offset) = self.cache.at(host_pc)?;
        let key = block.key;
        let peeked = self.cache.peeked(block).to_vec();
        self.mapped(cpu, key, &peeked)?;
        let map = &self.translator.block.map;
        let entry = match offset {
            Ok(hot) => map.iter().rev().find(|e| e.hot <= hot)?,
            Err(cold) => map.iter().rev().find(|e| e.cold <= cold)?,
        };
        Some((entry.pc, entry.ahead as u64))
    }

    /// Translates a block again to get its map. `peeked` is what the first translation depended on, if there
    /// was one.
    fn mapped(&mut self, cpu: &Cpu, key: Key, peeked: &[u8]) -> Option<()> {
        let code = Arc::clone(&cpu.code);
        let mut buf = [0; FETCH];
        let input = Input {
            peeked,
            ..input(&code, key, cpu.epoch, &mut buf)
        };
        self.translator.want_map = true;
        self.translator.changing = code.is_changing(key.pc, input.code.len());
        let epoch = cpu.epoch;
        let mut look = |addr| code.peek(addr, epoch, LOOK);
        let done = translate(&mut self.translator, key, &input, &mut look);
        self.translator.want_map = false;
        done.ok()
    }
}

/// Makes the block of `key` the translator's current block.
fn translate<'c>(
    translator: &mut Translator,
    key: Key,
    input: &Input,
    look: &mut dyn FnMut(u64) -> &'c [u8],
) -> Result<(), hindsight_translate::Error> {
    let table = translator.watch;
    translator.watch = table.filter(|_| key.limit != Key::UNWATCHED);
    let done = translator.translate(input, look);
    translator.watch = table;
    done
}

/// The translator's input for `key`. `buf` is room for code bytes.
fn input<'b>(code: &'b Code, key: Key, epoch: u64, buf: &'b mut [u8; FETCH]) -> Input<'b> {
    let page = code.slice(key.pc, epoch, FETCH);
    // Only code that continues on another page has to be copied.
    let code = match page.get(..FETCH) {
        Some(whole) => whole,
        None => {
            let n = code.fetch(key.pc, epoch, buf);
            &buf[..n]
        }
    };
    Input {
        pc: key.pc,
        code,
        max_instrs: match key.limit {
            0 => BLOCK,
            Key::UNWATCHED => 1,
            n => n,
        },
        self_check: false,
        peeked: &[],
    }
}
