//! Begins the cache anew, after somebody was killed while changing it (see [`crate::sys::lock`]).

use super::{Cache, SHARED, sets};
use crate::code::epochs;
use alloc::vec::Vec;
use core::mem::{forget, replace, take};
use core::sync::atomic::{Ordering::*, compiler_fence};
use hindsight_confine::Checker;
use hindsight_translate::Translator;

/// Begins the cache anew. Of the old one it reads only single words, and what is known of blocks
/// that others still run. The memory of everything else is lost.
pub(super) fn mend(cache: &mut Option<Cache>) {
    let Some(c) = cache else { return };
    log!(Warn, "the code cache begins anew");
    let mut translator = Translator::new(c.translator.policy);
    // Others share the memory, so the order was wanted long ago.
    translator.ordered = true;
    translator.fuse = c.translator.fuse;
    forget(replace(&mut c.translator, translator));
    SHARED.blocks.clear();
    forget(take(&mut c.by_page));
    forget(replace(&mut c.sets, sets::Sets::new()));
    forget(replace(&mut c.checker, Checker::new()));
    // Nobody knows what the stream holds of the code. So it is recorded again, with a new epoch.
    let epoch = c.code.epoch.max(SHARED.epoch.load(SeqCst)) + 1;
    forget(replace(&mut c.code, epochs::Recorder::new()));
    c.code.epoch = epoch;
    SHARED.epoch.store(epoch, SeqCst);
    (c.mapped, c.refused) = (None, 0);
    // Whoever comes for code next begins a new generation.
    c.mended = true;
    c.outdate();
}

/// Makes sure that a vector has room for `more`. It frees the old memory only when the vector has
/// the new one, which `reserve` does not promise. So whoever is killed in between leaves a vector
/// that can be read (see [`mend`]).
pub(super) fn make_room<T: Clone>(v: &mut Vec<T>, more: usize) {
    if v.capacity() - v.len() >= more {
        return;
    }
    let mut larger = Vec::with_capacity((v.len() + more).max(2 * v.capacity()));
    larger.extend_from_slice(v);
    let old = replace(v, larger);
    compiler_fence(SeqCst);
    drop(old);
}
