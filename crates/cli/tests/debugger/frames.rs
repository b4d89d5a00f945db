//! Call stacks of ordinary programs, compared with gdb's frame by frame.

use crate::arguments::{build, rustc};
use crate::common::gdb;
use hindsight_lab::Scene;
use serde_json::Value;
use std::path::Path;

const CPP: &str = r#"
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#define OUT __attribute__((noinline, noclone))
namespace shop {
OUT void note(int n) { __asm__ volatile("" :: "r"(n) : "memory"); }
struct Item { std::string name; int price; };
struct ByPrice { OUT bool operator()(const Item &a, const Item &b) const { note(a.price); return a.price < b.price; } };
struct Guard { ~Guard() { note(-7); } };
OUT int check(const std::vector<Item> &all, int most) {
    int sum = 0;
    for (auto &i : all) { if (i.price > most) throw std::runtime_error(i.name); sum += i.price; }
    return sum;
}
OUT int guarded(const std::vector<Item> &all, int most) { Guard g; return check(all, most) + 1; }
template <class F> OUT int each(const std::vector<Item> &all, F f) { int n = 0; for (auto &i : all) n += f(i); return n; }
struct Shape { virtual int area(int n) const = 0; virtual ~Shape() {} };
struct Square : Shape { OUT int area(int n) const override { note(n); return n * n; } };
OUT int deep(int n) { if (n == 0) { note(400); return 1; } return deep(n - 1) * 2 + n; }
}
using namespace shop;
int main(int argc, char **argv) {
    std::vector<Item> all;
    for (int i = 0; i < 40; i++) all.push_back({ std::string(20 + i, 'a'), i * 37 % 41 });
    std::sort(all.begin(), all.end(), ByPrice());
    int sum = each(all, [&](const Item &i) { note(100 + argc); return i.price; });
    std::unique_ptr<Shape> shape(new Square);
    sum += shape->area(argc + 2);
    try { sum += guarded(all, 30); } catch (const std::exception &e) { note(200); }
    std::function<int(int)> later = [&](int n) { note(n + 300); return n; };
    sum += later(argc);
    sum += deep(5);
    if (sum) std::abort();
    return 0;
}
"#;

const RUST: &str = r#"
use std::hint::black_box;
#[inline(never)]
fn note(n: i64) { black_box(n); }
struct Shop { items: Vec<(String, i64)> }
impl Shop {
    #[inline(never)]
    fn total<F: Fn(i64) -> i64>(&self, f: F) -> i64 { self.items.iter().map(|(_, p)| f(*p)).sum() }
}
trait Shape { fn area(&self) -> i64; }
struct Square(i64);
impl Shape for Square { fn area(&self) -> i64 { note(self.0); self.0 * self.0 } }
struct Guard(i64);
impl Drop for Guard { fn drop(&mut self) { note(self.0); } }
#[inline(never)]
fn deep(n: i64) -> i64 { let _guard = Guard(n); if n == 0 { note(400); return 1; } deep(n - 1) * 2 + n }
fn main() {
    let mut items: Vec<(String, i64)> = (0..40).map(|i| (format!("item {i}"), i * 37 % 41)).collect();
    items.sort_by(|a, b| { note(a.1); a.1.cmp(&b.1) });
    let (shop, k) = (Shop { items }, black_box(3));
    let mut sum = shop.total(|p| { note(p + k); p });
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(k)), Box::new(Square(k + 1))];
    sum += shapes.iter().map(|s| s.area()).sum::<i64>();
    let thread = std::thread::spawn(move || { note(1000 + k); deep(k) });
    sum += thread.join().unwrap();
    let later: Box<dyn Fn(i64) -> i64> = Box::new(move |n| { note(n); n + k });
    sum += later(300) + deep(2);
    if black_box(sum) != 0 { std::process::abort(); }
}
"#;

/// A frame: the last part of the function's name, and the source line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    function: String,
    line: Option<u64>,
}

/// A name without types: each tool writes these in its own way.
fn plain(name: &str) -> String {
    let name = name.replace("operator()", "operator_call");
    let mut depth = 0;
    let kept: String = name
        .chars()
        .filter(|c| {
            depth += "<({".contains(*c) as i32;
            let keep = depth == 0;
            depth -= ">)}".contains(*c) as i32;
            keep
        })
        .collect();
    let kept = kept.trim_end_matches(" const");
    let closure = name.trim_end().ends_with("{{closure}}")
        || name.contains("closure#") && kept.ends_with("::");
    let last = kept.rsplit("::").next().unwrap_or_default();
    match closure || last.is_empty() {
        true => "closure".into(),
        false => last.rsplit(' ').next().unwrap_or_default().into(),
    }
}

/// The part from the program's own innermost function to its beginning. gdb does not go beyond the beginning. Above,
/// the C library ends a program through functions of its own, and gdb leaves out some with inlined parts.
fn to_main(mut all: Vec<Seen>) -> Vec<Seen> {
    let own = |f: &Seen| ["note", "main"].contains(&f.function.as_str());
    all.drain(..all.iter().position(own).unwrap_or(0));
    if let Some(main) = all.iter().position(|f| f.function == "main") {
        all.truncate(main + 1);
    }
    all
}

/// The stack at a place, from `hindsight backtrace`.
fn mine(s: &Scene, trace: &Path, place: &str) -> Vec<Seen> {
    let done = s.run(s.hindsight(&["backtrace", "--json"]).arg(trace).arg(place));
    assert!(done.status.success(), "{}", done.messages());
    let all: Value = serde_json::from_slice(&done.stdout).unwrap();
    let mut out = Vec::new();
    for frame in all.as_array().unwrap() {
        let inner = frame["frames"].as_array().unwrap();
        for f in inner {
            let name = f["function"].as_str().unwrap_or("??");
            out.push(Seen {
                function: plain(name),
                line: f["line"].as_u64(),
            });
        }
        if inner.is_empty() {
            let name = frame["place"]["function"].as_str().unwrap_or("??");
            out.push(Seen {
                function: plain(name),
                line: None,
            });
        }
    }
    to_main(out)
}

/// The stacks at these places, from gdb.
fn gdbs(s: &Scene, trace: &Path, places: &[String]) -> Vec<Vec<Seen>> {
    let mut script = String::from("set print frame-arguments none\nset print entry-values no\n");
    for p in places {
        script += &format!("seek {p}\necho STACK\\n\nbacktrace\necho END\\n\n");
    }
    let out = gdb(s, trace, &script);
    let stacks = out.split("STACK\n").skip(1).map(|part| {
        let part = part.split("END\n").next().unwrap_or_default();
        let lines = part.lines().map(|l| l.trim_start_matches("(gdb) "));
        to_main(lines.filter_map(seen).collect())
    });
    let stacks: Vec<_> = stacks.collect();
    assert_eq!(stacks.len(), places.len(), "{out}");
    stacks
}

/// `#1  0x… in shop::deep (n=…) at program.cpp:30`
fn seen(l: &str) -> Option<Seen> {
    let rest = l.strip_prefix('#')?.split_once(' ')?.1.trim_start();
    let rest = match rest.starts_with("0x") {
        true => rest.split_once(" in ")?.1,
        false => rest,
    };
    // The arguments are in the last parentheses with a blank before them.
    let (name, behind) = rest.rsplit_once(" (").unwrap_or((rest, ""));
    let line = behind.rsplit_once(':').and_then(|(_, n)| n.parse().ok());
    Some(Seen {
        function: plain(name),
        line,
    })
}

/// Compares at some calls of `note`, of each kind, and at the crash. `lines`: source lines must agree, too. A compiler
/// may mix the instructions of several lines. gdb then names the last line that began as a whole.
fn compare(s: &Scene, trace: &Path, function: &str, name: &str, lines: bool) {
    let done = s.run(s.hindsight(&["calls", "--json"]).arg(trace).arg(function));
    assert!(done.status.success(), "{}", done.messages());
    let calls: Value = serde_json::from_slice(&done.stdout).unwrap();
    let calls = calls["calls"].as_array().unwrap();
    assert!(calls.len() > 50, "{calls:?}");
    let at = |c: &Value| c["position"].as_str().unwrap().to_string();
    // Sorting makes most of the calls.
    let first = calls.iter().step_by(calls.len() / 8);
    let last = calls.iter().rev().take(20).step_by(2);
    let mut places: Vec<String> = first.chain(last).map(at).collect();
    places.push("crash".into());
    let theirs = gdbs(s, trace, &places);
    for (place, mut theirs) in places.iter().zip(theirs) {
        let mut mine = mine(s, trace, place);
        if !lines {
            mine.iter_mut()
                .chain(&mut theirs)
                .for_each(|f| f.line = None);
        }
        assert_eq!(mine, theirs, "{name} at {place}");
    }
}

#[test]
fn of_cpp_they_are_those_of_gdb() {
    for level in ["-O0", "-O2"] {
        let s = Scene::new();
        let program = build(&s, "shop.cpp", CPP, &["g++", "-g", "-std=c++17", level]);
        let (_, trace) = s.record(&[&program]);
        compare(&s, &trace, "shop::note", level, level == "-O0");
    }
}

#[test]
fn of_rust_they_are_those_of_gdb() {
    let compiler = rustc();
    for level in ["0", "3"] {
        let s = Scene::new();
        let opt = format!("-Copt-level={level}");
        let program = build(
            &s,
            "shop.rs",
            RUST,
            &[compiler.to_str().unwrap(), "-g", &opt],
        );
        let (_, trace) = s.record(&[&program]);
        compare(&s, &trace, "shop::note", &opt, level == "0");
    }
}
