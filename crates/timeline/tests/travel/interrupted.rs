//! String instructions that are interrupted in the middle, by faulting pages and by signals.

use crate::borders::record;
use crate::open;
use hindsight_lab::Scene;
use hindsight_timeline::{
    Breakpoint, Cancel, Cursor, Direction, Filter, Found, Kind, KindOf, Reason, Scope, Stops,
    ThreadId, Timeline, Watch, WatchedValue, Watchpoint,
};

/// Pages become accessible one after the other, while they are copied and compared. The handler begins with a write.
pub const FAULTS: &str = r#"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
volatile long hits;
void opened(int s, siginfo_t *i, void *c) { mprotect((void *) ((long) i->si_addr & ~4095L), 4096, PROT_READ | PROT_WRITE); }
void handler(int s);
__asm__("handler: addq $1, hits(%rip)\n jmp opened");
static char from[16384];
int main() {
    struct sigaction a = { .sa_flags = SA_SIGINFO };
    a.sa_handler = handler; sigaction(SIGSEGV, &a, 0);
    char *page = mmap(0, 20480, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(from, 7, sizeof from);
    syscall(SYS_close, -77, page, from, &hits, handler);
    char *d = page + 100, *s = from; long n = 12000;
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) :: "memory");
    syscall(SYS_close, -77);
    mprotect(page, 20480, PROT_NONE);
    d = page + 100; s = from; n = 12000;
    __asm__ volatile("repe cmpsb" : "+D"(d), "+S"(s), "+c"(n) :: "memory", "cc");
    syscall(SYS_close, -77);
    return n != 0;
}
"#;

/// The bytes of each part of the copy, up to the end of the page: offsets and lengths.
const PARTS: [(u64, u64); 3] = [(100, 3996), (4096, 4096), (8192, 3908)];

/// The events of a kind, in one thread.
fn happenings(t: &Timeline, kind: KindOf) -> Vec<(u64, Kind)> {
    let filter = Filter {
        kinds: vec![kind],
        ..Filter::default()
    };
    let all = t.events(&filter).unwrap().into_iter();
    all.map(|h| (h.count, h.kind)).collect()
}

/// What the program says by system calls that do nothing.
fn said(t: &Timeline) -> Vec<(u64, [u64; 6])> {
    let all = happenings(t, KindOf::Syscall).into_iter();
    all.filter_map(|(count, kind)| match kind {
        Kind::Syscall { number, args, .. } => {
            (number == 3 && args[0] as i32 == -77).then_some((count, args))
        }
        _ => None,
    })
    .collect()
}

fn at(c: &mut Cursor, thread: ThreadId, count: u64) -> &mut Cursor {
    c.seek_count(thread, count).unwrap();
    c
}

fn one(c: &mut Cursor, direction: Direction, address: u64, len: u64, watch: Watch) -> Found {
    let found = c.find(direction, address, len, watch);
    found.unwrap().unwrap()
}

#[test]
fn what_was_accessed_before_an_interruption_is_found() {
    let s = Scene::new();
    for regime in ["quiet", "checked"] {
        let trace = record(&s, FAULTS, &["--regime", regime]);
        for interval in [0, 2000] {
            let t = open(&trace, interval);
            let (marks, thread) = (said(&t), t.threads().unwrap()[0].id);
            let [(begin, args), (copied, _), (end, _)] = marks[..] else {
                panic!("{marks:?}");
            };
            let [page, from, hits, handler] = [args[1], args[2], args[3], args[4]];
            let signals = happenings(&t, KindOf::Signal);
            let signals: Vec<u64> = signals.iter().map(|s| s.0).collect();
            assert_eq!(signals.len(), 6);
            // Each part is done where the next page faults. Nothing is done before the first fault.
            let parts = |n: usize| match n {
                0..2 => [signals[1], signals[2]][n],
                _ => copied - 1,
            };
            let c = &mut t.cursor().unwrap();
            let copy = at(c, thread, signals[1]).registers().unwrap().rip;
            for (n, (offset, len)) in PARTS.into_iter().enumerate() {
                let written = (page + offset, len);
                let read = (from + offset - 100, len);
                let context = format!("{regime} {interval}, part {n}, {signals:?}");
                for ((address, len), watch) in [(written, Watch::Write), (read, Watch::Read)] {
                    let middle = address + len / 2;
                    let back = one(at(c, thread, copied), Direction::Backward, middle, 8, watch);
                    let there = one(at(c, thread, begin), Direction::Forward, middle, 8, watch);
                    for f in [back, there] {
                        let what = (f.pc, f.address, f.len, f.read, f.write);
                        let is_read = watch == Watch::Read;
                        let want = (copy, address, len, is_read, !is_read);
                        assert_eq!(what, want, "{context}: {f:?}");
                        // The last part ends some instructions before the system call.
                        match n {
                            2 => assert!(signals[2] < f.count && f.count < parts(n)),
                            _ => assert_eq!(f.count, parts(n), "{context}: {f:?}"),
                        }
                    }
                    // The list of writes says the same.
                    if watch == Watch::Write {
                        let listed = at(c, thread, copied).writes(middle, 8, 8).unwrap();
                        let mut listed = listed;
                        let last = listed.next(&Cancel::new()).unwrap().unwrap();
                        assert_eq!(last.access, back, "{context}");
                        assert_eq!(last.bytes, vec![Some(7); 8], "{context}");
                    }
                }
            }
            // A comparison reads memory, up to where a page faults.
            let read = (page + 100, 3996);
            let f = one(
                at(c, thread, end),
                Direction::Backward,
                read.0 + 9,
                1,
                Watch::Read,
            );
            assert_eq!((f.count, f.address, f.len), (signals[4], read.0, read.1));
            // The handler's first access is found at the same instant.
            let f = one(
                at(c, thread, copied),
                Direction::Backward,
                hits,
                8,
                Watch::Write,
            );
            assert_eq!((f.count, f.pc), (signals[2], handler));
            let mut listed = at(c, thread, copied).writes(hits, 8, 8).unwrap();
            assert_eq!(listed.next(&Cancel::new()).unwrap().unwrap().access, f);
            let both = at(c, thread, signals[2]).accesses().unwrap();
            for (address, read) in [(from + 4000, true), (page + 4100, false), (hits, false)] {
                let is = |a: &hindsight_timeline::Access| {
                    a.touches(address, 1) && (a.read || !read) && (a.write || read)
                };
                assert!(both.iter().any(is), "{both:x?}");
            }
        }
    }
}

#[test]
fn handlers_that_interrupt_string_instructions_are_met_both_ways() {
    let s = Scene::new();
    for regime in ["quiet", "checked"] {
        let t = open(&record(&s, FAULTS, &["--regime", regime]), 2000);
        let (marks, thread) = (said(&t), t.threads().unwrap()[0].id);
        let (args, end) = (marks[0].1, marks[2].0);
        let (page, handler) = (args[1], args[4]);
        let signals = happenings(&t, KindOf::Signal);
        let signals: Vec<u64> = signals.iter().map(|s| s.0).collect();
        let c = &mut t.cursor().unwrap();
        let mut stops = Stops {
            breakpoints: vec![Breakpoint::at(1, handler)],
            ..Stops::default()
        };
        for (direction, from) in [(Direction::Forward, 0), (Direction::Backward, end)] {
            at(c, thread, from);
            let mut met = Vec::new();
            loop {
                let stop = c.run(direction, Scope::Thread, &mut stops);
                let stop = stop.unwrap();
                if !matches!(stop.reason, Reason::Breakpoint { .. }) {
                    break;
                }
                assert_eq!(c.registers().unwrap().rip, handler, "{direction:?}");
                met.push(c.count());
                // The bytes that were copied before are there.
                if c.count() == signals[2] {
                    let m = c.memory(page + 4096, 4096).unwrap();
                    assert!(m.bytes.iter().all(|b| b.is_some_and(|b| b.value == 7)));
                }
            }
            if direction == Direction::Backward {
                met.reverse();
            }
            assert_eq!(met, signals, "{direction:?}");
        }
        // The same for memory that is watched for changes.
        let mut stops = Stops {
            watchpoints: vec![Watchpoint {
                id: 1,
                address: page + 4200,
                len: 8,
                watch: Watch::Write,
                image: None,
            }],
            values: vec![WatchedValue {
                id: 1,
                bytes: vec![0; 8],
            }],
            ..Stops::default()
        };
        at(c, thread, marks[0].0);
        let stop = c.run(Direction::Forward, Scope::Process, &mut stops);
        assert!(matches!(stop.unwrap().reason, Reason::Watchpoint { .. }));
        assert_eq!(c.count(), signals[2] + 1);
        stops.values[0].bytes = vec![7; 8];
        at(c, thread, marks[1].0);
        let stop = c.run(Direction::Backward, Scope::Process, &mut stops);
        assert!(matches!(stop.unwrap().reason, Reason::Watchpoint { .. }));
        assert_eq!(c.count(), signals[2]);
    }
}

/// Two signals that are let in at once. The first one's handler is interrupted before it has done anything.
const TWO: &str = r#"
#include <signal.h>
#include <unistd.h>
#include <sys/syscall.h>
volatile long hits;
void first(int s);
void second(int s);
__asm__("first: addq $1, hits(%rip)\n ret\n second: addq $16, hits(%rip)\n ret");
int main() {
    sigset_t both, none;
    signal(SIGUSR1, first); signal(SIGUSR2, second);
    sigemptyset(&none); sigemptyset(&both); sigaddset(&both, SIGUSR1); sigaddset(&both, SIGUSR2);
    for (int i = 0; i < 3; i++) {
        sigprocmask(SIG_BLOCK, &both, 0);
        raise(SIGUSR1); raise(SIGUSR2);
        sigsuspend(&none);
        sigprocmask(SIG_SETMASK, &none, 0);
    }
    syscall(SYS_close, -77, first, second);
    return hits != 51;
}
"#;

#[test]
fn a_handler_that_is_interrupted_at_once_begins_when_that_is_over() {
    let s = Scene::new();
    for regime in ["quiet", "checked"] {
        let t = open(&record(&s, TWO, &["--regime", regime]), 2000);
        let (end, args) = said(&t)[0];
        let thread = t.threads().unwrap()[0].id;
        let signals = happenings(&t, KindOf::Signal);
        let nested = signals.windows(2).filter(|w| w[0].0 == w[1].0).count();
        assert!(nested > 0, "{signals:?}");
        let c = &mut t.cursor().unwrap();
        for handler in [args[1], args[2]] {
            let mut stops = Stops {
                breakpoints: vec![Breakpoint::at(1, handler)],
                ..Stops::default()
            };
            let mut all = Vec::new();
            for (direction, from) in [(Direction::Forward, 0), (Direction::Backward, end)] {
                at(c, thread, from);
                let mut met = Vec::new();
                while let Reason::Breakpoint { .. } = {
                    let stop = c.run(direction, Scope::Thread, &mut stops);
                    stop.unwrap().reason
                } {
                    met.push(c.count());
                }
                met.sort_unstable();
                all.push(met);
            }
            assert_eq!(all[0].len(), 3, "{regime}: {all:?}, {signals:?}");
            assert_eq!(all[0], all[1]);
        }
    }
}
