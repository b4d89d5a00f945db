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
