//! A program that makes any system call with any arguments changes nothing.

use hindsight_lab::Scene;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// A process of somebody else.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Numbers of system calls are smaller.
const NUMBERS: u64 = 470;

/// `HINDSIGHT_FUZZ_SECONDS` is how long this tries, and `HINDSIGHT_FUZZ_SEED` where it begins.
#[test]
fn no_system_call_reaches_anything_outside() {
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |s| s.parse().expect(name));
    let seconds = number("HINDSIGHT_FUZZ_SECONDS", 5);
    let seed = number("HINDSIGHT_FUZZ_SEED", 1);
    let s = Scene::new();
    let program = s.compile("rerun/any.c", &["-w"]);
    fs::write(s.path("victim"), "kept").unwrap();
    let (_, trace) = s.record(&["sh", "-c", "exit 3"]);
    let mut victim = Victim(s.command("sleep").arg("1000").spawn().unwrap());
    let id = victim.0.id().to_string();
    let files = || {
        let all = fs::read_dir(s.path(".")).unwrap().map(|e| {
            let e = e.unwrap();
            let m = e.metadata().unwrap();
            (
                e.file_name(),
                m.permissions(),
                m.len(),
                m.modified().unwrap(),
            )
        });
        // What a test's program prints is kept there, too.
        let is_own = |n: &str| [".out", ".err", ".hsx"].iter().any(|e| n.ends_with(e));
        let mut all: Vec<_> = all
            .filter(|f| !is_own(&f.0.to_string_lossy()))
            .map(|f| format!("{f:?}"))
            .collect();
        all.sort();
        all
    };
    let before = files();
    let begin = Instant::now();
    let mut ended = 0;
    // Each number comes once in a while.
    for n in seed.. {
        if begin.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        let (call, seed) = ((n * 7) % NUMBERS, n.to_string());
        let mut command = s.hindsight(&["rerun", "--quiet"]);
        command.arg(&trace).arg(&program);
        let done = s.run(command.args([&call.to_string(), &id, &seed]));
        let said = format!("call {call}, seed {seed}: {}", done.messages());
        assert!(done.status.code().is_some_and(|c| c <= 5), "{said}");
        assert!(
            !said.contains("panicked") && !said.contains("may not be made"),
            "{said}"
        );
        ended += u32::from(done.status.code() == Some(0));
        assert_eq!(files(), before, "{said}");
        assert!(victim.0.try_wait().unwrap().is_none(), "{said}");
    }
    // Many calls are refused, and others are not.
    assert!(ended > 0);
}
