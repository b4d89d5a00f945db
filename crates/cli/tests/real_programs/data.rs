//! `hindsight data`, compared with what programs really read and wrote.

use hindsight_lab::{Done, Scene};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

fn ask(s: &Scene, trace: &Path, words: &[&str]) -> Done {
    s.run(s.hindsight(&["data"]).arg(trace).args(words))
}

fn list(s: &Scene, trace: &Path, words: &[&str]) -> Vec<Value> {
    let done = ask(s, trace, &[&["--json"], words].concat());
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    serde_json::from_slice(&done.stdout).unwrap()
}

/// What went one way. All of it must be known.
fn raw(s: &Scene, trace: &Path, way: &str, fd: &str) -> Vec<u8> {
    let done = ask(s, trace, &["--raw", way, "--fd", fd]);
    assert_eq!(done.messages(), "", "{way} {fd}");
    assert_eq!(done.status.code(), Some(0));
    done.stdout
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

/// A recording of the program, which read files that have changed since; and what it printed.
fn record(s: &Scene) -> (PathBuf, String) {
    let files = [("ordered", 1234), ("backwards", 300), ("middle", 300)];
    for (name, len) in files {
        fs::write(s.path(name), content(len)).unwrap();
    }
    let program = s.compile("inputs.c", &[]);
    let (done, trace) = s.record(&[&program]);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    fs::write(s.path("ordered"), "another").unwrap();
    fs::remove_file(s.path("backwards")).unwrap();
    (trace, done.text())
}

/// The word behind another one in what the program printed.
fn word<'a>(text: &'a str, before: &str) -> &'a str {
    let mut words = text.split_whitespace().skip_while(|w| *w != before);
    words.nth(1).unwrap()
}

#[test]
fn files_that_have_changed_are_taken_out() {
    let s = Scene::new();
    let (trace, _) = record(&s);
    assert_eq!(raw(&s, &trace, "--in", "ordered"), content(1234));
    // Each byte stands where it stood.
    assert_eq!(raw(&s, &trace, "--in", "backwards"), content(300));
    assert_eq!(raw(&s, &trace, "--out", "made"), b"beforebehind");
    // Where nothing can be placed, it is an error.
    let mut piped = s.hindsight(&["data", "--raw", "--in", "--fd", "backwards"]);
    let piped = piped.arg(&trace).output().unwrap();
    assert_eq!(piped.status.code(), Some(2));
    let said = String::from_utf8_lossy(&piped.stderr);
    assert!(said.contains("one behind the other"), "{said}");
    let mut piped = s.hindsight(&["data", "--raw", "--in", "--fd", "ordered"]);
    let piped = piped.arg(&trace).output().unwrap();
    assert_eq!(piped.stdout, content(1234));
    // What nobody read is missing, and said.
    let middle = ask(&s, &trace, &["--raw", "--in", "--fd", "middle"]);
    assert_eq!(middle.status.code(), Some(1));
    assert_eq!(middle.stdout[100..], content(300)[100..200]);
    let said = middle.messages();
    let wanted = "100 bytes are not known, and left out: 1 part, the first of them bytes 0 to 100";
    assert!(said.contains(wanted), "{said}");
    // The reading of a file in order has its places, and so has the copy of a descriptor.
    let places = |name: &str| -> Vec<(u64, u64)> {
        let of = list(&s, &trace, &["--in", "--fd", name]);
        let of = of.iter().filter(|c| c["way"] == "in");
        let number = |v: &Value| v.as_u64().unwrap();
        of.map(|c| (number(&c["offset"]), number(&c["length"])))
            .collect()
    };
    assert_eq!(
        places("backwards"),
        [(200, 100), (100, 100), (0, 40), (40, 60)]
    );
    let ordered = places("ordered");
    assert_eq!(ordered.len(), 13);
    assert_eq!(ordered.last(), Some(&(1200, 34)));
    // Only the name of what was mapped.
    let text = ask(&s, &trace, &["--fd", "backwards"]).text();
    let path = s.path("backwards");
    let mapped = format!(
        "{}  mapped: what is read there is not listed",
        path.display()
    );
    assert_eq!(
        text.lines().filter(|l| l.ends_with(&mapped)).count(),
        1,
        "{text}"
    );
}

#[test]
fn what_is_written_next_stands_behind_all() {
    let s = Scene::new();
    let (trace, _) = record(&s);
    let mut out = fs::File::create_new(s.path("out")).unwrap();
    out.write_all(b"begin").unwrap();
    let mut raw = s.hindsight(&["data", "--raw", "--in", "--fd", "backwards"]);
    let raw = raw.arg(&trace).stdout(out.try_clone().unwrap());
    assert_eq!(raw.status().unwrap().code(), Some(0));
    out.write_all(b"end").unwrap();
    let wanted = [b"begin".as_slice(), &content(300), b"end"].concat();
    assert!(fs::read(s.path("out")).unwrap() == wanted);
}

#[test]
fn places_of_inherited_descriptors_are_followed() {
    let s = Scene::new();
    let script = "echo one\n/bin/true\necho two\n/bin/true\n";
    fs::write(s.path("script"), script).unwrap();
    let record = |argv: &[&str]| {
        let trace = s.path("inherited.hst");
        let _ = fs::remove_file(&trace);
        let input = fs::File::open(s.path("script")).unwrap();
        let done = s.run(s.recording(&trace, argv).stdin(input));
        assert_eq!(done.status.code(), Some(0), "{}", done.messages());
        trace
    };
    // It reads more than a line, and goes back before it runs a program.
    let trace = record(&["bash"]);
    assert_eq!(raw(&s, &trace, "--in", "0"), script.as_bytes());
    let program = "import os; os.pread(0, 5, 10); os.lseek(0, 2, 0); os.read(0, 4)";
    let trace = record(&["python3", "-c", program]);
    let all = list(&s, &trace, &["--in", "--fd", "0"]);
    let places: Vec<_> = all.iter().map(|c| c["offset"].as_u64()).collect();
    assert_eq!(places, [Some(10), Some(2)]);
}

#[test]
fn places_and_bytes_that_are_not_known_are_told() {
    let s = Scene::new();
    // Others may append, too.
    let (_, trace) = s.record(&["sh", "-c", "exec 3>>log; echo a >&3; echo b >&3"]);
    let log = ask(&s, &trace, &["--raw", "--out", "--fd", "log"]);
    assert_eq!(
        (log.status.code(), &log.stdout[..]),
        (Some(1), &b"a\nb\n"[..])
    );
    let said = log.messages();
    assert!(
        said.contains("the place of 4 bytes in the file is not known"),
        "{said}"
    );
    // To a pipe, too, what is not known is left out.
    fs::write(s.path("from"), "12345").unwrap();
    let program = "import os; i = os.open('from', 0); o = os.open('to', os.O_WRONLY | os.O_CREAT)
os.sendfile(o, i, 0, 5); os.write(o, b'known')";
    let (done, trace) = s.record(&["python3", "-c", program]);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let mut piped = s.hindsight(&["data", "--raw", "--out", "--fd", "to"]);
    let piped = piped.arg(&trace).output().unwrap();
    let said = String::from_utf8_lossy(&piped.stderr);
    assert_eq!(
        (piped.status.code(), &piped.stdout[..]),
        (Some(1), &b"known"[..]),
        "{said}"
    );
    assert!(said.contains("5 bytes are not known"), "{said}");
}

#[test]
fn large_calls_are_whole_for_scripts() {
    let s = Scene::new();
    let program = "import os; f = os.open('large', os.O_WRONLY | os.O_CREAT)
os.write(f, b'a' + '€'.encode() * 70000); os.write(f, bytes(range(256)) * 400)
os.write(f, b'x' * 70000 + b'\\xe2')";
    let (done, trace) = s.record(&["python3", "-c", program]);
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    let all = list(&s, &trace, &["--out", "--fd", "large"]);
    let [text, bytes, broken] = &all[..] else {
        panic!("{} calls", all.len())
    };
    assert!(text["text"] == format!("a{}", "€".repeat(70_000)));
    assert!(text["bytes"].is_null() && bytes["text"].is_null());
    let wanted: Vec<u8> = (0..=255).collect();
    assert!(bytes["bytes"] == Value::from(wanted.repeat(400)));
    // It ends within a character.
    let wanted = [vec![b'x'; 70_000], vec![0xe2]].concat();
    assert!(broken["text"].is_null() && broken["bytes"] == Value::from(wanted));
}

#[test]
fn connections_have_the_names_of_their_peers() {
    let s = Scene::new();
    let (trace, printed) = record(&s);
    let at = |name: &str| format!("127.0.0.1:{}", word(&printed, name));
    // The one that connected, and the one that was accepted.
    let (server, client) = (at("server"), at("client"));
    assert_eq!(raw(&s, &trace, "--out", &server), b"question");
    assert_eq!(raw(&s, &trace, "--in", &server), b"the answer");
    // What was only looked at was not taken.
    assert_eq!(raw(&s, &trace, "--in", &client), b"question");
    assert_eq!(raw(&s, &trace, "--out", &client), b"the answer");
    let all = list(&s, &trace, &["--fd", &client]);
    let calls: Vec<&str> = all.iter().map(|c| c["call"].as_str().unwrap()).collect();
    assert_eq!(calls, ["recvfrom", "recvmsg", "writev"]);
    let name = format!("socket at {server} to {client}");
    assert!(all.iter().all(|c| c["name"] == *name), "{all:?}");
}

#[test]
fn random_bytes_are_shown() {
    let s = Scene::new();
    let (trace, printed) = record(&s);
    let random = word(&printed, "random");
    let hex: Vec<String> = raw(&s, &trace, "--in", "random")
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let hex = hex.concat();
    // The C library takes some for itself.
    assert!(hex.ends_with(random), "{hex}: {random}");
    let rows = ask(&s, &trace, &["--hex", "--in", "--fd", "random"]).text();
    let row = rows.lines().last().unwrap();
    let shown: String = row.split_whitespace().skip(1).take(16).collect();
    assert_eq!(shown, random, "{rows}");
}

#[test]
fn several_are_not_mixed() {
    let s = Scene::new();
    let (trace, _) = record(&s);
    let wrong = |words: &[&str], wanted: &str| {
        let done = ask(&s, &trace, words);
        assert_eq!(done.status.code(), Some(2), "{words:?}");
        let said = done.messages();
        assert!(said.contains(wanted), "{words:?}: {said}");
    };
    // First open as this number were several.
    wrong(&["--raw", "--in", "--fd", "3"], "--fd means several");
    wrong(
        &["--raw", "--in", "--fd", "nowhere"],
        "nothing went through that",
    );
    wrong(&["--raw", "--fd", "ordered"], "say --in or --out");
    assert!(list(&s, &trace, &["--fd", "nowhere"]).is_empty());
}

const THREADED: &str = "
import os, threading
t = threading.Thread(target=print)
t.start()
t.join()
f = os.open('data', os.O_RDONLY)
while os.read(f, 65536): pass
";

#[test]
fn what_real_programs_read_is_told() {
    let s = Scene::new();
    let text = "some text\n".repeat(20_000);
    fs::write(s.path("data"), &text).unwrap();
    let database = s.path("a.db");
    let made = s.run(
        s.command("sqlite3")
            .arg(&database)
            .arg("create table t(a); insert into t values('x'), (hex(randomblob(3000)));"),
    );
    assert!(made.status.success(), "{}", made.messages());
    let database = fs::read(&database).unwrap();
    let read: &[(&[&str], &str, &[u8])] = &[
        (
            &["python3", "-c", "print(len(open('data').read()))"],
            "data",
            text.as_bytes(),
        ),
        (&["sort", "-u", "data"], "data", text.as_bytes()),
        // Another thread has made it checked. The buffer held something else before.
        (&["python3", "-c", THREADED], "data", text.as_bytes()),
        (
            &["sh", "-c", "gzip -c < data | wc -c"],
            "data",
            text.as_bytes(),
        ),
        (
            &["perl", "-ne", "$n++; END { print $n }", "data"],
            "data",
            text.as_bytes(),
        ),
        (
            &["sqlite3", "a.db", "select length(a) from t"],
            "a.db",
            &database,
        ),
    ];
    for (argv, file, wanted) in read {
        let (done, trace) = s.record(argv);
        assert_eq!(done.status.code(), Some(0), "{argv:?}: {}", done.messages());
        assert!(raw(&s, &trace, "--in", file) == *wanted, "{argv:?}");
    }
}

/// Copies standard input to standard output, 100 KiB at a time, without looking at it. A second thread makes it checked.
const COPIES: &str = r#"
#include <pthread.h>
#include <unistd.h>
static char buffer[100 << 10];
static void *nothing(void *p) { return p; }
int main() {
    pthread_t t;
    pthread_create(&t, 0, nothing, 0);
    pthread_join(t, 0);
    for (long n; (n = read(0, buffer, sizeof buffer)) > 0;)
        if (write(1, buffer, n) != n) return 1;
    return 0;
}
"#;

#[test]
fn what_no_thread_looks_at_is_recorded_up_to_the_limit() {
    let s = Scene::new();
    fs::write(s.path("copies.c"), COPIES).unwrap();
    let program = s.path("copies");
    let mut gcc = s.command("gcc");
    gcc.args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(s.path("copies.c"));
    assert!(s.run(&mut gcc).status.success());
    let input = content(250_000);
    fs::write(s.path("input"), &input).unwrap();
    for (limit, each) in [
        (None, 100 << 10),
        (Some("all"), 100 << 10),
        (Some("5000"), 5000),
        (Some("4k"), 4096),
        (Some("none"), 0),
    ] {
        let trace = s.path("limited.hst");
        let _ = fs::remove_file(&trace);
        let mut c = s.hindsight(&["record", "--quiet"]);
        if let Some(limit) = limit {
            c.args(["--data-limit", limit]);
        }
        c.arg("-o").arg(&trace).arg("--").arg(&program);
        let done = s.run(c.stdin(fs::File::open(s.path("input")).unwrap()));
        assert!(done.stdout == input, "{limit:?}: {}", done.messages());
        s.must_verify(&trace);
        for way in ["--in", "--out"] {
            let fd = if way == "--in" { "0" } else { "1" };
            let told = ask(&s, &trace, &["--raw", way, "--fd", fd]);
            let all = each == 100 << 10;
            assert_eq!(
                told.status.code(),
                Some(!all as i32),
                "{limit:?} {way}: {}",
                told.messages()
            );
            if all {
                assert!(told.stdout == input, "{limit:?} {way}");
            }
        }
        // The first bytes of each call are known, and no others.
        let calls = list(&s, &trace, &["--in", "--fd", "0"]);
        assert_eq!(calls.len(), 3);
        let json = s.info(&trace);
        match limit {
            Some("all") => assert_eq!(json["data_limit"], "all"),
            _ if each == 100 << 10 => assert_eq!(json["data_limit"], 128 << 10),
            _ => assert_eq!(json["data_limit"], each),
        }
        let told = ask(&s, &trace, &["--raw", "--in", "--fd", "0"]);
        let said = told.messages();
        if each < 100 << 10 {
            let unknown = 250_000 - 3 * each;
            assert!(
                said.contains(&format!("{unknown} bytes are not known")),
                "{limit:?}: {said}"
            );
        }
    }
}
