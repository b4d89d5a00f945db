//! The index beside a trace, and what happens to one that does not fit.

use hindsight_lab::{Scene, hex};
use hindsight_timeline::{
    Cancel, Dense, Error, Ground, INDEX_CONSTANT, Options, ThreadId, Timeline, index_path,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn open(trace: &Path) -> Timeline {
    crate::open(trace, 3000)
}

/// The questions for each index: the last writer of a stack slot, and memory. Why a byte is known is left out: that
/// depends on what the index has.
pub fn answer(t: &Timeline) -> String {
    let mut c = t.cursor().unwrap();
    let end = t.threads().unwrap()[0].to;
    let mut out = String::new();
    for part in [2, 3, 5] {
        c.seek_count(ThreadId(t.trace().threads()[0]), end / part)
            .unwrap();
        let rsp = c.registers().unwrap().gpr[4];
        let w = c.last_write(rsp, 8).unwrap();
        let mut m = c.memory(rsp, 64).unwrap();
        for b in m.bytes.iter_mut().flatten() {
            b.ground = Ground::Read;
        }
        out += &format!("{w:?} {m:?}\n");
    }
    // Nobody writes to code. To know that, one needs the index of everything before.
    let pc = c.registers().unwrap().rip;
    c.seek_count(ThreadId(t.trace().threads()[0]), end).unwrap();
    assert!(c.last_write(pc, 1).unwrap().is_none());
    out
}

#[test]
fn cut_foreign_stale_and_damaged_ones_are_not_used_and_made_anew() {
    let s = Scene::new();
    let program = s.compile("travel.c", &["-O2", "-static"]);
    let traces = ["a.hst", "b.hst"].map(|n| s.path(n));
    for (t, rounds) in traces.iter().zip(["20", "21"]) {
        let run = s.run(&mut s.recording(t, &[program.as_os_str(), rounds.as_ref()]));
        assert!(run.status.success(), "{}", run.messages());
    }
    let want = answer(&open(&traces[0]));
    let args = [
        "index".as_ref(),
        "--interval".as_ref(),
        "3000".as_ref(),
        traces[0].as_os_str(),
    ];
    let index = index_path(&traces[0]);
    let make = || {
        let done = s.run(&mut s.hindsight(&args));
        assert!(done.status.success(), "{}", done.messages());
        done.messages()
    };
    assert_eq!(make(), "");
    let good = fs::read(&index).unwrap();
    assert!(good.len() as u64 <= 2 * fs::metadata(&traces[0]).unwrap().len() + INDEX_CONSTANT);
    let t = open(&traces[0]);
    assert_eq!(
        (t.index_status().present, t.index_status().problem),
        (1, None)
    );
    assert_eq!(answer(&t), want);

    let mut foreign = open(&traces[1]).trace().identity().to_le_bytes().to_vec();
    foreign = [&good[..8], &foreign, &good[24..]].concat();
    let mut header = good.clone();
    header[9] ^= 1;
    let mut version = good.clone();
    version[7] += 1;
    for (bad, what) in [
        (good[..good.len() - 1].to_vec(), "cut"),
        (good[..7].to_vec(), "cut"),
        (foreign, "damaged"),
        (header, "damaged"),
        (version, "version"),
    ] {
        fs::write(&index, &bad).unwrap();
        let t = open(&traces[0]);
        assert_eq!(answer(&t), want, "{what}");
        let problem = t.index_status().problem.unwrap();
        assert!(problem.contains(what), "{problem}, not {what}");
        make();
        let t = open(&traces[0]);
        assert_eq!(
            (t.index_status().present, t.index_status().problem),
            (1, None),
            "{what}"
        );
        assert_eq!(answer(&t), want);
    }
    // Damages a byte of what is read only when it is needed. It is found then, or when the index is made again.
    const PLACES: usize = 24;
    let mut found = 0;
    for place in 1..PLACES {
        let mut bad = good.clone();
        bad[good.len() / PLACES * place] ^= 1;
        fs::write(&index, &bad).unwrap();
        let t = open(&traces[0]);
        assert_eq!(answer(&t), want, "place {place}");
        if let Some(problem) = t.index_status().problem {
            assert!(problem.contains("damaged"), "{problem}");
            assert_eq!(t.index_status().present, 0);
            found += 1;
        }
        drop(t);
        make();
        let t = open(&traces[0]);
        assert!(t.index_status().problem.is_none() && answer(&t) == want);
    }
    assert!(found > 0, "no damage was in what was read");
    // An undamaged index of another recording.
    fs::remove_file(&index).unwrap();
    make();
    fs::rename(&index, index_path(&traces[1])).unwrap();
    let other = open(&traces[1]);
    assert_eq!(other.index_status().present, 0);
    assert!(
        other
            .index_status()
            .problem
            .unwrap()
            .contains("another recording")
    );
    // Another file with this name is not overwritten.
    fs::write(&index, "something of the user's").unwrap();
    let done = s.run(&mut s.hindsight(&args));
    assert_eq!(done.status.code(), Some(2));
    assert!(
        done.messages().contains("not replaced"),
        "{}",
        done.messages()
    );
    assert_eq!(fs::read(&index).unwrap(), b"something of the user's");
}

#[test]
fn the_command_line_answers() {
    let s = Scene::new();
    let program = s.compile("travel.c", &["-O2", "-static"]);
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), "5".as_ref()]));
    assert!(run.status.success(), "{}", run.messages());
    let file = trace.to_str().unwrap();
    let json = |args: &[&str]| -> serde_json::Value {
        let done = s.run(&mut s.hindsight(args));
        assert!(done.status.success(), "{args:?}: {}", done.messages());
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let calls = json(&["events", file, "--json", "--syscall", "write"]);
    assert_eq!(calls.as_array().unwrap().len(), 1, "{calls}");
    let (position, args) = (calls[0]["position"].as_str().unwrap(), &calls[0]["args"]);
    let (address, len) = (hex(&args[1]).unwrap(), hex(&args[2]).unwrap());
    let (address, len) = (address.to_string(), len.to_string());
    // What the program is about to write to its standard output.
    let memory = json(&["mem", file, position, &address, &len, "--json"]);
    let bytes: Vec<u8> = memory["bytes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b.as_u64().unwrap() as u8)
        .collect();
    assert_eq!(String::from_utf8_lossy(&bytes), run.text());
    assert_eq!(memory["grounds"][0]["ground"], "written");
    let writes = json(&[
        "writes", file, &address, &len, "--json", "--before", position,
    ]);
    assert!(!writes.as_array().unwrap().is_empty());
    // The last write put the newline there.
    let value = writes[0]["value"].as_array().unwrap();
    assert_eq!(value.len(), bytes.len().min(16));
    let text = s
        .run(&mut s.hindsight(&["mem", file, "begin", "0x1000", "4"]))
        .text();
    assert!(
        text.contains("?? ?? ?? ??") && text.contains("not known"),
        "{text}"
    );
    for bad in [
        &["mem", file, "1", "0", "4"][..],
        &["mem", file, "FFFFFF:0", "0", "4"],
        &["mem", file, "begin", "zero", "4"],
        &["events", file, "--syscall", "nosuchcall"],
        &["index", "/nonexistent/file"],
    ] {
        let done = s.run(&mut s.hindsight(bad));
        assert_eq!(done.status.code(), Some(2), "{bad:?}: {}", done.messages());
    }
}

#[test]
fn what_needs_an_index_is_cancelled_while_it_is_made() {
    let s = Scene::new();
    let source = s.path("long.c");
    let text =
        "volatile long n; int main(void) { for (long i = 0; i < 60000000; i++) n += i; return 0; }";
    fs::write(&source, text).unwrap();
    let program = s.path("long");
    let mut gcc = std::process::Command::new("gcc");
    gcc.arg("-O0").arg(&source).arg("-o").arg(&program);
    assert!(gcc.status().unwrap().success());
    let trace = s.record(&[&program]).1;
    let t = Timeline::open(&trace, Options::default()).unwrap();
    let all = t.threads().unwrap()[0].to;
    // It is cancelled from the first report on.
    let cancel = Cancel::new();
    let played = Arc::new(AtomicU64::new(0));
    t.tell_progress({
        let (cancel, played) = (cancel.clone(), played.clone());
        move |n| {
            if let Some(n) = n {
                cancel.cancel();
                played.store(n, Relaxed);
            }
        }
    });
    let mut c = t.cursor().unwrap();
    let (begin, end) = t.range().unwrap();
    let answer = c.cancellable(&cancel, |c| c.seek(end));
    assert!(matches!(answer, Err(Error::Cancelled)), "{answer:?}");
    assert_eq!(c.position().unwrap(), begin);
    let played = played.load(Relaxed);
    assert!(0 < played && played < all / 2, "{played} of {all}");
    // It goes on as if nothing had happened.
    let rip = c.registers().unwrap().rip;
    c.seek(end).unwrap();
    c.seek(begin).unwrap();
    assert_eq!(c.registers().unwrap().rip, rip);
    // A flag that is set before ends a search. The cursor stays.
    c.seek(end).unwrap();
    let rsp = c.registers().unwrap().gpr[4];
    let answer = c.cancellable(&cancel, |c| c.last_write(rsp, 8));
    assert!(matches!(answer, Err(Error::Cancelled)), "{answer:?}");
    assert_eq!(c.position().unwrap(), end);
}

#[test]
fn a_range_of_interest_gets_its_frames_denser() {
    let s = Scene::new();
    let program = s.compile("travel.c", &["-O2", "-static"]);
    let trace = s.path("t.hst");
    let run = s.run(&mut s.recording(&trace, &[program.as_os_str(), "400".as_ref()]));
    assert!(run.status.success(), "{}", run.messages());
    let file = trace.to_str().unwrap();
    let index = |more: &[&str]| {
        let args = [&["index", file, "--json"], more].concat();
        let done = s.run(&mut s.hindsight(&args));
        assert!(done.status.success(), "{}", done.messages());
        serde_json::from_slice::<serde_json::Value>(&done.stdout).unwrap()
    };
    index(&[]);
    let coarse = Timeline::open(&trace, Options::default()).unwrap();
    let want = answer(&coarse);
    let before = coarse.index_status().bytes;
    let dense = index(&["--range", "40%..60%", "--interval", "2000"]);
    assert_eq!(dense["built"], 1, "{dense}");
    assert!(dense["bytes"].as_u64().unwrap() > before, "{dense}");
    // It is as dense as requested, and it is there when the recording is opened again.
    let again = index(&["--range", "45%..55%", "--interval", "2000"]);
    assert_eq!(again["built"], 0, "{again}");
    let t = Timeline::open(&trace, Options::default()).unwrap();
    assert_eq!(answer(&t), want);
    // Within the same session. What was found before is found again.
    let (from, to) = (
        t.find("10%".parse().unwrap(), None),
        t.find("20%".parse().unwrap(), None),
    );
    let mut c = t.cursor().unwrap();
    let (from, to) = (from.unwrap(), to.unwrap());
    c.seek(from).unwrap();
    let made = t.interest(
        Dense {
            from,
            until: to,
            interval: 1500,
        },
        &|_, _| {},
        &Cancel::new(),
    );
    assert_eq!(made.unwrap(), 1);
    // A cursor that existed before uses it, too.
    c.seek(to).unwrap();
    assert_eq!(answer(&t), want);
    let mut d = coarse.cursor().unwrap();
    let thread = ThreadId(t.trace().threads()[0]);
    let end = t.threads().unwrap()[0].to;
    for n in 0..40 {
        let at = end / 41 * n;
        c.seek_count(thread, at).unwrap();
        d.seek_count(thread, at).unwrap();
        assert_eq!(c.registers().unwrap(), d.registers().unwrap());
        let rsp = c.registers().unwrap().gpr[4];
        // Whether a byte was last read or written depends on the intervals.
        let [a, b] = [&mut c, &mut d].map(|c| {
            let bytes = c.memory(rsp, 256).unwrap().bytes;
            Vec::from_iter(bytes.iter().map(|b| b.as_ref().map(|k| k.value)))
        });
        assert_eq!(a, b);
    }
    let few = s.run(&mut s.hindsight(&["index", file, "--range", "49%..50%", "--interval", "1"]));
    assert!(
        few.status.success() && few.messages().contains("every 1024 instructions"),
        "{}",
        few.messages()
    );
    for bad in ["40%", "40%..", "x..y", "50%..10%", "end..begin"] {
        let done = s.run(&mut s.hindsight(&["index", file, "--range", bad]));
        assert_eq!(done.status.code(), Some(2), "{bad}: {}", done.messages());
    }
}

#[test]
fn a_cut_recording_is_indexed_by_several_processors() {
    let s = Scene::new();
    let source = s.path("fed.c");
    // The bytes that are read cannot be compressed, so the stream has several chunks.
    let text = r#"#include <unistd.h>
#include <fcntl.h>
static unsigned char data[1 << 16]; volatile long sum;
static void add(int n) { for (int i = 0; i < n; i++) sum += data[i]; }
int main(void) {
    int fd = open("/dev/urandom", O_RDONLY);
    for (int i = 0; i < 80; i++) { if (read(fd, data, sizeof data) != sizeof data) return 1; add(1000 + i); }
    return 0;
}"#;
    fs::write(&source, text).unwrap();
    let program = s.path("fed");
    let mut gcc = std::process::Command::new("gcc");
    gcc.arg("-O1").arg(&source).arg("-o").arg(&program);
    assert!(gcc.status().unwrap().success());
    let trace = s.record(&[&program]).1;
    let whole = fs::read(&trace).unwrap();
    let end = crate::open(&trace, 0).threads().unwrap()[0].to;
    let mut ends = Vec::new();
    for part in [5, 7, 9] {
        fs::write(&trace, &whole[..whole.len() * part / 10]).unwrap();
        let [one, several] = [1, 4].map(|jobs| {
            let options = Options {
                interval: 3000,
                jobs,
                unsaved: true,
                ..Options::default()
            };
            Timeline::open(&trace, options).unwrap()
        });
        let cut = one.threads().unwrap()[0].to;
        assert!(
            several.threads().unwrap()[0].to == cut && cut < end,
            "{cut} {end}"
        );
        assert_eq!(answer(&several), answer(&one));
        let (mut a, mut b) = (one.cursor().unwrap(), several.cursor().unwrap());
        let thread = ThreadId(one.trace().threads()[0]);
        for n in (0..=30).rev() {
            for c in [&mut a, &mut b] {
                c.seek_count(thread, cut / 30 * n).unwrap();
            }
            assert_eq!(a.count(), b.count());
            assert_eq!(a.registers().unwrap(), b.registers().unwrap());
            let rsp = a.registers().unwrap().gpr[4];
            assert_eq!(a.memory(rsp, 64).unwrap(), b.memory(rsp, 64).unwrap());
        }
        ends.push(cut);
    }
    assert!(ends[0] < ends[2], "{ends:?}");
}
