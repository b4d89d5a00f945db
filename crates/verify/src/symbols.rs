//! Finds names for guest addresses in the module files of a trace.

use hindsight_events::{Decoder, Event};
use hindsight_symbols::function_at_offset;
use hindsight_text::line;
use hindsight_trace::Trace;
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
    let symbol = module.and_then(|m| function_at_offset(&trace.module_bytes(m.hash).ok()?, offset));
    Some(Location {
        module: String::from_utf8_lossy(&path).into_owned(),
        offset,
        symbol,
    })
}
