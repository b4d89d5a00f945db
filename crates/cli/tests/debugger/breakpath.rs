//! Live programs take the fewest stops to a place.

use crate::common::compile;
use hindsight_lab::Scene;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
long cell, other[40]; char text[64];
static void touch(long n) { cell += n; }
static long deep(long n) { return n ? deep(n - 1) + n : cell; }
int main(void) {
    for (long i = 0; i < 30; i++) { touch(i); other[i] = deep(i % 5); }
    memset(text, 'x', sizeof text - 1);
    printf("%ld %ld %s\n", cell, other[7], text);
    for (long i = 0; i < 12; i++) cell ^= i;
    puts("end");
    return 0;
}
"#;

#[test]
fn a_live_program_arrives_in_as_many_stops_as_promised() {
    let s = Scene::new();
    let program = compile(&s, "program", PROGRAM, &[]);
    let (done, trace) = s.record(&[&program]);
    assert_eq!(done.status.code(), Some(0));
    let mut data = 0;
    for place in ["30%", "94%", "95.5%", "97%", "98%"] {
        let way = |option: &str| {
            let done = s.run(s.hindsight(&["breakpath", option]).arg(&trace).arg(place));
            assert_eq!(done.status.code(), Some(0), "{}", done.messages());
            done.stdout
        };
        let route: serde_json::Value = serde_json::from_slice(&way("--json")).unwrap();
        let stops = route["stops"].as_array().unwrap();
        assert!(!stops.is_empty());
        data += stops.iter().filter(|h| h["kind"] == "access").count();
        // Stops as gdb counts them. The one at the start comes on top.
        let script = s.path("way.gdb");
        let mut text =
            b"python\nstops = []\ngdb.events.stop.connect(lambda e: stops.append(e))\nend\n"
                .to_vec();
        text.extend(way("--gdb"));
        text.extend(
            b"python print(\"STOPS %d\" % (len(stops) - 1))\nprintf \"REGISTERS %lx %lx %lx\\n\", $rax, $rbx, $rcx\nx/i $pc\n",
        );
        std::fs::write(&script, text).unwrap();
        let live = s.run(
            s.command("gdb")
                .args(["-nx", "-batch", "-iex", "set debuginfod enabled off", "-x"])
                .arg(&script)
                .arg("--args")
                .arg(&program),
        );
        let out = live.text() + &live.messages();
        assert!(
            out.contains(&format!("STOPS {}\n", stops.len())),
            "{place}: {out}"
        );
        // It is the right place if the instruction and the small numbers in registers are the same.
        let at = s.run(s.hindsight(&["at", "--json"]).arg(&trace).arg(place));
        let at: serde_json::Value = serde_json::from_slice(&at.stdout).unwrap();
        assert_eq!(at["position"], route["position"]);
        let pc = u64::from_str_radix(
            at["registers"]["rip"]
                .as_str()
                .unwrap()
                .trim_start_matches("0x"),
            16,
        );
        assert_eq!(stops.last().unwrap()["pc"], format!("{:#x}", pc.unwrap()));
        let line = out.lines().find(|l| l.starts_with("REGISTERS")).unwrap();
        for (live, name) in line.split(' ').skip(1).zip(["rax", "rbx", "rcx"]) {
            let recorded = at["registers"][name]
                .as_str()
                .unwrap()
                .trim_start_matches("0x");
            let small = |n: &str| u64::from_str_radix(n, 16).unwrap() < 1 << 32;
            if small(recorded) || small(live) {
                assert_eq!(live, recorded, "{name} at {place}: {out}");
            }
        }
    }
    println!("{data} watchpoints");
}

#[test]
fn says_what_it_cannot_do() {
    let s = Scene::new();
    let ask = |text: &str, args: &[&str]| {
        let program = compile(&s, "program", text, &[]);
        let (_, trace) = s.record(&[&program]);
        let done = s.run(s.hindsight(&["breakpath"]).arg(&trace).args(args));
        assert_eq!(done.status.code(), Some(2), "{}", done.text());
        done.messages()
    };
    let plain = "int main(void) { return 0; }";
    assert!(
        ask(plain, &["99%", "--candidates", "no-such"])
            .contains("--candidates no-such: no such file")
    );
    assert!(ask(plain, &["99%", "--yes"]).contains("--run"));
    assert!(ask(plain, &["99%", "--gdb", "--lldb"]).contains("--lldb"));
    // Nobody can be asked.
    assert!(ask(plain, &["99%", "--run"]).contains("--yes does it"));
    assert!(ask(plain, &["FFFFFFFF:0"]).contains("no position"));
    let signal = "#include <signal.h>\nvoid on(int n) {}\nint main(void) { signal(SIGUSR1, on); raise(SIGUSR1); return 0; }";
    assert!(ask(signal, &["end"]).contains("a signal arrives at"));
    let thread = "#include <pthread.h>\nvoid *f(void *p) { return p; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); return 0; }";
    assert!(ask(thread, &["end"]).contains("other threads"));
}
