//! What the commands print for people, as it is kept in `snapshots`. Each text that changes is shown and can be
//! accepted:
//!
//! ```sh
//! INSTA_UPDATE=always cargo test -p hindsight-cli --test shown
//! git diff crates/cli/tests/shown/snapshots
//! ```

use insta::{Settings, assert_snapshot};
use std::path::Path;
use std::process::{Command, Output};

/// What differs between machines, compilers and runs, and what stands for it. In this order.
const FILTERS: &[(&str, &str)] = &[
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "DATE"),
    (r"[0-9]{2}:[0-9]{2}:[0-9]{2}", "TIME"),
    (r"shown-[0-9]{8}-[0-9]{4}-1", "NAME"),
    // The size of whole files, of what was compressed, of memory.
    (r"[0-9]+(\.[0-9]+)? (B|KiB|MiB|GiB|bit)\b", "SIZE"),
    (r"-?[0-9]+\.[0-9]+ ?s\b", "SECONDS"),
    (r"machine +.*", "machine MACHINE"),
    (r"(?m)^instructions +[0-9]+", "instructions N"),
    (r"\([0-9.]+ without modules", "(SIZE without modules"),
    (r"\b[0-9a-f]{32}\b", "HASH"),
    // Instructions: one line for all of them.
    (
        r"(?m)^ {10}[0-9a-f]{6,16} .*\n( {10}[0-9a-f]{6,16} .*\n)*",
        "          INSTRUCTIONS\n",
    ),
    (r"\b(0x)?[0-9a-f]{12,16}\b", "VALUE"),
    (r"\b0x[4-7][0-9a-f]{5}\b", "ADDRESS"),
    (r"(?m)^[0-9a-f]{8,16}-[0-9a-f]{8,16}\b", "RANGE"),
    // How large a function is.
    (r"\([0-9]+ bytes\) in", "(N bytes) in"),
    // Where something stands in its function.
    (r"\+0x[0-9a-f]+\b", "+OFFSET"),
    (r"\b0:[0-9A-F]+\b", "POSITION"),
    (r"\b(thread|process) +[0-9]{2,}", "$1 ID"),
    // A process id, behind position and thread.
    (
        r"(?m)^(POSITION +[0-9]+ +)[0-9]+( +[0-9]+  | +[0-9]+ [<>])",
        "${1}PID${2}",
    ),
    (
        r"\b[0-9]+ (instructions|events|million|found|made)\b",
        "N $1",
    ),
    (r"(?m)^(NAME +DATE.*status [0-9]+ +)[0-9]+", "${1}N"),
    (r"flags( [A-Z]F| -)+", "flags FLAGS"),
    // Columns are as wide as what stands in them.
    (r" {2,}", "  "),
];

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().into()
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut c = Command::new(env!("CARGO_BIN_EXE_hindsight"));
        c.env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HINDSIGHT_DIR", self.path("store"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("HOME", self.0.path())
            .current_dir(self.0.path());
        c.args(args).output().unwrap()
    }

    /// The command line, what it printed, and how it ended.
    fn text(&self, args: &[&str]) -> String {
        let done = self.run(args);
        let mut text = format!("$ hindsight {}\n", args.join(" "));
        for part in [&done.stdout, &done.stderr] {
            text.push_str(std::str::from_utf8(part).unwrap());
        }
        let status = done.status.code().expect("no signal ends it");
        if status != 0 {
            text.push_str(&format!("[status {status}]\n"));
        }
        let dir = self.0.path().to_str().unwrap();
        text.replace(dir, "DIR")
    }
}

/// Compares with a snapshot.
fn same(name: &str, text: &str, filters: &[(&str, &str)]) {
    let mut settings = Settings::new();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_filters(filters.to_vec());
    settings.bind(|| assert_snapshot!(name, text));
}

#[test]
fn help() {
    let home = Home::new();
    let whole = home.text(&["--help"]);
    let commands = whole.lines().skip_while(|l| *l != "Commands:").skip(1);
    let commands = commands.map_while(|l| l.split_whitespace().next());
    let commands: Vec<&str> = commands.filter(|c| *c != "help").collect();
    assert!(commands.len() > 15, "{commands:?}");
    same("help", &whole, &[]);
    for command in commands {
        let text = home.text(&[command, "--help"]);
        same(&format!("help_{command}"), &text, &[]);
    }
}

#[test]
fn wrong_arguments() {
    let home = Home::new();
    std::fs::write(home.path("no.hst"), "no recording").unwrap();
    let wrong: &[&[&str]] = &[
        &[],
        &["recrod"],
        &["record"],
        &["record", "--regime=fast", "true"],
        &["record", "--ring", "much", "true"],
        &["record", "no-such-program"],
        &["record", "-o", "tcp:nowhere", "/bin/true"],
        &["attach", "me"],
        &["detach", "999999999"],
        &["mark", "999999999", "name"],
        &["info"],
        &["info", "no-such-recording"],
        &["info", "no.hst"],
        &["at", "no.hst", "end"],
        &["rm", "../elsewhere"],
        &["gdbserver", "no.hst"],
        &["completions", "cmd"],
    ];
    let texts: Vec<String> = wrong.iter().map(|args| home.text(args)).collect();
    same("wrong_arguments", &texts.join("\n"), &[]);
}

/// A recording of `shown.c`, in the store.
fn record(home: &Home) -> Output {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shown");
    std::fs::copy(folder.join("shown.c"), home.path("shown.c")).unwrap();
    let flags = [
        "-g",
        "-O0",
        "-static",
        "-nostdlib",
        "-no-pie",
        "-fno-stack-protector",
        "-fcf-protection=none",
        "-fno-omit-frame-pointer",
    ];
    let compiled = Command::new("gcc")
        .args(flags)
        .args(["-o", "shown", "shown.c"])
        .current_dir(home.0.path())
        .status()
        .unwrap();
    assert!(compiled.success());
    home.run(&["record", "./shown"])
}

#[test]
fn a_recording() {
    let home = Home::new();
    let recorded = record(&home);
    assert_eq!(recorded.status.code(), Some(6), "{recorded:?}");
    let said = String::from_utf8(recorded.stderr).unwrap();
    let said = said.replace(home.0.path().to_str().unwrap(), "DIR");
    same("record", &said, FILTERS);
    let name = std::fs::read_dir(home.path("store")).unwrap();
    let name = name.map(|e| e.unwrap().file_name().into_string().unwrap());
    let name = name.filter_map(|n| n.strip_suffix(".hst").map(String::from));
    let name = name.collect::<Vec<_>>().remove(0);

    // The position of the second call of `add`, and where it gave back its value.
    let calls = home.text(&["calls", "add"]);
    let second = calls.lines().nth(2).unwrap();
    let second = second.split_whitespace().next().unwrap();
    let commands: &[(&str, &[&str])] = &[
        ("info", &["info"]),
        ("ls", &["ls"]),
        ("events", &["events"]),
        ("output", &["output"]),
        ("data", &["data"]),
        ("data_hex", &["data", "--hex"]),
        ("audit", &["audit"]),
        ("calls", &["calls", "add"]),
        ("at", &["at", second]),
        ("at_end", &["at", "end"]),
        ("backtrace", &["backtrace", second]),
        ("writes", &["writes", "total"]),
        ("origin", &["origin", "end", "total"]),
        ("mem", &["mem", "end", "last"]),
        ("maps", &["maps", "end", "--address", "last"]),
        ("serve", &["serve"]),
        ("symbol", &["symbol", "@end", "add", "total", "nothing"]),
        ("waits", &["waits", "end"]),
        ("verify", &["replay", "--verify"]),
        ("index", &["index"]),
    ];
    for (snapshot, args) in commands {
        same(snapshot, &home.text(args), FILTERS);
    }
    same("rerun", &home.text(&["rerun", "--quiet", &name]), FILTERS);
    let wrong: &[&[&str]] = &[
        &["at", "nowhere"],
        &["at", "0:FFFFFF"],
        &["at", "--thread", "999999999", "end"],
        &["backtrace", "add"],
        &["mem", "end", "totl"],
        &["mem", "end", "0x10", "8"],
        &["maps", "end", "--address", "0x10"],
        &["symbol", "0x10", "totl", "ad"],
        &["symbol", "ADD", "40x"],
        &["writes", "no_such_name"],
        &["origin", "end", "no_such_name"],
        &["calls", "ad"],
        &["events", "--kind", "rain"],
    ];
    let texts: Vec<String> = wrong.iter().map(|args| home.text(args)).collect();
    same("wrong_questions", &texts.join("\n"), FILTERS);
    same("rm", &home.text(&["rm", &name]), FILTERS);
}
