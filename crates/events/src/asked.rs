//! How a mark gets into a recording from outside: `hindsight mark`.
//!
//! 1. Who asks takes the box ([`Asked::take`]), and says which process and which name ([`Asked::ask`]).
//! 2. The collector chooses a thread of the process, and asks it by [`crate::ring::wish::MARK`]. Where the thread waits in a
//!    system call, the collector takes the wish back and sets the mark itself. A state point waits until the call ends.
//! 3. The thread sets the mark, and with it the state point. Then it says where ([`Asked::set`]).
//! 4. The collector answers when both are in the recording ([`stage::DONE`]), or says why not ([`stage::REFUSED`]).
//!
//! The program may write anything here. So each side copies what it reads, and checks it.

use crate::shared::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use alloc::vec::Vec;
use hindsight_isa::mark::NAME_MAX;

/// The longest text, in bytes.
pub const TEXT: usize = if cfg!(all(test, loom)) { 2 } else { NAME_MAX };

/// How far it is.
pub mod stage {
    /// Nobody asks.
    pub const FREE: u32 = 0;
    /// Who asks waits for the collector.
    pub const ASKED: u32 = 1;
    pub const DONE: u32 = 2;
    pub const REFUSED: u32 = 3;
}

/// A text of at most [`TEXT`] bytes.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub struct Words {
    len: AtomicU32,
    bytes: [AtomicU8; TEXT],
}

impl Words {
    /// Writes a text. What does not fit is cut off.
    pub fn write(&self, text: &[u8]) {
        let n = text.len().min(TEXT);
        for (to, from) in self.bytes.iter().zip(&text[..n]) {
            to.store(*from, Relaxed);
        }
        self.len.store(n as u32, Release);
    }

    /// A copy of the text.
    pub fn read(&self) -> Vec<u8> {
        let n = (self.len.load(Acquire) as usize).min(TEXT);
        self.bytes[..n].iter().map(|b| b.load(Relaxed)).collect()
    }
}

/// A mark that is asked for. There is one box in the control file.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub struct Asked {
    /// The process that has the box. 0: nobody has it.
    asker: AtomicI32,
    /// One of the values in [`stage`].
    stage: AtomicU32,
    /// A process or thread of the recording. 0: the recorded program.
    pub pid: AtomicI32,
    /// Nonzero: with a state point.
    pub state: AtomicU32,
    /// How many times somebody has asked.
    pub serial: AtomicU32,
    /// The name.
    pub name: Words,
    /// Behind how many instructions the thread has set it, plus one. 0: not yet.
    at: AtomicU64,
    /// The number in the recording of the thread that is chosen.
    pub thread: AtomicU32,
    /// Its number for the kernel.
    pub tid: AtomicI32,
    /// Why not.
    pub why: Words,
}

impl Asked {
    /// Takes the box for process `own`, from nobody or from process `former`. False if somebody else has it by now.
    pub fn take(&self, own: i32, former: i32) -> bool {
        (self.asker)
            .compare_exchange(former, own, AcqRel, Relaxed)
            .is_ok()
    }

    /// Who has the box.
    pub fn asker(&self) -> i32 {
        self.asker.load(Acquire)
    }

    /// Asks. The caller has the box.
    pub fn ask(&self, pid: i32, name: &[u8], state: bool) {
        self.pid.store(pid, Relaxed);
        self.state.store(state as u32, Relaxed);
        self.name.write(name);
        self.at.store(0, Relaxed);
        self.serial.fetch_add(1, Relaxed);
        self.turn(stage::ASKED);
    }

    /// Gives the box back. What was asked for may still come.
    pub fn give_back(&self) {
        self.turn(stage::FREE);
        self.asker.store(0, Release);
    }

    /// How far it is.
    pub fn stage(&self) -> u32 {
        self.stage.load(Acquire)
    }

    /// Says how far it is.
    pub fn turn(&self, stage: u32) {
        self.stage.store(stage, Release);
    }

    /// For the thread: its mark and what belongs to it are in its stream. The mark is behind that many instructions.
    pub fn set(&self, count: u64) {
        self.at.store(count.wrapping_add(1), Release);
    }

    /// Behind how many instructions the mark is, if it is set.
    pub fn where_set(&self) -> Option<u64> {
        self.at.load(Acquire).checked_sub(1)
    }
}
