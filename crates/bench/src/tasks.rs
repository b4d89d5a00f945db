//! Workloads of threads, processes and system calls, and of programs that use all of these.

use crate::process::argv;
use crate::workload::{Aim, Maker, generate, put, run, write_c};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Number of threads that `births` starts.
const THREADS: u32 = 3000;
/// Number of programs that `births` starts.
const PROGRAMS: u32 = 40;

/// The workload with one thread, with which the one with two threads is compared.
const ALONE: &str = "cores1";

/// Adds these workloads to `maker`.
pub fn make(maker: &mut Maker) -> io::Result<()> {
    parallel(maker)?;
    system_calls(maker)?;
    births(maker)?;
    tools(maker)
}

/// Threads that compute, and that wait for each other.
fn parallel(maker: &mut Maker) -> io::Result<()> {
    let text = |dir: &Path| {
        let text = dir.join("text.txt");
        generate(&text, |f| crate::workload::write_text(f, 24_000_000))?;
        Ok::<_, io::Error>(text)
    };
    maker.task(
        "pigz",
        "pigz, two threads, 24 MB of text",
        Aim::Runs,
        &["pigz"],
        &|dir| {
            let mut words = argv(&["/usr/bin/pigz", "-p", "2", "-c"]);
            words.push(text(dir)?.into());
            Ok(words)
        },
    )?;
    let contend = include_bytes!("../workloads/contend.c");
    for (name, what) in [
        ("locks", "2 threads: 4,000,000 times each a mutex"),
        (
            "atomics",
            "2 threads: 4,000,000 times each an atomic addition",
        ),
    ] {
        maker.task(name, what, Aim::Ratio(8.0), &["gcc"], &|dir| {
            compiled(dir, "contend", contend, &["4000000", name])
        })?;
    }
    let cores = include_bytes!("../workloads/cores.c");
    maker.task(
        ALONE,
        "sorting, searching, matrices in one thread beside the first",
        Aim::Alone,
        &["gcc"],
        &|dir| compiled(dir, "cores", cores, &["1"]),
    )?;
    maker.task(
        "cores2",
        "the same in each of two threads",
        Aim::Parallel { alone: ALONE },
        &["gcc"],
        &|dir| compiled(dir, "cores", cores, &["2"]),
    )?;
    Ok(())
}

/// Programs that make many system calls.
fn system_calls(maker: &mut Maker) -> io::Result<()> {
    maker.task(
        "sysc",
        "1,200,000 small system calls",
        Aim::Ratio(2.5),
        &["gcc"],
        &|dir| {
            compiled(
                dir,
                "calls",
                include_bytes!("../workloads/calls.c"),
                &["400000"],
            )
        },
    )?;
    maker.task(
        "find",
        "find over /usr/share",
        Aim::Ratio(3.0),
        &["find"],
        &|_| {
            let words = ["/usr/bin/find", "/usr/share", "-type", "f", "-name", "*.py"];
            Ok(argv(&words))
        },
    )?;
    Ok(())
}

/// Threads and programs that start.
fn births(maker: &mut Maker) -> io::Result<()> {
    let births = include_bytes!("../workloads/births.c");
    maker.task(
        "threads",
        "3000 threads started and joined",
        Aim::Each {
            units: THREADS,
            ms: 3.0,
        },
        &["gcc"],
        &|dir| compiled(dir, "births", births, &["threads", &THREADS.to_string()]),
    )?;
    maker.task(
        "spawn",
        "fork, exec of /bin/true and wait, 40 times",
        Aim::Each {
            units: PROGRAMS,
            ms: 3.0,
        },
        &["gcc"],
        &|dir| {
            let words = ["programs", &PROGRAMS.to_string(), "/bin/true"];
            compiled(dir, "births", births, &words)
        },
    )?;
    Ok(())
}

/// Tools that start others, and programs that make code.
fn tools(maker: &mut Maker) -> io::Result<()> {
    maker.task(
        "make",
        "make -j2 of six C files",
        Aim::Runs,
        &["make", "gcc"],
        &|dir| {
            project(&dir.join("project"))?;
            shell("cd project && make -s clean && make -s -j2 && ./program")
        },
    )?;
    maker.task(
        "git",
        "clone and log of 40 commits",
        Aim::Runs,
        &["git"],
        &|dir| {
            repository(&dir.join("origin"))?;
            shell("rm -rf copy && git clone -q origin copy && git -C copy log --stat --format=%s")
        },
    )?;
    maker.task(
        "node",
        "JSON, regular expressions, sorting, crypto",
        Aim::Runs,
        &["node"],
        &|dir| {
            let script = put(dir, "mixed.js", include_bytes!("../workloads/mixed.js"))?;
            Ok(vec!["node".into(), script.into_os_string()])
        },
    )?;
    maker.task(
        "java",
        "maps, strings, parallel streams",
        Aim::Runs,
        &["java", "javac"],
        &|dir| {
            let source = put(dir, "Mixed.java", include_bytes!("../workloads/Mixed.java"))?;
            run(Command::new("javac").arg("-d").arg(dir).arg(source))?;
            Ok(argv(&["java", "-cp", ".", "Mixed"]))
        },
    )
}

fn shell(script: &str) -> io::Result<Vec<OsString>> {
    Ok(argv(&["/bin/sh", "-ec", script]))
}

fn compiled(dir: &Path, name: &str, source: &[u8], args: &[&str]) -> io::Result<Vec<OsString>> {
    let source = put(dir, &format!("{name}.c"), source)?;
    let program = dir.join(name);
    run(Command::new("gcc")
        .args(["-O2", "-pthread"])
        .arg(source)
        .arg("-o")
        .arg(&program))?;
    let mut words = vec![program.into_os_string()];
    words.extend(argv(args));
    Ok(words)
}

/// Makes a project of six generated files with a Makefile.
fn project(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let (mut objects, mut calls) = (String::new(), String::new());
    for i in 0..6 {
        let unit = dir.join(format!("unit{i}.c"));
        // The generated functions are static, except one, which is renamed.
        generate(&unit, |f| {
            writeln!(f, "#define all all{i}")?;
            write_c(f, 6)
        })?;
        objects += &format!(" unit{i}.o");
        calls += &format!("    (void)all{i};\n");
    }
    let declared: String = (0..6).map(|i| format!("int all{i}();\n")).collect();
    let main = format!("{declared}int main(void) {{\n{calls}    return 0;\n}}\n");
    put(dir, "main.c", main.as_bytes())?;
    let rules = format!(
        "CC = gcc\nCFLAGS = -O1 -w\nprogram: main.o{objects}\n\t$(CC) -o $@ $^\nclean:\n\trm -f program *.o\n"
    );
    put(dir, "Makefile", rules.as_bytes()).map(drop)
}

/// Makes a repository with forty commits.
fn repository(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let script = "git init -q . && i=0 && while [ $i -lt 40 ]; do i=$((i+1)); seq $i 300 > file$((i%7)); \
        git add -A; git -c user.name=n -c user.email=e commit -q -m \"change $i\" --date \"@$i +0000\"; done";
    run(Command::new("sh").args(["-ec", script]).current_dir(dir))
}
