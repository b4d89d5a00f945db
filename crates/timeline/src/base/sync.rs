//! Locks and threads. A panic of one thread becomes a panic of all.
//!
//! A host without threads, as WebAssembly, does at once what is meant for another thread ([`spawn`]). So nothing that is spawned may
//! wait for what its maker does later.

use std::sync::{Mutex, MutexGuard};
use std::thread::{Scope, ScopedJoinHandle};

/// Whether this host has threads.
pub const HAS_THREADS: bool = !cfg!(target_family = "wasm");

/// Work for another thread.
pub enum Worker<'s, T> {
    Thread(ScopedJoinHandle<'s, T>),
    /// There are no threads: it is done.
    Done(T),
}

impl<T> Worker<'_, T> {
    /// Waits for it. The error is its panic.
    pub fn join(self) -> std::thread::Result<T> {
        match self {
            Worker::Thread(thread) => thread.join(),
            Worker::Done(done) => Ok(done),
        }
    }
}

/// Has another thread do some work. Without threads, it is done when this returns.
pub fn spawn<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> Worker<'s, T> {
    match HAS_THREADS {
        true => Worker::Thread(scope.spawn(work)),
        false => Worker::Done(work()),
    }
}

/// Waits for a thread and passes its panic on.
pub fn joined<T, E>(w: Worker<'_, Result<T, E>>) -> Result<T, E> {
    match w.join() {
        Ok(r) => r,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Locks a mutex, also one that a panic has poisoned. That panic ends the question anyway.
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}
