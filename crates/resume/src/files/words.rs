//! What is said of the process before it is made, besides its descriptors, and what refuses it.

use super::Prepared;
use super::mapped::Again;
use crate::received::Received;
use crate::source::MOST_UNKNOWN;
use crate::{Error, Result};
use hindsight_inspect::ProcessState;
use hindsight_inspect::state::MappedRange;

/// Fails if a process cannot go on, whatever its memory and its files are.
///
/// # Errors
/// It was recorded on another processor, or something is not known of it.
pub fn may_begin(s: &ProcessState) -> Result<()> {
    if !s.refused.is_empty() {
        let all = hindsight_text::line(&s.refused.join("; ")).into_owned();
        return Err(Error::Refused(all));
    }
    let own = processor();
    if own.is_empty() || own != s.processor {
        return Err(Error::Refused(format!(
            "it was recorded on another processor ({}), whose code need not run on this one ({own})",
            hindsight_text::line(&s.processor)
        )));
    }
    Ok(())
}

/// Fails if the process would go on wrongly.
pub fn may_go_on(r: &Received, again: &Again) -> Result<()> {
    let s = &r.state;
    may_begin(s)?;
    memory_is_known(r, again)?;
    let copied: Vec<&MappedRange> = s.mappings.iter().filter(|m| !again.has(m)).collect();
    shared_memory(&copied)
}

/// The processor's own name, as recordings have it.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|l| l.starts_with("model name"));
    let model = model.and_then(|l| l.split_once(':'));
    model.map_or(String::new(), |(_, m)| m.trim().into())
}

/// Fails if the process could read memory that is not known.
fn memory_is_known(r: &Received, again: &Again) -> Result<()> {
    let of = |at: u64| {
        let i = r.state.mappings.partition_point(|m| m.end <= at);
        r.state.mappings.get(i)
    };
    // The kernel's code is this kernel's.
    let here = |m: &MappedRange| m.name == "[vdso]" || again.has(m);
    let unknown = r.unknown.iter().filter(|u| !of(u.0).is_some_and(here));
    let unknown: Vec<&(u64, u64)> = unknown.collect();
    let len = unknown.iter().fold(0u64, |n, u| n.saturating_add(u.1));
    let Some((at, first)) = unknown.first() else {
        return Ok(());
    };
    let least = match unknown.len() {
        n if n >= MOST_UNKNOWN => "at least ",
        _ => "",
    };
    let of = of(*at);
    let why = of.and_then(|m| again.why_not(m));
    let why = why.map_or(String::new(), |w| format!(", which {w}"));
    Err(Error::Unknown(format!(
        "{least}{len} bytes of memory are not known, in {} stretches, so nothing can go on there. The first: {first} bytes at {at:#x} in {}{why}",
        unknown.len(),
        name(of.map_or("", |m| &m.name))
    )))
}

/// Fails where private copies of shared memory would come apart, or would have to reach a file.
fn shared_memory(all: &[&MappedRange]) -> Result<()> {
    let shared = || all.iter().copied().filter(|m| m.shared);
    let is_file = |m: &&MappedRange| !m.name.is_empty() && !m.name.starts_with("/dev/zero");
    if let Some(m) = shared().filter(is_file).find(|m| m.prot & 2 != 0) {
        return Err(Error::Refused(format!(
            "{} is mapped at {:#x} so that what is written there reaches the file, which is not done again",
            name(&m.name),
            m.start
        )));
    }
    let mut files: Vec<&MappedRange> = shared().filter(|m| !m.name.is_empty()).collect();
    files.sort_by_key(|m| (&m.name, m.offset));
    for two in files.windows(2) {
        let end = two[0].offset.saturating_add(two[0].end - two[0].start);
        if two[0].name == two[1].name && two[1].offset < end {
            return Err(Error::Refused(format!(
                "the mappings at {:#x} and {:#x} are the same memory ({}), which is not done again",
                two[0].start,
                two[1].start,
                name(&two[0].name)
            )));
        }
    }
    Ok(())
}

pub fn name(of: &str) -> String {
    match of {
        "" => "memory without a name".into(),
        of => hindsight_text::line(of).into_owned(),
    }
}

impl Prepared {
    /// Says what is lost and what is different whatever the process had open.
    pub(super) fn say_of_process(&mut self) {
        let s = &self.received.state;
        let blocked = s.threads.iter().fold(0, |all, t| all | t.blocked);
        if blocked != 0 {
            let all = (1..=64).filter(|n| blocked >> (n - 1) & 1 != 0);
            let names: Vec<String> = all.map(signal).collect();
            self.lost.push(format!(
                "signals that waited because they are blocked ({}): none waits",
                names.join(", ")
            ));
        }
        let len = self
            .received
            .reserved
            .iter()
            .fold(0u64, |n, r| n.saturating_add(r.1));
        if let Some((at, _)) = self.received.reserved.first() {
            self.lost.push(format!(
                "{len} bytes of memory that nobody may access (PROT_NONE), the first at {at:#x}, which are not known or too much to look at: they are zero"
            ));
        }
        let pid = s.pid;
        self.say_of_mapped();
        self.notes.push(format!(
            "its process id may be another than {}. Ids that it keeps, of threads too, stay as they were in memory and registers, but for the word that the kernel clears at a thread's end",
            pid
        ));
        self.notes.push("clocks are those of this machine as it is now: one that counts from the start of a machine may stand before what the program has seen".into());
        self.notes
            .push("the working directory is what has its path now".into());
        self.notes.push("files that were mapped, but for those that are mapped again, are memory with the recorded content: what it gives up of it (`MADV_DONTNEED`) is zero then".into());
        self.notes.push("descriptors other than 0, 1 and 2 that it began with and had not used are not known: they are closed".into());
        self.notes.push("what it began with and never asked for is not known. It has the limits, priorities and mask for files that this command has. A signal that it neither chose nor asked about does what is usual (it is not ignored) and is not blocked. /proc/PID/cmdline and environ are empty".into());
    }
}

fn signal(n: u32) -> String {
    hindsight_timeline::signal_name(n.into()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, offset: u64, name: &str) -> MappedRange {
        MappedRange {
            start,
            end: start + 0x2000,
            prot: 1,
            offset,
            shared: true,
            name: name.into(),
            ..MappedRange::default()
        }
    }

    #[test]
    fn the_same_memory_twice_is_refused() {
        let apart = [
            range(0x1000, 0, "/a"),
            range(0x5000, 0x2000, "/a"),
            range(0x9000, 0, "/b"),
        ];
        assert!(shared_memory(&apart.each_ref()).is_ok());
        let twice = [
            range(0x1000, 0, "/a"),
            range(0x9000, 0, "/b"),
            range(0x5000, 0x1000, "/a"),
        ];
        let why = shared_memory(&twice.each_ref()).unwrap_err().to_string();
        assert!(why.contains("0x1000 and 0x5000"), "{why}");
        let mut written = range(0x1000, 0, "/a");
        written.prot = 3;
        assert!(shared_memory(&[&written]).is_err());
        written.shared = false;
        assert!(shared_memory(&[&written]).is_ok());
    }
}
