//! Code that is generated or changed at run time.

use hindsight_lab::{Scene, words};

#[test]
fn generated_and_patched_code() {
    let scene = Scene::new();
    for options in [&["-O2"][..], &["-O0", "-static"]] {
        let program = scene.compile("jit.c", options);
        let done = scene.same(&words(&program, &[]));
        assert_eq!(done.text().lines().last(), Some("9965131"));
    }
}

/// Code that needs flags replaces code that needs none. An indirect branch leads there.
#[test]
fn flags_that_changed_code_reads() {
    let scene = Scene::new();
    let program = scene.compile("changing_flags.c", &["-O1"]);
    let argv = words(&program, &[]);
    let done = scene.same(&argv);
    assert!(done.text().contains("111"));
    same_with_few_cells(&scene, &argv);
    let trace = scene.path("checked.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "--regime=checked", "-o"]);
    let checked = scene.run(command.arg(&trace).arg("--").args(&argv));
    assert_eq!(checked.text(), done.text(), "{}", checked.messages());
    scene.must_verify(&trace);
}

/// Flags before an indirect branch: the checked regime keeps them elsewhere. Handlers of faults and of timers must see
/// them, and so must the target.
#[test]
fn flags_before_indirect_branches() {
    let scene = Scene::new();
    let program = scene.compile("kept_flags.c", &["-O1", "-mno-red-zone"]);
    let argv = words(&program, &[]);
    let native = scene.native(&argv);
    assert_eq!(native.text().lines().last(), Some("0"));
    let trace = scene.path("checked.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "--regime=checked", "-o"]);
    let done = scene.run(command.arg(&trace).arg("--").args(&argv));
    assert_eq!(done.text(), native.text(), "{}", done.messages());
    scene.must_verify(&trace);
}

#[test]
fn code_that_changes_under_threads_and_processes() {
    let scene = Scene::new();
    let options = ["-O1", "-pthread", "-Wl,-z,execstack"];
    let program = scene.compile("patching.c", &options);
    let done = scene.same(&words(&program, &[]));
    assert_eq!(done.text().lines().count(), 16);
}

/// Replay needs memory for what changes, not for the pages in which it lies.
#[test]
fn functions_that_are_written_again_and_again() {
    let scene = Scene::new();
    let program = scene.compile("rewritten.c", &["-O1"]);
    scene.same(&words(&program, &["10"]));
}

/// Two threads execute more code than one chunk of the code cache holds: the generation goes on in another one, and blocks
/// of both are linked. Then all of it is replaced, so that most blocks are dead: a generation begins in place of a third
/// chunk. What one thread has translated serves the other one.
#[test]
fn code_of_more_than_one_chunk() {
    let scene = Scene::new();
    let program = scene.compile("large_code.c", &["-O1", "-pthread"]);
    let argv = words(&program, &[]);
    let native = scene.native(&argv);
    let trace = scene.path("large.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "-o"]);
    command
        .arg(&trace)
        .arg("--")
        .args(&argv)
        .env("HINDSIGHT_LOG", "code=info")
        .env("HINDSIGHT_LOG_FILE", "log");
    let done = scene.run(&mut command);
    assert_eq!(done.text(), native.text(), "{}", done.messages());
    scene.must_verify(&trace);
    let log = std::fs::read_to_string(scene.path("log")).unwrap();
    let (one, more) = log
        .split_once(" generation 3 of code begins")
        .unwrap_or_else(|| panic!("{log}"));
    let first: Vec<&str> = one.matches(" of code goes on ").collect();
    assert_eq!(first.len(), 1, "{log}");
    // Two threads that translate the same block at the same time leave one of both dead, and they meet a few times.
    let dead = one
        .split(" blocks, ")
        .nth(1)
        .expect("goes on behind blocks");
    let dead: u32 = dead.split(' ').next().unwrap().parse().unwrap();
    assert!(dead < 100, "{log}");
    // Two more rounds: no round is translated more than once, so none fills more than two chunks.
    let generations = more.matches(" of code begins").count();
    assert!(generations <= 2, "{log}");
}

/// No memory of a recorded process can be both written and executed, even when threads and children have made or
/// changed translations of their own.
#[test]
fn memory_is_never_written_where_it_runs() {
    const SCRIPT: &str = "
import os, sys, threading
def work(n):
    return sum(len(str(eval('%d+i*%d' % (n, i)))) for i in range(200))
def child(n):
    print(os.getpid(), work(n), flush=True)
    os.read(0, 1)
    os._exit(0)
threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
[t.start() for t in threads]
for n in range(4):
    work(n)
    if os.fork() == 0:
        if n % 2 and os.fork() == 0:
            child(n)
        child(n)
[t.join() for t in threads]
child(9)";
    let scene = Scene::new();
    let trace = scene.path("rights.hst");
    let mut command = scene.recording(&trace, &["/usr/bin/python3", "-c", SCRIPT]);
    let mut running = scene.start(command.stdin(std::process::Stdio::piped()));
    let input = running.input();
    let shown = || {
        running
            .so_far()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    while shown().len() < 7 && running.is_running() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let lines = shown();
    assert_eq!(lines.len(), 7, "{}", running.messages());
    let mut runs = 0;
    for pid in lines.iter().map(|l| l.split(' ').next().unwrap()) {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let rights = maps.lines().map(|l| l.split(' ').nth(1).unwrap());
        for rights in rights {
            assert!(!rights.contains("wx"), "{maps}");
            runs += (rights == "r-xs") as usize;
        }
    }
    assert!(runs >= lines.len(), "{runs}");
    drop(input);
    let done = running.finish();
    assert_eq!(done.status.code(), Some(0), "{}", done.messages());
    scene.must_verify(&trace);
}

/// Other code at the same addresses: libraries, replaced and moved pages, two views of the same page.
#[test]
fn code_that_comes_and_goes() {
    let scene = Scene::new();
    let library = |factor: &str| {
        let made = scene.compile("answers.c", &["-shared", "-fPIC", factor]);
        let to = scene.path(&format!("lib{factor}.so"));
        std::fs::rename(made, &to).unwrap();
        to.into_os_string().into_string().unwrap()
    };
    let (one, other) = (library("-DFACTOR=3"), library("-DFACTOR=500"));
    let program = scene.compile("reloading.c", &[]);
    let argv = words(&program, &[&one, &other]);
    let done = scene.same(&argv);
    let again = "100 of 100 at the same address: 1";
    assert_eq!(done.text().matches(again).count(), 2, "{}", done.text());
    same_with_few_cells(&scene, &argv);
}

const TRACES: &str = "local t, s = {}, 0
for i = 1, 20000 do t[i] = (i * 7919) % 10007 end
table.sort(t) for i = 1, #t do s = s + t[i] * i end
for k = 1, 30 do
  local g = loadstring('return function(x) return x * ' .. k .. ' + 1 end')()
  for i = 1, 500 do s = s + g(i) end
end
print(s)";

/// The compilers of PCRE and of LuaJIT.
#[test]
fn compilers_within_programs() {
    let scene = Scene::new();
    let text: String = (1..8000)
        .map(|i| i.to_string().replace('7', "seven ") + "\n")
        .collect();
    std::fs::write(scene.path("text"), text).unwrap();
    let pattern = r"(\d)\1.*?seven (?=\d)";
    scene.same(&["grep", "-c", "-P", pattern, "text"]);
    scene.same(&["git", "grep", "--no-index", "-c", "-P", pattern, "text"]);
    scene.same(&["luajit", "-e", TRACES]);
}

#[test]
fn code_of_modules_is_stored_once() {
    let scene = Scene::new();
    let script = "for i in 1 2 3 4 5 6 7 8; do /bin/true; /bin/echo $i | /bin/cat; done";
    let (done, trace) = scene.record(&["/bin/sh", "-c", script]);
    assert_eq!(done.text(), "1\n2\n3\n4\n5\n6\n7\n8\n");
    scene.must_verify(&trace);
    let info = scene.info(&trace);
    // Each of the two dozen images runs more than 100 KiB of the dynamic linker and the C library.
    let images = info["images"].as_array().unwrap().len();
    assert!(images >= 24, "{images} images");
    let rest = std::fs::metadata(&trace).unwrap().len() - info["module_bytes"].as_u64().unwrap();
    assert!(
        rest < images as u64 * 60_000,
        "{rest} bytes of {images} images"
    );
}

/// Runs `argv` natively and recorded with the smallest predictor, and compares.
fn same_with_few_cells(scene: &Scene, argv: &[std::ffi::OsString]) {
    let trace = scene.path("small.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "--predictor=cache:4k", "-o"]);
    let done = scene.run(command.arg(&trace).arg("--").args(argv));
    let native = scene.native(argv);
    assert_eq!(done.text(), native.text(), "{}", done.messages());
    scene.must_verify(&trace);
}

#[test]
fn rare_instructions() {
    let scene = Scene::new();
    let program = scene.compile("rare.c", &[]);
    scene.same(&words(&program, &[]));
    same_with_few_cells(&scene, &words(&program, &["flat"]));
}

/// Threads that share memory, code that is compiled because it runs often, and WebAssembly.
const WORKERS: &str = r#"
const { Worker } = require("worker_threads");
const shared = new Int32Array(new SharedArrayBuffer(8));
const work = `const { workerData: a } = require("worker_threads");
    let s = 0;
    for (let k = 0; k < 20000; k++) { Atomics.add(a, 0, 1); s = (s * 31 + k) | 0; }
    Atomics.xor(a, 1, s);`;
let left = 3;
for (let i = 0; i < 3; i++)
    new Worker(work, { eval: true, workerData: shared }).on("exit", () => --left || console.log(...shared));
const add = [0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7, 1, 3, 97, 100, 100,
    0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11];
WebAssembly.instantiate(new Uint8Array(add)).then((r) => {
    let s = 0;
    for (let i = 0; i < 300000; i++) s = r.instance.exports.add(s, i);
    console.log(s, "banana".repeat(99).replace(/(an)+/g, "-").length);
});
"#;

const POOL: &str = r#"
import java.util.*; import java.util.concurrent.*;
public class Pool { public static void main(String[] a) throws Exception {
    var pool = Executors.newFixedThreadPool(3);
    var all = new ArrayList<Future<Long>>();
    for (int i = 0; i < 12; i++) { final int k = i; all.add(pool.submit(() -> {
        long s = 0; for (int j = 0; j < 100000; j++) s += (j * k) % 7; return s; })); }
    long sum = 0; for (var f : all) sum += f.get();
    pool.shutdown();
    System.out.println(sum);
    try { Object o = null; o.hashCode(); } catch (NullPointerException e) { System.out.println("null"); }
} }
"#;

#[test]
fn runtimes_with_threads() {
    let scene = Scene::new();
    let done = scene.same(&["node", "-e", WORKERS]);
    assert!(done.text().contains("60000 "), "{}", done.text());
    std::fs::write(scene.path("Pool.java"), POOL).unwrap();
    match scene.command("javac").arg("Pool.java").status() {
        Ok(status) => {
            assert!(status.success());
            scene.same(&["java", "-cp", ".", "Pool"]);
        }
        // Java is large, and its package has another name in each release.
        Err(e) => println!("no Java: {e}"),
    }
}

/// The processor that programs are shown has no protection keys, so the kernel gives them none.
#[test]
fn protection_keys_do_not_exist() {
    let scene = Scene::new();
    let (done, trace) = scene.record(&words(&scene.compile("keys.c", &[]), &[]));
    assert_eq!(done.text(), "none: 28\n", "{}", done.messages());
    scene.must_verify(&trace);
}

#[test]
fn bases_of_segments() {
    let scene = Scene::new();
    let program = scene.compile("bases.c", &[]);
    scene.same(&words(&program, &[]));
    same_with_few_cells(&scene, &words(&program, &[]));
}

#[test]
fn gathers_and_scatters() {
    let scene = Scene::new();
    let program = scene.compile("gather.c", &[]);
    scene.same(&words(&program, &[]));
    same_with_few_cells(&scene, &words(&program, &[]));
}

#[test]
fn operands_that_only_prefixes_name() {
    let scene = Scene::new();
    let argv = words(&scene.compile("masked_moves.c", &[]), &[]);
    let done = scene.same(&argv);
    let trace = scene.path("checked.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "--regime=checked", "-o"]);
    let checked = scene.run(command.arg(&trace).arg("--").args(&argv));
    assert_eq!(checked.text(), done.text(), "{}", checked.messages());
    scene.must_verify(&trace);
    same_with_few_cells(&scene, &argv);
}

/// `verr` and `verw`. What they find does not follow from registers and memory.
#[test]
fn selectors_that_are_verified() {
    let scene = Scene::new();
    let argv = words(&scene.compile("selectors.c", &["-pthread"]), &[]);
    let done = scene.same(&argv);
    assert!(done.text().contains("stack"), "{}", done.text());
    let trace = scene.path("checked.hst");
    let mut command = scene.hindsight(&["record", "--quiet", "--regime=checked", "-o"]);
    let checked = scene.run(command.arg(&trace).arg("--").args(&argv));
    assert_eq!(checked.text(), done.text(), "{}", checked.messages());
    scene.must_verify(&trace);
    let mut command = scene.hindsight(&["replay", "--verify", "--processor=both"]);
    let both = scene.run(command.arg(&trace));
    assert_eq!(both.status.code(), Some(0), "{}", both.messages());
    same_with_few_cells(&scene, &argv);
}

/// Transfers by `iret`, `retf`, far jumps and calls. They work as natively while they stay in 64-bit code.
#[test]
fn far_transfers() {
    let scene = Scene::new();
    let program = scene.compile("far.c", &["-no-pie"]);
    let done = scene.same(&words(&program, &[]));
    assert!(done.text().ends_with("gs 0\n"), "{}", done.text());
    let (done, trace) = scene.record(&words(&program, &["32"]));
    let said = done.messages();
    assert!(said.contains("far transfer to 32-bit code"), "{said}");
    assert_eq!(done.status.code(), Some(125));
    scene.must_verify(&trace);
    let (done, trace) = scene.record(&words(&program, &["counter"]));
    assert_eq!(done.text(), "signal 11, code 128, trap 13, error 0\n");
    scene.must_verify(&trace);
}

/// What the kernel says about register sets agrees with `xgetbv`.
#[test]
fn register_sets_that_there_are() {
    let scene = Scene::new();
    let program = scene.compile("components.c", &[]);
    let done = scene.same(&words(&program, &[]));
    assert_eq!(done.text(), "supported 1\ntraced 1\n");
}

/// Windows programs start, if wine is installed.
#[test]
fn wine() {
    let scene = Scene::new();
    if !std::path::Path::new("/usr/lib/wine/wine64").exists() {
        eprintln!("skipped: wine is not installed");
        return;
    }
    let mut record = scene.recording(
        &scene.path("trace.hst"),
        &["/usr/lib/wine/wine64", "--version"],
    );
    let done = scene.run(&mut record);
    assert!(done.text().starts_with("wine-"), "{}", done.messages());
    scene.must_verify(&scene.path("trace.hst"));
}

/// Code after a branch is replaced. The new code needs flags that the old one did not.
#[test]
fn flags_that_only_later_code_takes() {
    let scene = Scene::new();
    let program = scene.compile("reused.c", &[]);
    for regime in ["quiet", "checked"] {
        let native = scene.native(&[&program]);
        let trace = scene.path("trace.hst");
        let mut record = scene.hindsight(&["record", "--quiet", "--regime", regime, "-o"]);
        let done = scene.run(record.arg(&trace).arg("--").arg(&program));
        assert_eq!(done.text(), native.text());
        scene.must_verify(&trace);
    }
}

/// Two threads have a page when it becomes writable and then changes. The second thread comes to the new code without
/// passing through the recorder.
#[test]
fn pages_that_become_writable_under_threads() {
    let scene = Scene::new();
    let program = scene.compile("flipped.c", &["-O1", "-pthread"]);
    let done = scene.same(&words(&program, &[]));
    assert_eq!(done.text(), "625 6 6\n");
}

/// Code in pages that cannot be written changes through files. Code is also moved and replaced.
#[test]
fn code_that_changes_behind_its_mapping() {
    let scene = Scene::new();
    let program = scene.compile("behind.c", &["-O1"]);
    for regime in ["quiet", "checked"] {
        let native = scene.native(&[&program]);
        let trace = scene.path("trace.hst");
        let mut record = scene.hindsight(&["record", "--quiet", "--regime", regime, "-o"]);
        let done = scene.run(record.arg(&trace).arg("--").arg(&program));
        assert_eq!(done.text(), native.text(), "{}", done.messages());
        scene.must_verify(&trace);
    }
}

/// A page of code that the program may not write lies directly before one that it may write. Its blocks do not
/// make the recording of the page go to and fro between its two forms.
#[test]
fn pages_before_writable_ones() {
    let scene = Scene::new();
    let program = scene.compile("neighbours.c", &["-O1"]);
    let argv = words(&program, &[]);
    let native = scene.native(&argv);
    let (recorded, trace) = scene.record(&argv);
    assert_eq!(recorded.text(), native.text(), "{}", recorded.messages());
    scene.must_verify(&trace);
    let info = scene.info(&trace);
    let streams = info["streams"].as_array().unwrap();
    let image = streams.iter().find(|s| s["stream"] == 1).unwrap();
    // The code is in two pages. Each change of form costs one more.
    let bytes = image["raw_bytes"].as_u64().unwrap();
    assert!(bytes < 12 * 4096, "{bytes} bytes");
}
