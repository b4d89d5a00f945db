//! Programs of all kinds are loaded as the kernel loads them, and cannot tell the difference.

use hindsight_lab::{Scene, words};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn shapes_of_executables() {
    for options in [
        &[][..],
        &["-static"],
        &["-static-pie"],
        &["-no-pie"],
        &["-O0", "-z", "execstack"],
    ] {
        let scene = Scene::new();
        let program = scene.compile("hello.c", options);
        let done = scene.same(&words(&program, &["17", "two words", ""]));
        assert_eq!(done.status.code(), Some(17), "{options:?}");
        assert_eq!(done.text(), "hello from 4 arguments\n");
    }
}

#[test]
fn exit_statuses() {
    let scene = Scene::new();
    let program = scene.compile("hello.c", &[]);
    for status in ["0", "1", "127", "255", "256"] {
        scene.same(&words(&program, &[status]));
    }
}

#[test]
fn what_a_program_sees_of_its_start() {
    for options in [&[][..], &["-static"], &["-no-pie"]] {
        let scene = Scene::new();
        let program = scene.compile("identity.c", options);
        scene.same(&words(&program, &["a", "", "ü", "--", "-o"]));
    }
}

#[test]
fn found_by_path_and_by_relative_name() {
    let scene = Scene::new();
    scene.compile("identity.c", &[]);
    scene.same(&["./identity", "x"]);
    scene.same(&["printf", "%s\n", "from PATH"]);
}

#[test]
fn standard_streams_and_descriptors_pass_through() {
    let scene = Scene::new();
    fs::write(scene.path("input"), "line\n".repeat(5000)).unwrap();
    let open = || fs::File::open(scene.path("input")).unwrap();
    let native = scene.run(scene.command("/usr/bin/sha256sum").stdin(open()));
    let trace = scene.path("trace.hst");
    let recorded = scene.run(
        scene
            .recording(&trace, &["/usr/bin/sha256sum"])
            .stdin(open()),
    );
    assert_eq!(recorded.text(), native.text());
    scene.must_verify(&trace);
    // A descriptor that the caller opened, and a closed standard input.
    let line = r#"exec 7<input 0<&-; exec "$@" /bin/cat /proc/self/fd/7"#;
    let hindsight = env!("CARGO_BIN_EXE_hindsight");
    let args = [
        "-c",
        line,
        "sh",
        hindsight,
        "record",
        "--quiet",
        "-o",
        "trace.hst",
        "--",
    ];
    let recorded = scene.run(scene.command("/bin/sh").args(args));
    assert_eq!(
        recorded.stdout,
        fs::read(scene.path("input")).unwrap(),
        "{}",
        recorded.messages()
    );
    scene.must_verify(&trace);
}

#[test]
fn limits_masks_and_ignored_signals_pass_through() {
    let scene = Scene::new();
    let program = scene.compile("identity.c", &[]);
    let line = r#"ulimit -n 77; ulimit -s 4096; trap "" INT USR1 PIPE; exec "$@""#;
    let native = scene.run(
        scene
            .command("/bin/dash")
            .args(["-c", line, "sh"])
            .arg(&program),
    );
    let hindsight = env!("CARGO_BIN_EXE_hindsight");
    let mut command = scene.command("/bin/dash");
    command.args([
        "-c",
        line,
        "sh",
        hindsight,
        "record",
        "--quiet",
        "-o",
        "trace.hst",
        "--",
    ]);
    let recorded = scene.run(command.arg(&program));
    assert_eq!(recorded.text(), native.text(), "{}", recorded.messages());
    assert!(native.text().contains("signal 2: ignored"));
    scene.must_verify(&scene.path("trace.hst"));
}

#[test]
fn scripts_run_under_their_interpreter() {
    let scene = Scene::new();
    let program = scene.compile("identity.c", &[]);
    let script = |name: &str, text: String| {
        let path = scene.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let plain = script("plain", format!("#!{}\n", program.display()));
    scene.same(&words(&plain, &["one", "two"]));
    let optional = script("optional", format!("#! {}  -x  y z \n", program.display()));
    scene.same(&words(&optional, &["one"]));
    let nested = script("nested", format!("#!{} inner\n", plain.display()));
    scene.same(&words(&nested, &["outer"]));
    let python = script(
        "python",
        "#!/usr/bin/python3\nimport sys\nprint(sys.argv, 6 * 7)\n".into(),
    );
    scene.same(&words(&python, &["a", "b"]));
}

#[test]
fn what_cannot_be_run_is_told() {
    let scene = Scene::new();
    let text = scene.path("text");
    fs::write(&text, "no program\n").unwrap();
    let status = |argv: &Path| scene.record(&[argv]).0.status.code();
    assert_eq!(status(Path::new("/nonexistent/program")), Some(127));
    assert_eq!(status(Path::new("no-such-command-anywhere")), Some(127));
    assert_eq!(status(&text), Some(126));
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    let (done, _) = scene.record(&[&text]);
    assert_eq!(done.status.code(), Some(126), "{}", done.messages());
    assert!(done.messages().contains("hindsight"), "{}", done.messages());
}

#[test]
fn libraries_come_and_go() {
    let scene = Scene::new();
    let library = scene.compile("plugin.c", &["-shared", "-fPIC"]);
    let program = scene.compile("loads.c", &[]);
    scene.same(&words(&program, &[library.to_str().unwrap()]));
}

#[test]
fn memory_is_mapped_moved_and_released() {
    let scene = Scene::new();
    let program = scene.compile("memory.c", &[]);
    scene.same(&words(&program, &[]));
}

#[test]
fn exceptions_unwind() {
    let scene = Scene::new();
    let program = scene.compile("exceptions.cpp", &["-std=c++17"]);
    scene.same(&words(&program, &[]));
    let program = scene.compile("exceptions.cpp", &["-std=c++17", "-static", "-O0"]);
    scene.same(&words(&program, &[]));
}

#[test]
fn arithmetic_of_all_kinds() {
    let scene = Scene::new();
    for options in [&[][..], &["-O3", "-march=x86-64-v3"], &["-O0"]] {
        let program = scene.compile("arithmetic.c", options);
        scene.same(&words(&program, &[]));
    }
    let program = scene.compile("strings.c", &[]);
    scene.same(&words(&program, &[]));
}

/// String instructions with faults in their middle, changes by other threads in their middle, and frequent signals.
#[test]
fn string_instructions_whose_reads_are_checked() {
    let scene = Scene::new();
    let shared = scene.compile("shared_strings.c", &["-O1", "-pthread"]);
    scene.same(&words(&shared, &[]));
    let quiet = scene.compile("quiet.c", &["-pthread"]);
    let native = scene.native(&words(&quiet, &["strings"]));
    let trace = scene.path("trace.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "--regime=checked", "-o"]);
    let done = scene.run(command.arg(&trace).arg("--").arg(&quiet).arg("strings"));
    assert_eq!(done.text(), native.text(), "{}", done.messages());
    scene.must_verify(&trace);
}

#[test]
fn bounded_predictors_record_the_same_program() {
    let scene = Scene::new();
    let program = scene.compile("memory.c", &[]);
    let native = scene.native(&words(&program, &[]));
    for size in ["cache:4k", "cache:64k", "cache:16m", "window"] {
        let trace = scene.path("trace.hst");
        let mut command = scene.hindsight(&["record", "--quiet", "--predictor", size, "-o"]);
        let done = scene.run(command.arg(&trace).arg("--").arg(&program));
        assert_eq!(done.text(), native.text(), "{size}: {}", done.messages());
        scene.must_verify(&trace);
    }
}

/// The longest read of all, from cells at both ends of the predictor.
#[test]
fn vector_state_survives_where_predictors_wrap() {
    let scene = Scene::new();
    let program = scene.compile("vectorstate.c", &[]);
    let native = scene.native(&words(&program, &[]));
    for size in ["cache:4k", "cache:8k", "cache:64k", "window"] {
        let trace = scene.path("trace.hst");
        let mut command = scene.hindsight(&["record", "--quiet", "--regime=checked", "-o"]);
        command.args([trace.as_os_str(), "--predictor".as_ref(), size.as_ref()]);
        let done = scene.run(command.arg("--").arg(&program));
        assert_eq!(done.text(), native.text(), "{size}: {}", done.messages());
        scene.must_verify(&trace);
    }
}

#[test]
fn processor_baselines() {
    let scene = Scene::new();
    let program = scene.compile("arithmetic.c", &[]);
    for cpu in ["host", "x86-64-v2", "x86-64-v3"] {
        let trace = scene.path("trace.hst");
        let mut command = scene.hindsight(&["record", "--quiet", "--cpu", cpu, "-o"]);
        let done = scene.run(command.arg(&trace).arg("--").arg(&program));
        assert_eq!(done.status.code(), Some(0), "{cpu}: {}", done.messages());
        scene.must_verify(&trace);
    }
}

#[test]
fn key_frames_split_the_replay() {
    let scene = Scene::new();
    let program = scene.compile("memory.c", &[]);
    let trace = scene.path("trace.hst");
    let mut command = scene.hindsight(&["record", "--quiet"]);
    command.args([
        "--keyframe-interval",
        "200000",
        "--digest-interval",
        "50000",
        "-o",
    ]);
    let done = scene.run(command.arg(&trace).arg("--").arg(&program));
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    for jobs in ["1", "2", "5"] {
        let done = scene.run(
            scene
                .hindsight(&["replay", "--verify", "--jobs", jobs])
                .arg(&trace),
        );
        assert_eq!(
            done.status.code(),
            Some(0),
            "{}{}",
            done.text(),
            done.messages()
        );
    }
}

/// Memory changes without the knowledge of recorder and program: through the file of which it is a copy, and through
/// `/proc`.
#[test]
fn memory_written_as_a_file() {
    let scene = Scene::new();
    let program = scene.compile("remapped.c", &[]);
    scene.same(&words(&program, &[]));
}
