//! Files that a confined process fills: it gets them open. They have their names only once all are whole.

use anyhow::{Context, Result, bail};
use hindsight_guard::private;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Files below a folder. What is not finished is removed.
pub struct Made {
    files: Vec<PathBuf>,
    /// Folders that were made for them, those above first.
    folders: Vec<PathBuf>,
    replace: bool,
    finished: bool,
}

impl Made {
    /// Makes these files below a folder, under names that nobody takes for theirs. `replace`: there may be files with their names.
    pub fn create(folder: &Path, files: &[PathBuf], replace: bool) -> Result<(Made, Vec<File>)> {
        let files: Vec<PathBuf> = files.iter().map(|f| folder.join(f)).collect();
        if let Some(there) = files
            .iter()
            .find(|f| f.symlink_metadata().is_ok() && !replace)
        {
            bail!("{} exists; --force replaces it", there.display());
        }
        allow_files();
        let mut made = Made {
            files,
            folders: Vec::new(),
            replace,
            finished: false,
        };
        let mut open = Vec::new();
        for i in 0..made.files.len() {
            let path = made.files[i].clone();
            made.create_folders(private::folder_of(&path))?;
            let hidden = hidden(&path);
            // A process that was killed may have left it.
            let _ = fs::remove_file(&hidden);
            let file = private::create_new(&hidden);
            open.push(file.with_context(|| format!("cannot create {}", hidden.display()))?);
        }
        Ok((made, open))
    }

    fn create_folders(&mut self, folder: &Path) -> Result<()> {
        let mut new: Vec<&Path> = (folder.ancestors())
            .take_while(|f| !f.as_os_str().is_empty() && !f.exists())
            .collect();
        new.reverse();
        for one in new {
            let done = private::create_folder(one);
            done.with_context(|| format!("cannot create {}", one.display()))?;
            self.folders.push(one.into());
        }
        Ok(())
    }

    /// Gives all files their names.
    pub fn finish(mut self) -> Result<()> {
        for path in &self.files {
            if !self.replace && path.symlink_metadata().is_ok() {
                bail!("{} exists now", path.display());
            }
            fs::rename(hidden(path), path).with_context(|| path.display().to_string())?;
        }
        self.finished = true;
        Ok(())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        for path in &self.files {
            let _ = fs::remove_file(hidden(path));
        }
        for folder in self.folders.iter().rev() {
            // If something else is in it by now, it stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The name of a file that is not whole. Tools that read a folder leave out files that begin with a dot.
fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

/// Lets this process have as many files open as it may.
fn allow_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills in the structure and reads it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_are_whole_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("a/b");
        let files = [
            PathBuf::from("t/x=1/part"),
            "t/x=2/part".into(),
            "u/part".into(),
        ];
        let (made, mut open) = Made::create(&to, &files, false).unwrap();
        open[0].write_all(b"half").unwrap();
        assert!(!to.join("t/x=1/part").exists());
        drop(made);
        assert!(!dir.path().join("a").exists());
        let (made, mut open) = Made::create(&to, &files, false).unwrap();
        open[2].write_all(b"whole").unwrap();
        made.finish().unwrap();
        assert_eq!(fs::read(to.join("u/part")).unwrap(), b"whole");
        assert_eq!(fs::read_dir(to.join("u")).unwrap().count(), 1);
        // What is there is not replaced, unless somebody says so.
        let again = Made::create(&to, &files[2..], false).map(|_| ());
        assert!(again.unwrap_err().to_string().contains("--force"));
        let (made, _) = Made::create(&to, &files[2..], true).unwrap();
        drop(made);
        assert_eq!(fs::read(to.join("u/part")).unwrap(), b"whole");
        let (made, _) = Made::create(&to, &files[2..], true).unwrap();
        made.finish().unwrap();
        assert_eq!(fs::read(to.join("u/part")).unwrap(), b"");
    }
}
