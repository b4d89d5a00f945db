//! The benchmark's workloads: small deterministic programs of the kinds that people record.

use crate::process::{ENVIRONMENT, argv};
use crate::tasks;
use hindsight_random::Rng;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One program to measure.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: String,
    pub what: String,
    pub argv: Vec<OsString>,
    pub aim: Aim,
}

/// The goal of a workload.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub enum Aim {
    /// It is one of the CPU-bound programs of which the means are taken.
    Cpu,
    /// Recording may cost at most this many times the native run.
    Ratio(f64),
    /// Recording may add at most `ms` milliseconds to each of `units` units.
    Each { units: u32, ms: f64 },
    /// It has one thread. Workloads with several threads are compared with it.
    Alone,
    /// Each of two threads does the work of the workload named `alone`. With a processor for each thread,
    /// recording must not take more time than there.
    Parallel { alone: &'static str },
    /// It behaves as natively, and verifies.
    Runs,
}

/// A workload in a file that `--workloads` names.
#[derive(serde::Deserialize)]
struct Described {
    name: String,
    #[serde(default)]
    what: String,
    /// Shell commands that prepare the run, in the benchmark's data directory.
    #[serde(default)]
    prepare: String,
    run: Vec<String>,
}

/// Prepares the workloads of a JSON file. It has a list of objects with `name`, `run` (a list of words), and
/// optionally `what` and `prepare`.
pub fn from_file(file: &Path, dir: &Path) -> io::Result<Vec<Workload>> {
    let list: Vec<Described> = serde_json::from_slice(&fs::read(file)?)?;
    list.into_iter()
        .map(|d| {
            if !d.prepare.is_empty() {
                run(Command::new("sh")
                    .arg("-ec")
                    .arg(&d.prepare)
                    .current_dir(dir))?;
            }
            Ok(Workload {
                name: d.name,
                what: d.what,
                argv: argv(&d.run),
                aim: Aim::Cpu,
            })
        })
        .collect()
}

/// Prepares the workloads in `dir`. `only` limits them to some names. Returns them, and the names of all that there are.
pub fn built_in(dir: &Path, only: &[String]) -> io::Result<(Vec<Workload>, Vec<String>)> {
    let maker = Maker {
        dir,
        only,
        made: Vec::new(),
        names: Vec::new(),
    };
    let mut maker = maker.make_all()?;
    tasks::make(&mut maker)?;
    Ok((maker.made, maker.names))
}

/// Fails if one of the names in `only` is none of `names`.
pub fn all_known(only: &[String], names: &[String]) -> io::Result<()> {
    match only.iter().find(|o| !names.contains(o)) {
        None => Ok(()),
        Some(unknown) => Err(io::Error::other(format!(
            "--only: nothing is named \"{unknown}\"; there are {}",
            names.join(", ")
        ))),
    }
}

/// Prepares the programs for measuring travel: one with one thread, one with eight.
pub fn travelled(dir: &Path) -> io::Result<Vec<Workload>> {
    let names = ["sqlite", "pigz8"].map(String::from);
    let mut maker = Maker {
        dir,
        only: &names,
        made: Vec::new(),
        names: Vec::new(),
    }
    .make_all()?;
    maker.task(
        "pigz8",
        "pigz -9, eight threads, 24 MB of text",
        Aim::Runs,
        &["pigz"],
        &|dir| {
            let text = dir.join("text.txt");
            generate(&text, |f| write_text(f, 24_000_000))?;
            let mut words = argv(&["/usr/bin/pigz", "-p", "8", "-9", "-c"]);
            words.push(text.into());
            Ok(words)
        },
    )?;
    Ok(maker.made)
}

/// Makes the workloads that were asked for.
pub struct Maker<'a> {
    dir: &'a Path,
    only: &'a [String],
    made: Vec<Workload>,
    /// Names of all workloads, wanted or not.
    names: Vec<String>,
}

/// Makes the files of a workload in a directory. Returns the workload's arguments.
pub type Preparation<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<OsString>>;

impl Maker<'_> {
    fn make_all(mut self) -> io::Result<Self> {
        self.add("gzip", "gzip -6 of 24 MB of text", &|dir| {
            let text = dir.join("text.txt");
            generate(&text, |f| write_text(f, 24_000_000))?;
            Ok(argv(&[
                "/usr/bin/gzip".as_ref(),
                "-6".as_ref(),
                "-c".as_ref(),
                text.as_os_str(),
            ]))
        })?;
        self.add(
            "python",
            "objects, JSON, regular expressions, dictionaries, sorting",
            &|dir| {
                let script = put(
                    dir,
                    "interpreter.py",
                    include_bytes!("../workloads/interpreter.py"),
                )?;
                Ok(argv(&[
                    "/usr/bin/python3".as_ref(),
                    script.as_os_str(),
                    "5".as_ref(),
                ]))
            },
        )?;
        self.add(
            "sqlite",
            "310,000 rows in memory, two indices, joins, aggregates",
            &|dir| {
                put(dir, "tables.sql", include_bytes!("../workloads/tables.sql"))?;
                Ok(argv(&["/usr/bin/sqlite3", ":memory:", ".read tables.sql"]))
            },
        )?;
        self.add(
            "lua",
            "recursion, trees, closures, strings, sorting",
            &|dir| {
                let script = put(dir, "mixed.lua", include_bytes!("../workloads/mixed.lua"))?;
                Ok(argv(&[
                    "/usr/bin/lua5.4".as_ref(),
                    script.as_os_str(),
                    "7".as_ref(),
                ]))
            },
        )?;
        self.add(
            "cc1",
            "gcc's compiler proper, -O2, a generated file of 180 functions",
            &|dir| {
                let unit = dir.join("unit.i");
                generate(&unit, |f| write_c(f, 180))?;
                let cc1 = Command::new("gcc")
                    .arg("-print-prog-name=cc1")
                    .output()?
                    .stdout;
                let cc1 = String::from_utf8_lossy(&cc1).trim().to_owned();
                let unit = unit.into_os_string();
                let mut words = argv(&[cc1.as_str(), "-quiet", "-fpreprocessed", "-O2"]);
                words.extend([unit, "-o".into(), "/dev/stdout".into()]);
                Ok(words)
            },
        )?;
        self.add(
            "mm_avx2",
            "matrix product, 512 x 512, 20 times, -march=haswell",
            &|dir| compile(dir, "matrix-avx2", &["-march=haswell"]),
        )?;
        self.add("mm_sse2", "the same for the x86-64 baseline", &|dir| {
            compile(dir, "matrix-sse2", &[])
        })?;
        Ok(self)
    }

    /// Adds a workload that needs programs which may be missing. It then says so and leaves the workload out.
    pub fn task(
        &mut self,
        name: &str,
        what: &str,
        aim: Aim,
        needs: &[&str],
        prepare: Preparation,
    ) -> io::Result<()> {
        if !self.wants(name) {
            return Ok(());
        }
        if let Err(e) = installed(needs) {
            eprintln!("{name}: skipped: {e}");
            return Ok(());
        }
        self.add(name, what, prepare)?;
        if let Some(made) = self.made.last_mut() {
            made.aim = aim;
        }
        Ok(())
    }

    fn wants(&mut self, name: &str) -> bool {
        if !self.names.iter().any(|n| n == name) {
            self.names.push(name.into());
        }
        self.only.is_empty() || self.only.iter().any(|o| o == name)
    }

    fn add(&mut self, name: &str, what: &str, prepare: Preparation) -> io::Result<()> {
        if self.wants(name) {
            let argv = prepare(self.dir).map_err(|e| io::Error::other(format!("{name}: {e}")))?;
            self.made.push(Workload {
                name: name.into(),
                what: what.into(),
                argv,
                aim: Aim::Cpu,
            });
        }
        Ok(())
    }
}

fn compile(dir: &Path, name: &str, options: &[&str]) -> io::Result<Vec<OsString>> {
    let source = put(dir, "matrix.c", include_bytes!("../workloads/matrix.c"))?;
    let program = dir.join(name);
    run(Command::new("gcc")
        .args(["-O3", "-ffast-math"])
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(&program))?;
    Ok(vec![program.into_os_string(), "512".into(), "20".into()])
}

/// Fails unless all these programs are installed.
pub fn installed(programs: &[&str]) -> io::Result<()> {
    let path = ENVIRONMENT.iter().find(|(name, _)| *name == "PATH");
    let dirs = path.map_or("", |(_, dirs)| *dirs);
    let found = |p: &str| dirs.split(':').any(|d| Path::new(d).join(p).is_file());
    match programs.iter().find(|p| !found(p)) {
        None => Ok(()),
        Some(p) => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{p} is not installed"),
        )),
    }
}

/// Writes a file.
pub fn put(dir: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = dir.join(name);
    fs::write(&path, content)?;
    Ok(path)
}

/// Writes a generated file.
pub fn generate(path: &Path, write: impl Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write(&mut file)?;
    file.flush()
}

/// Runs a command. Fails if the command fails.
pub fn run(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{command:?}: {status}")))
    }
}

/// Writes text of words with unequal frequency, numbers and punctuation.
pub fn write_text(out: &mut dyn Write, size: usize) -> io::Result<()> {
    let mut random = Rng(2026);
    let syllables = [
        "ka", "ro", "mi", "te", "sun", "ver", "lo", "pan", "e", "dri", "sho", "ul",
    ];
    let words: Vec<String> = (0..5000)
        .map(|_| {
            let n = 1 + random.below(4);
            (0..n)
                .map(|_| syllables[random.below(syllables.len() as u64) as usize])
                .collect()
        })
        .collect();
    let mut written = 0;
    let mut line = String::new();
    while written < size {
        line.clear();
        while line.len() < 72 {
            match random.below(24) {
                0 => line.push_str(&random.below(100_000).to_string()),
                1 => line.push_str("--"),
                _ => {
                    // The smaller of two random numbers: early words become frequent.
                    let i = random
                        .below(5000)
                        .min(random.below(5000))
                        .min(random.below(5000));
                    line.push_str(&words[i as usize]);
                }
            }
            line.push_str(if random.below(12) == 0 { ", " } else { " " });
        }
        line.push('\n');
        written += line.len();
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Writes a preprocessed translation unit of `functions` functions that call each other.
pub fn write_c(out: &mut dyn Write, functions: u64) -> io::Result<()> {
    let mut random = Rng(7);
    writeln!(out, "typedef unsigned long size_t;")?;
    writeln!(
        out,
        "void *memset(void *, int, size_t); size_t strlen(const char *);"
    )?;
    writeln!(
        out,
        "struct item {{ int key, count; double weight; char name[24]; struct item *next; }};"
    )?;
    for f in 0..functions {
        writeln!(
            out,
            "static int f{f}(struct item *s, int n, const char *text) {{"
        )?;
        writeln!(out, "  int t = {}, u = n;", random.below(1000))?;
        for _ in 0..5 {
            let (a, b) = (1 + random.below(60), 2 + random.below(30));
            match random.below(7) {
                0 => writeln!(
                    out,
                    "  for (int i = 0; i < n; i++) {{ t += s[i].key * {a} - (u >> {}); s[i].count ^= t; }}",
                    b % 7
                )?,
                1 => writeln!(
                    out,
                    "  for (struct item *p = s; p; p = p->next) if (p->key % {b} == {}) u += p->count; else p->weight *= 1.{a};",
                    a % b
                )?,
                2 => writeln!(
                    out,
                    "  switch (t % {b}) {{ case 0: u += {a}; break; case 1: t ^= u; case 5: t -= n; break; case 9: return t * {b}; default: u--; }}"
                )?,
                3 => writeln!(
                    out,
                    "  while (u > {a} && *text) {{ u -= *text++ & {b}; t += u * {a}; }}"
                )?,
                4 => writeln!(
                    out,
                    "  memset(s[t & 7].name, {a}, {}); t += (int)strlen(s[u & 7].name);",
                    b % 24
                )?,
                5 if f > 0 => writeln!(
                    out,
                    "  t += f{}(s + 1, n - 1, text) ^ f{}(s, n >> 1, text + 1);",
                    random.below(f),
                    random.below(f)
                )?,
                _ => writeln!(
                    out,
                    "  {{ double d = s[0].weight; for (int i = 1; i < n; i++) d = d * 0.{a} + s[i].weight / {b}.0; t += (int)d; }}"
                )?,
            }
        }
        writeln!(out, "  return t + u;\n}}")?;
    }
    writeln!(
        out,
        "int all(struct item *s, int n, const char *text) {{\n  int t = 0;"
    )?;
    for f in (0..functions).step_by(3) {
        writeln!(out, "  t += f{f}(s, n, text);")?;
    }
    writeln!(out, "  return t;\n}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nothing_has_are_refused() {
        let list = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        let dir = Path::new("/nonexistent");
        // Nothing is prepared of what is not wanted.
        let (made, names) = built_in(dir, &list(&["gzpi"])).unwrap();
        assert!(made.is_empty() && names.len() > 10, "{names:?}");
        assert!(all_known(&[], &names).is_ok());
        assert!(all_known(&list(&["gzip", "pigz"]), &names).is_ok());
        let refused = all_known(&list(&["gzip", "gzpi"]), &names).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("\"gzpi\"; there are gzip, "), "{refused}");
    }

    #[test]
    fn generated_files_are_the_same_every_time() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        write_text(&mut a, 10_000).unwrap();
        write_text(&mut b, 10_000).unwrap();
        assert!(a == b && a.len() >= 10_000);
        write_c(&mut a, 20).unwrap();
        write_c(&mut b, 20).unwrap();
        assert_eq!(a, b);
    }
}
