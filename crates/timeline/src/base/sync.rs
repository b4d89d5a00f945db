//! Locks and threads. A panic of one thread becomes a panic of all.

use std::sync::{Mutex, MutexGuard};
use std::thread::ScopedJoinHandle;

/// Waits for a thread and passes its panic on.
pub fn joined<T, E>(w: ScopedJoinHandle<'_, Result<T, E>>) -> Result<T, E> {
    match w.join() {
        Ok(r) => r,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Locks a mutex, also one that a panic has poisoned. That panic ends the question anyway.
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}
