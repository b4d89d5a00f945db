//! Processes of several threads go on.

use super::{NONE, call, continues, let_time_pass, resume, resumed};
use hindsight_lab::{Done, Scene};
use std::fs;
use std::path::{Path, PathBuf};

/// Fails unless the process prints the lines that the recorded one printed behind the first `before` ones. Threads print them in
/// any order.
fn continues_in_any_order(recorded: &Done, before: usize, resumed: &Done) {
    let sorted = |text: &str, skip: usize| {
        let mut lines: Vec<String> = text.lines().skip(skip).map(String::from).collect();
        lines.sort();
        lines
    };
    let (all, rest) = (recorded.text(), resumed.text());
    let told = resumed.messages();
    assert_eq!(sorted(&all, before), sorted(&rest, 0), "{told}");
    assert_eq!(
        hindsight_lab::end(recorded.status),
        hindsight_lab::end(resumed.status),
        "{told}"
    );
}

/// Records a program in the locale `C`, and without lazy binding.
fn record(s: &Scene, argv: &[&str]) -> (Done, PathBuf) {
    let trace = s.path("trace.hst");
    let_time_pass();
    let mut record = s.recording(&trace, argv);
    let recorded = s.run(record.env("LC_ALL", "C").env("LD_BIND_NOW", "1"));
    (recorded, trace)
}

/// What each living thread waits for at a place, and the name of the call in which it is.
fn waits(s: &Scene, trace: &Path, place: &str) -> Vec<(String, String)> {
    let mut command = s.hindsight(&["waits", "--json"]);
    let done = s.run(command.arg(trace).arg(place));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let text = |v: &serde_json::Value| v.as_str().unwrap_or("").to_owned();
    let threads = told["threads"].as_array().unwrap().iter();
    let one = |t: &serde_json::Value| (text(&t["waits_for"]["kind"]), text(&t["call"]));
    threads.map(one).collect()
}

/// Four threads wait for each other, each with memory of its own.
#[test]
fn threads_that_wait_for_each_other_go_on() {
    let s = Scene::new();
    let (recorded, trace) = record(&s, &[&resumed(&s), "threads"]);
    let place = call(&s, &trace, "getppid", 0);
    // They wait at this place, and not only where the recording ends.
    let conditions = waits(&s, &trace, &place);
    let futex = (String::from("condition"), String::from("futex"));
    let count = conditions.iter().filter(|w| **w == futex).count();
    assert_eq!(count, 4, "{conditions:?}");
    let done = resume(&s, &trace, &place, &NONE);
    continues_in_any_order(&recorded, 1, &done);
    assert_eq!(done.status.code(), Some(5));
    let told = done.messages();
    assert_eq!(told.matches("begins its call again: futex").count(), 4);
}

/// Threads have names, masks and stacks for signals of their own. Of those that have ended others still get the results, and what
/// a call in progress had not returned comes again.
#[test]
fn what_belongs_to_a_thread_is_its_own() {
    let s = Scene::new();
    let (recorded, trace) = record(&s, &[&resumed(&s), "ended"]);
    let done = resume(&s, &trace, &call(&s, &trace, "getppid", 0), &NONE);
    continues(&recorded, "", &done);
    let lines = "signal 10 on its own stack: 1\nreader read 3, blocks SIGUSR2: 1, SIGTERM: 0\n\
        joined 0: 0 0\njoined 1: 0 10\njoined 2: 0 20\nabc\n";
    assert_eq!(done.text(), lines);
    let told = done.messages();
    assert!(told.contains("begins its call again: read(3"), "{told}");
}

/// No thread executes anything before the debugger lets it go.
#[test]
fn gdb_gets_all_threads() {
    let s = Scene::new();
    let (_, trace) = record(&s, &[&resumed(&s), "threads"]);
    let place = call(&s, &trace, "getppid", 0);
    let input = "handle SIGSTOP nostop noprint nopass\ninfo threads\nthread apply all backtrace\ncontinue\nquit\n";
    fs::write(s.path("commands"), input).unwrap();
    let mut command = s.hindsight(&["resume", "--yes", "--gdb"]);
    command.stdin(fs::File::open(s.path("commands")).unwrap());
    let done = s.run(command.arg(&trace).arg(&place));
    let text = done.text();
    let waiting = text.matches("pthread_cond_wait").count();
    assert!(waiting >= 4, "{text}{}", done.messages());
    assert!(
        text.contains("exited with code 05"),
        "{text}{}",
        done.messages()
    );
}

/// A real program, whose threads wait for work.
#[test]
fn python_goes_on_with_its_threads() {
    let s = Scene::new();
    let script = "import hashlib, os, queue, threading
work, done, lock = queue.Queue(), {}, threading.Lock()
def worker():
    while (x := work.get()) is not None:
        with lock: done[x] = hashlib.md5(str(x).encode()).hexdigest()
all = [threading.Thread(target=worker) for _ in range(2)]
for t in all: t.start()
for i in range(20): work.put(i)
def asleep():
    states = [open(f'/proc/self/task/{t}/stat').read().rsplit(') ')[1][0] for t in os.listdir('/proc/self/task')]
    return states.count('S') == 2 and len(done) == 20
steady = 0
while steady < 4: steady = steady + 1 if asleep() else 0
os.getppid()
for i in range(20, 40): work.put(i)
for t in all: work.put(None)
for t in all: t.join()
print(len(done), hashlib.md5(str(sorted(done.items())).encode()).hexdigest())
";
    fs::write(s.path("work.py"), script).unwrap();
    let (recorded, trace) = record(&s, &["/usr/bin/python3", "work.py"]);
    let done = resume(&s, &trace, &call(&s, &trace, "getppid", 0), &NONE);
    continues(&recorded, "", &done);
}
