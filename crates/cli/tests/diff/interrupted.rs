//! A comparison that takes long can be ended.

use super::record;
use hindsight_lab::Scene;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

#[test]
fn an_interrupt_ends_it_at_once() {
    let s = Scene::new();
    let work = "BEGIN { for (i = 0; i < 2000000; i++) s += i; print s }";
    let trace = record(&s, "1.hst", &["awk", work]);
    let mut command = s.hindsight(&["diff", "--exact"]);
    let running = s.start(command.arg(&trace).arg(&trace));
    // The comparison takes half a minute.
    std::thread::sleep(Duration::from_millis(700));
    assert!(running.is_running());
    let asked = Instant::now();
    running.signal_group(libc::SIGINT);
    let done = running.finish();
    assert_eq!(
        done.status.signal(),
        Some(libc::SIGINT),
        "{}",
        done.messages()
    );
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
}
