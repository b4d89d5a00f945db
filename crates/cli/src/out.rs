//! What reaches standard output.

use crate::say;

/// Prints to standard output, and ends the program where that cannot be written; a reader that has gone away is not an
/// error. The text may be JSON, or have several lines: what the program called something is to be escaped before it
/// comes into a line ([`hindsight_text::Shown`]).
pub fn println(text: &str) {
    put(&hindsight_text::lines(text));
}

/// The same with text that has nothing of a recording in it.
pub fn put(text: &str) {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            say(&format!("standard output: {e}"));
            std::process::exit(2);
        }
        _ => {}
    }
}

/// Writes a part of a line, or bytes as they are. Ends the program where that cannot be written. It ends silently if the
/// reader has gone away: what follows may be long.
pub fn write(bytes: &[u8]) {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            say(&format!("standard output: {e}"));
            std::process::exit(2);
        }
    }
}

/// Prints a list for scripts, one element after the other: what it has need not be in memory at the same time.
#[derive(Default)]
pub struct JsonList(bool);

impl JsonList {
    /// Prints the next element.
    pub fn add(&mut self, element: &serde_json::Value) {
        self.begin(&element.to_string());
    }

    /// Prints the beginning of the next element. The caller prints the rest with [`write`].
    pub fn begin(&mut self, element: &str) {
        let begin = if self.0 { ",\n" } else { "[\n" };
        self.0 = true;
        write(hindsight_text::lines(&format!("{begin}{element}")).as_bytes());
    }

    /// Prints the end.
    pub fn end(self) {
        println(if self.0 { "\n]" } else { "[]" });
    }
}
