//! The kernel's code in the process (vDSO). The recorded one must not run with another kernel's data, so that of this kernel
//! takes its place.

use super::inject::Injector;
use super::layout::KERNELS;
use crate::received::Received;
use crate::{During, Error, Result};
use hindsight_inspect::state::MappedRange;
use hindsight_remote::Mapping;

/// Moves the kernel's code and its data to where the recorded process had them.
pub fn place(i: &Injector, r: &Received) -> Result<()> {
    let step = || "placing the kernel's code (vDSO)".to_owned();
    let all = i.process.mappings().during(step)?;
    let kernels = |m: &&Mapping| KERNELS.contains(&m.name.as_str());
    let own: Vec<&Mapping> = all.iter().filter(kernels).collect();
    let (Some(code), Some(was)) = (
        own.iter().find(|m| m.name == "[vdso]"),
        r.state.mappings.iter().find(|m| m.name == "[vdso]"),
    ) else {
        return Err(Error::Refused(
            "this kernel gives processes no code (vDSO)".into(),
        ));
    };
    if !is_same(i, r, code, was)? {
        return Err(Error::Refused(format!(
            "the recording is of another kernel ({}), whose code in the process (vDSO) is not that of this one",
            hindsight_text::line(&r.state.kernel)
        )));
    }
    let to = |m: &Mapping| was.start.wrapping_add(m.start).wrapping_sub(code.start);
    for m in &own {
        let taken = r.state.mappings.iter().any(|o| {
            !KERNELS.contains(&o.name.as_str())
                && o.start < to(m) + (m.end - m.start)
                && to(m) < o.end
        });
        if taken {
            return Err(Error::Refused(
                "the data of this kernel's code (vDSO) does not fit where the recorded one was"
                    .into(),
            ));
        }
    }
    // All move by the same distance. Those in the direction of the move go first, so that none meets another one.
    let far = own[0].start.wrapping_sub(to(own[0]));
    if far == 0 {
        return Ok(());
    }
    // A mapping cannot move onto a part of itself. Where the kernel has placed it, chance decides.
    let distance = far.min(far.wrapping_neg());
    if own.iter().any(|m| m.end - m.start > distance) {
        return Err(Error::Refused(
            "this kernel's code (vDSO) stands too near to where the recorded one was: try again"
                .into(),
        ));
    }
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let mut parts: Vec<&&Mapping> = own.iter().collect();
    if to(own[0]) > own[0].start {
        parts.reverse();
    }
    for m in parts {
        let len = m.end - m.start;
        let args = [m.start, len, len, flags, to(m)];
        i.call(libc::SYS_mremap, &args).during(step)?;
    }
    Ok(())
}

/// Whether this kernel's code is the recorded one, as far as that is known.
fn is_same(i: &Injector, r: &Received, code: &Mapping, was: &MappedRange) -> Result<bool> {
    let len = code.end - code.start;
    if len != was.end - was.start {
        return Ok(false);
    }
    let mut own = vec![0; len as usize];
    i.process
        .read(code.start, &mut own)
        .during(|| "reading the kernel's code (vDSO)".into())?;
    let known = r.memory_at(was.start, len)?;
    let unknown: u64 = r
        .unknown
        .iter()
        .filter(|u| was.start <= u.0 && u.0 < was.end)
        .map(|u| u.1)
        .sum();
    // Zeros stand for what is not known, too. Where something is not known, it must be the same kernel at least.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if unknown > 0 && release.trim() != r.state.kernel {
        return Ok(false);
    }
    Ok(own
        .iter()
        .zip(&known)
        .all(|(a, b)| a == b || unknown > 0 && *b == 0))
}
