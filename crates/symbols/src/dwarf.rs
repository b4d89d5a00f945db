//! The debug information of one module.

use crate::debugfile::DebugPaths;
use crate::{Error, SourceLine};
use gimli::constants::*;
use gimli::{
    AttributeValue, DwAt, Dwarf, EndianArcSlice, LittleEndian, SectionId, UnitOffset, UnitRef,
};
use object::{Object, ObjectSection};
use std::path::PathBuf;
use std::sync::Arc;

/// An entry that is completed by another one, that by another one, and so on: longer chains are given up.
const MAX_LINKS: u32 = 16;

pub(crate) type Reader = EndianArcSlice<LittleEndian>;
pub(crate) type Entry = gimli::DebuggingInformationEntry<Reader>;
pub(crate) type Context = addr2line::Context<Reader>;
/// The debug information: as a context that answers questions about addresses, and raw.
pub(crate) type Debug = (Context, Arc<Dwarf<Reader>>);

/// Reads the debug information of an ELF file: its own, or that of its separate debug file. `None`: there is neither.
pub(crate) fn load(path: &str, data: &[u8], paths: &DebugPaths) -> Result<Option<Debug>, Error> {
    let file = object::File::parse(data)?;
    if has_info(&file) {
        return context(&file, paths).map(Some);
    }
    let Some(data) = paths.find(path, &file) else {
        return Ok(None);
    };
    let file = object::File::parse(&*data)?;
    if !has_info(&file) {
        return Ok(None);
    }
    context(&file, paths).map(Some)
}

fn has_info(file: &object::File) -> bool {
    file.section_by_name(".debug_info").is_some() || file.section_by_name(".zdebug_info").is_some()
}

fn context(file: &object::File, paths: &DebugPaths) -> Result<Debug, Error> {
    let mut dwarf = Dwarf::load(|id| section(file, id))?;
    if let Some(data) = paths.supplement(file) {
        let sup = object::File::parse(&*data)?;
        dwarf.load_sup(|id| section(&sup, id))?;
    }
    let dwarf = Arc::new(dwarf);
    Ok((Context::from_arc_dwarf(Arc::clone(&dwarf))?, dwarf))
}

fn section(file: &object::File, id: SectionId) -> Result<Reader, Error> {
    let data = match file.section_by_name(id.name()) {
        Some(s) => s.uncompressed_data()?,
        None => Default::default(),
    };
    Ok(Reader::new(Arc::from(&*data), LittleEndian))
}

/// The text of an attribute; "?" if it cannot be read.
pub(crate) fn text(unit: UnitRef<Reader>, v: AttributeValue<Reader>) -> String {
    match unit.attr_string(v) {
        Ok(s) => String::from_utf8_lossy(&s).into_owned(),
        Err(_) => "?".into(),
    }
}

/// Where an entry is declared.
pub(crate) fn declared(unit: UnitRef<Reader>, entry: &Entry) -> Option<SourceLine> {
    let number = |name| attribute(unit, entry, name, 0).and_then(|v| v.udata_value());
    let file = match attribute(unit, entry, DW_AT_decl_file, 0)? {
        AttributeValue::FileIndex(n) => n,
        v => v.udata_value()?,
    };
    let header = unit.unit.line_program.as_ref()?.header();
    let file = header.file(file)?;
    let bytes = |r: &Reader| String::from_utf8_lossy(r).into_owned();
    let part = |v| unit.attr_string(v).ok().map(|r| bytes(&r));
    // Parts that are whole paths replace what is before them.
    let mut path = PathBuf::from(unit.unit.comp_dir.as_ref().map(bytes).unwrap_or_default());
    // In all versions of DWARF, directory 0 is that of the compilation.
    if file.directory_index() != 0 {
        path.push(part(file.directory(header)?)?);
    }
    path.push(part(file.path_name())?);
    let small = |n: Option<u64>| n.and_then(|n| u32::try_from(n).ok());
    Some(SourceLine {
        file: path.to_string_lossy().into_owned(),
        line: small(number(DW_AT_decl_line))?,
        column: small(number(DW_AT_decl_column)).unwrap_or(0),
    })
}

/// An attribute of an entry, or of the entry that it completes.
pub(crate) fn attribute(
    unit: UnitRef<Reader>,
    entry: &Entry,
    name: DwAt,
    depth: u32,
) -> Option<AttributeValue<Reader>> {
    if let Some(v) = entry.attr_value(name) {
        return Some(v);
    }
    for link in [DW_AT_abstract_origin, DW_AT_specification] {
        let Some(AttributeValue::UnitRef(at)) = entry.attr_value(link) else {
            continue;
        };
        if depth < MAX_LINKS
            && let Some(v) = with(unit, at, |e| attribute(unit, e, name, depth + 1)).flatten()
        {
            return Some(v);
        }
    }
    None
}

/// Looks at the entry at an offset.
pub(crate) fn with<T>(
    unit: UnitRef<Reader>,
    at: UnitOffset<usize>,
    look: impl FnOnce(&Entry) -> T,
) -> Option<T> {
    let mut cursor = unit.unit.entries_at_offset(at).ok()?;
    cursor.next_entry().ok()?;
    cursor.current().map(look)
}
