//! What threads need to make translations while none of them has the cache.

use super::{Fetch, SOURCE, base, codecheck};
use crate::code::{epochs, places, shared_translations};
use crate::memory::maps::{Region, regions};
use crate::sys::guard;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use hindsight_confine::{Checker, Code, Refusal};
use hindsight_translate::{Input, Policy, Translator};
use linux_raw_sys::general::PROT_EXEC;

/// Where code lies that is to be translated.
pub(super) struct Site {
    pub(super) pc: u64,
    /// Where the executable memory ends, or further than a block reaches.
    end: u64,
    /// The program may write to it.
    pub(super) writable: bool,
    /// Where the shared cache has its translation.
    bucket: u64,
    /// Its mapping.
    pub(super) region: Region,
}

/// A translator with all that it takes to use it. Its block is the translation that was made last.
pub(super) struct Maker {
    pub(super) translator: Translator,
    checker: Checker,
    /// The pages on which the block depends besides its own.
    pub(super) pages: Vec<u64>,
    source: [u8; SOURCE],
    /// The block came from the shared cache.
    pub(super) restored: bool,
}

/// Makers that nobody uses. A thread that is killed keeps its own.
static IDLE: [AtomicPtr<Maker>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];

/// A maker, for as long as a thread needs one.
pub(super) struct Lent(ManuallyDrop<Box<Maker>>);

impl Maker {
    /// A maker for this policy, which is the same all the time.
    pub(super) fn borrow(policy: Policy) -> Lent {
        let idle = IDLE.iter().find_map(|place| {
            let found = match place.load(Relaxed).is_null() {
                true => null_mut(),
                false => place.swap(null_mut(), Acquire),
            };
            // SAFETY: what stands in a place comes from a box, and who takes it out owns it.
            (!found.is_null()).then(|| unsafe { Box::from_raw(found) })
        });
        let new = || Maker {
            translator: Translator::new(policy),
            checker: Checker::new(),
            pages: Vec::new(),
            source: [0; SOURCE],
            restored: false,
        };
        Lent(ManuallyDrop::new(idle.unwrap_or_else(|| Box::new(new()))))
    }

    /// The code that was translated last.
    pub(super) fn source(&self) -> &[u8] {
        &self.source[..self.translator.block.src_len as usize]
    }

    /// Translates the code at the site, or takes its translation from the shared cache, unless it is
    /// to be made `anew`.
    pub(super) fn make(&mut self, site: &Site, anew: bool) -> Result<(), Fetch> {
        let n = read_source(site, &mut self.source)?;
        let (pc, translator) = (site.pc, &mut self.translator);
        let (source, pages) = (&self.source[..n], &mut self.pages);
        pages.clear();
        translator.want_map = false;
        // A function at which the runtime looks begins a block, unless an instruction lies
        // across it.
        let limit = places::room(pc, n);
        let known = &source[..limit];
        self.restored = !site.writable
            && !anew
            && shared_translations::restore(translator, pc, known, site.bucket, pages);
        if self.restored {
            return Ok(());
        }
        let mut translate = |n: usize| {
            let input = Input {
                pc,
                code: &source[..n],
                max_instrs: u32::MAX,
                self_check: site.writable,
                peeked: &[],
            };
            let peek = &mut |at| epochs::peek(at, pages);
            translator.translate(&input, peek).is_ok()
        };
        let within = translate(limit);
        if !(within || limit < n && translate(n)) {
            return Err(Fetch::NotMapped);
        }
        if within && !site.writable && translator.refused.is_empty() {
            shared_translations::put(translator, pc, known, site.bucket);
        }
        Ok(())
    }

    /// Prepares the block for its place in the cache, and has it checked.
    pub(super) fn settle(&mut self, hot: u64, cold: u64) -> Result<(), Refusal> {
        self.translator.relocate(hot, cold, base());
        let block = &self.translator.block;
        let code = Code {
            hot: &block.hot,
            cold: &block.cold,
            hot_at: (hot - base()) as u32,
            cold_at: (cold - base()) as u32,
        };
        let rules = codecheck::rules(&self.translator.policy);
        self.checker.check(&rules, &code)
    }
}

impl Deref for Lent {
    type Target = Maker;
    fn deref(&self) -> &Maker {
        &self.0
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Maker {
        &mut self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        let mine = Box::into_raw(unsafe { ManuallyDrop::take(&mut self.0) });
        let put = |place: &AtomicPtr<Maker>| {
            let free = place.load(Relaxed).is_null();
            free && place
                .compare_exchange(null_mut(), mine, Release, Relaxed)
                .is_ok()
        };
        if !IDLE.iter().any(put) {
            // SAFETY: it comes from the box above, and nobody else has got it.
            drop(unsafe { Box::from_raw(mine) });
        }
    }
}

impl Site {
    /// Where the code at `pc` lies.
    pub(super) fn of(pc: u64) -> Result<Site, Fetch> {
        let mut r = regions();
        if r.find(pc).is_none() {
            r.refresh_stack();
        }
        let Some(region) = r.find(pc) else {
            return Err(Fetch::NotMapped);
        };
        if region.prot & PROT_EXEC == 0 {
            return Err(Fetch::NotExecutable);
        }
        let mut end = region.end;
        while end - pc < SOURCE as u64 && r.is_exec(end) {
            end = r.find(end).map_or(end, |n| n.end);
        }
        let offset = region.offset + (pc - region.start);
        Ok(Site {
            pc,
            end,
            writable: r.is_writable(pc) || r.is_writable(end - 1),
            bucket: shared_translations::bucket(r.path(region), offset),
            region: *region,
        })
    }
}

/// Reads the code at the site, up to as much as one block may have. Returns how many bytes that are.
fn read_source(site: &Site, source: &mut [u8; SOURCE]) -> Result<usize, Fetch> {
    let n = SOURCE.min((site.end - site.pc) as usize);
    if guard::read(site.pc, &mut source[..n]).is_ok() {
        return Ok(n);
    }
    // Perhaps behind the end of a file: up to the end of the page then.
    let n = n.min((4096 - site.pc % 4096) as usize);
    match guard::read(site.pc, &mut source[..n]) {
        Ok(()) => Ok(n),
        Err(_) => Err(Fetch::NotMapped),
    }
}
