//! Names of files that belong to another one.

use std::path::{Path, PathBuf};

/// The folder that contains a file.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// The path of a file that is to replace the file at `path`.
pub fn temporary(path: &Path) -> PathBuf {
    path.with_added_extension("new")
}
