//! Runs one target: `cargo run --release -p hindsight-fuzz -- list` names them.

use anyhow::{Context, Result, anyhow};
use clap::{Parser, Subcommand};
use hindsight_fuzz::{Budget, TARGETS, Target, corpus, run, target, try_one};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

#[derive(Parser)]
#[command(about = "Random inputs for everything that reads bytes from elsewhere")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Name the targets
    List,
    /// Give a target changed examples
    Run {
        target: String,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Where to begin; another number each time if it is not given
        #[arg(long, value_parser = number)]
        seed: Option<u64>,
        /// Where to keep the input that fails
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Give a target an input again
    Replay { target: String, files: Vec<PathBuf> },
    /// Write a target's examples to a folder, for other fuzzers
    Seeds { target: String, folder: PathBuf },
}

fn number(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .map_err(|e| e.to_string())
}

fn find(name: &str) -> Result<&'static Target> {
    target(name).ok_or_else(|| anyhow!("there is no target {name}; `list` names them"))
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::List => {
            for t in TARGETS {
                println!("{:10} {}", t.name, t.about);
            }
        }
        Command::Run {
            target,
            seconds,
            seed,
            file,
        } => {
            let t = find(&target)?;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            let seed = seed.unwrap_or(now.as_nanos() as u64);
            let file = file.unwrap_or_else(|| format!("{target}.input").into());
            let time = Duration::from_secs(seconds);
            let done = run(t, seed, Budget::Time(time), &file);
            println!("{target}: {done} inputs in {seconds} s");
        }
        Command::Replay { target, files } => {
            let t = find(&target)?;
            for file in files {
                let input = std::fs::read(&file).with_context(|| file.display().to_string())?;
                try_one(t, &input);
                println!("{}: nothing is wrong", file.display());
            }
        }
        Command::Seeds { target, folder } => {
            let t = find(&target)?;
            std::fs::create_dir_all(&folder)?;
            let all = (t.seeds)().into_iter().chain(corpus(t));
            for (i, example) in all.enumerate() {
                std::fs::write(folder.join(format!("{target}-{i}")), example)?;
            }
        }
    }
    Ok(())
}
