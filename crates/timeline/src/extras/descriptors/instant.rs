//! The descriptors of a process at an instant.

use super::pass::Pass;
use super::table::Found;
use super::{OpenFile, Paths, Unseen};
use crate::{Position, Result, ThreadId, Timeline};
use std::collections::HashSet;
use std::rc::Rc;

/// A descriptor of a process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Descriptor {
    /// Its number.
    pub fd: i32,
    /// What it leads to.
    pub file: OpenFile,
    /// The next program does not get it.
    pub on_exec: bool,
    /// Another process that lived then may have it, too.
    pub shared: bool,
}

/// What a process had open at an instant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Descriptors {
    /// In order of their numbers. What the process inherited and never used is not among them: nobody knows of it.
    pub list: Vec<Descriptor>,
    /// The working directory, if it is known.
    pub folder: Option<Vec<u8>>,
    /// Those of 0, 1 and 2 of which nothing was ever said: they are what the program began with.
    pub untold: Vec<i32>,
    /// What could not be seen until then.
    pub unseen: Unseen,
}

impl Timeline {
    /// The descriptors that a thread has at an instant. A call that has returned by then counts.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn descriptors(&self, thread: ThreadId, at: Position) -> Result<Descriptors> {
        let mut pass = Pass::new(self, Paths::All)?;
        pass.inclusive = true;
        // So that files get the same numbers as in `flow_told`.
        pass.tells = true;
        let unseen = pass.run(Some(at), &mut |_, _| Ok(()))?;
        let own = pass.files(thread)?;
        let mut others = HashSet::new();
        for (t, table) in &pass.tables {
            if !Rc::ptr_eq(table, &own) && self.is_alive(*t, at)? {
                others.extend(table.borrow().open().map(|(_, f, _)| f.borrow().number));
            }
        }
        for table in pass.children.values().filter(|t| !Rc::ptr_eq(t, &own)) {
            others.extend(table.borrow().open().map(|(_, f, _)| f.borrow().number));
        }
        let own = own.borrow();
        let list = own.open().map(|(fd, file, on_exec)| {
            let file = file.borrow().clone();
            Descriptor {
                fd,
                shared: others.contains(&file.number),
                file,
                on_exec,
            }
        });
        let never = |fd: &i32| matches!(own.find(*fd), Found::Never);
        Ok(Descriptors {
            untold: (0..3).filter(never).collect(),
            list: list.collect(),
            folder: own.folder.as_deref().map(<[u8]>::to_vec),
            unseen,
        })
    }
}
