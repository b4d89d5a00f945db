//! Whether the command that tests use was built from the sources that are there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of the command `built` that was changed after the command was built. cargo has listed them beside it.
///
/// Changes after `now` do not count: they come while tests run, which were built without them too. Nor do sources that
/// are gone, since the whole tree may have been moved.
pub fn newer_source(built: &Path, now: SystemTime) -> Option<PathBuf> {
    let list = fs::read_to_string(built.with_added_extension("d")).ok()?;
    let when = fs::metadata(built).and_then(|m| m.modified()).ok()?;
    let (_, sources) = list.lines().next()?.split_once(": ")?;
    // A backslash stands before a space in a name.
    let sources = sources.replace("\\ ", "\0");
    let mut names = sources.split(' ').filter(|name| !name.is_empty());
    names.find_map(|name| newer(Path::new(&name.replace('\0', " ")), when, now))
}

/// The file, or one in the folder, if it was changed between the two times.
fn newer(path: &Path, from: SystemTime, to: SystemTime) -> Option<PathBuf> {
    let meta = fs::metadata(path).ok()?;
    if meta.is_dir() {
        let entries = fs::read_dir(path).ok()?.flatten();
        let mut paths = entries.map(|e| e.path());
        return paths.find_map(|p| newer(&p, from, to));
    }
    let changed = meta.modified().ok()?;
    (from < changed && changed < to).then(|| path.into())
}

/// When this process's parent began, which is `cargo test` as a rule: what it built was up to date then. If nobody can
/// tell, the beginning of time.
pub fn parent_began() -> SystemTime {
    let pid = std::os::unix::process::parent_id();
    began(pid).unwrap_or(UNIX_EPOCH)
}

fn began(pid: u32) -> Option<SystemTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses, and may have any characters. The 22nd field is the time in ticks since the boot.
    let ticks = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    // SAFETY: asks for a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let began = Duration::try_from_secs_f64(ticks.parse::<f64>().ok()? / per_second as f64).ok()?;
    // The time of the boot that the kernel tells is in whole seconds, which is too coarse: so back from now.
    let mut since = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `since` is a place for the time.
    if unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut since) } != 0 {
        return None;
    }
    let since = Duration::new(since.tv_sec as u64, since.tv_nsec as u32);
    SystemTime::now().checked_sub(since.checked_sub(began)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// A file that was changed at this second.
    fn file(path: &Path, second: u64, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(at(second)).unwrap();
    }

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn sources_that_changed_after_the_build_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (built, one, deep) = (path("built"), path("a b/one.rs"), path("src/x/deep.rs"));
        let list = format!(
            "{}: {} {} {}\n",
            built.display(),
            one.to_str().unwrap().replace(' ', "\\ "),
            path("gone.rs").display(),
            path("src").display()
        );
        file(&built, 1000, "");
        assert_eq!(newer_source(&built, at(2000)), None, "there is no list");
        file(&path("built.d"), 1000, &list);
        file(&one, 900, "");
        file(&deep, 990, "");
        assert_eq!(newer_source(&built, at(2000)), None);
        file(&deep, 1500, "");
        assert_eq!(newer_source(&built, at(2000)), Some(deep.clone()));
        assert_eq!(newer_source(&built, at(1200)), None, "while tests run");
        file(&deep, 990, "");
        file(&one, 1001, "");
        assert_eq!(newer_source(&built, at(2000)), Some(one));
    }

    #[test]
    fn the_time_at_which_a_process_began_is_known() {
        let parent = parent_began();
        let own = began(std::process::id()).unwrap();
        // What is asked later is computed from another instant.
        let slack = Duration::from_millis(20);
        assert!(UNIX_EPOCH < parent && parent <= own + slack);
        assert!(own <= SystemTime::now());
    }
}
