//! Runs the `hindsight` program for the measurements.

use crate::process::{ExitStatus, Run, Spec, run};
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program under test, and options for every recording.
#[derive(Clone, Debug)]
pub struct Hindsight {
    pub program: PathBuf,
    pub record_options: Vec<String>,
    /// The words that run what verifies recordings: the same program, if nothing else is chosen.
    pub player: Vec<OsString>,
}

/// What a recording says about itself.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Facts {
    pub instructions: u64,
    pub unpredicted_reads: u64,
    pub trace_bytes: u64,
    /// Bytes of the streams, without the copies of the program's files.
    pub stream_bytes: u64,
    /// Peak resident memory of the recorded program, in KiB; 0 if unknown.
    pub peak_rss_kib: u64,
    /// Processor time of the collector, in microseconds.
    pub collector_cpu_us: u64,
}

impl Hindsight {
    /// Finds the program: `given`, or the one beside this program.
    pub fn find(given: Option<PathBuf>, record_options: Vec<String>) -> io::Result<Hindsight> {
        let program = match given {
            Some(p) => p,
            None => std::env::current_exe()?.with_file_name("hindsight"),
        };
        let program = std::path::absolute(program)?;
        if !program.is_file() {
            let message = format!(
                "{} is not there; build it or use --hindsight",
                program.display()
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        Ok(Hindsight {
            player: vec![program.clone().into()],
            program,
            record_options,
        })
    }

    /// The program's version, as it prints it.
    pub fn version(&self) -> io::Result<String> {
        let out = std::process::Command::new(&self.program)
            .arg("--version")
            .output()?;
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    }

    /// The command that records `native` into `trace`.
    pub fn recorded(&self, native: &Spec, trace: &Path) -> Spec {
        Spec {
            argv: self.recorded_words(&native.argv, Some(trace)),
            ..native.clone()
        }
    }

    /// The command that records `native` into the store in the folder `store`.
    pub fn stored(&self, native: &Spec, store: &Path) -> Spec {
        Spec {
            argv: self.recorded_words(&native.argv, None),
            store: Some(store.into()),
            ..native.clone()
        }
    }

    /// The arguments that record a program. Without `trace`, they record into the store.
    pub fn recorded_words(&self, native: &[OsString], trace: Option<&Path>) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec![
            self.program.clone().into(),
            "record".into(),
            "--quiet".into(),
        ];
        argv.extend(self.record_options.iter().map(OsString::from));
        if let Some(trace) = trace {
            argv.extend(["-o".into(), trace.into()]);
        }
        argv.push("--".into());
        argv.extend(native.iter().cloned());
        argv
    }

    /// The command that makes the index of `trace`.
    pub fn index(&self, trace: &Path, limit: Duration) -> Spec {
        Spec {
            argv: vec![self.program.clone().into(), "index".into(), trace.into()],
            cwd: "/".into(),
            limit,
            ..Spec::default()
        }
    }

    /// The command that shows a place of `trace`.
    pub fn at(&self, trace: &Path, place: &str, limit: Duration) -> Spec {
        Spec {
            argv: vec![
                self.program.clone().into(),
                "at".into(),
                trace.into(),
                place.into(),
            ],
            cwd: "/".into(),
            limit,
            ..Spec::default()
        }
    }

    /// Replays `trace` on `jobs` processors. Fails unless it verifies.
    pub fn verify(&self, trace: &Path, jobs: u32, limit: Duration) -> io::Result<Run> {
        let (report, messages) = (
            trace.with_extension("report"),
            trace.with_extension("messages"),
        );
        let words = ["replay", "--verify", "--jobs", &jobs.to_string()].map(OsString::from);
        let done = run(&Spec {
            argv: (self.player.iter().cloned().chain(words))
                .chain([trace.into()])
                .collect(),
            cwd: "/".into(),
            stdout: Some(report.clone()),
            stderr: Some(messages.clone()),
            limit,
            ..Spec::default()
        })?;
        if done.end == ExitStatus::Exit(0) {
            return Ok(done);
        }
        let (report, messages) = (tail(&report), tail(&messages));
        Err(io::Error::other(format!(
            "replay --verify: {}: {report} {messages}",
            done.end
        )))
    }

    /// The result of `hindsight info --json`.
    pub fn facts(&self, trace: &Path) -> io::Result<Facts> {
        let out = std::process::Command::new(&self.program)
            .arg("info")
            .arg("--json")
            .arg(trace)
            .output()?;
        if !out.status.success() {
            let message = String::from_utf8_lossy(&out.stderr);
            return Err(io::Error::other(format!(
                "hindsight info: {}",
                message.trim()
            )));
        }
        let info: Value = serde_json::from_slice(&out.stdout)?;
        let number = |name: &str| info.pointer(name).and_then(Value::as_u64);
        let need = |name: &str| {
            number(name).ok_or_else(|| io::Error::other(format!("hindsight info: no {name}")))
        };
        Ok(Facts {
            instructions: need("/instructions")?,
            unpredicted_reads: number("/unpredicted_reads").unwrap_or(0),
            trace_bytes: need("/trace_bytes")?,
            stream_bytes: number("/stream_bytes").unwrap_or(0),
            peak_rss_kib: number("/peak_rss_kib").unwrap_or(0),
            collector_cpu_us: number("/collector_cpu_us").unwrap_or(0),
        })
    }
}

/// The recordings in the store in the folder `store`.
pub fn recordings(store: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    match std::fs::read_dir(store) {
        Ok(list) => {
            for entry in list {
                let path = entry?.path();
                if path.extension().is_some_and(|e| e == "hst") {
                    all.push(path);
                }
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    Ok(all)
}

/// The only recording in the store.
pub fn only_recording(store: &Path) -> io::Result<PathBuf> {
    match &recordings(store)?[..] {
        [one] => Ok(one.clone()),
        all => Err(io::Error::other(format!(
            "{} recordings are in {} instead of one",
            all.len(),
            store.display()
        ))),
    }
}

/// Deletes the recordings in the store. The files that they share stay, as they do for a while for a user who
/// records often.
pub fn empty(store: &Path) -> io::Result<()> {
    recordings(store)?.iter().try_for_each(std::fs::remove_file)
}

/// The last part of a file of messages, to report what went wrong.
pub fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}

/// Fails unless `run` ended with status 0.
pub fn must_succeed(what: &str, run: &Run, messages: &Path) -> io::Result<()> {
    if run.end == ExitStatus::Exit(0) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{what}: {}: {}",
        run.end,
        tail(messages)
    )))
}
