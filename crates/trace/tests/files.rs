//! Content that the traces of a folder share.

use hindsight_trace::files::{self, Files, State, Swept};
use hindsight_trace::{Error, Header, ModuleHash, Summary, Text, Trace, Writer, export};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A content that does not compress.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed | 1;
    let next = |_| {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (x >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// Makes a trace in `store` that uses these contents.
fn record(store: &Path, name: &str, contents: &[&[u8]]) -> (PathBuf, Summary) {
    let path = store.join(name);
    let mut w = Writer::new(File::create(&path).unwrap(), &Header::default()).unwrap();
    w.share(Files::open(store).unwrap());
    for (i, c) in contents.iter().enumerate() {
        let file = format!("/lib/{i}");
        assert_eq!(
            w.module(Text::from(file.as_str()), c).unwrap(),
            ModuleHash::of(c)
        );
    }
    let (_, summary) = w.finish(Summary::default()).unwrap();
    (path, summary)
}

fn object(store: &Path, content: &[u8]) -> PathBuf {
    store
        .join("files")
        .join(ModuleHash::of(content).to_string())
}

fn sweep(store: &Path, unused: Duration) -> Result<Option<Swept>, Error> {
    let list = || {
        let all = fs::read_dir(store)?.map(|e| Ok(e?.path()));
        let all: std::io::Result<Vec<PathBuf>> = all.collect();
        Ok(all?
            .into_iter()
            .filter(|p| p.extension().is_some())
            .collect())
    };
    files::sweep(store, list, unused, Duration::from_millis(20))
}

fn check(path: &Path, contents: &[&[u8]]) {
    let t = Trace::open(path).unwrap();
    assert_eq!(t.modules().len(), contents.len());
    for (i, c) in contents.iter().enumerate() {
        assert_eq!(t.module_bytes(t.modules()[i].hash).unwrap(), *c);
        let (at, len) = (c.len() as u64 / 2, 5000);
        let mut part = c[at as usize..].to_vec();
        part.resize(len.max(part.len()), 0);
        assert_eq!(t.module_part(i as u32, at, len).unwrap(), part[..len]);
    }
}

#[test]
fn what_recordings_share_is_there_once() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b, empty) = (content(1, 3 << 20), content(2, 70_001), Vec::new());
    let (first, s) = record(dir.path(), "1.hst", &[&a, &b, &a, &empty]);
    let made = fs::metadata(object(dir.path(), &a))
        .unwrap()
        .modified()
        .unwrap();
    let (second, t) = record(dir.path(), "2.hst", &[&b, &a]);
    check(&first, &[&a, &b, &a, &empty]);
    check(&second, &[&b, &a]);
    let used = fs::metadata(object(dir.path(), &a))
        .unwrap()
        .modified()
        .unwrap();
    assert!(used > made, "it is said when a file was used");
    assert!(s.module_bytes < 2000 && t.module_bytes < 1000, "{s:?}");
    let sizes: u64 = [&a, &b]
        .map(|c| fs::metadata(object(dir.path(), c)).unwrap().len())
        .iter()
        .sum();
    assert_eq!(t.shared_bytes, sizes);
    assert_eq!(Trace::open(&second).unwrap().shared_bytes().unwrap(), sizes);
    assert_eq!(files::total(dir.path()).0, 3);
    // Also through a link.
    let other = tempfile::tempdir().unwrap();
    let link = other.path().join("link.hst");
    std::os::unix::fs::symlink(&second, &link).unwrap();
    check(&link, &[&b, &a]);
    // An exported trace does not need the folder.
    let alone = other.path().join("alone.hst");
    let n = export(&first, File::create(&alone).unwrap()).unwrap();
    assert_eq!(n, fs::metadata(&alone).unwrap().len());
    check(&alone, &[&a, &b, &a, &empty]);
    let s = Trace::open(&alone).unwrap().summary().unwrap().clone();
    assert_eq!(s.shared_bytes, 0);
    assert!(s.module_bytes > a.len() as u64 && s.trace_bytes < n);
}

#[test]
fn what_nobody_uses_goes() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(sweep(dir.path(), Duration::ZERO).unwrap(), None);
    let (a, b) = (content(1, 50_000), content(2, 60_000));
    record(dir.path(), "1.hst", &[&a]);
    let (two, _) = record(dir.path(), "2.hst", &[&a, &b]);
    let none = Some(Swept::default());
    assert_eq!(sweep(dir.path(), Duration::ZERO).unwrap(), none);
    fs::remove_file(two).unwrap();
    // The next recording may use it, so it stays.
    assert_eq!(sweep(dir.path(), Duration::from_secs(60)).unwrap(), none);
    // Another recording is referring to files at this moment.
    let lock = File::open(dir.path().join("files/lock")).unwrap();
    lock.lock_shared().unwrap();
    assert_eq!(sweep(dir.path(), Duration::ZERO).unwrap(), None);
    lock.unlock().unwrap();
    // A trace that cannot be read: nobody knows what it needs.
    let other = dir.path().join("other.hst");
    for version in [&b"\xff"[..], b"\x05"] {
        fs::write(&other, [b"HSTRACE", version, &[0; 100]].concat()).unwrap();
        assert!(matches!(
            sweep(dir.path(), Duration::ZERO),
            Err(Error::Version { .. })
        ));
    }
    fs::remove_file(other).unwrap();
    assert!(object(dir.path(), &b).exists());
    let size = fs::metadata(object(dir.path(), &b)).unwrap().len();
    let gone = Swept {
        files: 1,
        bytes: size,
    };
    assert_eq!(sweep(dir.path(), Duration::ZERO).unwrap(), Some(gone));
    assert!(!object(dir.path(), &b).exists());
    check(&dir.path().join("1.hst"), &[&a]);
}

#[test]
fn a_recording_that_goes_on_keeps_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let a = content(1, 50_000);
    let path = dir.path().join("1.hst");
    let mut w = Writer::new(File::create(&path).unwrap(), &Header::default()).unwrap();
    w.share(Files::open(dir.path()).unwrap());
    w.module(Text::from("/a"), &a).unwrap();
    // The trace ends with the beginning of a chunk that is being written.
    fs::OpenOptions::new().append(true).open(&path).unwrap();
    assert_eq!(
        sweep(dir.path(), Duration::ZERO).unwrap(),
        Some(Swept::default())
    );
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"HSTRACE");
    fs::write(dir.path().join("2.hst"), bytes).unwrap();
    drop(w);
    fs::remove_file(&path).unwrap();
    assert_eq!(
        sweep(dir.path(), Duration::ZERO).unwrap(),
        Some(Swept::default())
    );
    check(&dir.path().join("2.hst"), &[&a]);
}

#[test]
fn a_file_that_is_missing_or_damaged_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (content(1, 2 << 20), content(2, 60_000));
    let (path, _) = record(dir.path(), "1.hst", &[&a, &b]);
    let (of_a, of_b) = (object(dir.path(), &a), object(dir.path(), &b));
    let good = fs::read(&of_a).unwrap();
    let say = |what: &str| {
        let t = Trace::open(&path).unwrap();
        for e in [
            t.module_part(0, 1 << 20, 100).unwrap_err(),
            t.module_bytes(ModuleHash::of(&a)).unwrap_err(),
            export(&path, Vec::new()).unwrap_err(),
        ] {
            let e = e.to_string();
            assert!(
                e.contains(&of_a.display().to_string()) && e.contains("/lib/0"),
                "{e}"
            );
            assert!(e.contains(what), "{e} and not {what}");
        }
        assert_eq!(t.module_bytes(ModuleHash::of(&b)).unwrap(), b);
    };
    fs::remove_file(&of_a).unwrap();
    say("missing");
    fs::copy(&of_b, &of_a).unwrap();
    say("not whole");
    fs::write(&of_a, &good[..good.len() - 1]).unwrap();
    say("not whole");
    fs::write(&of_a, b"").unwrap();
    say("not whole");
    let mut bad = good.clone();
    let last = bad.len() - 100;
    bad[last] ^= 1;
    fs::write(&of_a, &bad).unwrap();
    say("");
    // Half a file, as a loss of power leaves it, is not used. It is made anew.
    fs::write(&of_a, &good[..good.len() / 2]).unwrap();
    let (again, _) = record(dir.path(), "2.hst", &[&a]);
    check(&again, &[&a]);
    check(&path, &[&a, &b]);
}

#[test]
fn where_nothing_can_be_shared_the_trace_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let a = content(1, 50_000);
    let path = dir.path().join("1.hst");
    let mut w = Writer::new(File::create(&path).unwrap(), &Header::default()).unwrap();
    w.share(Files::open(dir.path()).unwrap());
    // The folder is missing, so nothing can be shared. For root, only this stops sharing.
    fs::remove_dir_all(dir.path().join("files")).unwrap();
    w.module(Text::from("/a"), &a).unwrap();
    w.module(Text::from("/b"), &a).unwrap();
    let (_, s) = w.finish(Summary::default()).unwrap();
    assert!(s.module_bytes > 50_000 && s.shared_bytes == 0);
    check(&path, &[&a, &a]);
    // The process that deletes takes too long.
    let files = Files::open(dir.path()).unwrap();
    let lock = File::open(dir.path().join("files/lock")).unwrap();
    lock.lock().unwrap();
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    w.share(files);
    w.module(Text::from("/a"), &a).unwrap();
    let bytes = w.finish(Summary::default()).unwrap().0;
    let t = Trace::from_bytes(bytes).unwrap();
    assert_eq!(t.module_bytes(ModuleHash::of(&a)).unwrap(), a);
}

#[test]
fn many_at_once_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<_> = (0..4).map(|i| content(i, 100_000)).collect();
    std::thread::scope(|s| {
        for n in 0..4 {
            let (dir, all) = (dir.path(), &all);
            s.spawn(move || {
                for round in 0..20 {
                    let used: Vec<&[u8]> = (0..4).map(|i| &all[(n + i + round) % 4][..]).collect();
                    let (path, _) = record(dir, &format!("{n}.hst"), &used[..1 + round % 4]);
                    check(&path, &used[..1 + round % 4]);
                    fs::remove_file(path).unwrap();
                }
            });
        }
        for _ in 0..30 {
            sweep(dir.path(), Duration::ZERO).unwrap();
            std::thread::sleep(Duration::from_millis(3));
        }
    });
    sweep(dir.path(), Duration::ZERO).unwrap();
    assert_eq!(files::total(dir.path()), (0, 0));
    let left = fs::read_dir(dir.path().join("files")).unwrap().count();
    assert_eq!(left, 1, "nothing but the lock");
}

#[test]
fn files_are_known_by_their_state_once_that_has_settled() {
    let dir = tempfile::tempdir().unwrap();
    let a = content(1, 50_000);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    let old = State {
        device: 1,
        inode: 2,
        size: a.len() as u64,
        modified: now,
        changed: now - 7200 * 1_000_000_000,
    };
    let writer = |name: &str| {
        let file = File::create(dir.path().join(name)).unwrap();
        let mut w = Writer::new(file, &Header::default()).unwrap();
        w.share(Files::open(dir.path()).unwrap());
        w
    };
    let known = |s: &State| {
        let mut w = writer("2.hst");
        let known = w.known_module(Text::from("/a"), s).unwrap();
        w.finish(Summary::default()).unwrap();
        known
    };
    for (state, settled) in [
        (
            State {
                changed: now,
                ..old
            },
            false,
        ),
        (old, true),
    ] {
        let mut w = writer("1.hst");
        let hash = w.module(Text::from("/a"), &a).unwrap();
        w.note_module(&state, hash);
        w.finish(Summary::default()).unwrap();
        assert_eq!(known(&state), settled.then(|| (hash, files::pages(&a))));
    }
    check(&dir.path().join("2.hst"), &[&a]);
    for other in [
        State { inode: 3, ..old },
        State { size: 1, ..old },
        State { modified: 1, ..old },
        State { changed: 1, ..old },
    ] {
        assert_eq!(known(&other), None);
    }
    // A file that is not whole is not known.
    let object = object(dir.path(), &a);
    let good = fs::read(&object).unwrap();
    fs::write(&object, &good[..good.len() - 9]).unwrap();
    assert_eq!(known(&old), None);
    fs::remove_file(&object).unwrap();
    assert_eq!(known(&old), None);
    sweep(dir.path(), Duration::ZERO).unwrap();
    let notes = fs::read_dir(dir.path().join("files")).unwrap();
    assert_eq!(notes.count(), 1, "a note goes with its file");
}

#[test]
fn what_is_damaged_comes_from_the_machine_if_it_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (a, path) = (content(1, 3 << 20), dir.path().join("1.hst"));
    let here = dir.path().join("program");
    fs::write(&here, &a).unwrap();
    for shared in [false, true] {
        let mut w = Writer::new(File::create(&path).unwrap(), &Header::default()).unwrap();
        if shared {
            w.share(Files::open(dir.path()).unwrap());
        }
        w.module(Text::from(here.to_str().unwrap()), &a).unwrap();
        w.finish(Summary::default()).unwrap();
        check(&path, &[&a]);
        let damaged = if shared {
            object(dir.path(), &a)
        } else {
            path.clone()
        };
        let mut bytes = fs::read(&damaged).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        fs::write(&damaged, bytes).unwrap();
        check(&path, &[&a]);
        let t = Trace::open(&path).unwrap();
        assert!(t.modules_from_machine().is_empty());
        t.module_bytes(ModuleHash::of(&a)).unwrap();
        assert_eq!(t.module_part(0, a.len() as u64 + 9, 4).unwrap(), [0; 4]);
        let (of, why) = &t.modules_from_machine()[0];
        assert!(of.to_string() == here.to_str().unwrap() && why.contains("damaged"));
        // A file of the same size with another content.
        let mut other = a.clone();
        other[7] ^= 1;
        fs::write(&here, &other).unwrap();
        let t = Trace::open(&path).unwrap();
        t.module_bytes(ModuleHash::of(&a)).unwrap_err();
        fs::remove_file(&here).unwrap();
        let t = Trace::open(&path).unwrap();
        t.module_part(0, 0, a.len()).unwrap_err();
        fs::write(&here, &a).unwrap();
    }
}

/// A trace that has all itself takes what is packed already, unless that is damaged.
#[test]
fn a_trace_of_its_own_copies_what_is_packed() {
    let (store, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(Files::existing(store.path()).is_none());
    let (a, b) = (content(1, 3_000_000), content(2, 70_000));
    record(store.path(), "1.hst", &[&a]);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let state = State {
        device: 1,
        inode: 2,
        size: a.len() as u64,
        modified: 3,
        changed: now.unwrap().as_nanos() as u64 - 7200 * 1_000_000_000,
    };
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    w.share(Files::open(store.path()).unwrap());
    let hash = w.module(Text::from("/a"), &a).unwrap();
    w.note_module(&state, hash);
    let object = object(store.path(), &a);
    let good = fs::read(&object).unwrap();
    // Bytes of the last piece: nothing else in the file is worth copying then.
    let mut bad = good.clone();
    let last = bad.len() - 5;
    bad[last] ^= 1;
    for (held, copied) in [(&good, true), (&bad, false)] {
        fs::write(&object, held).unwrap();
        let path = dir.path().join("own.hst");
        let mut w = Writer::new(File::create(&path).unwrap(), &Header::default()).unwrap();
        w.copy_from(Files::existing(store.path()).unwrap());
        let known = w.known_module(Text::from("/lib/0"), &state).unwrap();
        assert_eq!(known, copied.then(|| (hash, files::pages(&a))));
        if known.is_none() {
            assert_eq!(w.module(Text::from("/lib/0"), &a).unwrap(), hash);
        }
        w.module(Text::from("/lib/1"), &b).unwrap();
        // It is in the trace by now.
        let known = w.known_module(Text::from("/lib/2"), &state).unwrap();
        assert!(known.is_some());
        let (_, summary) = w.finish(Summary::default()).unwrap();
        assert_eq!(summary.shared_bytes, 0);
        assert!(summary.module_bytes < 3_200_000, "it is there once");
        assert!(fs::metadata(&path).unwrap().len() > 3_000_000);
        check(&path, &[&a, &b, &a]);
    }
    // The content is found by itself, too.
    fs::write(&object, &good).unwrap();
    let path = dir.path().join("own.hst");
    let mut w = Writer::new(File::create(&path).unwrap(), &Header::default()).unwrap();
    w.copy_from(Files::existing(store.path()).unwrap());
    w.module(Text::from("/lib/0"), &a).unwrap();
    w.finish(Summary::default()).unwrap();
    check(&path, &[&a]);
}
