//! Finds the file that the kernel would run for a command.

use crate::sys;
use hindsight_events::script::{self, LINE};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Scripts that may run each other.
const DEPTH: usize = 5;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// The ELF file, absolute and without symbolic links.
    pub exe: PathBuf,
    /// The path that was executed, which names the process and appears as AT_EXECFN.
    pub execfn: PathBuf,
    /// The arguments, the program's name first. For a script they begin with its interpreter.
    pub argv: Vec<OsString>,
}

/// Why a command cannot be run, or cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", .path.display())]
#[non_exhaustive]
pub struct Refusal {
    /// The program or script.
    pub path: PathBuf,
    /// Whether it, or its interpreter, was not found at all.
    pub missing: bool,
    /// What is wrong with it.
    pub why: String,
}

impl Refusal {
    /// The exit status with which a shell says this: 127 if it was not found, otherwise 126.
    pub fn shell_status(&self) -> i32 {
        if self.missing { 127 } else { 126 }
    }
}

/// Not found.
const MISSING: bool = true;
/// Found, cannot be executed.
const UNUSABLE: bool = false;

fn refuse<T>(missing: bool, path: &Path, why: impl std::fmt::Display) -> Result<T, Refusal> {
    Err(Refusal {
        path: path.into(),
        missing,
        why: why.to_string(),
    })
}

/// Finds what `command` (a program and its arguments) runs, as `execvp` and the kernel would.
///
/// `search` is the PATH in which a name without a slash is looked for; without one, that is `/bin:/usr/bin`.
///
/// # Errors
/// There is no such program, it may not be executed or read, or it is none for x86-64.
pub fn resolve(command: &[OsString], search: Option<&OsStr>) -> Result<Program, Refusal> {
    let Some(name) = command.first() else {
        return refuse(MISSING, Path::new(""), "no program");
    };
    let execfn = find(name, search)?;
    let mut argv = command.to_vec();
    let mut file = execfn.clone();
    for _ in 0..=DEPTH {
        let start = read_start(&file)?;
        if !start.starts_with(b"#!") {
            check_elf(&file, &start)?;
            let exe = match std::fs::canonicalize(&file) {
                Ok(p) => p,
                Err(e) => return refuse(UNUSABLE, &file, e),
            };
            return Ok(Program { exe, execfn, argv });
        }
        let Some((interpreter, argument)) = parse_line(&start) else {
            return refuse(UNUSABLE, &file, "no interpreter in its first line");
        };
        argv[0] = file.into_os_string();
        if let Some(a) = argument {
            argv.insert(0, a);
        }
        argv.insert(0, interpreter.clone());
        file = PathBuf::from(interpreter);
        if let Err(e) = usable(&file) {
            let status = if e.kind() == std::io::ErrorKind::NotFound {
                MISSING
            } else {
                UNUSABLE
            };
            return refuse(
                status,
                &execfn,
                format_args!("interpreter {}: {e}", file.display()),
            );
        }
    }
    refuse(
        UNUSABLE,
        &execfn,
        "its scripts name each other as interpreters, in a circle",
    )
}

/// Searches as `execvp` does.
fn find(name: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, Refusal> {
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return match usable(path) {
            Ok(()) => Ok(path.to_path_buf()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => refuse(MISSING, path, e),
            Err(e) => refuse(UNUSABLE, path, e),
        };
    }
    let search = search.unwrap_or(OsStr::new("/bin:/usr/bin"));
    let mut denied = None;
    for dir in search.as_bytes().split(|b| *b == b':') {
        if name.is_empty() {
            break;
        }
        let candidate = Path::new(OsStr::from_bytes(dir)).join(name);
        match usable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                denied = Some((candidate, e))
            }
            Err(_) => {}
        }
    }
    match denied {
        Some((candidate, e)) => refuse(UNUSABLE, &candidate, e),
        None => refuse(MISSING, path, "command not found"),
    }
}

fn usable(path: &Path) -> std::io::Result<()> {
    let m = std::fs::metadata(path)?;
    if !m.is_file() || !sys::files::executable(path) {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

fn read_start(path: &Path) -> Result<Vec<u8>, Refusal> {
    let mut b = Vec::new();
    match File::open(path).and_then(|f| f.take(LINE as u64).read_to_end(&mut b)) {
        Ok(_) => Ok(b),
        // A program may be executable and not readable; then nothing can be recorded of it.
        Err(e) => refuse(UNUSABLE, path, format_args!("cannot be read: {e}")),
    }
}

/// Interpreter and argument of a `#!` line, as the kernel cuts it (`fs/binfmt_script.c`).
fn parse_line(start: &[u8]) -> Option<(OsString, Option<OsString>)> {
    let (interpreter, argument) = script::parse(start)?;
    let os = |b: &[u8]| OsString::from_vec(b.to_vec());
    Some((
        os(interpreter),
        (!argument.is_empty()).then(|| os(argument)),
    ))
}

fn check_elf(path: &Path, b: &[u8]) -> Result<(), Refusal> {
    if !b.starts_with(b"\x7fELF") {
        return refuse(
            UNUSABLE,
            path,
            "not a program: neither ELF nor a script with #!",
        );
    }
    let half = |i: usize| {
        b.get(i..i + 2)
            .map_or(0, |h| u16::from_le_bytes([h[0], h[1]]))
    };
    let (class, order, kind, machine) = (b.get(4), b.get(5), half(16), half(18));
    const X86_64: u16 = 62;
    if order != Some(&1) {
        return refuse(
            UNUSABLE,
            path,
            "a program for a big-endian machine; x86-64 is supported",
        );
    }
    if class != Some(&2) {
        return refuse(
            UNUSABLE,
            path,
            "a 32-bit program; only 64-bit programs are supported",
        );
    }
    if machine != X86_64 {
        return refuse(
            UNUSABLE,
            path,
            format_args!(
                "a program for another machine (ELF number {machine}); x86-64 is supported"
            ),
        );
    }
    // ET_EXEC, ET_DYN.
    if kind != 2 && kind != 3 {
        return refuse(UNUSABLE, path, "an ELF file, but no program");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn line(s: &[u8]) -> Option<(String, Option<String>)> {
        let text = |s: OsString| s.into_string().unwrap();
        parse_line(s).map(|(i, a)| (text(i), a.map(text)))
    }

    #[test]
    fn first_lines_are_cut_as_the_kernel_does() {
        let both = |i: &str, a: &str| Some((i.into(), Some(a.into())));
        assert_eq!(line(b"#!/bin/sh\n"), Some(("/bin/sh".into(), None)));
        assert_eq!(line(b"#! \t/bin/sh  -e \t\nrest"), both("/bin/sh", "-e"));
        assert_eq!(
            line(b"#!/usr/bin/env python3 -u\n"),
            both("/usr/bin/env", "python3 -u")
        );
        assert_eq!(line(b"#!/bin/sh"), Some(("/bin/sh".into(), None)));
        assert_eq!(line(b"#!\n"), None);
        assert_eq!(line(b"#!   \n/bin/sh"), None);
        let mut long = b"#!/bin/sh ".to_vec();
        long.resize(LINE, b'a');
        assert_eq!(line(&long).unwrap().1.unwrap().len(), LINE - 10);
        let mut cut = b"#!/".to_vec();
        cut.resize(LINE, b'a');
        assert_eq!(line(&cut), None);
    }

    fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
        let p = dir.join(name);
        std::fs::write(&p, text).unwrap();
        std::fs::set_permissions(&p, PermissionsExt::from_mode(0o755)).unwrap();
        p
    }

    #[test]
    fn scripts_become_their_interpreters_arguments() {
        let d = tempfile::tempdir().unwrap();
        let inner = script(d.path(), "inner", "#!/bin/sh -x\n");
        let outer = script(d.path(), "outer", &format!("#!{}\n", inner.display()));
        let p = resolve(&["outer".into(), "1".into()], Some(d.path().as_os_str())).unwrap();
        let text = |p: &Path| p.as_os_str().to_os_string();
        assert_eq!(
            p.argv,
            [
                "/bin/sh".into(),
                "-x".into(),
                text(&inner),
                text(&outer),
                "1".into()
            ]
        );
        assert_eq!(p.execfn, outer);
        assert_eq!(p.exe, std::fs::canonicalize("/bin/sh").unwrap());
    }

    #[test]
    fn refusals_have_the_shells_statuses() {
        let d = tempfile::tempdir().unwrap();
        let status = |c: &str| {
            resolve(&[c.into()], Some(OsStr::new("/bin:/usr/bin")))
                .unwrap_err()
                .shell_status()
        };
        assert_eq!(status("no-such-program-anywhere"), 127);
        assert_eq!(status("/no/such/file"), 127);
        assert_eq!(status("/etc/passwd"), 126);
        assert_eq!(status("/tmp"), 126);
        let circle = d.path().join("circle");
        script(d.path(), "circle", &format!("#!{}\n", circle.display()));
        assert_eq!(status(circle.to_str().unwrap()), 126);
        let text = script(d.path(), "text", "hello\n");
        assert_eq!(status(text.to_str().unwrap()), 126);
        let orphan = script(d.path(), "orphan", "#!/no/such/interpreter\n");
        assert_eq!(status(orphan.to_str().unwrap()), 127);
    }

    #[test]
    fn plain_programs_keep_the_name_they_were_called_by() {
        let p = resolve(&["true".into()], Some(OsStr::new("/nowhere:/usr/bin"))).unwrap();
        assert_eq!(p.argv, ["true"]);
        assert_eq!(p.execfn, Path::new("/usr/bin/true"));
    }
}
