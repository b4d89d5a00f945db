//! What a process knows of the recording that it belongs to.

use super::Emitter;
use crate::sys::lock::Lock;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// What a process knows of the recording that it belongs to.
///
/// [`super::open`] sets it, before there are threads. The child of a `fork` has a copy, which [`super::forked`]
/// corrects while the child is alone. Nothing else changes it, but for the two locks. Signal handlers read it.
pub(super) struct Link {
    /// Start of the mapped control file. Null when nothing is recorded.
    pub base: AtomicPtr<u8>,
    /// Number of this program image.
    pub image: AtomicU32,
    /// Number of the image from which this one came.
    pub parent: AtomicU32,
    /// This image came by `execve`, not by `fork`.
    pub executed: AtomicBool,
    /// Nothing is recorded of this process. What it executes may be.
    pub silent: AtomicBool,
    /// The recording's number of this namespace of process ids. 0: the collector's namespace.
    pub namespace: AtomicU32,
    /// Inode and length of the control file.
    pub file: [AtomicU64; 2],
    /// Start and length of the mapped file of translated code that an earlier recording has left.
    pub kept: [AtomicU64; 2],
    /// What [`super::collector`] returns. It is not read from the control file, where the program may write
    /// anything.
    pub collector: [AtomicI32; 2],
    /// The program's arguments, until the image's stream has begun.
    pub command: Lock<&'static [u8]>,
    /// The emitter of the process stream. Any thread may use it.
    pub process: Lock<Option<Emitter>>,
}

pub(super) static LINK: Link = Link {
    base: AtomicPtr::new(null_mut()),
    image: AtomicU32::new(0),
    parent: AtomicU32::new(0),
    executed: AtomicBool::new(false),
    silent: AtomicBool::new(false),
    namespace: AtomicU32::new(0),
    file: [const { AtomicU64::new(0) }; 2],
    kept: [const { AtomicU64::new(0) }; 2],
    collector: [const { AtomicI32::new(0) }; 2],
    command: Lock::new(&[]),
    process: Lock::mended(None, |emitter| {
        if let Some(e) = emitter {
            e.resume();
        }
    }),
};
