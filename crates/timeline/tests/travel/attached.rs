//! Recordings of processes that ran before. What memory held before they were recorded is not known.

use crate::open;
use hindsight_lab::{Scene, kill};
use hindsight_timeline::Place;

/// Changes its data and memory without a file, says where these and its constants are, and computes without them. The
/// loader has relocated the table: the file does not have what it holds.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
volatile long data[1024] __attribute__((aligned(4096))) = { 1, 2, 3 };
volatile long empty[1024] __attribute__((aligned(4096)));
const long constant[1024] __attribute__((aligned(4096))) = { 77 };
volatile long *const table[1024] __attribute__((aligned(4096))) = { data, data + 1, data + 2 };
int main(int argc, char **argv) {
    volatile long *mapped = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data[1] = 22;
    empty[1] = 33;
    mapped[1] = 44;
    printf("%p %p %p %p %p\n", data, empty, mapped, table, constant);
    fflush(stdout);
    for (volatile unsigned i = 1; i; i++) {}
    return 0;
}
"#;

#[test]
fn what_was_before_is_not_known() {
    let scene = Scene::new();
    let (source, program) = (scene.path("before.c"), scene.path("before"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-w", "-fpie", "-pie", "-Wl,-z,relro,-z,now", "-o"]);
    assert!(gcc.arg(&program).arg(&source).status().unwrap().success());
    let running = scene.start(&mut scene.command(program));
    let line = running.first_line();
    let (pid, trace) = (running.id(), scene.path("before.hst"));
    let mut attach = scene.hindsight(&["attach", &pid.to_string(), "--for", "0.2", "-o"]);
    let done = scene.run(attach.arg(&trace));
    assert!(done.status.success(), "{}", done.messages());
    assert!(kill(pid, libc::SIGKILL));

    let places: Vec<u64> = line
        .split(' ')
        .map(|w| u64::from_str_radix(&w[2..], 16).unwrap())
        .collect();
    let t = open(&trace, 0);
    for place in [Place::Begin, Place::Percent(50.0), Place::End] {
        let mut c = t.cursor().unwrap();
        c.seek(t.find(place, None).unwrap()).unwrap();
        for at in &places[..4] {
            let m = c.memory(*at, 24).unwrap();
            assert!(
                m.bytes.iter().all(Option::is_none),
                "{place:?}, {at:x}: {m:?}"
            );
        }
        // The program's file says that nobody writes there.
        let m = c.memory(places[4], 8).unwrap();
        let known: Vec<_> = m.bytes.iter().map(|b| b.map(|k| k.value)).collect();
        assert_eq!(known, [77, 0, 0, 0, 0, 0, 0, 0].map(Some), "{place:?}");
    }
}
