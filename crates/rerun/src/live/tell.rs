//! What is told: calls that do not match, and the end.

use super::calls::Made;
use super::{Done, Error, Finish, Rerun, Trouble};
use crate::plan::class::Class;
use crate::report::{Divergence, Facts, Report, Side, Verdict, decide};
use crate::wire::End;
use hindsight_syscalls::{Arg, signature};
use hindsight_text::bytes;

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
        let stack = match p.thread.regs() {
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
    fn recorded(&mut self, pid: i32, slot: usize) -> Result<Side, Error> {
        let p = self.process(pid);
        let (call, thread, seen) = (&p.script.slot(slot).call, p.image.thread, p.pid);
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
        let others: Vec<i32> = self.processes.keys().copied().collect();
        let finish = finish.inspect_err(|_| {
            others.iter().for_each(|pid| {
                if let Some(p) = self.processes.get(pid) {
                    p.thread.kill();
                }
            });
        })?;
        for pid in others {
            let is_main_over = pid == self.main && matches!(finish, Finish::Ended(_));
            if !is_main_over {
                self.process(pid).thread.kill();
                if let Err(Trouble::Error(e)) = self.close(pid, End::Unknown) {
                    return Err(e);
                }
            }
        }
        self.report(finish)
    }

    fn report(mut self, finish: Finish) -> Result<Report, Error> {
        let main = self.main;
        let recorded = self.recorded_end();
        let failed_at = self.failed_at(recorded)?;
        let p = self.process(main);
        let fails_at = p.fault.as_deref().and_then(place);
        let function = |s: &String| s.split(" at ").next().unwrap_or(s).to_owned();
        let functions = (
            failed_at.as_ref().map(function),
            fails_at.as_ref().map(function),
        );
        let (now, verdict, why) = match finish {
            Finish::Ended(now) => {
                let facts = Facts {
                    recorded,
                    now,
                    outputs: &p.outputs,
                    functions: (functions.0.as_deref(), functions.1.as_deref()),
                };
                let (verdict, why) = decide(&facts);
                (Some(now), verdict, why)
            }
            Finish::TooFar(why) => (None, Verdict::TooFar, Some(why)),
            Finish::Cut => {
                let why = "the recording ends here: it was cut";
                (None, Verdict::TooFar, Some(why.into()))
            }
        };
        let t = self.tally;
        let percent = match t.reached {
            (_, 0) => 100.0,
            (reached, all) => 100.0 * reached as f64 / all as f64,
        };
        Ok(Report {
            verdict,
            recorded,
            now,
            why,
            percent: percent.min(100.0),
            matched: t.matched,
            added: t.added,
            left_out: t.left_out,
            answered_here: t.here,
            divergence: t.divergence,
            outputs: t.outputs,
            failed_at,
            fails_at,
            notes: t.notes,
        })
    }

    /// How the first recorded process ended, whatever programs it loaded.
    fn recorded_end(&self) -> End {
        let mut image = self.begin.images.iter().find(|i| i.parent == 0);
        while let Some(i) = image {
            let next = self.begin.images.iter().find(|n| {
                n.by_exec && n.parent == i.number && n.pid == i.pid && n.number > i.number
            });
            match (i.end, next) {
                (End::Exec, Some(_)) => image = next,
                (end, _) => return end,
            }
        }
        End::Unknown
    }

    /// Where the recorded program failed by a signal.
    fn failed_at(&mut self, end: End) -> Result<Option<String>, Error> {
        if !matches!(end, End::Signal(_)) {
            return Ok(None);
        }
        let thread = self.process(self.main).image.thread;
        let stack = self.recording.stack(thread, u64::MAX);
        let stack = stack.map_err(Error::Recording)?;
        let texts: Vec<String> = (stack.iter().skip(1))
            .map(|b| String::from_utf8_lossy(b).into_owned())
            .collect();
        Ok(place(&texts))
    }
}

/// The innermost function that is not the C library's way to end.
fn place(stack: &[String]) -> Option<String> {
    let own =
        |s: &&String| !s.starts_with("libc.so") && !s.contains("abort") && !s.contains("raise");
    stack.iter().find(own).or(stack.first()).cloned()
}

/// A call in words. Texts are escaped.
fn words(number: u64, args: &[u64; 6], texts: &[Option<Vec<u8>>]) -> String {
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
