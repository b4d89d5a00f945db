//! Several recordings at once.

use super::ask::*;
use serde_json::{Value, json};
use std::fs;

const BOTH: [&str; 2] = ["a.hst", "b.hst"];

/// Rows as text, sorted.
fn sorted(rows: Vec<Value>) -> Vec<String> {
    let mut all: Vec<String> = rows.iter().map(Value::to_string).collect();
    all.sort();
    all
}

#[test]
fn every_table_has_the_rows_of_each_recording() {
    let s = several();
    let tables = s.rows(&BOTH, "show tables");
    let names = tables.iter().filter(|t| t["kind"] == "table");
    let mut tables: Vec<String> = names
        .map(|t| t["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(tables.len() > 15, "{tables:?}");
    for of in [
        "calls('pay')",
        "values_of('accounts.c:20', 'amount')",
        "stack('end')",
        "registers('50%')",
        "variables('syscall:access:1')",
    ] {
        tables.push(of.into());
    }
    for table in tables {
        let long = ["instructions", "reads", "writes", "branches", "coverage"].contains(&&*table);
        let columns = match long {
            true => {
                let columns = s.rows(&BOTH, &format!("describe {table}"));
                assert_eq!(columns[0]["name"], "recording", "{table}");
                let sums = columns.iter().filter(|c| {
                    // A function may have the name of a table.
                    c["kind"].as_str().unwrap().split(',').next() == Some("number")
                        && !c["kind"].as_str().unwrap().ends_with("function")
                });
                let sums = sums.map(|c| format!("sum({})", c["name"].as_str().unwrap()));
                let sums: Vec<String> = sums.collect();
                format!("recording, count(*), {}", sums.join(", "))
            }
            false => "*".into(),
        };
        let group = if long { " group by recording" } else { "" };
        let question = format!("select {columns} from {table}{group}");
        let both = s.rows(&BOTH, &question);
        let mut single = s.rows(&["a.hst"], &question);
        let mut other = s.rows(&["b.hst"], &question);
        for (rows, name) in [(&single, "a"), (&other, "b")] {
            assert!(rows.iter().all(|r| r["recording"] == name), "{table}");
        }
        single.append(&mut other);
        assert_eq!(sorted(both), sorted(single), "{table}");
    }
}

#[test]
fn conditions_leave_recordings_closed() {
    let s = several();
    fs::write(s.scene.path("bad.hst"), b"no recording").unwrap();
    let all = ["a.hst", "bad.hst", "b.hst"];
    // Whoever opens that one fails.
    let said = s.wrong(&[&all[..], &["select count(*) from syscalls"]].concat());
    assert!(said.contains("bad"), "{said}");
    let said = s.wrong(&[&all[..], &["select time_of('end', 'bad')"]].concat());
    assert!(said.contains("bad"), "{said}");
    for condition in [
        "recording <> 'bad'",
        "recording in ('a', 'b')",
        "recording not in ('bad')",
        "recording = 'a' or recording = 'b'",
        "recording like '_'",
        "length(recording) = 1",
        "not (recording = 'bad')",
        "time >= 0 and 'bad' <> recording",
        "(recording = 'a' and time < time_of('end', 'a')) or (recording = 'b' and time >= 0)",
        "recording < 'bad' and time <= time_of('end', recording)",
    ] {
        let question =
            format!("select distinct recording r from syscalls where {condition} order by r");
        let found = s.rows(&all, &question);
        let expected = [json!({"r": "a"}), json!({"r": "b"})];
        assert_eq!(found, expected, "{condition}");
    }
    let joined = s.rows(
        &all,
        "select count(*) n from calls('pay') x join calls('pay') y on x.a0 = y.a0 and x.a1 = y.a1
         where x.recording = 'a' and y.recording = 'b'",
    );
    assert_eq!(joined[0]["n"], 50);
    let none = s.rows(&all, "select * from events where recording = 'nobody'");
    assert!(none.is_empty());
    // One that is damaged further inside is named, too.
    let whole = fs::read(s.scene.path("a.hst")).unwrap();
    let mut cut = whole.clone();
    let middle = cut.len() / 2;
    cut[middle..].fill(0x55);
    fs::write(s.scene.path("bad.hst"), &cut).unwrap();
    let said = s.wrong(&[&all[..], &["select count(pc) from instructions"]].concat());
    assert!(said.contains("bad"), "{said}");
}

#[test]
fn what_one_recording_does_not_have_another_one_may() {
    let s = several();
    let all = ["a.hst", "fails.hst", "b.hst"];
    let crash = s.rows(&all, "select distinct recording r from stack('crash')");
    assert_eq!(crash, [json!({"r": "fails"})]);
    let at = s.rows(
        &all,
        "select recording r, time_of('crash', recording) is null n from processes order by r",
    );
    let null: Vec<bool> = at.iter().map(|r| r["n"].as_bool().unwrap()).collect();
    assert_eq!(null, [true, true, false]);
    // This one never gets there.
    let calls = s.rows(
        &all,
        "select recording r, count(*) n from calls('pay') group by recording order by r",
    );
    assert_eq!(
        calls,
        [json!({"r": "a", "n": 200}), json!({"r": "b", "n": 50})]
    );
    let place = s.rows(
        &all,
        "select recording r, count(*) n from stack('syscall:access:2') group by recording order by r",
    );
    assert!(
        place.len() == 2 && place[0]["r"] == "a" && place[1]["r"] == "b",
        "{place:?}"
    );
    for (question, word) in [
        (
            "select * from calls('no_such_function')",
            "no_such_function",
        ),
        ("select * from stack('syscall:access:900')", "access"),
        ("select * from registers('ffffff:0')", "FFFFFF"),
        (
            "select * from values_of('accounts.d:7', 'who')",
            "accounts.d:7",
        ),
        ("select * from memory(0x1000, 1, 'end', 77)", "77"),
    ] {
        let said = s.wrong(&[&all[..], &[question]].concat());
        assert!(
            said.contains("none of 3 recordings has it") && said.contains(word),
            "{question}: {said}"
        );
    }
    let said = s.wrong(&[
        "a.hst",
        "b.hst",
        "select * from stack('crash') where recording = 'b'",
    ]);
    assert!(said.contains("b: ") && said.contains("crash"), "{said}");
    let said = s.wrong(&["a.hst", "b.hst", "select * from stack('nowhere')"]);
    assert!(said.contains("no place"), "{said}");
}

#[test]
fn functions_are_told_which_recording_is_meant() {
    let s = several();
    for question in [
        "select time_of('50%')",
        "select position_of(5)",
        "select function(address) from calls('pay')",
        "select symbol(address, process) from calls('pay')",
    ] {
        let said = s.wrong(&["a.hst", "b.hst", question]);
        assert!(
            said.contains("there are 2 recordings"),
            "{question}: {said}"
        );
        assert!(said.contains("RECORDING"), "{question}: {said}");
    }
    let question = "select recording r, time_of('50%', recording) t, position_of(time_of('50%', recording), recording) p,
        time_of(position_of(time_of('50%', recording), recording), recording) u from processes";
    let both = s.rows(&BOTH, &format!("{question} order by r"));
    for row in &both {
        assert_eq!(row["t"], row["u"]);
        let name = row["r"].as_str().unwrap();
        let file = format!("{name}.hst");
        let single = s.rows(
            &[&file],
            "select time_of('50%') t, position_of(time_of('50%')) p",
        );
        assert!(
            single[0]["t"] == row["t"] && single[0]["p"] == row["p"],
            "{both:?}"
        );
        // Who asks one may say so, too.
        assert_eq!(s.rows(&[&file], question)[0], *row);
    }
    assert_ne!(both[0]["t"], both[1]["t"]);
    // Rows of both in one list, and some of none.
    let names = s.rows(
        &BOTH,
        "select recording r, function(address, recording) f, source_line(address, process, recording) l,
            symbol(address, process, case when a1 % 2 = 0 then recording end) s, a1 from calls('pay')
         union all select 'b', function(0, 'b'), null, null, null",
    );
    assert_eq!(names.len(), 251);
    for n in names.iter().filter(|n| !n["a1"].is_null()) {
        assert_eq!(n["f"], "pay");
        assert!(n["l"].as_str().unwrap().contains("accounts.c:"), "{n}");
        assert_eq!(n["s"].is_null(), n["a1"].as_u64().unwrap() % 2 == 1, "{n}");
    }
    // NULL is no recording.
    for of in [&BOTH[..], &["a.hst"]] {
        let none = s.rows(
            of,
            "select time_of('50%', null) t, symbol(0, null) s, position_of(1, null) p",
        );
        assert_eq!(none, [json!({"t": null, "s": null, "p": null})]);
    }
    let said = s.wrong(&["a.hst", "b.hst", "select time_of('50%', 'c')"]);
    assert!(
        said.contains("no recording c") && said.contains("a, b"),
        "{said}"
    );
    let said = s.wrong(&["a.hst", "select time_of('50%', 'c')"]);
    assert!(said.contains("no recording c"), "{said}");
}

#[test]
fn recordings_are_named_in_many_ways() {
    let s = several();
    let question = "select recording r from processes order by r";
    let names = |recordings: &[&str]| -> Vec<String> {
        let of = |r: Value| r["r"].as_str().unwrap().to_owned();
        s.rows(recordings, question).into_iter().map(of).collect()
    };
    assert_eq!(names(&["*.hst"]), ["a", "b", "fails"]);
    assert_eq!(names(&["[ab].hst", "a.hst", "./a.hst"]), ["a", "b"]);
    assert_eq!(names(&["?.*"]), ["a", "b"]);
    let alike = ["x", "x.hst", "x.hst.hst"];
    for (of, name) in ["a.hst", "b.hst", "fails.hst"].iter().zip(alike) {
        fs::copy(s.scene.path(of), s.scene.path(name)).unwrap();
    }
    assert_eq!(names(&alike), alike);
    for name in alike {
        fs::remove_file(s.scene.path(name)).unwrap();
    }
    let folder = s.scene.path("other runs");
    fs::create_dir(&folder).unwrap();
    fs::copy(s.scene.path("b.hst"), folder.join("a.hst")).unwrap();
    assert_eq!(names(&["a.hst", "other runs/*.hst"]), ["a", "other runs/a"]);
    assert_eq!(names(&["*/*.hst"]), ["a"]);
    // Names that begin with a dot, and those that are no UTF-8, are left out.
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe.hst");
    fs::copy(s.scene.path("a.hst"), folder.join(odd)).unwrap();
    fs::copy(s.scene.path("a.hst"), folder.join(".h.hst")).unwrap();
    fs::copy(s.scene.path("a.hst"), s.scene.path(".").join(odd)).unwrap();
    assert_eq!(names(&["*/*.hst"]), ["a"]);
    assert_eq!(names(&["other runs/.*.hst"]), [".h"]);
    assert_eq!(names(&["*.hst"]), ["a", "b", "fails"]);
    // In the store.
    let store = s.scene.path("store");
    fs::create_dir_all(&store).unwrap();
    for name in ["prog-1.hst", "prog-2.hst"] {
        fs::copy(s.scene.path("b.hst"), store.join(name)).unwrap();
    }
    assert_eq!(
        names(&["prog-2", "a.hst", "prog-1.hst"]),
        ["a", "prog-1", "prog-2"]
    );
    assert_eq!(names(&["prog-*"]), ["prog-1", "prog-2"]);
    // The question may come from elsewhere.
    use std::io::Write;
    for words in [&["a.hst", "b.hst"][..], &["a.hst", "prog-1"], &["[ab].hst"]] {
        let mut command = command(&s.scene, &[words, &["--csv"]].concat());
        command.stdin(std::process::Stdio::piped());
        let mut running = s.scene.start(&mut command);
        running
            .input()
            .write_all(b"select count(*) n from processes")
            .unwrap();
        let done = running.finish();
        assert_eq!(done.text(), "n\n2\n", "{words:?}: {}", done.messages());
    }
    for (args, word) in [
        (&["a.hst", "none.hst", question][..], "none.hst"),
        (&["a.hst", "nobody", question], "nobody"),
        (&["x*.hst", question], "x*.hst"),
        (&["a.hst", "x*.hst"], "x*.hst"),
        (&["a.hst", question, "b.hst"], "recordings come first"),
        (&["a.hst", "b.hst", "c"], "c is neither"),
        (&["a.hst", "select(1)x)"], "select(1)x)"),
    ] {
        let said = s.wrong(args);
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

#[test]
fn the_name_of_the_only_recording_is_not_shown_to_people() {
    let s = several();
    let head = |args: &[&str]| s.asked(args).text().lines().next().unwrap_or("").to_owned();
    let all = "select * from marks";
    assert!(head(&["a.hst", all]).starts_with("position  time"));
    assert!(head(&["a.hst", "b.hst", all]).starts_with("recording  position"));
    assert!(head(&["a.hst", all, "--csv"]).starts_with("recording,position,time"));
    assert!(head(&["a.hst", "select recording, name from marks"]).starts_with("recording"));
    let columns = s.rows(&["a.hst"], "describe calls");
    assert_eq!(columns[0]["name"], "recording");
    assert!(columns[0]["about"].as_str().unwrap().contains("path"));
}

#[test]
fn many_recordings_are_asked_one_after_the_other() {
    let s = several();
    let names: Vec<String> = (0..20).map(|i| format!("many-{i:02}.hst")).collect();
    for (i, name) in names.iter().enumerate() {
        let of = ["a.hst", "b.hst"][i % 2];
        fs::copy(s.scene.path(of), s.scene.path(name)).unwrap();
    }
    let pattern = ["many-*.hst"];
    let calls = s.rows(
        &pattern,
        "select recording r, count(*) n, max(function(address, recording)) f from calls('pay') group by recording order by r",
    );
    assert_eq!(calls.len(), 20);
    for (i, row) in calls.iter().enumerate() {
        assert_eq!(row["r"], format!("many-{i:02}"));
        assert!(row["n"] == [200, 50][i % 2] && row["f"] == "pay", "{row}");
    }
    // Rows come in the order of recordings and times without sorting them.
    let plan = s.rows(
        &pattern,
        "explain select * from events order by recording, time",
    );
    let plan = plan.iter().map(Value::to_string).collect::<String>();
    assert!(!plan.contains("SortExec"), "{plan}");
    let rows = s.rows(
        &pattern,
        "select recording r, time t from events order by recording, time",
    );
    let key = |r: &Value| {
        (
            r["r"].as_str().unwrap().to_owned(),
            r["t"].as_i64().unwrap(),
        )
    };
    let keys: Vec<_> = rows.iter().map(key).collect();
    assert!(keys.is_sorted() && keys.len() > 400, "{}", keys.len());
    let plan = s.rows(&["a.hst"], "explain select * from events order by time");
    let plan = plan.iter().map(Value::to_string).collect::<String>();
    assert!(!plan.contains("SortExec"), "{plan}");
    // Alone it has one order of times, and so has each of a few.
    for few in [&["a.hst"][..], &["a.hst", "b.hst"]] {
        let rows = s.rows(few, "select time t from events order by time");
        assert!(rows.is_sorted_by_key(|r| r["t"].as_i64()));
        let some = s.rows(few, "select * from syscalls limit 7");
        assert_eq!(some.len(), 7);
    }
}

#[test]
fn a_file_has_the_rows_of_all() {
    let s = several();
    let to = s.scene.path("both.parquet");
    let args = [
        "a.hst",
        "b.hst",
        "select * from calls('pay')",
        "--parquet",
        to.to_str().unwrap(),
    ];
    let done = s.asked(&args);
    assert!(done.status.success(), "{}", done.messages());
    use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&to).unwrap()).unwrap();
    assert_eq!(builder.schema().field(0).name(), "recording");
    let batches = builder.build().unwrap();
    assert_eq!(batches.map(|b| b.unwrap().num_rows()).sum::<usize>(), 250);
}
