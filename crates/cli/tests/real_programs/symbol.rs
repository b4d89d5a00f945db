//! `hindsight symbol`, compared with `nm`, with `addr2line`, and with the addresses that the program shows.

use hindsight_lab::{Done, Scene, hex};
use serde_json::Value;
use std::path::{Path, PathBuf};

const PROGRAM: &str = r#"#include <stdio.h>
static inline __attribute__((always_inline)) long twice(long x)
{
    return x * 2 + *(volatile long *) &x;
}
long table[3] = {1, 2, 3};
static int zeros[5];
__attribute__((noinline)) long work(long n)
{
    return twice(n) + zeros[n % 5];
}
int main(void)
{
    printf("%p %p %p\n", (void *) work, (void *) table, (void *) zeros);
    return work(5) == 0;
}
"#;

/// A recording of the program, the program, and the addresses of `work`, `table` and `zeros`.
fn record(s: &Scene) -> (PathBuf, PathBuf, Vec<String>) {
    std::fs::write(s.path("symbols.c"), PROGRAM).unwrap();
    let program = s.path("symbols");
    tool(
        s,
        "gcc",
        &["-g", "-O1", "-pie", "-o", "symbols", "symbols.c"],
    );
    let (done, trace) = s.record(&[program.as_os_str()]);
    assert!(done.status.success(), "{}", done.messages());
    let shown = done.text().split_whitespace().map(String::from).collect();
    (trace, program, shown)
}

fn tool(s: &Scene, name: &str, args: &[&str]) -> String {
    let done = s.run(s.command(name).args(args));
    assert!(done.status.success(), "{name}: {}", done.messages());
    done.text()
}

fn ask(s: &Scene, trace: &Path, words: &[&str]) -> Done {
    s.run(s.hindsight(&["symbol"]).arg(trace).args(words))
}

fn json(s: &Scene, trace: &Path, words: &[&str]) -> Vec<Value> {
    let done = ask(s, trace, &[&["--json"], words].concat());
    let all: Value = serde_json::from_slice(&done.stdout).unwrap();
    all["answers"].as_array().unwrap().clone()
}

#[test]
fn names_stand_for_what_nm_and_the_program_say() {
    let s = Scene::new();
    let (trace, program, shown) = record(&s);
    let names = ["work", "table", "zeros"];
    let listed = tool(&s, "nm", &["-S", "symbols"]);
    let answers = json(&s, &trace, &names);
    for (i, line) in [(0, 8), (1, 6), (2, 7)] {
        let found = answers[i]["symbols"].as_array().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        let one = &found[0];
        assert_eq!(one["name"], names[i]);
        assert_eq!(one["address"], *shown[i]);
        assert_eq!(one["module"], program.to_str().unwrap());
        assert_eq!(one["file"], s.path("symbols.c").to_str().unwrap());
        assert_eq!(one["line"], line, "{one}");
        // Address, size, letter, name.
        let is = |l: &&str| l.split_whitespace().last() == Some(names[i]);
        let row = listed.lines().find(is).unwrap();
        let mut row = row.split_whitespace().map(|n| u64::from_str_radix(n, 16));
        assert_eq!(hex(&one["file_address"]), row.next().unwrap().ok());
        assert_eq!(one["size"].as_u64(), row.next().unwrap().ok());
    }
    let text = ask(&s, &trace, &["symbols!work", "libc!printf"]);
    assert_eq!(text.status.code(), Some(0), "{}", text.messages());
    let text = text.text();
    let lines: Vec<&str> = text.lines().collect();
    let (size, source) = (&answers[0]["symbols"][0]["size"], s.path("symbols.c"));
    assert!(lines[0].starts_with(&format!("{} work ({size} bytes) in ", shown[0])));
    assert!(lines[0].ends_with(&format!(" at {}:8", source.display())));
    assert!(lines[1].contains("libc.so"), "{text}");
}

#[test]
fn addresses_belong_to_what_addr2line_says() {
    let s = Scene::new();
    let (trace, program, shown) = record(&s);
    let start = u64::from_str_radix(&shown[0][2..], 16).unwrap();
    let size = json(&s, &trace, &["work"])[0]["symbols"][0]["size"].as_u64();
    let mut inlined = 0;
    for distance in 0..size.unwrap() {
        // Every other one in decimal.
        let asked = match distance % 2 {
            0 => format!("{:#x}", start + distance),
            _ => format!("{}", start + distance),
        };
        let one = &json(&s, &trace, &[&asked])[0];
        assert_eq!(one["address"], format!("{:#x}", start + distance));
        assert_eq!(one["place"]["function"], "work");
        assert_eq!(one["place"]["distance"], distance);
        assert_eq!(one["place"]["module"], program.to_str().unwrap());
        let at = one["place"]["address"].as_str().unwrap();
        let said = tool(&s, "addr2line", &["-i", "-f", "-e", "symbols", at]);
        let said: Vec<&str> = said.lines().collect();
        let frames = one["frames"].as_array().unwrap();
        assert_eq!(2 * frames.len(), said.len(), "{one}: {said:?}");
        for (frame, said) in frames.iter().zip(said.chunks(2)) {
            assert_eq!(frame["function"], said[0], "{one}");
            let place = format!("{}:{}", frame["file"].as_str().unwrap(), frame["line"]);
            // There may be a discriminator behind it.
            assert_eq!(said[1].split(' ').next(), Some(&*place), "{one}");
        }
        inlined += (frames.len() > 1) as u64;
    }
    assert!(inlined > 0);
    // Data belongs to a module, but to no function.
    for data in &shown[1..] {
        let done = ask(&s, &trace, &[data]);
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        let text = done.text();
        let wanted = format!("{data} ? in {}+0x", program.display());
        assert!(text.starts_with(&wanted), "{text}");
        assert!(text.trim_end().ends_with(" at ?"), "{text}");
    }
}

#[test]
fn what_is_not_found_is_shown_as_unknown() {
    let s = Scene::new();
    let (trace, _, shown) = record(&s);
    let done = ask(&s, &trace, &["0x10", "wrok", &shown[0]]);
    assert_eq!(done.status.code(), Some(1), "{}", done.text());
    let text = done.text();
    let wanted = "0x10 ? in ? at ?\n? wrok (? bytes) in ? at ?\n0x";
    assert!(text.starts_with(wanted), "{text}");
    let said = done.messages();
    assert!(said.contains("no function or variable wrok"), "{said}");
    assert!(said.contains("did you mean") && said.contains("work"));
    let answers = json(&s, &trace, &["0x10", "wrok", &shown[0]]);
    let found: Vec<&Value> = answers.iter().map(|a| &a["found"]).collect();
    assert_eq!(found, [false, false, true]);
    assert!(answers[0]["place"].is_null());
    assert!(answers[1]["symbols"].as_array().unwrap().is_empty());
}

#[test]
fn a_place_says_what_is_mapped() {
    let s = Scene::new();
    let (trace, _, shown) = record(&s);
    let file = trace.to_str().unwrap();
    let status = |first: &str, name: &str| {
        let done = s.run(&mut s.hindsight(&["symbol", first, name]));
        (done.status.code(), done.messages())
    };
    // The C library comes later.
    assert_eq!(status(&format!("{file}@begin"), "libc!printf").0, Some(1));
    assert_eq!(status(&format!("{file}@begin"), &shown[0]).0, Some(0));
    assert_eq!(status(&format!("{file}@end"), "libc!printf").0, Some(0));
    let (code, said) = status(&format!("{file}@nowhere"), "work");
    assert_eq!(code, Some(2));
    assert!(said.contains("nowhere is no place"), "{said}");
    // A file whose own name has an @, and a name of which none of the parts is a recording or a place.
    let other = s.path("a@end");
    std::fs::copy(&trace, &other).unwrap();
    assert_eq!(status(other.to_str().unwrap(), "work").0, Some(0));
    let stored = s.run(s.hindsight(&["record", "-q", "--"]).arg(s.path("symbols")));
    assert!(stored.status.success());
    assert_eq!(status("@begin", "work").0, Some(0));
    let (code, said) = status("work@VERSION", "work");
    assert_eq!(code, Some(1));
    assert!(said.contains("variable work@VERSION"), "{said}");
}
