//! gdb on a recording that is still being written.

use crate::common::{expect, gdb};
use hindsight_lab::{Running, Scene};
use std::fs::File;
use std::time::{Duration, Instant};

/// Records a program that goes on until the file `stop` is there, and waits until its recording can be opened.
fn begin(s: &Scene) -> Running {
    let program = s.compile("living.c", &["-O0"]);
    let running = s.start(&mut s.recording(&s.path("trace.hst"), &[program]));
    let (ticks, began) = (["calls", "trace.hst", "tick"], Instant::now());
    while !s.run(&mut s.hindsight(&ticks)).text().contains("tick(n=") {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    running
}

const WORD: &str = "[the recording is still being written; ";

#[test]
fn a_session_takes_in_what_comes() {
    let s = Scene::new();
    let running = begin(&s);
    // What happened is in the file after two seconds at the latest, if the machine is not loaded.
    let out = gdb(
        &s,
        &s.path("trace.hst"),
        "break tick\ncontinue\nprint n\nseek end\ninfo threads\nset $then = ticks\nshell touch more\nshell sleep 6\n\
         continue\nstepi\nprint ticks == $then\nrenew\nprint ticks == $then\ncontinue\nprint n >= $then\nseek end\n\
         print ticks > $then + 10\ndelete\nbreak beat\nreverse-continue\nbacktrace\nprint n == beats + 1\nseek end\n\
         info threads\ninfo sharedlibrary\ndelete\nshell touch stop\nshell sleep 6\ncontinue\nrenew\ncontinue\nrenew\n\
         reverse-continue\nwhen\n",
    );
    expect(
        &out,
        &[
            "$1 = 1",
            "* 1 ",
            WORD,
            "No more reverse-execution history",
            WORD,
            "$2 = 1",
            "the recording ends at ",
            "it is still being written",
            "$3 = 1",
            "Breakpoint 1, tick",
            "$4 = 1",
            "$5 = 1",
            "Breakpoint 2, beat",
            " heart ",
            "$6 = 1",
            "(stream 3)",
            "libresolv",
            WORD,
            "; it is complete",
            "[end of the recording of this process: exit status 0]",
            ", as before; it is complete",
            "No more reverse-execution history",
            "0:0 ",
        ],
    );
    let done = running.finish();
    assert_eq!(done.text(), "1\n", "{}", done.messages());
}

#[test]
fn a_recorder_that_was_killed_is_told_when_it_is_asked_for_more() {
    let s = Scene::new();
    let running = begin(&s);
    let collector = hindsight_lab::collector_of(running.id());
    let script = format!("seek end\nshell kill -9 {collector}\nshell sleep 1\nrenew\ncontinue\n");
    let out = gdb(&s, &s.path("trace.hst"), &script);
    let ends = ["; it is unfinished", "; it is cut"];
    assert!(ends.iter().any(|e| out.contains(e)), "{out}");
    assert!(!out.contains(WORD), "{out}");
    File::create(s.path("stop")).unwrap();
}
