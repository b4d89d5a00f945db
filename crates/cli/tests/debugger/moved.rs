//! What gdb remembers while the recording goes to other places: old values, and libraries that are not yet loaded.

use crate::common::{expect, gdb, record};
use hindsight_lab::Scene;
use std::path::PathBuf;
use std::process::Command;

/// A recording of a C++ program.
fn record_cpp(s: &Scene, text: &str) -> PathBuf {
    let (source, program) = (s.path("program.cc"), s.path("program"));
    std::fs::write(&source, text).unwrap();
    let made = (Command::new("g++").args(["-g", "-O0"]).arg(&source))
        .arg("-o")
        .arg(&program)
        .status()
        .expect("a C++ compiler (scripts/setup installs it)");
    assert!(made.success());
    s.record(&[&program]).1
}

/// After a seek, gdb would compare watched memory with its content before the seek. It would pass, without a word, a
/// write that restores that content. A watchpoint must stay with its variable, even where a local variable has the same
/// name.
#[test]
fn a_seek_does_not_hide_a_change() {
    let s = Scene::new();
    let program = "
        int x;
        void set(int v) { x = v; }
        void mark(int n) { int x = n; }
        int main(void) {
            set(5); mark(1); set(7); mark(2); set(5); mark(3); set(9); mark(4);
            return 0;
        }";
    let trace = record(&s, program, &[]);
    let script = "
        break mark if n == 2
        continue
        checkpoint two
        delete
        break mark if n == 1
        reverse-continue
        up
        watch x
        watch *(char *) &x if x == 77
        display ::x + 100
        restart two
        continue
        continue
        restart two
        reverse-continue
        reverse-continue
        ";
    let out = gdb(&s, &trace, script);
    expect(
        &out,
        &[
            "checkpoint two",
            "mark (n=1)",
            "1: ::x + 100 = 105",
            "mark (n=2)",
            // As after any other stop.
            "1: ::x + 100 = 107",
            "Old value = 5\nNew value = 7",
            "mark (n=2)",
            "Old value = 7\nNew value = 5",
            "set (v=5)",
            "mark (n=2)",
            "Old value = 5\nNew value = 7",
            "mark (n=2)",
            "Old value = 7\nNew value = 5",
            "set (v=7)",
        ],
    );
}

/// gdb 13 crashes when the library is unloaded whose exceptions it catches.
#[test]
fn exceptions_are_caught_on_the_way_to_the_beginning() {
    let s = Scene::new();
    let text = "
        #include <cstdio>
        int thrower(int x) { if (x > 1) throw x; return x; }
        int main() {
            for (int i = 0; i < 4; i++)
                try { thrower(i); } catch (int e) { printf(\"%d\\n\", e); }
        }";
    let trace = record_cpp(&s, text);
    let script = "
        catch throw
        continue
        reverse-continue
        reverse-continue
        continue
        up
        print x
        continue
        up
        print x
        catch catch
        continue
        reverse-continue
        delete 1
        reverse-continue
        reverse-continue
        ";
    let out = gdb(&s, &trace, script);
    expect(
        &out,
        &[
            "exception thrown",
            "No more reverse-execution history",
            "No more reverse-execution history",
            "exception thrown",
            "= 2",
            "exception thrown",
            "= 3",
            "exception caught",
            "exception thrown",
            "exception caught",
            "No more reverse-execution history",
        ],
    );
    assert!(!out.contains("Fatal signal"), "{out}");
}

/// gdb warns if a language is chosen that is not the frame's.
#[test]
fn commands_choose_no_other_language_than_the_frames() {
    let s = Scene::new();
    let text = "
        namespace shop { struct Till { int sum; double rest[2]; } till; }
        __attribute__((noinline)) void set(int n) { shop::till.sum = n; shop::till.rest[1] = n; }
        int main() { set(5); set(7); return 0; }";
    let trace = record_cpp(&s, text);
    let script = "
        break set
        continue
        continue
        when
        known n
        known &shop::till 4
        last-write shop::till.rest
        info symbol $pc
        print n
        first-use shop::till.sum
        print n
        ";
    let out = gdb(&s, &trace, script);
    expect(
        &out,
        &[
            "of the thread",
            "written",
            "8 bytes",
            "= 5",
            "4 bytes",
            "= 7",
        ],
    );
    assert!(!out.contains("does not match this frame"), "{out}");
}

/// Some languages know neither `!=` nor `=`, nor C's pointers.
#[test]
fn commands_work_in_all_languages() {
    let s = Scene::new();
    // Half of the instructions are in a function of the program. What gdb shows of the C library depends on installed
    // debug files.
    let program = "
        int main(void) {
            for (volatile int i = 0; i < 1000000; i++) { }
            return 0;
        }";
    let trace = record(&s, program, &[]);
    for language in ["ada", "fortran", "modula-2", "pascal", "rust"] {
        let script = "
            break main
            continue
            set language LANGUAGE
            when
            checkpoint here
            seek 50%
            events syscall
            reverse-stepi
            restart here
            info symbol $pc
            delete checkpoint here
            known $sp 8
            ";
        let out = gdb(&s, &trace, &script.replace("LANGUAGE", language));
        expect(
            &out,
            &[
                "of the thread",
                "50.00% of",
                "mprotect",
                "main + 4 in",
                "+8: ",
            ],
        );
        assert!(!out.contains("rror"), "{language}: {out}");
    }
}

/// From one change to the next, both ways, where gdb decides whether to stop.
#[test]
fn many_changes_are_gone_through() {
    let s = Scene::new();
    let program = "
        int x;
        void set(int v) { x = v; }
        void mark(int n) { }
        int main(void) {
            for (int i = 1; i <= 60; i++) set(i);
            mark(1);
            return 0;
        }";
    let trace = record(&s, program, &[]);
    let script = "
        watch x if x == 40
        break mark
        continue
        continue
        tbreak set if v == 10
        reverse-continue
        reverse-continue
        info breakpoints
        ";
    let out = gdb(&s, &trace, script);
    expect(
        &out,
        &[
            "Old value = 39\nNew value = 40",
            "mark (n=1)",
            "Old value = 41\nNew value = 40",
            "set (v=10)",
        ],
    );
}

/// gdb then reads the files from the recording, and does not load printers for them by itself.
#[test]
fn printers_work_where_the_program_is_gone() {
    let s = Scene::new();
    let trace = record_cpp(
        &s,
        "#include <string>\n#include <vector>\n\
         void stop() {}\n\
         int main() { std::string name = \"a name\"; std::vector<int> list = {1, 2, 3}; stop(); return list.size() + name.size() == 1; }\n",
    );
    std::fs::remove_file(s.path("program")).unwrap();
    let out = gdb(
        &s,
        &trace,
        "break stop\ncontinue\nup\nprint name\nprint list\nprint list.size()\n",
    );
    expect(&out, &["main () at", "$1 = ", "$2 = "]);
    // Only if the C++ library's printers are installed, and gdb has Python.
    let installed = std::path::Path::new("/usr/share/gcc/python/libstdcxx/v6").is_dir();
    let python = Command::new("gdb")
        .args(["-nx", "-batch", "-ex", "python print(6 * 7)"])
        .output();
    if installed && python.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("42")) {
        expect(&out, &["$1 = \"a name\"", "$2 = std::vector of length 3"]);
    }
}
