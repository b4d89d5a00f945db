//! How much memory there is for a process.

use std::path::{Path, PathBuf};

/// Where control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that this process and those that it makes can still have: what the machine has left, and what each of its
/// control groups has.
pub fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|l| l.strip_prefix("0::/"));
    let mut least = machine(&text);
    let mut group = Some(Path::new(GROUPS).join(own.unwrap_or_default()));
    while let Some(g) = group {
        if let Some(left) = left(&g) {
            least = least.min(left);
        }
        let above = g.parent().map(PathBuf::from);
        group = above.filter(|a| a.starts_with(GROUPS));
    }
    least
}

fn machine(meminfo: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(1 << 30, |k| k << 10)
}

/// What a control group has left. `None`: it has no limit.
fn left(group: &Path) -> Option<u64> {
    let number = |name: &str| {
        let text = std::fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let most = number("memory.max")?;
    Some(most.saturating_sub(number("memory.current").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_a_limit_counts() {
        let group = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        assert_eq!(left(group.path()), None);
        put("memory.max", "max\n");
        assert_eq!(left(group.path()), None);
        put("memory.max", "1000\n");
        put("memory.current", "300\n");
        assert_eq!(left(group.path()), Some(700));
        put("memory.current", "3000\n");
        assert_eq!(left(group.path()), Some(0));
        assert_eq!(machine("MemTotal: 9 kB\nMemAvailable:    2 kB\n"), 2048);
    }
}
