//! Writes bytes as they are, each where it stood in its file.

use crate::{out, say};
use anyhow::{Result, bail};
use hindsight_guard::regular;
use hindsight_timeline::{Cursor, Error, OpenFile, Transfer, What};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IsTerminal, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Standard output.
pub struct Target {
    /// A file in which bytes can stand anywhere, and where in it the first of them stands.
    file: Option<(File, u64)>,
}

impl Target {
    /// # Errors
    /// It is a terminal, which would obey what the program read.
    pub fn new() -> Result<Target> {
        let out = std::io::stdout();
        if out.is_terminal() {
            bail!(
                "--raw writes bytes as they are, and a terminal may obey them: send them to a file, or to another program"
            );
        }
        let mut file = File::from(out.as_fd().try_clone_to_owned()?);
        let file = match regular::takes_bytes_anywhere(&file) {
            true => {
                let at = file.stream_position()?;
                Some((file, at))
            }
            false => None,
        };
        Ok(Target { file })
    }
}

/// Bytes that are written.
pub struct Placed {
    target: Target,
    /// What they are of.
    of: Option<OpenFile>,
    /// Where the next bytes are expected.
    next: u64,
    /// Where the last of all ends, be it known or not.
    end: u64,
    /// Some have a place that is known.
    placed: bool,
    /// The number of those whose place is not known.
    unplaced: u64,
    /// The program moved the place.
    moved: bool,
    /// What is there: ends, by beginnings.
    there: BTreeMap<u64, u64>,
}

impl Placed {
    pub fn new(target: Target) -> Placed {
        Placed {
            target,
            of: None,
            next: 0,
            end: 0,
            placed: false,
            unplaced: 0,
            moved: false,
            there: BTreeMap::new(),
        }
    }

    /// Writes the bytes of a transfer. Those that are not known are left out. Those whose place is not known stand behind those
    /// before them.
    ///
    /// # Errors
    /// The transfer is of another file than those before. Or standard output cannot have the bytes at their place.
    pub fn write(&mut self, t: &Transfer, cursor: &mut Cursor) -> hindsight_timeline::Result<()> {
        match &self.of {
            Some(before) if !is_same(before, &t.file) => {
                return Err(Error::Unsupported(format!(
                    "--fd means several: {}, and {}; name one of them",
                    before.what, t.file.what
                )));
            }
            Some(_) => {}
            None => self.of = Some(t.file.clone()),
        }
        match t.offset {
            Some(_) => self.placed = true,
            None => self.unplaced = self.unplaced.saturating_add(t.len),
        }
        self.moved |= t.file.moved;
        let mut at = t.offset.unwrap_or(self.next);
        if !t.is_in_memory() {
            self.next = at.saturating_add(t.len);
            self.end = self.end.max(self.next);
            return Ok(());
        }
        t.bytes(cursor, &mut |piece| {
            for part in piece.chunk_by(|a, b| a.is_some() == b.is_some()) {
                let known: Vec<u8> = part.iter().flatten().copied().collect();
                if !known.is_empty() {
                    self.put(at, &known)?;
                }
                at = at.saturating_add(part.len() as u64);
                self.end = self.end.max(at);
            }
            Ok(())
        })?;
        self.next = at;
        Ok(())
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> hindsight_timeline::Result<()> {
        match &self.target.file {
            Some((file, begin)) => {
                if let Err(e) = file.write_all_at(bytes, begin.saturating_add(at)) {
                    say(&format!("standard output: {e}"));
                    std::process::exit(2);
                }
            }
            // What is not known is left out, and is no reason to stop.
            None if at == self.end => out::write(bytes),
            None => {
                return Err(Error::Unsupported(
                    "the bytes were not read or written one behind the other: send them to a new file".into(),
                ));
            }
        }
        self.cover(at, at.saturating_add(bytes.len() as u64));
        Ok(())
    }

    /// Notes what is there.
    fn cover(&mut self, mut from: u64, mut to: u64) {
        while let Some((begin, end)) = self.there.range(..=to).next_back().map(|(b, e)| (*b, *e)) {
            if end < from {
                break;
            }
            self.there.remove(&begin);
            (from, to) = (from.min(begin), to.max(end));
        }
        self.there.insert(from, to);
    }

    /// Says what is missing, or stands at a place that need not be its own. The exit status: 0 if it is nothing. What is written
    /// to standard output from now on stands behind all.
    ///
    /// # Errors
    /// Nothing was meant. Or standard output has no such place.
    pub fn end(mut self) -> Result<i32> {
        let Some(of) = &self.of else {
            bail!("nothing went through that");
        };
        if let Some((file, begin)) = &mut self.target.file {
            file.seek(SeekFrom::Start(begin.saturating_add(self.end)))?;
        }
        let is_file = matches!(of.what, What::File { .. });
        let misplaced = self.unplaced > 0 && (is_file || self.placed || self.moved);
        if misplaced {
            say(&format!(
                "the place of {} byte{} in the file is not known: they are written behind those before them",
                self.unplaced,
                if self.unplaced == 1 { "" } else { "s" },
            ));
        }
        let mut missing = Vec::new();
        let mut at = 0;
        for (from, to) in &self.there {
            if at < *from {
                missing.push((at, *from));
            }
            at = *to;
        }
        if at < self.end {
            missing.push((at, self.end));
        }
        let bytes: u64 = missing.iter().map(|(from, to)| to - from).sum();
        let Some((from, to)) = missing.first().filter(|_| bytes > 0) else {
            return Ok(misplaced as i32);
        };
        say(&format!(
            "{bytes} bytes are not known, and left out: {} part{}, the first of them bytes {from} to {to}",
            missing.len(),
            if missing.len() == 1 { "" } else { "s" },
        ));
        Ok(1)
    }
}

/// Whether bytes of both belong together. A file may be opened again.
fn is_same(a: &OpenFile, b: &OpenFile) -> bool {
    match (&a.what, &b.what) {
        (What::File { path: Some(a), .. }, What::File { path: Some(b), .. }) => a == b,
        _ => a.number == b.number,
    }
}

#[cfg(test)]
mod tests {
    use super::{Placed, Target};

    #[test]
    fn what_is_there_is_known() {
        let mut p = Placed::new(Target { file: None });
        for (from, to) in [(10, 20), (30, 40), (5, 10), (20, 25), (50, 60), (28, 55)] {
            p.cover(from, to);
        }
        let there: Vec<_> = p.there.into_iter().collect();
        assert_eq!(there, [(5, 25), (28, 60)]);
    }
}
