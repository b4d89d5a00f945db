//! Runs commands and measures their memory and time.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The most memory that any of these recordings may take, in KiB: the limit, and what is taken until that is noticed.
pub const MOST_KIB: i64 = (1 << 20) + (192 << 10);

/// The time for a command. It does not test that commands are quick, only that they end: the machine may have other
/// work.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a program asks in a session: all that there is to ask.
const ASKS: [&str; 26] = [
    r#""ask":"info""#,
    r#""ask":"processes""#,
    r#""ask":"threads""#,
    r#""ask":"modules""#,
    r#""ask":"range""#,
    r#""ask":"at","at":"end""#,
    r#""ask":"registers","at":"begin","vectors":true"#,
    r#""ask":"memory","address":65536,"length":65536"#,
    r#""ask":"memory","address":"$rsp","candidates":true"#,
    r#""ask":"stack","at":"50%""#,
    r#""ask":"variables""#,
    r#""ask":"evaluate","expression":"$rip""#,
    r#""ask":"code","instructions":10000"#,
    r#""ask":"maps""#,
    r#""ask":"symbol","names":["main","0x10000"]"#,
    r#""ask":"step","by":"line""#,
    r#""ask":"step","at":"end","by":"next","direction":"backward""#,
    r#""ask":"step","by":"over","count":100"#,
    r#""ask":"run","breakpoints":[65536]"#,
    r#""ask":"run","at":"end","direction":"backward","signals":true,"syscalls":true"#,
    r#""ask":"access","at":"end","address":"0x10000","direction":"backward""#,
    r#""ask":"events","time":true,"arguments":true"#,
    r#""ask":"writes","at":"end","address":65536"#,
    r#""ask":"output","input":true"#,
    r#""ask":"calls","function":4194304,"arguments":true"#,
    r#""ask":"range""#,
];
/// The lists that these open.
const LISTS: usize = 4;
/// How many answers a session gives.
pub const ANSWERS: usize = ASKS.len() + LISTS;

/// The folder of a test, with its files and its store.
pub struct Home {
    pub dir: tempfile::TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    pub status: i32,
    pub kib: i64,
    pub output: String,
}

impl Done {
    /// The exit status. `None`: a signal ended it.
    pub fn code(&self) -> Option<i32> {
        libc::WIFEXITED(self.status).then(|| libc::WEXITSTATUS(self.status))
    }

    pub fn signal(&self) -> Option<i32> {
        libc::WIFSIGNALED(self.status).then(|| libc::WTERMSIG(self.status))
    }
}

impl Home {
    pub fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("store")).unwrap();
        Home { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let c = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(c.as_ptr(), 0o600) }, 0);
        path
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_hindsight"));
        c.env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.dir.path())
            .env("HINDSIGHT_DIR", self.path("store"))
            .current_dir(self.dir.path())
            .args(args);
        c
    }

    /// The requests of a session.
    fn requests(&self) -> Stdio {
        let mut text: String = (ASKS.iter())
            .map(|ask| format!("{{\"id\":1,{ask}}}\n"))
            .collect();
        for list in 1..=LISTS {
            text += &format!("{{\"id\":2,\"ask\":\"next\",\"list\":{list},\"count\":1000}}\n");
        }
        File::open(self.write("requests", text.as_bytes()))
            .unwrap()
            .into()
    }

    /// Runs `hindsight` to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Done {
        let shown: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy()).collect();
        let shown = shown.join(" ");
        wait(self.start(args), PATIENCE, &shown)
    }

    /// Starts it with its output in a file. Returns its id and that file.
    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> (i32, PathBuf) {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = self.path(&format!("output{n}"));
        let out = File::create(&path).unwrap();
        let mut c = self.command(args);
        let is_session = args.first().is_some_and(|a| a.as_ref() == "serve");
        let input = match is_session {
            true => self.requests(),
            false => Stdio::null(),
        };
        c.stdin(input)
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .process_group(0);
        // A background command of a shell ignores Ctrl-C. This one must not.
        let own = || {
            // SAFETY: a plain system call that concerns the new process only.
            unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: `signal` may be called between fork and exec.
        unsafe { c.pre_exec(own) };
        #[expect(clippy::zombie_processes, reason = "`wait` waits for it")]
        let child = c.spawn().unwrap();
        (child.id() as i32, path)
    }
}

/// Waits for a process, at most for `patience`.
pub fn wait((pid, path): (i32, PathBuf), patience: Duration, what: &str) -> Done {
    let begin = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: fills both, which are plain numbers.
        let (done, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (
                libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage),
                usage,
            )
        };
        assert!(done >= 0, "{what}: {}", std::io::Error::last_os_error());
        if done == pid {
            return Done {
                status,
                kib: usage.ru_maxrss,
                output: text(&path),
            };
        }
        if begin.elapsed() > patience {
            // SAFETY: a process group that this test has made, whose first process has not been waited for.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            panic!("{what} does not end; it said: {}", text(&path));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    let file = File::open(path).unwrap();
    file.take(1 << 20).read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
