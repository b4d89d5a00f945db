//! The same program gets its own inputs, and agrees to the end.

use super::rerun;
use hindsight_lab::{Scene, end};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Files that the commands use.
fn prepare(s: &Scene) {
    let numbers: String = (1..5000u64)
        .map(|n| format!("{}\n", n * 7919 % 5003))
        .collect();
    fs::write(s.path("numbers"), &numbers).unwrap();
    fs::write(
        s.path("one.c"),
        "int f(int x) { return x * 2; }\nint main() { return f(3) - 6; }\n",
    )
    .unwrap();
    fs::write(
        s.path("two.json"),
        "{\"a\": [1, 2, {\"b\": \"x\"}], \"c\": null}\n",
    )
    .unwrap();
    fs::write(s.path("sums.py"), SUMS).unwrap();
    fs::write(
        s.path("makefile"),
        "all: made\nmade: numbers\n\tcp numbers made\n\techo done\n",
    )
    .unwrap();
}

const SUMS: &str = "import hashlib, json, os, random, time
print(hashlib.md5(open('numbers', 'rb').read()).hexdigest(), os.getpid(), time.time())
print(random.random(), {'x', 'y', 'z'}, len(os.listdir('/usr')), json.dumps({'a': 1}))
";

/// Commands of packages that `scripts/setup` installs.
const COMMANDS: &[&str] = &[
    "true",
    "cat numbers",
    "sort numbers",
    "sort -R numbers",
    "grep -c 7 numbers",
    "sed s/1/2/g numbers",
    "awk {s+=$1}END{print(s)} numbers",
    "tar cf - numbers one.c",
    "gzip -c numbers",
    "ls -la /usr/bin",
    "find /usr/share/doc -maxdepth 1",
    "date +%N",
    "dd if=numbers of=copy bs=1000",
    "diff one.c two.json",
    "md5sum numbers one.c",
    "head -3 numbers",
    "sleep 0.2",
    "timeout 0.2 sleep 5",
    "make",
    "perl -e print(time>0,join(q(,),map{$_*2}1..10));open(F,q(<numbers));print(scalar(<F>))",
    "env",
    "cmp numbers one.c",
    "python3 sums.py",
    "sqlite3 new.db create\ttable\tt(a);insert\tinto\tt\tvalues(1),(2);select\tsum(a)\tfrom\tt;",
    "openssl dgst -sha256 numbers",
    "jq .a two.json",
    "bc numbers",
    "xz -c numbers",
    "curl -s file:///etc/hostname",
];

/// They make up names of files. These depend on addresses, which are others now, and so does one in twenty times whether one
/// more random number is asked for, or one fewer.
const TEMPORARY: &[&str] = &[
    "sed -i s/1/2/ two.json",
    "gcc -c one.c -o one.o",
    "git init repository",
];

/// Scripts of shells: processes, pipes, signals.
const SCRIPTS: &[&str] = &[
    "ls /usr | wc -l; (exit 3)",
    "for i in 1 2 3; do echo $i | cat; done; echo $$; kill -TERM $$",
    "trap 'echo caught' USR1; kill -USR1 $$; echo end",
    "while read x; do echo got $x; done < numbers | tail -1",
    "sleep 0.1 & wait; echo waited $!",
    "seq 9 | xargs -n2 echo; cat nowhere; date",
];

fn agrees(s: &Scene, argv: &[String]) {
    let (done, trace) = s.record(argv);
    let (again, report) = rerun::<&str>(s, &trace, &[]);
    let all = format!("{argv:?}: {report:#}{}", again.messages());
    assert_eq!(report["agrees"], true, "{all}");
    assert_eq!(report["added"], 0, "{all}");
    assert_eq!(report["answered_here"], 0, "{all}");
    let failed = end(done.status) != (Some(0), None);
    assert_eq!(again.status.code(), Some(failed as i32), "{all}");
    assert_eq!(
        report["verdict"],
        if failed { "same-failure" } else { "no-failure" },
        "{all}"
    );
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|w| w.replace('\t', " ")).collect()
}

#[test]
fn programs_of_the_distribution_agree_to_the_end() {
    let s = Scene::new();
    prepare(&s);
    COMMANDS.iter().for_each(|c| agrees(&s, &words(c)));
}

#[test]
fn names_that_are_made_up_stand_for_the_recorded_ones() {
    let s = Scene::new();
    prepare(&s);
    for command in TEMPORARY.iter().map(|c| words(c)) {
        let (_, trace) = s.record(&command);
        let (done, report) = rerun::<&str>(&s, &trace, &[]);
        let all = format!("{command:?}: {report:#}");
        assert_eq!(report["verdict"], "no-failure", "{all}");
        assert_eq!(done.status.code(), Some(0), "{all}");
        assert!(report["left_out"].as_u64().unwrap() <= 2, "{all}");
        assert_eq!(report["outputs"].as_array().unwrap().len(), 0, "{all}");
        assert!(report["added"].as_u64().unwrap() <= 2, "{all}");
    }
}

#[test]
fn shells_with_their_processes_agree() {
    let s = Scene::new();
    prepare(&s);
    for shell in ["sh", "bash"] {
        for script in SCRIPTS {
            agrees(&s, &[shell.into(), "-c".into(), script.to_string()]);
        }
    }
}

/// What the program reads has changed, or has gone; and nothing that it changes is changed again.
#[test]
fn inputs_come_from_the_recording_and_outputs_go_nowhere() {
    let s = Scene::new();
    prepare(&s);
    let script = "sort numbers > sorted; wc -l < sorted; rm one.c; mkdir made; mv two.json made/; echo x >> sums.py; ls";
    let (done, trace) = s.record(&["sh", "-c", script]);
    for name in ["numbers", "sorted", "made/two.json"] {
        fs::remove_file(s.path(name)).unwrap();
    }
    fs::remove_dir(s.path("made")).unwrap();
    fs::write(s.path("one.c"), "other").unwrap();
    fs::write(s.path("sums.py"), "other").unwrap();
    let before = s.run(s.command("ls").arg("-R")).text();
    let (_, report) = rerun::<&str>(&s, &trace, &[]);
    assert_eq!(report["agrees"], true, "{report:#}");
    let again = s.run(s.hindsight(&["rerun"]).arg(&trace));
    assert_eq!(again.text(), done.text());
    let files = |text: String| -> Vec<String> {
        let own = |l: &&str| ![".out", ".err", ".hsx"].iter().any(|e| l.ends_with(e));
        text.lines().filter(own).map(Into::into).collect()
    };
    assert_eq!(
        files(s.run(s.command("ls").arg("-R")).text()),
        files(before)
    );
    assert_eq!(fs::read(s.path("sums.py")).unwrap(), b"other");
    assert_eq!(fs::read(s.path("one.c")).unwrap(), b"other");
}

/// The recorded path of the program leads from the folder in which it was started.
#[test]
fn a_program_is_found_from_any_folder() {
    let s = Scene::new();
    fs::write(s.path("own.sh"), "#!/bin/sh\necho here\n").unwrap();
    fs::set_permissions(s.path("own.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let (_, trace) = s.record(&["./own.sh"]);
    let mut command = s.hindsight(&["rerun", "--json"]);
    let done = s.run(command.arg(&trace).current_dir("/"));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["agrees"], true, "{report:#}");
}

/// Standard input was a pipe, which came in parts. Waiting takes no time.
#[test]
fn a_pipe_is_read_as_it_came() {
    let s = Scene::new();
    let trace = s.path("trace.hst");
    let mut feed = Command::new("sh")
        .args(["-c", "for i in 1 2 3; do echo line $i; sleep 1; done"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let script = "while read x y; do echo $y $x; done; sleep 2";
    let mut recording = s.recording(&trace, &["sh", "-c", script]);
    recording.stdin(feed.stdout.take().unwrap());
    let done = s.run(&mut recording);
    feed.wait().unwrap();
    assert_eq!(done.text(), "1 line\n2 line\n3 line\n");
    let began = std::time::Instant::now();
    let (_, report) = rerun::<&str>(&s, &trace, &[]);
    assert_eq!(report["agrees"], true, "{report:#}");
    assert!(began.elapsed().as_secs() < 4, "{:?}", began.elapsed());
}

/// A process gets descriptors from another one. They have the numbers that are free here, and stand for the recorded ones.
#[test]
fn descriptors_come_in_messages() {
    let s = Scene::new();
    let program = s.compile("rerun/descriptors.c", &[]);
    fs::write(s.path("file"), "first").unwrap();
    fs::write(s.path("other"), "second").unwrap();
    let program = program.to_str().unwrap();
    let (done, trace) = s.record(&[program]);
    for part in [
        "two: 2 descriptors\n3 first, 1\n",
        "one: 1 descriptors, 0\n3 second\n",
    ] {
        assert!(done.text().contains(part), "{}", done.text());
    }
    fs::write(s.path("file"), "later").unwrap();
    let (_, report) = rerun::<&str>(&s, &trace, &[]);
    assert_eq!(report["agrees"], true, "{report:#}");
    let again = s.run(s.hindsight(&["rerun"]).arg(&trace));
    let lines = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        // Two processes print.
        lines.sort();
        lines
    };
    assert_eq!(lines(again.text()), lines(done.text()));
    // Who sends another file does something else.
    let (_, report) = rerun(&s, &trace, &[program, "other"]);
    assert_eq!(report["agrees"], false, "{report:#}");
    let now = report["divergence"]["now"]["call"].as_str().unwrap();
    assert!(now.starts_with("sendmsg("), "{report:#}");
}

/// A program writes from a file that it has mapped, and does not look at the bytes. It has read them, so they are known.
#[test]
fn what_is_written_from_a_mapped_file_is_known() {
    let s = Scene::new();
    let program = s.compile("rerun/copies.c", &[]);
    let program = program.to_str().unwrap();
    let (done, trace) = s.record(&[program]);
    assert_eq!(done.text(), "line 1\nline 2\n");
    // What is mapped is the recorded file, whatever has become of it.
    for change in [false, true] {
        if change {
            fs::write(s.path("made"), "other\n").unwrap();
        } else {
            fs::remove_file(s.path("made")).unwrap();
        }
        let (_, report) = rerun::<&str>(&s, &trace, &[]);
        assert_eq!(report["agrees"], true, "{report:#}");
        assert_eq!(report["output_unknown"], 0, "{report:#}");
        let notes = report["notes"].to_string();
        assert!(
            notes.contains("14 bytes of the recorded output came from mapped files"),
            "{notes}"
        );
    }
    // If something else is written, nobody knows which of both is right.
    let (_, report) = rerun(&s, &trace, &[program, "elsewhere"]);
    assert_eq!(report["agrees"], false, "{report:#}");
    assert_eq!(report["verdict"], "diverged", "{report:#}");
}

/// Memory lies where it did, so programs that print addresses, or depend on them, agree.
#[test]
fn memory_is_where_it_was() {
    let s = Scene::new();
    let program = s.compile("rerun/addresses.c", &["-pthread"]);
    let program = program.to_str().unwrap();
    let (done, trace) = s.record(&[program]);
    assert_eq!(done.text().lines().count(), 8, "{}", done.text());
    let (_, report) = rerun::<&str>(&s, &trace, &[]);
    assert_eq!(report["agrees"], true, "{report:#}");
    assert_eq!(report["verdict"], "no-failure", "{report:#}");
}

/// What comes besides the bytes of a message is that which the call tells that is made now.
#[test]
fn a_message_may_be_read_by_another_call() {
    let s = Scene::new();
    let program = s.compile("rerun/kinds.c", &[]);
    let program = program.to_str().unwrap();
    for kinds in [
        [&[program][..], &[program, "m"]],
        [&[program, "m"], &[program]],
    ] {
        let (done, trace) = s.record(kinds[0]);
        assert_eq!(done.text(), "4 0 0 0\n");
        let (_, report) = rerun(&s, &trace, kinds[1]);
        assert_eq!(report["verdict"], "no-failure", "{report:#}");
        assert_eq!(report["outputs"].as_array().unwrap().len(), 0, "{report:#}");
    }
}
