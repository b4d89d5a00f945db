//! Finds where the body of a function begins: after the prologue, which lays out its stack frame. Without optimization
//! the debug information is right about arguments only from there on.

use crate::{Error, Module};

impl Module {
    /// The file address after the prologue of the function that begins at `addr`. Debuggers take the same one: where
    /// the line table says so, otherwise where the second line begins.
    pub(crate) fn body(&self, addr: u64, end: u64) -> Result<Option<u64>, Error> {
        let Some(dwarf) = self.dwarf() else {
            return Ok(None);
        };
        let Some(unit) = dwarf.find_dwarf_and_unit(addr).skip_all_loads() else {
            return Ok(None);
        };
        let Some(program) = unit.unit.line_program.clone() else {
            return Ok(None);
        };
        let mut rows = program.rows();
        let (mut inside, mut second) = (false, None);
        while let Some((_, row)) = rows.next_row()? {
            let at = row.address();
            if row.end_sequence() {
                inside = false;
                continue;
            }
            if !(addr..end).contains(&at) {
                continue;
            }
            if row.prologue_end() {
                return Ok(Some(at));
            }
            inside |= at == addr;
            if inside && at > addr && row.is_stmt() && second.is_none_or(|s| at < s) {
                second = Some(at);
            }
        }
        Ok(second)
    }
}
