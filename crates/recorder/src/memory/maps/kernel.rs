//! What the kernel says is mapped.

use crate::sys::{self, PROT_EXEC, PROT_READ, PROT_WRITE};
use alloc::vec::Vec;

/// A line of `/proc/self/maps`.
pub struct Line<'a> {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// As for `mmap`.
    pub prot: u32,
    /// Whether others see writes to it.
    pub shared: bool,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Path, or a name such as `[stack]`. Empty if there is none.
    pub name: &'a [u8],
}

/// Reads a line of `/proc/self/maps`. `None` if it has another form.
pub fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.split(|b| *b == b' ').filter(|f| !f.is_empty());
    let range = fields.next()?;
    let dash = range.iter().position(|b| *b == b'-')?;
    let perms = fields.next()?;
    let prot = [(b'r', PROT_READ), (b'w', PROT_WRITE), (b'x', PROT_EXEC)];
    let prot = prot
        .iter()
        .filter(|(c, _)| perms.contains(c))
        .fold(0, |p, (_, bit)| p | bit);
    Some(Line {
        start: hex(&range[..dash])?,
        end: hex(&range[dash + 1..])?,
        prot,
        shared: perms.contains(&b's'),
        offset: hex(fields.next()?)?,
        // The fields before the name have neither of these characters. A name may have spaces.
        name: line
            .iter()
            .position(|b| b"/[".contains(b))
            .map_or(&[], |at| line[at..].trim_ascii_end()),
    })
}

/// A number as the kernel writes addresses: in hexadecimal.
pub fn hex(s: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(s).ok()?, 16).ok()
}

/// The text of `/proc/self/maps`. Empty if it cannot be read.
pub fn read_maps() -> Vec<u8> {
    read_file(c"/proc/self/maps")
}

/// The content of a file. Empty if it cannot be read.
pub fn read_file(path: &core::ffi::CStr) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(fd) = sys::open_read(path) {
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = sys::read(fd, &mut buf) {
            text.extend_from_slice(&buf[..n]);
        }
        sys::close(fd);
    }
    text
}

/// A part of a mapping as the kernel has it.
pub struct Kernels {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// As for `mmap`.
    pub prot: u32,
}

/// What the kernel has mapped in `addr..addr+len`, in order of address.
pub fn kernel_mappings(addr: u64, len: u64) -> Vec<Kernels> {
    let end = addr.saturating_add(len);
    let text = read_maps();
    let lines = text.split(|b| *b == b'\n').filter_map(parse);
    lines
        .filter(|m| m.start < end && addr < m.end)
        .map(|m| Kernels {
            start: m.start.max(addr),
            end: m.end.min(end),
            prot: m.prot,
        })
        .collect()
}
