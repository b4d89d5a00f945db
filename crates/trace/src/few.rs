//! Bounded lists in descriptions. An element takes more memory than it has bytes in the trace, so a trace
//! must not choose how many there are.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// More words than a command line of 2048 bytes can have.
const FEW: usize = 4096;

/// More than the kernel passes to a program. It allows 6 MiB, and each string takes a pointer and a zero byte
/// of them.
const ARGUMENTS: usize = 1 << 20;

/// Reads a list of at most [`FEW`] elements.
pub fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    at_most(d, FEW)
}

/// Reads a list of at most [`ARGUMENTS`] elements.
pub fn arguments<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    at_most(d, ARGUMENTS)
}

fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
    most: usize,
) -> Result<Vec<T>, D::Error> {
    struct List<T>(usize, PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "a list of at most {} elements", self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = seq.next_element()? {
                if list.len() == self.0 {
                    return Err(A::Error::invalid_length(list.len() + 1, &self));
                }
                list.push(element);
            }
            Ok(list)
        }
    }
    d.deserialize_seq(List(most, PhantomData))
}

#[cfg(test)]
mod tests {
    use crate::StreamInfo;

    #[test]
    fn long_lists_are_refused() {
        let of = |n: usize| format!("{{\"command\":[{}\"\"]}}", "\"\",".repeat(n - 1));
        let read = |n| serde_json::from_str::<StreamInfo>(&of(n));
        assert_eq!(read(super::FEW).unwrap().command.len(), super::FEW);
        assert!(read(super::FEW + 1).is_err());
    }
}
