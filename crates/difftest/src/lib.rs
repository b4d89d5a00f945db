//! Differential tests of the translator.
//!
//! A case is one instruction, or a few. It runs on the bare processor, translated for recording,
//! and replayed from that recording. Then these are compared: registers, flags, vector state,
//! memory, cells, faults and positions.
//!
//! A small runtime of its own serves translated code. It calls the recorder where that decides the
//! outcome: recording mispredictions, checks before masked instructions, guarded access.

extern crate alloc;

pub mod case;
mod compare;
pub mod confined;
pub mod generate;
pub mod interpret;
pub mod memory;
pub mod native;
mod prepare;
pub mod record;
pub mod replay;
pub mod sequences;
pub mod state;
pub mod thread;

pub use hindsight_recorder::guard;

/// Stands for what the crate `image` has. Whether the linker asks for it depends on how the recorder was cut into objects.
#[unsafe(no_mangle)]
static hindsight_configured: u8 = 0;

use generate::is_tested;
use iced_x86::Code;

/// A number from the environment: decimal, or hexadecimal behind `0x`. `None` if there is none.
///
/// # Panics
/// If it is no number: whoever chooses a case is not to get others.
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(number(&text).unwrap_or_else(|| panic!("{name}={text} is no number")))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The tested encodings whose names begin with `HINDSIGHT_DIFF_CODE`; all of them if nothing is chosen.
///
/// # Panics
/// If there are none.
pub fn chosen() -> Vec<Code> {
    beginning_with(&std::env::var("HINDSIGHT_DIFF_CODE").unwrap_or_default())
}

fn beginning_with(prefix: &str) -> Vec<Code> {
    let tested = Code::values().filter(|c| is_tested(*c));
    let chosen: Vec<Code> = tested
        .filter(|c| format!("{c:?}").starts_with(prefix))
        .collect();
    assert!(
        !chosen.is_empty(),
        "HINDSIGHT_DIFF_CODE={prefix}: no tested encoding has a name that begins so"
    );
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("17"), Some(17));
        assert_eq!(number("0x1F"), Some(31));
        assert_eq!((number("1F"), number("0x"), number("")), (None, None, None));
    }

    #[test]
    fn encodings_are_chosen_by_their_names_beginnings() {
        assert!(beginning_with("").len() > 1000);
        let chosen = beginning_with("Add_r64");
        assert!(chosen.contains(&Code::Add_r64_rm64) && chosen.len() < 10);
    }

    #[test]
    #[should_panic = "HINDSIGHT_DIFF_CODE=Adt_: no tested encoding"]
    fn a_name_that_none_has_fails() {
        beginning_with("Adt_");
    }
}
