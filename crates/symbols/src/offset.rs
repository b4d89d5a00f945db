//! The function at an offset of a file, without anything else of the file.

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// The name of the function that contains the byte at `offset` of the ELF file `file`, and the distance from its start in
/// bytes. `None`: there is none, or the file cannot be read. Reads the symbol tables only; [`Module`](crate::Module) has
/// all that a file says.
pub fn function_at_offset(file: &[u8], offset: u64) -> Option<(String, u64)> {
    let file = object::File::parse(file).ok()?;
    let addr = file.segments().find_map(|s| {
        let (start, len) = s.file_range();
        (offset.wrapping_sub(start) < len).then(|| (offset - start).wrapping_add(s.address()))
    })?;
    let inside = |s: &object::Symbol| {
        s.kind() == SymbolKind::Text && addr.wrapping_sub(s.address()) < s.size().max(1)
    };
    let best = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(inside)
        .max_by_key(|s| s.address())?;
    Some((best.name().ok()?.into(), addr - best.address()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_function_of_this_program() {
        let data = std::fs::read("/proc/self/exe").unwrap();
        let file = object::File::parse(&*data).unwrap();
        let f = file
            .symbols()
            .find(|s| s.kind() == SymbolKind::Text && s.size() > 8)
            .unwrap();
        let seg = file
            .segments()
            .find(|s| f.address().wrapping_sub(s.address()) < s.size())
            .unwrap();
        let offset = f.address() - seg.address() + seg.file_range().0;
        let (_, past) = function_at_offset(&data, offset + 2).unwrap();
        assert_eq!(past, 2);
        assert_eq!(function_at_offset(&data, u64::MAX), None);
        assert_eq!(function_at_offset(b"no file", 0), None);
    }
}
