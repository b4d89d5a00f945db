//! Translated code that is stored for later recordings.

use hindsight_lab::{Done, Scene};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: [&str; 3] = ["/bin/sh", "-c", "ls -d / | cat; echo $((6 * 7))"];

/// How many translated blocks a recording found, and how many it made.
#[derive(Debug)]
struct Blocks {
    found: u64,
    made: u64,
}

struct Kept {
    scene: Scene,
    cache: PathBuf,
}

impl Kept {
    fn new() -> Kept {
        let scene = Scene::new();
        let cache = scene.path("cache");
        Kept { scene, cache }
    }

    fn folder(&self) -> PathBuf {
        self.cache.join("hindsight")
    }

    fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut c = self.scene.hindsight(args);
        c.env("XDG_CACHE_HOME", &self.cache);
        c
    }

    fn files(&self) -> Vec<PathBuf> {
        let dir = fs::read_dir(self.folder());
        dir.map_or(Vec::new(), |d| d.map(|e| e.unwrap().path()).collect())
    }

    /// The only file in the cache. It exists after the first recording.
    fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }

    /// Records the program, which must do the same as natively, and verifies.
    fn record(&self, options: &[&str]) -> (Blocks, Done) {
        let trace = self.scene.path("trace.hst");
        let mut c = self.command(&["record", "--quiet"]);
        c.args(options)
            .arg("-o")
            .arg(&trace)
            .arg("--")
            .args(PROGRAM);
        let done = self.scene.run(&mut c);
        assert_eq!(done.text(), "/\n42\n", "{}", done.messages());
        (self.blocks(&trace), done)
    }

    fn blocks(&self, trace: &Path) -> Blocks {
        self.scene.must_verify(trace);
        let info = self.scene.info(trace);
        let n = |name: &str| info[name].as_u64().unwrap();
        Blocks {
            found: n("blocks_found"),
            made: n("blocks_made"),
        }
    }
}

#[test]
fn the_second_recording_finds_what_the_first_has_made() {
    let k = Kept::new();
    let (first, _) = k.record(&[]);
    assert!(first.found == 0 && first.made > 500, "{first:?}");
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&k.folder()), mode(&k.file())), (0o700, 0o600));
    let (second, _) = k.record(&[]);
    assert!(second.found > 500, "{second:?}");
    // It differs where the pipe makes somebody wait, so some blocks are new.
    assert!(second.made < first.made / 10, "{first:?} {second:?}");
    let (without, _) = k.record(&["--no-cache"]);
    assert_eq!(without.found, 0);
    // Another kind of code has a file of its own.
    let (other, _) = k.record(&["--predictor", "cache:64k"]);
    assert_eq!(other.found, 0);
    let (checked, _) = k.record(&["--regime", "checked"]);
    assert_eq!(checked.found, 0);
    let (checked, _) = k.record(&["--regime", "checked"]);
    assert!(checked.found > 500, "{checked:?}");
    assert_eq!(k.files().len(), 3);
    let (quiet, _) = k.record(&[]);
    assert!(quiet.made < first.made / 10, "{first:?} {quiet:?}");

    let list = k.scene.run(&mut k.command(&["cache", "--json"]));
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    assert_eq!(list["files"].as_array().unwrap().len(), 3, "{list}");
    assert!(
        list["files"][0]["program"].as_str().unwrap().contains("sh"),
        "{list}"
    );
    let done = k.scene.run(&mut k.command(&["cache", "--clear"]));
    assert!(done.text().starts_with("deleted: "), "{}", done.text());
    assert!(k.files().is_empty());
}

#[test]
fn damaged_files_do_no_harm() {
    let k = Kept::new();
    k.record(&[]);
    let file = k.file();
    let whole = fs::read(&file).unwrap();
    let third = whole.len() / 3;
    let mut holed = whole.clone();
    for at in (third..2 * third).step_by(97) {
        holed[at] ^= 0x55;
    }
    for bad in [&whole[..third], &whole[..20], b"", &[0xff; 100_000]] {
        fs::write(&file, bad).unwrap();
        let (blocks, done) = k.record(&[]);
        assert_eq!(blocks.found, 0);
        assert_eq!(done.messages(), "");
        let again = fs::metadata(&file).unwrap().len();
        assert!(again > whole.len() as u64 / 2, "{again}");
    }
    fs::write(&file, holed).unwrap();
    let (blocks, _) = k.record(&[]);
    assert!(blocks.made > 100, "{blocks:?}");
}

#[test]
fn what_others_could_have_written_is_refused() {
    let k = Kept::new();
    k.record(&[]);
    let (folder, file) = (k.folder(), k.file());
    let chmod = |p: &Path, mode| fs::set_permissions(p, Permissions::from_mode(mode)).unwrap();
    let refused = || {
        let (blocks, done) = k.record(&[]);
        assert_eq!(blocks.found, 0);
        let message = done.messages();
        assert!(message.contains("cannot keep translated code"), "{message}");
    };
    chmod(&file, 0o620);
    refused();
    chmod(&file, 0o600);
    let other = k.scene.path("other");
    fs::hard_link(&file, &other).unwrap();
    refused();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&other, &file).unwrap();
    refused();
    fs::rename(&other, &file).unwrap();
    chmod(&folder, 0o770);
    refused();
    chmod(&folder, 0o700);
    assert!(k.record(&[]).0.found > 0);
    // SAFETY: touches no memory.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(&file, Some(1), None).unwrap();
        refused();
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        std::os::unix::fs::chown(&folder, Some(1), None).unwrap();
        refused();
        std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
    }
    let moved = k.cache.join("moved");
    fs::rename(&folder, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &folder).unwrap();
    refused();
}

#[test]
fn nothing_is_kept_without_a_place_for_it() {
    let scene = Scene::new();
    let trace = scene.path("trace.hst");
    let home = scene.path("home");
    // Neither variable is set; then a relative path, a folder that cannot be made, a home that does not exist.
    for value in [
        None,
        Some(("XDG_CACHE_HOME", "relative")),
        Some(("XDG_CACHE_HOME", "/proc/nowhere")),
        Some(("HOME", home.to_str().unwrap())),
    ] {
        let mut c = scene.recording(&trace, &PROGRAM);
        if let Some((name, value)) = value {
            c.env(name, value);
        }
        let done = scene.run(&mut c);
        assert_eq!(
            (done.text(), done.messages()),
            ("/\n42\n".into(), "".into())
        );
        assert_eq!(scene.info(&trace)["blocks_found"], 0);
    }
    assert!(!scene.path("relative").exists() && !home.exists());
}

#[test]
fn recordings_at_once_and_a_cache_that_vanishes() {
    let k = Kept::new();
    let script = "for i in 1 2 3; do ls -d / | cat; sleep 0.2; done; grep -c . /etc/passwd";
    let start = |name: &str| {
        let trace = k.scene.path(name);
        let mut c = k.command(&["record", "--quiet", "-o"]);
        c.arg(&trace).args(["--", "/bin/sh", "-c", script]);
        (k.scene.start(&mut c), trace)
    };
    let together = [start("a.hst"), start("b.hst")];
    for (running, trace) in together {
        let done = running.finish();
        assert!(done.status.success(), "{}", done.messages());
        k.blocks(&trace);
    }
    k.file();
    let (running, trace) = start("c.hst");
    // By then it has used what was kept.
    running.first_line();
    fs::remove_dir_all(&k.cache).unwrap();
    assert!(running.finish().status.success());
    assert!(k.blocks(&trace).found > 500);
    assert!(k.files().is_empty());
}

#[test]
fn a_program_that_gives_up_rights_leaves_nothing() {
    let k = Kept::new();
    let trace = k.scene.path("trace.hst");
    let mut c = k.command(&["record", "--quiet", "-o"]);
    c.arg(&trace)
        .args(["--", "/usr/bin/setpriv", "--no-new-privs", "/bin/true"]);
    let done = k.scene.run(&mut c);
    assert!(done.status.success(), "{}", done.messages());
    assert!(k.blocks(&trace).made > 100);
    assert!(k.files().is_empty());
}
