//! Guest memory at chosen addresses, and windows.

use hindsight_isa::ctx::{APART, CTX_SIZE};
use hindsight_isa::ibl::LookupTable;
use hindsight_isa::predictor::ALIAS;
use hindsight_isa::{Ctx, Predictor};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of data in a region.
pub const DATA: usize = 2 * PAGE as usize;
/// Bytes of code in a region: one page to run in, and one of breakpoints to jump to.
pub const CODE: usize = 2 * PAGE as usize;
/// Bytes from code to data. They have different cells in every shadow memory but the smallest.
const GAP: u64 = 0x10_5000;
/// Bytes of each code cache.
pub const CACHE: usize = 256 << 10;

/// Two pages of data between inaccessible ones, and code within reach of them.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Address of the data.
    pub data: u64,
    /// Address of the code.
    pub code: u64,
}

fn map(at: u64, len: usize, prot: i32, flags: i32) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
    // SAFETY: a fresh mapping that replaces none (MAP_FIXED_NOREPLACE, or no address at all).
    let p = unsafe { libc::mmap(at as *mut _, len, prot, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return None;
    }
    if at != 0 && p as u64 != at {
        // SAFETY: the mapping just made.
        unsafe { libc::munmap(p, len) };
        return None;
    }
    Some(p as u64)
}

impl Region {
    fn new(data: u64) -> Option<Region> {
        let guard = 4 * PAGE;
        let total = guard as usize * 2 + DATA;
        let code = data - GAP;
        map(
            data - guard,
            total,
            libc::PROT_NONE,
            libc::MAP_FIXED_NOREPLACE,
        )?;
        let rwx = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        map(code, CODE, rwx, libc::MAP_FIXED_NOREPLACE)?;
        let r = Region { data, code };
        r.protect(0, libc::PROT_READ | libc::PROT_WRITE);
        r.protect(1, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the code pages just mapped.
        unsafe { std::ptr::write_bytes(code as *mut u8, 0xcc, CODE) };
        Some(r)
    }

    /// Regions at addresses with different properties:
    ///
    /// - below 2 GiB;
    /// - across 2 GiB;
    /// - where the low 32 bits wrap, once low and once high in the address space;
    /// - high, with bit 31 set;
    /// - near the FS base.
    ///
    /// Addresses that are taken are left out. At least three of the first five must be free.
    pub fn all(fs_base: u64) -> Vec<Region> {
        let near_fs = (1..4000).find_map(|k| {
            Region::new((fs_base & !(PAGE - 1)).wrapping_sub(k * 0x40_0000 + 0x3000))
        });
        let fixed = [
            0x1010_0000,
            0x7fff_f000,
            0x1_ffff_f000,
            0x7e12_ffff_f000,
            0x5123_9876_5000,
        ];
        let mut all: Vec<_> = fixed.iter().filter_map(|a| Region::new(*a)).collect();
        assert!(all.len() >= 3, "cannot map test memory");
        all.extend(near_fs);
        all
    }

    /// Changes the protection of data page `page`, which is 0 or 1.
    pub fn protect(&self, page: u64, prot: i32) {
        // SAFETY: a page of this region, to which no reference exists.
        let r = unsafe { libc::mprotect((self.data + page * PAGE) as *mut _, PAGE as usize, prot) };
        assert_eq!(r, 0);
    }

    /// Stores the data. Both pages must be writable.
    pub fn set_data(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), DATA);
        // SAFETY: the region's data pages are mapped and writable.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data as *mut u8, DATA) }
    }

    /// The data. Both pages must be readable.
    pub fn get_data(&self) -> Vec<u8> {
        // SAFETY: the region's data pages are mapped and readable, and nothing changes them now.
        unsafe { std::slice::from_raw_parts(self.data as *const u8, DATA) }.to_vec()
    }

    /// Stores `code` at address `at`, which is in the first code page. The rest of the code pages
    /// gets breakpoints.
    pub fn set_code(&self, at: u64, code: &[u8]) {
        let off = (at - self.code) as usize;
        assert!(off + code.len() + 32 < PAGE as usize);
        // SAFETY: the region's code pages are mapped writable.
        unsafe {
            std::ptr::write_bytes(self.code as *mut u8, 0xcc, CODE);
            std::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len());
        }
    }
}

/// Context block, cells, alias page and guard, as recorder and replay have them.
pub struct Window {
    base: u64,
    /// Its geometry.
    pub predictor: Predictor,
}

impl Window {
    /// Maps a window with an empty context block.
    pub fn new(predictor: Predictor) -> Window {
        let size = predictor.size() as usize;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let base = map(0, CTX_SIZE + size + ALIAS + (64 << 10), rw, 0).expect("window");
        // SAFETY: plain system calls on the mapping just made.
        unsafe {
            let fd = libc::memfd_create(c"difftest".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0 && libc::ftruncate(fd, ALIAS as libc::off_t) == 0);
            for at in [CTX_SIZE, CTX_SIZE + size] {
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                let p = libc::mmap((base as usize + at) as *mut _, ALIAS, rw, flags, fd, 0);
                assert_ne!(p, libc::MAP_FAILED);
            }
            libc::close(fd);
            let guard = base as usize + CTX_SIZE + size + ALIAS;
            assert_eq!(
                libc::mprotect(guard as *mut _, 64 << 10, libc::PROT_NONE),
                0
            );
        }
        let w = Window { base, predictor };
        let ctx = w.ctx();
        ctx.ibl.iter_mut().for_each(LookupTable::begin);
        ctx.search_ptr = hindsight_glue::searches();
        ctx.exit_ptr = hindsight_glue::exit_address();
        ctx.cell_mask = predictor.size() - 1;
        w
    }

    /// Address of the first cell.
    pub fn first(&self) -> u64 {
        self.base + CTX_SIZE as u64
    }

    /// The GS base for code that uses this window.
    pub fn gs(&self) -> u64 {
        self.first() + APART as u64
    }

    /// The context block.
    #[allow(clippy::mut_from_ref)]
    pub fn ctx(&self) -> &'static mut Ctx {
        // SAFETY: mapped for ever. The harness has one thread, and never uses two references at a
        // time.
        unsafe { &mut *(self.base as *mut Ctx) }
    }

    /// The cell of `addr`.
    pub fn cell(&self, addr: u64) -> *mut u8 {
        (self.first() + self.predictor.cell(addr)) as *mut u8
    }

    /// Stores into the cells from `addr` on.
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        for (i, b) in bytes.iter().enumerate() {
            // SAFETY: a cell of the window.
            unsafe { *self.cell(addr.wrapping_add(i as u64)) = *b }
        }
    }

    /// Reads the cells from `addr` on.
    pub fn read(&self, addr: u64, buf: &mut [u8]) {
        for (i, b) in buf.iter_mut().enumerate() {
            // SAFETY: a cell of the window.
            *b = unsafe { *self.cell(addr.wrapping_add(i as u64)) }
        }
    }

    /// Stores a region's data into its cells, page by page.
    pub fn set_data(&self, addr: u64, bytes: &[u8]) {
        for (k, page) in bytes.chunks(PAGE as usize).enumerate() {
            let to = self.cell(addr + k as u64 * PAGE);
            // SAFETY: a page's cells are contiguous, since the window consists of whole pages.
            unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), to, page.len()) }
        }
    }

    /// The cells of a region's data.
    pub fn get_data(&self, addr: u64) -> Vec<u8> {
        let mut all = vec![0; DATA];
        for (k, page) in all.chunks_mut(PAGE as usize).enumerate() {
            let from = self.cell(addr + k as u64 * PAGE);
            // SAFETY: as in `set_data`.
            unsafe { std::ptr::copy_nonoverlapping(from, page.as_mut_ptr(), page.len()) }
        }
        all
    }
}

/// Makes executable memory for translated code. Returns its address.
pub fn code_cache() -> u64 {
    let rwx = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    map(0, CACHE, rwx, 0).expect("code cache")
}
