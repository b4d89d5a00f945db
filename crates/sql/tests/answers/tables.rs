//! Each table and function against what the program did.

use super::ask::*;
use hindsight_lab::{Scene, words};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn calls_are_those_that_the_program_made() {
    let a = accounts();
    let all = a.row(
        "select count(*) n, sum(a0) who, sum(a1) amount, min(instructions) least, count(distinct function) f,
            bool_or(handler) h from calls('pay')",
    );
    assert_eq!(
        (&all["n"], &all["who"], &all["amount"]),
        (&200.into(), &300.into(), &19900.into())
    );
    assert!(all["least"].as_i64().unwrap() > 3 && all["f"] == 1 && all["h"] == false);
    let last = a.row("select * from calls('pay') order by time desc limit 1");
    assert_eq!(last["arguments"], "who=3, amount=199");
    // The balance of the last of four accounts.
    assert_eq!(last["result"], (0..200).filter(|i| i % 4 == 3).sum::<i64>());
    assert_eq!(last["returned"], last["result"].to_string());
    assert!(
        last["caller"].as_str().unwrap().contains("!main+"),
        "{last}"
    );
    let handler = a.row("select * from calls('handler')");
    assert!(handler["handler"] == true && handler["a0"] == 10);
    // By its address too.
    let address = &last["address"];
    let n = a.row(&format!("select count(*) n from calls('{address}')"));
    assert_eq!(n["n"], 200);
}

#[test]
fn writes_are_found_by_replay_and_by_the_index() {
    let a = accounts();
    let at = &a.address;
    let indexed = a.rows(&format!(
        "select position, time, pc, value, function from writes({at}, 8) order by time"
    ));
    assert_eq!(indexed.len(), 200);
    assert_eq!(indexed[199]["value"], a.total);
    assert_eq!(indexed[0]["function"], "pay");
    let replayed = a.rows(&format!(
        "select position, time, pc, value, function from writes where address = {at} order by time"
    ));
    assert_eq!(indexed, replayed);
    let last = a.row(&format!("select * from last_write({at}, 8)"));
    assert_eq!(last["position"], indexed[199]["position"]);
    assert!(
        last["line"].as_str().unwrap().contains("accounts.c:"),
        "{last}"
    );
    let middle = indexed[100]["position"].as_str().unwrap();
    let before = a.row(&format!("select * from last_write({at}, 8, '{middle}')"));
    assert_eq!(before["position"], indexed[99]["position"]);
    // What is read there is what was written before.
    let reads = a.rows(&format!(
        "select value from reads where address = {at} and function = 'pay' order by time"
    ));
    let read: Vec<_> = reads.iter().map(|r| r["value"].as_i64().unwrap()).collect();
    let mut written: Vec<_> = indexed
        .iter()
        .map(|r| r["value"].as_i64().unwrap())
        .collect();
    written.insert(0, 0);
    written.pop();
    assert_eq!(read, written);
    let bytes: i64 = a
        .rows(&format!(
            "select value from memory({at}, 8) order by address desc"
        ))
        .iter()
        .fold(0, |n, r| n << 8 | r["value"].as_i64().unwrap());
    assert_eq!(bytes, a.total);
}

#[test]
fn every_instruction_is_a_row() {
    let a = accounts();
    let n = a.row("select count(*) n, count(distinct time) t from instructions");
    let counted = a.row("select sum(instructions) n from threads");
    assert_eq!(n["n"], counted["n"]);
    assert_eq!(n["t"], counted["n"]);
    let info = a.scene.info(&a.trace);
    assert_eq!(n["n"], info["instructions"], "{info}");
    // Each call of it executes as many instructions.
    let pay = a.row(
        "select count(*) n, min(length) l, count(mnemonic) m from instructions where function = 'pay'",
    );
    let calls = a.row("select sum(instructions) n from calls('pay')");
    assert_eq!(pay["n"], calls["n"]);
    assert_eq!(pay["m"], pay["n"]);
    let branches = a.row(
        "select count(*) n, bool_and(taken) taken from branches where kind = 'call' and target_function = 'pay'",
    );
    assert!(
        branches["n"] == 200 && branches["taken"] == true,
        "{branches}"
    );
    let back = a.row("select count(*) n from branches where kind = 'return' and function = 'pay'");
    assert_eq!(back["n"], 200);
    let text = a.row("select instruction from instructions where mnemonic = 'syscall' limit 1");
    assert_eq!(text["instruction"], "syscall");
}

#[test]
fn what_happened_is_listed() {
    let a = accounts();
    let missing =
        a.row("select * from syscalls where error = 'ENOENT' and arguments like '%no/such/file%'");
    assert!(
        missing["name"] == "access" && missing["result"] == -2,
        "{missing}"
    );
    assert!(missing["arguments"].as_str().unwrap().contains("R_OK"));
    let signal = a.row("select * from signals");
    assert!(
        signal["name"] == "SIGUSR1" && signal["exception"] == false,
        "{signal}"
    );
    let out = a.rows("select fd, text, bytes, length from output order by time");
    assert_eq!(out.len(), 2);
    assert_eq!(out[0]["text"], format!("{} {}\n", a.address, a.total));
    assert!(out[1]["fd"] == 2 && out[1]["text"] == format!("{} refused\n", a.refused));
    let bytes = out[1]["bytes"].as_str().unwrap();
    assert!(bytes.ends_with("20726566757365640a"), "{bytes}");
    let thread = a.row("select * from threads");
    assert!(
        thread["status"] == 3 && thread["signal"].is_null(),
        "{thread}"
    );
    let module = a.row("select * from modules where path like '%/accounts%'");
    assert_eq!(module["process"], 1);
    let process = a.row("select * from processes");
    assert_eq!(process["instructions"], thread["instructions"]);
    let kinds = a.rows("select kind, count(*) n from events group by kind order by kind");
    let calls = a.row("select count(*) n from syscalls");
    let of = |k: &str| kinds.iter().find(|r| r["kind"] == k).map(|r| &r["n"]);
    assert_eq!(of("syscall"), Some(&calls["n"]));
    assert_eq!(of("signal"), Some(&1.into()));
    assert!(a.rows("select * from gaps").is_empty() && a.rows("select * from marks").is_empty());
    let input = a.rows("select file, length from input where file like '%libc.so%'");
    assert!(!input.is_empty());
}

#[test]
fn a_place_can_be_looked_at() {
    let a = accounts();
    let call =
        a.row("select position, time, a0 from calls('pay') order by time limit 1 offset 150");
    let position = call["position"].as_str().unwrap();
    let stack = a.rows(&format!(
        "select frame, function, line from stack('{position}') order by frame"
    ));
    assert!(
        stack[0]["function"] == "pay" && stack[1]["function"] == "main",
        "{stack:?}"
    );
    let variables = a.rows(&format!(
        "select name, number, parameter from variables('{position}')"
    ));
    let who = variables.iter().find(|v| v["name"] == "who").unwrap();
    assert!(
        who["number"] == call["a0"] && who["parameter"] == true,
        "{variables:?}"
    );
    let rdi = a.row(&format!(
        "select value from registers('{position}') where name = 'rdi'"
    ));
    assert_eq!(rdi["value"], call["a0"]);
    let both = a.row(&format!(
        "select time_of('{position}') t, position_of({}) p, time_of('begin') b",
        call["time"]
    ));
    assert!(both["t"] == call["time"] && both["p"] == *position && both["b"] == 0);
}

#[test]
fn times_and_positions_are_the_same_instants() {
    let a = accounts();
    let wrong = a.rows(
        "select position, time from events where time_of(position) <> time
         union all select position, time from instructions where time < 5000 and position_of(time) is null",
    );
    assert!(wrong.is_empty(), "{wrong:?}");
    // They are in the same order.
    let events = a.rows("select position, time from events");
    let parse = |v: &serde_json::Value| {
        let (a, b) = v.as_str().unwrap().split_once(':').unwrap();
        let of = |t| u64::from_str_radix(t, 16).unwrap();
        (of(a), of(b))
    };
    let mut pairs: Vec<_> = events
        .iter()
        .map(|e| (e["time"].as_i64(), parse(&e["position"])))
        .collect();
    assert!(pairs.is_sorted_by_key(|p| p.1));
    pairs.sort();
    assert!(pairs.is_sorted_by_key(|p| p.1));
}

#[test]
fn what_is_not_recorded_has_no_rows() {
    let scene = hindsight_lab::Scene::new();
    let program = scene.compile("accounts.c", &["-g", "-O1"]);
    let trace = scene.path("part.hst");
    let mut command = scene.hindsight(&["record", "--only-module", "accounts", "-o"]);
    command.arg(&trace).arg("--").arg(&program);
    assert_eq!(scene.run(&mut command).status.code(), Some(3));
    let gaps = rows(&scene, &trace, "select * from gaps");
    assert!(!gaps.is_empty());
    let sums = rows(
        &scene,
        &trace,
        "select (select count(*) from instructions) seen,
            (select sum(coalesce(g.instructions, t.end_count - g.count)) from gaps g join threads t on t.thread = g.thread) hidden,
            (select sum(instructions) from threads) whole, (select count(*) from instructions where function = 'pay') pay",
    );
    let n = |name: &str| sums[0][name].as_i64().unwrap();
    assert_eq!(n("seen") + n("hidden"), n("whole"), "{sums:?}");
    assert!(n("pay") > 800 && n("seen") < n("whole"), "{sums:?}");
    let outside = rows(
        &scene,
        &trace,
        "select g.position, i.position from gaps g join instructions i
            on i.thread = g.thread and i.count >= g.count and (g.instructions is null or i.count < g.count + g.instructions)",
    );
    assert!(outside.is_empty(), "{outside:?}");
}

#[test]
fn a_branch_leads_where_the_program_goes() {
    let a = accounts();
    // A return leads behind its call, a conditional branch to one of two places.
    let back = a.rows("select distinct target_function t from branches where kind = 'return' and function = 'pay'");
    assert!(back.len() == 1 && back[0]["t"] == "main", "{back:?}");
    let many = a.rows(
        "select pc, count(distinct target) n from branches where kind = 'conditional' group by pc having count(distinct target) > 2",
    );
    assert!(many.is_empty(), "{many:?}");
    let taken = a.rows(
        "select count(*) n from branches where kind = 'jump' and not taken and target is not null",
    );
    assert_eq!(taken[0]["n"], 0);
}

#[test]
fn tables_and_columns_say_what_they_are() {
    let a = accounts();
    let tables = a.rows("show tables");
    assert!(tables.len() > 20, "{tables:?}");
    for t in &tables {
        let name = t["name"].as_str().unwrap().split('(').next().unwrap();
        let columns = a.rows(&format!("describe {name}"));
        assert!(!columns.is_empty(), "{name}");
        let key = |c: &serde_json::Value| {
            let of_function = c["kind"].as_str().unwrap().ends_with("function");
            (c["name"].to_string(), of_function)
        };
        let names: BTreeSet<_> = columns.iter().map(key).collect();
        assert_eq!(names.len(), columns.len(), "{name}");
        for c in &columns {
            assert!(c["about"].as_str().unwrap().len() > 5, "{name}: {c}");
        }
        if t["kind"] == "table" {
            a.rows(&format!("select * from {name} limit 3"));
        }
    }
    let both = a.rows("describe writes");
    assert!(
        both.iter().any(|c| c["name"] == "kernel") && both.iter().any(|c| c["name"] == "mnemonic")
    );
    let functions = a.rows("show functions");
    assert!(
        functions
            .iter()
            .any(|f| f["name"].as_str().unwrap().starts_with("hex("))
    );
    let values = a.row("select hex(255) h, syscall_name(0) s, signal_name(11) g, error_name(-2) e, error_name(2) n");
    assert_eq!(values["h"], "0xff");
    assert!(
        values["s"] == "read"
            && values["g"] == "SIGSEGV"
            && values["e"] == "ENOENT"
            && values["n"].is_null()
    );
    let names = a.row("select function(address) f, symbol(address) s, source_line(address) l from calls('pay') limit 1");
    assert_eq!(names["f"], "pay");
    assert!(names["s"].as_str().unwrap().ends_with("!pay"), "{names}");
    assert!(
        names["l"].as_str().unwrap().contains("accounts.c:"),
        "{names}"
    );
}

#[test]
fn values_are_those_that_the_program_had() {
    let a = accounts();
    let all = a.rows("select * from values_of('accounts.c:20', 'amount')");
    let numbers: Vec<i64> = all.iter().map(|r| r["number"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    assert!(
        all.iter()
            .all(|r| r["value"].as_str() == Some(&r["number"].to_string()) && r["error"].is_null())
    );
    // A field of an element, before it grows by what is paid in.
    let last = a.row(
        "select value, number from values_of('accounts.c:18', 'accounts[who].balance') order by time desc limit 1",
    );
    let others = (0..199).filter(|i| i % 4 == 3).sum::<i64>();
    assert_eq!(last["number"], others);
    assert_eq!(last["value"], others.to_string());
    // Where a function begins, its parameters are known.
    let who =
        a.row("select sum(number) n, count(*) c, min(position) p from values_of('pay', 'who')");
    assert_eq!((&who["n"], &who["c"]), (&300.into(), &200.into()));
    // What the engine asks for reaches the search.
    let middle = all[100]["time"].as_i64().unwrap();
    let some = a.rows(&format!(
        "select number from values_of('accounts.c:20', 'amount') where time >= {middle} limit 3"
    ));
    let some: Vec<i64> = some.iter().map(|r| r["number"].as_i64().unwrap()).collect();
    assert_eq!(some, [100, 101, 102]);
    let none = a.rows(&format!(
        "select number from values_of('accounts.c:20', 'amount') where time < {}",
        all[0]["time"]
    ));
    assert!(none.is_empty());
    // What is wrong with an expression is said in its row, and what is wrong with the place at once.
    let wrong = a.row("select value, error from values_of('accounts.c:20', 'nobody') limit 1");
    assert!(wrong["value"].is_null() && wrong["error"].as_str().unwrap().contains("nobody"));
    assert!(
        a.wrong("select * from values_of('accounts.d:20', 'who')")
            .contains("no code at")
    );
    assert!(
        a.wrong("select * from values_of('payy', 'who')")
            .contains("pay")
    );
    assert!(
        a.wrong("select * from values_of('pay')")
            .contains("EXPRESSION")
    );
}

#[test]
fn values_of_all_kinds_and_threads() {
    let scene = Scene::new();
    let program = scene.compile("values.c", &["-g", "-O0", "-pthread"]);
    let (done, trace) = scene.record(&words(&program, &[]));
    assert!(done.status.success(), "{}", done.messages());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/programs/values.c");
    let source = fs::read_to_string(Path::new(source)).unwrap();
    let line = 1 + source.lines().position(|l| l.ends_with("// here")).unwrap();
    let all = |expression: &str, condition: &str| {
        let question = format!(
            "select time, thread, value, number, error from values_of('values.c:{line}', '{expression}') {condition}"
        );
        rows(&scene, &trace, &question)
    };
    let first = |expression: &str| all(expression, "limit 1").remove(0);
    for (expression, number) in [
        ("c", Some(-1)),
        ("m", Some(5)),
        ("big", None),
        ("d", None),
        ("p", None),
        ("w", None),
        ("p.b", Some(-1)),
        ("u - 1", Some(-1)),
        ("c + 3", Some(2)),
    ] {
        let row = first(expression);
        assert_eq!(row["number"].as_i64(), number, "{expression}: {row}");
        assert!(row["value"].is_string() && row["error"].is_null(), "{row}");
    }
    assert_eq!(first("big")["value"], "18446744073709551615");
    assert_eq!(first("d")["value"], "1.5");
    assert!(
        first("d + 1")["error"]
            .as_str()
            .unwrap()
            .contains("floating")
    );
    assert!(first("w + 1")["value"].is_null());
    // Both threads, in the order of time, and from any time on.
    let whole = all("w.b", "");
    assert_eq!(whole.len(), 40);
    assert!(
        whole
            .windows(2)
            .all(|w| w[0]["time"].as_i64() < w[1]["time"].as_i64())
    );
    let threads: BTreeSet<i64> = whole
        .iter()
        .map(|r| r["thread"].as_i64().unwrap())
        .collect();
    assert_eq!(threads.len(), 2);
    let borders = rows(&scene, &trace, "select time t from segments order by t");
    let step = (borders.len() / 25).max(1);
    for border in borders.iter().step_by(step) {
        let from = border["t"].as_i64().unwrap();
        let some = all("w.b", &format!("where time >= {from}"));
        let expected = whole.iter().filter(|r| r["time"].as_i64().unwrap() >= from);
        assert!(some.iter().eq(expected), "from {from}");
    }
}
