//! The recorder's executable image with its configuration filled in.

use crate::sys;
use hindsight_events::config::{Config, MARKER};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// The recorder's executable, not configured.
pub static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hindsight-recorder"));

/// Copies a path into a zero-terminated field.
pub fn set_path(field: &mut [u8], path: &OsStr) -> io::Result<()> {
    let b = path.as_bytes();
    if b.len() >= field.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    field.fill(0);
    field[..b.len()].copy_from_slice(b);
    Ok(())
}

/// A memory file that holds the recorder with this configuration.
pub fn file(config: &Config) -> io::Result<File> {
    let at = config_offset()?;
    let block = config.as_bytes();
    let mut f = sys::files::memory_file(c"hindsight")?;
    f.write_all(&IMAGE[..at])?;
    f.write_all(block)?;
    f.write_all(&IMAGE[at + block.len()..])?;
    Ok(f)
}

/// The recorder with this configuration.
pub fn bytes(config: &Config) -> io::Result<Vec<u8>> {
    let at = config_offset()?;
    let mut image = IMAGE.to_vec();
    let block = config.as_bytes();
    image[at..at + block.len()].copy_from_slice(block);
    Ok(image)
}

/// Addresses of the recorder's symbols with these names.
pub fn symbols<const N: usize>(names: [&str; N]) -> io::Result<[u64; N]> {
    // Headers are read in place, which wants them aligned.
    let image = IMAGE.to_vec();
    let file = object::File::parse(&*image).map_err(io::Error::other)?;
    let mut out = [0; N];
    for s in file.symbols() {
        if let Some(i) = s
            .name()
            .ok()
            .and_then(|n| names.iter().position(|m| *m == n))
        {
            out[i] = s.address();
        }
    }
    match out.contains(&0) {
        true => Err(io::Error::other("the recorder's image lacks a symbol")),
        false => Ok(out),
    }
}

/// The function of the recorder that has the instruction at this address, and the distance from its start in bytes. `None`:
/// the address is not in the recorder's code.
pub fn function_at(address: u64) -> Option<(String, u64)> {
    let image = IMAGE.to_vec();
    let file = object::File::parse(&*image).ok()?;
    let code = |s: &object::Section| {
        s.kind() == SectionKind::Text && address.wrapping_sub(s.address()) < s.size()
    };
    let section = file.sections().find(code)?.index();
    // Also labels of assembly code, which are of no kind.
    let below = file.symbols().filter(|s| s.address() <= address);
    let last = below
        .filter(|s| s.section_index() == Some(section))
        .max_by_key(|s| s.address())?;
    Some((last.name().ok()?.into(), address - last.address()))
}

/// Where the configuration is in the image.
fn config_offset() -> io::Result<usize> {
    find(IMAGE).ok_or_else(|| io::Error::other("the recorder's image has no configuration block"))
}

/// Where the block is: the marker also occurs alone, as a constant. The block is aligned.
fn find(image: &[u8]) -> Option<usize> {
    let empty = Config::new();
    let start = &empty.as_bytes()[..MARKER.len() + 8];
    const STEP: usize = align_of::<Config>();
    let word: [u8; STEP] = start[..STEP].try_into().ok()?;
    // Whole words first: the image has a megabyte, and this is part of every start.
    let words = image
        .chunks_exact(STEP)
        .enumerate()
        .filter(|(_, w)| **w == word);
    let mut found = words
        .map(|(i, _)| i * STEP)
        .filter(|at| image[*at..].starts_with(start));
    let at = found.next()?;
    (found.next().is_none() && image.len() - at >= size_of::<Config>()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::ObjectSegment;

    #[test]
    fn the_image_has_one_block() {
        assert!(find(IMAGE).is_some());
    }

    #[test]
    fn the_image_begins_with_the_arena() {
        let image = IMAGE.to_vec();
        let file = object::File::parse(&*image).unwrap();
        let first = file.segments().next().unwrap();
        assert_eq!(first.address(), hindsight_events::arena::ARENA.start);
    }

    #[test]
    fn addresses_in_the_recorder_have_functions() {
        let [stub] = symbols(["hindsight_stub_syscall"]).unwrap();
        let (name, past) = function_at(stub + 1).unwrap();
        assert!(name.contains("stub") && past < 16, "{name}+{past}");
        assert_eq!(function_at(0x1000), None);
        assert_eq!(function_at(u64::MAX), None);
    }

    /// Signals that arrive in a search wait for the end of it. The recorder asks which code is a search by two names.
    #[test]
    fn searches_lie_between_their_names() {
        let names = [
            "hindsight_search",
            "hindsight_search_plain",
            "hindsight_search_lazy",
            "hindsight_search_end",
        ];
        let [start, plain, lazy, end] = symbols(names).unwrap();
        for search in [start, plain, lazy] {
            assert!(
                (start..end).contains(&search),
                "{search:#x} {start:#x}..{end:#x}"
            );
        }
    }

    #[test]
    fn paths_that_are_too_long_are_refused() {
        let mut field = [1; 8];
        assert!(set_path(&mut field, OsStr::new("12345678")).is_err());
        set_path(&mut field, OsStr::new("1234567")).unwrap();
        assert_eq!(&field, b"1234567\0");
    }
}
