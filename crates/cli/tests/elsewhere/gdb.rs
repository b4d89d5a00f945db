//! A gdb that knows all processors, connected to what plays a recording on another machine.

use crate::machine::{Machine, machines};
use hindsight_lab::{Scene, words};
use std::fs::File;
use std::process::Command;

const SCRIPT: &str = "\
break work
continue
backtrace
stepi
stepi
info registers rip rsp rax rdi eflags
reverse-stepi
x/2i $pc
print parse(5)
finish
watch -l counter
reverse-continue
print counter
reverse-continue
where
monitor where
";

/// What gdb prints, with `server` as the words of the server.
fn session(scene: &Scene, server: &Command) -> String {
    let mut connect = String::from("target remote |");
    for word in std::iter::once(server.get_program()).chain(server.get_args()) {
        connect += &format!(" '{}'", word.to_str().unwrap());
    }
    let script = scene.path("script.gdb");
    std::fs::write(&script, SCRIPT).unwrap();
    let mut gdb = scene.command("sh");
    gdb.args(["-c", "exec \"$@\" 2>&1", "sh", "gdb-multiarch", "-nx", "-q"]);
    gdb.args(["-iex", "set debuginfod enabled off"]);
    // What is emulated begins slowly.
    gdb.args(["-iex", "set remotetimeout 60"]);
    gdb.args(["-iex", "set pagination off", "-iex", "set sysroot /"]);
    gdb.args(["-ex", "set width 0", "-ex", &connect]);
    gdb.stdin(File::open(&script).unwrap());
    scene.run(&mut gdb).text()
}

#[test]
fn gdb_goes_back_and_forth() {
    machines().into_iter().for_each(gdb_goes_back_and_forth_on);
}

fn gdb_goes_back_and_forth_on(there: &Machine) {
    let scene = Scene::new();
    let source = scene.path("counts.c");
    std::fs::write(
        &source,
        "#include <stdlib.h>\n\
         int counter;\n\
         int parse(int n) {\n    return strtol(\"7\", 0, 10) + n;\n}\n\
         int work(int n) {\n    counter += n;\n    return counter * 3;\n}\n\
         int main(void) {\n    int s = 0;\n    for (int i = 1; i < 9; i++)\n        s += work(i);\n    return s == 0;\n}\n",
    )
    .unwrap();
    let program = scene.path("counts");
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-g", "-O0", "-Wl,-z,lazy", "-o"])
        .arg(&program)
        .arg(&source);
    assert!(compiler.status().unwrap().success());
    let trace = scene.record(&words(&program, &[])).1;
    let served = |mut c: Command| {
        c.args(["gdbserver", "--stdio"]).arg(&trace);
        session(&scene, &c)
    };
    let far = served(there.hindsight(&scene, &[]));
    let here = served(scene.hindsight::<&str>(&[]));
    // The words that start the server differ, and so may flags that the manuals leave undefined.
    let told = |text: &str| {
        let same = |l: &&str| !l.starts_with("Remote debugging") && !l.starts_with("eflags");
        let lines: Vec<String> = text.lines().filter(same).map(String::from).collect();
        lines
    };
    assert!(far.contains("Breakpoint 1, work (n=1)"), "{far}");
    // The dynamic linker saves and restores vector registers when it finds `strtol`.
    assert!(far.contains("$1 = 12"), "{far}");
    assert!(
        far.contains("Hardware watchpoint 2: -location counter"),
        "{far}"
    );
    assert_eq!(told(&far), told(&here));
}
