//! Ways to a step: gdb leads live programs there, in as many stops as were promised.

use crate::common::compile;
use hindsight_lab::live::{Arrived, State, lead};
use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::path::Path;

pub const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
long cell, other[40]; char text[64];
static void touch(long n) { cell += n; }
static long deep(long n) { return n ? deep(n - 1) + n : cell; }
int main(void) {
    for (long i = 0; i < 30; i++) { touch(i); other[i] = deep(i % 5); }
    memset(text, 'x', sizeof text - 1);
    printf("%ld %ld %s\n", cell, other[7], text);
    for (long i = 0; i < 12; i++) cell ^= i;
    puts("end");
    return 0;
}
"#;

/// No breakpoint tells one time round the loop from another. So the same one has to stop many times.
const LOOP: &str = r#"
#include <stdio.h>
static long step(long n) {
    return n * 3 + 1;
}
int main(int argc, char **argv) {
    long sum = argc;
    for (long i = 0; i < 20000; i++)
        sum = step(sum) ^ i;
    printf("%ld\n", sum);
    return 0;
}
"#;

/// What `breakpath` says of a place, and its exit status.
pub fn ask(s: &Scene, trace: &Path, place: &str, options: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = s.hindsight(&["breakpath", "--json"]);
    let done = s.run(command.arg(trace).arg(place).args(options));
    let json = serde_json::from_slice(&done.stdout).unwrap_or_default();
    (done.status.code(), json, done.messages())
}

pub fn route(s: &Scene, trace: &Path, place: &str, options: &[&str]) -> Value {
    let (status, json, told) = ask(s, trace, place, options);
    assert_eq!(status, Some(0), "{place} {options:?}: {told}");
    json
}

/// Leads a live program to a place.
pub fn arrive(
    s: &Scene,
    trace: &Path,
    place: &str,
    argv: &[&str],
    options: &[&str],
) -> Result<Arrived, String> {
    let mut command = s.hindsight(&["breakpath", "--gdb"]);
    let done = s.run(command.arg(trace).arg(place).args(options));
    assert_eq!(done.status.code(), Some(0), "{place}: {}", done.messages());
    lead(&s.path("."), &done.text(), argv, false, |gdb| {
        let done = s.run(s.command(gdb.get_program()).args(gdb.get_args()));
        done.text() + &done.messages()
    })
}

/// What the recording has at a place.
fn recorded(s: &Scene, trace: &Path, place: &str) -> State {
    let json = |done: Done| -> Value { serde_json::from_slice(&done.stdout).unwrap() };
    let at = json(s.run(s.hindsight(&["at", "--json"]).arg(trace).arg(place)));
    let maps = json(s.run(s.hindsight(&["maps", "--json"]).arg(trace).arg(place)));
    let info = s.info(trace);
    let pid = info["images"][0]["pid"].as_u64().unwrap();
    State::recorded(&at, &maps, pid).unwrap()
}

/// Leads a live program to a place. It must be there in as many stops as were promised. Returns how many.
fn arrives(s: &Scene, trace: &Path, place: &str, argv: &[&str], options: &[&str]) -> u64 {
    let way = route(s, trace, place, options);
    let live = arrive(s, trace, place, argv, options).unwrap();
    assert_eq!(way["stops"], live.stops, "{argv:?} {place}");
    let unlike = recorded(s, trace, place).differences(&live.state);
    assert!(unlike.is_empty(), "{argv:?} {place}: {unlike:?}");
    live.stops
}

/// The position of a call of a function, counted from 0.
pub fn call(s: &Scene, trace: &Path, function: &str, number: usize) -> String {
    let done = s.run(s.hindsight(&["calls", "--json"]).arg(trace).arg(function));
    let calls: Value = serde_json::from_slice(&done.stdout).unwrap();
    let list = calls["calls"].as_array().unwrap();
    list[number]["position"].as_str().unwrap().to_owned()
}

/// The position so many instructions behind another one of the same thread.
fn behind(place: &str, instructions: u64) -> String {
    let (epoch, count) = place.split_once(':').unwrap();
    let count = u64::from_str_radix(count, 16).unwrap() + instructions;
    format!("{epoch}:{count:X}")
}

#[test]
fn a_live_program_arrives_in_as_many_stops_as_promised() {
    let s = Scene::new();
    let program = compile(&s, "program", PROGRAM, &[]);
    let (done, trace) = s.record(&[&program]);
    assert_eq!(done.status.code(), Some(0));
    let mut data = 0;
    for place in ["30%", "94%", "95.5%", "97%", "98%"] {
        let way = route(&s, &trace, place, &[]);
        let settings = way["settings"].as_array().unwrap();
        data += settings.iter().filter(|h| h["kind"] == "access").count();
        assert!(arrives(&s, &trace, place, &[program.to_str().unwrap()], &[]) > 0);
    }
    assert!(data > 0, "no watchpoints");
}

#[test]
fn one_setting_stops_many_times() {
    let s = Scene::new();
    let program = compile(&s, "program", LOOP, &[]);
    let (_, trace) = s.record(&[&program]);
    let way = route(&s, &trace, "50%", &[]);
    let stops = way["stops"].as_u64().unwrap();
    let settings = way["settings"].as_array().unwrap();
    assert!(stops > 1000 && settings.len() < 10, "{way}");
    let hits = settings.iter().map(|h| h["hits"].as_u64().unwrap());
    assert_eq!(hits.sum::<u64>(), stops);
    assert_eq!(
        arrives(&s, &trace, "50%", &[program.to_str().unwrap()], &[]),
        stops
    );
}

/// Instructions that are executed one behind the other count once, and the last steps are looked at in another way than those
/// before. How many stops there are must not depend on where one ends and the other begins, nor on the processor.
#[test]
fn it_does_not_matter_what_is_looked_at_one_by_one() {
    let s = Scene::new();
    let program = compile(&s, "program", LOOP, &[]);
    let programs: [&[&str]; 2] = [
        &["/bin/sh", "-c", "for i in 1 2 3 4 5; do echo $i; done"],
        &[program.to_str().unwrap()],
    ];
    let (mut far, mut found) = (0, 0);
    for argv in programs {
        let (_, trace) = s.record(argv);
        for place in [7.0, 41.0, 77.0, 90.3, 99.0] {
            let place = format!("{place}%");
            let stops = |options: &[&str]| {
                let options = [&["--candidates", "instructions"], options].concat();
                let (_, json, told) = ask(&s, &trace, &place, &options);
                (json["stops"].as_u64(), json["position"].clone(), told)
            };
            let all = stops(&[]);
            for options in [
                &["--limit", "5000"][..],
                &["--limit", "1"],
                &["--processor", "interpreter"],
            ] {
                let other = stops(options);
                assert_eq!(
                    (all.0, &all.1),
                    (other.0, &other.1),
                    "{argv:?} {place} {options:?}: {}",
                    other.2
                );
            }
            found += all.0.is_some() as u32;
            far = far.max(all.0.unwrap_or(0));
        }
    }
    assert!(far > 10 && found > 5, "{found} ways, {far} stops: too easy");
}

#[test]
fn only_what_may_be_set_is_set() {
    let s = Scene::new();
    let program = compile(&s, "program", LOOP, &[]);
    let (_, trace) = s.record(&[&program]);
    let place = call(&s, &trace, "step", 7);
    let any = route(&s, &trace, &place, &[]);
    assert_eq!(any["stops"], any["fewest"]);
    let list = s.path("list");
    let list = list.to_str().unwrap();
    std::fs::write(list, "# the function and a line\nstep\nprogram.c:9\n").unwrap();
    for candidates in ["instructions", "functions", list] {
        let way = route(&s, &trace, &place, &["--candidates", candidates]);
        assert!(way["stops"].as_u64() >= any["stops"].as_u64(), "{way}");
        assert_eq!(way["fewest"], any["stops"]);
        let settings = way["settings"].as_array().unwrap();
        assert!(settings.iter().all(|h| h["kind"] == "break"), "{way}");
        // What it would be if everything counted everywhere is not known.
        let options = ["--candidates", candidates, "--limit", "10"];
        let way = route(&s, &trace, &place, &options);
        assert_eq!(way["fewest"], Value::Null);
        assert!(way["data_from"].is_string());
    }
    let refuses = |candidates: &str, place: &str| {
        let (status, _, told) = ask(&s, &trace, place, &["--candidates", candidates]);
        assert_eq!(status, Some(2), "{told}");
        told
    };
    // No function begins there: it is within `step`.
    let within = behind(&place, 2);
    let told = refuses("functions", &within);
    assert!(told.contains("the last position before"), "{told}");
    for (text, says) in [
        ("step\n  program.c:x\n", "list:2:13: \"x\" is no number"),
        ("\n  stpe\n", "list:2:3: there is no function stpe"),
        ("program+0x99999999", "list:1:1: program has only"),
        ("no-such+0x10", "list:1:1: the program has no file no-such"),
        ("program.c:9999", "list:1:1: no code is known for line 9999"),
        ("# nothing", "lists nothing"),
    ] {
        std::fs::write(list, text).unwrap();
        let told = refuses(list, &place);
        assert!(told.contains(says), "{text:?}: {told}");
    }
}

/// A sample of `hindsight-bench breakpath`.
#[test]
fn real_programs_arrive_in_as_many_stops_as_promised() {
    let s = Scene::new();
    let text = s.path("text");
    std::fs::write(&text, "some words in a line of text\n".repeat(2000)).unwrap();
    let sum = s.path("sum.bc");
    std::fs::write(
        &sum,
        "s=0; for (i = 0; i < 300; i++) s = s + i * i; s; quit\n",
    )
    .unwrap();
    let sed = ["-n", "s/\\([a-z]*\\) \\([a-z]*\\)/\\2 \\1/p"];
    // None that makes hashes of the time, as Lua does.
    for argv in [
        &["/usr/bin/gzip", "-c", text.to_str().unwrap()][..],
        &["/usr/bin/bc", "-q", sum.to_str().unwrap()],
        &["/usr/bin/sed", sed[0], sed[1], text.to_str().unwrap()],
    ] {
        if argv[0] == "/usr/bin/bc" && !Path::new(argv[0]).exists() {
            // Not all machines have it.
            continue;
        }
        let (_, trace) = s.record(argv);
        let mut reached = 0;
        for place in ["20%", "61.3%", "83%", "97.1%"] {
            // Steps are looked at one by one slowly.
            let options = ["--limit", "100000"];
            let (status, _, told) = ask(&s, &trace, place, &options);
            // Some places are in no file, or in the middle of a string instruction's work.
            if status == Some(2) {
                assert!(told.contains("nothing that may be set"), "{told}");
                continue;
            }
            reached += 1;
            arrives(&s, &trace, place, argv, &options);
        }
        assert!(reached >= 3, "{argv:?}: {reached}");
    }
}

/// Other code is executed at the addresses of a file that was unloaded.
#[test]
fn code_where_a_file_was_is_not_that_file() {
    let s = Scene::new();
    let plugin = "int plugin(int n) { int s = 0; for (int i = 0; i < n; i++) s += i; return s; }";
    let plugin = compile(&s, "plugin.so", plugin, &["-shared", "-fPIC"]);
    let source = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
    void *handle = dlopen(argv[1], RTLD_NOW);
    int (*f)(int) = dlsym(handle, "plugin");
    int n = f(2);
    void *page = (void *)((long)f & ~4095L);
    dlclose(handle);
    if (mmap(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page)
        return 3;
    /* mov ecx, 2000000; dec ecx; jnz; mov eax, ecx; ret */
    static const unsigned char loop[] = {0xb9, 0x80, 0x84, 0x1e, 0, 0xff, 0xc9, 0x75, 0xfc, 0x89, 0xc8, 0xc3};
    memcpy((void *)f, loop, sizeof loop);
    printf("%d\n", n + f(0));
    return 0;
}
"#;
    let program = compile(&s, "program", source, &[]);
    let (done, trace) = s.record(&[&program, &plugin]);
    assert_eq!(done.text(), "1\n", "{}", done.messages());
    let (status, json, told) = ask(&s, &trace, "70%", &[]);
    assert_eq!(status, Some(2), "{json}");
    assert!(told.contains("nothing that may be set"), "{told}");
}

/// A file that the program maps once more, below, does not have other offsets because of that.
#[test]
fn a_file_that_is_mapped_twice_is_not_mistaken() {
    let s = Scene::new();
    let source = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
long sum;
static int compare(const void *a, const void *b) { sum++; return *(int *)a - *(int *)b; }
static void mark(void) { sum ^= 1; }
static void work(void) {
    int v[64];
    for (int i = 0; i < 64; i++) v[i] = i * 37 % 64;
    qsort(v, 64, sizeof *v, compare);
    mark();
}
int main(int argc, char **argv) {
    char path[4096] = "", line[8192];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "libc.so") || strstr(line, "libc-"))
            sscanf(strchr(line, '/'), "%4095s", path);
    fclose(maps);
    work();
    int file = open(path, O_RDONLY);
    void *again = mmap(0, 4096 * 400, PROT_READ, MAP_PRIVATE, file, 0);
    if (file < 0 || again == MAP_FAILED) return 3;
    munmap(again, 4096 * 400);
    work();
    printf("%ld\n", sum);
    return 0;
}
"#;
    let program = compile(&s, "program", source, &[]);
    let argv = [program.to_str().unwrap()];
    let (done, trace) = s.record(&[&program]);
    assert_eq!(done.status.code(), Some(0));
    let (mut libc, mut reached) = (0, 0);
    for number in [0, 1] {
        let mark = call(&s, &trace, "mark", number);
        // Some of these are in libc, which calls `compare`.
        for back in [0, 60, 130, 190, 260, 330, 400] {
            let (_, count) = mark.split_once(':').unwrap();
            let at = u64::from_str_radix(count, 16).unwrap() - back;
            let place = format!("0:{at:X}");
            let (status, way, told) = ask(&s, &trace, &place, &[]);
            if status == Some(2) {
                // The recording has libc in two places now, so it is left out.
                assert!(told.contains("nothing that may be set"), "{told}");
                assert_eq!(number, 1, "{told}");
                continue;
            }
            let settings = way["settings"].as_array().unwrap();
            let in_libc = |h: &&Value| h["module"].as_str().unwrap().contains("/libc");
            libc += settings.iter().filter(in_libc).count();
            reached += 1;
            arrives(&s, &trace, &place, &argv, &[]);
        }
    }
    assert!(
        libc > 0 && reached >= 8,
        "{libc} in libc, {reached} reached"
    );
}

/// What an instruction accesses is looked up anew where the program changes its code.
#[test]
fn data_of_code_that_changes_is_that_of_the_new_code() {
    let s = Scene::new();
    let source = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
long a __attribute__((aligned(64))), b __attribute__((aligned(64)));
__asm__(".pushsection .patch,\"ax\",@progbits\n.balign 4096\n"
        "f: addq $1, a(%rip)\n ret\n.balign 4096\n.popsection");
extern char f[];
static void mark(void) { __asm__ volatile(""); }
int main(void) {
    void (*g)(void) = (void *)f;
    for (int i = 0; i < 3; i++) g();
    mprotect(f, 4096, 7);
    int d;
    memcpy(&d, f + 3, 4);
    d += (char *)&b - (char *)&a;
    memcpy(f + 3, &d, 4);
    mprotect(f, 4096, 5);
    for (int i = 0; i < 3; i++) { g(); mark(); }
    printf("%ld %ld\n", a, b);
    return 0;
}
"#;
    let program = compile(&s, "program", source, &[]);
    let (done, trace) = s.record(&[&program]);
    assert_eq!(done.text(), "3 3\n", "{}", done.messages());
    let argv = [program.to_str().unwrap()];
    let mut reached = 0;
    for number in 0..3 {
        let mark = call(&s, &trace, "mark", number);
        let (_, count) = mark.split_once(':').unwrap();
        let mark = u64::from_str_radix(count, 16).unwrap();
        for back in 0..4 {
            let place = format!("0:{:X}", mark - back);
            for options in [&[][..], &["--processor", "interpreter"]] {
                let (status, _, told) = ask(&s, &trace, &place, options);
                if status == Some(2) {
                    assert!(told.contains("nothing that may be set"), "{told}");
                    continue;
                }
                reached += 1;
                arrives(&s, &trace, &place, &argv, options);
            }
        }
    }
    // Where only the access of changed code stops, nothing may be set: what it stops at is not certain.
    assert!(reached >= 6, "{reached} reached");
}

/// What can only be set too late is told from what does not stop there.
#[test]
fn data_that_counts_too_late_leads_nowhere() {
    let s = Scene::new();
    let program = compile(&s, "program", PROGRAM, &[]);
    let (_, trace) = s.record(&[&program]);
    // Behind the push of the call's first instruction, the third one adds to `cell`.
    let touch = call(&s, &trace, "touch", 20);
    let data = ["--candidates", "data"];
    let place = (0..12)
        .map(|n| behind(&touch, n))
        .find(|place| ask(&s, &trace, place, &data).0 == Some(0))
        .expect("nothing accesses data");
    let options = [&data[..], &["--limit", "1000"]].concat();
    let (status, _, told) = ask(&s, &trace, &place, &options);
    assert_eq!(status, Some(2), "{told}");
    assert!(
        told.contains("nothing leads there from the start"),
        "{told}"
    );
    assert!(told.contains("(--limit)"), "{told}");
}

/// What one instruction may access is not kept without bound. Data then counts from a later step on.
#[test]
fn an_instruction_that_accesses_much_does_not_take_all_memory() {
    let s = Scene::new();
    let source = r#"
#include <stdio.h>
static char big[1 << 24] = {1};
long cell;
static void step(long n) { cell += n; }
int main(void) {
    for (int i = 0; i < 4; i++) {
        void *at = big;
        long count = sizeof big;
        __asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(i) : "memory");
    }
    for (long i = 0; i < 40; i++) step(i);
    printf("%ld\n", cell);
    return 0;
}
"#;
    let program = compile(&s, "program", source, &[]);
    let (_, trace) = s.record(&[&program]);
    let place = call(&s, &trace, "step", 30);
    let way = route(&s, &trace, &place, &[]);
    assert!(way["data_from"].is_string(), "{way}");
    let argv = [program.to_str().unwrap()];
    assert!(arrives(&s, &trace, &place, &argv, &[]) > 0);
}

#[test]
fn says_what_it_cannot_do() {
    let s = Scene::new();
    let ask = |text: &str, args: &[&str]| {
        let program = compile(&s, "program", text, &[]);
        let (_, trace) = s.record(&[&program]);
        let done = s.run(s.hindsight(&["breakpath"]).arg(&trace).args(args));
        assert_eq!(done.status.code(), Some(2), "{}", done.text());
        done.messages()
    };
    let plain = "int main(void) { return 0; }";
    assert!(
        ask(plain, &["99%", "--candidates", "no-such"])
            .contains("--candidates no-such: no such file")
    );
    assert!(ask(plain, &["99%", "--gdb", "--lldb"]).contains("--lldb"));
    assert!(ask(plain, &["FFFFFFFF:0"]).contains("no position"));
    let signal = "#include <signal.h>\nvoid on(int n) {}\nint main(void) { signal(SIGUSR1, on); raise(SIGUSR1); return 0; }";
    assert!(ask(signal, &["end"]).contains("a signal arrives at"));
    let thread = "#include <pthread.h>\nvoid *f(void *p) { return p; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); return 0; }";
    assert!(ask(thread, &["end"]).contains("other threads"));
}
