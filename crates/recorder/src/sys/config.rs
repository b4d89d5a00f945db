//! What the command line has set for this process.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use hindsight_events::config::Config;

/// Filled in by the command line in the image before it is executed.
#[used]
static mut CONFIG: Config = Config::new();

/// Where the configuration is, if not there: an image that is mapped from the control file has it elsewhere
/// (see [`crate::process::exec`]).
static CONFIGURED: AtomicPtr<Config> = AtomicPtr::new(null_mut());

/// The configuration.
pub fn get() -> &'static Config {
    let elsewhere = CONFIGURED.load(Relaxed).cast_const();
    let at = if elsewhere.is_null() {
        &raw const CONFIG
    } else {
        elsewhere
    };
    // SAFETY: nothing writes it while the process runs. The pointer is hidden from the compiler,
    // which would otherwise read the value that the source gives.
    unsafe { &*core::hint::black_box(at) }
}

/// Takes the configuration from elsewhere than this image, unless that is null.
pub fn set(elsewhere: *mut Config) {
    CONFIGURED.store(elsewhere, Relaxed);
}
