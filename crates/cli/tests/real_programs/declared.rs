//! `hindsight declare`: what a library's header says decides what is carried over its calls.

use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::path::{Path, PathBuf};

const HEADER: &str = r#"#ifndef MINE_H
#define MINE_H
#include <stddef.h>
struct node { int value; struct node *next; };
/* It reads all, and writes nothing. */
int mine_sum(const struct node *first) __attribute__((pure));
/* It writes at most so many bytes there. */
int mine_fill(char *to, size_t most) __attribute__((access(write_only, 1, 2)));
/* It may write to whatever the nodes lead to. */
int mine_change(struct node *first) __attribute__((access(read_write, 1)));
/* Nothing is said. */
int mine_any(char *to);
#endif
"#;

const LIBRARY: &str = r#"#include "mine.h"
int mine_sum(const struct node *n)
{
    int sum = 0;
    for (; n; n = n->next)
        sum += n->value;
    return sum;
}
int mine_fill(char *to, size_t most)
{
    size_t i;
    for (i = 0; i + 1 < most; i++)
        to[i] = 'x';
    return (int) i;
}
int mine_change(struct node *n)
{
    for (; n; n = n->next)
        n->value++;
    return 0;
}
int mine_any(char *to)
{
    return to[0] = 'y';
}
"#;

const PROGRAM: &str = r#"#include "mine.h"
struct node last = {2, 0}, first = {1, &last};
char kept[8], buffer[8];
__attribute__((noinline)) void stage(int n)
{
    __asm__ volatile("" :: "r"(n) : "memory");
}
int main(void)
{
    for (int i = 0; i < 7; i++) {
        kept[i] = "kept..."[i];
        buffer[i] = "buffer."[i];
    }
    int sum = mine_sum(&first);
    stage(0);
    sum += mine_fill(buffer, 4);
    stage(1);
    sum += mine_change(&first);
    stage(2);
    sum += mine_any(buffer);
    stage(3);
    return sum == 0;
}
"#;

fn tool(s: &Scene, args: &[&str]) {
    let done = s.run(s.command("gcc").args(args));
    assert!(done.status.success(), "{}", done.messages());
}

fn declare(s: &Scene, args: &[&str]) -> Done {
    s.run(s.hindsight(&["declare"]).args(args))
}

/// A recording of the program without its library.
fn part(s: &Scene) -> PathBuf {
    for (name, text) in [("mine.h", HEADER), ("mine.c", LIBRARY), ("user.c", PROGRAM)] {
        std::fs::write(s.path(name), text).unwrap();
    }
    tool(
        s,
        &["-shared", "-fPIC", "-O1", "-o", "libmine.so.1", "mine.c"],
    );
    tool(
        s,
        &[
            "-g",
            "-O1",
            "-o",
            "user",
            "user.c",
            "./libmine.so.1",
            "-Wl,-rpath,$ORIGIN",
        ],
    );
    let trace = s.path("part.hst");
    let mut command = s.hindsight(&["record", "--quiet", "--only-module", "user", "-o"]);
    let done = s.run(command.arg(&trace).arg("--").arg(s.path("user")));
    assert!(done.status.success(), "{}", done.messages());
    trace
}

/// What `mem` shows of a variable at a stage: carried bytes, and `?` for what is neither known nor carried.
fn shown(s: &Scene, trace: &Path, declared: &[&str], stage: usize, variable: &str) -> String {
    let ask = |args: &[&str], words: &[&str]| {
        let done = s.run(s.hindsight(args).arg(trace).args(words));
        assert!(done.status.success(), "{}", done.messages());
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let calls = ask(&["calls", "--no-args", "--json"], &["stage"]);
    let place = calls["calls"][stage]["position"].as_str().unwrap();
    let m = ask(
        &[&["mem", "--json"], declared].concat(),
        &[place, variable, "7"],
    );
    let address = |of: &Value| {
        let text = of["address"].as_str().unwrap();
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    };
    let mut out = vec![b'?'; 7];
    for c in m["carried"].as_array().unwrap() {
        let from = (address(c) - address(&m)) as usize;
        for (n, byte) in c["bytes"].as_array().unwrap().iter().enumerate() {
            out[from + n] = byte.as_u64().unwrap() as u8;
        }
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn memory_is_carried_by_what_a_header_says() {
    let s = Scene::new();
    let trace = part(&s);
    let header = s.path("mine.h");
    let header = header.to_str().unwrap();
    let file = s.path("mine.txt");
    let file = file.to_str().unwrap();
    let done = declare(&s, &["--file", "libmine.so", header, "-o", file]);
    assert!(
        done.status.success() && done.stdout.is_empty(),
        "{}",
        done.messages()
    );
    let text = std::fs::read_to_string(file).unwrap();
    for line in [
        "\nmine_sum(heap)  # pure\n",
        "\nmine_fill(w:0[1] stdio)  # access(write_only, 1, 2)\n",
        "\n# mine_change: parameter 1 leads to struct node, which has pointers\n",
        "\n# perhaps mine_any(w:0.. stdio): by type: 1 is not const\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let mem = |stage, variable| shown(&s, &trace, &["--declared", file], stage, variable);
    // Over the call of a pure function.
    assert_eq!(mem(0, "kept"), "kept...");
    assert_eq!(mem(0, "buffer"), "buffer.");
    // What its attribute says that it writes is lost, and nothing else.
    assert_eq!(mem(1, "kept"), "kept...");
    assert_eq!(mem(1, "buffer"), "????er.");
    // Nothing bounds what these write.
    for stage in [2, 3] {
        assert_eq!(mem(stage, "kept"), "???????");
        assert_eq!(mem(stage, "buffer"), "???????");
    }
    // Nothing is declared without the file.
    assert_eq!(shown(&s, &trace, &[], 0, "kept"), "???????");

    // Only promises: `mine_fill` has none.
    let done = declare(
        &s,
        &[
            "--file",
            "libmine.so",
            header,
            "-o",
            file,
            "--trust",
            "promises",
            "--brief",
            "--pure-takes-no-memory",
        ],
    );
    assert!(done.status.success(), "{}", done.messages());
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("\nmine_sum()  # pure\n"), "{text}");
    assert!(!text.contains("mine_fill"), "{text}");
    assert_eq!(mem(0, "kept"), "kept...");
    assert_eq!(mem(1, "kept"), "???????");
}

#[test]
fn options_reach_the_compiler() {
    let s = Scene::new();
    std::fs::create_dir(s.path("inc")).unwrap();
    std::fs::write(
        s.path("inc/deep.h"),
        "#ifdef DEEP\nint deep(int) __attribute__((const));\n#endif\n",
    )
    .unwrap();
    std::fs::write(s.path("top.h"), "#include <deep.h>\nint top(int);\n").unwrap();
    let (top, inc) = (s.path("top.h"), format!("-I{}", s.path("inc").display()));
    let top = top.to_str().unwrap();
    let done = declare(
        &s,
        &[
            "--file",
            "x.so",
            top,
            "--included",
            "inc/",
            "--compiler",
            "cc -DDEEP",
            "--",
            &inc,
        ],
    );
    assert!(done.status.success(), "{}", done.messages());
    assert!(
        done.text().contains("\ndeep(heap)  # const\n"),
        "{}",
        done.text()
    );
    let done = declare(&s, &["--file", "x.so", "deep.h", "--", &inc, "-DDEEP"]);
    assert!(
        done.text().contains("\ndeep(heap)  # const\n"),
        "{}",
        done.messages()
    );
    // There is nothing that could be declared.
    let done = declare(&s, &["--file", "x.so", top, "--", &inc]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        done.messages().contains("none of the 1 functions"),
        "{}",
        done.messages()
    );
    assert!(
        done.text()
            .contains("\n# perhaps top(stdio): by type: no pointers\n")
    );
}

#[test]
fn what_cannot_be_read_is_told_in_one_line() {
    let s = Scene::new();
    for (name, text) in [
        ("bad.h", "int a;\nint f(int x y);\n"),
        ("empty.h", "int a;\n"),
        ("good.h", "int f(int) __attribute__((const));\n"),
    ] {
        std::fs::write(s.path(name), text).unwrap();
    }
    let path = |name: &str| s.path(name).to_str().unwrap().to_owned();
    for (args, words) in [
        (vec!["--file", "x", &path("bad.h")], "bad.h:2:"),
        (
            vec!["--file", "x", "no/such.h"],
            "No such file or directory",
        ),
        (
            vec!["--file", "x", &path("empty.h")],
            "declares no functions",
        ),
        (
            vec!["--file", "x", "--compiler", "/no/cc", &path("good.h")],
            "cannot run the compiler /no/cc: No such file",
        ),
        (
            vec!["--file", "x", "--compiler", "false", &path("good.h")],
            "good.h: the compiler says",
        ),
        (
            vec!["--file", "a/b", &path("good.h")],
            "--file is the beginning",
        ),
        (
            vec!["--file", "x", &path("good.h"), "-o", "/no/dir/x"],
            "/no/dir/x: No such file",
        ),
    ] {
        let done = declare(&s, &args);
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        let said = done.messages();
        assert!(
            said.contains(words) && said.trim_end().lines().count() == 1,
            "{said}"
        );
        assert!(done.stdout.is_empty(), "{args:?}");
    }
}
