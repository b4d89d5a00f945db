//! Long tests in parts: the usual run takes one share of their cases, and all runs together take all.

use std::ops::Range;

/// The environment variable that says which share is taken. Without it, all cases are.
const VARIABLE: &str = "HINDSIGHT_SHARE";

/// Those of `cases` that this run tests, in their order. If `HINDSIGHT_SHARE` is a number N, every `parts`-th one: N
/// and N + 1 take others, and any `parts` numbers in a row take all. Without the variable it is all of them. Prints
/// what it took, which is shown if the test fails.
///
/// Each case must prove something by itself. What is compared across cases belongs into one.
///
/// # Panics
/// If the variable is set to something that is no number.
pub fn share<T>(cases: impl IntoIterator<Item = T>, parts: usize) -> Vec<T> {
    let cases: Vec<T> = cases.into_iter().collect();
    let Some(number) = number() else {
        return cases;
    };
    let all = cases.len();
    let taken = taken(number, all, parts);
    let those = cases.into_iter().enumerate();
    let those = those.filter(|(i, _)| taken.contains(i));
    let (places, those): (Vec<usize>, Vec<T>) = those.unzip();
    println!("{VARIABLE}={number}: cases {places:?} of {all}");
    those
}

/// The number in the environment.
fn number() -> Option<usize> {
    let text = std::env::var_os(VARIABLE)?;
    let number = text.to_str().and_then(|t| t.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{VARIABLE} is no number: {text:?}")))
}

/// The places of the cases that share `number` has. At least one, if there are any.
fn taken(number: usize, all: usize, parts: usize) -> Vec<usize> {
    let parts = parts.clamp(1, all.max(1));
    let places: Range<usize> = 0..all;
    places.filter(|i| i % parts == number % parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_in_a_row_take_every_case_once() {
        for all in 0..12 {
            for parts in 0..15 {
                let of = parts.clamp(1, all.max(1));
                for first in [0, 5, 20_000] {
                    let shares = (first..first + of).map(|n| taken(n, all, parts));
                    let mut places: Vec<usize> = shares.clone().flatten().collect();
                    places.sort_unstable();
                    assert_eq!(places, (0..all).collect::<Vec<_>>(), "{all} in {parts}");
                    assert!(all == 0 || shares.clone().all(|s| !s.is_empty()));
                }
            }
        }
    }
}
