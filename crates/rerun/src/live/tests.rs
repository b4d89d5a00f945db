//! Recordings that were made to do harm. The half that reads them is played by a thread that says anything.

use super::{Error, Options, Outcome, Outputs, Setup, rerun};
use crate::report::{Report, Verdict};
use crate::wire::{self, Begin, Call, End, Image, Member, Question};
use hindsight_guard::sandbox::changes_nothing;
use libc::*;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};

/// A recording of a process with these calls, which are told one after the other, again and again if `endless`.
struct Hostile {
    image: Image,
    calls: Vec<Call>,
    endless: bool,
    env: Vec<Vec<u8>>,
}

impl Hostile {
    fn new(end: End, calls: Vec<Call>) -> Hostile {
        let image = Image {
            number: 1,
            is_whole: true,
            pid: 4711,
            thread: 1,
            ended_by: 1,
            calls: calls.len() as u64,
            end,
            ..Image::default()
        };
        Hostile {
            image,
            calls,
            endless: false,
            env: Vec::new(),
        }
    }

    fn serve(&self, folder: &Path, mut stream: UnixStream) -> std::io::Result<()> {
        let mut told = false;
        while let Some(question) = wire::receive(&mut stream)? {
            match question {
                Question::Begin => {
                    let begin = Begin {
                        program: b"/usr/bin/perl".to_vec(),
                        folder: folder.as_os_str().as_encoded_bytes().to_vec(),
                        images: vec![self.image.clone()],
                        env: self.env.clone(),
                        ..Begin::default()
                    };
                    wire::send(&mut stream, &begin)?;
                }
                Question::Calls(_) => {
                    let none = told && !self.endless;
                    told = true;
                    let calls = if none { Vec::new() } else { self.calls.clone() };
                    wire::send(&mut stream, &calls)?;
                }
                Question::Stack(..) => wire::send(&mut stream, &Vec::<Vec<u8>>::new())?,
                Question::Content(_) => wire::send(&mut stream, &None::<Vec<u8>>)?,
            }
        }
        Ok(())
    }

    /// Runs a script of Perl with it, in a folder. What it prints is returned, too.
    fn run(&self, folder: &Path, script: &str) -> (Result<Report, Error>, String) {
        self.run_until(folder, script, false)
    }

    /// The same, until the failure if that is asked for and is reached.
    fn run_until(
        &self,
        folder: &Path,
        script: &str,
        until_failure: bool,
    ) -> (Result<Report, Error>, String) {
        let (mine, its) = UnixStream::pair().unwrap();
        let options = Options {
            program: Some("/usr/bin/perl".into()),
            args: Some(vec!["-e".into(), script.into()]),
            outputs: Outputs::Compare,
            here: Vec::new(),
            stop: false,
            until_failure,
        };
        let mut shown = Vec::new();
        let report = std::thread::scope(|scope| {
            scope.spawn(|| self.serve(folder, its));
            let setup = Setup {
                stream: mine,
                rules: changes_nothing().unwrap(),
                show: &mut |_, bytes| shown.extend_from_slice(bytes),
            };
            rerun(options, setup).map(|outcome| match outcome {
                Outcome::Over(report) => *report,
                Outcome::Stopped(_) => unreachable!("it was not to stop"),
            })
        });
        (report, String::from_utf8(shown).unwrap())
    }
}

fn call(number: i64, args: [u64; 6], texts: &[&str], result: Option<u64>) -> Call {
    let texts = texts.iter().map(|t| Some(t.as_bytes().to_vec()));
    Call {
        number: number as u64,
        args,
        result,
        texts: texts.collect(),
        ..Call::default()
    }
}

fn too_far(r: Result<Report, Error>) -> String {
    let r = r.unwrap();
    assert_eq!(r.verdict, Verdict::TooFar, "{r:?}");
    r.why.unwrap()
}

/// The recorded process ended in a call, by a signal that ends nobody. The call must not be made for that.
#[test]
fn a_call_in_which_the_recorded_process_ended_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let ignore = "$SIG{INT} = 'DEFAULT'; $SIG{TERM} = 'IGNORE'; $SIG{HUP} = sub {}; rename 'a', 'b'; print 'lives'";
    let rename = || call(SYS_rename, [1, 2, 0, 0, 0, 0], &["a", "b"], None);
    for n in [0, -1, 65, i32::MAX, SIGSTOP, SIGCHLD] {
        std::fs::write(dir.path().join("a"), "kept").unwrap();
        let (report, shown) = Hostile::new(End::Signal(n), vec![rename()]).run(dir.path(), ignore);
        let why = too_far(report);
        assert!(why.contains("ended by a signal in this call"), "{n}: {why}");
        assert_eq!(shown, "");
        assert!(dir.path().join("a").exists(), "{n}");
    }
    // One that ends it does. If the program does not obey it, the call is not recorded, and is not made either.
    for (n, verdict) in [
        (SIGINT, Verdict::SameFailure),
        (SIGTERM, Verdict::Same),
        (SIGHUP, Verdict::Same),
    ] {
        let (report, _) = Hostile::new(End::Signal(n), vec![rename()]).run(dir.path(), ignore);
        let report = report.unwrap();
        assert_eq!(report.verdict, verdict, "{report:?}");
        assert_eq!(report.not_done, u64::from(verdict == Verdict::Same));
        assert!(dir.path().join("a").exists());
    }
}

struct Victim(Child);

impl Victim {
    fn new() -> Victim {
        Victim(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The recorded process had the id of one that runs here, or one that means several.
#[test]
fn no_process_outside_gets_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::new();
    let id = victim.0.id() as i32;
    for pid in [id, -1, 0, 1] {
        let mut h = Hostile::new(End::Status(0), Vec::new());
        h.image.pid = pid;
        let (report, _) = h.run(dir.path(), "kill 'KILL', $$; print 'lives'");
        assert_eq!(report.unwrap().now, Some(End::Signal(SIGKILL)), "{pid}");
    }
    // Nor does it by a descriptor that is to tell it something, or by a file that somebody else opens.
    let script = format!(
        "pipe(R, W); open(F, '<', '/etc/hostname'); \
         for ([8, {id}], [10, 9], [15, pack('ii', 1, {id})], [1024, 0], [1026, 0x3f], [4, 0x2000]) {{ \
           fcntl(R, $_->[0], $_->[1]); fcntl(F, $_->[0], $_->[1]); }} \
         syswrite(W, 'x'); printf('%s', fcntl(R, 9, 0) // 'unknown'); \
         sysread(R, $x, 9); print $x"
    );
    let (report, shown) = Hostile::new(End::Status(0), Vec::new()).run(dir.path(), &script);
    assert_eq!(report.unwrap().now, Some(End::Status(0)));
    // The pipe is its own, so that works.
    assert_eq!(shown, "unknownx");
    assert!(victim.lives());
}

/// What the program asks for that is not recorded is not done, and it is told.
#[test]
fn nothing_changes_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("kept"), "kept").unwrap();
    std::os::unix::fs::symlink("kept", at("link")).unwrap();
    let script = "unlink 'kept'; rename 'kept', 'moved'; mkdir 'made'; truncate 'link', 0; chmod 0, 'kept'; \
        symlink '/etc', 'l2'; link 'kept', 'l3'; utime 1, 1, 'kept'; open(F, '>', 'link'); print F 'x'; close F; \
        open(F, '>>', 'kept'); print F 'x'; close F; open(F, '+<', 'kept'); print F 'x'; close F";
    let (report, _) = Hostile::new(End::Status(3), Vec::new()).run(dir.path(), script);
    let report = report.unwrap();
    assert_eq!(report.not_done, 11, "{report:#?}");
    assert!(report.notes.iter().any(|n| n.contains("unlink(\"kept\")")));
    assert_eq!(std::fs::read(at("kept")).unwrap(), b"kept");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    // Nobody knows what the program would have made of that, had it been so before.
    let (report, _) = Hostile::new(End::Status(0), Vec::new()).run(dir.path(), script);
    assert_eq!(report.unwrap().verdict, Verdict::OtherOutput);
}

/// Where the kernel's code stands behind the arguments and the environment must be found.
#[test]
fn more_variables_than_are_looked_at_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut h = Hostile::new(End::Status(0), Vec::new());
    h.env = vec![b"A=".to_vec(); 60_000];
    assert_eq!(
        h.run(dir.path(), "exit 0").0.unwrap().now,
        Some(End::Status(0))
    );
    for n in [65_535, 70_000] {
        h.env = vec![b"A=".to_vec(); n];
        let said = h.run(dir.path(), "exit 0").0.unwrap_err().to_string();
        assert!(said.contains("arguments and variables"), "{said}");
    }
}

/// The loader asks this machine which code to load.
#[test]
fn no_recording_names_code_to_be_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["/etc/ld.so.preload", "/etc/ld.so.cache"];
    let at = AT_FDCWD as u64;
    let calls = paths.iter().flat_map(|p| {
        [
            call(SYS_access, [1, R_OK as u64, 0, 0, 0, 0], &[p], Some(0)),
            call(
                SYS_openat,
                [at, 1, O_CLOEXEC as u64, 0, 0, 0],
                &[p],
                Some(3),
            ),
        ]
    });
    let (report, _) = Hostile::new(End::Status(0), calls.collect()).run(dir.path(), "exit 0");
    let report = report.unwrap();
    assert_eq!((report.matched, report.left_out), (0, 0), "{report:#?}");
}

/// What is sent to somebody of whom the recording knows nothing is output that was not recorded.
#[test]
fn what_goes_to_sockets_that_are_not_recorded_counts() {
    let dir = tempfile::tempdir().unwrap();
    let send = "use Socket; socket(S, AF_INET, SOCK_DGRAM, 0); send(S, 'told', 0, sockaddr_in(9, INADDR_LOOPBACK))";
    let within = "pipe(R, W); syswrite(W, 'x'); open(N, '>', '/dev/null'); syswrite(N, 'x')";
    for (script, verdict) in [(send, Verdict::OtherOutput), (within, Verdict::Same)] {
        let (report, _) = Hostile::new(End::Status(0), Vec::new()).run(dir.path(), script);
        let report = report.unwrap();
        assert_eq!(report.verdict, verdict, "{report:#?}");
    }
}

/// Pipes are not waited for, and devices are not opened.
#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "bytes").unwrap();
    let made = Command::new("mkfifo").arg(dir.path().join("fifo")).status();
    assert!(made.unwrap().success());
    let script = "for ('fifo', '/dev/zero', '/dev/full', 'file') { sysopen(F, $_, 0) or next; \
        print readlink('/proc/self/fd/' . fileno F), ' '; }";
    let (report, shown) = Hostile::new(End::Status(3), Vec::new()).run(dir.path(), script);
    assert_eq!(report.unwrap().now, Some(End::Status(0)));
    assert!(shown.ends_with("/file "), "{shown}");
    for other in ["fifo", "dev"] {
        assert!(!shown.contains(other), "{shown}");
    }
}

#[test]
fn recordings_without_an_end_are_told_by_their_limits() {
    let dir = tempfile::tempdir().unwrap();
    let many = |calls: Vec<Call>| {
        let mut h = Hostile::new(End::Status(3), calls);
        h.endless = true;
        h.run(dir.path(), "rename 'a', 'b'; exit 1").0
    };
    let text = "x".repeat(4000);
    let asked = call(SYS_stat, [1, 2, 0, 0, 0, 0], &[&text], Some(0));
    let said = many(vec![asked]).unwrap_err().to_string();
    assert!(said.contains("MiB of memory"), "{said}");
    // Of an open file, and of a closed descriptor, which brings nothing.
    for (fd, limit) in [(0, "MiB of recorded input"), (9, "MiB of memory")] {
        let mut received = call(SYS_read, [fd, 1, 60_000, 0, 0, 0], &[], Some(60_000));
        received.received.0 = vec![0; 60_000];
        let said = many(vec![received]).unwrap_err().to_string();
        assert!(said.contains(limit), "{fd}: {said}");
    }
    let mut written = call(SYS_write, [1, 1, 60_000, 0, 0, 0], &[], Some(60_000));
    written.sent.0 = vec![b'x'; 60_000];
    let said = too_far(many(vec![written]));
    assert!(said.contains("wait to be compared"), "{said}");
}

/// Numbers that no honest recording has.
#[test]
fn odd_numbers_are_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let odd = [0, 1, u64::MAX, i64::MAX as u64, 1 << 63, 1 << 32];
    let numbers = [
        SYS_read,
        SYS_lseek,
        SYS_clock_gettime,
        SYS_wait4,
        SYS_fork,
        SYS_mmap,
        SYS_close_range,
        SYS_pipe2,
        SYS_poll,
        SYS_fcntl,
    ];
    for n in odd {
        let calls = numbers.map(|nr| {
            let mut c = call(nr, [n; 6], &[], Some(n));
            (c.count, c.time) = (n, n);
            c
        });
        let mut h = Hostile::new(End::Status(0), calls.to_vec());
        (h.image.calls, h.image.length) = (n, n);
        let script = "print time; seek(STDIN, 1, 0); sysseek(STDIN, 2 ** 62, 1); wait; read(STDIN, $x, 9); pipe(R, W)";
        match h.run(dir.path(), script).0 {
            Ok(r) => assert!(r.percent <= 100.0),
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
}

/// Threads that no honest recording has: too many, threads that never end, and the one that failed is none of them.
#[test]
fn odd_threads_are_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let member = |n: u32| Member {
        thread: n,
        tid: n as i32,
        length: u64::MAX,
    };
    let with = |threads: u32, until_failure: bool| {
        let mut h = Hostile::new(End::Signal(SIGSEGV), Vec::new());
        h.image.others = (0..threads).map(|n| member(n + 2)).collect();
        h.image.ended_by = 99_999;
        h.run_until(dir.path(), "print 'lives'", until_failure)
    };
    let (report, shown) = with(300, false);
    let report = report.unwrap();
    assert_eq!(report.now, Some(End::Status(0)), "{report:?}");
    assert_eq!(shown, "lives");
    let (report, shown) = with(513, false);
    let said = report.unwrap_err().to_string();
    assert!(said.contains("more than 512 threads"), "{said}");
    assert_eq!(shown, "");
    // The thread that failed made no call behind which the program could stop.
    let (report, _) = with(3, true);
    assert_eq!(report.unwrap().now, Some(End::Status(0)));
}
