//! How a copy of a process makes a key frame for it, while the process goes on.
//!
//! 1. The thread says where in its stream the key frame belongs ([`Copied::expect`]), and makes the copy. It goes on, and its
//!    events go on.
//! 2. The copy writes the events of the key frame to a file in memory, which it hands over (see [`crate::ring::FileBox`]).
//!    Then it says so ([`Copied::hand`]), or that there is none ([`Copied::fail`]).
//! 3. The collector keeps what the thread has written behind that place until then. It puts the events of the file there. If
//!    there is no file, or nobody is left who could make it, nothing comes there. It answers ([`stage::PLACED`],
//!    [`stage::DROPPED`]).
//!
//! So a key frame is in the stream as a whole, or not at all.

use crate::shared::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// How far a key frame is. The thread sets the first two, the copy the next two, the collector the last two. What the copy says
/// counts only as long as that is awaited.
pub mod stage {
    pub const NONE: u32 = 0;
    pub const AWAITED: u32 = 1;
    pub const HANDED: u32 = 2;
    pub const FAILED: u32 = 3;
    pub const PLACED: u32 = 4;
    pub const DROPPED: u32 = 5;
}

/// What a thread, its copy and the collector say of a key frame. It lies in the control page of the thread's ring.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub struct Copied {
    /// The key frame belongs behind that many bytes of the stream.
    pub at: AtomicU64,
    /// Device and inode of the file.
    pub file: [AtomicU64; 2],
    /// The copy's process id. The kernel writes it before the copy runs. 0: there is no copy yet.
    pub pid: AtomicI32,
    /// One of the values in [`stage`].
    pub stage: AtomicU32,
}

impl Copied {
    /// Says that a copy is about to be made. `head`: bytes of the stream so far.
    pub fn expect(&self, head: u64) {
        self.at.store(head, Relaxed);
        self.pid.store(0, Relaxed);
        self.stage.store(stage::AWAITED, Release);
    }

    /// Says that the file is handed over, if it is still awaited.
    pub fn hand(&self, device: u64, inode: u64) {
        self.file[0].store(device, Relaxed);
        self.file[1].store(inode, Relaxed);
        self.turn(stage::HANDED);
    }

    /// Says that there is no file, and will be none.
    pub fn fail(&self) {
        self.turn(stage::FAILED);
    }

    /// The collector may have answered by now.
    fn turn(&self, stage: u32) {
        let _ = (self.stage).compare_exchange(stage::AWAITED, stage, Release, Relaxed);
    }

    /// Says that nothing comes, if somebody waits for that.
    pub fn drop_awaited(&self) {
        for stage in [stage::AWAITED, stage::HANDED, stage::FAILED] {
            let _ = (self.stage).compare_exchange(stage, stage::DROPPED, Release, Relaxed);
        }
    }

    /// The stage.
    pub fn stage(&self) -> u32 {
        self.stage.load(Acquire)
    }

    /// Forgets it, for the next one.
    pub fn clear(&self) {
        self.stage.store(stage::NONE, Release);
    }
}
