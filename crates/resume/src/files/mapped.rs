//! Files that the process had mapped to read them (`MAP_SHARED`), such as caches of libc's. If nobody has changed one since
//! before the recording, it is mapped again. So what the program has not read yet need not be in the recording.

use super::compare::{OVERLAY, WITHOUT_TIMES, is_older, stat_of, system};
use super::{Prepared, Way, named, reopened};
use crate::received::Received;
use crate::{During, Error, Result};
use hindsight_inspect::state::{MappedRange, OpenKind};
use hindsight_text::line;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;

/// More files are not mapped again.
const MOST_FILES: usize = 64;
/// The most bytes that are compared at a time.
const AT_A_TIME: u64 = 1 << 18;

/// What is mapped again.
#[derive(Default)]
pub(crate) struct Again {
    /// By the first address of the mapping.
    pub files: BTreeMap<u64, Rc<File>>,
    /// Why others are not.
    not: BTreeMap<u64, String>,
    /// Some are in an overlay.
    overlay: bool,
}

impl Again {
    /// Looks for the files.
    ///
    /// # Errors
    /// Memory that was kept cannot be read.
    pub fn new(r: &Received) -> Result<Again> {
        let mut again = Again::default();
        let mut opened: HashMap<&str, std::result::Result<Rc<File>, String>> = HashMap::new();
        for m in r.state.mappings.iter().filter(|m| is_read(m)) {
            let file = match opened.get(m.name.as_str()) {
                Some(file) => file.clone(),
                None if opened.len() >= MOST_FILES => Err("too many files are mapped".into()),
                None => {
                    let file = open(m).map(Rc::new);
                    opened.insert(&m.name, file.clone());
                    file
                }
            };
            let same = file.and_then(|f| again.same(m, &f, r.began()).map(|()| f));
            match same {
                Err(why) => drop(again.not.insert(m.start, why)),
                Ok(file) => match first_difference(r, m, &file)? {
                    Some(at) => drop(
                        again
                            .not
                            .insert(m.start, format!("has other content now, at offset {at}")),
                    ),
                    None => drop(again.files.insert(m.start, file)),
                },
            }
        }
        Ok(again)
    }

    /// Whether a mapping's file is what it was, or why not.
    fn same(
        &mut self,
        m: &MappedRange,
        file: &File,
        began: i64,
    ) -> std::result::Result<(), String> {
        let Some(was) = m.stat else {
            return Err("may be another file: which one it was is not known".into());
        };
        let is = file.metadata().map_err(|e| e.to_string())?;
        let is = stat_of(&is);
        let system = system(file);
        self.overlay |= system == OVERLAY;
        match WITHOUT_TIMES.contains(&system) {
            true => Err("is in a file system whose times do not show all changes".into()),
            false if is != was || !is_older(&is, began) => {
                Err("is another file now, or was changed".into())
            }
            false => Ok(()),
        }
    }

    /// Whether this stretch of memory belongs to such a file.
    pub fn has(&self, m: &MappedRange) -> bool {
        self.files.contains_key(&m.start)
    }

    /// Why the file of a mapping is not mapped again, in words.
    pub fn why_not(&self, m: &MappedRange) -> Option<&str> {
        self.not.get(&m.start).map(String::as_str)
    }
}

/// Whether it is a file that is only read, and that nobody can write to through it.
fn is_read(m: &MappedRange) -> bool {
    m.shared && m.prot & 2 == 0 && m.name.starts_with('/')
}

/// Opens a mapping's file to be read.
fn open(m: &MappedRange) -> std::result::Result<File, String> {
    let name = named(m.name.as_bytes()).map_err(|e| e.to_string())?;
    let is_file = name.metadata().is_ok_and(|m| m.is_file());
    if !is_file || hindsight_guard::kernel::shows_itself(&name).unwrap_or(true) {
        return Err("is no regular file".into());
    }
    reopened(&name, libc::O_RDONLY | libc::O_NONBLOCK).map_err(|e| e.to_string())
}

/// Where a file first has another byte than the recorded memory. `None`: nowhere.
fn first_difference(r: &Received, m: &MappedRange, file: &File) -> Result<Option<u64>> {
    let first = r.memory.partition_point(|k| k.0 + k.1 <= m.start);
    for (at, len, kept) in r.memory[first..].iter().take_while(|k| k.0 < m.end) {
        let mut done = 0;
        while done < *len {
            let part = AT_A_TIME.min(len - done);
            let want = r.kept(kept + done, part)?;
            let offset = m.offset.saturating_add(at + done - m.start);
            let mut is = vec![0; part as usize];
            let mut have = 0;
            // What is behind the file's end, up to that of its page, is zero in memory.
            while have < is.len() {
                match file.read_at(&mut is[have..], offset + have as u64) {
                    Ok(0) => break,
                    Ok(n) => have += n,
                    Err(e) => return Err(e).during(|| format!("reading {}", line(&m.name))),
                }
            }
            if is != want {
                let same = is.iter().zip(&want).take_while(|(a, b)| a == b).count();
                return Ok(Some(offset + same as u64));
            }
            done += part;
        }
    }
    Ok(None)
}

impl Prepared {
    /// Says which files are mapped again.
    pub(super) fn say_of_mapped(&mut self) {
        let all = self.received.state.mappings.iter().filter(|m| m.shared);
        let mut notes = Vec::new();
        for m in all {
            let name = super::words::name(&m.name);
            notes.push(match (self.again.has(m), self.again.why_not(m)) {
                (true, _) => format!("{name} is mapped again at {:#x}: not changed since the recording began", m.start),
                (_, None) => format!("{name} at {:#x} was shared: it is a copy now, which nobody else sees", m.start),
                (_, Some(why)) => format!("{name} at {:#x} was shared, and {why}: it is a copy now, which nobody else sees", m.start),
            });
        }
        if self.again.overlay {
            notes.push("what a mapping changed in a file of an overlay that is in memory would not be noticed".into());
        }
        self.notes.append(&mut notes);
    }

    /// Fails if the process may write to a file of which it has a mapping that would not show that.
    pub(super) fn mapped_and_written(&self) -> Result<()> {
        let files =
            |m: &&MappedRange| m.shared && !m.name.is_empty() && !m.name.starts_with("/dev/zero");
        let identity = |f: &File| f.metadata().ok().map(|m| (m.dev(), m.ino()));
        let open = &self.received.state.open;
        // Many openings are those of the same file.
        let written: HashSet<_> = open
            .iter()
            .zip(&self.ways)
            .filter(|(o, _)| o.flags & libc::O_ACCMODE != libc::O_RDONLY)
            .filter_map(|(o, way)| match (&o.kind, way) {
                (OpenKind::File { path, .. }, Way::Reopen(name, ..)) => {
                    let is = name.try_clone().ok().and_then(|n| identity(&File::from(n)));
                    Some((path.as_slice(), is, true))
                }
                (OpenKind::File { path, .. }, Way::Copy(..)) => {
                    let is = named(path).ok().as_ref().and_then(identity);
                    Some((path.as_slice(), is, false))
                }
                (OpenKind::Unnamed { .. }, Way::Memory(..)) => Some((&[][..], None, false)),
                _ => None,
            })
            .collect();
        if written.is_empty() {
            return Ok(());
        }
        for m in self.received.state.mappings.iter().filter(files) {
            let file = self.again.files.get(&m.start);
            let is = match file {
                Some(file) => identity(file),
                None => named(m.name.as_bytes()).ok().as_ref().and_then(identity),
            };
            let apart = written.iter().any(|(path, its, reopened)| {
                // Nobody knows under which name a file is mapped that has none.
                let unnamed = path.is_empty() && file.is_none();
                let one = *path == m.name.as_bytes() || is.is_some() && is == *its;
                unnamed || one && !(*reopened && file.is_some())
            });
            if apart {
                return Err(Error::Refused(format!(
                    "{} is mapped at {:#x} and open for writing, and what is written must appear in memory, which is not done again",
                    super::words::name(&m.name),
                    m.start
                )));
            }
        }
        Ok(())
    }
}
