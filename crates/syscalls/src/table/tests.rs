//! Whether the table is sound, and agrees with the code that knows single calls.

extern crate std;

use super::*;
use crate::abi::*;
use std::collections::BTreeSet;
use std::vec::Vec;

#[test]
fn as_in_the_headers() {
    for (nr, want) in [
        (__NR_read, "read"),
        (__NR_execve, "execve"),
        (__NR_rseq, "rseq"),
        (__NR_pidfd_send_signal, "pidfd_send_signal"),
        (__NR_futex_waitv, "futex_waitv"),
    ] {
        assert_eq!(name(nr), Some(want));
        assert_eq!(number(want), Some(nr));
    }
    assert_eq!((name(335), name(423), name(u64::MAX)), (None, None, None));
    assert_eq!(number(""), None);
    for (nr, want) in [
        (__NR_read, 3),
        (__NR_mmap, 6),
        (__NR_getpid, 0),
        (__NR_uname, 1),
        (__NR_statx, 5),
        (__NR_rseq, 4),
        (__NR_clone3, 2),
    ] {
        assert_eq!(arguments(nr), want, "{nr}");
    }
    assert_eq!((arguments(400), arguments(u64::MAX)), (6, 6));
}

#[test]
fn the_table_is_in_order_and_names_nothing_twice() {
    assert!(TABLE.is_sorted_by(|a, b| a.number < b.number));
    let mut names: Vec<_> = names().collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|a, b| a < b));
    assert!(TABLE.iter().all(|c| arguments(c.number as u64) <= 6));
}

#[test]
fn what_is_written_fits_the_arguments() {
    for c in TABLE {
        if let Results(list) | Always(list) = c.writes {
            let fits = |(arg, len): &(usize, u64)| *arg < arguments(c.number as u64) && *len != 0;
            assert!(!list.is_empty() && list.iter().all(fits), "{}", c.name);
        }
        let writes = |a: &Arg| {
            matches!(
                a,
                Filled
                    | FilledText
                    | Out(_)
                    | InOut(_)
                    | Outs(_)
                    | FilledBuffers(_)
                    | FilledAddress(_)
                    | FilledMessage
                    | FilledValue(_)
                    | FilledProcessors
                    | FileHandle
                    | MountId(_)
                    | Polled(_)
                    | Descriptors
            )
        };
        let told = c.args.told.is_some_and(|args| args.iter().any(writes));
        assert!(
            !told || c.writes != Nothing,
            "{}: an argument is written to, but the call is said to write nothing",
            c.name
        );
    }
}

/// The calls whose names stand in a part of a file.
fn named(text: &str) -> BTreeSet<&str> {
    let names = text.split("__NR_").skip(1);
    names
        .map(|n| {
            let end = n.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            &n[..end.unwrap_or(n.len())]
        })
        .collect()
}

#[test]
fn what_is_said_in_code_is_told_so() {
    let code = include_str!("../outputs.rs");
    let (begin, end) = ("\npub fn outputs(", "pub fn indirections");
    let said = &code[code.find(begin).unwrap()..code.find(end).unwrap()];
    let coded = TABLE.iter().filter(|c| c.writes == Coded);
    let coded: BTreeSet<&str> = coded.map(|c| c.name).collect();
    assert_eq!(
        named(said),
        coded,
        "calls in outputs.rs, and those that the table calls Coded"
    );
    // What is written through pointers in memory is said in code, too.
    for more in [
        &code[code.find(end).unwrap()..],
        include_str!("../overlap.rs"),
    ] {
        assert!(named(more).is_subset(&coded), "{:?}", named(more));
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn structures_are_as_long_as_in_the_headers() {
    use linux_raw_sys::{general, system};
    let long = |bytes: usize| bytes as u64;
    assert_eq!(STAT, long(size_of::<general::stat>()));
    assert_eq!(STATFS, long(size_of::<general::statfs64>()));
    assert_eq!(STATX, long(size_of::<general::statx>()));
    assert_eq!(RUSAGE, long(size_of::<general::rusage>()));
    assert_eq!(SYSINFO, long(size_of::<system::sysinfo>()));
}
