//! Files that a confined process fills: it gets them open. They have their names only once all are whole.

use anyhow::{Context, Result, bail};
use hindsight_guard::private;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files below a folder. What is not finished is removed.
pub struct Made {
    files: Vec<PathBuf>,
    /// The device and the number of each file that was made.
    made: Vec<(u64, u64)>,
    /// Folders that were made for them, those above first.
    folders: Vec<PathBuf>,
    /// What an earlier run left beside them, for readers of a whole folder to find.
    old: Vec<PathBuf>,
    replace: bool,
    finished: bool,
}

impl Made {
    /// Makes these files below a folder, under names that nobody takes for theirs. `replace`: there may be files with their
    /// names, and others of the same tables, which go when these are whole.
    pub fn create(folder: &Path, files: &[PathBuf], replace: bool) -> Result<(Made, Vec<File>)> {
        let files: Vec<PathBuf> = files.iter().map(|f| folder.join(f)).collect();
        let mut seen = HashSet::new();
        if let Some(twice) = files.iter().find(|f| !seen.insert(*f)) {
            bail!("{} would be written twice", twice.display());
        }
        for path in &files {
            free(path, replace, "exists; --force replaces it")?;
        }
        let old = old(folder, &files);
        if let (Some(one), false) = (old.first(), replace) {
            bail!(
                "{} has rows of another run; --force removes them",
                one.display()
            );
        }
        allow_files();
        let mut made = Made {
            files,
            made: Vec::new(),
            folders: Vec::new(),
            old,
            replace,
            finished: false,
        };
        let mut open = Vec::new();
        for i in 0..made.files.len() {
            let path = made.files[i].clone();
            made.create_folders(private::folder_of(&path))?;
            sweep(&path);
            let hidden = hidden(&path);
            let failed = || format!("cannot create {}", hidden.display());
            let file = private::create_new(&hidden).with_context(failed)?;
            made.made.push(id(&file.metadata().with_context(failed)?));
            open.push(file);
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

    /// Gives all files their names. All names are looked at before the first file gets its own: an error leaves what was
    /// there. Only if the system then refuses one, those before it are new already, each of them whole.
    pub fn finish(mut self) -> Result<()> {
        for (path, made) in self.files.iter().zip(&self.made) {
            free(path, self.replace, "exists now")?;
            let hidden = hidden(path);
            let there = hidden.symlink_metadata();
            if id(&there.with_context(|| hidden.display().to_string())?) != *made {
                bail!("{} was replaced by another process", hidden.display());
            }
        }
        for path in &self.files {
            fs::rename(hidden(path), path).with_context(|| path.display().to_string())?;
        }
        self.finished = true;
        for path in &self.old {
            fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
            // If something else is in it, it stays.
            let _ = fs::remove_dir(private::folder_of(path));
        }
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

fn id(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Whether a file may get this name.
fn free(path: &Path, replace: bool, why: &str) -> Result<()> {
    match path.symlink_metadata() {
        Ok(there) if there.is_dir() => bail!("{} is a folder", path.display()),
        Ok(_) if !replace => bail!("{} {why}", path.display()),
        _ => Ok(()),
    }
}

/// Files with rows of the same tables that are none of these: of another format, or of other recordings.
fn old(folder: &Path, files: &[PathBuf]) -> Vec<PathBuf> {
    let tables: BTreeSet<PathBuf> = (files.iter())
        .filter_map(|f| f.strip_prefix(folder).ok()?.components().next())
        .map(|table| folder.join(table))
        .collect();
    let mut all = Vec::new();
    for table in tables {
        all.extend(inside(&table, "part-").filter(|p| p.is_file()));
        for of in inside(&table, "recording=") {
            all.extend(inside(&of, "part-").filter(|p| p.is_file()));
        }
    }
    let new: HashSet<&PathBuf> = files.iter().collect();
    all.retain(|p| !new.contains(p));
    all.sort();
    all
}

/// What in a folder has a name that begins like this.
fn inside(folder: &Path, begin: &str) -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    all.filter(move |e| {
        let name = e.file_name();
        name.as_encoded_bytes().starts_with(begin.as_bytes())
    })
    .map(|e| e.path())
}

/// The name of a file that is not whole. Tools that read a folder leave out files that begin with a dot. Each process has
/// its own: two that write the same table do not write into each other's file.
fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.new", std::process::id()))
}

/// Removes what processes left that were killed while they wrote a file.
fn sweep(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let begin = format!(".{name}.");
    for left in inside(private::folder_of(path), &begin) {
        let its = left.file_name().and_then(|n| n.to_str()).unwrap_or("");
        let number = (its.strip_prefix(&begin)).and_then(|n| n.strip_suffix(".new"));
        let ended = |n: u32| n == std::process::id() || !Path::new(&format!("/proc/{n}")).exists();
        if number.and_then(|n| n.parse().ok()).is_some_and(ended) {
            let _ = fs::remove_file(&left);
        }
    }
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
    #[test]
    fn writers_have_files_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let files = [PathBuf::from("t/part-0.csv")];
        fs::create_dir(dir.path().join("t")).unwrap();
        // The first process runs, and the second one cannot: there are no such numbers.
        for (number, stays) in [(1, true), (u32::MAX, false)] {
            let other = dir.path().join(format!("t/.part-0.csv.{number}.new"));
            fs::write(&other, "half").unwrap();
            let (made, mut open) = Made::create(dir.path(), &files, true).unwrap();
            open[0].write_all(b"whole").unwrap();
            made.finish().unwrap();
            assert_eq!(fs::read(dir.path().join("t/part-0.csv")).unwrap(), b"whole");
            assert_eq!(other.exists(), stays, "{number}");
        }
        let twice = [files[0].clone(), files[0].clone()];
        let said = Made::create(dir.path(), &twice, true).map(|_| ());
        assert!(said.unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn an_error_at_the_end_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let files = [PathBuf::from("a/part-0.csv"), "b/part-0.csv".into()];
        for (replace, word) in [(false, "exists now"), (true, "is a folder")] {
            let (made, _) = Made::create(dir.path(), &files, replace).unwrap();
            let late = dir.path().join("b/part-0.csv");
            match replace {
                false => fs::write(&late, "other").unwrap(),
                true => fs::create_dir(&late).unwrap(),
            }
            let said = made.finish().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
            assert!(!dir.path().join("a").exists());
            let _ = fs::remove_file(&late);
        }
    }

    #[test]
    fn rows_of_other_runs_are_not_mixed_with_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let old = ["t/recording=x/part-0.csv", "t/part-1.parquet"].map(|f| dir.path().join(f));
        let others = ["t/notes", "u/part-0.csv"].map(|f| dir.path().join(f));
        for path in old.iter().chain(&others) {
            fs::create_dir_all(private::folder_of(path)).unwrap();
            fs::write(path, "").unwrap();
        }
        let files = [PathBuf::from("t/recording=y/part-0.csv")];
        let said = Made::create(dir.path(), &files, false).map(|_| ());
        let said = said.unwrap_err().to_string();
        assert!(said.contains("part-") && said.contains("--force"), "{said}");
        let (made, _) = Made::create(dir.path(), &files, true).unwrap();
        drop(made);
        assert!(old.iter().all(|p| p.exists()));
        let (made, _) = Made::create(dir.path(), &files, true).unwrap();
        made.finish().unwrap();
        assert!(old.iter().all(|p| !p.exists()) && others.iter().all(|p| p.exists()));
        assert!(!dir.path().join("t/recording=x").exists());
        assert!(dir.path().join(&files[0]).exists());
    }
}
