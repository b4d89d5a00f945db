//! Addresses and registers as scripts get them.

use serde_json::Value;

/// As hexadecimal text, in all that is told as JSON: many programs hold its numbers in 53 bits, which would change the
/// others without a word. The commands take it back as an argument.
pub fn hex(v: u64) -> Value {
    format!("{v:#x}").into()
}
