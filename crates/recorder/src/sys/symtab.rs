//! Finds functions in ELF files by name. Reads what it needs of a file, in bounded memory. If
//! anything is wrong with the file, nothing is found.

use crate::sys;
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
const STB_LOCAL: u8 = 0;
const PT_LOAD: u32 = 1;
/// Bytes. Larger tables of names are not read.
const MOST_NAMES: u64 = 256 << 20;
/// Bytes of a symbol.
const SYMBOL: usize = 24;
/// Symbols that are read at a time.
const BATCH: usize = 1024;

/// What is looked for in a file.
#[derive(Clone, Copy)]
pub enum Sought<'a> {
    /// A function's name, without its version.
    Name(&'a [u8]),
    /// A function's name, if others can call it: of a file with symbols for the dynamic linker, one of these; otherwise one that is
    /// not local.
    Public(&'a [u8]),
    /// An address, as the file has it.
    Address(u64),
}

/// Calls `found` for each function that is found, with its index in `sought` and the offset of its
/// code in the file.
pub fn find(path: &[u8], sought: &[Sought], mut found: impl FnMut(usize, u64)) {
    let Ok(path) = CString::new(path) else { return };
    let Ok(fd) = sys::open_read(&path) else {
        return;
    };
    search(fd, sought, &mut found);
    sys::close(fd);
}

fn search(fd: i32, sought: &[Sought], found: &mut dyn FnMut(usize, u64)) -> Option<()> {
    let header = read(fd, 0, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let segments = read(fd, u64_at(&header, 32)?, 56 * u16_at(&header, 56)? as usize)?;
    // The offset of an address in the file.
    let offset = |address: u64| {
        segments.chunks_exact(56).find_map(|p| {
            let within = address.checked_sub(u64_at(p, 16)?)?;
            let holds = u32_at(p, 0)? == PT_LOAD && within < u64_at(p, 32)?;
            if holds {
                u64_at(p, 8)?.checked_add(within)
            } else {
                None
            }
        })
    };
    for (i, s) in sought.iter().enumerate() {
        if let Sought::Address(a) = s
            && let Some(at) = offset(*a)
        {
            found(i, at);
        }
    }
    let private = sought.iter().any(|s| matches!(s, Sought::Name(_)));
    if !private && !sought.iter().any(|s| matches!(s, Sought::Public(_))) {
        return Some(());
    }
    let sections = read(fd, u64_at(&header, 40)?, 64 * u16_at(&header, 60)? as usize)?;
    // A file that is not linked dynamically may have such a table with nothing but the first symbol, which is none.
    let linked = |s: &[u8]| u32_at(s, 4) == Some(SHT_DYNSYM) && u64_at(s, 32) > Some(SYMBOL as u64);
    let is_linked = sections.chunks_exact(64).any(linked);
    let mut seen = Vec::new();
    for s in sections.chunks_exact(64) {
        let kind = u32_at(s, 4)?;
        let public = kind == SHT_DYNSYM || !is_linked;
        if !matches!(kind, SHT_SYMTAB | SHT_DYNSYM) || !public && !private {
            continue;
        }
        let link = u32_at(s, 40)? as usize;
        let Some(strings) = sections.chunks_exact(64).nth(link) else {
            continue;
        };
        let size = u64_at(strings, 32)?;
        if size > MOST_NAMES {
            continue;
        }
        let Some(names) = read(fd, u64_at(strings, 24)?, size as usize) else {
            continue;
        };
        let (mut at, mut left) = (u64_at(s, 24)?, u64_at(s, 32)? as usize / SYMBOL);
        while left > 0 {
            let n = left.min(BATCH);
            let Some(batch) = read(fd, at, n * SYMBOL) else {
                break;
            };
            for symbol in batch.chunks_exact(SYMBOL) {
                let (info, section) = (symbol[4], u16_at(symbol, 6)?);
                if info & 15 != STT_FUNC || section == 0 {
                    continue;
                }
                let name = name(&names, u32_at(symbol, 0)? as usize);
                let global = public && info >> 4 != STB_LOCAL;
                for (i, s) in sought.iter().enumerate() {
                    let named = match s {
                        Sought::Name(wanted) => *wanted == name,
                        Sought::Public(wanted) => global && *wanted == name,
                        Sought::Address(_) => false,
                    };
                    if named
                        && let Some(at) = offset(u64_at(symbol, 8)?)
                        && !seen.contains(&(i, at))
                    {
                        seen.push((i, at));
                        found(i, at);
                    }
                }
            }
            at += (n * SYMBOL) as u64;
            left -= n;
        }
    }
    Some(())
}

/// A symbol's name without its version.
fn name(names: &[u8], at: usize) -> &[u8] {
    let rest = names.get(at..).unwrap_or(&[]);
    let end = rest.iter().position(|b| matches!(b, 0 | b'@'));
    &rest[..end.unwrap_or(rest.len())]
}

/// `len` bytes of a file. `None` if it does not have that many.
fn read(fd: i32, offset: u64, len: usize) -> Option<Vec<u8>> {
    let size = sys::fstat(fd).ok()?.st_size as u64;
    if offset.checked_add(len as u64)? > size {
        return None;
    }
    let mut buf = vec![0; len];
    let mut at = 0;
    while at < len {
        match sys::pread(fd, &mut buf[at..], offset + at as u64) {
            Ok(n @ 1..) => at += n,
            _ => return None,
        }
    }
    Some(buf)
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*b.get(at..)?.first_chunk()?))
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*b.get(at..)?.first_chunk()?))
}

fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*b.get(at..)?.first_chunk()?))
}
