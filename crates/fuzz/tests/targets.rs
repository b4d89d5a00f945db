//! Each target for a moment; `HINDSIGHT_FUZZ_SECONDS` says how long all of them take together, and
//! `HINDSIGHT_FUZZ_SEED` which inputs they get.

use hindsight_difftest::setting;
use hindsight_fuzz::{Budget, TARGETS, run, target};
use std::time::Duration;

/// Inputs of a target that are tried in any case.
const SOME: u64 = 30;

fn fuzz(name: &str) {
    let t = target(name).expect("a target of this name");
    let seed = setting("HINDSIGHT_FUZZ_SEED").unwrap_or(0x5eed);
    let seconds = setting("HINDSIGHT_FUZZ_SECONDS").unwrap_or(5) as f64;
    let share = Duration::from_secs_f64(seconds / TARGETS.len() as f64);
    let folder = tempfile::tempdir().unwrap().keep();
    let file = folder.join(format!("{name}.input"));
    run(t, seed, Budget::Inputs(SOME), &file);
    let done = run(t, seed, Budget::Time(share), &file);
    println!("{name}: {done} inputs");
    // Without a failure nothing is left in it.
    std::fs::remove_dir(folder).unwrap();
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                fuzz(stringify!($name));
            }
        )*

        #[test]
        fn all_targets_are_tested() {
            let tested = [$(stringify!($name)),*];
            for t in TARGETS {
                assert!(tested.contains(&t.name), "{} is not", t.name);
            }
        }
    };
}

targets!(trace header store columns ring cache index module gdb bookmarks packets process code interpreter words);
