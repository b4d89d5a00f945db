//! Ways to a step with hit counts and restrictions, and live programs that `hindsight` leads there itself.

use crate::common::compile;
use hindsight_lab::Scene;
use serde_json::Value;
use std::path::Path;

/// What `breakpath` says of a place, and its exit status.
fn ask(s: &Scene, trace: &Path, place: &str, options: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = s.hindsight(&["breakpath", "--json"]);
    let done = s.run(command.arg(trace).arg(place).args(options));
    let json = serde_json::from_slice(&done.stdout).unwrap_or_default();
    (done.status.code(), json, done.messages())
}

fn route(s: &Scene, trace: &Path, place: &str, options: &[&str]) -> Value {
    let (status, json, told) = ask(s, trace, place, options);
    assert_eq!(status, Some(0), "{place} {options:?}: {told}");
    json
}

/// Runs the live program.
fn lead(s: &Scene, trace: &Path, place: &str) -> (Option<i32>, Value, String) {
    // Steps are looked at one by one slowly.
    ask(s, trace, place, &["--run", "--yes", "--limit", "100000"])
}

/// The position of a call of a function, counted from 0.
fn call(s: &Scene, trace: &Path, function: &str, number: usize) -> String {
    let done = s.run(s.hindsight(&["calls", "--json"]).arg(trace).arg(function));
    let calls: Value = serde_json::from_slice(&done.stdout).unwrap();
    let list = calls["calls"].as_array().unwrap();
    list[number]["position"].as_str().unwrap().to_owned()
}

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

#[test]
fn one_setting_stops_many_times() {
    let s = Scene::new();
    let program = compile(&s, "program", LOOP, &[]);
    let (_, trace) = s.record(&[&program]);
    let way = route(&s, &trace, "50%", &[]);
    let total = way["total"].as_u64().unwrap();
    let settings = way["stops"].as_array().unwrap();
    assert!(total > 1000 && settings.len() < 10, "{way}");
    let hits: u64 = settings.iter().map(|h| h["hits"].as_u64().unwrap()).sum();
    assert_eq!(hits, total);
    let (status, json, _) = lead(&s, &trace, "50%");
    assert_eq!(
        (status, &json["reached"]),
        (Some(0), &true.into()),
        "{json}"
    );
    assert_eq!(
        (&json["stops"], &json["promised"]),
        (&total.into(), &total.into())
    );
    // What counts the times round is compared.
    assert_eq!(json["difference"], Value::Null, "{json}");
    let last = settings.last().unwrap();
    let offset = last["offset"].as_str().unwrap();
    for (tool, counts) in [
        ("--gdb", "stop.ignore_count = hits - 1"),
        ("--lldb", "stop.SetIgnoreCount(hits - 1)"),
    ] {
        let done = s.run(s.hindsight(&["breakpath", tool]).arg(&trace).arg("50%"));
        let text = done.text();
        let line = format!(", {offset}, {}),", last["hits"]);
        assert!(text.contains(&line) && text.contains(counts), "{text}");
        assert!(text.contains(&format!("in {total} stops")), "{text}");
    }
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
            let total = |options: &[&str]| {
                let options = [&["--candidates", "instructions"], options].concat();
                let (_, json, told) = ask(&s, &trace, &place, &options);
                (json["total"].as_u64(), json["position"].clone(), told)
            };
            let all = total(&[]);
            for options in [
                &["--limit", "5000"][..],
                &["--limit", "1"],
                &["--processor", "interpreter"],
            ] {
                let other = total(options);
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
    assert_eq!(any["total"], any["fewest"]);
    let list = s.path("list");
    let list = list.to_str().unwrap();
    std::fs::write(list, "# the function and a line\nstep\nprogram.c:9\n").unwrap();
    for candidates in ["instructions", "functions", list] {
        let way = route(&s, &trace, &place, &["--candidates", candidates]);
        assert!(way["total"].as_u64() >= any["total"].as_u64(), "{way}");
        assert_eq!(way["fewest"], any["total"]);
        let stops = way["stops"].as_array().unwrap();
        assert!(stops.iter().all(|h| h["kind"] == "break"), "{way}");
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
    // No function begins there.
    let told = refuses("functions", "60%");
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
    let text = text.to_str().unwrap();
    let sql = "create table t(a); insert into t values(1),(2),(3); select sum(a) from t;";
    let sum = "s=0; for ((i=0; i<90; i++)); do s=$((s+i)); done; echo $s";
    let python = "print(sum(i % 7 for i in range(5000)))";
    for argv in [
        &["/usr/bin/gzip", "-c", text][..],
        &["/usr/bin/sqlite3", ":memory:", sql],
        &["/usr/bin/bash", "-c", sum],
        &["/usr/bin/python3", "-S", "-c", python],
    ] {
        let (_, trace) = s.record(argv);
        let mut reached = 0;
        for place in ["20%", "61.3%", "83%", "97.1%"] {
            let (status, json, told) = lead(&s, &trace, place);
            // Some places are in no file, or in the middle of a string instruction's work.
            if status == Some(2) {
                assert!(told.contains("nothing that may be set"), "{told}");
                continue;
            }
            assert_eq!(status, Some(0), "{argv:?} {place}: {json}");
            assert_eq!(json["reached"], true);
            assert_eq!(json["stops"], json["promised"]);
            reached += 1;
        }
        assert!(reached >= 2, "{argv:?}: {reached}");
    }
}

#[test]
fn only_the_recorded_program_is_run() {
    let s = Scene::new();
    let program = compile(&s, "program", LOOP, &[]);
    let (_, trace) = s.record(&[&program]);
    assert_eq!(lead(&s, &trace, "90%").0, Some(0));
    // Nobody can be asked.
    let (status, _, told) = ask(&s, &trace, "90%", &["--run"]);
    assert_eq!(status, Some(2));
    assert!(told.contains("--yes does it"), "{told}");
    // Another program in its place.
    compile(&s, "program", "int main(void) { return 3; }", &[]);
    let (status, _, told) = lead(&s, &trace, "90%");
    assert_eq!(status, Some(2));
    assert!(told.contains("is not the file that was recorded"), "{told}");
    std::fs::remove_file(&program).unwrap();
    assert_eq!(lead(&s, &trace, "90%").0, Some(2));
}

/// A run that takes another way is noticed.
#[test]
fn a_run_that_differs_says_where() {
    let s = Scene::new();
    let text = s.path("text");
    let source = r#"
#include <stdio.h>
static int first(int n) { return n + 1; }
static int second(int n) { return n + 2; }
int main(int argc, char **argv) {
    FILE *f = fopen(argv[1], "r");
    int n = 0;
    for (int i = 0, c; (c = getc(f)) != EOF; i++) n = c == 'a' ? first(n) : second(n);
    printf("%d\n", n);
    return 0;
}
"#;
    let program = compile(&s, "program", source, &[]);
    std::fs::write(&text, "abaabbab").unwrap();
    let (_, trace) = s.record(&[program.to_str().unwrap(), text.to_str().unwrap()]);
    let place = call(&s, &trace, "second", 2);
    let (status, json, told) = lead(&s, &trace, &place);
    assert_eq!(status, Some(0), "{json} {told}");
    // There is no such call now.
    std::fs::write(&text, "aaaaaaaa").unwrap();
    let (status, json, told) = lead(&s, &trace, &place);
    assert_eq!(
        (status, &json["reached"]),
        (Some(1), &false.into()),
        "{json} {told}"
    );
    let ended = "ended with status 0";
    assert_eq!(json["difference"]["live"], ended, "{json}");
    // The same calls with other numbers: the place is right, and a register says what is not.
    std::fs::write(&text, "bbabbbab").unwrap();
    let (status, json, _) = lead(&s, &trace, &place);
    if status == Some(0) {
        assert!(json["difference"].is_object(), "{json}");
    }
}
