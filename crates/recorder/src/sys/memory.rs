//! Mappings.

use super::{Result, call};
use crate::sys::PAGE;
use linux_raw_sys::general::*;

pub fn mmap(addr: u64, len: u64, prot: u32, flags: u32, fd: i32, offset: u64) -> Result<u64> {
    call(
        __NR_mmap,
        [addr, len, prot as u64, flags as u64, fd as u64, offset],
    )
}

pub fn munmap(addr: u64, len: u64) -> Result<()> {
    call(__NR_munmap, [addr, len]).map(drop)
}

pub fn mprotect(addr: u64, len: u64, prot: u32) -> Result<()> {
    call(__NR_mprotect, [addr, len, prot as u64]).map(drop)
}

/// Moves the pages of a mapping to `new`, in place of whatever is there.
pub fn move_mapping(old: u64, len: u64, new: u64) -> Result<()> {
    let flags = (MREMAP_MAYMOVE | MREMAP_FIXED) as u64;
    call(__NR_mremap, [old, len, len, flags, new]).map(drop)
}

/// Maps the pages of the shared mapping at `old` a second time at `new`.
pub fn duplicate_shared(old: u64, len: u64, new: u64) -> Result<()> {
    call(
        __NR_mremap,
        [old, 0, len, (MREMAP_MAYMOVE | MREMAP_FIXED) as u64, new],
    )
    .map(drop)
}

/// Maps fresh memory that is not charged against swap: at `addr`, or in the recorder's own part
/// of the address space when `addr` is 0.
pub fn mmap_anon_noreserve(addr: u64, len: u64, prot: u32) -> Result<u64> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if addr == 0 {
        return crate::sys::arena::map(len, prot, flags, -1, 0);
    }
    mmap(addr, len, prot, flags | MAP_FIXED, -1, 0)
}

/// Maps fresh memory over whatever is at `addr`; children of a `fork` share it.
pub fn mmap_shared_fixed(addr: u64, len: u64) -> Result<()> {
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
    mmap(addr, len, PROT_READ | PROT_WRITE, flags, -1, 0).map(drop)
}

/// Gives pages back; private anonymous ones read as zero afterwards.
pub fn madvise_dontneed(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_DONTNEED as u64]);
}

/// Gives pages memory that are sure to be written, at once instead of one by one. Kernels before 5.14 do
/// not know how.
pub fn madvise_populate(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_POPULATE_WRITE as u64]);
}

/// Has pages that are in memory mapped at once instead of one by one. Kernels before 5.14 do not know how.
pub fn madvise_populate_read(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_POPULATE_READ as u64]);
}

/// Which pages of `addr..addr+len`, all mapped, are in memory. Of private anonymous memory these are those that have
/// been accessed. `Err`: something is not mapped.
pub fn resident(addr: u64, len: u64) -> Result<alloc::vec::Vec<bool>> {
    let mut pages = alloc::vec![0u8; len.div_ceil(super::PAGE) as usize];
    call(__NR_mincore, [addr, len, pages.as_mut_ptr() as u64])?;
    Ok(pages.into_iter().map(|p| p & 1 != 0).collect())
}

/// Has private anonymous pages read as zero in the child of a `fork`, instead of copying them.
pub fn madvise_wipe_on_fork(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_WIPEONFORK as u64]);
}

/// Keeps pages out of core dumps.
pub fn madvise_dontdump(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_DONTDUMP as u64]);
}

/// Bytes of the pages that hold so many bytes.
pub fn pages(len: u64) -> u64 {
    len.saturating_add(PAGE - 1) & !(PAGE - 1)
}
