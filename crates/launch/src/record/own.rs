//! Recording by threads of this process, which is the program's parent.

use super::{Builder, NOT_STARTED, Shared, work};
use crate::detach;
use crate::error::{During, Error, Result};
use crate::front::foreground::BEAT;
use crate::front::parent::Parent;
use crate::notice::Tell;
use crate::recording::{Asked, Recording, Said};
use crate::sys::process::{self, Change, Ended};
use crate::sys::signals::{Signals, is_child_ignored};
use crate::sys::spawn::{Exec, spawn};
use hindsight_collector::Control;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::mpsc;

/// See [`Builder::start`].
pub fn start(b: Builder) -> Result<Recording> {
    if is_child_ignored() {
        return Err(Error::ChildrenIgnored);
    }
    let program = b.find()?;
    let Shared {
        control,
        config,
        theirs,
    } = Shared::new(&b, &program)?;
    // Other processes that this one makes are not recorded.
    control.keep_from_children();
    let mut exec = b.exec(&config, &program)?;
    exec.blocked = Signals::of(&[]).block();
    exec.default_pipe = true;
    exec.keep = Some(theirs.as_raw_fd());
    Recording::spawn(move |asked, say| {
        // They are for other threads. Those of a reader that goes away and of a limit on file sizes are errors of writes.
        Signals::all().block();
        let own = Own {
            exec: RefCell::new(Some((exec, theirs))),
            asked,
            say,
            pid: Cell::new(0),
        };
        work::work(&b, &program, &control, &config, &own)
    })
}

/// This process as the program's parent.
struct Own<'o> {
    /// How the program is started, and its open file of the shared memory; until it has been.
    exec: RefCell<Option<(Exec, File)>>,
    asked: &'o Asked,
    say: &'o mpsc::Sender<Said>,
    pid: Cell<i32>,
}

impl Parent for Own<'_> {
    fn start(&self) -> Result<i32> {
        let (exec, _theirs) = self.exec.take().ok_or(Error::NotStarted)?;
        let pid = spawn(&exec).during(NOT_STARTED)?;
        self.pid.set(pid);
        // Nobody may listen any more.
        let _ = self.say.send(Said::Begun(pid));
        Ok(pid)
    }

    fn id(&self) -> i32 {
        process::own_id()
    }

    fn look(&self, control: &Control, tell: &Tell) {
        let told = || self.asked.is_stopped();
        detach::serve(control, tell, &told);
        if self.asked.takes_detach() {
            detach::leave_all(control, tell, &told);
        }
    }

    fn wait(&self, beat: &dyn Fn()) -> Option<Ended> {
        let pid = self.pid.get();
        let ended = process::Ending::of(pid);
        let found = loop {
            match process::poll_child(pid) {
                Ok(Some(Change::Ended(ended))) => break Some(ended),
                Ok(Some(Change::Stopped(_)) | None) => {}
                // Somebody else has waited for it.
                Err(_) => break None,
            }
            beat();
            ended.wait(BEAT);
        };
        self.asked.set_over();
        found
    }

    fn told_to_end(&self) -> bool {
        self.asked.is_stopped()
    }

    fn give_up(&self) {
        let error = Err(Error::EndNotWritten);
        let _ = self.say.send(Said::Over(Box::new(error)));
    }
}
