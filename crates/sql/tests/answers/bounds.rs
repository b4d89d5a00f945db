//! What conditions let a table leave out makes no difference to the answer.

use super::ask::*;
use hindsight_lab::{Scene, words};
use hindsight_random::Rng;

/// A condition that bounds a column, and that the table understands.
fn condition(rng: &mut Rng, end: i64) -> String {
    let mut time = || rng.below(end as u64 + 20) as i64 - 10;
    let (a, b) = (time(), time());
    let n = rng.below(9);
    match rng.below(9) {
        0 => format!("time < {a}"),
        1 => format!("{a} <= time"),
        2 => format!("time between {} and {}", a.min(b), a.max(b)),
        3 => format!("time in ({a}, {b})"),
        4 => format!("thread = {}", 1 + n % 4),
        5 => format!("process = {}", 1 + n % 4),
        6 => format!("(time > {a} and time <= {b})"),
        7 => format!("(time < {a} or time > {b})"),
        _ => format!("count >= {a}"),
    }
}

#[test]
fn bounds_change_no_answer() {
    let scene = Scene::new();
    let shell = words(
        std::path::Path::new("/bin/sh"),
        &["-c", "echo a; (echo b; /bin/true); echo c | cat"],
    );
    let (done, trace) = scene.record(&shell);
    assert!(done.status.success());
    let end = rows(&scene, &trace, "select time_of('end') t")[0]["t"]
        .as_i64()
        .unwrap();
    let mut rng = Rng(7);
    // Many in one question, since each opens the recording.
    for table in ["events", "syscalls", "segments", "output", "signals"] {
        let mut parts = Vec::new();
        for i in 0..25 {
            let list: Vec<String> = (0..1 + rng.below(3))
                .map(|_| condition(&mut rng, end))
                .collect();
            let condition = list.join(" and ");
            for (kind, condition) in [
                ("with", condition.clone()),
                (
                    "without",
                    format!("(case when {condition} then 1 else 0 end) = 1"),
                ),
            ] {
                parts.push(format!(
                    "select {i} i, '{kind}' kind, count(*) n, sum(time) t, min(position) p from {table} where {condition}"
                ));
            }
        }
        let all = rows(
            &scene,
            &trace,
            &format!("{} order by i, kind", parts.join(" union all ")),
        );
        assert_eq!(all.len(), 50);
        let mut some = 0;
        for pair in all.chunks(2) {
            let of = |i: usize| (&pair[i]["n"], &pair[i]["t"], &pair[i]["p"]);
            assert_eq!(
                of(0),
                of(1),
                "{table}: {:?}",
                parts[2 * pair[0]["i"].as_u64().unwrap() as usize]
            );
            some += (pair[0]["n"] != 0) as u32;
        }
        assert!(some > 5 || table == "signals", "{table}: {some}");
    }
}

/// The same, and which recordings.
fn condition_of_many(rng: &mut Rng, end: i64) -> String {
    let time = condition(rng, end);
    match rng.below(8) {
        0 => "recording = 'a'".into(),
        1 => "recording <> 'a'".into(),
        2 => "recording in ('b', 'fails')".into(),
        3 => format!("(recording = 'a' and {time} or recording like 'f%')"),
        4 => format!("(recording = 'b' or {time})"),
        5 => "time >= time_of('50%', recording)".into(),
        6 => "time < case recording when 'a' then time_of('70%', 'a') else 3000 end".into(),
        _ => time,
    }
}

#[test]
fn bounds_change_no_answer_about_several_recordings() {
    let s = several();
    let recordings = ["a.hst", "b.hst", "fails.hst"];
    let end = s.rows(&["a.hst"], "select time_of('end') t")[0]["t"].as_i64();
    let mut rng = Rng(17);
    for table in ["events", "syscalls", "segments", "output", "calls('pay')"] {
        // Conditions on rows that are numbered reach no table.
        let numbered = format!("(select *, row_number() over () nr from {table})");
        let mut parts = Vec::new();
        for i in 0..25 {
            let list: Vec<String> = (0..1 + rng.below(3))
                .map(|_| condition_of_many(&mut rng, end.unwrap()))
                .collect();
            let condition = list.join(" and ");
            for (kind, of) in [("with", table), ("without", &numbered)] {
                parts.push(format!(
                    "select {i} i, '{kind}' kind, count(*) n, sum(time) t, min(concat(recording, position)) p
                     from {of} where {condition}"
                ));
            }
        }
        let all = s.rows(
            &recordings,
            &format!("{} order by i, kind", parts.join(" union all ")),
        );
        assert_eq!(all.len(), 50);
        let mut some = 0;
        for pair in all.chunks(2) {
            let of = |i: usize| (&pair[i]["n"], &pair[i]["t"], &pair[i]["p"]);
            let which = 2 * pair[0]["i"].as_u64().unwrap() as usize;
            assert_eq!(of(0), of(1), "{table}: {:?}", parts[which]);
            some += (pair[0]["n"] != 0) as u32;
        }
        assert!(some > 5, "{table}: {some}");
    }
}

#[test]
fn instructions_within_bounds_are_those_of_the_whole() {
    let a = accounts();
    let end = a.row("select time_of('end') t")["t"].as_i64().unwrap();
    let mut rng = Rng(11);
    let mut parts = Vec::new();
    for i in 0..12 {
        let from = rng.below(end as u64) as i64;
        let to = from + rng.below(3000) as i64;
        let condition = format!("time >= {from} and time < {to}");
        for table in ["instructions", "writes", "reads", "branches"] {
            for (kind, condition) in [
                ("with", condition.clone()),
                (
                    "without",
                    format!("(case when {condition} then 1 else 0 end) = 1"),
                ),
            ] {
                parts.push(format!(
                    "select {i} i, '{table}' of, '{kind}' kind, count(*) n, sum(time) t, sum(pc % 1000003) p from {table} where {condition}"
                ));
            }
        }
    }
    let all = a.rows(&format!(
        "{} order by i, of, kind",
        parts.join(" union all ")
    ));
    for pair in all.chunks(2) {
        let of = |i: usize| (&pair[i]["of"], &pair[i]["n"], &pair[i]["t"], &pair[i]["p"]);
        assert_eq!(of(0), of(1));
    }
    assert_eq!(all.len(), 96);
}

#[test]
fn a_limit_ends_the_work() {
    let a = accounts();
    let some = a.rows("select * from instructions where time > 1000 limit 10");
    assert_eq!(some.len(), 10);
    let times: Vec<_> = some.iter().map(|r| r["time"].as_i64().unwrap()).collect();
    assert_eq!(times, (1001..1011).collect::<Vec<_>>());
}

#[test]
fn rows_come_in_the_order_that_tables_say() {
    let s = several();
    let threads = s.scene.compile("values.c", &["-g", "-O0", "-pthread"]);
    let trace = s.scene.path("threads.hst");
    let done = s
        .scene
        .run(&mut s.scene.recording(&trace, &words(&threads, &[])));
    assert!(done.status.success(), "{}", done.messages());
    let tables = [
        "segments",
        "gaps",
        "events",
        "syscalls",
        "signals",
        "marks",
        "output",
        "input",
        "instructions",
        "reads",
        "writes",
        "branches",
        "calls('malloc')",
        "values_of('main', '1')",
    ];
    // Nothing is sorted for these: a row that is out of order is behind a later one.
    let part = |by: &str, t: &str| {
        let numbered = format!(
            "select time, lag(time) over ({by} order by time) before from {t} where thread < 100"
        );
        let table = t.replace('\'', "");
        format!(
            "select '{table}' t, count(*) n, sum(case when before > time then 1 else 0 end) wrong from ({numbered})"
        )
    };
    for recordings in [&["threads.hst"][..], &["a.hst", "b.hst", "threads.hst"]] {
        let by = if recordings.len() > 1 {
            "partition by recording"
        } else {
            ""
        };
        let parts: Vec<String> = tables.iter().map(|t| part(by, t)).collect();
        let all = s.rows(recordings, &parts.join(" union all "));
        assert_eq!(all.len(), tables.len());
        for row in &all {
            assert!(row["wrong"] == 0 || row["n"] == 0, "{recordings:?}: {row}");
        }
        let some = all.iter().filter(|r| r["n"].as_u64() > Some(1)).count();
        assert!(some >= 8, "{all:?}");
    }
    let question = part("", "instructions");
    let plan = s.rows(&["threads.hst"], &format!("explain {question}"));
    let plan = plan.iter().map(|p| p.to_string()).collect::<String>();
    assert!(!plan.contains("SortExec"), "{plan}");
}
