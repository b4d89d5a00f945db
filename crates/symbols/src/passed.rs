//! Finds with what functions were called. A function need not keep its arguments. But its caller often still has the
//! values from which they were made, and the debug information describes that for each call.

// The names of DWARF constants are as in the standard.
#![allow(non_upper_case_globals)]

use crate::Module;
use crate::dwarf::Reader;
use crate::locations::{AtEntry, EvalFrame, KnownRegisters, Location, evaluate, frame_base};
use crate::space::{CallFrame, Space};
use crate::tailcalls::subprogram;
use gimli::constants::*;
use gimli::{DebuggingInformationEntry, EntriesTreeNode, Operation, Register, UnitOffset, UnitRef};
use std::cell::OnceCell;

/// For the values that a caller itself was passed, its callers are asked: at most this many.
const MOST: u32 = 8;
/// How deep scopes may nest.
const DEPTH: u32 = 64;

/// What a call passes.
struct Passed {
    registers: AtEntry,
    /// Some of it depends on what the caller itself was passed, or is not known.
    lacks: bool,
}

impl Space {
    /// The registers with which the function of a frame began, as far as its caller says. `n` is the index of the frame
    /// in a call stack of [`Space::backtrace`]. `read` gives the 8 bytes at a guest address, if they are known. The
    /// answer is for [`Module::variables`].
    ///
    /// `None`: the caller says nothing. Or it may have called another function first, which went on as this one by a
    /// tail call.
    pub fn at_entry(
        &self,
        stack: &[CallFrame],
        n: usize,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<AtEntry> {
        self.passed_to(stack, n, read, MOST)
    }

    fn passed_to(
        &self,
        stack: &[CallFrame],
        n: usize,
        read: &mut dyn FnMut(u64) -> Option<u64>,
        left: u32,
    ) -> Option<AtEntry> {
        let (callee, caller) = (stack.get(n)?, stack.get(n + 1)?);
        if callee.signal || caller.signal || left == 0 {
            return None;
        }
        let (of, m) = (self.mapping(callee.pc)?, self.mapping(caller.pc)?);
        let symbol = of.symbol_of(callee)?;
        // A function may have parts elsewhere. Its first part is called.
        let begin = of.module.begin_of(symbol).unwrap_or(symbol);
        let behind = caller.pc.wrapping_sub(m.bias);
        // What was passed to the caller itself. It is found when it is needed.
        let before = OnceCell::new();
        let mut frame = EvalFrame {
            registers: &caller.registers,
            known: KnownRegisters::ALL,
            entry: None,
            bias: m.bias,
            cfa: m
                .module
                .frame_address(behind.wrapping_sub(1), &caller.registers),
            base: None,
            read,
        };
        let first = match m.module.called(behind) {
            Some(called) => m.target(&called, of)?,
            None => {
                let mut target = m.module.call_target(behind, &mut frame);
                if target.is_none() {
                    let found = self.passed_to(stack, n + 1, frame.read, left - 1)?;
                    frame.entry = Some(before.get_or_init(|| found));
                    target = m.module.call_target(behind, &mut frame);
                }
                target?.wrapping_sub(of.bias)
            }
        };
        // The function may have begun again since, with other arguments.
        if ![symbol, begin].contains(&first) || of.module.repeats(begin) {
            return None;
        }
        let mut passed = m.module.passed(behind, &mut frame)?;
        if passed.lacks
            && frame.entry.is_none()
            && let Some(found) = self.passed_to(stack, n + 1, frame.read, left - 1)
        {
            frame.entry = Some(before.get_or_init(|| found));
            passed = m.module.passed(behind, &mut frame)?;
        }
        Some(passed.registers).filter(|r| !r.is_empty())
    }
}

impl Module {
    /// What the call before a file address passes in registers, in the caller's frame.
    fn passed(&self, behind: u64, frame: &mut EvalFrame) -> Option<Passed> {
        self.at_call(behind, frame, |unit, node, frame| {
            let mut out = Passed {
                registers: AtEntry::none(),
                lacks: false,
            };
            let mut children = node.children();
            while let Ok(Some(child)) = children.next() {
                let Some((register, value)) = parameter(unit, child.entry()) else {
                    continue;
                };
                // The result of the expression is the value itself.
                match evaluate(unit, value, frame) {
                    Location::Value(v) | Location::Memory(v) => out.registers.set(register, v),
                    _ => out.lacks = true,
                }
            }
            Some(out)
        })
    }

    /// The guest address to which the call before a file address goes. `None`: that can no longer be known.
    fn call_target(&self, behind: u64, frame: &mut EvalFrame) -> Option<u64> {
        self.at_call(behind, frame, |unit, node, frame| {
            let e = node.entry();
            let target = e
                .attr_value(DW_AT_call_target)
                .or_else(|| e.attr_value(DW_AT_GNU_call_site_target))?;
            match evaluate(unit, target.exprloc_value()?, frame) {
                Location::Value(v) | Location::Memory(v) => Some(v),
                _ => None,
            }
        })
    }

    /// Looks at the entry of the call before a file address.
    fn at_call<T>(
        &self,
        behind: u64,
        frame: &mut EvalFrame,
        look: impl FnOnce(UnitRef<Reader>, EntriesTreeNode<Reader>, &mut EvalFrame) -> Option<T>,
    ) -> Option<T> {
        let inside = behind.wrapping_sub(1);
        let dwarf = self.dwarf()?;
        let unit = dwarf.find_dwarf_and_unit(inside).skip_all_loads()?;
        let mut tree = unit.unit.entries_tree(None).ok()?;
        let function = subprogram(unit, tree.root().ok()?, inside, 0).ok()??;
        let mut tree = unit.unit.entries_tree(Some(function)).ok()?;
        let node = tree.root().ok()?;
        frame.base = frame_base(unit, node.entry(), frame);
        let call = call(unit, node, behind, 0)?;
        let mut tree = unit.unit.entries_tree(Some(call)).ok()?;
        look(unit, tree.root().ok()?, frame)
    }
}

/// The entry of the call before a file address.
fn call(
    unit: UnitRef<Reader>,
    node: EntriesTreeNode<Reader>,
    behind: u64,
    depth: u32,
) -> Option<UnitOffset<usize>> {
    let mut children = node.children();
    while let Ok(Some(child)) = children.next() {
        let e = child.entry();
        match e.tag() {
            DW_TAG_call_site | DW_TAG_GNU_call_site => {
                let at = e
                    .attr_value(DW_AT_call_return_pc)
                    .or_else(|| e.attr_value(DW_AT_low_pc))?;
                if unit.attr_address(at).ok().flatten() == Some(behind) {
                    return Some(e.offset());
                }
            }
            DW_TAG_lexical_block | DW_TAG_inlined_subroutine if depth < DEPTH => {
                let found = call(unit, child, behind, depth + 1);
                if found.is_some() {
                    return found;
                }
            }
            _ => {}
        }
    }
    None
}

/// The register in which a call passes a parameter, and the expression that computes it.
fn parameter(
    unit: UnitRef<Reader>,
    e: &DebuggingInformationEntry<Reader>,
) -> Option<(Register, gimli::Expression<Reader>)> {
    if !matches!(
        e.tag(),
        DW_TAG_call_site_parameter | DW_TAG_GNU_call_site_parameter
    ) {
        return None;
    }
    let place = e.attr_value(DW_AT_location)?.exprloc_value()?;
    let mut parts = place.operations(unit.unit.encoding());
    let Ok(Some(Operation::Register { register })) = parts.next() else {
        return None;
    };
    let value = e
        .attr_value(DW_AT_call_value)
        .or_else(|| e.attr_value(DW_AT_GNU_call_site_value))?;
    Some((register, value.exprloc_value()?))
}
