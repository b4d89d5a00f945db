//! What one session builds for a question, the next one finds, whatever happens to the file meanwhile.

use crate::index::answer;
use hindsight_lab::Scene;
use hindsight_timeline::{
    Call, Cancel, Dense, Depth, Filter, INDEX_CONSTANT, Options, ThreadId, Timeline, index_path,
};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn open(trace: &Path) -> Timeline {
    let options = Options {
        interval: 3000,
        ..Options::default()
    };
    Timeline::open(trace, options).unwrap()
}

fn record(s: &Scene, name: &str, rounds: &str) -> PathBuf {
    let program = s.compile("travel.c", &["-O2", "-static"]);
    let trace = s.path(name);
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), rounds.as_ref()]));
    assert!(run.status.success(), "{}", run.messages());
    trace
}

/// The calls of the function in which the program begins.
fn calls(t: &Timeline) -> Vec<Call> {
    let mut c = t.cursor().unwrap();
    c.seek_count(ThreadId(t.trace().threads()[0]), 0).unwrap();
    let entry = c.registers().unwrap().rip;
    t.calls(entry, &Filter::default(), &Cancel::new()).unwrap()
}

#[test]
fn several_sessions_save_what_they_build() {
    let s = Scene::new();
    let trace = record(&s, "t.hst", "20");
    let silent = crate::open(&trace, 3000);
    let (want, want_calls) = (answer(&silent), calls(&silent));
    let index = index_path(&trace);
    assert!(!index.exists(), "nothing was to be saved");
    // No session finds an index, and each builds and saves one.
    let all: Vec<Timeline> = (0..4).map(|_| open(&trace)).collect();
    std::thread::scope(|s| {
        for t in &all {
            s.spawn(|| {
                assert_eq!(answer(t), want);
                assert_eq!(calls(t), want_calls);
            });
        }
    });
    let t = open(&trace);
    let status = t.index_status();
    assert_eq!((status.present, status.problem), (status.parts, None));
    assert_eq!(answer(&t), want);
    assert_eq!(calls(&t), want_calls);
    // There is one record for each part, and one list of calls.
    let good = fs::read(&index).unwrap();
    let records = |bytes: &[u8]| {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let mut at = 32;
        let mut found = Vec::new();
        while at < bytes.len() {
            found.push((word(at), word(at + 8)));
            at += 40 + word(at + 16);
        }
        found.sort_unstable();
        found
    };
    let whole = records(&good);
    assert_eq!(whole.len(), status.parts + 1);
    // Cut anywhere. What comes before is used. The rest is made again and saved, by several sessions at once.
    let cuts = (0..12).map(|i| good.len() * i / 12);
    for cut in cuts.chain([31, 32, 33, 72, good.len() - 1]) {
        fs::write(&index, &good[..cut]).unwrap();
        let before: Vec<Timeline> = (0..2).map(|_| open(&trace)).collect();
        std::thread::scope(|s| {
            for t in &before {
                s.spawn(|| {
                    assert_eq!(answer(t), want, "cut at {cut}");
                    assert_eq!(calls(t), want_calls, "cut at {cut}");
                });
            }
        });
        let status = open(&trace).index_status();
        assert_eq!(
            (status.present, status.problem),
            (status.parts, None),
            "cut at {cut}"
        );
        assert_eq!(records(&fs::read(&index).unwrap()), whole, "cut at {cut}");
    }
    // A session had the file open when it was cut, or replaced by that of another recording.
    let other = record(&s, "u.hst", "21");
    open(&other)
        .build_index(Depth::Full, &|_, _| {}, &Default::default())
        .unwrap();
    let foreign = fs::read(index_path(&other)).unwrap();
    for bad in [&good[..good.len() / 3], &good[..20], &foreign] {
        fs::write(&index, &good).unwrap();
        let t = open(&trace);
        fs::write(&index, bad).unwrap();
        assert_eq!(answer(&t), want);
        assert_eq!(calls(&t), want_calls);
        assert_eq!(answer(&open(&trace)), want);
        assert_eq!(open(&trace).index_status().present, status.parts);
    }
}

#[test]
fn processes_side_by_side_have_the_same_answers() {
    let s = Scene::new();
    let trace = record(&s, "t.hst", "20");
    let t = crate::open(&trace, 0);
    let mut c = t.cursor().unwrap();
    c.seek(t.range().unwrap().1).unwrap();
    let rsp = c.registers().unwrap().gpr[4].to_string();
    let file = trace.to_str().unwrap();
    let questions: [&[&str]; 3] = [
        &["writes", file, &rsp, "8", "--json"],
        &["mem", file, "50%", &rsp, "64", "--json"],
        &["index", file, "--range", "40%..60%", "--interval", "2000"],
    ];
    let alone = questions[..2]
        .iter()
        .map(|q| s.run(&mut s.hindsight(q)).text());
    let alone: Vec<String> = alone.collect();
    for round in 0..4 {
        let _ = fs::remove_file(index_path(&trace));
        let running: Vec<_> = (0..9)
            .map(|i| {
                let mut command = s.hindsight(questions[i % 3]);
                command.stdout(std::process::Stdio::piped());
                (i % 3, command.spawn().unwrap())
            })
            .collect();
        for (question, child) in running {
            let done = child.wait_with_output().unwrap();
            assert!(
                done.status.success(),
                "round {round}: {:?}",
                questions[question]
            );
            if let Some(want) = alone.get(question) {
                assert_eq!(
                    *want,
                    String::from_utf8_lossy(&done.stdout),
                    "round {round}"
                );
            }
        }
        let t = Timeline::open(&trace, Options::default()).unwrap();
        let status = t.index_status();
        assert_eq!((status.present, status.problem), (status.parts, None));
        // A denser index is not given up for another one.
        let (from, to) = (
            t.find("45%".parse().unwrap(), None),
            t.find("55%".parse().unwrap(), None),
        );
        let made = t.interest(
            Dense {
                from: from.unwrap(),
                until: to.unwrap(),
                interval: 2000,
            },
            &|_, _| (),
            &Cancel::new(),
        );
        assert_eq!(made.unwrap(), 0, "round {round}");
    }
}

#[test]
fn where_nothing_can_be_saved_questions_are_answered() {
    let s = Scene::new();
    let trace = record(&s, "t.hst", "10");
    let want = answer(&crate::open(&trace, 3000));
    let index = index_path(&trace);
    // A full disk.
    symlink("/dev/full", &index).unwrap();
    assert_eq!(answer(&open(&trace)), want);
    fs::remove_file(&index).unwrap();
    // Something else with this name stays.
    fs::write(&index, "something of the user's").unwrap();
    assert_eq!(answer(&open(&trace)), want);
    assert_eq!(fs::read(&index).unwrap(), b"something of the user's");
    fs::remove_file(&index).unwrap();
    fs::create_dir(&index).unwrap();
    assert_eq!(answer(&open(&trace)), want);
    fs::remove_dir(&index).unwrap();
    // A folder that cannot be written. root can write it all the same.
    let folder = trace.parent().unwrap();
    let before = fs::metadata(folder).unwrap().permissions();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).unwrap();
    let answered = answer(&open(&trace));
    fs::set_permissions(folder, before).unwrap();
    assert_eq!(answered, want);
    let _ = fs::remove_file(&index);
    // Another process writes, and does not end.
    let held = fs::File::create(&index).unwrap();
    held.lock().unwrap();
    assert_eq!(answer(&open(&trace)), want);
    assert_eq!(held.metadata().unwrap().len(), 0);
    drop(held);
    assert_eq!(answer(&open(&trace)), want);
    assert_eq!(open(&trace).index_status().present, 1);
}

#[test]
fn what_is_superseded_does_not_fill_the_file() {
    let s = Scene::new();
    let trace = record(&s, "t.hst", "40");
    let t = open(&trace);
    let want = answer(&t);
    let size = || fs::metadata(index_path(&trace)).unwrap().len();
    let mut last = size();
    for i in 0..8 {
        let place = |n: u64| {
            t.find(format!("{}%", 10 * i + n).parse().unwrap(), None)
                .unwrap()
        };
        let made = t.interest(
            Dense {
                from: place(0),
                until: place(10),
                interval: 1100,
            },
            &|_, _| (),
            &Cancel::new(),
        );
        assert_eq!(made.unwrap(), 1);
        let u = open(&trace);
        assert_eq!(
            (u.index_status().present, u.index_status().problem),
            (1, None)
        );
        assert_eq!(answer(&u), want);
        // Never more than twice what is used, plus the last file that was replaced.
        assert!(
            size() <= 3 * last.max(size() / 2),
            "{i}: {} after {last}",
            size()
        );
        last = size();
    }
    let used = {
        fs::remove_file(index_path(&trace)).unwrap();
        let u = open(&trace);
        let place = |n: &str| u.find(n.parse().unwrap(), None).unwrap();
        u.interest(
            Dense {
                from: place("0%"),
                until: place("80%"),
                interval: 1100,
            },
            &|_, _| (),
            &Cancel::new(),
        )
        .unwrap();
        size()
    };
    assert!(last < 3 * used, "{last} for {used}");
    assert!(last <= 2 * fs::metadata(&trace).unwrap().len() + INDEX_CONSTANT);
    // A session that had the file open before it was replaced goes on.
    assert_eq!(answer(&t), want);
}

#[test]
fn what_has_no_room_is_told_and_costs_no_answer() {
    let s = Scene::new();
    let trace = record(&s, "t.hst", "20");
    let want = answer(&crate::open(&trace, 3000));
    let index = index_path(&trace);
    let tight = || {
        let options = Options {
            interval: 3000,
            index_size: 4096,
            ..Options::default()
        };
        Timeline::open(&trace, options).unwrap()
    };
    let t = tight();
    let built = t.build_index(Depth::Full, &|_, _| {}, &Cancel::new());
    let built = built.unwrap();
    assert_eq!((built.present, built.parts), (0, 1));
    let problem = built.problem.unwrap();
    assert!(problem.contains("no room for a part of"), "{problem}");
    assert_eq!(answer(&t), want);
    // A question that makes it for itself says nothing.
    let t = tight();
    assert_eq!(answer(&t), want);
    assert_eq!(t.index_status().problem, None);
    assert!(!index.exists(), "a file for nothing");
    // Beside an index that has other things, nothing of those is lost.
    let calls = calls(&open(&trace));
    fs::remove_file(&index).unwrap();
    let t = Timeline::open(
        &trace,
        Options {
            index_size: 4096,
            ..Options::default()
        },
    );
    assert_eq!(self::calls(&t.unwrap()), calls);
    let before = fs::read(&index).unwrap();
    tight()
        .build_index(Depth::Full, &|_, _| {}, &Cancel::new())
        .unwrap();
    assert_eq!(fs::read(&index).unwrap(), before);
    assert_eq!(answer(&open(&trace)), want);
    assert_eq!(open(&trace).index_status().present, 1);
}

/// Whoever builds the index writes intervals to files, and reads them from there where they are joined. A question about so small
/// a program has them in memory.
#[test]
fn intervals_that_wait_in_files_are_joined_as_those_in_memory() {
    let s = Scene::new();
    let trace = record(&s, "t.hst", "40");
    let want = answer(&crate::open(&trace, 0));
    let index = index_path(&trace);
    let with = |index_size| {
        let options = Options {
            interval: 1000,
            index_size,
            jobs: 1,
            ..Options::default()
        };
        Timeline::open(&trace, options).unwrap()
    };
    let build = |t: &Timeline| {
        let built = t.build_index(Depth::Full, &|_, _| {}, &Cancel::new());
        assert_eq!(built.unwrap().present, 1);
        fs::read(&index).unwrap()
    };
    let whole = build(&with(0)).len() as u64;
    for most in [whole, whole * 2 / 3, whole / 3] {
        fs::remove_file(&index).unwrap();
        let built = build(&with(most));
        let joined = (built.len() as u64) < whole * 9 / 10;
        assert!(joined, "{most}: {} of {whole}", built.len());
        fs::remove_file(&index).unwrap();
        let t = with(most);
        assert_eq!(answer(&t), want, "{most}");
        let asked = fs::read(&index).unwrap();
        assert!(
            asked.starts_with(&built),
            "{most}: {} {}",
            built.len(),
            asked.len()
        );
        assert_eq!(answer(&with(most)), want, "{most}");
    }
}

#[test]
fn damage_is_repaired_and_another_version_left_alone() {
    let s = Scene::new();
    let trace = record(&s, "t.hst", "20");
    let want = answer(&crate::open(&trace, 3000));
    let index = index_path(&trace);
    assert_eq!(answer(&open(&trace)), want);
    let good = fs::read(&index).unwrap();
    let word = |at: usize| u64::from_le_bytes(good[at..at + 8].try_into().unwrap()) as usize;
    // The first record is that of the only part.
    let (sections, end) = (80..80 + word(56) - word(64), 80 + word(56));
    for damaged in [
        sections.clone(),
        sections.end..sections.end + 1,
        end - 1..end,
    ] {
        let mut bad = good.clone();
        bad[damaged.clone()].iter_mut().for_each(|b| *b ^= 1);
        fs::write(&index, &bad).unwrap();
        assert_eq!(answer(&open(&trace)), want, "{damaged:?}");
        let t = open(&trace);
        assert_eq!(t.index_status().problem, None, "{damaged:?}");
        assert_eq!(answer(&t), want, "{damaged:?}");
        // Nothing is left to repair, and nothing is added again.
        assert_eq!(t.index_status().problem, None, "{damaged:?}");
        let repaired = fs::read(&index).unwrap();
        assert_ne!(repaired, bad, "{damaged:?}");
        assert_eq!(answer(&open(&trace)), want);
        assert_eq!(fs::read(&index).unwrap(), repaired, "{damaged:?}");
    }
    let mut bad = good.clone();
    bad[7] ^= 1;
    fs::write(&index, &bad).unwrap();
    let t = open(&trace);
    assert_eq!(answer(&t), want);
    let problem = t.index_status().problem.unwrap();
    assert!(problem.contains("another version"), "{problem}");
    assert_eq!(fs::read(&index).unwrap(), bad, "a question replaced it");
    let made = s.run(&mut s.hindsight(&["index".as_ref(), trace.as_os_str()]));
    assert!(made.status.success(), "{}", made.messages());
    let t = open(&trace);
    assert_eq!(
        (t.index_status().present, t.index_status().problem),
        (1, None)
    );
    assert_eq!(answer(&t), want);
    // The calls that were found stay when the part is made again.
    fs::write(&index, &good).unwrap();
    let want_calls = calls(&open(&trace));
    let mut bad = fs::read(&index).unwrap();
    let more = bad.split_off(end);
    bad[end - 1] ^= 1;
    fs::write(&index, [&bad[..], &more].concat()).unwrap();
    let made = s.run(&mut s.hindsight(&["index".as_ref(), trace.as_os_str()]));
    assert!(made.status.success(), "{}", made.messages());
    assert!(!more.is_empty() && fs::read(&index).unwrap().ends_with(&more));
    let t = open(&trace);
    assert_eq!((calls(&t), answer(&t)), (want_calls, want));
    // The index was made in another file. Only the index is left.
    let there = fs::read_dir(trace.parent().unwrap()).unwrap();
    let names = there.map(|e| e.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|n| n.starts_with("t.hs")).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}
