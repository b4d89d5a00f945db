//! Somebody changes the index while a session has it open. The session notices, and does without it or makes it again.

use crate::index::answer;
use crate::levels::{answers, build, open, record};
use hindsight_lab::Scene;
use hindsight_random::Rng;
use hindsight_timeline::index_path;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What becomes of an index file of this many bytes. The file stays the same one.
type Harm = (&'static str, fn(&File, u64));

const HARMS: [Harm; 5] = [
    ("cut", |file, len| file.set_len(len / 3).unwrap()),
    ("emptied", |file, _| file.set_len(0).unwrap()),
    ("zeroed", |file, len| {
        file.set_len(0).unwrap();
        file.set_len(len).unwrap();
    }),
    ("garbled", |file, len| {
        let mut random = Rng(29);
        let noise: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        file.write_all_at(&noise, 0).unwrap();
    }),
    // One bit here and there: each section has some.
    ("touched", |file, len| {
        for at in (100..len).step_by(251) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        }
    }),
];

fn harm(index: &Path, harm: fn(&File, u64)) {
    let file = File::options().read(true).write(true).open(index);
    let file = file.unwrap();
    harm(&file, file.metadata().unwrap().len());
}

#[test]
fn what_happens_to_an_index_in_use_changes_no_answer() {
    let s = Scene::new();
    let trace = record(&s, "40");
    let want = answers(&crate::open(&trace, 1000));
    let index = index_path(&trace);
    build(&open(&trace));
    let whole = fs::read(&index).unwrap();
    for (name, how) in HARMS {
        // When some of it is known, and when most of it is.
        for most in [false, true] {
            fs::write(&index, &whole).unwrap();
            let t = open(&trace);
            match most {
                true => assert_eq!(answers(&t), want),
                false => drop(answer(&t)),
            }
            harm(&index, how);
            assert_eq!(answers(&t), want, "{name}, {most}");
        }
        assert_eq!(answers(&open(&trace)), want, "{name}: the next session");
    }
}
