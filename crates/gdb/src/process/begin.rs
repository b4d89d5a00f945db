//! The beginning of a session, and of a process in it.

use crate::process::events;
use crate::program::files::Files;
use crate::program::libraries::Listed;
use crate::state::action::Action;
use crate::state::bookmarks::Bookmarks;
use crate::state::carrying::Carrying;
use crate::state::inferior::{self, Inferior};
use crate::state::interrupt::Interrupt;
use crate::state::session::Session;
use crate::{Error, Result};
use hindsight_inspect::auxiliary_vector;
use hindsight_packets::Features;
use hindsight_timeline::{Cancel, Position, Timeline};
use std::collections::BTreeSet;

impl Session {
    /// Begins at `at`. Without it, begins at the first instruction of `image`, or of the recording.
    pub fn new(timeline: Timeline, image: Option<u32>, at: Option<Position>) -> Result<Session> {
        let mut cursor = timeline.cursor()?;
        if let Some(image) = image {
            let all = timeline.processes()?;
            let process = all.iter().find(|p| p.image == image);
            let process = process.ok_or(Error::NoProcess(image))?;
            cursor.seek(process.begin)?;
        }
        if let Some(at) = at {
            cursor.seek_within(at, image, None)?;
        }
        let inferior = Inferior::new(&timeline, cursor)?;
        let marks = Bookmarks::open(timeline.path());
        let cancel = Cancel::new();
        let mut s = Session {
            inferior,
            parked: Vec::new(),
            tids: inferior::tids(&timeline)?,
            passed: BTreeSet::new(),
            action: Action::Continue,
            every_write: false,
            locked: false,
            continued: None,
            chosen_thread: None,
            interrupt: Interrupt::new(&cancel),
            interrupted: None,
            cancel,
            files: Files::default(),
            marks,
            carrying: Carrying::default(),
            showing: false,
            trouble: None,
            register_asked: false,
            notes: Vec::new(),
            features: Features::default(),
            told_fork: None,
            listed: Listed::default(),
            renewals: 0,
            renewed: None,
            signals: None,
            timeline,
        };
        s.begin()?;
        Ok(s)
    }
}

/// What a session finds out about a process when it begins with it.
impl Session {
    /// Reads names, forks and the auxiliary vector of the active program image.
    pub fn begin(&mut self) -> Result<()> {
        let image = self.inferior.image;
        self.inferior.names = self.timeline.names(image)?;
        self.inferior.forks = events::forks(self)?;
        self.inferior.auxv = auxiliary_vector(&self.timeline, image)?;
        Ok(())
    }
}
