//! Coverage as lcov's tracefiles have it (`man geninfo`, "FILES").

use super::read::{Row, each};
use crate::engine::Engine;
use anyhow::Result;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Functions of a file come before its lines. Copies, such as those of several processes, are summed up.
const QUERY: &str =
    "SELECT file, kind, CASE WHEN kind = 'function' THEN function END f, min(line) l, sum(count) n
    FROM coverage WHERE kind IN ('function', 'line') AND file IS NOT NULL AND line > 0
    GROUP BY file, kind, f, CASE WHEN kind = 'line' THEN line END ORDER BY file, kind, l, f";

/// Writes it, of source files below these folders, or else of all with an absolute path: others are not found.
pub fn write(engine: &Engine, folders: &[PathBuf], out: &mut dyn Write) -> Result<()> {
    let mut file = File::default();
    each(engine, QUERY, &mut |row| {
        let path = Path::new(row.text(0).unwrap_or_default());
        let wanted = match folders {
            [] => path.is_absolute(),
            some => some.iter().any(|f| path.starts_with(f)),
        };
        match wanted {
            true => file.row(&row, out),
            false => Ok(()),
        }
    })?;
    file.end(out)
}

/// The file that is being written.
#[derive(Default)]
struct File {
    path: Option<String>,
    /// How many there are, and how many of them were executed.
    functions: [u64; 2],
    lines: [u64; 2],
}

impl File {
    fn row(&mut self, row: &Row, out: &mut dyn Write) -> Result<()> {
        let path = row.text(0).unwrap_or_default();
        if self.path.as_deref() != Some(path) {
            self.end(out)?;
            // Without a name of a test.
            writeln!(out, "TN:\nSF:{}", line(path))?;
            self.path = Some(path.into());
        }
        let (at, count) = (row.int(3).unwrap_or(0), row.int(4).unwrap_or(0));
        let sums = match row.text(2) {
            Some(function) => {
                let function = line(function);
                writeln!(out, "FN:{at},{function}\nFNDA:{count},{function}")?;
                &mut self.functions
            }
            None => {
                // The summary of functions stands before the lines.
                if self.lines[0] == 0 {
                    summary(self.functions, "FN", out)?;
                }
                writeln!(out, "DA:{at},{count}")?;
                &mut self.lines
            }
        };
        sums[0] += 1;
        sums[1] += u64::from(count > 0);
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> Result<()> {
        if self.path.is_some() {
            if self.lines[0] == 0 {
                summary(self.functions, "FN", out)?;
            }
            summary(self.lines, "L", out)?;
            writeln!(out, "end_of_record")?;
        }
        *self = File::default();
        Ok(())
    }
}

fn summary([found, hit]: [u64; 2], of: &str, out: &mut dyn Write) -> Result<()> {
    Ok(writeln!(out, "{of}F:{found}\n{of}H:{hit}")?)
}

/// A text in a line of its own.
fn line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "?")
}
