//! Which instructions of programs and libraries neither translator nor interpreter knows, and why.

mod code;
mod reasons;

use code::Code;
use hindsight_difftest::interpret::is_interpreted;
use hindsight_translate::{Fate, fate};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Files between two lines that say how far it is.
const STEP: usize = 2000;

/// An encoding that occurred.
struct Found {
    times: u64,
    /// The first one.
    instruction: Instruction,
    bytes: Vec<u8>,
    file: PathBuf,
}

/// All that occurred, by encoding. Interrupts are apart by their numbers.
#[derive(Default)]
struct Tally {
    files: usize,
    invalid: u64,
    found: BTreeMap<(usize, u8), Found>,
}

/// Who does not know an instruction.
struct Refusal<'a> {
    found: &'a Found,
    by: &'static str,
    reason: Option<&'static str>,
}

/// Looks through these folders and prints a table.
pub fn run(folders: &[PathBuf], every: usize) -> io::Result<ExitCode> {
    let mut files = Vec::new();
    let mut seen = HashSet::new();
    for folder in folders {
        list(folder, &mut seen, &mut files)?;
    }
    let files: Vec<PathBuf> = files.into_iter().step_by(every).collect();
    let tally = count(&files);
    if tally.files == 0 {
        return Err(io::Error::other("there is no x86-64 program or library"));
    }
    let refusals = refusals(&tally);
    print(&tally, &refusals);
    Ok(match refusals.iter().all(|r| r.reason.is_some()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Adds all files in a folder, each once. Links are not followed.
fn list(at: &Path, seen: &mut HashSet<(u64, u64)>, out: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = std::fs::read_dir(at)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(|e| e.file_name());
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), seen, out)?;
        } else if kind.is_file() {
            let m = entry.metadata()?;
            if seen.insert((m.dev(), m.ino())) {
                out.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Decodes all code of these files, with all processors.
fn count(files: &[PathBuf]) -> Tally {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Tally::default());
    let work = || {
        let mut tally = Tally::default();
        while let Some(file) = files.get(next.fetch_add(1, Relaxed)) {
            let done = next.load(Relaxed);
            if done.is_multiple_of(STEP) {
                eprintln!("{done} of {} files", files.len());
            }
            tally.add(file);
        }
        let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
        all.merge(tally);
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|s| {
        (0..threads).for_each(|_| {
            s.spawn(work);
        })
    });
    all.into_inner().unwrap_or_else(|e| e.into_inner())
}

impl Tally {
    /// Adds the code of a file. One that is no program or library for this kind of processor has none.
    fn add(&mut self, file: &Path) {
        let Some(code) = Code::of(file) else {
            return;
        };
        self.files += 1;
        code.each(&mut |at, bytes| self.decode(file, at, bytes));
    }

    /// Adds instructions that follow each other.
    fn decode(&mut self, file: &Path, at: u64, bytes: &[u8]) {
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        let mut i = Instruction::default();
        while decoder.can_decode() {
            let from = decoder.position();
            decoder.decode_out(&mut i);
            if i.mnemonic() == Mnemonic::INVALID {
                self.invalid += 1;
                continue;
            }
            let number = match i.mnemonic() {
                Mnemonic::Int => i.immediate8(),
                _ => 0,
            };
            let found = self.found.entry((i.code() as usize, number));
            let found = found.or_insert_with(|| Found {
                times: 0,
                instruction: i,
                bytes: bytes[from..decoder.position()].to_vec(),
                file: file.to_owned(),
            });
            found.times += 1;
        }
    }

    fn merge(&mut self, other: Tally) {
        self.files += other.files;
        self.invalid += other.invalid;
        for (code, found) in other.found {
            let times = found.times;
            match self.found.get_mut(&code) {
                Some(known) => known.times += times,
                None => drop(self.found.insert(code, found)),
            }
        }
    }
}

/// What is not known, by whom.
fn refusals(tally: &Tally) -> Vec<Refusal<'_>> {
    let mut out = Vec::new();
    for found in tally.found.values() {
        let i = &found.instruction;
        let reason = reasons::of(i);
        let fate = fate(i);
        let mut add = |by| out.push(Refusal { found, by, reason });
        if fate == Fate::Stops {
            add("translator");
        }
        if fate == Fate::Executed && !is_interpreted(&found.bytes) {
            add("interpreter");
        }
    }
    out
}

fn print(tally: &Tally, refusals: &[Refusal]) {
    let instructions: u64 = tally.found.values().map(|f| f.times).sum();
    let mnemonics: HashSet<Mnemonic> = (tally.found.values())
        .map(|f| f.instruction.mnemonic())
        .collect();
    for r in refusals {
        let bytes: Vec<String> = r.found.bytes.iter().map(|b| format!("{b:02x}")).collect();
        println!(
            "{:?}, {} times, not in the {}: {} ({} in {} at {:#x})",
            r.found.instruction.code(),
            r.found.times,
            r.by,
            r.reason.unwrap_or("NO REASON"),
            bytes.join(" "),
            hindsight_text::line(&r.found.file.to_string_lossy()),
            r.found.instruction.ip()
        );
    }
    println!(
        "{} files, {instructions} instructions of {} mnemonics and {} encodings, {} bytes that are none; {} refusals, {} without a reason",
        tally.files,
        mnemonics.len(),
        tally.found.len(),
        tally.invalid,
        refusals.len(),
        refusals.iter().filter(|r| r.reason.is_none()).count()
    );
}
