//! Recordings that do not have a program's beginning: of processes that ran before, and of rings. What memory held before is
//! not known.

use crate::open;
use hindsight_lab::{Scene, kill};
use hindsight_timeline::Place;
use std::path::{Path, PathBuf};

/// Changes its data and memory without a file, says where these and its constants are, and goes on without them. The loader
/// has relocated the table: the file does not have what it holds. With an argument it reads more random bytes than a small
/// ring holds. Otherwise it computes until it is killed.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
volatile long data[1024] __attribute__((aligned(4096))) = { 1, 2, 3 };
volatile long empty[1024] __attribute__((aligned(4096)));
const long constant[1024] __attribute__((aligned(4096))) = { 77 };
volatile long *const table[1024] __attribute__((aligned(4096))) = { data, data + 1, data + 2 };
static unsigned char bytes[4096];
int main(int argc, char **argv) {
    volatile long *mapped = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data[1] = 22;
    empty[1] = 33;
    mapped[1] = 44;
    printf("%p %p %p %p %p\n", data, empty, mapped, table, constant);
    fflush(stdout);
    volatile unsigned sum = 0;
    for (int turn = 0; argc < 2 || turn < 4000; turn++) {
        if (argc > 1) getrandom(bytes, sizeof bytes, 0);
        for (int i = 0; i < sizeof bytes; i++) sum += bytes[i];
    }
    return 0;
}
"#;

fn compile(scene: &Scene) -> PathBuf {
    let (source, program) = (scene.path("before.c"), scene.path("before"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-w", "-fpie", "-pie", "-Wl,-z,relro,-z,now", "-o"]);
    assert!(gcc.arg(&program).arg(&source).status().unwrap().success());
    program
}

/// `line` is what the program printed.
fn only_constants_are_known(trace: &Path, line: &str) {
    let places: Vec<u64> = line
        .split_whitespace()
        .map(|w| u64::from_str_radix(&w[2..], 16).unwrap())
        .collect();
    let t = open(trace, 0);
    for place in [Place::Begin, Place::Percent(50.0), Place::End] {
        let mut c = t.cursor().unwrap();
        c.seek(t.find(place.clone(), None).unwrap()).unwrap();
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

#[test]
fn what_was_before_is_not_known() {
    let scene = Scene::new();
    let program = compile(&scene);
    let running = scene.start(&mut scene.command(program));
    let line = running.first_line();
    let (pid, trace) = (running.id(), scene.path("before.hst"));
    let mut attach = scene.hindsight(&["attach", &pid.to_string(), "--for", "0.2", "-o"]);
    let done = scene.run(attach.arg(&trace));
    assert!(done.status.success(), "{}", done.messages());
    assert!(kill(pid, libc::SIGKILL));
    only_constants_are_known(&trace, &line);
}

#[test]
fn what_a_ring_has_lost_is_not_known() {
    let scene = Scene::new();
    let (program, trace) = (compile(&scene), scene.path("ring.hst"));
    let mut record = scene.hindsight(&["record", "--ring=1M", "--keep-on=always", "-o"]);
    let done = scene.run(record.arg(&trace).arg("--").arg(program).arg("random"));
    assert!(done.status.success(), "{}", done.messages());
    let lost = open(&trace, 0).threads().unwrap();
    assert!(lost[0].from > 0, "the ring has the beginning");
    only_constants_are_known(&trace, &done.text());
}
