//! The C entry point is taken instead of Rust's own. Before Rust's `main`, the standard library ignores SIGPIPE and opens
//! descriptors that are closed. The recorded program would inherit that.
#![no_main]

#[unsafe(no_mangle)]
extern "C" fn main(_argc: i32, _argv: *const *const u8) -> i32 {
    std::process::exit(hindsight_cli::run())
}
