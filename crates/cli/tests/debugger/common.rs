//! Scripted sessions of gdb.

use hindsight_lab::Scene;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a C program from its text.
pub fn compile(s: &Scene, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let source = s.path(&format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    let program = s.path(name);
    let status = Command::new("gcc")
        .args(["-g", "-O0", "-w"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(options)
        .args(["-ldl", "-pthread"])
        .status()
        .expect("a C compiler (scripts/setup installs it)");
    assert!(status.success(), "cannot compile {name}");
    program
}

/// Compiles and records a program, however it ends.
pub fn record(s: &Scene, text: &str, options: &[&str]) -> PathBuf {
    let program = compile(s, "program", text, options);
    s.record(&[&program]).1
}

/// What gdb prints for these commands, connected to the recording.
pub fn gdb(s: &Scene, trace: &Path, script: &str) -> String {
    gdb_with(s, trace, &[], script)
}

/// The same, with options of `hindsight replay`.
pub fn gdb_with(s: &Scene, trace: &Path, options: &[&str], script: &str) -> String {
    let file = s.path("script.gdb");
    std::fs::write(&file, script).unwrap();
    // The commands go to gdb's standard input, so a failing command does not end the session. Messages are in the
    // output, too.
    let mut command = s.command("sh");
    command
        .args([
            "-c",
            "exec \"$@\" 2>&1",
            "sh",
            env!("CARGO_BIN_EXE_hindsight"),
            "replay",
        ])
        .args(options)
        .arg(trace)
        .args([
            "--",
            "-nx",
            "-iex",
            "set debuginfod enabled off",
            "-ex",
            "set width 0",
        ])
        .stdin(File::open(&file).unwrap());
    s.run(&mut command).text()
}

/// The output must contain these texts, in this order.
pub fn expect(output: &str, wanted: &[&str]) {
    let mut rest = output;
    for w in wanted {
        match rest.find(w) {
            Some(at) => rest = &rest[at + w.len()..],
            None => panic!("`{w}` is missing behind what came before it in:\n{output}"),
        }
    }
}

/// Goes forwards `n` times with one command, and back with another. The states on the way must be the same, except for
/// flags, which are not restored where nothing looks at them. `begin` comes first.
pub fn mirror(s: &Scene, trace: &Path, begin: &str, forward: &str, back: &str, n: usize) {
    const SHOW: &str = r#"printf "\nSTATE %lx %lx %lx %lx %lx %lx\n", $rip, $rsp, $rbp, $rax, $rdi, *(long *) $rsp"#;
    let mut script = format!("{begin}\n{SHOW}\n");
    for command in [forward, back] {
        for _ in 0..n {
            script += &format!("{command}\n{SHOW}\n");
        }
    }
    let out = gdb(s, trace, &script);
    let states: Vec<&str> = out.lines().filter(|l| l.starts_with("STATE")).collect();
    assert!(!out.contains("Error"), "{out}");
    assert_eq!(states.len(), 2 * n + 1, "{out}");
    let mut there = states[..=n].to_vec();
    let back = &states[n..];
    assert!(
        there.windows(2).all(|w| w[0] != w[1]),
        "nothing moves: {out}"
    );
    there.reverse();
    assert_eq!(there, back, "{forward}, then {back:?}");
}
