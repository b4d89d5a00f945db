//! What a process in the sandbox can and cannot do. The usual test harness has threads, so this has none.

use hindsight_guard::broker::{Allowed, ExitStatus, Side, split};
use hindsight_guard::outside::Compared;
use hindsight_guard::{outside, private, within};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Runs `run` in a sandbox that has `dir/a.hst`, and demands that it returns `true`.
fn inside(what: &str, dir: &Path, run: impl FnOnce() -> bool) {
    let end = play(dir, || i32::from(!run()));
    assert_eq!(end, ExitStatus::Status(0), "{what}");
    println!("{what}: ok");
}

fn play(dir: &Path, run: impl FnOnce() -> i32) -> ExitStatus {
    let recording = dir.join("a.hst");
    let allowed = Allowed {
        side: vec![dir.join("a.hsx"), dir.join("a.hst.marks")],
        shared: vec![dir.join("files")],
        debug: vec![dir.join("debug")],
        is_called: |mut f, name| {
            let mut text = Vec::new();
            f.read_to_end(&mut text).is_ok() && text.first() == Some(&name[0])
        },
        recordings: vec![recording],
        compares: dir.join("compares").exists(),
        extract: File::open(dir.join("taken")).ok().map(Into::into),
    };
    match split(allowed).unwrap() {
        Side::Outside(broker) => broker.serve(),
        Side::Inside(inside) => {
            let walls = inside.lock();
            if !walls.calls {
                println!("this kernel filters no system calls: nothing to see");
                std::process::exit(0);
            }
            std::process::exit(run())
        }
    }
}

/// The error number of a system call. 0 if it succeeded.
fn call(nr: i64, args: [usize; 5]) -> i32 {
    // SAFETY: the callers pass numbers, and addresses of their own memory.
    let done = unsafe { libc::syscall(nr, args[0], args[1], args[2], args[3], args[4]) };
    match done {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

fn scene() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("files")).unwrap();
    fs::create_dir(at("debug")).unwrap();
    fs::write(at("a.hst"), "recording").unwrap();
    fs::write(at("b.hst"), "another").unwrap();
    fs::write(at("files").join("0".repeat(32)), "shared").unwrap();
    fs::write(at("files/lock"), "").unwrap();
    fs::write(at("debug/x.debug"), "symbols").unwrap();
    symlink("../b.hst", at("debug/y.debug")).unwrap();
    dir
}

fn nothing_is_reached(dir: &Path) {
    let secret = dir.join("b.hst");
    let open = File::options()
        .read(true)
        .write(true)
        .open(dir.join("a.hst"));
    let open = open.unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let socket = dir.join("socket");
    let _unix = UnixListener::bind(&socket).unwrap();
    let parent = std::process::id() as usize;
    let path = std::ffi::CString::new(secret.to_str().unwrap()).unwrap();
    let name = path.as_ptr() as usize;
    inside("no file is opened", dir, || {
        let flags = [libc::O_RDONLY, libc::O_WRONLY, libc::O_CREAT | libc::O_RDWR];
        flags.iter().all(|f| {
            let f = *f as usize;
            call(libc::SYS_open, [name, f, 0o600, 0, 0]) == libc::EPERM
                && call(libc::SYS_openat, [-100isize as usize, name, f, 0o600, 0]) == libc::EPERM
        }) && File::open(&secret).is_err()
            && fs::read_dir("/").is_err()
            && fs::read("/proc/self/environ").is_err()
            && File::create(dir.join("new")).is_err()
            && call(libc::SYS_creat, [name, 0o600, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_openat2, [-100isize as usize, name, 0, 24, 0]) == libc::EPERM
            && call(libc::SYS_io_uring_setup, [8, 0, 0, 0, 0]) == libc::EPERM
    });
    inside("no file is changed by its name", dir, || {
        fs::remove_file(&secret).is_err()
            && fs::rename(&secret, dir.join("c")).is_err()
            && fs::hard_link(&secret, dir.join("c")).is_err()
            && symlink(&secret, dir.join("c")).is_err()
            && fs::create_dir(dir.join("c")).is_err()
            && call(libc::SYS_chmod, [name, 0o777, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_truncate, [name, 0, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_fchmod, [0, 0o777, 0, 0, 0]) == libc::EPERM
    });
    inside("nothing is executed", dir, || {
        let argv = [c"/bin/true".as_ptr(), std::ptr::null()];
        let at = argv[0] as usize;
        let list = argv.as_ptr() as usize;
        call(libc::SYS_execve, [at, list, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_execveat, [0, at, list, 0, 0]) == libc::EPERM
            && std::process::Command::new("/bin/true").status().is_err()
            && call(libc::SYS_fork, [0; 5]) == libc::EPERM
            && call(libc::SYS_vfork, [0; 5]) == libc::EPERM
            && call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_clone3, [0; 5]) == libc::ENOSYS
    });
    inside("nothing is connected", dir, || {
        std::net::TcpStream::connect(address).is_err()
            && TcpListener::bind("127.0.0.1:0").is_err()
            && std::net::UdpSocket::bind("127.0.0.1:0").is_err()
            && std::os::unix::net::UnixStream::connect(&socket).is_err()
            && call(libc::SYS_socket, [1, 1, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_socketpair, [1, 1, 0, 0, 0]) == libc::EPERM
    });
    inside("no other process is touched", dir, || {
        let own = std::process::id() as usize;
        call(libc::SYS_kill, [parent, 0, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_tgkill, [parent, parent, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_tgkill, [own, own, 0, 0, 0]) == 0
            && call(libc::SYS_ptrace, [16, parent, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_process_vm_writev, [parent, 0, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_process_vm_readv, [parent, 0, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_pidfd_open, [parent, 0, 0, 0, 0]) == libc::EPERM
            && call(libc::SYS_prlimit64, [parent, 7, name, 0, 0]) == libc::EPERM
            && call(libc::SYS_fcntl, [0, libc::F_SETOWN as usize, parent, 0, 0]) == libc::EPERM
            && call(libc::SYS_ioctl, [0, 0x5412, name, 0, 0]) == libc::EPERM
            && call(libc::SYS_setsid, [0; 5]) == libc::EPERM
            && call(libc::SYS_madvise, [0, 4096, 100, 0, 0]) == libc::EPERM
            && call(libc::SYS_bpf, [0; 5]) == libc::EPERM
            && call(libc::SYS_unshare, [0; 5]) == libc::EPERM
    });
    inside("what playing needs is there", dir, || {
        let sum = std::thread::spawn(|| vec![1u64; 1 << 20].iter().sum::<u64>());
        let mut text = [0; 9];
        sum.join().unwrap() == 1 << 20
            && open.read_exact_at(&mut text, 0).is_ok()
            && &text == b"recording"
            && std::io::stdout().flush().is_ok()
            && std::time::SystemTime::now().elapsed().is_ok()
    });
}

fn only_what_belongs_to_the_recording_is_given(dir: &Path) {
    let at = |name: &str| dir.join(name);
    let (trace, index) = (at("a.hst"), at("a.hsx"));
    inside("it can be read", dir, || {
        let mut text = String::new();
        let read = outside::open(&trace).unwrap().read_to_string(&mut text);
        read.is_ok() && text == "recording" && outside::is_confined()
    });
    inside("and what recordings share", dir, || {
        outside::open(&at("files").join("0".repeat(32))).is_ok()
            && within::read(&at("debug"), Path::new("x.debug"), 100).unwrap() == b"symbols"
            && outside::open_same(&at("b.hst"), 7, &[b'a'; 16], |_| false).is_some()
    });
    inside("and nothing else", dir, || {
        let others: Vec<PathBuf> = vec![
            at("b.hst"),
            at("files/lock"),
            at("files").join("0".repeat(31)),
            at("files").join("..").join("b.hst"),
            at("files").join(format!("{}/../lock", "0".repeat(32))),
            at("./files/../b.hst"),
            "/etc/passwd".into(),
            "".into(),
            "x".repeat(5000).into(),
        ];
        others.iter().all(|p| outside::open(p).is_err())
            && within::open(&at("debug"), Path::new("../b.hst")).is_err()
            && within::open(&at("debug"), Path::new("y.debug")).is_err()
            && within::open(&at(""), Path::new("b.hst")).is_err()
            && outside::open_same(&at("b.hst"), 7, &[b'x'; 16], |_| true).is_none()
            && outside::open_same(&at("b.hst"), 8, &[b'a'; 16], |_| true).is_none()
            && outside::open_same(Path::new("/dev/zero"), 0, &[0; 16], |_| true).is_none()
    });
    inside("files beside it are written", dir, || {
        let mut new = private::create_new(&private::temporary(&index)).unwrap();
        let put = new.write_all(b"index").is_ok()
            && outside::rename(&private::temporary(&index), &index).is_ok();
        let unnamed = private::create_unnamed(dir);
        // Not all file systems support these files.
        let linked = unnamed.map_or(true, |f| {
            outside::link(&f, &private::temporary(&index)).is_ok()
                && outside::link(&f, &index).is_err()
                && outside::remove(&private::temporary(&index)).is_ok()
        });
        put && linked
            && private::open_or_create(&index).unwrap().set_len(3).is_ok()
            && private::write_whole(&at("a.hst.marks"), b"{}").is_ok()
    });
    assert_eq!(fs::read(&index).unwrap(), b"ind");
    assert_eq!(fs::read(at("a.hst.marks")).unwrap(), b"{}");
    inside("others are not", dir, || {
        let others = [at("b.hst"), at("b.hsx"), at("x.new"), "/tmp/x".into()];
        others.iter().all(|p| {
            private::create_new(p).is_err()
                && private::open_or_create(p).is_err()
                && outside::remove(p).is_err()
                && outside::rename(p, &index).is_err()
                && outside::rename(&index, p).is_err()
                && outside::link(
                    &private::create_new(&private::temporary(&index)).unwrap(),
                    p,
                )
                .is_err()
                && outside::remove(&private::temporary(&index)).is_ok()
        }) && private::open_or_create(&trace).is_err()
            && outside::remove(&trace).is_err()
            && outside::remove(&index).is_err()
            && private::create_unnamed(Path::new("/tmp")).is_err()
    });
    // A process that asks often and does not take the answers is killed. So is one that asks more than can be valid.
    let end = play(dir, || {
        loop {
            // One of the descriptors from 3 on is the socket.
            for fd in 3..10 {
                let text = [0u8; 64];
                call(libc::SYS_write, [fd, text.as_ptr() as usize, 64, 0, 0]);
            }
        }
    });
    assert_eq!(end, ExitStatus::Signal(libc::SIGKILL));
    println!("who takes no answers is ended: ok");
    // The file is not opened through a link that somebody has put there.
    fs::remove_file(&index).unwrap();
    symlink(at("victim"), &index).unwrap();
    inside("links are not followed", dir, || {
        private::open_or_create(&index).is_err()
    });
    assert!(!at("victim").exists());
    fs::remove_file(&index).unwrap();
    symlink(at("b.hst"), &index).unwrap();
    inside("not to read either", dir, || outside::open(&index).is_err());
}

fn files_are_compared_and_taken_out_where_that_is_allowed(dir: &Path) {
    let at = |name: &str| dir.join(name);
    let other = at("b.hst");
    inside("nothing is compared or taken out otherwise", dir, || {
        let compared = outside::compare(&other, Some((7, &[b'a'; 16])), |_| true);
        compared == Compared::Unknown && outside::extract(Path::new("x")).is_err()
    });
    fs::write(at("compares"), "").unwrap();
    fs::create_dir(at("taken")).unwrap();
    inside("files are compared", dir, || {
        let compare = |path: &Path, size, first| {
            // What this process thinks does not matter.
            outside::compare(path, Some((size, &[first; 16])), |_| true)
        };
        compare(&other, 7, b'a') == Compared::Same
            && compare(&other, 7, b'x') == Compared::Changed
            && compare(&other, 8, b'a') == Compared::Changed
            && compare(&at("none"), 7, b'a') == Compared::Missing
            && compare(dir, 7, b'a') == Compared::Unknown
            && outside::compare(&other, None, |_| true) == Compared::There
            && outside::open(&other).is_err()
    });
    inside("files are taken out", dir, || {
        let mut made = outside::extract(Path::new("x/y")).unwrap();
        made.write_all(b"content").is_ok()
            && outside::extract(Path::new("x/y")).is_err()
            && outside::extract(Path::new("../y")).is_err()
            && outside::extract(&other).is_err()
    });
    assert_eq!(fs::read(at("taken/x/y")).unwrap(), b"content");
    assert_eq!(fs::read(&other).unwrap(), b"another");
}

fn ends_are_told(dir: &Path) {
    assert_eq!(play(dir, || 7), ExitStatus::Status(7));
    let end = play(dir, || {
        let own = std::process::id() as usize;
        call(libc::SYS_tgkill, [own, own, libc::SIGTERM as usize, 0, 0]);
        0
    });
    assert!(
        matches!(
            end,
            ExitStatus::Signal(libc::SIGTERM) | ExitStatus::Status(0)
        ),
        "{end:?}"
    );
    println!("ends are told: ok");
}

fn main() {
    let dir = scene();
    nothing_is_reached(dir.path());
    only_what_belongs_to_the_recording_is_given(dir.path());
    files_are_compared_and_taken_out_where_that_is_allowed(dir.path());
    ends_are_told(dir.path());
}
