//! Only their owner can read the files that are made. Nothing is written or read through other people's links.

use hindsight_lab::Scene;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// A folder and everything in it must have the modes 0700 and 0600. Returns the number of files.
fn all_private(folder: &Path) -> usize {
    let m = fs::symlink_metadata(folder).unwrap();
    let mode = m.mode() & 0o777;
    let wanted = if m.is_dir() { 0o700 } else { 0o600 };
    assert_eq!(mode, wanted, "{}: {mode:o}", folder.display());
    if !m.is_dir() {
        return 1;
    }
    let inner = fs::read_dir(folder).unwrap().flatten();
    1 + inner.map(|e| all_private(&e.path())).sum::<usize>()
}

/// A command under this umask.
fn under(s: &Scene, umask: &str, args: &[&str]) -> Command {
    let mut c = s.command("sh");
    c.args(["-c", "umask $0; exec \"$@\"", umask])
        .arg(env!("CARGO_BIN_EXE_hindsight"))
        .args(args)
        .env("HINDSIGHT_DIR", s.path("a/b/store"))
        .env("XDG_CACHE_HOME", s.path("cache"));
    c
}

#[test]
fn what_is_made_is_private_whatever_the_umask_says() {
    for umask in ["000", "027", "377"] {
        let s = Scene::new();
        let run = |args: &[&str]| {
            let done = s.run(&mut under(&s, umask, args));
            assert_eq!(done.status.code(), Some(0), "{args:?}: {}", done.messages());
            done
        };
        run(&["record", "-q", "--", "/bin/sh", "-c", "ls / > /dev/null"]);
        run(&["index"]);
        // A debugger sets a checkpoint, which is saved in a file.
        let packet = |text: &str| {
            let sum = text.bytes().fold(0u8, u8::wrapping_add);
            format!("${text}#{sum:02x}")
        };
        let hex: String = "checkpoint x".bytes().map(|b| format!("{b:02x}")).collect();
        let input = s.path("input");
        let said = packet("qSupported:exec-events+") + "+" + &packet(&format!("qRcmd,{hex}")) + "+";
        fs::write(&input, said).unwrap();
        let name = run(&["ls", "--json"]).text();
        let list: serde_json::Value = serde_json::from_str(&name).unwrap();
        let file = list[0]["file"].as_str().unwrap();
        let mut server = under(&s, umask, &["gdbserver", "--stdio", file]);
        let done = s.run(server.stdin(fs::File::open(&input).unwrap()));
        let marks = format!("{file}.marks");
        assert!(Path::new(&marks).exists(), "{}", done.messages());
        let out = s.path("out");
        fs::create_dir(&out).unwrap();
        fs::set_permissions(&out, PermissionsExt::from_mode(0o700)).unwrap();
        let named = out.join("named.hst");
        let named = named.to_str().unwrap();
        run(&["record", "-q", "-o", named, "--", "/bin/true"]);
        run(&["events", named]);
        // A file that exists already, and that others can read.
        fs::set_permissions(named, PermissionsExt::from_mode(0o666)).unwrap();
        run(&["record", "-q", "-o", named, "--", "/bin/true"]);
        run(&["export", file, "-o", out.join("copy.hst").to_str().unwrap()]);
        let ring = out.join("ring.hst");
        let ring = ring.to_str().unwrap();
        run(&[
            "record",
            "-q",
            "--ring",
            "1M",
            "--ring-on-disk",
            "--keep-on",
            "always",
            "-o",
            ring,
            "--",
            "/bin/true",
        ]);
        assert!(all_private(&out) > 3);
        // The recording, its index, its checkpoints, the files that it uses, and their lock.
        assert!(all_private(&s.path("a")) > 8, "umask {umask}");
        all_private(&s.path("cache"));
    }
}

#[test]
fn side_files_are_not_made_through_links() {
    let s = Scene::new();
    let (_, trace) = s.record(&["/bin/true"]);
    let victim = s.path("victim");
    for side in ["hsx", "hsx.new"] {
        let link = trace.with_extension(side);
        symlink(&victim, &link).unwrap();
        let done = s.run(s.hindsight(&["index"]).arg(&trace));
        assert!(!victim.exists(), "{side}: {}", done.messages());
        // The link is replaced, or named in an error.
        match side {
            "hsx" => assert!(done.messages().contains("trace.hsx"), "{}", done.messages()),
            _ => assert_eq!(done.status.code(), Some(0), "{}", done.messages()),
        }
        let _ = fs::remove_file(&link);
        s.run(
            s.hindsight(&["mem"])
                .arg(&trace)
                .args(["50%", "0x1000", "8"]),
        );
        assert!(!victim.exists(), "{side}");
    }
}

/// A stranger's recording names files. A debugger gets none of this machine's, except debug files.
#[test]
fn the_server_gives_no_files_of_this_machine() {
    let s = Scene::new();
    let program = s.path("program");
    fs::copy("/bin/true", &program).unwrap();
    let (_, trace) = s.record(&[&program]);
    let secret = s.path("secret.debug");
    fs::write(&secret, "a secret").unwrap();
    let debug = s.path("debug");
    fs::create_dir_all(debug.join("sub")).unwrap();
    fs::write(debug.join("sub/good.debug"), "symbols").unwrap();
    symlink("sub/good.debug", debug.join("inner.debug")).unwrap();
    symlink(&secret, debug.join("link.debug")).unwrap();
    symlink(s.path(""), debug.join("up")).unwrap();
    fs::create_dir(s.path(".debug")).unwrap();
    fs::copy(&secret, s.path(".debug/program.debug")).unwrap();
    let fifo = debug.join("pipe.debug");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let ask = |name: &Path| {
        let hex: String = name
            .to_str()
            .unwrap()
            .bytes()
            .map(|b| format!("{b:02x}"))
            .collect();
        let text = format!("vFile:open:{hex},0,0");
        let sum = text.bytes().fold(0u8, u8::wrapping_add);
        let input = s.path("input");
        fs::write(&input, format!("${text}#{sum:02x}+")).unwrap();
        let mut c = s.hindsight(&["gdbserver", "--stdio"]);
        c.arg(&trace)
            .env("HINDSIGHT_DEBUG_PATH", &debug)
            .stdin(fs::File::open(&input).unwrap());
        let said = s.run(&mut c).text();
        assert!(said.contains("$F"), "{said}");
        !said.contains("$F-1")
    };
    for good in ["debug/sub/good.debug", "debug/inner.debug"] {
        assert!(ask(&s.path(good)), "{good}");
    }
    for bad in [
        "secret.debug",
        ".debug/program.debug",
        "debug/link.debug",
        "debug/up/secret.debug",
        "debug/../secret.debug",
        "debug/sub/../../secret.debug",
        "debug/pipe.debug",
        "debug/sub",
        "input",
    ] {
        assert!(!ask(&s.path(bad)), "{bad}");
    }
    for bad in [
        "/etc/passwd",
        "/etc/shadow",
        "/dev/zero",
        "/proc/self/environ",
    ] {
        assert!(!ask(Path::new(bad)), "{bad}");
    }
}
