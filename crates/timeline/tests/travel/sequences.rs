//! A thread goes through memory that another one has written. What it reads next is recorded before it reads it, and is known
//! all the same where it was.

use crate::races::{bytes, compile};
use crate::{open, questions::Rng};
use hindsight_lab::Scene;
use hindsight_timeline::{Direction, Watch};

/// Words that the threads sum.
const WORDS: u64 = 16 << 10;

/// The first thread writes the words. Then two others sum them at the same time. One of them goes backwards, and changes each
/// sixteenth word when it has read it.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/syscall.h>
enum { WORDS = 16 << 10 };
unsigned long words[WORDS] __attribute__((aligned(4096)));
static void *up(void *p) {
    unsigned long sum = 0;
    for (int i = 0; i < WORDS; i++)
        sum += __atomic_load_n(&words[i], __ATOMIC_RELAXED) & 0xffffffff;
    return (void *) sum;
}
static void *down(void *p) {
    unsigned long sum = 0;
    for (int i = WORDS - 1; i >= 0; i--) {
        unsigned long word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
        sum += word & 0xffffffff;
        if (i % 16 == 5) __atomic_store_n(&words[i], word | 1ul << 40, __ATOMIC_RELAXED);
    }
    return (void *) sum;
}
int main() {
    pthread_t a, b;
    void *one, *other;
    syscall(SYS_close, -77, words);
    for (unsigned long i = 0; i < WORDS; i++) words[i] = i * 77 + 1;
    pthread_create(&a, 0, up, 0);
    pthread_create(&b, 0, down, 0);
    pthread_join(a, &one);
    pthread_join(b, &other);
    printf("%d\n", one == other);
    return 0;
}
"#;

/// What the word was when it was written, and what it may have become.
fn possible(i: u64) -> [u64; 2] {
    let first = i * 77 + 1;
    [first, if i % 16 == 5 { first | 1 << 40 } else { first }]
}

#[test]
fn what_is_recorded_ahead_is_known_where_it_was() {
    let s = Scene::new();
    let (program, trace) = (compile(&s, "sums", PROGRAM), s.path("sums.hst"));
    let run = s.run(&mut s.recording(&trace, &[&program]));
    assert_eq!(run.text(), "1\n", "{}", run.messages());
    s.must_verify(&trace);
    // Intervals are so short that a page is read in several of them.
    for interval in [0, 700] {
        let t = open(&trace, interval);
        let at = bytes(&t);
        let mut r = Rng(3);
        let mut c = t.cursor().unwrap();
        for thread in t.processes().unwrap()[0].threads.iter().skip(1) {
            let end = t.thread(*thread).unwrap().to;
            let mut known = 0;
            for _ in 0..60 {
                c.seek_count(*thread, r.below(end)).unwrap();
                let i = r.below(WORDS);
                let m = c.memory(at + 8 * i, 8).unwrap();
                let bytes: Option<Vec<u8>> = m.bytes.iter().map(|b| b.map(|k| k.value)).collect();
                let value = bytes.map(|b| u64::from_le_bytes(b.try_into().unwrap()));
                known += value.is_some() as u32;
                if let Some(v) = value {
                    assert!(
                        possible(i).contains(&v),
                        "word {i}: {v:#x} at {}",
                        c.count()
                    );
                }
                // The thread reads each word once, and no earlier than the instruction that does.
                c.seek_count(*thread, 0).unwrap();
                let read = c.find(Direction::Forward, at + 8 * i, 8, Watch::Read);
                let read = read.unwrap().unwrap();
                if read.thread == *thread {
                    c.seek_count(*thread, read.count + 1).unwrap();
                    let gpr = c.registers().unwrap().gpr;
                    assert!(
                        gpr.iter().any(|g| possible(i)
                            .map(|p| p & 0xffff_ffff)
                            .contains(&(g & 0xffff_ffff))),
                        "word {i}: {gpr:x?}"
                    );
                }
            }
            assert!(known > 40, "{known}");
        }
    }
}
