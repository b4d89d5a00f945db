//! What the command line has set for this process.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use hindsight_events::config::Config;

/// The command line fills this in, in the image, before the image is executed.
#[used]
static mut CONFIG: Config = Config::new();

/// Address of the configuration, if it is not `CONFIG`. An image that is mapped from the control
/// file has it elsewhere (see [`crate::process::exec`]).
static CONFIGURED: AtomicPtr<Config> = AtomicPtr::new(null_mut());

/// The configuration.
pub fn get() -> &'static Config {
    let elsewhere = CONFIGURED.load(Relaxed).cast_const();
    let at = if elsewhere.is_null() {
        &raw const CONFIG
    } else {
        elsewhere
    };
    // SAFETY: `at` is the address of a configuration, and nothing writes to it while the process
    // runs. `black_box` hides the pointer from the compiler, which would otherwise use the value in
    // the source.
    unsafe { &*core::hint::black_box(at) }
}

/// Takes the configuration from another address, unless that is null.
pub fn set(elsewhere: *mut Config) {
    CONFIGURED.store(elsewhere, Relaxed);
}
