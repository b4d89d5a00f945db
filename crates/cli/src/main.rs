//! With glibc, the C entry point is taken instead of Rust's own. Before Rust's `main`, the standard library ignores SIGPIPE
//! and opens descriptors that are closed. The recorded program would inherit that.
#![cfg_attr(target_env = "gnu", no_main)]

#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: i32, _argv: *const *const u8) -> i32 {
    std::process::exit(hindsight_cli::run())
}

/// Other C libraries do not tell Rust the arguments then. Programs are recorded with glibc only.
#[cfg(not(target_env = "gnu"))]
fn main() {
    // Whoever closes a pipe wants no more.
    // SAFETY: no other thread runs, and nothing handles the signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    std::process::exit(hindsight_cli::run())
}
