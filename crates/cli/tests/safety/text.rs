//! A recording in which everything has a name with control characters. No terminal gets to see them.

use hindsight_lab::{Done, Scene};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Commands for terminals in both forms, a forged line, characters that reverse text, invisible ones, and bytes that
/// are not UTF-8.
const EVIL: &str = "\x1b]0;title\x07\x1b[31m\r\u{9b}2J\x7f\nFORGED\u{202e}\u{200b}\u{e0041}";

/// A program with these names for its functions and its source file. It sets marks, and has a second thread and a
/// child.
fn source() -> String {
    let text = |s: &str| -> String { s.bytes().map(|b| format!("\\{b:03o}")).collect() };
    format!(
        r#"#include <pthread.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "hindsight.h"
#line 1 "{evil}.c"
int inner(int n) __asm__("in{evil}ner");
__attribute__((noinline)) int inner(int n) {{ volatile int local = n; return local * 2; }}
static volatile int named;
static void *run(void *p) {{
    prctl(PR_SET_NAME, "\033]0;t\007\nFOR");
    named = inner(3);
    for (;;) pause();
}}
int main(int argc, char **argv) {{
    hindsight_mark("m{evil}", "{evil}", 9);
    write(1, "w{evil}", strlen("w{evil}"));
    pthread_t t;
    pthread_create(&t, 0, run, 0);
    while (!named) usleep(1000);
    if (!fork()) {{
        if (argc > 1) execl(argv[0], argv[0], (char *)0);
        _exit(1);
    }}
    wait(0);
    if (argc > 1) abort();
    return inner(argc);
}}
"#,
        evil = text(EVIL)
    )
}

fn program(s: &Scene) -> PathBuf {
    let folder = s.path(&format!("d{}", EVIL.replace('/', "")));
    std::fs::create_dir(&folder).unwrap();
    let file = s.path("evil.c");
    std::fs::write(&file, source()).unwrap();
    let program = folder.join(EVIL);
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mark");
    // The assembler accepts these names in quotes, but the compiler does not write quotes.
    let script = r#"gcc -g -O0 -w -I "$1" -S -o evil.s "$2" && gcc -pthread -o "$3" evil.s"#;
    let done = Command::new("sh")
        .current_dir(s.path(""))
        .args(["-c", script, "sh"])
        .args([&header, &file, &program])
        .output()
        .unwrap();
    if done.status.success() {
        return program;
    }
    // An older assembler does not accept them. Then the symbol is renamed afterwards.
    let plain = source().replace(&source_label(), "in_ner");
    std::fs::write(&file, plain).unwrap();
    let script = r#"gcc -g -O0 -w -I "$1" -pthread -o plain "$2" && objcopy --redefine-sym "in_ner=$4" plain "$3""#;
    let done = Command::new("sh")
        .current_dir(s.path(""))
        .args(["-c", script, "sh"])
        .args([&header, &file, &program])
        .arg(format!("in{EVIL}ner"))
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    program
}

/// The strange name, as the source writes it.
fn source_label() -> String {
    let text: String = EVIL.bytes().map(|b| format!("\\{b:03o}")).collect();
    format!("in{text}ner")
}

/// Any terminal must be able to show the text, and no line of it may be forged.
fn harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    let bad = |c: char| {
        c != '\n' && c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{e0000}'..='\u{e0fff}')
    };
    if let Some(c) = text.chars().find(|c| bad(*c)) {
        panic!("{what} shows {c:?}: {text:?}");
    }
    assert!(
        !text.lines().any(|l| l.trim_start().starts_with("FOR")),
        "{what} has a forged line: {text}"
    );
}

fn check(what: &[&str], done: &Done) {
    let what = format!("{what:?}");
    harmless(&what, &done.stdout);
    harmless(&what, &done.stderr);
    let status = done.status.code();
    // The verdicts of `rerun` have more.
    assert!(matches!(status, Some(0..=5)), "{what}: {:?}", done.status);
}

/// Commands that show files, and what went through descriptors; and the one that feeds it to a program.
fn of_descriptors(file: &str) -> Vec<Vec<&str>> {
    let all: &[&[&str]] = &[
        &["output"],
        &["output", "--json"],
        &["data"],
        &["data", "--hex"],
        &["data", "--json"],
        &["audit"],
        &["audit", "--json"],
        &["audit", "--extract", "taken"],
        &["rerun", "--quiet"],
    ];
    let mut all: Vec<Vec<&str>> = all.iter().map(|c| [c, &[file][..]].concat()).collect();
    // If nothing can go on there, nothing is listed.
    all.push(vec!["resume", "--dry-run", file, "50%"]);
    all.push(vec!["resume", "--dry-run", "--json", file, "50%"]);
    all
}

/// Questions of a program that are answered with names of the recording.
fn of_programs(s: &Scene, file: &str) {
    let mut asks: Vec<String> = [
        "info",
        "processes",
        "threads",
        "modules",
        "maps",
        "at",
        "stack",
        "variables",
    ]
    .map(|ask| format!(r#"{{"id":1,"ask":"{ask}"}}"#))
    .into();
    for list in ["events", "output"] {
        asks.push(format!(r#"{{"id":1,"ask":"{list}"}}"#));
    }
    asks.push(r#"{"id":1,"ask":"next","list":1,"count":1000}"#.into());
    asks.push(r#"{"id":1,"ask":"next","list":2,"count":1000}"#.into());
    let evil = serde_json::json!({"id": EVIL, "ask": EVIL, "at": "crash"});
    asks.push(evil.to_string());
    let mut server = s
        .hindsight(&["serve", file])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = asks.join("\n") + "\n";
    let mut to = server.stdin.take().unwrap();
    to.write_all(text.as_bytes()).unwrap();
    drop(to);
    let done = server.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    harmless("serve", &done.stdout);
    harmless("serve", &done.stderr);
    let all = String::from_utf8(done.stdout).unwrap();
    let lines: Vec<serde_json::Value> = all
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let of = |ask: usize| lines.iter().filter(|l| l.get("result").is_some()).nth(ask);
    assert_eq!(of(0).unwrap()["result"]["argv"][1], EVIL);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["id"], &last["error"]["kind"]),
        (&EVIL.into(), &"request".into())
    );
}

/// Records a program with other arguments and another environment.
fn another(s: &Scene, program: &Path) -> String {
    let trace = s.path("second.hst");
    let argv = [program.as_os_str(), "other".as_ref()];
    let mut other = s.recording(&trace, &argv);
    let done = s.run(other.env("EVIL", format!("{EVIL}{EVIL}")));
    harmless("record", &done.stderr);
    trace.to_str().unwrap().to_owned()
}

/// Commands that compare two recordings.
fn of_two<'a>(first: &'a str, second: &'a str) -> Vec<Vec<&'a str>> {
    let all: &[&[&str]] = &[
        &["diff"],
        &["diff", "--all"],
        &["diff", "--all", "--json"],
        &["diff", "--strict"],
    ];
    all.iter()
        .map(|c| [c, &[first, second][..]].concat())
        .collect()
}

#[test]
fn nothing_in_a_recording_reaches_the_terminal_as_it_is() {
    let s = Scene::new();
    let program = program(&s);
    let mut store = s.hindsight(&["record", "--"]);
    store.arg(&program).args([EVIL, "plain"]).env("EVIL", EVIL);
    let recorded = s.run(&mut store);
    harmless("record", &recorded.stderr);
    let name = s.run(&mut s.hindsight(&["ls", "--json"]));
    let list: serde_json::Value = serde_json::from_slice(&name.stdout).unwrap();
    let file = list[0]["file"].as_str().expect("a recording").to_string();
    let file = file.as_str();
    let second = another(&s, &program);
    let asked = s.run(&mut s.hindsight(&["symbol", "--json", file, &format!("in{EVIL}ner")]));
    let asked: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    let inner = &asked["answers"][0]["symbols"][0]["address"];
    let inner = inner.as_str().expect("an address").to_string();
    let commands: &[&[&str]] = &[
        &["info", file],
        &["info", "--json", file],
        &["ls"],
        &["ls", "--json"],
        &["events", file],
        &["events", "--json", file],
        &["events", "--kind", "syscall", file],
        &["events", "--kind", "syscall", "--json", file],
        &["replay", "--verify", "--check-order", file],
        &["replay", "--verify", "--json", file],
        &["at", file, "crash"],
        &["at", file, "50%", "--json"],
        &["at", file, "end"],
        &["backtrace", file, "crash"],
        &["backtrace", "--threads", file, "crash"],
        &["backtrace", "--threads", "--json", file, "50%"],
        &["calls", file, "main"],
        &["calls", "--json", file, "main"],
        &["calls", file, &format!("in{EVIL}ner")],
        &["calls", file, &format!("no{EVIL}such")],
        &["mem", file, "50%", "0x1000", "16"],
        &["maps", file, "crash"],
        &["maps", "--json", file, "crash"],
        &["symbol", file, &format!("in{EVIL}ner"), "main", "named"],
        &["symbol", file, &inner],
        &["symbol", "--json", file, &format!("in{EVIL}ner"), &inner],
        &["symbol", file, &format!("no{EVIL}such")],
        &["writes", file, "0x1000", "16"],
        &["origin", file, "50%", "$rsp", "64"],
        &["origin", "--json", file, "50%", "$rsp", "64"],
        &["index", file],
        &["index", "--json", file],
        &["breakpath", file, "1%"],
        &["breakpath", "--gdb", file, "1%"],
        &["breakpath", "--json", file, "1%"],
        &["breakpath", "--lldb", file, "1%"],
        &["export", file, "-o", "copy.hst"],
        &["rm", "no-such"],
        &["info", &format!("x{EVIL}")],
        &["cache"],
        &["cache", "--json"],
    ];
    of_programs(&s, file);
    let mut seen = String::new();
    let mut all = [of_descriptors(file), of_two(file, &second)].concat();
    all.extend(commands.iter().map(|c| c.to_vec()));
    for c in &all {
        let done = s.run(&mut s.hindsight(c));
        check(c, &done);
        if c.contains(&"--json") && (c[0] != "resume" || !done.stdout.is_empty()) {
            let json: serde_json::Value = serde_json::from_slice(&done.stdout)
                .unwrap_or_else(|e| panic!("{c:?}: {e}: {}", done.text()));
            // JSON has exactly what was recorded.
            if c[0] == "info" {
                assert_eq!(json["argv"][1], EVIL);
                assert_eq!(json["exe"], program.to_str().unwrap());
            }
        }
        seen += &done.text();
    }
    // The names are shown, not left out.
    for shown in [
        "\\u001b]0;title\\u0007",
        "mark m\\u001b",
        "in\\u001b]0;title",
        "\\u202e",
        "(\\u001b]0;t\\u0007",
        // As C writes it.
        r#"prctl(PR_SET_NAME, "\33]0;t\7\nFOR""#,
    ] {
        assert!(seen.contains(shown), "{shown} is not shown: {seen}");
    }
    // A cut recording tells what it can.
    let whole = std::fs::read(file).unwrap();
    let cut = s.path("cut.hst");
    for part in [whole.len() / 2, whole.len() - 10, 200] {
        std::fs::write(&cut, &whole[..part]).unwrap();
        for c in [&["info"][..], &["replay", "--verify"], &["events"]] {
            check(c, &s.run(s.hindsight(c).arg(&cut)));
        }
    }
    debugger(&s, Path::new(file));
}

/// Checks what gdb shows its user of what it is told. gdb reads the file's own symbols itself.
fn debugger(s: &Scene, trace: &Path) {
    let mut server = s
        .hindsight(&["gdbserver", "--stdio"])
        .arg(trace)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let mut ask = |packet: &str| -> Vec<u8> {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        to.write_all(format!("${packet}#{sum:02x}").as_bytes())
            .unwrap();
        let (mut all, mut out, mut byte) = (Vec::new(), Vec::new(), [0]);
        loop {
            from.read_exact(&mut byte).expect("an answer");
            out.push(byte[0]);
            if out.len() < 4 || out[out.len() - 3] != b'#' {
                continue;
            }
            let begin = out.iter().position(|b| *b == b'$').unwrap() + 1;
            let content = out[begin..out.len() - 3].to_vec();
            out.clear();
            all.extend(plain(&content));
            // Messages for the user come before the answer.
            if !(content.starts_with(b"O") && content != b"OK") {
                return all;
            }
            to.write_all(b"+").unwrap();
        }
    };
    ask("qSupported:multiprocess+;swbreak+;hwbreak+;exec-events+;qXfer:threads:read+");
    for command in [
        "when",
        "events",
        "events syscall",
        "seek 70%",
        "when",
        "threads-at",
        "checkpoint \x1b[31m",
        "checkpoints",
        "processes",
        "process",
        "seek x\x1b[1m",
        "no\u{9b}such",
        "memory 0x1000",
        "seek crash",
        "why",
    ] {
        let hex: String = command.bytes().map(|b| format!("{b:02x}")).collect();
        harmless(command, &ask(&format!("qRcmd,{hex}")));
    }
    for packet in [
        "qXfer:threads:read::0,1000",
        "qXfer:libraries-svr4:read::0,1000",
        "qXfer:exec-file:read::0,1000",
        "vFile:readlink:2f70726f632f312f637764",
        "vFile:readlink:2f70726f632f312f657865",
        "bc",
    ] {
        harmless(packet, &ask(packet));
    }
    for name in ["/proc/1/maps", "/proc/1/cmdline"] {
        let hex: String = name.bytes().map(|b| format!("{b:02x}")).collect();
        let opened = String::from_utf8(ask(&format!("vFile:open:{hex},0,0"))).unwrap();
        let fd = opened.strip_prefix('F').expect(&opened).to_string();
        let content = ask(&format!("vFile:pread:{fd},1000,0"));
        // In this file, arguments end with a zero.
        let content: Vec<u8> = content.into_iter().filter(|b| *b != 0).collect();
        harmless(name, &content);
    }
    drop(to);
    let mut said = String::new();
    server
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    server.wait().unwrap();
    harmless("gdbserver", said.as_bytes());
}

/// The content of an answer: without escapes, repetitions and, if it consists of them, hexadecimal digits.
fn plain(content: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    let mut rest = content.iter();
    while let Some(b) = rest.next() {
        match (b, out.last().copied()) {
            (b'}', _) => out.extend(rest.next().map(|b| b ^ 0x20)),
            (b'*', Some(last)) => {
                let n = rest.next().map_or(0, |n| n - 29);
                out.extend(std::iter::repeat_n(last, n as usize));
            }
            (b, _) => out.push(*b),
        }
    }
    let digits = out.strip_prefix(b"O").unwrap_or(&out);
    let text = std::str::from_utf8(digits).unwrap_or("");
    if text.len() > 2 && text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit())
    {
        let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
        return (0..text.len()).step_by(2).map(byte).collect();
    }
    out
}
