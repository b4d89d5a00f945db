//! The memory of the process.

use super::inject::Injector;
use super::vdso;
use crate::received::{PAGE, Received};
use crate::{During, Result};
use hindsight_inspect::state::MappedRange;
use std::collections::BTreeMap;
use std::os::fd::RawFd;

/// The kernel's own mappings, which are moved and not made.
pub const KERNELS: [&str; 3] = ["[vdso]", "[vvar]", "[vvar_vclock]"];

/// Empties the process and gives it the memory of the recorded one. Some mappings, by their first addresses, are of files that it
/// has under these descriptors.
pub fn fill(i: &Injector, r: &Received, files: &BTreeMap<u64, RawFd>) -> Result<()> {
    let step = || "emptying the process".to_owned();
    let own = i.process.mappings().during(step)?;
    let keeps = r.state.mappings.iter().any(|m| m.name == "[vdso]");
    for m in &own {
        let kernels = KERNELS.contains(&m.name.as_str());
        if (m.start, m.end) == i.own() || m.name == "[vsyscall]" || keeps && kernels {
            continue;
        }
        i.call(libc::SYS_munmap, &[m.start, m.end - m.start])
            .during(step)?;
    }
    if keeps {
        vdso::place(i, r)?;
    }
    let is_ours =
        |m: &MappedRange| !KERNELS.contains(&m.name.as_str()) && !files.contains_key(&m.start);
    for m in &r.state.mappings {
        match files.get(&m.start) {
            Some(fd) => map_file(i, m, *fd)?,
            None if is_ours(m) => map(i, m)?,
            None => {}
        }
    }
    let all = &r.state.mappings;
    for (at, len, kept) in &r.memory {
        let of = all.get(all.partition_point(|m| m.end <= *at));
        if of.is_some_and(is_ours) {
            let bytes = r.kept(*kept, *len)?;
            i.process
                .write(*at, &bytes)
                .during(|| format!("writing memory at {at:#x}"))?;
        }
    }
    for m in r.state.mappings.iter().filter(|m| m.shared && is_ours(m)) {
        let args = [m.start, m.end - m.start, m.prot.into()];
        i.call(libc::SYS_mprotect, &args)
            .during(|| format!("protecting memory at {:#x}", m.start))?;
    }
    describe(i, r)
}

/// Maps a file to be read, as it was mapped.
fn map_file(i: &Injector, m: &MappedRange, fd: RawFd) -> Result<()> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
    let len = m.end - m.start;
    let args = [
        m.start,
        len,
        m.prot.into(),
        flags as u64,
        fd as u64,
        m.offset,
    ];
    let done = i.call(libc::SYS_mmap, &args);
    done.map(drop).during(|| {
        format!(
            "mapping {} at {:#x}",
            hindsight_text::line(&m.name),
            m.start
        )
    })
}

fn map(i: &Injector, m: &MappedRange) -> Result<()> {
    let mut flags = libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
    flags |= if m.shared {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE
    };
    if m.name == "[stack]" {
        flags |= libc::MAP_GROWSDOWN | libc::MAP_STACK;
    }
    // Shared memory cannot be written from outside unless it is writable.
    let prot = if m.shared { m.prot | 3 } else { m.prot };
    let args = [
        m.start,
        m.end - m.start,
        prot.into(),
        flags as u64,
        u64::MAX,
        0,
    ];
    let done = i.call(libc::SYS_mmap, &args);
    done.map(drop)
        .during(|| format!("mapping {:#x}-{:#x}", m.start, m.end))
}

/// Tells the kernel where the heap is. Without that `brk` could not grow.
fn describe(i: &Injector, r: &Received) -> Result<()> {
    let s = &r.state;
    let of = |name: &str| s.mappings.iter().find(|m| m.name == name);
    let program = String::from_utf8_lossy(&s.program.0);
    let code = s
        .mappings
        .iter()
        .find(|m| m.name == program && m.prot & 4 != 0);
    let code = code
        .or(s.mappings.first())
        .map_or((PAGE, PAGE), |m| (m.start, m.end));
    let stack = of("[stack]").map_or(s.threads[0].registers[4], |m| m.end - 8);
    let (heap, end) = s.heap.unwrap_or((code.1, code.1));
    let data = s.auxiliary.len().min(4096);
    // `struct prctl_mm_map`.
    // The heap must begin above the data.
    let words = [
        code.0,
        code.1,
        code.0,
        code.0,
        heap,
        end,
        stack,
        // Arguments and environment: none.
        stack,
        stack,
        stack,
        stack,
        i.data() + 256,
    ];
    let mut map: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    map.extend((data as u32).to_le_bytes());
    map.extend(u32::MAX.to_le_bytes());
    let len = map.len() as u64;
    map.resize(256, 0);
    map.extend(&s.auxiliary[..data]);
    i.put(&map)?;
    const PR_SET_MM_MAP: u64 = 14;
    let args = [libc::PR_SET_MM as u64, PR_SET_MM_MAP, i.data(), len, 0];
    let done = i.call(libc::SYS_prctl, &args);
    done.map(drop).during(|| {
        "telling the kernel where the heap is, without which it cannot grow (PR_SET_MM_MAP)".into()
    })
}
