//! Decoded code: blocks by address.

use crate::decode::{Next, decode};
use crate::fault::Fault;
use crate::op::Op;
use crate::{Code, Memory};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::collections::HashMap;

const PAGE: u64 = 4096;
/// Most instructions of a block.
const MOST: usize = u64::BITS as usize;
/// Entries of the table that is looked at first.
const QUICK: usize = 1 << 14;
/// Most instructions in all blocks, and most blocks. Then all are forgotten, so that memory stays bounded.
const LIMIT: usize = 1 << 20;

/// Instructions that follow each other. A branch that is not taken, a jump or a call to a known address may be among
/// them.
pub struct Block<M> {
    /// Address of the first one.
    pub pc: u64,
    /// At least one.
    pub ops: Vec<Op<M>>,
    /// A bit for each of these that the machine at hand cannot execute itself ([`crate::Interpreter::set_traits`]).
    pub needy: u64,
    /// A bit for each that uses few registers.
    pub apart: u64,
}

/// All blocks.
pub struct Blocks<M> {
    list: Vec<Block<M>>,
    index: HashMap<u64, u32>,
    /// Blocks by the low bits of their addresses.
    quick: Vec<(u64, u32)>,
    /// The blocks that have instructions of a page.
    pages: HashMap<u64, Vec<u32>>,
    /// Instructions in all blocks.
    size: usize,
    /// What is asked of each instruction. `None`: nothing.
    traits: Option<Traits>,
}

/// Says of an instruction whether the machine at hand cannot execute it itself, and whether it uses few registers: none that
/// would have to be handed over.
pub type Traits = Box<dyn Fn(&Instruction) -> [bool; 2] + Send>;

/// The entry of no block. Nothing is executed there.
const NONE: (u64, u32) = (u64::MAX, 0);

impl<M> Default for Blocks<M> {
    fn default() -> Self {
        Blocks {
            list: Vec::new(),
            index: HashMap::new(),
            quick: vec![NONE; QUICK],
            pages: HashMap::new(),
            size: 0,
            traits: None,
        }
    }
}

fn place(pc: u64) -> usize {
    (pc ^ pc >> 14) as usize % QUICK
}

impl<M: Memory> Blocks<M> {
    /// No blocks yet.
    pub fn on(traits: Option<Traits>) -> Blocks<M> {
        Blocks {
            traits,
            ..Blocks::default()
        }
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> &Block<M> {
        &self.list[id as usize]
    }

    /// The block at an address.
    #[inline(always)]
    pub fn find(&mut self, pc: u64) -> Option<u32> {
        let quick = &mut self.quick[place(pc)];
        if quick.0 == pc && pc != u64::MAX {
            return Some(quick.1);
        }
        let id = *self.index.get(&pc)?;
        *quick = (pc, id);
        Some(id)
    }

    /// Decodes the block at an address.
    pub fn make(&mut self, pc: u64, code: &dyn Code) -> Result<u32, Fault> {
        if self.size.max(self.list.len()) > LIMIT {
            self.keep_pages(&mut |_| false);
        }
        let mut ops = Vec::new();
        let (mut needy, mut apart) = (0, 0);
        let mut pages = Vec::new();
        let mut at = pc;
        let mut buf = [0; 64];
        let (mut from, mut known) = (0, 0);
        while ops.len() < MOST {
            if at.wrapping_sub(from).saturating_add(15) > known as u64 {
                (from, known) = (at, code.fetch(at, &mut buf).min(buf.len()));
            }
            let bytes = &buf[at.wrapping_sub(from) as usize..known];
            let i = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            if i.is_invalid() {
                if !ops.is_empty() {
                    break;
                }
                // Too few bytes are known, or they are no instruction.
                return Err(match bytes.len() < 15 {
                    true => Fault::MissingCode,
                    false => Fault::NoInstruction,
                });
            }
            for a in [at, i.next_ip().wrapping_sub(1)] {
                if !pages.contains(&(a / PAGE * PAGE)) {
                    pages.push(a / PAGE * PAGE);
                }
            }
            if let Some(traits) = &self.traits {
                let [is_needy, is_apart] = traits(&i);
                needy |= (is_needy as u64) << ops.len();
                apart |= (is_apart as u64) << ops.len();
            }
            let (op, next) = decode(&i);
            ops.push(op);
            match next {
                Next::At(next) => at = next,
                Next::Elsewhere => break,
            }
        }
        let id = self.list.len() as u32;
        self.size += ops.len();
        ops.shrink_to_fit();
        self.list.push(Block {
            pc,
            ops,
            needy,
            apart,
        });
        self.index.insert(pc, id);
        for page in pages {
            self.pages.entry(page).or_default().push(id);
        }
        Ok(id)
    }

    /// Forgets the blocks that have instructions of a page.
    pub fn forget_page(&mut self, page: u64) {
        for id in self.pages.remove(&page).unwrap_or_default() {
            let block = &mut self.list[id as usize];
            self.size -= block.ops.len();
            block.ops = Vec::new();
            // Another block may be there by now.
            if self.index.get(&block.pc) == Some(&id) {
                self.index.remove(&block.pc);
            }
            let quick = &mut self.quick[place(block.pc)];
            if *quick == (block.pc, id) {
                *quick = NONE;
            }
        }
    }

    /// Forgets the blocks that have instructions of pages of which `keep` does not hold.
    pub fn keep_pages(&mut self, keep: &mut dyn FnMut(u64) -> bool) {
        let pages: Vec<u64> = self.pages.keys().copied().filter(|p| !keep(*p)).collect();
        if pages.len() == self.pages.len() {
            *self = Blocks::on(self.traits.take());
            return;
        }
        for page in pages {
            self.forget_page(page);
        }
    }
}
