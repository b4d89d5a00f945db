//! Files that are opened by their paths.

use super::effects::Flags;
use super::pass::{Call, Files, Pass};
use super::table::{Shared, What};
use super::{Paths, number, path};
use crate::Result;
use hindsight_syscalls::abi;

impl Pass {
    /// The file of a file that was opened, and whether the next program does not get it.
    pub fn opened(
        &mut self,
        call: Call,
        files: &Files,
        (fd, dir): (i32, i32),
        at: u64,
        flags: Flags,
    ) -> Result<(Shared, bool)> {
        let flags = match flags {
            Flags::Are(flags) => Some(flags as i32),
            Flags::At(at) => number(&mut self.cursor, call.at(), (at, 8), false)?.map(|n| n as i32),
        };
        let writes = flags.is_none_or(|f| f & abi::O_ACCMODE != abi::O_RDONLY);
        let path = match self.paths == Paths::All || writes {
            true => path(&mut self.cursor, call.at(), at)?,
            false => None,
        };
        let again = path.as_deref().and_then(copied);
        let again = again.map(|fd| self.file(files, fd));
        let path = path.and_then(|p| self.absolute(files, dir, p));
        let file = self.new_file(
            fd,
            What::File {
                path,
                writes,
                // If it is not known, it may be one all the same.
                folder: flags.is_some_and(|f| f & abi::O_TMPFILE == abi::O_DIRECTORY),
            },
        );
        if let Some(again) = again {
            file.borrow_mut().opens_again(&again);
        }
        file.borrow_mut().next = Some(0);
        file.borrow_mut().flags = flags;
        file.borrow_mut().appends = flags.map(|f| f & abi::O_APPEND != 0);
        // If it is not known, the next program may have it.
        let on_exec = flags.is_some_and(|f| f & abi::O_CLOEXEC != 0);
        Ok((file, on_exec))
    }

    /// A path as it is from the root on, as far as that is known. It is told relative to a folder's descriptor.
    pub fn absolute(&mut self, files: &Files, dir: i32, path: Vec<u8>) -> Option<Vec<u8>> {
        if dir == abi::AT_FDCWD || path.first() == Some(&b'/') {
            let folder = files.borrow().folder.clone();
            return joined(folder.as_deref(), path.clone()).or(Some(path));
        }
        let folder = self.file(files, dir);
        match &folder.borrow().what {
            What::File {
                path: Some(folder), ..
            } => joined(Some(folder), path.clone()).or(Some(path)),
            _ => None,
        }
    }
}

/// A path in a folder. `None`: it is relative, and the folder is not known.
pub fn joined(folder: Option<&[u8]>, path: Vec<u8>) -> Option<Vec<u8>> {
    if path.first() == Some(&b'/') {
        return Some(path);
    }
    let mut out = folder?.to_vec();
    if out.last() != Some(&b'/') {
        out.push(b'/');
    }
    out.extend(path);
    Some(out)
}

/// The descriptor that a path names: `/dev/stdout`, `/dev/fd/N`, `/proc/self/fd/N`.
fn copied(path: &[u8]) -> Option<i32> {
    match path {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    let text = std::str::from_utf8(path).ok()?;
    let number = text.strip_prefix("/dev/fd/");
    let number = number.or(text.strip_prefix("/proc/self/fd/"))?;
    number.parse().ok().filter(|n| *n >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_descriptors_and_folders() {
        assert_eq!(copied(b"/dev/stderr"), Some(2));
        assert_eq!(copied(b"/dev/fd/63"), Some(63));
        assert_eq!(copied(b"/proc/self/fd/1"), Some(1));
        for other in [&b"/dev/fd/"[..], b"/dev/fd/-1", b"/dev/null", b"stdout"] {
            assert_eq!(copied(other), None);
        }
        let at = |folder: Option<&str>, path: &str| {
            let joined = joined(folder.map(str::as_bytes), path.into());
            joined.map(|p| String::from_utf8(p).unwrap())
        };
        assert_eq!(at(Some("/a"), "b").as_deref(), Some("/a/b"));
        assert_eq!(at(Some("/"), "b").as_deref(), Some("/b"));
        assert_eq!(at(None, "/b").as_deref(), Some("/b"));
        assert_eq!(at(None, "b"), None);
    }
}
