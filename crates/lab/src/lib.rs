//! Compiles, runs, records and verifies programs, all with a time limit.

mod fresh;
pub mod live;
pub mod planted;
mod share;

pub use share::share;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The folder with the programs that tests compile: in C, C++ and Rust.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The command `hindsight`, as it was built beside this test. `cargo test --workspace` builds it, and so do
/// `cargo test -p hindsight-cli` and `cargo build -p hindsight-cli`.
///
/// # Panics
/// If it is not there, or was built before a source of it was changed.
pub fn hindsight() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let command = folders().map(|f| f.join("hindsight")).find(|c| c.exists());
        let command =
            command.expect("no `hindsight` is there; build it with: cargo build -p hindsight-cli");
        let newer = fresh::newer_source(&command, fresh::parent_began());
        if let Some(source) = newer {
            panic!(
                "{} is older than {}; build it with: cargo build -p hindsight-cli{}",
                command.display(),
                source.display(),
                if cfg!(debug_assertions) {
                    ""
                } else {
                    " --release"
                }
            );
        }
        command
    })
}

/// Where the command may be.
fn folders() -> impl Iterator<Item = PathBuf> {
    // target/PROFILE/deps/TEST
    let test = std::env::current_exe().unwrap();
    let beside = test.ancestors().nth(2).map(Path::to_path_buf);
    // An example in documentation runs elsewhere. cargo tells it where libraries are: in target/PROFILE/deps.
    let libraries = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let libraries: Vec<PathBuf> = std::env::split_paths(&libraries).collect();
    let profiles = libraries.into_iter().filter(|f| f.ends_with("deps"));
    beside
        .into_iter()
        .chain(profiles.filter_map(|f| f.parent().map(Path::to_path_buf)))
}

/// The longest time that a process may take.
pub const LIMIT: Duration = Duration::from_secs(120);

/// What a process left when it ended.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Done {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn messages(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// A folder for one test: programs, traces, outputs, the store. With `HINDSIGHT_KEEP_FAILED` set, the folder of a
/// failed test stays, and its name is printed.
pub struct Scene {
    dir: TempDir,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("HINDSIGHT_KEEP_FAILED").is_some() {
            eprintln!("kept: {}", self.dir.path().display());
            self.dir.disable_cleanup(true);
        }
    }
}

impl Default for Scene {
    fn default() -> Scene {
        Scene::new()
    }
}

/// A recording of a small program, for the examples in documentation. The file is gone when the scene is.
pub fn example() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let program = scene.compile("hello.c", &["-g", "-O1"]);
    let (done, trace) = scene.record(&[program]);
    assert!(done.status.success(), "{}", done.messages());
    (scene, trace)
}

impl Scene {
    pub fn new() -> Scene {
        Scene {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles `c/NAME`, which is written in Rust; returns the program.
    pub fn compile_rust(&self, name: &str) -> PathBuf {
        let source = programs().join(name);
        let program = self.path(Path::new(name).file_stem().unwrap().to_str().unwrap());
        let status = Command::new("rustc")
            .args(["-O", "-g", "--edition", "2024"])
            .arg(source)
            .arg("-o")
            .arg(&program)
            .status()
            .expect("rustc");
        assert!(status.success(), "cannot compile {name}");
        program
    }

    /// Compiles `c/NAME` with `options`; returns the program.
    pub fn compile(&self, name: &str, options: &[&str]) -> PathBuf {
        let source = programs().join(name);
        let program = self.path(Path::new(name).file_stem().unwrap().to_str().unwrap());
        let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
        let status = Command::new(compiler)
            .args(["-w", "-g"])
            .args(if options.iter().any(|o| o.starts_with("-O")) {
                &[][..]
            } else {
                &["-O2"]
            })
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(options)
            .args(["-lm", "-ldl", "-pthread"])
            .status()
            .expect("a C compiler (scripts/setup installs it)");
        assert!(status.success(), "cannot compile {name}");
        program
    }

    /// A command with this test's store and a fixed environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut c = Command::new(program);
        c.env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("HINDSIGHT_DIR", self.path("store"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        c
    }

    /// `hindsight` with arguments.
    pub fn hindsight<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut c = self.command(hindsight());
        c.args(args);
        c
    }

    /// `hindsight record` of a program into `trace`.
    pub fn recording<S: AsRef<OsStr>>(&self, trace: &Path, argv: &[S]) -> Command {
        let mut c = self.hindsight(&["record", "--quiet", "-o"]);
        c.arg(trace).arg("--").args(argv);
        c
    }

    /// Starts a command in a process group of its own. Its output goes to files.
    pub fn start(&self, command: &mut Command) -> Running {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (stdout, stderr) = (
            self.path(&format!("{n}.out")),
            self.path(&format!("{n}.err")),
        );
        // A background command of a shell ignores Ctrl-C, and so do its children. This one must not.
        let as_in_the_foreground = || {
            // SAFETY: a plain system call that concerns the new process only.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
            Ok(())
        };
        command
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap())
            .process_group(0);
        // SAFETY: `signal` may be called between fork and exec.
        unsafe { command.pre_exec(as_in_the_foreground) };
        let child = command.spawn().unwrap();
        Running {
            child,
            stdout,
            stderr,
            what: format!("{command:?}"),
            ended: false,
        }
    }

    /// Runs a command to its end.
    pub fn run(&self, command: &mut Command) -> Done {
        self.start(command).finish()
    }

    /// Runs a program natively.
    pub fn native<S: AsRef<OsStr>>(&self, argv: &[S]) -> Done {
        self.run(self.command(argv[0].as_ref()).args(&argv[1..]))
    }

    /// Records a program. Returns what it left, and the trace.
    pub fn record<S: AsRef<OsStr>>(&self, argv: &[S]) -> (Done, PathBuf) {
        let trace = self.path("trace.hst");
        let _ = fs::remove_file(&trace);
        (self.run(&mut self.recording(&trace, argv)), trace)
    }

    /// Runs `replay --verify`, with the processor that the variable `HINDSIGHT_PROCESSOR` names, if it is set.
    pub fn verify(&self, trace: &Path) -> Done {
        let mut command = self.hindsight(&["replay", "--verify"]);
        if let Some(processor) = std::env::var_os("HINDSIGHT_PROCESSOR") {
            command.arg("--processor").arg(processor);
        }
        self.run(command.arg(trace))
    }

    /// Fails unless `trace` verifies.
    pub fn must_verify(&self, trace: &Path) {
        let done = self.verify(trace);
        assert_eq!(
            done.status.code(),
            Some(0),
            "replay --verify: {}{}",
            done.text(),
            done.messages()
        );
    }

    /// What `info --json` says.
    pub fn info(&self, trace: &Path) -> serde_json::Value {
        let done = self.run(self.hindsight(&["info", "--json"]).arg(trace));
        assert_eq!(done.status.code(), Some(0), "info: {}", done.messages());
        serde_json::from_slice(&done.stdout).unwrap()
    }

    /// Runs a program natively and recorded. Output, messages and end must be the same, and the recording must verify.
    /// Returns the recorded run.
    pub fn same<S: AsRef<OsStr>>(&self, argv: &[S]) -> Done {
        let native = self.native(argv);
        let (recorded, trace) = self.record(argv);
        assert_eq!(
            recorded.text(),
            native.text(),
            "stdout; messages: {}",
            recorded.messages()
        );
        assert_eq!(recorded.messages(), native.messages());
        assert_eq!(end(recorded.status), end(native.status));
        self.must_verify(&trace);
        recorded
    }
}

/// Exit status, or signal. The core-dump flag is left out: it depends on limits and space.
pub fn end(status: ExitStatus) -> (Option<i32>, Option<i32>) {
    (status.code(), status.signal())
}

/// A process that was started. If this is dropped early, the process and its group are killed.
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    what: String,
    ended: bool,
}

impl Running {
    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    /// Whether it is still running. Its status is not taken from the kernel.
    pub fn is_running(&self) -> bool {
        fs::read_to_string(format!("/proc/{}/stat", self.id()))
            .is_ok_and(|s| !s[s.rfind(')').unwrap()..].starts_with(") Z"))
    }

    /// Its standard input, if that is a pipe.
    pub fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Sends a signal to the process and its whole group, as a terminal does.
    pub fn signal_group(&self, signo: i32) {
        kill(-self.id(), signo);
    }

    /// What it has written so far.
    pub fn so_far(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stdout).unwrap()).into_owned()
    }

    /// The messages that it has written so far.
    pub fn messages(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stderr).unwrap()).into_owned()
    }

    /// Waits for the first whole line of output, and returns it.
    pub fn first_line(&self) -> String {
        let started = Instant::now();
        loop {
            if let Some((line, _)) = self.so_far().split_once('\n') {
                return line.to_owned();
            }
            assert!(
                started.elapsed() < LIMIT,
                "no output from {}: {}",
                self.what,
                self.messages()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the first whole line of messages.
    pub fn first_message(&self) {
        let started = Instant::now();
        while !self.messages().contains('\n') {
            assert!(started.elapsed() < LIMIT, "no message from {}", self.what);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end, and takes its status from the kernel.
    pub fn reap(&mut self) {
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Done {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                started.elapsed() < LIMIT,
                "takes too long: {}: {}",
                self.what,
                self.so_far()
            );
            std::thread::sleep(Duration::from_millis(2));
        };
        self.ended = true;
        Done {
            status,
            stdout: fs::read(&self.stdout).unwrap(),
            stderr: fs::read(&self.stderr).unwrap(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.signal_group(libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal.
pub fn kill(pid: i32, signo: i32) -> bool {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid, signo) == 0 }
}

/// Name and state letter of a process.
fn name_and_state(pid: i32) -> Option<(String, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    Some((name.to_owned(), rest.chars().next()?))
}

/// The state letter of a process, unless it is gone.
pub fn state(pid: i32) -> Option<char> {
    Some(name_and_state(pid)?.1)
}

/// Has process `pid` run only where this thread runs, and only when this thread leaves the processor alone.
pub fn run_behind_this_thread(pid: i32) {
    let idle = libc::sched_param { sched_priority: 0 };
    // SAFETY: a set of processors may be all zeros; the kernel reads the structures, which are as long as it is told.
    let done = unsafe {
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut only);
        [0, pid].map(|who| libc::sched_setaffinity(who, size_of_val(&only), &only)) == [0, 0]
            && libc::sched_setscheduler(pid, libc::SCHED_IDLE, &idle) == 0
    };
    assert!(done);
}

/// The children of process `pid`, with their names.
pub fn children(pid: i32) -> Vec<(i32, String)> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = list.split_whitespace().map(|c| c.parse().unwrap());
    children
        .filter_map(|c| Some((c, name_and_state(c)?.0)))
        .collect()
}

/// The collector of a process that records.
pub fn collector_of(front: i32) -> i32 {
    let started = Instant::now();
    loop {
        // It gets its name a moment after its start.
        let mut found = children(front).into_iter();
        if let Some((pid, _)) = found.find(|(_, name)| name == "collector") {
            return pid;
        }
        assert!(started.elapsed() < LIMIT, "{front} has no collector");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process exists only to see which signals the group of a recording gets.
pub fn is_witness(pid: i32) -> bool {
    name_and_state(pid).is_some_and(|(name, _)| name == "witness")
}

/// Waits until all threads of process `pid` are stopped, or none is. They do not stop at the same time.
pub fn await_stopped(pid: i32, stopped: bool) {
    let is_stopped = |task: fs::DirEntry| {
        let tid = task.file_name().to_str().unwrap().parse().unwrap();
        name_and_state(tid).is_some_and(|(_, state)| state == 'T')
    };
    let are_so = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        tasks.is_ok_and(|mut all| all.all(|t| t.is_ok_and(is_stopped) == stopped))
    };
    let started = Instant::now();
    while !are_so() {
        assert!(
            started.elapsed() < LIMIT,
            "process {pid} is in another state"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until process `pid` is gone or a zombie.
pub fn await_end(pid: i32) {
    let started = Instant::now();
    while fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|s| !s[s.rfind(')').unwrap()..].starts_with(") Z"))
    {
        assert!(started.elapsed() < LIMIT, "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Words as an argument vector.
pub fn words(program: &Path, args: &[&str]) -> Vec<OsString> {
    std::iter::once(program.into())
        .chain(args.iter().map(OsString::from))
        .collect()
}

/// An address or a register, as JSON has it.
pub fn hex(v: &serde_json::Value) -> Option<u64> {
    u64::from_str_radix(v.as_str()?.strip_prefix("0x")?, 16).ok()
}
