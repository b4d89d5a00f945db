//! Makes a trace that needs no other files.

use crate::chunk::{ChunkHeader, HEADER_LEN, Kind};
use crate::files::{Stored, beside};
use crate::pack::Packer;
use crate::walk::{self, Walk};
use crate::{Error, ModuleInfo, Summary};
use hindsight_guard::regular::{self, Links};
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

/// Copies the trace at `from` to `out`, including the content of the files that it refers to. Returns the
/// number of bytes written. The unreadable end of a cut or damaged trace is left out.
///
/// # Errors
/// A file cannot be read, `out` cannot be written, `from` is not a trace, or the content of a module is
/// missing or damaged.
pub fn export(from: &Path, mut out: impl Write) -> Result<u64, Error> {
    let file = regular::open(from, Links::Follow)?;
    let folder = beside(from);
    let mut packer = Packer::new()?;
    let (mut written, mut module_bytes) = (0, 0);
    let mut whole = HashSet::new();
    let mut modules = 0;
    for chunk in Walk::new(&file)? {
        let (at, h) = match chunk {
            Ok(c) => c,
            Err(Error::Damaged { .. }) if written > 0 => break,
            Err(e) => return Err(e),
        };
        let mut put = |h: ChunkHeader, stored: &[u8]| {
            out.write_all(&h.to_bytes())?;
            out.write_all(stored)?;
            let n = HEADER_LEN as u64 + h.stored_len as u64;
            written += n;
            if matches!(h.kind, Kind::Module | Kind::Piece) {
                module_bytes += n;
            }
            Ok(())
        };
        match h.kind {
            Kind::Module => {
                let info: ModuleInfo = walk::json(&file, at, &h)?;
                let header = ChunkHeader {
                    sequence: modules,
                    ..ChunkHeader::blank(Kind::Module)
                };
                modules += 1;
                let own = ModuleInfo {
                    shared: false,
                    ..info.clone()
                };
                packer.chunk(
                    header,
                    &serde_json::to_vec(&own).map_err(io::Error::from)?,
                    &mut put,
                )?;
                if info.shared && whole.insert(info.hash) {
                    let stored = Stored::open(&folder, info.hash);
                    let flaw = |what| Error::of_shared(&info, &folder, what);
                    let stored = stored.map_err(flaw)?;
                    for piece in stored.packed() {
                        let (h, bytes) = piece?;
                        if xxhash_rust::xxh3::xxh3_64(&bytes) != h.checksum {
                            return Err(flaw("a checksum is wrong".into()));
                        }
                        put(h, &bytes)?;
                    }
                }
            }
            Kind::Summary => {
                let s: Summary = walk::json(&file, at, &h)?;
                let s = Summary {
                    module_bytes,
                    shared_bytes: 0,
                    trace_bytes: written,
                    ..s
                };
                let raw = serde_json::to_vec(&s).map_err(io::Error::from)?;
                packer.chunk(ChunkHeader::blank(Kind::Summary), &raw, |h, stored| {
                    out.write_all(&h.to_bytes())?;
                    out.write_all(stored)?;
                    written += HEADER_LEN as u64 + h.stored_len as u64;
                    Ok(())
                })?;
            }
            _ => put(h, &walk::stored(&file, at, &h)?)?,
        }
    }
    out.flush()?;
    Ok(written)
}
