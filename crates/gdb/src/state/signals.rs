//! Signal numbers. gdb has its own.

/// gdb's numbers of Linux's signals 1 to 31 (`include/gdb/signals.def` of gdb).
const GDB: [u8; 31] = [
    1, 2, 3, 4, 5, 6, 10, 8, 9, 30, 11, 31, 13, 14, 15, 143, 20, 19, 17, 18, 21, 22, 16, 24, 25,
    26, 27, 28, 23, 32, 12,
];
/// gdb's number of signal 33. Those of 34 to 63 follow it.
const GDB_33: u8 = 45;
const GDB_32: u8 = 77;
const GDB_64: u8 = 78;

/// gdb's number of a Linux signal.
pub fn to_gdb(linux: u8) -> u8 {
    match linux {
        1..=31 => GDB[linux as usize - 1],
        32 => GDB_32,
        33..=63 => GDB_33 + linux - 33,
        64 => GDB_64,
        _ => 143,
    }
}

/// The Linux signal of this number of gdb's.
pub fn from_gdb(gdb: u8) -> Option<u8> {
    (1..=64).find(|n| to_gdb(*n) == gdb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        // SIGBUS, SIGUSR1, SIGSEGV, …
        for (linux, gdb) in [
            (7, 10),
            (10, 30),
            (11, 11),
            (12, 31),
            (17, 20),
            (18, 19),
            (19, 17),
            (20, 18),
            (23, 16),
            (29, 23),
            (30, 32),
            (31, 12),
            (32, 77),
            (34, 46),
            (63, 75),
            (64, 78),
        ] {
            assert_eq!(to_gdb(linux), gdb, "{linux}");
        }
        for n in 1..=64 {
            assert_eq!(from_gdb(to_gdb(n)), Some(n));
        }
        assert_eq!(from_gdb(200), None);
    }
}
