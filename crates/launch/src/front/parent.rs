//! The program's parent, as the code that records sees it.

use crate::error::Result;
use crate::notice::Tell;
use crate::sys::process::Ended;
use hindsight_collector::Control;

/// Who has started the program: another process that stands for it, or this one.
pub trait Parent {
    /// All is ready: has the program started, and returns its process id.
    fn start(&self) -> Result<i32>;

    /// The process that is the parent.
    fn id(&self) -> i32;

    /// To be called a few times a second while something is recorded: does what the parent should do now.
    fn look(&self, control: &Control, tell: &Tell);

    /// Waits until the program has ended, and calls `beat` a few times a second. `None`: how it ended is not known.
    fn wait(&self, beat: &dyn Fn()) -> Option<Ended>;

    /// When the program has ended: whether the recording is to end although others go on.
    fn told_to_end(&self) -> bool;

    /// Nobody takes what is written. Whoever waits for the recording is to wait no longer.
    fn give_up(&self);
}
