//! Feeds a target with inputs.

use crate::{Rng, Target, mutate};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// An input that takes longer hangs. It is far more than any input needs, since the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most memory that the process may have had, in KiB.
const MOST_KIB: u64 = 3 << 20;

/// How long to go on.
#[derive(Clone, Copy)]
pub enum Budget {
    Time(Duration),
    /// So many inputs besides the examples.
    Inputs(u64),
}

/// Inputs that are kept for a target, by name: those with which something was once wrong.
///
/// # Panics
/// They cannot be read.
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    let mut paths: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(list) => list.map(|e| e.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    };
    paths.sort();
    paths.iter().map(|p| fs::read(p).unwrap()).collect()
}

/// Notices an input that never ends.
struct Watch {
    /// Number of the input at hand.
    input: Arc<AtomicU64>,
}

impl Watch {
    /// `file` is where the input is.
    fn new(target: &Target, file: &Path) -> Watch {
        let input = Arc::new(AtomicU64::new(0));
        let (seen, how) = (Arc::downgrade(&input), again(target, file));
        std::thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            // Until the run is over.
            while let Some(input) = seen.upgrade() {
                let now = input.load(Relaxed);
                drop(input);
                if now != last {
                    (last, since) = (now, Instant::now());
                }
                if since.elapsed() > PATIENCE {
                    eprintln!("an input does not end: {how}");
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Watch { input }
    }
}

/// How to run an input again.
fn again(target: &Target, file: &Path) -> String {
    let (name, file) = (target.name, file.display());
    format!("cargo run -p hindsight-fuzz -- replay {name} {file}")
}

/// Says where the input is if a target panics. Otherwise removes the file.
struct Kept<'a>(&'a Target, &'a Path);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to run it again: {}", again(self.0, self.1));
        } else {
            let _ = fs::remove_file(self.1);
        }
    }
}

/// The most memory that this process has had, in KiB.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Gives a target one input, within the bounds of time and memory.
///
/// # Panics
/// Something is wrong.
pub fn try_one(target: &Target, input: &[u8]) {
    let begin = Instant::now();
    (target.run)(input);
    // Nobody takes that much memory in no time.
    if begin.elapsed() > Duration::from_micros(500) {
        let peak = peak_kib();
        assert!(peak <= MOST_KIB, "{}: {peak} KiB of memory", target.name);
    }
}

/// Makes an input the content of a file.
fn keep(file: &File, input: &[u8]) -> std::io::Result<()> {
    file.write_all_at(input, 0)?;
    file.set_len(input.len() as u64)
}

/// Gives a target its examples and what is kept for it, and then changed ones. Each input is in `file` while it runs, and
/// stays there if something is wrong. Returns how many there were.
///
/// # Panics
/// Something is wrong.
pub fn run(target: &Target, seed: u64, budget: Budget, file: &Path) -> u64 {
    let _kept = Kept(target, file);
    let watch = Watch::new(target, file);
    // It stays open: some file systems write a file to the disk each time one is closed that was cut.
    let kept_in = File::create(file).expect("the input can be kept");
    let mut examples = (target.seeds)();
    examples.extend(corpus(target));
    println!(
        "{}: {} examples, --seed {seed:#x}",
        target.name,
        examples.len()
    );
    let mut r = Rng(seed);
    let (begin, mut done) = (Instant::now(), 0u64);
    let mut next = 0;
    loop {
        let input = match examples.get(next) {
            Some(e) => e.clone(),
            None => mutate::input(&mut r, &examples),
        };
        next += 1;
        keep(&kept_in, &input).expect("the input can be kept");
        watch.input.fetch_add(1, Relaxed);
        try_one(target, &input);
        done += 1;
        let changed = done.saturating_sub(examples.len() as u64);
        let over = match budget {
            Budget::Time(t) => begin.elapsed() >= t && changed > 0,
            Budget::Inputs(n) => changed >= n,
        };
        if over && next >= examples.len() {
            return done;
        }
    }
}
