//! Measures in pairs: native, recorded, replayed, native, recorded, replayed, and so on. So a machine that
//! changes its speed changes it for all three.

use crate::folder::same_content;
use crate::hindsight::{Facts, Hindsight, empty, must_succeed, only_recording};
use crate::process::{Run, Spec, argv, run};
use crate::stats::{geometric_mean, median, range};
use crate::workload::{Aim, Workload};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::Duration;

/// One round of a workload.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    pub native_cpu: f64,
    pub native_wall: f64,
    pub native_rss_kib: u64,
    /// Processor time of the whole tree: program and collector.
    pub record_cpu: f64,
    /// The collector's part of that.
    pub collector_cpu: f64,
    pub record_wall: f64,
    pub record_rss_kib: u64,
    /// Processor time recorded in the checked regime; NaN if it was not measured.
    pub checked_cpu: f64,
    /// Processor time translated but not recorded; NaN if it was not measured.
    pub plain_cpu: f64,
    /// Processor time of `replay --verify --jobs 1`.
    pub replay_cpu: f64,
    pub replay_wall: f64,
    pub facts: Facts,
}

/// All rounds of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub name: String,
    pub what: String,
    pub aim: Aim,
    pub pairs: Vec<Pair>,
    /// Why a replay did not verify. Its times are NaN then.
    pub miss: Option<String>,
}

/// Start-up times of `/bin/true`, in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Startup {
    /// Without translated code from earlier recordings.
    pub first_wall: Vec<f64>,
    pub native_wall: Vec<f64>,
    pub native_cpu: Vec<f64>,
    pub record_wall: Vec<f64>,
    pub record_cpu: Vec<f64>,
    /// In the checked regime.
    pub checked_wall: Vec<f64>,
}

const LIMIT: Duration = Duration::from_secs(600);

/// Measures `workload` in `pairs` rounds. Fails if outputs differ.
pub fn measure(
    tool: &Hindsight,
    workload: &Workload,
    dir: &Path,
    pairs: u32,
) -> io::Result<Measured> {
    let spec = |name: &str| Spec {
        argv: workload.argv.clone(),
        cwd: dir.into(),
        stdout: Some(dir.join(format!("{name}.out"))),
        stderr: Some(dir.join(format!("{name}.err"))),
        cache: Some(dir.join("cache")),
        limit: LIMIT,
        ..Spec::default()
    };
    let (native, record) = (spec("native"), spec("record"));
    let store = dir.join("store");
    let recorded = tool.stored(&record, &store);
    // One run of each kind is not measured. It brings files into the page cache and the store, and translated
    // code of both regimes into the user's cache.
    let with = |options: &[&str]| {
        let mut tool = tool.clone();
        let options = options.iter().map(|o| o.to_string());
        tool.record_options.extend(options);
        tool.stored(&record, &store)
    };
    run(&native)?;
    run(&recorded)?;
    run(&with(&["--regime=checked"]))?;
    let mut rounds = Vec::new();
    let mut miss = None;
    for _ in 0..pairs {
        let plain = run(&native)?;
        must_succeed("native run", &plain, &dir.join("native.err"))?;
        empty(&store)?;
        let recording = run(&recorded)?;
        must_succeed("recording", &recording, &dir.join("record.err"))?;
        for stream in ["out", "err"] {
            let file = |name: &str| dir.join(format!("{name}.{stream}"));
            if !same_content(&file("native"), &file("record"))? {
                return Err(io::Error::other(format!(
                    "std{stream} differs between native and recorded run"
                )));
            }
        }
        let trace = only_recording(&store)?;
        let facts = tool.facts(&trace)?;
        // What recording costs is worth knowing even if the replay fails.
        let replay = tool
            .verify(&trace, 1, LIMIT)
            .map_err(|e| miss = Some(e.to_string()))
            .ok();
        let other = |options: &[&str]| -> io::Result<f64> {
            empty(&store)?;
            let cost = run(&with(options))?;
            must_succeed("recording", &cost, &dir.join("record.err"))?;
            Ok(cost.cpu)
        };
        let checked = other(&["--regime=checked"])?;
        let translated = match workload.aim {
            Aim::Cpu => other(&["--plain"])?,
            _ => f64::NAN,
        };
        let others = [checked, translated];
        rounds.push(pair(&plain, &recording, others, replay.as_ref(), facts));
    }
    empty(&store)?;
    Ok(Measured {
        name: workload.name.clone(),
        what: workload.what.clone(),
        aim: workload.aim,
        pairs: rounds,
        miss,
    })
}

fn pair(
    plain: &Run,
    recording: &Run,
    [checked_cpu, plain_cpu]: [f64; 2],
    replay: Option<&Run>,
    facts: Facts,
) -> Pair {
    Pair {
        native_cpu: plain.cpu,
        native_wall: plain.wall,
        native_rss_kib: plain.max_rss_kib,
        record_cpu: recording.cpu,
        collector_cpu: facts.collector_cpu_us as f64 / 1e6,
        record_wall: recording.wall,
        record_rss_kib: if facts.peak_rss_kib > 0 {
            facts.peak_rss_kib
        } else {
            recording.max_rss_kib
        },
        checked_cpu,
        plain_cpu,
        replay_cpu: replay.map_or(f64::NAN, |r| r.cpu),
        replay_wall: replay.map_or(f64::NAN, |r| r.wall),
        facts,
    }
}

/// Measures the start-up of `/bin/true` in `rounds` rounds.
pub fn startup(tool: &Hindsight, dir: &Path, rounds: u32) -> io::Result<Startup> {
    let messages = dir.join("true.err");
    let native = Spec {
        argv: argv(&["/bin/true"]),
        cwd: dir.into(),
        stderr: Some(messages.clone()),
        cache: Some(dir.join("cache")),
        limit: LIMIT,
        ..Spec::default()
    };
    let store = dir.join("store");
    let recorded = tool.stored(&native, &store);
    let mut cold = tool.clone();
    let options = ["--no-cache", "--self-contained"].map(String::from);
    cold.record_options.extend(options);
    let first = cold.stored(&native, &store);
    let mut careful = tool.clone();
    careful.record_options.push("--regime=checked".into());
    let checked = careful.stored(&native, &store);
    run(&recorded)?;
    run(&checked)?;
    let mut s = Startup {
        first_wall: vec![],
        native_wall: vec![],
        native_cpu: vec![],
        record_wall: vec![],
        record_cpu: vec![],
        checked_wall: vec![],
    };
    for _ in 0..rounds {
        let plain = run(&native)?;
        must_succeed("/bin/true", &plain, &messages)?;
        s.native_wall.push(plain.wall);
        s.native_cpu.push(plain.cpu);
        empty(&store)?;
        let recording = run(&first)?;
        must_succeed("first recording of /bin/true", &recording, &messages)?;
        s.first_wall.push(recording.wall);
        empty(&store)?;
        let recording = run(&recorded)?;
        must_succeed("recording of /bin/true", &recording, &messages)?;
        s.record_wall.push(recording.wall);
        s.record_cpu.push(recording.cpu);
        empty(&store)?;
        let recording = run(&checked)?;
        must_succeed("checked recording of /bin/true", &recording, &messages)?;
        s.checked_wall.push(recording.wall);
    }
    empty(&store)?;
    Ok(s)
}

impl Measured {
    /// A value of each round.
    pub fn each(&self, value: impl Fn(&Pair) -> f64) -> Vec<f64> {
        self.pairs.iter().map(value).collect()
    }

    /// The median of a value over the rounds.
    pub fn mid(&self, value: impl Fn(&Pair) -> f64) -> f64 {
        median(&self.each(value))
    }

    /// Median ratio of the processor time, recorded to native.
    pub fn record_ratio(&self) -> f64 {
        self.mid(|p| p.record_cpu / p.native_cpu)
    }

    /// Median ratio of the time, recorded to native.
    pub fn wall_ratio(&self) -> f64 {
        self.mid(|p| p.record_wall / p.native_wall)
    }

    /// Median ratio of the processor time, recorded in the checked regime to native.
    pub fn checked_ratio(&self) -> f64 {
        self.mid(|p| p.checked_cpu / p.native_cpu)
    }

    /// Median ratio of the processor time, translated but not recorded to native.
    pub fn plain_ratio(&self) -> f64 {
        self.mid(|p| p.plain_cpu / p.native_cpu)
    }

    /// Bits of the trace for each instruction, without the copies of the program's files.
    pub fn stream_bits(&self) -> f64 {
        self.mid(|p| p.facts.stream_bytes as f64 * 8.0 / p.facts.instructions.max(1) as f64)
    }

    /// Median processor time that recording adds to each of `units`, in milliseconds.
    pub fn added_ms(&self, units: u32) -> f64 {
        self.mid(|p| (p.record_cpu - p.native_cpu) * 1e3 / units as f64)
    }

    /// Smallest and largest ratio of the processor time, recorded to native.
    pub fn record_range(&self) -> (f64, f64) {
        range(&self.each(|p| p.record_cpu / p.native_cpu))
    }

    /// Median ratio of the processor time, replayed to native.
    pub fn replay_ratio(&self) -> f64 {
        self.mid(|p| p.replay_cpu / p.native_cpu)
    }

    /// Bits of the trace for each instruction, with the whole file.
    pub fn bits(&self) -> f64 {
        self.mid(|p| p.facts.trace_bytes as f64 * 8.0 / p.facts.instructions.max(1) as f64)
    }

    /// Memory that recording adds to the program, in KiB.
    pub fn added_kib(&self) -> f64 {
        self.mid(|p| p.record_rss_kib as f64 - p.native_rss_kib as f64)
    }

    /// Memory that recording may add, in KiB: as much as the program itself uses, plus 64 MiB.
    pub fn allowed_kib(&self) -> f64 {
        self.mid(|p| p.native_rss_kib as f64 + 65536.0)
    }
}

/// The geometric mean of a value over the workloads.
pub fn mean(all: &[Measured], value: impl Fn(&Measured) -> f64) -> f64 {
    geometric_mean(&all.iter().map(value).collect::<Vec<_>>())
}
