//! How answers are written, and what is said when there is none.

use super::ask::*;
use std::fs;

#[test]
fn answers_come_in_several_forms() {
    let a = accounts();
    let ask = |args: &[&str]| asked(&a.scene, &a.trace, args).text();
    let table = ask(&["select fd, text, length from output order by time desc limit 1"]);
    let text = format!("{} refused", a.refused);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[1].split("  ").map(str::len).collect::<Vec<_>>(),
        [2, text.len() + 2, 6]
    );
    assert_eq!(lines[2], format!(" 2  {text}\\n      {}", text.len() + 1));
    let csv = ask(&[
        "select fd, text from output order by time desc limit 1",
        "--csv",
    ]);
    assert_eq!(csv, format!("fd,text\n2,\"{text}\n\"\n"));
    assert_eq!(
        ask(&["select fd from output where fd = 77", "--csv"]),
        "fd\n"
    );
    assert_eq!(
        ask(&["select fd from output where fd = 77", "--json"]),
        "[]\n"
    );
    // Addresses are shown as such.
    let address = ask(&[&format!("select address from memory({}, 1)", a.address)]);
    assert!(address.ends_with(&format!("{}\n", a.address)), "{address}");
}

#[test]
fn a_parquet_file_has_the_rows() {
    let a = accounts();
    let file = a.scene.path("calls.parquet");
    let to = file.to_str().unwrap();
    let done = asked(
        &a.scene,
        &a.trace,
        &["select * from calls('pay')", "--parquet", to],
    );
    assert!(done.status.success(), "{}", done.messages());
    use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&file).unwrap()).unwrap();
    assert!(builder.schema().field_with_name("arguments").is_ok());
    let rows: usize = builder
        .build()
        .unwrap()
        .map(|b| b.unwrap().num_rows())
        .sum();
    assert_eq!(rows, 200);
    // It is not replaced, and none is left behind by a question without an answer.
    let again = asked(&a.scene, &a.trace, &["select 1", "--parquet", to]);
    assert_eq!(again.status.code(), Some(2));
    assert!(again.messages().contains("exists"), "{}", again.messages());
    let other = a.scene.path("other.parquet");
    for wrong in ["select nothing from calls('pay')", "select 1; select 2"] {
        let done = asked(
            &a.scene,
            &a.trace,
            &[wrong, "--parquet", other.to_str().unwrap()],
        );
        assert_eq!(done.status.code(), Some(2), "{wrong}");
        assert!(!other.exists(), "{wrong}");
    }
}

#[test]
fn mistakes_are_shown_with_their_place() {
    let a = accounts();
    let said = a.wrong("select * frm events");
    assert!(said.contains("frm") && said.contains('^'), "{said}");
    let said = a.wrong("select 0x7fffffffffff, nothing from events");
    assert!(said.contains("nothing"), "{said}");
    let caret = said
        .lines()
        .find(|l| l.trim() == "^")
        .map(|l| l.find('^').unwrap());
    let shown = said
        .lines()
        .find(|l| l.starts_with("  select"))
        .unwrap_or_default();
    assert_eq!(caret, shown.find("nothing"), "{said}");
    for (question, word) in [
        ("select * from nothing", "nothing"),
        ("select nothing(1)", "nothing"),
        ("describe nothing", "SHOW TABLES"),
        (
            "select * from calls('no_such_function')",
            "no file of the recording has a function",
        ),
        ("select * from calls(1, 2)", "expected calls('FUNCTION')"),
        (
            "select * from memory('x', 8)",
            "expected memory(ADDRESS, LENGTH",
        ),
        ("select * from writes(0x1000, 0)", "length is 0"),
        ("select * from writes(0x1000, 0xffffffffffff)", "too many"),
        ("select * from last_write(0x1000, 1048577)", "too many"),
        ("select * from stack('nowhere')", "no place"),
        ("select time_of('nowhere')", "no place"),
        ("select hex(-1)", "-1"),
        ("select symbol('main')", "main"),
        ("insert into events select * from events", "DML"),
        ("copy events to '/tmp/x.csv'", "DML"),
        (
            "create external table t stored as csv location '/etc/passwd'",
            "only recordings are open",
        ),
        ("select * from '/etc/passwd'", "passwd"),
    ] {
        let said = a.wrong(question);
        assert!(said.contains(word), "{question}: {said}");
        assert!(
            !said.contains("panick") && !said.contains("Internal error"),
            "{question}: {said}"
        );
    }
}

#[test]
fn statements_come_from_standard_input_too() {
    use std::io::Write;
    let a = accounts();
    let mut command = command(&a.scene, &[a.trace.to_str().unwrap(), "--csv"]);
    command.stdin(std::process::Stdio::piped());
    let mut running = a.scene.start(&mut command);
    let text = b"create view o as select * from output; -- a comment\nselect count(*) n from o; select 1 one";
    running.input().write_all(text).unwrap();
    let done = running.finish();
    assert_eq!(done.text(), "n\n2\none\n1\n", "{}", done.messages());
}

#[test]
fn a_damaged_recording_is_said_to_be_one() {
    let a = accounts();
    let whole = fs::read(&a.trace).unwrap();
    let cut = a.scene.path("cut.hst");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let done = asked(&a.scene, &cut, &["select count(*) from syscalls"]);
    assert!(
        done.status.success() || done.status.code() == Some(2),
        "{done:?}"
    );
    fs::write(&cut, b"no recording").unwrap();
    let done = asked(&a.scene, &cut, &["select 1"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(done.messages().contains("cut.hst"), "{}", done.messages());
}

/// Programs read rows as they are: with types, documentation, and NULL where something is not known.
#[test]
fn a_stream_for_programs_has_the_rows() {
    use datafusion::arrow::array::{AsArray, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, UInt64Type};
    use datafusion::arrow::ipc::reader::StreamReader;
    let a = accounts();
    let ask = |question: &str| asked(&a.scene, &a.trace, &[question, "--arrow"]);
    let done = ask("select position, address, function from calls('pay') order by time");
    assert!(done.status.success(), "{}", done.messages());
    let reader = StreamReader::try_new(&done.stdout[..], None).unwrap();
    let schema = reader.schema();
    assert_eq!(schema.field(0).data_type(), &DataType::Utf8);
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 200);
    // What is not known is NULL, and not zero.
    let done = ask("select value from memory(16, 4)");
    assert!(done.status.success(), "{}", done.messages());
    let reader = StreamReader::try_new(&done.stdout[..], None).unwrap();
    let mut rows = 0;
    for batch in reader.map(Result::unwrap) {
        assert_eq!(batch.column(0).null_count(), batch.num_rows());
        rows += batch.num_rows();
    }
    assert_eq!(rows, 4);
    // No rows are a stream, too.
    let done = ask("select address from memory(16, 4) where address = 99");
    let reader = StreamReader::try_new(&done.stdout[..], None).unwrap();
    assert_eq!(reader.schema().field(0).data_type(), &DataType::UInt64);
    for batch in reader.map(Result::unwrap) {
        assert!(batch.column(0).as_primitive::<UInt64Type>().is_empty());
    }
    for (wrong, part) in [
        ("select 1; select 2", "one statement"),
        ("select nothing", "nothing"),
    ] {
        let done = ask(wrong);
        assert_eq!(done.status.code(), Some(2), "{wrong}");
        assert!(done.messages().contains(part), "{}", done.messages());
    }
}
