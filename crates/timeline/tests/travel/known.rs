//! What is known of memory depends on the recording and on the instant alone. It does not depend on where intervals of
//! the index begin, on what was played before, or on how many bytes are asked for together.

use crate::open;
use crate::questions::Rng;
use hindsight_lab::Scene;
use hindsight_timeline::{Cursor, Filter, Kind, KindOf, Memory, ThreadId, Timeline};

/// Words are read and written in many orders. Some of that is not recorded, so the values are new afterwards. With an
/// argument a second thread does the same.
const PROGRAM: &str = r#"
#include "hindsight.h"
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile unsigned char data[2][256];
static int pipes[2];
__attribute__((noinline)) static unsigned touch(volatile unsigned char *d, unsigned long r, int left) {
    unsigned at = r >> 40 & 127, what = r >> 50 & 7;
    volatile unsigned local[6] = { at, what };
    unsigned sum = local[r & 1];
    if (what < 3) sum += d[at];
    if (what == 2 || what == 3) d[at] = r;
    if (what == 4) *(volatile unsigned *)(d + at) += 3;
    if (what == 5) memmove((void *)(d + at), (void *)(d + at + 5), 24);
    if (what == 6) asm volatile("rep movsb" : : "S"(d + at), "D"(d + at + 1), "c"(9) : "memory");
    if (what == 7) sum += *(volatile unsigned long *)(d + at) + *(volatile unsigned short *)(d + at + 9);
    return sum + (left ? touch(d, r * 6364136223846793005ul + 1442695040888963407ul, left - 1) : 0);
}
static void *work(void *p) {
    unsigned long r = (unsigned long) p;
    volatile unsigned char *d = data[r & 1];
    for (int i = 0; i < 250; i++) {
        r = r * 6364136223846793005ul + 1442695040888963407ul;
        int call = (r >> 37 & 7) == 0, unseen = (r >> 33 & 3) == 0;
        if (unseen) hindsight_stop();
        touch(d, r, 3);
        if (unseen) for (int k = 0; k < 256; k++) d[k] += k;
        if (unseen) hindsight_start();
        touch(d, r ^ r << 20, 5);
        if (call) { write(pipes[1], &r, 8); read(pipes[0], (void *)(d + (r >> 44 & 127)), 8); }
        touch(d, r ^ r << 10, 5);
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t t;
    pipe(pipes);
    syscall(SYS_close, -77, data);
    if (argc > 1) pthread_create(&t, 0, work, (void *) 6);
    work((void *) 3);
    if (argc > 1) pthread_join(t, 0);
    return 0;
}
"#;

/// The address of the words.
fn data(t: &Timeline) -> u64 {
    let filter = Filter {
        kinds: vec![KindOf::Syscall],
        syscalls: vec![3],
        ..Filter::default()
    };
    let mut all = t.events(&filter).unwrap().into_iter();
    let said = all.find_map(|h| match h.kind {
        Kind::Syscall { args, .. } if args[0] as i32 == -77 => Some(args[1]),
        _ => None,
    });
    said.unwrap()
}

fn known(m: &Memory) -> Vec<Option<u8>> {
    m.bytes.iter().map(|b| b.map(|k| k.value)).collect()
}

/// What is known at an instant, by both ways to ask. The answers must be the same.
fn look(c: &mut Cursor, at: u64, len: usize) -> Vec<Option<u8>> {
    let m = c.memory(at, len).unwrap();
    let quick = c.known_memory(at, len).unwrap();
    assert_eq!(known(&quick), known(&m), "{quick}{m}");
    known(&m)
}

/// Random instants, many of them just behind the ends of gaps.
fn instants(t: &Timeline, r: &mut Rng) -> Vec<(ThreadId, u64)> {
    let gaps = Filter {
        kinds: vec![KindOf::Gap],
        ..Filter::default()
    };
    let mut ends = t.events(&gaps).unwrap();
    ends.retain(|h| h.kind == Kind::GapEnd);
    assert!(ends.len() > 20, "{}", ends.len());
    let threads = t.threads().unwrap();
    let mut out = Vec::new();
    for n in 0..12 {
        let end = &ends[r.below(ends.len() as u64) as usize];
        out.push((end.thread, end.count + [0, 1, 2, r.below(100)][n % 4]));
        let any = &threads[r.below(threads.len() as u64) as usize];
        out.push((any.id, any.from + r.below(any.to - any.from)));
    }
    out
}

#[test]
fn what_is_known_depends_on_the_instant_alone() {
    let s = Scene::new();
    let (file, program) = (s.path("known.c"), s.path("known"));
    std::fs::write(&file, PROGRAM).unwrap();
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../mark");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-w", "-static", "-pthread", include, "-o"]);
    assert!(gcc.arg(&program).arg(&file).status().unwrap().success());
    for args in [&[][..], &["two"]] {
        let trace = s.path("known.hst");
        let mut record = s.hindsight(&["record", "--quiet", "--regime", "checked", "-o"]);
        let run = s.run(record.arg(&trace).arg("--").arg(&program).args(args));
        assert!(run.status.success(), "{}", run.messages());
        let whole = open(&trace, 0);
        let data = data(&whole);
        let fine = [4000, 301, 64].map(|n| open(&trace, n));
        let mut cursors: Vec<Cursor> = [&whole]
            .into_iter()
            .chain(&fine)
            .map(|t| t.cursor().unwrap())
            .collect();
        let mut r = Rng(5);
        let mut seen = [0; 2];
        for (thread, count) in instants(&whole, &mut r) {
            let mut fresh = whole.cursor().unwrap();
            fresh.seek_count(thread, count).unwrap();
            let stack = fresh.registers().unwrap().gpr[4] - 96;
            let areas = [(data + 4 * r.below(32), 64), (data + 256, 40), (stack, 200)];
            for (at, len) in areas {
                let wanted = look(&mut fresh, at, len);
                wanted.iter().for_each(|b| seen[b.is_some() as usize] += 1);
                let place = format!("{args:?} thread {thread} at {count}: {at:#x}+{len}");
                for (n, c) in cursors.iter_mut().enumerate() {
                    let far = 1 + r.below(1 << 14);
                    for from in [count, count + far, count.saturating_sub(far)] {
                        c.seek_count(thread, from).unwrap();
                        if from != count && n % 2 == 1 {
                            look(c, at, len);
                        }
                        c.seek_count(thread, count).unwrap();
                        let now = look(c, at, len);
                        assert!(
                            now == wanted,
                            "{place}, index {n} from {from}:\n{now:?}\n{wanted:?}"
                        );
                    }
                    let word = 4 * r.below(len as u64 / 4);
                    let part = look(c, at + word, 4);
                    let all = &wanted[word as usize..word as usize + 4];
                    assert_eq!(part, all, "{place}, index {n}, 4 bytes at {word}");
                }
            }
        }
        assert!(seen.iter().all(|n| *n > 500), "{args:?}: {seen:?}");
        std::fs::remove_file(&trace).unwrap();
    }
}
