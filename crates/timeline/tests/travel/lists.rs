//! A list of writes has what repeated searches find.

use crate::open;
use crate::questions::Rng;
use crate::races;
use hindsight_lab::Scene;
use hindsight_timeline::{Cancel, Cursor, Direction, Error, Scope, Timeline};

/// At most this many writes of a list are compared.
const MOST: usize = 30;

/// Compares the list of writes before the cursor with single searches. Returns the number of writes.
fn compare(c: &mut Cursor, address: u64, len: u64) -> usize {
    let never = Cancel::new();
    let shown = len.min(16) as usize;
    let mut list = c.writes(address, len, shown).unwrap();
    let home = (c.thread(), c.count());
    for n in 0..MOST {
        let context = format!("{address:#x}+{len} from {home:?}, number {n}");
        let one = c.last_write(address, len).unwrap();
        let next = list.next(&never).unwrap();
        assert_eq!(next.as_ref().map(|w| w.access), one, "{context}");
        let (Some(w), Some(next)) = (one, next) else {
            return n;
        };
        c.seek_count(w.thread, w.count + 1).unwrap();
        let m = c.known_memory(address, shown).unwrap();
        let held: Vec<_> = m.bytes.iter().map(|b| b.map(|k| k.value)).collect();
        assert_eq!(next.bytes, held, "{context}: {w:?}");
        c.seek_count(w.thread, w.count).unwrap();
    }
    MOST
}

/// Compares lists for places that instructions or the kernel write, and for their neighbours.
fn lists(t: &Timeline, rounds: u64) -> usize {
    let (mut r, mut all) = (Rng(9), 0);
    let threads = t.threads().unwrap();
    let mut c = t.cursor().unwrap();
    for _ in 0..rounds {
        let h = &threads[r.below(threads.len() as u64) as usize];
        c.seek_count(h.id, h.from + r.below(h.to - h.from)).unwrap();
        // A loop in which a thread waits for another one writes nothing.
        let mut found = None;
        for _ in 0..200 {
            found = (c.accesses().unwrap().iter())
                .find(|a| a.write)
                .map(|a| a.address);
            if found.is_some() || c.count() + 1 >= h.to {
                break;
            }
            c.step(Direction::Forward, Scope::Thread).unwrap();
        }
        let found = found.unwrap_or_else(|| c.registers().unwrap().gpr[4]);
        let address = found.wrapping_sub(r.below(9));
        all += compare(&mut c, address, 1 + r.below(24));
    }
    all
}

#[test]
fn lists_of_writes_are_what_is_found_one_by_one() {
    let s = Scene::new();
    let mut found = Vec::new();
    for more in [&[][..], &["-DTHREAD", "-pthread"]] {
        let program = s.compile("travel.c", &[&["-O2", "-static"], more].concat());
        let trace = s.path("t.hst");
        let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), "40".as_ref()]));
        assert!(run.status.success(), "{}", run.messages());
        for interval in [0, 3000] {
            found.push(lists(&open(&trace, interval), 6));
        }
        std::fs::remove_file(&trace).unwrap();
    }
    let trace = races::record(&s);
    // Threads wait for each other in loops, for few or many instructions.
    let longest = open(&trace, 0)
        .threads()
        .unwrap()
        .iter()
        .map(|t| t.to)
        .max();
    let t = open(&trace, longest.unwrap() / 100);
    let (mut c, bytes) = (t.cursor().unwrap(), races::bytes(&t));
    for n in 0..3 {
        c.seek(t.range().unwrap().1).unwrap();
        found.push(compare(&mut c, bytes + 8 * n, 8 + n));
    }
    // Random places, where perhaps nothing was written.
    lists(&t, 3);
    assert!(found.iter().all(|n| *n > 0), "{found:?}");

    c.seek(t.range().unwrap().1).unwrap();
    let (cancel, mut list) = (Cancel::new(), c.writes(bytes, 8, 8).unwrap());
    cancel.cancel();
    assert!(matches!(list.next(&cancel), Err(Error::Cancelled)));
    cancel.reset();
    assert!(list.next(&cancel).unwrap().is_some());
}

/// A program and its children write to memory that they share. A thread reads what another one wrote, then writes next
/// to it.
const OTHERS: &str = r#"
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile uint32_t *words; static volatile int turn;
static void *other(void *p) {
    while (turn != 1);
    words[0] = 0xbbbbbbbb;
    turn = 2;
    return p;
}
int main(int argc, char **argv) {
    words = mmap(0, 4096, PROT_READ | PROT_WRITE, (argc > 1 ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    syscall(SYS_close, -77, words);
    pthread_t t;
    if (argc == 1) pthread_create(&t, 0, other, 0);
    words[0] = 1;
    words[1] = 2;
    turn = 1;
    if (argc > 1) {
        int status;
        if (!fork()) { words[0] = 0xbbbbbbbb; _exit(0); }
        wait(&status);
    } else {
        while (turn != 2);
        if (words[0] != 0xbbbbbbbb) return 1;
    }
    words[1] = 0xaaaaaaaa;
    words[1] = 0xcccccccc;
    syscall(SYS_close, -77, words);
    if (argc == 1) pthread_join(t, 0);
    return 0;
}
"#;

#[test]
fn a_list_says_only_what_is_known_of_bytes_that_others_write() {
    let s = Scene::new();
    let program = races::compile(&s, "others", OTHERS);
    for args in [&[][..], &["fork"]] {
        let trace = s.path("others.hst");
        let mut command = s.recording(&trace, &[&program]);
        let run = s.run(command.args(args));
        assert!(run.status.success(), "{}", run.messages());
        let t = open(&trace, 0);
        let mut c = t.cursor().unwrap();
        c.seek(t.range().unwrap().1).unwrap();
        c.seek_count(t.threads().unwrap()[0].id, t.threads().unwrap()[0].to - 1)
            .unwrap();
        let words = races::bytes(&t);
        assert!(compare(&mut c, words, 8) >= 3, "{args:?}");
        c.seek_count(t.threads().unwrap()[0].id, t.threads().unwrap()[0].to - 1)
            .unwrap();
        let mut list = c.writes(words, 8, 8).unwrap();
        let last = list.next(&Cancel::new()).unwrap().unwrap();
        assert_eq!(last.bytes[4..], [Some(0xcc); 4], "{args:?}");
        let first = match args {
            [] => [Some(0xbb); 4],
            _ => [None; 4],
        };
        assert_eq!(last.bytes[..4], first, "{args:?}");
        std::fs::remove_file(&trace).unwrap();
    }
}

/// Adds one to a word, again and again, with an instruction that is then changed to add to another one.
const CHANGES_ITSELF: &str = r#"
#include <string.h>
#include <sys/mman.h>
static void *map(long at) {
    return mmap((void *) at, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
int main(void) {
    unsigned char *code = map(0x10000000), add[9] = {0x48, 0xff, 0x04, 0x25, 0, 0, 0, 0x20, 0xc3};
    map(0x20000000);
    for (int word = 0; word < 4; word++) {
        add[4] = 8 * word;
        memcpy(code, add, sizeof add);
        for (int i = 0; i < 3; i++) ((void (*)(void)) code)();
    }
    return 0;
}
"#;

/// Code that was just changed is there before its first instruction is executed.
#[test]
fn an_instruction_that_was_just_changed_is_told_as_it_is_executed() {
    let s = Scene::new();
    let trace = crate::borders::record(&s, CHANGES_ITSELF, &[]);
    let t = open(&trace, 1000);
    let end = t.range().unwrap().1;
    let [mut c, mut there] = [(); 2].map(|()| t.cursor().unwrap());
    for word in 0..4u8 {
        let address = 0x2000_0000 + 8 * u64::from(word);
        c.seek(end).unwrap();
        let mut list = c.writes(address, 8, 1).unwrap();
        for value in [3, 2, 1] {
            let w = list.next(&Cancel::new()).unwrap().unwrap();
            assert_eq!(w.bytes, [Some(value)], "word {word}");
            there.seek(w.access.position).unwrap();
            let its = there.accesses().unwrap();
            assert!(its.iter().any(|a| a.write && a.address == address));
            let code = there.code(0x1000_0000, 9).unwrap();
            assert_eq!(code, [0x48, 0xff, 4, 0x25, 8 * word, 0, 0, 0x20, 0xc3]);
            // The same behind a run and a step, which stop there.
            there.step(Direction::Backward, Scope::Thread).unwrap();
            there.step(Direction::Forward, Scope::Thread).unwrap();
            assert_eq!(there.code(0x1000_0000, 9).unwrap(), code);
        }
        assert_eq!(list.next(&Cancel::new()).unwrap(), None, "word {word}");
    }
}
