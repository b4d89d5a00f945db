//! The Python package: its own tests, a wheel that is installed where there is no Rust, and the notebook.
//!
//! They stand here because both executables are there when this crate is tested.

use hindsight_lab::{Done, Scene, hindsight};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python")
}

/// The folder with `hindsight` and `hindsight-sql`, which are both up to date.
fn executables() -> &'static Path {
    let engine = Path::new(env!("CARGO_BIN_EXE_hindsight-sql"));
    let folder = hindsight().parent().unwrap();
    assert_eq!(engine.parent().unwrap(), folder);
    folder
}

/// Debian's Python, with the package as it stands in the sources.
fn python(s: &Scene) -> Command {
    let mut c = s.command("/usr/bin/python3");
    c.env("HINDSIGHT_BIN", executables())
        .env("PYTHONPATH", package())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", s.path("home"))
        .env("XDG_CACHE_HOME", s.path("cache"));
    c
}

fn must(what: &str, done: &Done) {
    let text = format!("{}{}", done.text(), done.messages());
    assert!(done.status.success(), "{what}: {:?}\n{text}", done.status);
}

#[test]
fn its_own_tests_pass() {
    let s = Scene::new();
    let mut tests = python(&s);
    tests.args([
        "-W",
        "error::ResourceWarning",
        "-m",
        "unittest",
        "discover",
        "-v",
        "-s",
    ]);
    let done = s.run(tests.arg(package().join("tests")));
    must("unittest", &done);
    let said = done.messages();
    assert!(
        said.lines().filter(|l| l.ends_with("... ok")).count() > 20,
        "{said}"
    );
    // What other packages do with rows is tested where they are. Nobody is to believe that it was.
    for line in said.lines().filter(|l| l.contains("... skipped")) {
        let _ = writeln!(std::io::stderr(), "python: {line}");
    }
}

#[test]
fn all_of_it_compiles() {
    let s = Scene::new();
    let mut compile = python(&s);
    compile.args(["-W", "error", "-m", "compileall", "-q", "-f"]);
    compile.env("PYTHONPYCACHEPREFIX", s.path("compiled"));
    compile.env_remove("PYTHONDONTWRITEBYTECODE");
    must("compileall", &s.run(compile.arg(package())));
}

#[test]
fn the_notebook_and_the_tour_run() {
    let s = Scene::new();
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O0", "-no-pie", "-o"]).arg(s.path("list"));
    let source = package().join("../scripts/list.c");
    assert!(gcc.arg(source).status().unwrap().success());
    let mut run = python(&s);
    run.arg(package().join("tests/notebook.py"));
    run.arg(package().join("examples/list.ipynb"));
    let done = s.run(run.arg(package().join("../docs/python.md")));
    must("notebook", &done);
    let text = done.text();
    assert!(
        text.lines().filter(|l| l.ends_with(" cells")).count() == 2,
        "{text}"
    );
}

/// What a user who has no Rust does with a wheel.
const USE: &str = r#"
import hindsight, shutil, subprocess, sys
assert shutil.which("cargo") is None
assert hindsight.__file__.startswith(sys.prefix), hindsight.__file__
r = hindsight.record(["/bin/echo", "wheel"], stdout=subprocess.DEVNULL)
assert b"".join(map(bytes, r.output())) == b"wheel\n"
assert r.begin.stack and r.end.count > 0
(row,) = r.sql("SELECT count(*) AS n FROM output").fetchall()
assert row["n"] == 1
print(r.path)
"#;

#[test]
fn a_wheel_installs_without_rust() {
    let s = Scene::new();
    let (folder, venv) = (s.path("wheel"), s.path("venv"));
    let script = package().join("../scripts/wheel");
    let mut make = Command::new(script);
    make.arg("--from")
        .arg(executables())
        .arg("--to")
        .arg(&folder);
    let made = make.output().unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let wheel = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    let name = wheel.file_name().into_string().unwrap();
    assert!(name.ends_with("-py3-none-linux_x86_64.whl"), "{name}");
    let plain = |program: &Path| {
        let mut c = s.command(program);
        c.env("HOME", s.path("home"));
        c
    };
    let mut create = plain(Path::new("/usr/bin/python3"));
    must("venv", &s.run(create.args(["-m", "venv"]).arg(&venv)));
    let mut install = plain(&venv.join("bin/pip"));
    install.args(["install", "--quiet", "--no-index", "--no-deps"]);
    must("pip", &s.run(install.arg(wheel.path())));
    let mut used = plain(&venv.join("bin/python3"));
    let done = s.run(used.args(["-c", USE]));
    must("use", &done);
    // The command is there, too, and finds the other executable.
    let mut command = plain(&venv.join("bin/hindsight"));
    let rows = s.run(command.args(["sql", done.text().trim(), "SELECT 7 AS seven", "--csv"]));
    must("hindsight", &rows);
    assert_eq!(rows.text(), "seven\n7\n");
}
