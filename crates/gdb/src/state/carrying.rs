//! Values that are carried over gaps. They complete what is known of memory, if the user wants that.

use crate::state::session::Session;
use crate::{Error, Result};
use hindsight_inspect::{Assumption, Carried, Carrier, Declarations, Inspector};
use hindsight_timeline::{Cursor, Memory, ThreadId, Timeline};

/// By what memory is completed that the client reads, in words.
pub fn says(assume: Assumption) -> &'static str {
    match assume {
        Assumption::Off => "off: only what is known of memory is shown",
        Assumption::Declared => {
            "declared: what is not known of memory is completed with what is carried over calls whose functions are declared to \
             write something else. `known` tells them apart"
        }
        Assumption::Straight => {
            "straight: what is not known of memory is completed as if nothing that is not recorded had written any. `known` \
             tells them apart"
        }
    }
}

/// What a session needs to complete memory.
pub struct Carrying {
    /// By what memory is completed that the client reads.
    pub assume: Assumption,
    declarations: Declarations,
    /// Made when they are needed first: by declaration, and with what is assumed.
    carriers: [Option<Carrier>; 2],
    /// What looks. The session's own cursor stays where it is, also if the user interrupts.
    looks: Option<(Inspector, Cursor)>,
    /// Where the user was told of something that is carried, since the session moved last.
    told: Option<(ThreadId, u64)>,
    /// The client may have seen carried values.
    pub(crate) shown: bool,
}

impl Default for Carrying {
    fn default() -> Carrying {
        Carrying::by(Declarations::usual())
    }
}

impl Carrying {
    fn by(declarations: Declarations) -> Carrying {
        Carrying {
            assume: Assumption::default(),
            declarations,
            carriers: [None, None],
            looks: None,
            told: None,
            shown: false,
        }
    }

    /// Changes by what memory is completed. The user will be told of what is carried.
    pub fn set(&mut self, assume: Assumption) {
        (self.assume, self.told) = (assume, None);
        self.shown |= assume != Assumption::Off;
    }

    /// The session goes elsewhere. The user will be told again.
    pub fn moves(&mut self) {
        self.told = None;
    }

    /// Forgets what it found out: there is another timeline of the recording.
    pub fn forget(&mut self) {
        (self.carriers, self.looks, self.told) = ([None, None], None, None);
    }

    fn looks(
        &mut self,
        timeline: &Timeline,
    ) -> Result<(&mut Inspector, &mut Cursor, &mut Carrier)> {
        let straight = self.assume == Assumption::Straight;
        let by = || Carrier::new(self.declarations.clone(), straight);
        let carrier = self.carriers[straight as usize].get_or_insert_with(by);
        let looks = match self.looks.take() {
            Some(looks) => looks,
            None => (Inspector::new(timeline.clone()), timeline.cursor()?),
        };
        let (inspector, cursor) = self.looks.insert(looks);
        Ok((inspector, cursor, carrier))
    }
}

impl Session {
    /// Values are carried by these declarations.
    pub fn declare(&mut self, declarations: Declarations) {
        self.carrying = Carrying::by(declarations);
    }

    /// What `look` finds at the session's instant.
    fn look<T>(
        &mut self,
        look: impl FnOnce(&mut Inspector, &mut Cursor, &mut Carrier) -> hindsight_inspect::Result<T>,
    ) -> Result<T> {
        let (thread, count) = (self.inferior.cursor.thread(), self.inferior.cursor.count());
        let cancel = self.cancel.clone();
        let (inspector, cursor, carrier) = self.carrying.looks(&self.timeline)?;
        let found = cursor.cancellable(&cancel, |cursor| {
            cursor.seek_count(thread, count)?;
            Ok(look(inspector, cursor, carrier))
        });
        found?.map_err(|e| match e {
            hindsight_inspect::Error::Timeline(e) => e.into(),
            e => Error::Command(e.to_string()),
        })
    }

    /// What is carried of memory of which this is known, whether the client gets it or not.
    pub fn carried(&mut self, m: &Memory) -> Result<Vec<Carried>> {
        if !m.silent.contains(&true) || self.inferior.cursor.has_entered()? {
            return Ok(Vec::new());
        }
        self.look(|inspector, cursor, carrier| inspector.carried(cursor, &[m], carrier))
    }

    /// The bytes of memory at its beginning that are known, or carried if the user wants that.
    pub fn completed(&mut self, m: &Memory) -> Result<Vec<u8>> {
        let known = m.prefix();
        if self.carrying.assume == Assumption::Off
            || m.silent.get(known.len()) != Some(&true)
            || self.inferior.cursor.has_entered()?
        {
            return Ok(known);
        }
        let here = (self.inferior.cursor.thread(), self.inferior.cursor.count());
        let piece = (m.address, m.bytes.len());
        let (bytes, mut from) = self.look(|inspector, cursor, carrier| {
            inspector.completed_memory(cursor, piece, carrier)
        })?;
        let bytes: Vec<u8> = bytes.into_iter().map_while(|b| b).collect();
        from.retain(|c| c.address.wrapping_sub(m.address) < bytes.len() as u64);
        if let Some(first) = from.first()
            && self.carrying.told != Some(here)
        {
            self.carrying.told = Some(here);
            let how = match Carried::mark(&from) {
                "carried" => "carried by declaration",
                mark => mark,
            };
            let over = Carried::over(&from);
            let what = match first.bytes.len() {
                1 => "1 byte".into(),
                len => format!("{len} bytes"),
            };
            let are = match first.bytes.len() {
                1 => "is",
                _ => "are",
            };
            self.notes.push(format!(
                "[{what} at {:#x} {are} not known, but {how}, {over}. `known` shows what is]",
                first.address
            ));
        }
        Ok(bytes)
    }
}
