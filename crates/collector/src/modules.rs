//! The files of a recording: each is stored once, and code and memory that is as a file has it is not
//! stored again.

use crate::output::Output;
use hindsight_events::Event;
use hindsight_trace::chunk::MAX_MODULE;
use hindsight_trace::{ModuleHash, Text};
use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Which file a path named, and in which state: device, inode, size, time of the last change in
/// nanoseconds.
type Identity = [u64; 4];

/// The modules that are in the trace.
#[derive(Default)]
pub struct Modules {
    /// The numbers of files by path, and which they were; `None`: it cannot be had.
    paths: HashMap<Vec<u8>, Option<(Identity, u32)>>,
    hashes: HashSet<ModuleHash>,
    /// Module and offset of each page, by the page's content.
    pages: HashMap<ModuleHash, (u32, u64)>,
    count: u32,
}

impl Modules {
    /// Takes a file into the trace.
    pub fn add<W: Write>(&mut self, out: &mut Output<W>, path: &[u8]) -> io::Result<()> {
        match self.paths.contains_key(path) {
            true => Ok(()),
            false => self.take(out, path),
        }
    }

    fn take<W: Write>(&mut self, out: &mut Output<W>, path: &[u8]) -> io::Result<()> {
        // A file that is gone or not ours to read is not an error: the code that ran is in the
        // streams, only names for it are missing.
        let read = read(path);
        let found = match &read {
            Some((identity, content)) => {
                let hash = out.module(Text::from(path), content)?;
                if self.hashes.insert(hash) {
                    self.index(content);
                }
                self.count += 1;
                Some((*identity, self.count - 1))
            }
            None => None,
        };
        self.paths.insert(path.to_vec(), found);
        Ok(())
    }

    /// The event that stands for a file in memory; `None` if the file is no longer what it was.
    pub fn file<W: Write>(
        &mut self,
        out: &mut Output<W>,
        event: &Event,
    ) -> io::Result<Option<Event<'static>>> {
        let Event::File {
            addr,
            len,
            offset,
            device,
            inode,
            size,
            modified,
            path,
        } = *event
        else {
            return Ok(None);
        };
        let wanted = [device, inode, size, modified];
        let known = |m: &Modules| match m.paths.get(path) {
            Some(Some((identity, number))) if *identity == wanted => Some(*number),
            _ => None,
        };
        if known(self).is_none() {
            self.take(out, path)?;
        }
        Ok(known(self).map(|module| Event::FileOf {
            addr,
            len,
            module,
            offset,
        }))
    }

    fn index(&mut self, content: &[u8]) {
        for (i, page) in content.chunks(PAGE).enumerate() {
            // Behind a file's end its last page is zero where it is mapped.
            let mut whole = [0; PAGE];
            whole[..page.len()].copy_from_slice(page);
            if let Entry::Vacant(e) = self.pages.entry(ModuleHash::of(&whole)) {
                e.insert((self.count, (i * PAGE) as u64));
            }
        }
    }

    /// The event that stands for `event`, if that is code which a module holds.
    pub fn stand_in(&self, event: &Event) -> Option<Event<'static>> {
        let Event::Code { epoch, addr, bytes } = *event else {
            return None;
        };
        if bytes.len() != PAGE {
            return None;
        }
        let (module, offset) = *self.pages.get(&ModuleHash::of(bytes))?;
        Some(Event::CodeOf {
            epoch,
            addr,
            len: PAGE as u32,
            module,
            offset,
        })
    }
}

/// A file's identity and content.
fn read(path: &[u8]) -> Option<(Identity, Vec<u8>)> {
    let path = std::ffi::OsStr::from_bytes(path);
    // Not for devices and pipes, which opening may disturb.
    let m = std::fs::metadata(path).ok()?;
    if !m.is_file() || m.len() > MAX_MODULE {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let before = identity(&file.metadata().ok()?);
    let mut content = Vec::new();
    file.read_to_end(&mut content).ok()?;
    // It may have changed meanwhile.
    let after = identity(&file.metadata().ok()?);
    let whole = before == after && content.len() as u64 == after[2];
    whole.then_some((after, content))
}

fn identity(m: &Metadata) -> Identity {
    let modified = (m.mtime() as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(m.mtime_nsec() as u64);
    [m.dev(), m.ino(), m.size(), modified]
}
