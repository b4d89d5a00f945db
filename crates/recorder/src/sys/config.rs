//! What the command line has set for this process.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use hindsight_events::config::Config;

/// Where the configuration is.
struct Configured {
    /// The command line fills this in, in the image, before the image is executed. Nothing writes to it while the
    /// process runs.
    own: UnsafeCell<Config>,
    /// Address of the configuration, if it is not `own`. An image that is mapped from the control file has it
    /// elsewhere (see [`crate::process::exec`]). Set before anything is read.
    elsewhere: AtomicPtr<Config>,
}

// SAFETY: `own` is never written while the process runs.
unsafe impl Sync for Configured {}

#[used]
static CONFIG: Configured = Configured {
    own: UnsafeCell::new(Config::new()),
    elsewhere: AtomicPtr::new(null_mut()),
};

/// The configuration.
pub fn get() -> &'static Config {
    let elsewhere = CONFIG.elsewhere.load(Relaxed).cast_const();
    let at = if elsewhere.is_null() {
        CONFIG.own.get().cast_const()
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
    CONFIG.elsewhere.store(elsewhere, Relaxed);
}
