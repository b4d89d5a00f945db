//! Finds out which pages of this process are in memory.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const PAGE: u64 = 4096;

/// The request `PAGEMAP_SCAN`, which exists since Linux 6.7.
const SCAN: libc::c_ulong = 0xc060_6610;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
struct Arg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const _: () = assert!(size_of::<Arg>() == 0x60);

fn file() -> Result<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let f = FILE.get_or_init(|| File::open("/proc/self/pagemap").ok());
    f.as_ref()
        .ok_or_else(|| Error::other("/proc/self/pagemap cannot be opened"))
}

/// Opens the file that is needed here. For processes that cannot open files later.
pub fn prepare() {
    let _ = file();
}

/// Which pages are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Those in memory or swapped out.
    Present,
    /// The same without those of files, and of memory that is shared. A private copy of a file's page is none.
    Own,
}

/// Numbers of the pages of `start..end` that are asked for, ascending, counted from `start`. Both bounds are multiples of a
/// page.
pub fn pages(start: u64, end: u64, which: Pages) -> Result<Vec<u32>> {
    let file = file()?;
    match scan(file, start, end, which) {
        Ok(pages) => Ok(pages),
        Err(_) => entries(file, start, end, which),
    }
}

fn scan(file: &File, start: u64, end: u64, which: Pages) -> Result<Vec<u32>> {
    let mut regions = [Region::default(); 512];
    let mut out = Vec::new();
    let mut at = start;
    let without = match which {
        Pages::Present => 0,
        Pages::Own => IS_FILE,
    };
    while at < end {
        let mut arg = Arg {
            size: size_of::<Arg>() as u64,
            flags: 0,
            start: at,
            end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: without,
            category_mask: without,
            category_anyof_mask: IS_PRESENT | IS_SWAPPED,
            return_mask: IS_PRESENT | IS_SWAPPED,
        };
        // SAFETY: the structure is laid out as the kernel's, and the vector has the stated length.
        let n = unsafe { libc::ioctl(file.as_raw_fd(), SCAN as _, &mut arg) };
        if n < 0 {
            return Err(Error::last_os_error());
        }
        for r in &regions[..(n as usize).min(regions.len())] {
            out.extend((r.start - start) / PAGE..(r.end - start) / PAGE);
        }
        if arg.walk_end <= at {
            break;
        }
        at = arg.walk_end;
    }
    Ok(out.into_iter().map(|p| p as u32).collect())
}

/// The same for older kernels, which have a word for each page.
fn entries(file: &File, start: u64, end: u64, which: Pages) -> Result<Vec<u32>> {
    let mut out = Vec::new();
    let mut buf = vec![0; 1 << 18];
    let mut page = start / PAGE;
    while page < end / PAGE {
        let n = ((end / PAGE - page) as usize * 8).min(buf.len());
        file.read_exact_at(&mut buf[..n], page * 8)?;
        for (i, e) in buf[..n].chunks_exact(8).enumerate() {
            // Bit 63: the page is in memory. Bit 62: it is swapped out. Bit 61: it is of a file, or shared.
            let wanted = which == Pages::Present || e[7] & 0x20 == 0;
            if e[7] & 0xc0 != 0 && wanted {
                out.push((page - start / PAGE) as u32 + i as u32);
            }
        }
        page += n as u64 / 8;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Mapping, MemoryFile};

    #[test]
    fn finds_touched_pages() {
        let mut m = Mapping::new(1 << 22).unwrap();
        m.small_pages();
        let start = m.base() as u64;
        for page in [3usize, 4, 700] {
            // SAFETY: the page lies within the mapping.
            unsafe { m.base().add(page * 4096).write_volatile(1) };
        }
        let want = [3, 4, 700];
        let both = |which, want: &[u32]| {
            let (file, end) = (file().unwrap(), start + (1 << 22));
            assert_eq!(pages(start, end, which).unwrap(), want);
            assert_eq!(entries(file, start, end, which).unwrap(), want);
        };
        both(Pages::Present, &want);
        m.discard(3 * 4096, 4096).unwrap();
        both(Pages::Present, &[4, 700]);
        // A page of a file is not the mapping's own until it is written to.
        let mut bytes = MemoryFile::new(3 * 4096).unwrap();
        bytes.bytes_mut().fill(7);
        m.lay(9 * 4096, 3 * 4096, &bytes, 0).unwrap();
        // SAFETY: the pages lie within the mapping.
        unsafe {
            assert_eq!(m.base().add(9 * 4096).read_volatile(), 7);
            m.base().add(10 * 4096).write_volatile(1);
        }
        both(Pages::Own, &[4, 10, 700]);
        assert!(bytes.bytes().iter().all(|b| *b == 7));
        m.discard(9 * 4096, 2 * 4096).unwrap();
        assert_eq!(m.laid().first(), Some(&(11 * 4096..12 * 4096)));
        both(Pages::Own, &[4, 700]);
        // SAFETY: as above.
        let [gone, left] = [9, 11].map(|p| unsafe { m.base().add(p * 4096).read_volatile() });
        assert_eq!((gone, left), (0, 7));
    }
}
