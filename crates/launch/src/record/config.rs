//! What the recorder is told, and what the trace says at its beginning.

use super::{Builder, Children, Common, Regime};
use crate::error::{During, Error, Result};
use crate::program::Program;
use crate::recorder_binary;
use crate::recorder_log;
use crate::sys::{limits, process};
use hindsight_collector::StatePoints;
use hindsight_events::config::{Config, children, regime};
use hindsight_isa::xsave::Layout;
use hindsight_isa::{Finer, LeftOpen};
use hindsight_trace::{Guesses, Header, Lines, Machine, Saves, Text};
use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::sync::Arc;

/// What both ways of recording tell the recorder.
pub fn common(options: &Common, ctl_fd: i32) -> Result<Config> {
    let mut c = Config::new();
    c.ctl_fd = ctl_fd;
    c.predictor_bits = options.predictor.bits;
    c.children = match &options.children {
        Children::Follow => children::FOLLOW,
        Children::None => children::NONE,
        Children::Matching(pattern) => {
            if pattern.is_empty() || pattern.len() >= c.matching.len() || pattern.contains('\0') {
                return Err(Error::Pattern);
            }
            c.matching[..pattern.len()].copy_from_slice(pattern.as_bytes());
            children::MATCHING
        }
    };
    c.keyframe_interval = options.keyframe_interval();
    c.digest_interval = options.digest_interval;
    c.data_limit = options.data_limit(false);
    recorder_log::set(&mut c)?;
    Ok(c)
}

/// What the recorder is told of a program that is started.
pub fn config(b: &Builder, p: &Program, ctl_fd: i32) -> Result<Config> {
    let mut c = common(&b.common, ctl_fd)?;
    c.baseline = b.baseline as u8;
    b.selection.fill(&mut c.select)?;
    c.limits = limits::memory_limits();
    // 0 would be none.
    c.chaos = b.chaos.map_or(0, |seed| seed + 1);
    c.clock_throttle = throttle(b);
    c.fill_fresh = b.fill_fresh.map_or(0, NonZeroU32::get);
    let quiet = match b.regime {
        Some(r) => r == Regime::Quiet,
        None if b.state_points.is_some() => true,
        // What is dropped at the front of a ring ends at a key frame.
        None => b.common.keyframe_interval.is_none() && b.ring.is_none(),
    };
    if (b.state_points.is_some() || b.kept_states.is_some()) && !quiet {
        return Err(Error::NoStatePoints);
    }
    if b.kept_states.is_some() && b.ring.is_none() {
        return Err(Error::KeepsAll);
    }
    c.regime = match quiet {
        true => regime::QUIET,
        false => regime::CHECKED,
    };
    c.whole_frames = b.ring.is_some().into();
    c.state_calls = (b.state_points == Some(StatePoints::Calls)).into();
    c.data_limit = b.common.data_limit(b.ring.is_some());
    let trials = &b.trials;
    c.quiet_for = trials.leave_quiet_after;
    c.restate_every = trials.restate_every;
    c.violate_after = trials.violate_after;
    c.untold = trials.untold.map_or(0, |nr| nr + 1);
    c.page_sharing = trials.joint.unwrap_or_else(gains_by_common_pages).into();
    recorder_binary::set_path(&mut c.exe, p.exe.as_os_str()).during("the program's path")?;
    recorder_binary::set_path(&mut c.execfn, p.execfn.as_os_str()).during("the program's path")?;
    Ok(c)
}

/// Nanoseconds for which an answer about the time is repeated.
fn throttle(b: &Builder) -> u64 {
    let nanos = b.clock_throttle.map_or(0, |t| t.as_nanos());
    nanos.min(1 << 63) as u64
}

/// Whether the processor finds a line in its first cache by whatever address it was brought there. AMD's guess where it is
/// from the address, and guess wrong each time if memory is read by two of them (docs/speed.md).
fn gains_by_common_pages() -> bool {
    let r = core::arch::x86_64::__cpuid(0);
    let name = [r.ebx, r.edx, r.ecx].map(u32::to_le_bytes);
    !matches!(name.as_flattened(), b"AuthenticAMD" | b"HygonGenuine")
}

/// What the trace says of any recording.
pub fn header(options: &Common) -> Header {
    Header {
        hindsight: env!("CARGO_PKG_VERSION").into(),
        machine: machine(),
        predictor_bits: options.predictor.bits,
        keyframe_interval: options.keyframe_interval(),
        digest_interval: options.digest_interval,
        data_limit: Some(options.data_limit(false)),
        transcendental: true,
        ..Header::default()
    }
}

/// What the trace says of a program that is started.
pub fn program_header(b: &Builder, p: &Program) -> Header {
    let path = |p: &std::path::Path| Text::from(p.as_os_str());
    let cwd = match &b.folder {
        Some(folder) => std::path::absolute(folder).ok(),
        None => std::env::current_dir().ok(),
    };
    Header {
        exe: path(&p.exe),
        execfn: path(&p.execfn),
        argv: texts(&p.argv),
        env: texts(&b.environment()),
        cwd: cwd.map_or(Text::default(), |d| path(&d)),
        baseline: b.baseline.name().into(),
        part: b.selection.options(),
        chaos: b.chaos,
        clock_throttle: Some(throttle(b)).filter(|n| *n != 0),
        fill_fresh: b.fill_fresh.map(NonZeroU32::get),
        data_limit: Some(b.common.data_limit(b.ring.is_some())),
        ..header(&b.common)
    }
}

/// As a trace has them.
pub fn texts(list: &[OsString]) -> Vec<Text> {
    list.iter()
        .map(|s: &OsString| Text::from(s as &OsStr))
        .collect()
}

fn machine() -> Machine {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    Machine {
        arch: "x86_64".into(),
        byte_order: "little".into(),
        kernel: process::kernel(),
        processor: model.map_or(String::new(), |(_, m)| m.trim().into()),
        page_size: 4096,
        xsave: Layout::detect().map(Saves::from),
        approximations: Guesses::here(),
        finer: Finer::here().map(|f| Lines(Arc::new(f))),
        left_open: LeftOpen::here().into(),
    }
}
