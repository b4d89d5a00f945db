//! What state points cost: for how long the program stands, and how much less it does.

use crate::hindsight::Hindsight;
use crate::stats::{median, range};
use crate::table::markdown;
use hindsight_lab::Scene;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// MiB of a program with much memory, and how much of it changes before each state point.
const LARGE: [&str; 2] = ["1024", "10"];

/// MiB of a program that changes its memory all the time, MiB a second, and seconds.
const PACE: [&str; 3] = ["512", "200", "5"];

/// Goal for the milliseconds that a state point of the large program takes.
const POINT: f64 = 100.0;

/// Goals for the program that changes its memory: milliseconds of its longest pause, and how much less it does.
const PAUSE: f64 = 20.0;
const LESS: f64 = 0.2;

/// Measures that many times, with and without by turns, and prints tables.
pub fn run(tool: &Hindsight, rounds: u32) -> io::Result<bool> {
    let s = Scene::new();
    let program = s.compile("states_pace.c", &["-O2"]);
    let trace = s.path("states.hst");
    let (mut points, mut without, mut with) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut words = vec!["points"];
        words.extend(LARGE);
        points.push(said(tool, &program, &trace, &[], &words)?);
        let mut words = vec!["pace"];
        words.extend(PACE);
        without.push(paced(tool, &program, &trace, &[], &words)?);
        with.push(paced(
            tool,
            &program,
            &trace,
            &["--state-points", "1s"],
            &words,
        )?);
    }
    let [size, part] = LARGE;
    println!("A program of {size} MiB, of which {part} MiB change: ms at each state point\n");
    let mut rows = vec![["which", "median", "range"].map(String::from).to_vec()];
    let mut later = Vec::new();
    for n in 0..points[0].len() {
        let values: Vec<f64> = points.iter().filter_map(|p| p.get(n).copied()).collect();
        rows.push(row(&(n + 1).to_string(), &values));
        later.extend(if n == 0 { Vec::new() } else { values });
    }
    println!("{}", markdown(&rows));
    let [size, rate, seconds] = PACE;
    println!("A program of {size} MiB that changes {rate} MiB a second, {seconds} s\n");
    let mut rows = vec![["what", "median", "range"].map(String::from).to_vec()];
    for (what, runs) in [("without", &without), ("with", &with)] {
        for (i, which) in ["rounds", "longest pause, ms", "recording, MB"]
            .iter()
            .enumerate()
        {
            let values: Vec<f64> = runs.iter().map(|r| r[i]).collect();
            rows.push(row(&format!("{what}: {which}"), &values));
        }
    }
    let less = |(a, b): (&[f64; 3], &[f64; 3])| 1.0 - b[0] / a[0];
    let less: Vec<f64> = without.iter().zip(&with).map(less).collect();
    rows.push(row("less done", &less));
    println!("{}", markdown(&rows));
    let pauses: Vec<f64> = with.iter().map(|r| r[1]).collect();
    let mut all = true;
    for (what, seen, goal) in [
        ("a state point, ms", median(&later), POINT),
        ("longest pause, ms", median(&pauses), PAUSE),
        ("less done", median(&less), LESS),
    ] {
        let met = seen <= goal;
        let word = if met { "met" } else { "missed" };
        println!("{what}: {seen:.2}, goal {goal}: {word}");
        all &= met;
    }
    Ok(all)
}

fn row(what: &str, values: &[f64]) -> Vec<String> {
    let (low, high) = range(values);
    vec![
        what.into(),
        format!("{:.2}", median(values)),
        format!("{low:.2} to {high:.2}"),
    ]
}

/// The numbers that the recorded program prints.
fn said(
    tool: &Hindsight,
    program: &Path,
    trace: &Path,
    options: &[&str],
    words: &[&str],
) -> io::Result<Vec<f64>> {
    let mut c = Command::new(&tool.program);
    c.args(["record", "--quiet"]).args(options).arg("-o");
    c.arg(trace).arg("--").arg(program).args(words);
    let done = c.output()?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let numbers: Result<Vec<f64>, _> = text.lines().map(str::parse).collect();
    match numbers {
        Ok(numbers) if done.status.success() && !numbers.is_empty() => Ok(numbers),
        _ => Err(io::Error::other(format!(
            "the recorded program has failed: {}{text}",
            String::from_utf8_lossy(&done.stderr)
        ))),
    }
}

/// Rounds, the longest one, and MB of the recording.
fn paced(
    tool: &Hindsight,
    program: &Path,
    trace: &Path,
    options: &[&str],
    words: &[&str],
) -> io::Result<[f64; 3]> {
    let numbers = said(tool, program, trace, options, words)?;
    let size = fs::metadata(trace)?.len() as f64 / 1e6;
    match numbers[..] {
        [rounds, longest, _] => Ok([rounds, longest, size]),
        _ => Err(io::Error::other("the recorded program says something else")),
    }
}
