//! `hindsight tables`: whole tables into files.

use crate::column::table_schema;
use crate::engine::{self, Engine};
use crate::files::{RowsFile, extension};
use crate::functions::TABLES;
use crate::missing::Absent;
use crate::recordings::Recordings;
use crate::{names, tables};
use anyhow::{Context, Result, anyhow, bail, ensure};
use datafusion::execution::SendableRecordBatchStream;
use hindsight_cli::sql::{self, AskedForTables, Output, Wanted, say, say_lines};
use serde_json::json;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tables that are written if nobody names others: what is in the recording itself, and short.
const SMALL: &[&str] = &[
    "processes",
    "threads",
    "modules",
    "segments",
    "gaps",
    "events",
    "syscalls",
    "signals",
    "marks",
    "output",
    "input",
];

/// A table in the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Item {
    /// The folder that gets its files.
    name: String,
    rows: Rows,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Rows {
    /// Those of a table, or of a function's table, for each recording by itself.
    Of(String),
    /// Those of a query, for all together.
    Query(String),
}

/// Which files tables take, below a folder.
pub fn files(wanted: &Wanted, recordings: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let names = names::of(recordings.iter().map(PathBuf::as_path));
    for item in items(wanted)? {
        let file = format!("part-0.{}", extension(wanted.format));
        let folder = Path::new(&item.name);
        match item.rows {
            Rows::Of(_) => all.extend(names.iter().map(|n| {
                let part = folder.join(format!("recording={}", encoded(n)));
                part.join(&file)
            })),
            Rows::Query(_) => all.push(folder.join(file)),
        }
    }
    Ok(all)
}

/// Writes them; the exit status.
pub fn write(asked: AskedForTables) -> Result<i32> {
    sql::allow(engine::MEMORY as u64);
    let wanted = &asked.wanted;
    let recordings = Arc::new(Recordings::new(asked.recordings));
    let engine = Engine::in_order(&recordings, asked.processors)?;
    let mut work = Work {
        engine: &engine,
        recordings: &recordings,
        processors: asked.processors,
        wanted,
        made: Vec::new(),
    };
    let mut files = asked.files.into_iter();
    let all = items(wanted)?;
    let count = all.len();
    let done = (all.into_iter()).try_for_each(|item| {
        let name = item.name.clone();
        work.item(item, &mut files).with_context(|| name)
    });
    if let Err(e) = done {
        say_lines(&format!("{e:#}"));
        return Ok(2);
    }
    let rows: u64 = work.made.iter().map(|m| m.rows).sum();
    match wanted.json {
        true => {
            let one = |m: &Part| json!({"table": m.table, "recording": m.recording, "path": m.path, "rows": m.rows});
            let list: Vec<_> = work.made.iter().map(one).collect();
            writeln!(Output, "{}", serde_json::to_string_pretty(&list)?)?;
        }
        false => say(&format!(
            "{}: tables {count}, recordings {}, rows {rows}",
            wanted.to.display(),
            recordings.len()
        )),
    }
    Ok(0)
}

/// A file that was written.
struct Part {
    table: String,
    recording: Option<String>,
    path: PathBuf,
    rows: u64,
}

struct Work<'a> {
    engine: &'a Engine,
    recordings: &'a Arc<Recordings>,
    processors: usize,
    wanted: &'a Wanted,
    made: Vec<Part>,
}

impl Work<'_> {
    fn item(&mut self, item: Item, files: &mut impl Iterator<Item = File>) -> Result<()> {
        let mut next = || files.next().context("there are fewer files than tables");
        let file = format!("part-0.{}", extension(self.wanted.format));
        let folder = self.wanted.to.join(&item.name);
        let table = match &item.rows {
            Rows::Query(query) => {
                let path = folder.join(file);
                // A query says itself in which order its rows come.
                let engine = Engine::new(self.recordings, self.processors)?;
                return self.part(&engine, query, next()?, (&item.name, None), &path);
            }
            Rows::Of(table) => table,
        };
        let mut absent = None;
        for index in 0..self.recordings.len() {
            let name = self.recordings.name(index).to_string();
            let path = folder
                .join(format!("recording={}", encoded(&name)))
                .join(&file);
            let query = self.query(table, &name);
            let to = next()?;
            let empty = to.try_clone()?;
            let Err(e) = self.part(self.engine, &query, to, (&item.name, Some(&name)), &path)
            else {
                absent = Some(None);
                continue;
            };
            if !e.is::<Absent>() {
                return Err(e);
            }
            // Another one may have it.
            absent.get_or_insert(Some(e));
            self.none(table, empty, (&item.name, &name), &path)?;
        }
        match (absent.flatten(), self.recordings.len()) {
            (None, _) => Ok(()),
            (Some(e), 1) => Err(e),
            (Some(e), n) => Err(e.context(format!("none of {n} recordings has it"))),
        }
    }

    /// All rows of a table, in the order of time where it has one.
    fn query(&self, table: &str, recording: &str) -> String {
        let mut query = format!("SELECT * FROM {table}");
        // The only one needs no condition, which would have each row looked at.
        let only =
            (!self.recordings.is_one()).then(|| format!("recording = {}", quoted(recording)));
        let wanted = (self.wanted.condition.iter()).map(|c| format!("({c}\n)"));
        let all: Vec<String> = only.into_iter().chain(wanted).collect();
        if !all.is_empty() {
            query += &format!(" WHERE {}", all.join(" AND "));
        }
        let found = tables::all().into_iter().find(|t| t.name == table);
        let order = found.map_or(&[][..], |t| t.table.order());
        if !order.is_empty() {
            query += &format!(" ORDER BY {}", order.join(", "));
        }
        query
    }

    /// Writes the rows of a query.
    fn part(
        &mut self,
        engine: &Engine,
        query: &str,
        file: File,
        (table, recording): (&str, Option<&str>),
        path: &Path,
    ) -> Result<()> {
        let (mut file, mut rows) = (Some(file), 0);
        let format = self.wanted.format;
        let about = about(table, recording);
        engine.run(
            query,
            &mut |engine: &Engine, mut batches: SendableRecordBatchStream| {
                let file = file.take().context("more than one statement")?;
                let to = (format, path.display().to_string());
                let schema = batches.schema();
                // Until there is a row the recording may turn out to lack what is asked. Then the file stays empty.
                let mut next = engine.next(&mut batches)?;
                let mut out = RowsFile::new(file, to, &schema, recording.is_none(), &about)?;
                while let Some(batch) = next {
                    rows += batch.num_rows() as u64;
                    out.write(&batch)?;
                    next = engine.next(&mut batches)?;
                }
                out.close()
            },
        )?;
        ensure!(file.is_none(), "a statement without rows");
        self.made.push(Part {
            table: table.into(),
            recording: recording.map(str::to_owned),
            path: path.into(),
            rows,
        });
        Ok(())
    }

    /// A file without rows, of what a function makes.
    fn none(&mut self, table: &str, file: File, names: (&str, &str), path: &Path) -> Result<()> {
        let name = table.split('(').next().unwrap_or("").trim();
        let function = TABLES.iter().find(|t| t.name.eq_ignore_ascii_case(name));
        let columns = function
            .context("only what a function makes can be missing")?
            .columns;
        let to = (self.wanted.format, path.display().to_string());
        let about = about(names.0, Some(names.1));
        RowsFile::new(file, to, &table_schema(columns()), false, &about)?.close()?;
        self.made.push(Part {
            table: names.0.into(),
            recording: Some(names.1.into()),
            path: path.into(),
            rows: 0,
        });
        Ok(())
    }
}

fn about(table: &str, recording: Option<&str>) -> Vec<(&'static str, String)> {
    let recording = recording.map(|r| ("recording", r.to_owned()));
    std::iter::once(("table", table.to_owned()))
        .chain(recording)
        .collect()
}

/// A text in a query.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A recording's name as a part of a path. Readers turn `%2F` into `/` again.
fn encoded(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c.is_ascii_alphanumeric() || !c.is_ascii() || "._-+@,".contains(c) {
            true => out.push(c),
            false => out += &format!("%{:02X}", c as u32),
        }
    }
    out
}

/// The tables that are wanted, each once.
fn items(wanted: &Wanted) -> Result<Vec<Item>> {
    let mut all: Vec<Item> = Vec::new();
    for list in &wanted.tables {
        for entry in entries(list) {
            all.extend(named(entry)?);
        }
    }
    for query in &wanted.queries {
        let (name, query) = (query.split_once('='))
            .filter(|(name, _)| is_name(name))
            .with_context(|| format!("--query {query}: expected NAME=SQL"))?;
        all.push(Item {
            name: name.into(),
            rows: Rows::Query(query.into()),
        });
    }
    let mut seen: HashSet<String> = HashSet::new();
    let mut once: Vec<Item> = Vec::new();
    for item in all {
        if once.contains(&item) {
            continue;
        }
        if !seen.insert(item.name.clone()) {
            bail!(
                "two tables would be named {}: say NAME={}",
                item.name,
                match &item.rows {
                    Rows::Of(t) | Rows::Query(t) => t,
                }
            );
        }
        once.push(item);
    }
    ensure!(!once.is_empty(), "--tables names no table");
    Ok(once)
}

/// The entries of a list with commas between. A comma within parentheses or a text is none.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut text) = (0i32, false);
    let parts = list.split(move |c| {
        match c {
            '\'' => text = !text,
            '(' if !text => depth += 1,
            ')' if !text => depth -= 1,
            _ => {}
        }
        c == ',' && depth <= 0 && !text
    });
    parts.map(str::trim).filter(|p| !p.is_empty())
}

/// What an entry of the list stands for.
fn named(entry: &str) -> Result<Vec<Item>> {
    let of = |name: &str, table: &str| Item {
        name: name.into(),
        rows: Rows::Of(table.into()),
    };
    let (name, table) = match entry.split_once('=') {
        Some((name, table)) if is_name(name.trim()) => (Some(name.trim()), table.trim()),
        _ => (None, entry),
    };
    // As in queries, case does not count.
    let lower = table.to_ascii_lowercase();
    match (name, &*lower) {
        (None, "small") => return Ok(SMALL.iter().map(|t| of(t, t)).collect()),
        (None, "all") => return Ok(tables::all().iter().map(|t| of(t.name, t.name)).collect()),
        _ => {}
    }
    if tables::all().iter().any(|t| t.name == lower) {
        return Ok(vec![of(name.unwrap_or(&lower), &lower)]);
    }
    let function = table.split_once('(').and_then(|(name, rest)| {
        let name = name.trim();
        let known = TABLES.iter().find(|t| t.name.eq_ignore_ascii_case(name))?;
        table
            .ends_with(')')
            .then(|| format!("{}({rest}", known.name))
    });
    if let Some(table) = function {
        let words: Vec<&str> = (table
            .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.'))
        .filter(|w| !w.is_empty())
        .collect();
        return Ok(vec![of(name.unwrap_or(&words.join("-")), &table)]);
    }
    Err(anyhow!(
        "there is no table {table}; `hindsight sql FILE \"SHOW TABLES\"` lists them"
    ))
}

fn is_name(text: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && text.chars().all(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hindsight_cli::sql::TableFormat;

    fn wanted(tables: &[&str], queries: &[&str]) -> Wanted {
        let all = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Wanted {
            tables: all(tables),
            queries: all(queries),
            condition: None,
            format: TableFormat::Parquet,
            json: false,
            to: "to".into(),
        }
    }

    #[test]
    fn tables_are_named_in_lists() {
        let names = |tables: &[&str], queries: &[&str]| {
            let all = items(&wanted(tables, queries)).map_err(|e| e.to_string())?;
            Ok::<_, String>(all.into_iter().map(|i| i.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["small"], &[]).unwrap(), SMALL);
        assert_eq!(names(&["all"], &[]).unwrap().len(), tables::all().len());
        assert_eq!(
            names(&["all,small"], &[]).unwrap().len(),
            tables::all().len()
        );
        assert_eq!(
            names(
                &[
                    "events, calls('pay'), w=writes(0x10, 8)",
                    "values_of('a.c:3', 'x,y')"
                ],
                &["q=SELECT 1"]
            )
            .unwrap(),
            ["events", "calls-pay", "w", "values_of-a.c-3-x-y", "q"]
        );
        let case = ["Events,EVENTS,Calls ( 'Pay' ),calls( 'Pay' )"];
        assert_eq!(names(&case, &[]).unwrap(), ["events", "calls-Pay"]);
        assert_eq!(names(&["Small"], &[]).unwrap(), SMALL);
        for (tables, queries, word) in [
            ("nothing", "q=SELECT 1", "no table nothing"),
            ("", "", "--query"),
            ("a=nothing", "q=SELECT 1", "no table nothing"),
            ("f(1)", "q=SELECT 1", "no table f(1)"),
            ("events", "events=SELECT 1", "two tables"),
            ("events", "../x=SELECT 1", "NAME=SQL"),
            ("../x=events", "q=SELECT 1", "no table"),
        ] {
            let said = names(&[tables], &[queries]).unwrap_err();
            assert!(said.contains(word), "{tables} {queries}: {said}");
        }
        assert!(names(&[","], &[]).unwrap_err().contains("no table"));
    }

    #[test]
    fn each_recording_has_a_folder_of_each_table() {
        let recordings = [PathBuf::from("x/a.hst"), "y/a.hst".into()];
        let wanted = wanted(&["events"], &["q=SELECT 1"]);
        assert_eq!(
            files(&wanted, &recordings).unwrap(),
            [
                "events/recording=x%2Fa/part-0.parquet",
                "events/recording=y%2Fa/part-0.parquet",
                "q/part-0.parquet"
            ]
            .map(PathBuf::from)
        );
        assert_eq!(encoded("a b='%'é"), "a%20b%3D%27%25%27é");
    }

    #[test]
    fn small_tables_exist() {
        let all = tables::all();
        assert!(SMALL.iter().all(|s| all.iter().any(|t| t.name == *s)));
    }
}
