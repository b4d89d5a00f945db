//! The executable files of a recording: each is stored once, and code that is as the file has it is
//! not stored again.

use crate::output::Output;
use hindsight_events::Event;
use hindsight_trace::chunk::MAX_MODULE;
use hindsight_trace::{ModuleHash, Text};
use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// Bytes of a page.
const PAGE: usize = 4096;

/// The modules that are in the trace.
#[derive(Default)]
pub struct Modules {
    paths: HashSet<Vec<u8>>,
    hashes: HashSet<ModuleHash>,
    /// Module and offset of each page, by the page's content.
    pages: HashMap<ModuleHash, (u32, u64)>,
    count: u32,
}

impl Modules {
    /// Takes a file into the trace.
    pub fn add<W: Write>(&mut self, out: &mut Output<W>, path: &[u8]) -> io::Result<()> {
        if self.paths.contains(path) {
            return Ok(());
        }
        // A file that is gone or not ours to read is not an error: the code that ran is in the
        // streams, only names for it are missing.
        if let Some(content) = read(path) {
            let hash = out.module(Text::from(path), &content)?;
            if self.hashes.insert(hash) {
                self.index(&content);
            }
            self.count += 1;
        }
        self.paths.insert(path.to_vec());
        Ok(())
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

fn read(path: &[u8]) -> Option<Vec<u8>> {
    let path = std::ffi::OsStr::from_bytes(path);
    let m = std::fs::metadata(path).ok()?;
    if !m.is_file() || m.len() > MAX_MODULE {
        return None;
    }
    std::fs::read(path).ok()
}
