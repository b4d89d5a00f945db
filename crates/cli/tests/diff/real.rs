//! Programs that everybody has.

use super::{json, record, record_with, values};
use hindsight_lab::Scene;
use std::fs;

#[test]
fn a_late_byte_makes_gzip_do_something_else() {
    let s = Scene::new();
    let word = |n: u32| (n.wrapping_mul(n) / 7).to_le_bytes();
    let mut text: Vec<u8> = (0..200_000).flat_map(word).collect();
    fs::write(s.path("input"), &text).unwrap();
    let first = record(&s, "1.hst", &["gzip", "-nc", "input"]);
    let at = 790_000;
    text[at] ^= 0x55;
    fs::write(s.path("input"), &text).unwrap();
    let second = record(&s, "2.hst", &["gzip", "-nc", "input"]);
    let all = json(&s, &first, &second, &[], false);
    let read = &all["inputs"][0];
    assert_eq!(read[0]["offset"], at, "{read:#}");
    let d = &all["differences"][0];
    assert_eq!(d["cause"]["reason"], "data", "{d:#}");
    for origin in d["cause"]["origins"].as_array().unwrap() {
        assert_eq!(origin["kind"], "read", "{d:#}");
        assert_eq!(origin["offset"], at, "{d:#}");
    }
}

#[test]
fn a_line_makes_a_script_do_something_else() {
    let s = Scene::new();
    let script = "n=0\nwhile read -r l; do n=$((n + l)); done < input\n\
                  if [ $n -gt 10 ]; then echo many; else echo few; fi\n";
    fs::write(s.path("script"), script).unwrap();
    let run = |input: &str, name: &str| {
        fs::write(s.path("input"), input).unwrap();
        record(&s, name, &["bash", "script"])
    };
    let few = run("1\n2\n3\n", "1.hst");
    let again = run("1\n2\n3\n", "2.hst");
    let many = run("1\n9\n3\n", "3.hst");
    json(&s, &few, &again, &[], true);
    let all = json(&s, &few, &many, &[], false);
    let d = &all["differences"][0];
    let origins = d["cause"]["origins"].as_array().unwrap();
    assert_eq!(origins[0]["kind"], "read", "{d:#}");
    assert!(
        origins[0]["file"].as_str().unwrap().ends_with("/input"),
        "{d:#}"
    );
    assert_eq!(origins[0]["offset"], 2);
}

#[test]
fn hashes_of_python_come_from_the_seed() {
    let s = Scene::new();
    let program = "print(sorted({w: 1 for w in 'the quick brown fox'.split()}))";
    let run = |seed: &str| {
        let name = format!("{seed}.hst");
        record_with(
            &s,
            &name,
            &["python3", "-c", program],
            &[("PYTHONHASHSEED", seed)],
        )
    };
    let all = json(&s, &run("1"), &run("2"), &[], false);
    let d = &all["differences"][0];
    for (origin, seed) in d["cause"]["origins"]
        .as_array()
        .unwrap()
        .iter()
        .zip(["1", "2"])
    {
        assert_eq!(origin["text"], format!("PYTHONHASHSEED={seed}"), "{d:#}");
    }
}

#[test]
fn a_row_makes_sqlite_do_something_else() {
    let s = Scene::new();
    let run = |n: u32, name: &str| {
        let _ = fs::remove_file(s.path("a.db"));
        let make = format!("create table t (a); insert into t values (1), ({n}), (3);");
        let done = s.run(s.command("sqlite3").arg("a.db").arg(&make));
        assert!(done.status.success(), "{}", done.messages());
        record(
            &s,
            name,
            &[
                "sqlite3",
                "-readonly",
                "a.db",
                "select count(*) from t where a > 100",
            ],
        )
    };
    let few = run(2, "1.hst");
    let many = run(102, "2.hst");
    let all = json(&s, &few, &many, &[], false);
    let d = &all["differences"][0];
    for origin in d["cause"]["origins"].as_array().unwrap() {
        assert_eq!(origin["kind"], "read", "{d:#}");
        assert!(origin["file"].as_str().unwrap().ends_with("/a.db"), "{d:#}");
    }
    let [a, b] = values(d);
    assert_ne!(a, b);
}
