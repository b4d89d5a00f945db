//! Finds names for guest addresses in the module files of a trace.

use hindsight_events::{Decoder, Event};
use hindsight_text::line;
use hindsight_trace::Trace;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use std::fmt;

/// A location in the program's files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// Path of the module.
    pub module: String,
    /// Offset in the module's file, in bytes.
    pub offset: u64,
    /// The function, and the distance from its start in bytes.
    pub symbol: Option<(String, u64)>,
}

impl Location {
    /// The location as text for programs: names are not escaped.
    pub fn exact(&self) -> String {
        let file = format!("{}+{:#x}", self.module, self.offset);
        match &self.symbol {
            Some((name, past)) => format!("{name}+{past:#x}, {file}"),
            None => file,
        }
    }
}

/// Escapes names.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&line(&self.exact()))
    }
}

/// Finds the module and the symbol of a guest address in a program image. If the address was mapped several
/// times, the last mapping counts.
pub fn location(trace: &Trace, image: u32, addr: u64) -> Option<Location> {
    let mut found = None;
    let streams = &trace.image(image)?.streams;
    for c in streams.iter().flat_map(|s| trace.chunks(*s)) {
        let wire = trace.load(c).ok()?;
        let mut decoder = Decoder::default();
        let mut at = 0;
        while let Some((_, event, n)) = decoder.decode(&wire[at..]) {
            at += n;
            match event {
                Event::Map {
                    addr: start,
                    len,
                    offset,
                    path,
                    ..
                } if addr.wrapping_sub(start) < len => {
                    found = (!path.is_empty())
                        .then(|| (path.to_vec(), (addr - start).wrapping_add(offset)));
                }
                _ => {}
            }
        }
    }
    let (path, offset) = found?;
    let module = trace.modules().iter().find(|m| m.path.as_bytes() == path);
    let symbol = module.and_then(|m| symbol(&trace.module_bytes(m.hash).ok()?, offset));
    Some(Location {
        module: String::from_utf8_lossy(&path).into_owned(),
        offset,
        symbol,
    })
}

/// The function that contains the byte at `offset` of an ELF file, and the distance from its start.
pub fn symbol(file: &[u8], offset: u64) -> Option<(String, u64)> {
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
        let (_, past) = symbol(&data, offset + 2).unwrap();
        assert_eq!(past, 2);
        assert_eq!(symbol(&data, u64::MAX), None);
        assert_eq!(symbol(b"no file", 0), None);
    }
}
