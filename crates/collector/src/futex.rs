use std::ptr::null;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `expected`, for `timeout` at most.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Duration) {
    let t = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    };
    // SAFETY: the word and the time outlive the call, which writes neither.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &t,
        );
    }
}

/// Wakes everybody who sleeps on `word`, in any process.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the call only looks the address up.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            i32::MAX,
            null::<u8>(),
        );
    }
}
