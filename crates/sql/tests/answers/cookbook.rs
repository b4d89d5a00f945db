//! The questions of docs/sql.md.

use super::ask::*;
use std::fs;
use std::path::Path;

#[test]
fn every_question_of_the_book_has_an_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    let text = fs::read_to_string(path).unwrap();
    let questions: Vec<&str> = text
        .split("```sql\n")
        .skip(1)
        .map(|t| t.split("```").next().unwrap())
        .collect();
    assert!(questions.len() >= 25, "{}", questions.len());
    let a = accounts();
    for q in questions {
        let rows = a.rows(&q.replace("0x404060", &a.address));
        assert!(!rows.is_empty(), "{q}");
        // A column that never has a value answers nothing.
        for name in rows[0].as_object().unwrap().keys() {
            assert!(
                rows.iter().any(|r| !r[name].is_null()),
                "{q}: {name} of {rows:?}"
            );
        }
    }
}

#[test]
fn what_is_never_freed_is_found() {
    let a = accounts();
    let leaks = a.rows(
        "select m.caller, count(*) as blocks, sum(m.a0) as bytes from calls('malloc') m
         left join calls('free') f on f.a0 = m.result and f.time > m.time
         where f.time is null and m.caller like '%!note+%' group by m.caller",
    );
    // Notes 0, 5, 10 and 15 of 16 bytes and their number.
    assert_eq!(leaks.len(), 1);
    assert!(
        leaks[0]["blocks"] == 4 && leaks[0]["bytes"] == 4 * 16 + 30,
        "{leaks:?}"
    );
}

#[test]
fn failing_calls_are_told_apart() {
    let a = accounts();
    let failed = a.row("select count(*) n from calls('check') where returned = '-1'");
    assert_eq!(failed["n"], a.refused);
}
