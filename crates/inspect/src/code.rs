//! Finds code by the names that users have for it.

use crate::{Inspector, Result};
use std::collections::BTreeSet;

impl Inspector {
    /// The addresses of the code that a text names, in a program image. All files count that it had mapped at any time. The
    /// text is
    ///
    /// - an address (decimal, or hexadecimal with `0x`);
    /// - `FILE:LINE`, with FILE as for [`hindsight_symbols::Space::addresses_of_line`];
    /// - or a function, as for [`Inspector::functions`]. Where its body begins is known from debug information: parameters are
    ///   at their places only there. Without that, it is the function's first instruction.
    ///
    /// The set is empty if there is no such code.
    ///
    /// # Errors
    /// The recording does not answer.
    pub fn code(&mut self, image: u32, text: &str) -> Result<BTreeSet<u64>> {
        if let Some(address) = number(text) {
            return Ok(BTreeSet::from([address]));
        }
        let line = text.rsplit_once(':');
        let line = line.and_then(|(file, line)| Some((file, line.parse().ok()?)));
        let mut all = BTreeSet::new();
        let Some((file, line)) = line else {
            for (function, _) in self.functions(image, text)? {
                all.insert(self.body(image, function)?);
            }
            return Ok(all);
        };
        for space in self.files(image)? {
            all.extend(space.addresses_of_line(file, line));
        }
        Ok(all)
    }

    /// Where the body of a function begins, as far as that is known.
    pub(crate) fn body(&mut self, image: u32, function: u64) -> Result<u64> {
        for space in self.files(image)? {
            for m in space.mappings() {
                let signature = m.module.signature(function.wrapping_sub(m.bias));
                if let Ok(Some(body)) = signature.map(|s| s.and_then(|s| s.body)) {
                    return Ok(body.wrapping_add(m.bias));
                }
            }
        }
        Ok(function)
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
