//! Small programs.

use super::{compile, diff, function, json, record, record_with, values};
use hindsight_lab::Scene;
use std::fs;

/// Twenty fields of which the twelfth may be marked.
fn fields(marked: bool) -> Vec<u8> {
    let mut text = b"abcdefgh".repeat(20);
    if marked {
        text[8 * 11 + 3] = b'x';
    }
    text
}

#[test]
fn a_byte_of_a_file_takes_another_branch() {
    let s = Scene::new();
    let program = compile(&s, "check.c", "check", &[]);
    let input = s.path("input");
    let argv = [program.as_os_str(), input.as_os_str()];
    fs::write(&input, fields(false)).unwrap();
    let good = record(&s, "good.hst", &argv);
    fs::write(&input, fields(true)).unwrap();
    let bad = record(&s, "bad.hst", &argv);
    let all = json(&s, &good, &bad, &[], false);
    let d = &all["differences"][0];
    assert_eq!(d["kind"], "branch", "{d:#}");
    let taken = d["what"]["taken"].as_array().unwrap();
    assert_ne!(taken[0], taken[1]);
    // The value, and the call that read it.
    assert_eq!(values(d), [vec![b'd'], vec![b'x']]);
    let reads = &d["cause"]["origins"];
    for i in 0..2 {
        assert!(
            ["count", "is_marked"].contains(&function(&d["last"][i])),
            "{d:#}"
        );
        assert_eq!(reads[i]["kind"], "read", "{d:#}");
        assert_eq!(reads[i]["offset"], 8 * 11 + 3);
        assert_eq!(reads[i]["file"], input.to_str().unwrap());
        assert!(reads[i]["call"].as_str().unwrap().starts_with("read(3, "));
        let stack = d["stacks"][i].as_array().unwrap();
        let is_main = |f: &serde_json::Value| f["frames"][0]["function"] == "main";
        let inner = |f: &serde_json::Value| f["frames"].as_array().unwrap().len() > 1;
        assert!(stack.iter().any(|f| is_main(f) || inner(f)), "{d:#}");
    }
    // The read itself differs, and is said to.
    assert_eq!(all["inputs"][0][0]["offset"], 8 * 11 + 3);
    // The other way round it is the same.
    let back = json(&s, &bad, &good, &["--exact"], false);
    let d = &back["differences"][0];
    assert_eq!(values(d), [vec![b'x'], vec![b'd']]);
    // Then comes another branch, and what is printed.
    let more = json(&s, &good, &bad, &["--all"], false);
    let all = more["differences"].as_array().unwrap();
    assert!(all.len() > 1, "{more:#}");
    assert_eq!(more["more"], false);
    let two = json(&s, &good, &bad, &["--limit", "2"], false);
    assert_eq!(two["differences"].as_array().unwrap()[..], all[..2]);
    let text = diff(&s, &good, &bad, &[]).text();
    assert!(text.contains("byte 91 of"), "{text}");
}

#[test]
fn runs_that_do_the_same_agree() {
    let s = Scene::new();
    let program = compile(&s, "check.c", "check", &[]);
    fs::write(s.path("input"), fields(true)).unwrap();
    let argv = [program.as_os_str(), "input".as_ref()];
    let first = record(&s, "1.hst", &argv);
    let second = record(&s, "2.hst", &argv);
    let long = "y".repeat(1000);
    let other = [("A_VARIABLE", "x"), ("ANOTHER", &long)];
    let third = record_with(&s, "3.hst", &argv, &other);
    for (trace, options) in [
        (&first, &[][..]),
        (&second, &[]),
        (&second, &["--exact"]),
        (&third, &[]),
        (&third, &["--exact"]),
    ] {
        let all = json(&s, &first, trace, options, true);
        assert_eq!(all["differences"], serde_json::json!([]));
        assert_eq!(all["threads"], 1);
    }
    let said = diff(&s, &first, &second, &[]);
    assert!(said.text().contains("agree to the end"), "{}", said.text());
    // Where everything counts, the size of the environment does.
    json(&s, &first, &third, &["--strict"], false);
}

#[test]
fn other_arguments_are_told_and_are_not_where_runs_part() {
    let s = Scene::new();
    let program = compile(&s, "check.c", "check", &[]);
    fs::write(s.path("good"), fields(false)).unwrap();
    fs::write(s.path("bad"), fields(true)).unwrap();
    let run = |name: &str| {
        let argv = [program.as_os_str(), name.as_ref()];
        record(&s, &format!("{name}.hst"), &argv)
    };
    let all = json(&s, &run("good"), &run("bad"), &[], false);
    let opens = &all["inputs"][0];
    assert!(opens[0]["call"].as_str().unwrap().contains("\"good\""));
    assert!(opens[1]["call"].as_str().unwrap().contains("\"bad\""));
    assert_eq!(all["differences"][0]["kind"], "branch");
}

#[test]
fn a_value_is_followed_to_the_environment() {
    let s = Scene::new();
    let program = compile(&s, "seed.c", "seed", &[]);
    let run = |seed| record_with(&s, &format!("{seed}.hst"), &[&program], &[("SEED", seed)]);
    let all = json(&s, &run("6"), &run("7"), &[], false);
    let d = &all["differences"][0];
    assert_eq!(d["kind"], "branch");
    let origins = &d["cause"]["origins"];
    assert_eq!(origins[0]["text"], "SEED=6", "{d:#}");
    assert_eq!(origins[1]["text"], "SEED=7", "{d:#}");
    assert_eq!(d["cause"]["reason"], "data");
}

#[test]
fn threads_are_compared_whoever_came_first() {
    let s = Scene::new();
    let program = compile(&s, "threads.c", "threads", &["-pthread"]);
    let argv = [program.as_os_str(), "input".as_ref()];
    let mut text = b"one two three\n".repeat(200);
    fs::write(s.path("input"), &text).unwrap();
    let first = record(&s, "1.hst", &argv);
    let second = record(&s, "2.hst", &argv);
    let all = json(&s, &first, &second, &[], true);
    assert_eq!(all["threads"], 3);
    assert_eq!(text[1501], b' ');
    text[1501] = b'_';
    fs::write(s.path("input"), &text).unwrap();
    let third = record(&s, "3.hst", &argv);
    let all = json(&s, &first, &third, &[], false);
    let d = &all["differences"][0];
    assert_eq!(function(&d["last"][0]), "count_words", "{d:#}");
    assert_eq!(values(d), [vec![b' '], vec![b'_']]);
    // The main thread read it.
    let read = &d["cause"]["origins"][1];
    assert_eq!(read["offset"], 1501);
    assert_ne!(read["point"]["thread"], d["last"][1]["thread"]);
    // The thread that counts lines does not see it.
    let threads: Vec<String> = (1..8).map(|t| t.to_string()).collect();
    let agrees = threads.iter().filter(|t| {
        let done = diff(&s, &first, &third, &["--json", "--thread", t]);
        let json: Option<serde_json::Value> = serde_json::from_slice(&done.stdout).ok();
        json.is_some_and(|j| j["differences"] == serde_json::json!([]))
    });
    assert_eq!(agrees.count(), 1);
}

#[test]
fn signals_may_come_at_any_time() {
    let s = Scene::new();
    let program = compile(&s, "alarm.c", "alarm", &[]);
    let first = record(&s, "1.hst", &[&program]);
    let second = record(&s, "2.hst", &[&program]);
    for options in [&[][..], &["--exact"]] {
        let all = json(&s, &first, &second, options, true);
        for n in all["handlers"].as_array().unwrap() {
            assert_ne!(n, 0, "{all:#}");
        }
    }
}
