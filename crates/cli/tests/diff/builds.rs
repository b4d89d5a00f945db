//! Two builds of a program.

use super::{compile, function, json, record, record_with, values};
use hindsight_lab::Scene;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn a_call_that_only_one_build_makes_is_found() {
    let s = Scene::new();
    let quiet = compile(&s, "check.c", "quiet", &[]);
    let loud = compile(&s, "check.c", "loud", &["-DLOUD"]);
    fs::write(s.path("input"), "abcdefgh").unwrap();
    let first = record(&s, "1.hst", &[quiet.as_os_str(), "input".as_ref()]);
    let second = record(&s, "2.hst", &[loud.as_os_str(), "input".as_ref()]);
    let all = json(&s, &first, &second, &[], false);
    let d = &all["differences"][0];
    let is_puts = |d: &serde_json::Value| {
        let stack = d["stacks"][1].as_array().unwrap();
        stack
            .iter()
            .any(|f| f["place"]["function"].as_str() == Some("puts"))
            || function(&d["first"][1]) == "puts"
            || d["first"][1]["place"]["function"].as_str() == Some("puts")
    };
    assert!(is_puts(d), "{d:#}");
    let stack = d["stacks"][1].as_array().unwrap();
    let is_main = |f: &serde_json::Value| f["place"]["function"] == "main";
    assert!(stack.iter().any(is_main), "{d:#}");
}

/// Records builds under the same name, so that nothing else differs.
fn run(s: &Scene, program: &Path, name: &str) -> PathBuf {
    let here = s.path("program");
    fs::copy(program, &here).unwrap();
    let argv = [here.as_os_str(), "input".as_ref()];
    record_with(s, name, &argv, &[("SEED", "7")])
}

#[test]
fn a_constant_that_only_one_build_has_is_found() {
    let s = Scene::new();
    let first = compile(&s, "seed.c", "one", &[]);
    let second = compile(&s, "seed.c", "two", &["-DSTART=5"]);
    let a = run(&s, &first, "1.hst");
    let b = run(&s, &second, "2.hst");
    let all = json(&s, &a, &b, &[], false);
    let d = &all["differences"][0];
    assert_eq!(d["kind"], "end", "{d:#}");
    assert_eq!(values(d).map(|v| v[0]), [3, 8]);
}

#[test]
fn builds_agree_where_they_call_the_same() {
    let s = Scene::new();
    fs::write(s.path("input"), "abcdefgh").unwrap();
    let first = compile(&s, "check.c", "one", &["-fno-inline"]);
    let second = compile(&s, "check.c", "two", &["-fno-inline", "-O2"]);
    let inlined = compile(&s, "check.c", "three", &["-O2"]);
    let a = run(&s, &first, "1.hst");
    let b = run(&s, &second, "2.hst");
    assert_ne!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    json(&s, &a, &b, &[], true);
    // A function that is a part of another one is not called.
    let c = run(&s, &inlined, "3.hst");
    let all = json(&s, &a, &c, &[], false);
    let d = &all["differences"][0];
    assert_eq!(d["kind"], "function", "{d:#}");
}
