//! Whether this machine has the files of a recording as they were.

use anyhow::Result;
use hindsight_guard::outside;
use hindsight_text::line;
use hindsight_timeline::Timeline;
use hindsight_trace::ModuleHash;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The first program, library or other mapped file of the recording that this machine does not have as it was, or that gdb
/// would not find: its path as recorded.
pub fn first_that_differs(timeline: &Timeline) -> Result<Option<String>> {
    let mut seen = HashSet::new();
    for p in timeline.processes()? {
        for m in timeline.modules(p.image)? {
            let Some(hash) = m.hash else { continue };
            if !seen.insert((m.path.clone(), hash)) {
                continue;
            }
            let infos = timeline.trace().modules();
            let size = infos.iter().find(|i| i.hash == hash).map_or(0, |i| i.size);
            // The name of a content says all: to unpack what was recorded takes seconds for large programs.
            let is_here = |mut file: &File| {
                let mut here = Vec::new();
                file.read_to_end(&mut here).is_ok() && ModuleHash::of(&here) == hash
            };
            // gdb knows it by its name as it is shown.
            if line(&m.path) != m.path
                || outside::open_same(Path::new(&m.path), size, &hash.0, is_here).is_none()
            {
                return Ok(Some(m.path));
            }
        }
    }
    Ok(None)
}
