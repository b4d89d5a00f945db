//! Addresses and registers as scripts get them.

use serde_json::Value;

/// A number as hexadecimal text in JSON. Many programs read JSON numbers with 53 bits, and would change larger ones silently.
/// The commands take the text back as an argument.
pub fn hex(v: u64) -> Value {
    format!("{v:#x}").into()
}
