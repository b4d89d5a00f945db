//! What is told: calls that do not match, and the end.

use super::calls::Made;
use super::{Done, Error, Finish, Finished, Outputs, Rerun, Trouble};
use crate::plan::class::Class;
use crate::plan::compare::{Compare, Stream};
use crate::plan::script::Script;
use crate::plan::table::FileId;
use crate::report::{Changes, Divergence, Facts, OutputDifference, Report, Side, Verdict, decide};
use crate::wire::{End, Image};
use hindsight_remote::Thread;
use hindsight_syscalls::{Arg, signature};
use hindsight_text::bytes;
use std::os::unix::ffi::OsStrExt;

/// Standard output and standard error.
const STANDARD: [FileId; 2] = [1, 2];
/// So many differences are told.
const DIFFERENCES: usize = 100;

impl Rerun<'_> {
    /// The first call that does not match is told in full.
    pub fn diverge(
        &mut self,
        pid: i32,
        made: &Made,
        (expected, last): (Option<usize>, Option<usize>),
        then: &str,
    ) -> Done {
        // A program may ask for the time as often as it likes.
        if made.class == Class::Time || self.tally.divergence.is_some() {
            return Ok(());
        }
        let recorded = expected.map(|e| self.recorded(pid, e)).transpose()?;
        let last = last.map(|l| self.recorded(pid, l)).transpose()?;
        let now = self.now(pid, made);
        let then = then.to_owned();
        self.tally.divergence = Some(Divergence {
            recorded,
            now,
            last,
            then,
        });
        match self.options.stop {
            true => Err(Trouble::Finish(Finish::TooFar(
                "it was to end at the first call that does not match".into(),
            ))),
            false => Ok(()),
        }
    }

    /// What the program does now.
    pub fn now(&mut self, pid: i32, made: &Made) -> Side {
        let p = self.process(pid);
        let stack = match p.task.thread.regs() {
            Ok(r) => super::stack::stack(pid, &r, &p.memory),
            Err(_) => Vec::new(),
        };
        Side {
            position: None,
            pid: p.pid,
            call: words(made.number, &made.args, &made.texts),
            stack,
        }
    }

    /// What the recorded program did.
    pub fn recorded(&mut self, pid: i32, slot: usize) -> Result<Side, Error> {
        let p = self.process(pid);
        let (call, thread, seen) = (
            &p.script.slot(slot).call,
            p.image.of_lane(p.script.slot(slot).call.lane),
            p.pid,
        );
        let text = words(call.number, &call.args, &call.texts);
        let count = call.count;
        let told = self.recording.stack(thread, count);
        let told = told.map_err(Error::Recording)?;
        let mut told = told
            .into_iter()
            .map(|b| String::from_utf8_lossy(&b).into_owned());
        Ok(Side {
            position: told.next(),
            pid: seen,
            call: text,
            stack: told.collect(),
        })
    }

    /// Ends the run.
    pub fn end(mut self, finish: Result<Finish, Error>) -> Result<Report, Error> {
        let left: Vec<i32> = self.processes.keys().copied().collect();
        self.processes.values().for_each(|p| p.task.thread.kill());
        for tid in &self.early {
            Thread::of_child(*tid).kill();
        }
        let finish = finish?;
        for pid in left {
            if let Err(Trouble::Error(e)) = self.close(pid, End::Unknown) {
                return Err(e);
            }
        }
        if let Finish::Ended(_) = finish {
            self.add_missing()?;
        }
        self.report(finish)
    }

    /// What recorded processes gave out that were not started is missing.
    fn add_missing(&mut self) -> Result<(), Error> {
        let all = self.begin.images.iter();
        let mut left: Vec<Image> = all
            .flat_map(|i| [i.clone()].into_iter().chain(i.of_guests()))
            .collect();
        while let Some(image) = self.missing(&mut left) {
            self.taken.insert(image.thread);
            let table = self.not_made.get(&image.pid).cloned();
            let mut script = Script::new(table.unwrap_or_default());
            let mut outputs = Compare::default();
            outputs.now_is_over();
            self.rest(&image, &mut script, &mut outputs)?;
            self.left_out(&script);
            if outputs.streams().next().is_some() {
                let pid = image.pid;
                self.note(format!(
                    "recorded process {pid} wrote something, and was not started now"
                ));
            }
            self.finished.push(Finished {
                pid: image.pid,
                is_main: false,
                outputs,
                fault: None,
            });
        }
        Ok(())
    }

    /// A recorded process that nothing stands for. Those come first of which it is known who did not make them.
    fn missing(&self, left: &mut Vec<Image>) -> Option<Image> {
        left.retain(|i| !self.taken.contains(&i.thread));
        let is_known = |i: &Image| self.not_made.contains_key(&i.pid) && !i.by_exec;
        let first = left.iter().position(is_known).unwrap_or(0);
        (first < left.len()).then(|| left.remove(first))
    }

    /// Counts recorded changes of files that were not asked for.
    pub fn left_out(&mut self, script: &Script) {
        for c in script.unmade() {
            self.tally.unmade += 1;
            let call = words(c.number, &c.args, &c.texts);
            self.note(format!("this was recorded, and was not done now: {call}"));
        }
    }

    fn report(mut self, finish: Finish) -> Result<Report, Error> {
        let image = self.recorded_last();
        let recorded = image.map_or(End::Unknown, |i| i.end);
        let thread = image.map(|i| i.ended_by);
        let failed_at = self.failed_at(recorded, thread)?;
        let main = self.finished.iter().find(|f| f.is_main);
        let fails_at = main.and_then(|m| place(m.fault.as_deref()?));
        let functions = (
            failed_at.as_deref().and_then(function),
            fails_at.as_deref().and_then(function),
        );
        let (now, verdict, why) = match finish {
            Finish::Ended(now) => {
                let facts = Facts {
                    recorded,
                    now,
                    outputs: self.written(),
                    functions,
                    names: self.own_names(),
                    changes: self.changes(),
                };
                let (verdict, why) = decide(&facts);
                (Some(now), verdict, why)
            }
            Finish::TooFar(why) => (None, Verdict::TooFar, Some(why)),
            Finish::Point(_) => (None, Verdict::TooFar, None),
            Finish::Cut => {
                let why = "the recording ends here: it was cut";
                (None, Verdict::TooFar, Some(why.into()))
            }
        };
        if self.options.until_failure {
            let why =
                "it did not come to the last call that the recorded program made before it failed";
            self.note(why.into());
        }
        let outputs = self.differences();
        let written = self.written();
        let unknown = written
            .iter()
            .fold(0u64, |n, (_, s)| n.saturating_add(s.uncompared));
        let believed = written
            .iter()
            .fold(0u64, |n, (_, s)| n.saturating_add(s.believed));
        let mut t = self.tally;
        if believed > 0 {
            t.notes.push(format!(
                "{believed} bytes of the recorded output came from mapped files and are not recorded: what the program had read of \
                 these files before is taken for them"
            ));
        }
        if t.more > 0 {
            t.notes.push(format!("{} more of the kind", t.more));
        }
        if t.random > 0 {
            t.notes.push(format!(
                "it asked for more random bytes than are recorded: {} times, these were made up",
                t.random
            ));
        }
        if let Some((count, now, recorded)) = self.renamed.first() {
            t.notes.push(format!(
                "{count} new files and folders have other names than recorded, as if these were made up: the first one is {}, and \
                 stands for {}",
                String::from_utf8_lossy(now),
                String::from_utf8_lossy(recorded)
            ));
        }
        let percent = match t.reached {
            (_, 0) => 100.0,
            (reached, all) => 100.0 * reached as f64 / all as f64,
        };
        let mut report = Report {
            verdict,
            recorded,
            now,
            why,
            percent: percent.min(100.0),
            matched: t.matched,
            added: t.added,
            left_out: t.left_out,
            answered_here: t.here,
            not_done: t.changes,
            unmade: t.unmade,
            unknown,
            divergence: t.divergence,
            outputs,
            failed_at,
            fails_at,
            threads: t.threads,
            is_recorded: t.is_recorded,
            notes: t.notes,
        };
        report.note_order();
        Ok(report)
    }

    /// What the processes wrote, the first one's first.
    fn written(&self) -> Vec<(FileId, &Stream)> {
        let (main, others): (Vec<_>, Vec<_>) = self.finished.iter().partition(|f| f.is_main);
        let all = main.into_iter().chain(others);
        all.flat_map(|f| f.outputs.streams())
            .filter(|(file, _)| self.counts(*file))
            .collect()
    }

    /// Whether what is written to an open file is compared.
    fn counts(&self, file: FileId) -> bool {
        self.options.outputs == Outputs::Compare || STANDARD.contains(&file)
    }

    /// How the names of the two programs may stand before their messages.
    fn own_names(&self) -> Vec<Vec<u8>> {
        let mut all = vec![self.begin.program.clone()];
        all.extend(self.begin.args.first().cloned());
        let now = self.options.program.as_ref();
        all.extend(now.map(|p| p.as_os_str().as_bytes().to_vec()));
        let last = |n: &Vec<u8>| n.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
        let short: Vec<_> = all.iter().map(last).collect();
        all.extend(short);
        all.retain(|n| !n.is_empty());
        all
    }

    /// What else the run gave out, or left out, than the recorded one.
    fn changes(&self) -> Changes {
        let skip = self.options.outputs == Outputs::Skip;
        let of = |n: u64| if skip { 0 } else { n };
        Changes {
            added: of(self.tally.changes),
            elsewhere: of(self.tally.elsewhere),
            left_out: of(self.tally.unmade),
            killed: self.tally.killed,
            failures: self.tally.failures,
        }
    }

    /// Where output differs.
    fn differences(&mut self) -> Vec<OutputDifference> {
        let mut out = Vec::new();
        for f in &self.finished {
            let all = f.outputs.streams().filter(|(file, _)| self.counts(*file));
            for (file, stream) in all {
                if let Some(d) = stream.difference()
                    && out.len() < DIFFERENCES
                {
                    let to = self.names.get(&file).cloned();
                    let to = to.unwrap_or_else(|| "an open file".into());
                    out.push(crate::report::output(f.pid, to, d));
                }
            }
        }
        out
    }

    /// The last program of the first recorded process.
    pub fn recorded_last(&self) -> Option<&Image> {
        let mut image = self.begin.images.iter().find(|i| i.parent == 0)?;
        loop {
            let next = self.begin.images.iter().find(|n| {
                n.by_exec
                    && n.parent == image.number
                    && n.pid == image.pid
                    && n.number > image.number
            });
            match (image.end, next) {
                (End::Exec, Some(next)) => image = next,
                _ => return Some(image),
            }
        }
    }

    /// Where the recorded program failed by a signal.
    pub fn failed_at(&mut self, end: End, thread: Option<u32>) -> Result<Option<String>, Error> {
        let (End::Signal(_), Some(thread)) = (end, thread) else {
            return Ok(None);
        };
        let stack = self.recording.stack(thread, u64::MAX);
        let stack = stack.map_err(Error::Recording)?;
        let texts: Vec<String> = (stack.iter().skip(1))
            .map(|b| String::from_utf8_lossy(b).into_owned())
            .collect();
        Ok(place(&texts))
    }
}

/// The function of a frame in words. `None`: it is not known.
fn function(frame: &str) -> Option<String> {
    // Either `name at file:line`, or `module!name+0x12`. A fix moves code, so the offset does not count, nor does the name of
    // the program's file.
    if let Some((name, _)) = frame.split_once(" at ") {
        return Some(name.to_owned()).filter(|n| n != "?");
    }
    let (_, name) = frame.split_once('!')?;
    let name = match name.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        _ => name,
    };
    Some(name.to_owned())
}

/// The innermost function that is not the C library's way to end.
fn place(stack: &[String]) -> Option<String> {
    let own =
        |s: &&String| !s.starts_with("libc.so") && !s.contains("abort") && !s.contains("raise");
    stack.iter().find(own).or(stack.first()).cloned()
}

/// A call in words. Texts are escaped.
pub fn words(number: u64, args: &[u64; 6], texts: &[Option<Vec<u8>>]) -> String {
    let name = hindsight_timeline::syscall_name(number);
    let known = signature(&name).map_or(&[][..], |s| s.args);
    let mut texts = texts.iter();
    let shown = known.iter().zip(args).map(|(arg, v)| match arg {
        Arg::Text => match texts.next() {
            Some(Some(t)) => format!("\"{}\"", bytes(t)),
            _ => format!("{v:#x}"),
        },
        Arg::Dir if *v as i32 == libc::AT_FDCWD => "AT_FDCWD".into(),
        Arg::Int | Arg::Fd | Arg::Dir => (*v as i32).to_string(),
        Arg::Size | Arg::Uint => v.to_string(),
        Arg::Long => (*v as i64).to_string(),
        _ => format!("{v:#x}"),
    });
    format!("{name}({})", shown.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_function_elsewhere_is_the_same_place() {
        let same = |a, b| function(a).is_some() && function(a) == function(b);
        assert!(same("prog-0!parse+0x12", "prog-1!parse+0x1f"));
        assert!(same("prog-0!parse", "prog-1!parse+0x4"));
        assert!(same("parse at a.c:3", "parse at b.c:9"));
        assert!(same("parse at a.c:3", "prog!parse+0x9"));
        assert!(!same("prog!parse+0x12", "prog!print+0x12"));
        // Nothing is known of these.
        assert_eq!(function("prog+0x12"), None);
        assert_eq!(function("?"), None);
    }
}
