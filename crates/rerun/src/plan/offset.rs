//! What a call says of places in a file.

/// Where a read says that it reads.
pub fn place(number: u64, args: &[u64; 6]) -> Option<u64> {
    match number as i64 {
        libc::SYS_pread64 | libc::SYS_preadv => Some(args[3]),
        libc::SYS_preadv2 if args[3] != u64::MAX => Some(args[3]),
        _ => None,
    }
}

/// Where a write says that it writes.
pub fn place_written(number: u64, args: &[u64; 6]) -> Option<u64> {
    match number as i64 {
        libc::SYS_pwrite64 | libc::SYS_pwritev => Some(args[3]),
        libc::SYS_pwritev2 if args[3] != u64::MAX => Some(args[3]),
        _ => None,
    }
}

/// Whether a call moves the place where a file is written next. One that only asks does not.
pub fn moves_place(number: u64, args: &[u64; 6]) -> bool {
    let asks = args[2] as i32 == libc::SEEK_CUR && args[1] == 0;
    number as i64 == libc::SYS_lseek && !asks
}
