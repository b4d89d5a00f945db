//! Records a program, and says what its recording holds:
//!
//! ```text
//! cargo run --release -p hindsight-launch --example record -- gzip -k FILE
//! ```

use hindsight_launch::{Notice, Recording};
use hindsight_timeline::{Options, Timeline};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        return Err("usage: record PROGRAM [ARGUMENT]...".into());
    };
    let recording = Recording::builder(program)
        .args(words)
        .on_notice(|notice| match notice {
            Notice::Finished(_) => {}
            notice => eprintln!("{notice}"),
        })
        .start()?;
    eprintln!("recording process {}", recording.pid());
    let outcome = recording.wait()?;
    eprintln!("{outcome}: {:?}", outcome.file);
    if let Some(file) = &outcome.file {
        let timeline = Timeline::open(file, Options::default())?;
        for process in timeline.processes()? {
            println!("{} {}", process.pid, process.command);
        }
    }
    Ok(())
}
