//! Events at the borders of segments, between threads, and where signals come.

use crate::open;
use hindsight_lab::Scene;
use hindsight_timeline::{
    Breakpoint, Cancel, Choice, Cursor, Depth, Direction, Filter, Happening, Kind, KindOf, Reason,
    Scope, Stop, Stops, ThreadId, Timeline, Watch,
};
use std::path::PathBuf;

const THREADS: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <unistd.h>
#include <sys/syscall.h>
volatile long hits, done[4];
static void on(int s) { hits++; }
static void *work(void *p) {
    for (long i = 0; i < 40; i++) {
        if (i % 8 == 3) raise(SIGUSR1);
        if (i % 8 == 5) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2);
        sched_yield();
        for (int k = 0; k < 50; k++) done[(long) p]++;
        __sync_fetch_and_add(&hits, 0);
    }
    return 0;
}
int main() {
    signal(SIGUSR1, on); signal(SIGUSR2, on);
    pthread_t t[3];
    for (long i = 0; i < 3; i++) pthread_create(t + i, 0, work, (void *) i);
    work((void *) 3);
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    return 0;
}
"#;

/// Compiles a program and records it.
pub fn record(s: &Scene, source: &str, options: &[&str]) -> PathBuf {
    record_as(s, source, &["-O1"], options)
}

/// The same with options for the compiler.
pub fn record_as(s: &Scene, source: &str, flags: &[&str], options: &[&str]) -> PathBuf {
    let (file, program, trace) = (s.path("p.c"), s.path("p"), s.path("p.hst"));
    std::fs::write(&file, source).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-w", "-static", "-pthread"])
        .args(flags)
        .arg("-o");
    assert!(gcc.arg(&program).arg(&file).status().unwrap().success());
    let mut command = s.hindsight(&["record", "--quiet"]);
    command.args(options).arg("-o").arg(&trace).arg("--");
    let run = s.run(command.arg(&program));
    assert!(run.status.success(), "{}", run.messages());
    trace
}

fn go(c: &mut Cursor, direction: Direction, stops: &mut Stops) -> Stop {
    c.run(direction, Scope::All, stops).unwrap()
}

#[test]
fn all_that_threads_do_is_met_in_order_both_ways() {
    let s = Scene::new();
    let t = open(&record(&s, THREADS, &[]), 2000);
    let filter = Filter {
        kinds: vec![KindOf::Syscall, KindOf::Signal, KindOf::Thread],
        ..Filter::default()
    };
    let mut places = Vec::new();
    for h in t.events(&filter).unwrap() {
        let behind = matches!(h.kind, Kind::Syscall { .. });
        let last = t.thread(h.thread).unwrap().to;
        for count in h.count..=(h.count + behind as u64).min(last) {
            places.push((t.position(h.thread, count).unwrap(), h.thread, count));
        }
    }
    places.sort_unstable();
    places.dedup();
    assert!(places.len() > 500, "{}", places.len());
    let mut stops = Stops {
        signals: Choice::All,
        syscalls: Choice::All,
        threads: true,
        ..Stops::default()
    };
    let mut c = t.cursor().unwrap();
    c.seek(t.range().unwrap().0).unwrap();
    // A stop where the run begins does not count.
    for want in &places[1..] {
        let stop = go(&mut c, Direction::Forward, &mut stops);
        assert_eq!((stop.position, c.thread(), c.count()), *want, "{stop:?}");
    }
    assert_eq!(
        go(&mut c, Direction::Forward, &mut stops).reason,
        Reason::End
    );
    c.seek(places[places.len() - 1].0).unwrap();
    for want in places[..places.len() - 1].iter().rev() {
        let stop = go(&mut c, Direction::Backward, &mut stops);
        assert_eq!((stop.position, c.thread(), c.count()), *want, "{stop:?}");
    }
    assert_eq!(
        go(&mut c, Direction::Backward, &mut stops).reason,
        Reason::Begin
    );
}

/// A handler whose first instruction writes, and the place to which the kernel returns from it.
const HANDLER: &str = r#"
#include <signal.h>
#include <unistd.h>
#include <sys/syscall.h>
volatile long hits, after;
void handler(int s);
__asm__("handler: addq $1, hits(%rip)\n ret");
__attribute__((noinline)) void send(void) { raise(SIGUSR1); after++; }
int main() {
    signal(SIGUSR1, handler);
    for (int i = 0; i < 3; i++) send();
    syscall(SYS_close, -77, &hits, handler);
    return 0;
}
"#;

/// The events of the signals.
fn signals(t: &Timeline) -> Vec<Happening> {
    let filter = Filter {
        kinds: vec![KindOf::Signal],
        ..Filter::default()
    };
    t.events(&filter).unwrap()
}

/// What the program says by a system call that does nothing.
fn said(t: &Timeline) -> (Happening, [u64; 6]) {
    let filter = Filter {
        syscalls: vec![3],
        kinds: vec![KindOf::Syscall],
        ..Filter::default()
    };
    let mut all = t.events(&filter).unwrap().into_iter();
    let found = all.find_map(|h| match h.kind {
        Kind::Syscall { args, .. } if args[0] as i32 == -77 => Some((h, args)),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn the_first_instruction_of_a_handler_is_seen() {
    let s = Scene::new();
    for regime in ["quiet", "checked"] {
        let t = open(&record(&s, HANDLER, &["--regime", regime]), 2000);
        let (end, args) = said(&t);
        let (hits, handler) = (args[1], args[2]);
        let signals = signals(&t);
        assert_eq!(signals.len(), 3);
        let mut c = t.cursor().unwrap();
        // The access, found from either side.
        let mut from = (end.thread, end.count);
        for signal in signals.iter().rev() {
            c.seek_count(from.0, from.1).unwrap();
            let w = c.last_write(hits, 8).unwrap().unwrap();
            assert_eq!((w.count, w.pc, w.address), (signal.count, handler, hits));
            from = (w.thread, w.count);
        }
        c.seek_count(end.thread, signals[0].count).unwrap();
        let first = c.find(Direction::Forward, hits, 8, Watch::Access);
        assert_eq!(first.unwrap().unwrap().count, signals[0].count);
        assert!(
            c.accesses()
                .unwrap()
                .iter()
                .any(|a| a.write && a.touches(hits, 8))
        );
        // A run stops in the handler. A seek to that place finds the instant at which the signal comes.
        let mut stops = Stops {
            breakpoints: vec![Breakpoint::at(1, handler)],
            ..Stops::default()
        };
        let interrupted = c.registers().unwrap();
        c.seek(t.range().unwrap().0).unwrap();
        let stop = go(&mut c, Direction::Forward, &mut stops);
        assert_eq!(c.count(), signals[0].count, "{stop:?}");
        assert_eq!(c.registers().unwrap().rip, handler);
        c.seek_count(end.thread, signals[0].count).unwrap();
        assert_eq!(
            c.registers().unwrap().comparable(),
            interrupted.comparable()
        );
    }
}

#[test]
fn steps_go_on_where_the_kernel_does() {
    let s = Scene::new();
    let t = open(&record(&s, HANDLER, &[]), 2000);
    let thread = said(&t).0.thread;
    let filter = Filter {
        syscalls: vec![15],
        kinds: vec![KindOf::Syscall],
        ..Filter::default()
    };
    let back: Vec<u64> = (t.events(&filter).unwrap().iter())
        .map(|h| h.count)
        .collect();
    assert_eq!(back.len(), 3);
    let mut c = t.cursor().unwrap();
    for (signal, back) in signals(&t).iter().zip(back) {
        // The system call that ends the handler is no call that returns.
        c.seek_count(thread, back).unwrap();
        let stop = c.step_over(Direction::Forward).unwrap();
        assert_eq!((c.count(), stop.reason), (back + 1, Reason::Step));
        // Out of the function that raised the signal, past the handler. And from where the handler has ended. Both lead
        // to the same place.
        let mut ends = Vec::new();
        for from in [signal.count - 1, back + 1] {
            c.seek_count(ThreadId(thread.0), from).unwrap();
            let stop = c.step_out(Direction::Forward).unwrap();
            assert_eq!(stop.reason, Reason::Step);
            ends.push((c.count(), c.registers().unwrap().rip));
        }
        assert_eq!(ends[0], ends[1]);
        assert!(ends[0].0 < back + 200, "{ends:?}");
    }
}

/// A child restores vector state from an area that is smaller than an area can be. It reads what follows the area only
/// later.
const RESTORES: &str = r#"
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include <sys/syscall.h>
static struct { char area[1024]; char behind[2048]; } b __attribute__((aligned(64)));
int main() {
    memset(b.behind, 7, sizeof b.behind);
    __asm__ volatile("xsavec %0" : "+m"(b.area) : "a"(7), "d"(0));
    if (fork() == 0) {
        __asm__ volatile("xrstor %0" :: "m"(b.area), "a"(7), "d"(0));
        syscall(SYS_close, -77, b.behind);
        for (int i = 0; i < 2048; i++) if (((volatile char *) b.behind)[i] != 7) _exit(1);
        _exit(0);
    }
    int status;
    wait(&status);
    return status != 0;
}
"#;

#[test]
fn what_lies_behind_restored_state_is_not_taken_for_read() {
    let s = Scene::new();
    for regime in ["quiet", "checked"] {
        let t = open(&record(&s, RESTORES, &["--regime", regime]), 2000);
        let (here, args) = said(&t);
        let mut c = t.cursor().unwrap();
        c.seek_count(here.thread, here.count).unwrap();
        let m = c.memory(args[1], 2048).unwrap();
        let known = m.bytes.iter().flatten();
        assert!(known.clone().all(|b| b.value == 7), "{regime}: {m}");
        assert!(known.count() == 2048, "{regime}: {m}");
        // The first use is a read, and not the instruction that restores.
        let begin = t.thread(here.thread).unwrap().from;
        c.seek_count(here.thread, begin).unwrap();
        let first = c.first_use(args[1], 2048).unwrap().unwrap();
        assert!(first.count > here.count, "{first:?}");
    }
}

/// A child that returns from a function that its parent has called.
const VFORK: &str = r#"
#include <unistd.h>
#include <sys/wait.h>
volatile long done;
int main() {
    for (int i = 0; i < 2; i++) {
        if (vfork() == 0) { done++; _exit(0); }
        wait(0);
    }
    return done != 2;
}
"#;

#[test]
fn a_step_over_a_call_of_another_thread_stays_in_its_own() {
    let s = Scene::new();
    for regime in ["quiet", "checked"] {
        let t = open(&record(&s, VFORK, &["--regime", regime]), 2000);
        let threads = t.threads().unwrap();
        assert_eq!(threads.len(), 3);
        let mut c = t.cursor().unwrap();
        for child in &threads[1..] {
            for count in child.from..=(child.from + 12).min(child.to) {
                c.seek_count(child.id, count).unwrap();
                let stop = c.step_over(Direction::Backward).unwrap();
                let want = count.saturating_sub(1).max(child.from);
                assert_eq!((c.thread(), stop.thread), (child.id, child.id), "{count}");
                assert_eq!(c.count(), want, "{stop:?}");
            }
        }
    }
}

const MOVED: &str = r#"
#define _GNU_SOURCE
#include <sys/mman.h>
volatile long spun;
static void spin(void) { for (int i = 0; i < 2000; i++) spun++; }
int main() {
    long sum = 0;
    char *p = mmap(0, 1 << 16, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *to = mmap(0, 1 << 17, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 16; i++) p[4096 * i + 5] = i + 1;
    spin();
    p = mremap(p, 1 << 16, 1 << 17, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    for (int i = 0; i < 16; i++) sum += p[4096 * i + 5];
    spin();
    return sum != 136;
}
"#;

/// Replay begins after the memory was written, and before it moved.
#[test]
fn memory_that_moves_takes_along_what_was_written_long_ago() {
    let s = Scene::new();
    let trace = record(&s, MOVED, &[]);
    for interval in [1000, 3000, 0] {
        let t = open(&trace, interval);
        let log = hindsight_oracle::plain::play(t.trace(), t.trace().threads()[0]);
        t.build_index(Depth::Full, &|_, _| {}, &Cancel::new())
            .unwrap();
        let mut c = t.cursor().unwrap();
        for count in (0..log.instructions()).step_by(37) {
            c.seek_count(ThreadId(log.thread), count).unwrap();
            let (have, want) = (c.registers().unwrap(), &log.states[count as usize]);
            assert_eq!(have.digest(), want.digest(), "{interval}: {count}");
        }
    }
}
