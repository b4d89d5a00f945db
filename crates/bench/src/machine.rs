//! Describes the machine. The description is printed with every table.

use std::fs;

/// One line of facts about this machine.
pub fn describe() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.starts_with(name));
        line.and_then(|l| l.split(':').nth(1))
            .unwrap_or("?")
            .trim()
            .to_owned()
    };
    let flags = field("flags");
    let level = if flags.contains("avx512vl") {
        "x86-64-v4"
    } else if flags.contains("avx2") {
        "x86-64-v3"
    } else {
        "x86-64-v2"
    };
    let count = cpuinfo
        .lines()
        .filter(|l| l.starts_with("processor"))
        .count();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory
        .lines()
        .find_map(|l| {
            l.strip_prefix("MemTotal:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system
        .lines()
        .find_map(|l| l.strip_prefix("PRETTY_NAME="))
        .unwrap_or("?")
        .trim_matches('"')
        .to_owned();
    format!(
        "{} (family {} model {}, {level}{}), {count} processors, {} GiB, {system}, Linux {}",
        field("model name"),
        field("cpu family"),
        field("model\t"),
        if flags.split(' ').any(|f| f == "hypervisor") {
            ", virtual machine"
        } else {
            ""
        },
        (kib + (1 << 19)) >> 20,
        kernel.trim(),
    )
}
