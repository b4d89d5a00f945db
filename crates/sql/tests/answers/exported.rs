//! Tables in files, as other tools read them.

use super::ask::*;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use hindsight_lab::{Done, words};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

fn tables(s: &Several, args: &[&str]) -> Done {
    let mut command = s.scene.command(env!("CARGO_BIN_EXE_hindsight-sql"));
    s.scene.run(command.arg("tables").args(args))
}

/// All files below a folder, sorted.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(below(&path)),
            false => all.push(path),
        }
    }
    all.sort();
    all
}

fn parquet(file: &Path) -> Vec<RecordBatch> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    builder.build().unwrap().map(Result::unwrap).collect()
}

/// One number that a query of a Parquet folder answers, read by the engine's own reader, which gets partitions by hand.
fn read(folder: &Path, query: &str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let context = SessionContext::new();
        let options = ParquetReadOptions::default()
            .table_partition_cols(vec![("recording".into(), DataType::Utf8)]);
        let path = folder.to_str().unwrap();
        context.register_parquet("t", path, options).await.unwrap();
        let rows = context.sql(query).await.unwrap().collect().await.unwrap();
        rows[0].column(0).as_primitive::<Int64Type>().value(0)
    })
}

#[test]
fn tables_are_written_for_other_tools() {
    let s = several();
    let to = s.scene.path("out/all");
    let folder = to.to_str().unwrap();
    let done = tables(
        &s,
        &[
            "*.hst",
            "--to",
            folder,
            "--json",
            "--tables",
            "small,coverage,profile,writes",
            "--tables",
            "calls('pay'), last=last_write(0x1000, 8, 'end')",
            "--query",
            "errors=select recording, error, count(*) n from syscalls where error is not null group by 1, 2",
        ],
    );
    assert!(done.status.success(), "{}", done.messages());
    let made: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
    let files = below(&to);
    assert_eq!(files.len(), 16 * 3 + 1, "{files:?}");
    let said: Vec<PathBuf> = made
        .iter()
        .map(|m| m["path"].as_str().unwrap().into())
        .collect();
    assert!(files.iter().all(|f| said.contains(f)), "{files:?} {said:?}");
    // Each file has the rows of its recording and no column for it, in the order of time.
    for m in &made {
        let path = Path::new(m["path"].as_str().unwrap());
        let rows = parquet(path);
        let n: usize = rows.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(m["rows"], n, "{m}");
        let Some(recording) = m["recording"].as_str() else {
            assert!(m["table"] == "errors" && n > 1, "{m}");
            continue;
        };
        let table = m["table"].as_str().unwrap();
        let table = match table {
            "calls-pay" => "calls('pay')",
            "last" => "last_write(0x1000, 8)",
            t => t,
        };
        let hst = format!("{recording}.hst");
        let counted = s.rows(&[&hst], &format!("select count(*) n from {table}"));
        assert_eq!(counted[0]["n"], n, "{m}");
        let schema = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        assert!(schema.schema().field_with_name("recording").is_err());
        let types = schema.schema().fields().iter().map(|f| f.data_type());
        assert!(
            types
                .into_iter()
                .all(|t| !matches!(t, DataType::Dictionary(..)))
        );
        if let Some(times) = rows
            .iter()
            .map(|r| r.column_by_name("time"))
            .collect::<Option<Vec<_>>>()
        {
            let all = times
                .iter()
                .flat_map(|t| t.as_primitive::<Int64Type>().values().iter());
            assert!(all.is_sorted() || table.contains('('), "{m}");
        }
    }
    // What the file says of itself.
    let file = to.join("events/recording=a/part-0.parquet");
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    let about = builder
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .unwrap();
    let value = |key: &str| {
        about
            .iter()
            .find(|k| k.key == key)
            .and_then(|k| k.value.clone())
    };
    assert_eq!(value("hindsight.recording").as_deref(), Some("a"));
    assert!(value("hindsight.about.kind").unwrap().contains("syscall"));
    // Partitions are columns.
    let calls = to.join("calls-pay");
    assert_eq!(
        read(&calls, "select count(*) from t where recording = 'b'"),
        50
    );
    assert_eq!(read(&calls, "select count(distinct recording) from t"), 2);
    python(&s, &to);
}

/// What pandas, pyarrow and DuckDB read, where they are installed. They are no packages of Debian.
fn python(s: &Several, to: &Path) {
    let calls = to.join("calls-pay");
    let calls = calls.display();
    let scripts = [
        (
            "pandas",
            format!(
                "import pandas, pyarrow; t = pandas.read_parquet('{calls}'); print(len(t), sorted(set(t.recording)))"
            ),
        ),
        (
            "pyarrow",
            format!(
                "import pyarrow.parquet as p; t = p.read_table('{calls}'); print(len(t), sorted(set(t['recording'].to_pylist())))"
            ),
        ),
        (
            "duckdb",
            format!(
                "import duckdb; print(*duckdb.sql(\"select count(*), list_sort(list(distinct recording)) from '{calls}/**/*.parquet'\").fetchall()[0])"
            ),
        ),
    ];
    for (module, script) in scripts {
        let mut command = s.scene.command("python3");
        if let Some(path) = std::env::var_os("HINDSIGHT_PYTHON_PATH") {
            command.env("PYTHONPATH", path);
        }
        let done = s.scene.run(command.args(["-c", &script]));
        if done.messages().contains("ModuleNotFoundError") {
            println!("{module} is not installed: what it reads was not looked at");
            continue;
        }
        assert_eq!(
            done.text(),
            "250 ['a', 'b']\n",
            "{module}: {}",
            done.messages()
        );
    }
}

#[test]
fn other_formats_have_the_same_rows() {
    let s = several();
    let count = |table: &str| {
        s.rows(&["a.hst"], &format!("select count(*) n from {table}"))[0]["n"]
            .as_u64()
            .unwrap() as usize
    };
    let list = ["events", "modules", "output", "segments"];
    for format in ["arrow", "csv"] {
        let to = s.scene.path(format);
        let done = tables(
            &s,
            &[
                "a.hst",
                "--to",
                to.to_str().unwrap(),
                "--format",
                format,
                "--tables",
                &list.join(","),
            ],
        );
        assert!(done.status.success(), "{}", done.messages());
        for table in list {
            let file = to
                .join(table)
                .join("recording=a")
                .join(format!("part-0.{format}"));
            let rows = match format {
                "arrow" => {
                    let reader = FileReader::try_new(File::open(&file).unwrap(), None).unwrap();
                    reader.map(|b| b.unwrap().num_rows()).sum()
                }
                _ => {
                    let text = fs::read_to_string(&file).unwrap();
                    assert!(!text.starts_with("recording"), "{text}");
                    // Texts of several lines are in quotes.
                    let mut quoted = false;
                    text.chars()
                        .filter(|c| {
                            quoted ^= *c == '"';
                            *c == '\n' && !quoted
                        })
                        .count()
                        - 1
                }
            };
            assert_eq!(rows, count(table), "{table} {format}");
        }
    }
}

#[test]
fn the_short_tables_are_the_default_and_conditions_hold_for_all() {
    let s = several();
    let count = |table: &str| {
        let rows = s.rows(&["a.hst"], &format!("select count(*) n from {table}"));
        rows[0]["n"].as_u64().unwrap()
    };
    // By default the short ones, unless there is a query.
    for (args, n) in [(&[][..], 11), (&["--query", "x=select 1 one"], 1)] {
        let to = s.scene.path(&format!("default-{n}"));
        let done = tables(
            &s,
            &[&["a.hst", "--to", to.to_str().unwrap()], args].concat(),
        );
        assert!(done.status.success(), "{}", done.messages());
        assert_eq!(below(&to).len(), n);
    }
    // A condition holds for all tables.
    let to = s.scene.path("few");
    let done = tables(
        &s,
        &[
            "a.hst",
            "--to",
            to.to_str().unwrap(),
            "--tables",
            "events,syscalls",
            "--where",
            "time > time_of('50%') -- late",
            "--json",
        ],
    );
    assert!(done.status.success(), "{}", done.messages());
    let made: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
    for m in &made {
        let table = m["table"].as_str().unwrap();
        assert_eq!(
            m["rows"].as_u64().unwrap(),
            count(&format!("{table} where time > time_of('50%')"))
        );
    }
    let done = tables(
        &s,
        &[
            "a.hst",
            "--to",
            to.to_str().unwrap(),
            "--tables",
            "modules",
            "--where",
            "time > 7",
        ],
    );
    assert_eq!(done.status.code(), Some(2));
    assert!(
        done.messages().contains("modules") && done.messages().contains("time"),
        "{}",
        done.messages()
    );
}

#[test]
fn files_are_there_when_they_are_whole() {
    let s = several();
    let to = s.scene.path("to");
    let folder = to.to_str().unwrap();
    let small = ["a.hst", "--to", folder, "--tables", "events,threads"];
    assert!(tables(&s, &small).status.success());
    let before = below(&to);
    assert_eq!(before.len(), 2);
    let again = tables(&s, &small);
    assert_eq!(again.status.code(), Some(2));
    assert!(again.messages().contains("--force"), "{}", again.messages());
    assert!(
        tables(&s, &[&small[..], &["--force"]].concat())
            .status
            .success()
    );
    // An error leaves what was there, and nothing new.
    for (args, word) in [
        (
            &["*.hst", "--tables", "events,calls('no_such_function')"][..],
            "none of",
        ),
        (&["a.hst", "--tables", "nothing"], "no table nothing"),
        (
            &["a.hst", "--query", "x=select nothing from events"],
            "nothing",
        ),
        (
            &["a.hst", "--query", "x=select 1; select 2"],
            "more than one statement",
        ),
        (
            &["a.hst", "--query", "x=create view v as select 1"],
            "without rows",
        ),
        (&["a.hst", "none.hst"], "none.hst"),
    ] {
        let done = tables(&s, &[args, &["--force", "--to", folder]].concat());
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        assert!(
            done.messages().contains(word),
            "{args:?}: {}",
            done.messages()
        );
        assert_eq!(below(&to), before, "{args:?}");
    }
    // So does one that was interrupted.
    let mut command = s.scene.command(env!("CARGO_BIN_EXE_hindsight-sql"));
    command.args([
        "tables", "a.hst", "--to", folder, "--force", "--tables", "events",
    ]);
    command.args([
        "--query",
        "x=select max((a.time + b.time) % 1000) from instructions a, instructions b",
    ]);
    let running = s.scene.start(&mut command);
    let begun = std::time::Instant::now();
    while below(&to).len() == before.len() && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    running.signal_group(libc::SIGINT);
    let done = running.finish();
    assert!(!done.status.success());
    assert_eq!(below(&to), before, "{}", done.messages());
    assert!(!to.join("x").exists());
}

#[test]
fn a_full_disk_is_said_in_a_line() {
    let s = several();
    let to = s.scene.path("to");
    let folder = to.to_str().unwrap();
    let tables = ["--tables", "events,instructions"];
    let program = s.scene.compile("accounts.c", &["-g", "-O1"]);
    let many = words(&program, &["3000"]);
    (s.scene).run(&mut s.scene.recording(&s.scene.path("many.hst"), &many));
    for args in [
        [
            &["tables", "a.hst", "--to", folder, "--format", "csv"],
            &tables[..],
        ]
        .concat(),
        [
            &["tables", "a.hst", "--to", folder, "--format", "arrow"],
            &tables[..],
        ]
        .concat(),
        [
            &["tables", "a.hst", "--to", folder, "--format", "parquet"],
            &tables[..],
        ]
        .concat(),
        vec![
            "convert", "many.hst", "--to", "perfetto", "--calls", "pay", "-o", folder,
        ],
    ] {
        let said = full(&s, &args);
        assert!(
            said.contains("cannot write ") && said.contains(folder),
            "{said}"
        );
        assert!(said.ends_with("File too large (os error 27)\n"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!to.exists());
    }
}

/// What a command says whose files cannot grow.
fn full(s: &Several, args: &[&str]) -> String {
    let mut command = s.scene.command(env!("CARGO_BIN_EXE_hindsight-sql"));
    command.args(args);
    // A limit of a file's size is what can be made full without rights.
    use std::os::unix::process::CommandExt;
    // SAFETY: both calls may be made in a process that was just forked.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 300_000,
                rlim_max: 300_000,
            };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            Ok(())
        })
    };
    let done = s.scene.run(&mut command);
    assert_eq!(done.status.code(), Some(2), "{}", done.messages());
    done.messages()
}

#[test]
fn what_a_recording_lacks_leaves_one_empty_table() {
    let s = several();
    // It has neither the function's calls nor rows of this place.
    let table = "stack('syscall:access:2')";
    for format in ["csv", "arrow", "parquet"] {
        let to = s.scene.path(format);
        let folder = to.to_str().unwrap();
        let args = ["*.hst", "--to", folder, "--format", format, "--tables"];
        let done = tables(&s, &[&args[..], &[&format!("at={table}")]].concat());
        assert!(done.status.success(), "{}", done.messages());
        let rows = |recording: &str| {
            let file = format!("at/recording={recording}/part-0.{format}");
            let file = to.join(file);
            match format {
                "csv" => fs::read_to_string(&file).unwrap().lines().count() - 1,
                "arrow" => {
                    // The end of the file says where its parts are.
                    let bytes = fs::read(&file).unwrap();
                    let magic = bytes.windows(6).filter(|w| w == b"ARROW1").count();
                    assert_eq!(magic, 2, "{recording}");
                    let reader = FileReader::try_new(File::open(&file).unwrap(), None).unwrap();
                    reader.map(|b| b.unwrap().num_rows()).sum()
                }
                _ => parquet(&file).iter().map(RecordBatch::num_rows).sum(),
            }
        };
        assert!(rows("a") > 0 && rows("b") > 0, "{format}");
        assert_eq!(rows("fails"), 0, "{format}");
    }
}

#[test]
fn rows_have_the_same_order_each_time() {
    let s = several();
    let mut before: Option<Vec<Vec<u8>>> = None;
    for i in 0..3 {
        let to = s.scene.path(&format!("order-{i}"));
        let args = [
            "a.hst",
            "b.hst",
            "--to",
            to.to_str().unwrap(),
            "--format",
            "csv",
            "--jobs",
            "4",
            "--tables",
            "profile,coverage,branches,memory(0x1000, 20000)",
        ];
        let done = tables(&s, &args);
        assert!(done.status.success(), "{}", done.messages());
        let all: Vec<Vec<u8>> = below(&to).iter().map(|f| fs::read(f).unwrap()).collect();
        assert_eq!(all.len(), 8);
        if let Some(before) = before.replace(all.clone()) {
            assert!(before == all, "run {i} differs");
        }
    }
}
