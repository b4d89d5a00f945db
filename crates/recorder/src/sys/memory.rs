//! Mappings.

use super::{Result, call};
use crate::sys::headroom::needed;
use crate::sys::{PAGE, arena};
use linux_raw_sys::general::*;

/// `mmap`. Returns the address.
pub fn mmap(addr: u64, len: u64, prot: u32, flags: u32, fd: i32, offset: u64) -> Result<u64> {
    call(
        __NR_mmap,
        [addr, len, prot as u64, flags as u64, fd as u64, offset],
    )
}

/// `munmap`.
pub fn munmap(addr: u64, len: u64) -> Result<()> {
    call(__NR_munmap, [addr, len]).map(drop)
}

/// `mprotect`.
pub fn mprotect(addr: u64, len: u64, prot: u32) -> Result<()> {
    call(__NR_mprotect, [addr, len, prot as u64]).map(drop)
}

/// Moves the pages of a mapping to `new`, in place of whatever is there.
pub fn move_mapping(old: u64, len: u64, new: u64) -> Result<()> {
    let flags = (MREMAP_MAYMOVE | MREMAP_FIXED) as u64;
    call(__NR_mremap, [old, len, len, flags, new]).map(drop)
}

/// Maps the pages of the shared mapping at `old` a second time, at `new`.
pub fn duplicate_shared(old: u64, len: u64, new: u64) -> Result<()> {
    let flags = (MREMAP_MAYMOVE | MREMAP_FIXED) as u64;
    needed(|| call(__NR_mremap, [old, 0, len, flags, new])).map(drop)
}

/// Maps fresh memory that is not counted against swap, over whatever is at `addr`. If `addr` is 0,
/// in the recorder's own part of the address space.
pub fn mmap_anon_noreserve(addr: u64, len: u64, prot: u32) -> Result<u64> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if addr == 0 {
        return needed(|| arena::map(len, prot, flags, -1, 0));
    }
    needed(|| mmap(addr, len, prot, flags | MAP_FIXED, -1, 0))
}

/// Maps fresh memory over whatever is at `addr`. Children of a `fork` share it.
pub fn mmap_shared_fixed(addr: u64, len: u64) -> Result<()> {
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
    needed(|| mmap(addr, len, PROT_READ | PROT_WRITE, flags, -1, 0)).map(drop)
}

/// Gives pages back to the kernel. Private anonymous ones hold zeros after that.
pub fn madvise_dontneed(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_DONTNEED as u64]);
}

/// Makes pages present that are sure to be written, all at once. Kernels before 5.14 do not know
/// how, so there nothing happens.
pub fn madvise_populate(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_POPULATE_WRITE as u64]);
}

/// Maps pages that are in memory already, all at once. Kernels before 5.14 do not know how, so
/// there nothing happens.
pub fn madvise_populate_read(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_POPULATE_READ as u64]);
}

/// Which pages of `addr..addr+len` are in memory. Of private anonymous memory these are the pages
/// that were accessed. Fails if a part is not mapped.
pub fn resident(addr: u64, len: u64) -> Result<alloc::vec::Vec<bool>> {
    let mut pages = alloc::vec![0u8; len.div_ceil(super::PAGE) as usize];
    call(__NR_mincore, [addr, len, pages.as_mut_ptr() as u64])?;
    Ok(pages.into_iter().map(|p| p & 1 != 0).collect())
}

/// Makes private anonymous pages hold zeros in the child of a `fork`, instead of copying them.
pub fn madvise_wipe_on_fork(addr: u64, len: u64) {
    let _ = needed(|| call(__NR_madvise, [addr, len, MADV_WIPEONFORK as u64]));
}

/// Asks for pages of 4 KiB.
pub fn madvise_no_huge_page(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_NOHUGEPAGE as u64]);
}

/// Keeps pages out of core dumps.
pub fn madvise_dontdump(addr: u64, len: u64) {
    let _ = call(__NR_madvise, [addr, len, MADV_DONTDUMP as u64]);
}

/// Bytes of whole pages that hold `len` bytes.
pub fn pages(len: u64) -> u64 {
    len.saturating_add(PAGE - 1) & !(PAGE - 1)
}
