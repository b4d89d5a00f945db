//! Which part of a program is recorded, as the command line says it.

use crate::args::Record;
use anyhow::{Result, ensure};
use hindsight_events::ring::Header;
use hindsight_events::select::{MOST, Rule, SELECT_LEN, What, put};
use hindsight_inspect::Inspector;
use hindsight_timeline::{Options, Timeline, did_you_mean};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// The rules, in the order of their bits.
fn rules(a: &Record) -> Vec<(What, &str)> {
    let lists = [
        (What::Only, &a.only_module),
        (What::Skip, &a.skip_module),
        (What::From, &a.from),
        (What::To, &a.to),
    ];
    let all = lists
        .iter()
        .flat_map(|(what, list)| list.iter().map(|text| (*what, text.as_str())));
    all.chain(a.start_stopped.then_some((What::Stopped, "")))
        .collect()
}

/// Writes the rules for the recorder.
pub fn fill(block: &mut [u8; SELECT_LEN], a: &Record) -> Result<()> {
    let mut at = 0;
    for (what, text) in rules(a) {
        let text = text.as_bytes();
        let next = put(block, at, Rule { what, text });
        ensure!(
            next.is_some(),
            "there are too many modules and functions to choose (at most {MOST}, of {SELECT_LEN} bytes in all)"
        );
        at = next.unwrap_or(at);
    }
    Ok(())
}

/// The rules as they were given.
pub fn options(a: &Record) -> Vec<String> {
    let option = |(what, text): (What, &str)| {
        let name = match what {
            What::Only => "--only-module ",
            What::Skip => "--skip-module ",
            What::From => "--from ",
            What::To => "--to ",
            What::Stopped => "--start-stopped",
        };
        format!("{name}{text}")
    };
    rules(a).into_iter().map(option).collect()
}

/// Functions of the recorded programs that may have been meant, as the end of a message.
fn near(file: &Path, text: &str) -> String {
    let names = || -> Result<Vec<String>> {
        let timeline = Timeline::open(file, Options::default())?;
        let images = timeline.processes()?.into_iter().map(|p| p.image);
        let mut inspector = Inspector::new(timeline.clone());
        let mut all = Vec::new();
        // One has most of what others have.
        for image in images.take(4) {
            all.extend(inspector.similar(image, text)?);
        }
        Ok(all)
    };
    let wanted = text.rsplit('!').next().unwrap_or(text);
    did_you_mean(wanted, names().unwrap_or_default())
}

/// What is to be said about rules that found nothing. `file`: the recording, if it is in one.
pub fn unmatched(a: &Record, header: &Header, file: Option<&Path>) -> Vec<String> {
    let (matched, reached) = (header.matched.load(Relaxed), header.reached.load(Relaxed));
    let mut out = Vec::new();
    for (i, (what, text)) in rules(a).into_iter().enumerate() {
        let has = |bits: u64| bits >> i & 1 != 0;
        let nothing = match what {
            What::Only | What::From => "; it chose nothing to record",
            What::Skip | What::To | What::Stopped => "",
        };
        match what {
            What::Only | What::Skip if !has(matched) => out.push(format!(
                "no module whose code was executed matches {text}{nothing}"
            )),
            What::From | What::To if !has(matched) => out.push(format!(
                "no module whose code was executed has a function {text}{nothing}{}",
                file.map_or(String::new(), |file| near(file, text)),
            )),
            What::From | What::To if !has(reached) => {
                out.push(format!("{text} was never called{nothing}"));
            }
            _ => {}
        }
    }
    out
}
