//! Signal numbers: gdb has its own.

/// gdb's numbers of Linux's signals 1 to 31 (`include/gdb/signals.def` of gdb).
const GDB: [u8; 31] = [
    1, 2, 3, 4, 5, 6, 10, 8, 9, 30, 11, 31, 13, 14, 15, 143, 20, 19, 17, 18, 21, 22, 16, 24, 25,
    26, 27, 28, 23, 32, 12,
];
/// gdb's number of signal 33; those up to 63 follow.
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
    use gdbstub::common::Signal;

    #[test]
    fn both_ways() {
        for (linux, gdb) in [
            (7, Signal::SIGBUS),
            (10, Signal::SIGUSR1),
            (11, Signal::SIGSEGV),
            (12, Signal::SIGUSR2),
            (17, Signal::SIGCHLD),
            (18, Signal::SIGCONT),
            (19, Signal::SIGSTOP),
            (20, Signal::SIGTSTP),
            (23, Signal::SIGURG),
            (29, Signal::SIGIO),
            (30, Signal::SIGPWR),
            (31, Signal::SIGSYS),
            (32, Signal::SIG32),
            (34, Signal::SIG34),
            (63, Signal::SIG63),
            (64, Signal::SIG64),
        ] {
            assert_eq!(Signal(to_gdb(linux)), gdb, "{linux}");
        }
        for n in 1..=64 {
            assert_eq!(from_gdb(to_gdb(n)), Some(n));
        }
        assert_eq!(from_gdb(200), None);
    }
}
