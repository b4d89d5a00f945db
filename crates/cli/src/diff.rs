//! `hindsight diff`: where two recordings part.

mod json;
mod text;

use crate::bar::Bar;
use crate::out::println;
use crate::{args, limits, travel};
use anyhow::Result;
use hindsight_compare::{Options, compare};
use hindsight_timeline::{ThreadId, Timeline};
use std::path::PathBuf;
use std::sync::Mutex;

/// Virtual processors that each recording has at the same time: one that is compared, and two that look back.
const PROCESSORS: usize = 3;

/// Compares two recordings. The status is 0 if they agree to the end, and 1 if they part.
pub fn run(a: &args::Diff, files: &[PathBuf; 2]) -> Result<i32> {
    let options = || hindsight_timeline::Options {
        jobs: PROCESSORS,
        ..Default::default()
    };
    let allow = |t: &_| limits::allow(t, PROCESSORS);
    let first = travel::open_path(&files[0], options(), allow)?;
    let allow = |t: &_| limits::allow_more(t, PROCESSORS);
    let second = travel::open_path(&files[1], options(), allow)?;
    let wanted = Options {
        limit: if a.all { usize::MAX } else { a.limit as usize },
        exact: a.exact || a.strict,
        strict: a.strict,
        thread: a.thread.map(ThreadId),
        image: a.image,
    };
    let bar = Mutex::new(Bar::new(!a.json));
    let progress = |done, total| {
        if let Ok(mut bar) = bar.try_lock() {
            bar.show(done, total);
        }
    };
    let report = compare([&first, &second], &wanted, &progress);
    if let Ok(mut bar) = bar.lock() {
        bar.clear();
    }
    let report = report?;
    let growing = [&first, &second].map(Timeline::is_growing);
    println(&match a.json {
        true => serde_json::to_string_pretty(&json::report(&report, files, growing))?,
        false => text::report(&report, files).trim_end().to_owned(),
    });
    Ok(i32::from(!report.is_same()))
}
