//! `hindsight core`: an instant of a recording as a core dump.

use crate::bar::Bar;
use crate::numbers::size;
use crate::words::Spot;
use crate::{args, confine, out, say};
use anyhow::{Context, Result, bail};
use hindsight_inspect::{CoreDump, core_dump};
use hindsight_timeline::Cancel;
use serde_json::json;
use std::fs::File;
use std::path::Path;

/// Writes a core dump.
pub fn run(a: &args::Core, file: Option<&Path>) -> Result<i32> {
    if a.output == Path::new("-") {
        bail!("a core dump has holes, and a pipe has none: name a file");
    }
    confine::run_making(file, &a.output, |out| write(a, out))
}

fn write(a: &args::Core, to: &File) -> Result<i32> {
    let at = args::Within {
        image: a.process,
        thread: a.thread,
        frame: 0,
    };
    let mut spot = Spot::open(a.words.first(), &at)?;
    let mut bar = Bar::new(!a.json);
    let mut progress = |done, total| bar.part(done, total);
    let made = core_dump(&mut spot.cursor, to, &mut progress, &Cancel::new());
    bar.clear();
    let made = made.with_context(|| a.output.display().to_string())?;
    let position = spot.cursor.position()?;
    if a.json {
        out::println(&serde_json::to_string_pretty(&json!({
            "path": a.output,
            "position": position.to_string(),
            "threads": made.threads,
            "known": made.known,
            "unknown": made.unknown,
            "left_out": made.left_out,
            "too_large": made.too_large.iter().map(|(start, end)| json!({
                "start": crate::hex::hex(*start), "end": crate::hex::hex(*end),
            })).collect::<Vec<_>>(),
            "segments": made.segments,
        }))?);
        return Ok(0);
    }
    say(&format!(
        "{}: {position}, {} of memory{}, {} {}",
        a.output.display(),
        size(made.known),
        unknown(&made),
        made.threads,
        if made.threads == 1 {
            "thread"
        } else {
            "threads"
        },
    ));
    for (start, end) in &made.too_large {
        let much = size(end - start);
        say(&format!(
            "{start:#x}-{end:#x} is left out: {much} are too much to look at"
        ));
    }
    if made.left_out > 0 {
        let much = size(made.left_out);
        say(&format!(
            "{much} of known memory are left out: they are in too many short stretches"
        ));
    }
    Ok(0)
}

fn unknown(made: &CoreDump) -> String {
    match made.unknown {
        0 => String::new(),
        n => format!(" ({} are not known, and not in it)", size(n)),
    }
}
