//! The code of an ELF file: functions where the file says where they are, and whole sections elsewhere.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::{
    Architecture, Object, ObjectKind, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind, elf,
};
use std::path::Path;

/// Larger files are left out. There are none in a usual system.
const MOST: u64 = 2 << 30;

/// The sections with code.
pub struct Code {
    sections: Vec<Section>,
}

struct Section {
    at: u64,
    bytes: Vec<u8>,
    /// Addresses of functions, ascending: begin and end.
    functions: Vec<(u64, u64)>,
}

impl Code {
    /// Reads a file. `None`: it is no program or library for x86-64.
    pub fn of(file: &Path) -> Option<Code> {
        let m = file.metadata().ok()?;
        if m.len() < 64 || m.len() > MOST {
            return None;
        }
        let mut head = [0; 4];
        std::io::Read::read_exact(&mut std::fs::File::open(file).ok()?, &mut head).ok()?;
        if head != elf::ELFMAG {
            return None;
        }
        let bytes = std::fs::read(file).ok()?;
        let object = object::File::parse(&*bytes).ok()?;
        let whole = matches!(object.kind(), ObjectKind::Executable | ObjectKind::Dynamic);
        if object.architecture() != Architecture::X86_64 || !whole {
            return None;
        }
        let functions = functions(&object);
        let sections = object.sections().filter(is_code);
        let sections = sections.filter_map(|s| {
            let (from, to) = (s.address(), s.address().checked_add(s.size())?);
            let within = |f: &&(u64, u64)| from <= f.0 && f.1 <= to;
            Some(Section {
                at: from,
                bytes: s.data().ok()?.to_vec(),
                functions: functions.iter().filter(within).copied().collect(),
            })
        });
        Some(Code {
            sections: sections.collect(),
        })
    }

    /// Shows each stretch of code with its address.
    pub fn each(&self, show: &mut dyn FnMut(u64, &[u8])) {
        for s in &self.sections {
            if s.functions.is_empty() {
                show(s.at, &s.bytes);
            }
            let mut done = s.at;
            for (from, to) in &s.functions {
                let from = done.max(*from);
                let bytes = || s.bytes.get((from - s.at) as usize..(to - s.at) as usize);
                if let Some(bytes) = (from < *to).then(bytes).flatten() {
                    show(from, bytes);
                    done = *to;
                }
            }
        }
    }
}

fn is_code<'a>(s: &impl ObjectSection<'a>) -> bool {
    matches!(s.flags(), SectionFlags::Elf { sh_flags } if sh_flags & elf::SHF_EXECINSTR as u64 != 0)
}

/// What symbols and unwind tables call functions, ascending.
fn functions(object: &object::File) -> Vec<(u64, u64)> {
    let symbols = object.symbols().chain(object.dynamic_symbols());
    let mut out: Vec<(u64, u64)> = symbols
        .filter(|s| s.kind() == SymbolKind::Text && s.size() != 0)
        .filter_map(|s| Some((s.address(), s.address().checked_add(s.size())?)))
        .collect();
    unwound(object, &mut out);
    out.sort_unstable();
    out
}

/// Adds what the unwind tables name.
fn unwound(object: &object::File, out: &mut Vec<(u64, u64)>) -> Option<()> {
    let section = object.section_by_name(".eh_frame")?;
    let data = section.data().ok()?;
    let text = object.section_by_name(".text").map_or(0, |s| s.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(text);
    let frames = EhFrame::new(data, LittleEndian);
    let mut entries = frames.entries(&bases);
    while let Some(entry) = entries.next().ok()? {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
            && let Some(end) = fde.initial_address().checked_add(fde.len())
        {
            out.push((fde.initial_address(), end));
        }
    }
    Some(())
}
