//! A module's unwind tables: they tell the caller's registers.

use crate::Module;
use crate::locations::Registers;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow,
};
use hindsight_isa::regs::{DWARF, RSP};
use object::{Object, ObjectSection};

/// A module's `.eh_frame`, sorted.
pub(crate) struct Tables {
    data: Vec<u8>,
    bases: BaseAddresses,
    /// For each entry: its first address, one past its last address, and its offset.
    entries: Vec<(u64, u64, usize)>,
}

type Row = UnwindTableRow<usize>;

impl Tables {
    /// Reads the tables of a file. `None`: it has none.
    pub fn read(file: &[u8]) -> Option<Tables> {
        let file = object::File::parse(file).ok()?;
        let section = file.section_by_name(".eh_frame")?;
        let data = section.uncompressed_data().ok()?.into_owned();
        let mut bases = BaseAddresses::default().set_eh_frame(section.address());
        if let Some(t) = file.section_by_name(".text") {
            bases = bases.set_text(t.address());
        }
        let mut entries = Vec::new();
        let frames = EhFrame::new(&data, LittleEndian);
        let mut all = frames.entries(&bases);
        // Entries after a damaged one are not found.
        while let Ok(Some(entry)) = all.next() {
            if let gimli::CieOrFde::Fde(partial) = entry
                && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
            {
                let start = fde.initial_address();
                entries.push((start, start.saturating_add(fde.len()), fde.offset()));
            }
        }
        entries.sort_unstable();
        Some(Tables {
            data,
            bases,
            entries,
        })
    }

    /// Looks up the row of a file address.
    pub fn row<T>(&self, pc: u64, look: impl FnOnce(&Row) -> Option<T>) -> Option<T> {
        let after = self.entries.partition_point(|e| e.0 <= pc);
        let (_, end, offset) = *self.entries[..after].last()?;
        if pc >= end {
            return None;
        }
        let frames = EhFrame::new(&self.data, LittleEndian);
        let entry: FrameDescriptionEntry<EndianSlice<LittleEndian>> = (frames)
            .fde_from_offset(&self.bases, offset.into(), EhFrame::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(&frames, &self.bases, &mut context, pc)
            .ok()?;
        look(row)
    }
}

impl Module {
    /// The canonical frame address at a file address: the caller's stack pointer after the call returns.
    pub(crate) fn frame_address(&self, pc: u64, registers: &Registers) -> Option<u64> {
        self.tables()?.row(pc, |row| match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Some(registers.dwarf(*register)?.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(_) => None,
        })
    }

    /// The caller's registers, as far as functions must preserve them. The others stay as they are. `look` is the file
    /// address that is looked up. In a function that has called another one it lies in the call instruction.
    pub(crate) fn caller(
        &self,
        look: u64,
        registers: &Registers,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<Registers> {
        let cfa = self.frame_address(look, registers)?;
        self.tables()?.row(look, |row| {
            let mut out = *registers;
            out.gpr[RSP] = cfa;
            for (register, rule) in row.registers() {
                let value = match rule {
                    RegisterRule::Offset(n) => read(cfa.wrapping_add_signed(*n))?,
                    RegisterRule::ValOffset(n) => cfa.wrapping_add_signed(*n),
                    RegisterRule::Register(other) => registers.dwarf(*other)?,
                    RegisterRule::Undefined | RegisterRule::SameValue => continue,
                    _ => return None,
                };
                match register.0 {
                    n @ 0..=15 => out.gpr[DWARF[n as usize]] = value,
                    16 => out.rip = value,
                    _ => {}
                }
            }
            Some(out)
        })
    }
}
