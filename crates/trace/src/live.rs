//! Tells whether a recording is still being written. Whoever writes one holds a lock on its file (`flock`), which the
//! kernel takes back when the last process with that open file is gone. So a writer that was killed holds none, and the
//! file itself need not be trusted. A copy of the file has no lock.
//!
//! The lock is a hint and no more: others can hold one too, and some file systems have none. Nobody waits for it.

use std::fs::{File, TryLockError};
use std::time::Duration;

/// A reader holds the lock for less than this while it asks.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a writer tries.
const TRIES: u32 = 20;

/// Says that this process writes a recording to the file, until it closes it. A pipe or a device gets no lock: it is
/// not the recording's own.
pub fn hold(file: &File) {
    if !file.metadata().is_ok_and(|m| m.is_file()) {
        return;
    }
    for _ in 0..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}

/// Whether somebody writes a recording to the file at this moment.
pub fn is_held(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            // If this fails, the lock goes when the file is closed.
            let _ = file.unlock();
            false
        }
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_held_until_its_writer_closes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (writer, reader) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        assert!(!is_held(&reader));
        hold(&writer);
        assert!(is_held(&reader) && is_held(&File::open(&path).unwrap()));
        std::fs::copy(&path, folder.path().join("copy")).unwrap();
        assert!(!is_held(&File::open(folder.path().join("copy")).unwrap()));
        drop(writer);
        assert!(!is_held(&reader));
    }

    #[test]
    fn nobody_waits_for_a_file_that_another_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (other, writer) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        other.lock().unwrap();
        hold(&writer);
        assert!(is_held(&writer));
    }
}
