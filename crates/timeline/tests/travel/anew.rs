//! Memory that is mapped anew, cleared, or changed by the kernel after an access. What is known of it does not depend
//! on where intervals of the index begin.

use crate::open;
use crate::questions::Rng;
use hindsight_lab::Scene;
use hindsight_timeline::{Cursor, Filter, Ground, Kind, KindOf, KnownByte, Memory, Timeline};

/// Pages are written, read, mapped anew, cleared and read into, in turns. With an argument, a second thread does the
/// same. Then all reads are checked, and memory is shared.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#define PAGES 3
static char *base;
static int pipes[2];
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *p) {
    unsigned long r = (unsigned long) p;
    for (int i = 0; i < 400; i++) {
        r = r * 6364136223846793005ul + 1442695040888963407ul;
        unsigned page = r >> 40 & 3, at = r >> 43 & 127, what = r >> 52 & 15;
        char *a = base + (page % PAGES) * 4096;
        pthread_mutex_lock(&one);
        if (what == 0) munmap(a, 4096);
        if (what < 2)
            mmap(a, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        else if (what == 2) madvise(a, 4096, MADV_DONTNEED);
        else if (what == 3) { write(pipes[1], &r, 8); read(pipes[0], a + at, 8); }
        else if (what < 9) a[at] = i;
        else if (what < 12) memset(a + (at & 96), i, 24);
        else *(volatile char *) (a + at);
        pthread_mutex_unlock(&one);
        for (volatile int k = 0; k < 30; k++);
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t t;
    base = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pipe(pipes);
    syscall(SYS_close, -77, base);
    if (argc > 1) pthread_create(&t, 0, work, (void *) 7);
    work((void *) 3);
    if (argc > 1) pthread_join(t, 0);
    return 0;
}
"#;

/// The address of the pages.
fn base(t: &Timeline) -> u64 {
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

/// Whether the same is known. What a key frame tells may be known for another reason, too.
fn alike(a: &[Option<(u8, Ground)>], b: &[Option<(u8, Ground)>]) -> bool {
    let told = |k: &(u8, Ground)| k.1 == Ground::Restated;
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Some(a), Some(b)) if told(a) || told(b) => a.0 == b.0,
            (a, b) => a == b,
        })
}

/// What is known. Memory that was written and then read may have either ground.
fn known(m: &Memory) -> Vec<Option<(u8, Ground)>> {
    let of = |b: &Option<KnownByte>| match b.map(|k| (k.value, k.ground)) {
        Some((v, Ground::Read)) => Some((v, Ground::Written)),
        other => other,
    };
    m.bytes.iter().map(of).collect()
}

#[test]
fn memory_that_is_mapped_anew_is_the_same_in_every_index() {
    let s = Scene::new();
    let (file, program) = (s.path("anew.c"), s.path("anew"));
    std::fs::write(&file, PROGRAM).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-w", "-static", "-pthread", "-o"]);
    assert!(gcc.arg(&program).arg(&file).status().unwrap().success());
    for (regime, args) in [("quiet", &[][..]), ("checked", &[]), ("quiet", &["two"])] {
        let trace = s.path("anew.hst");
        let mut record = s.hindsight(&["record", "--quiet", "--regime", regime, "-o"]);
        let run = record.arg(&trace).arg("--").arg(&program).args(args);
        let run = s.run(run);
        assert!(run.status.success(), "{}", run.messages());
        let whole = open(&trace, 0);
        let threads = whole.threads().unwrap();
        let longest = threads.iter().map(|t| t.to - t.from).max().unwrap();
        let fine = [29, 97, 333].map(|n| open(&trace, longest / n));
        let base = base(&whole);
        let mut cursors: Vec<Cursor> = [&whole]
            .into_iter()
            .chain(&fine)
            .map(|t| t.cursor().unwrap())
            .collect();
        let mut r = Rng(11);
        let (mut fresh, mut all) = (0, 0);
        for _ in 0..120 {
            let t = &threads[r.below(threads.len() as u64) as usize];
            let count = t.from + r.below(t.to - t.from);
            let at = base + 4096 * r.below(3) + 8 * r.below(16);
            let mut first = None;
            for c in &mut cursors {
                c.seek_count(t.id, count).unwrap();
                let m = c.memory(at, 40).unwrap();
                let quick = c.known_memory(at, 40).unwrap();
                let now = known(&m);
                assert!(alike(&known(&quick), &now), "{quick}{m}");
                let (said, first) = first.get_or_insert_with(|| (m.to_string(), now.clone()));
                let place = format!("{regime} {args:?}: thread {} at {count}", t.id);
                assert!(alike(&now, first), "{place}: {m}{said}");
            }
            for byte in first.iter().flat_map(|f| f.1.iter().flatten()) {
                all += 1;
                fresh += (byte.1 == Ground::Fresh) as usize;
            }
        }
        assert!(
            all > 1000 && fresh > 300,
            "{regime} {args:?}: {fresh} of {all}"
        );
        std::fs::remove_file(&trace).unwrap();
    }
}
