//! What the compiler asks of a program without a standard library.

use crate::fail::{STATUS, die};
use crate::{line, ring, sys};

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let l = match info.location() {
        Some(at) => line!(
            "internal error at {}:{}: {}",
            at.file(),
            at.line(),
            info.message()
        ),
        None => line!("internal error: {}", info.message()),
    };
    ring::abandon();
    die(STATUS, &l)
}

/// The prebuilt core library mentions it; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    sys::exit_group(STATUS)
}
