//! The compiler, which finds headers and preprocesses them.

use crate::{Error, Fault};
use std::fs::File;
use std::io::{ErrorKind, Seek, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// How headers are preprocessed.
#[derive(Clone, Debug)]
pub struct Compiler {
    words: Vec<String>,
    options: Vec<String>,
}

impl Compiler {
    /// `command` may have options: `ccache gcc`.
    pub fn new(command: &str, options: &[String]) -> Compiler {
        Compiler {
            words: command.split_whitespace().map(str::to_owned).collect(),
            options: options.to_vec(),
        }
    }

    /// What it calls itself.
    pub fn version(&self) -> Result<String, Error> {
        let out = self.run(&["--version"], "")?;
        let text = String::from_utf8_lossy(&out.stdout);
        Ok(text.lines().next().unwrap_or("").trim().to_owned())
    }

    /// The text of a header and of all that it includes. The header is a file, or a name as in `#include <NAME>`.
    pub fn preprocess(&self, header: &str) -> Result<String, Error> {
        if header.contains(['\n', '"', '>']) {
            return Err(Error::Fault(Fault::at(
                header,
                0,
                "a header's name has no such characters",
            )));
        }
        let source = match Path::new(header).is_file() {
            true => {
                let absolute = std::path::absolute(header);
                let path = absolute.map_err(|e| Error::Run(header.into(), e))?;
                format!("#include \"{}\"\n", path.display())
            }
            false => format!("#include <{header}>\n"),
        };
        // `-E` alone takes what is not C.
        let mut text = Vec::new();
        for mode in ["-fsyntax-only", "-E"] {
            let out = self.run(&["-w", "-x", "c", mode, "-"], &source)?;
            if !out.status.success() {
                return Err(Error::Header(header.into(), first_error(&out)));
            }
            text = out.stdout;
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn run(&self, arguments: &[&str], input: &str) -> Result<Output, Error> {
        let (program, first) = match self.words.split_first() {
            Some(all) => all,
            None => return Err(Error::Nothing),
        };
        let abi = ["-m32", "-mx32", "-m16", "-mabi=ms", "-mrtd", "-miamcu"];
        let mut given = first.iter().chain(&self.options);
        let changes = |o: &&String| abi.contains(&o.as_str()) || o.starts_with("-mregparm");
        if let Some(option) = given.find(changes) {
            return Err(Error::Option(option.clone()));
        }
        let failed = |e| Error::Run(program.clone(), e);
        let stdin = input_file(input).map_err(failed)?;
        let child = Command::new(program)
            .args(first)
            .args(&self.options)
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        child.wait_with_output().map_err(failed)
    }
}

/// A text as what a process reads. Not a pipe: a compiler that ends before it reads would end this process by a signal.
fn input_file(text: &str) -> std::io::Result<Stdio> {
    if text.is_empty() {
        return Ok(Stdio::null());
    }
    let mut n = 0u32;
    loop {
        let name = format!("hindsight-headers-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = File::options();
        match options.read(true).write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                std::fs::remove_file(&path)?;
                file.write_all(text.as_bytes())?;
                file.rewind()?;
                return Ok(file.into());
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists && n < 1000 => n += 1,
            Err(e) => return Err(e),
        }
    }
}

/// The line that says what is wrong.
fn first_error(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stderr);
    let found = text.lines().find(|l| l.contains("error:"));
    let found = found.or_else(|| text.lines().next());
    match found {
        Some(line) => line.trim().to_owned(),
        None => format!("the compiler ended with {}", out.status),
    }
}
