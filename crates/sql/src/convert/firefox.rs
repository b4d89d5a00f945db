//! A profile for the Firefox profiler: its processed format, version 48. It is described in the profiler's
//! `docs-developer/CHANGELOG-formats.md` and `src/types/profile.ts`.

use super::read::each;
use crate::engine::Engine;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::iter::repeat_n;

/// The version of the processed format, and of the format that browsers write.
const PROCESSED: u32 = 48;
const BROWSER: u32 = 30;
/// The type of a resource that is a library.
const LIBRARY: u32 = 1;

/// What is known of a thread before its profile.
struct Thread {
    process: i64,
    name: String,
    tid: i64,
    pid: String,
}

/// Writes it. The weight of a path is how many instructions its last function executed. Times are instructions, too, each a
/// nanosecond: a profile does not say when it was.
pub fn write(engine: &Engine, name: &str, started_ms: u64, out: &mut dyn Write) -> Result<()> {
    let mut threads: HashMap<i64, Thread> = HashMap::new();
    let mut main: HashMap<i64, i64> = HashMap::new();
    let query = "SELECT thread, process, name, tid, pid FROM threads ORDER BY thread";
    let mut pids = Pids::default();
    each(engine, query, &mut |row| {
        let number = row.int(0).unwrap_or(0);
        let process = row.int(1).unwrap_or(0);
        let thread = Thread {
            process,
            name: row.text(2).unwrap_or_default().into(),
            tid: row.int(3).unwrap_or(0),
            pid: pids.text(process, row.int(4).unwrap_or(0)),
        };
        main.entry(thread.process).or_insert(number);
        threads.insert(number, thread);
        Ok(())
    })?;
    let mut commands: HashMap<i64, String> = HashMap::new();
    each(
        engine,
        "SELECT process, command FROM processes",
        &mut |row| {
            let command = row.text(1).unwrap_or_default();
            commands.insert(row.int(0).unwrap_or(0), command.into());
            Ok(())
        },
    )?;
    let meta = json!({
        "interval": 1, "startTime": started_ms, "processType": 0, "product": name, "stackwalk": 1,
        "version": BROWSER, "preprocessedProfileVersion": PROCESSED, "symbolicated": true,
        "importedFrom": "Hindsight", "usesOnlyOneStackType": true, "sourceCodeIsNotOnSearchfox": true,
        "markerSchema": [], "oscpu": "Linux x86_64",
        "categories": [{"name": "Other", "color": "grey", "subcategories": ["Other"]}],
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
    });
    write!(out, "{{\"meta\":{meta},\"pages\":[],\"threads\":[")?;
    let mut libraries = Libraries::default();
    let mut current: Option<(i64, Profile)> = None;
    let mut written = 0;
    let mut end = |number: i64, profile: Profile, out: &mut dyn Write| -> Result<()> {
        let thread = threads
            .get(&number)
            .context("a thread that is not listed")?;
        let command = commands.get(&thread.process).map_or("", String::as_str);
        if written > 0 {
            out.write_all(b",")?;
        }
        written += 1;
        let is_main = main.get(&thread.process) == Some(&number);
        profile.write(thread, command, is_main, out)
    };
    // The rows of a thread come one after the other, a path before those that go on from it.
    let query = "SELECT thread, depth, function, module, instructions FROM profile";
    each(engine, query, &mut |row| {
        let number = row.int(0).unwrap_or(0);
        if let Some((old, profile)) = current.take_if(|c| c.0 != number) {
            end(old, profile, out)?;
        }
        let (_, profile) = current.get_or_insert_with(|| (number, Profile::default()));
        let module = row.text(3).map(|m| (m, libraries.index(m)));
        let function = row.text(2).unwrap_or_default();
        let depth = usize::try_from(row.int(1).unwrap_or(1)).unwrap_or(1);
        profile.add(depth, function, module, row.int(4).unwrap_or(0));
        Ok(())
    })?;
    if let Some((number, profile)) = current {
        end(number, profile, out)?;
    }
    Ok(writeln!(out, "],\"libs\":{}}}", libraries.shown())?)
}

/// What the profiler tells processes apart by: a text for each program image. After an `execve` the next one has the same
/// number.
#[derive(Default)]
struct Pids {
    of: HashMap<i64, String>,
    images: HashMap<i64, u32>,
}

impl Pids {
    fn text(&mut self, process: i64, pid: i64) -> String {
        let images = &mut self.images;
        let of = self.of.entry(process).or_insert_with(|| {
            let before = images.entry(pid).or_default();
            *before += 1;
            match before {
                1 => pid.to_string(),
                n => format!("{pid}.{n}"),
            }
        });
        of.clone()
    }
}

/// All files with code.
#[derive(Default)]
struct Libraries {
    known: HashMap<String, u32>,
    list: Vec<String>,
}

impl Libraries {
    fn index(&mut self, path: &str) -> u32 {
        if let Some(index) = self.known.get(path) {
            return *index;
        }
        let index = self.list.len() as u32;
        self.known.insert(path.into(), index);
        self.list.push(path.into());
        index
    }

    fn shown(&self) -> Value {
        let one = |path: &String| {
            let name = path.rsplit('/').next().unwrap_or(path);
            // No symbols are looked for: names are there.
            json!({
                "arch": "x86_64", "name": name, "path": path, "debugName": name, "debugPath": path,
                "breakpadId": "", "codeId": null,
            })
        };
        self.list.iter().map(one).collect()
    }
}

/// The profile of a thread.
#[derive(Default)]
struct Profile {
    strings: Vec<String>,
    known: HashMap<String, u32>,
    /// A name, and the resource that it is in.
    functions: Vec<(u32, Option<u32>)>,
    function_of: HashMap<(u32, Option<u32>), u32>,
    /// A name, and the library.
    resources: Vec<(u32, u32)>,
    resource_of: HashMap<u32, u32>,
    /// A function, and the path that called it.
    stacks: Vec<(u32, Option<u32>)>,
    /// The path that was added last, and those that lead to it.
    path: Vec<u32>,
    /// A path, and instructions.
    samples: Vec<(u32, i64)>,
}

impl Profile {
    fn string(&mut self, text: &str) -> u32 {
        if let Some(index) = self.known.get(text) {
            return *index;
        }
        let index = self.strings.len() as u32;
        self.strings.push(text.into());
        self.known.insert(text.into(), index);
        index
    }

    /// Adds a path of so many functions, whose last one is this. What calls it was added before.
    fn add(&mut self, depth: usize, function: &str, module: Option<(&str, u32)>, own: i64) {
        let resource = module.map(|(path, library)| match self.resource_of.get(&library) {
            Some(resource) => *resource,
            None => {
                let name = self.string(path.rsplit('/').next().unwrap_or(path));
                let resource = self.resources.len() as u32;
                self.resources.push((name, library));
                self.resource_of.insert(library, resource);
                resource
            }
        });
        let key = (self.string(function), resource);
        let next = self.functions.len() as u32;
        let function = *self.function_of.entry(key).or_insert(next);
        if function == next {
            self.functions.push(key);
        }
        self.path.truncate(depth.saturating_sub(1));
        let stack = self.stacks.len() as u32;
        self.stacks.push((function, self.path.last().copied()));
        self.path.push(stack);
        if own > 0 {
            self.samples.push((stack, own));
        }
    }

    fn write(&self, of: &Thread, command: &str, is_main: bool, out: &mut dyn Write) -> Result<()> {
        let head = json!({
            "processType": "default", "processName": command, "processStartupTime": 0, "processShutdownTime": null,
            "registerTime": 0, "unregisterTime": null, "pausedRanges": [], "name": of.name,
            "isMainThread": is_main, "pid": of.pid, "tid": of.tid,
            "markers": {"data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0},
            "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
        });
        let head = head.to_string();
        // The object goes on.
        out.write_all(&head.as_bytes()[..head.len() - 1])?;
        let n = self.samples.len();
        let mut time = 0;
        let times = self.samples.iter().map(|s| {
            let at = time;
            time = i64::saturating_add(time, s.1);
            at as f64 / 1e6
        });
        Table::begin("samples", n, out)?
            .column("stack", self.samples.iter().map(|s| s.0))?
            .column("time", times)?
            .column("weight", self.samples.iter().map(|s| s.1))?
            .end(",\"weightType\":\"samples\"")?;
        let n = self.stacks.len();
        Table::begin("stackTable", n, out)?
            .column("frame", self.stacks.iter().map(|s| s.0))?
            .column("prefix", self.stacks.iter().map(|s| s.1))?
            .column("category", repeat_n(0, n))?
            .column("subcategory", repeat_n(0, n))?
            .end("")?;
        // A frame for each function.
        let n = self.functions.len();
        let none = || repeat_n(None::<u32>, n);
        Table::begin("frameTable", n, out)?
            .column("address", repeat_n(-1, n))?
            .column("inlineDepth", repeat_n(0, n))?
            .column("category", repeat_n(0, n))?
            .column("subcategory", repeat_n(0, n))?
            .column("func", 0..n)?
            .column("nativeSymbol", none())?
            .column("innerWindowID", repeat_n(0, n))?
            .column("implementation", none())?
            .column("line", none())?
            .column("column", none())?
            .end("")?;
        Table::begin("funcTable", n, out)?
            .column("isJS", repeat_n(false, n))?
            .column("relevantForJS", repeat_n(false, n))?
            .column("name", self.functions.iter().map(|f| f.0))?
            .column(
                "resource",
                self.functions.iter().map(|f| f.1.map_or(-1, i64::from)),
            )?
            .column("fileName", none())?
            .column("lineNumber", none())?
            .column("columnNumber", none())?
            .end("")?;
        let n = self.resources.len();
        Table::begin("resourceTable", n, out)?
            .column("lib", self.resources.iter().map(|r| r.1))?
            .column("name", self.resources.iter().map(|r| r.0))?
            .column("host", repeat_n(None::<u32>, n))?
            .column("type", repeat_n(LIBRARY, n))?
            .end("")?;
        out.write_all(b",\"stringArray\":")?;
        serde_json::to_writer(&mut *out, &self.strings)?;
        Ok(out.write_all(b"}")?)
    }
}

/// An object of columns that is being written as a part of another one.
struct Table<'a>(&'a mut dyn Write);

impl<'a> Table<'a> {
    fn begin(name: &str, length: usize, out: &'a mut dyn Write) -> Result<Table<'a>> {
        write!(out, ",\"{name}\":{{\"length\":{length}")?;
        Ok(Table(out))
    }

    fn column<T: Into<Value>>(
        self,
        name: &str,
        values: impl Iterator<Item = T>,
    ) -> Result<Table<'a>> {
        write!(self.0, ",\"{name}\":[")?;
        for (i, value) in values.enumerate() {
            if i > 0 {
                self.0.write_all(b",")?;
            }
            serde_json::to_writer(&mut *self.0, &value.into())?;
        }
        self.0.write_all(b"]")?;
        Ok(self)
    }

    fn end(self, more: &str) -> Result<()> {
        Ok(write!(self.0, "{more}}}")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_image_has_a_pid_of_its_own() {
        let mut pids = Pids::default();
        let all = [(1, 70), (1, 70), (2, 70), (3, 71), (2, 70)].map(|(i, pid)| pids.text(i, pid));
        assert_eq!(all, ["70", "70", "70.2", "71", "70.2"]);
    }
}
