//! Servers under load. Measures how much of their native throughput remains when they are recorded.

use crate::hindsight::{Facts, Hindsight, tail};
use crate::process::{ENVIRONMENT, argv};
use crate::stats::median;
use crate::workload::installed;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for a load, and for the end of a server.
const LIMIT: Duration = Duration::from_secs(300);

/// Longest time until a server answers.
const START: Duration = Duration::from_secs(60);

/// A server, and the client that loads it.
pub struct Server {
    pub name: &'static str,
    pub what: &'static str,
    /// Its command.
    pub argv: Vec<OsString>,
    /// Where it listens.
    pub port: String,
    /// A command that succeeds as soon as the server answers.
    ready: Vec<OsString>,
    /// A command to run once before each load.
    prepare: Option<Vec<OsString>>,
    /// The command of its client.
    pub load: Vec<OsString>,
    /// Number of requests of the load.
    requests: f64,
    /// Text in the load's output that shows that all were answered.
    proof: String,
    /// The signal that ends the server in an orderly way.
    stop: i32,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Served {
    pub name: String,
    pub what: String,
    /// Requests per second in each round.
    pub native: Vec<f64>,
    pub recorded: Vec<f64>,
    /// Facts about the last recording.
    pub facts: Facts,
    pub replay_cpu: f64,
}

impl Served {
    /// The median share of the native throughput.
    pub fn share(&self) -> f64 {
        let each = self.recorded.iter().zip(&self.native);
        median(&each.map(|(r, n)| r / n).collect::<Vec<_>>())
    }
}

/// Names of all servers.
pub const NAMES: [&str; 3] = ["redis", "nginx", "postgres"];

/// Makes a server's data in `dir`. Its load is one of so many parts of that which is measured. Fails with the name of a program
/// that is not installed.
pub fn make(name: &str, dir: &Path, part: u32) -> io::Result<Server> {
    let port = TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port()
        .to_string();
    match name {
        "redis" => redis(&port, 30_000 / part),
        "nginx" => nginx(&port, dir, 60_000 / part),
        "postgres" => postgres(dir, 1500 / part),
        _ => Err(io::Error::other(format!("no server has the name {name}"))),
    }
}

fn redis(port: &str, requests: u32) -> io::Result<Server> {
    installed(&["redis-server", "redis-cli", "redis-benchmark"])?;
    let words = [
        "redis-server",
        "--port",
        port,
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--daemonize",
        "no",
    ];
    let load = "get,set,incr,lpush,lrange_100";
    Ok(Server {
        name: "redis",
        what: "redis-benchmark, 20 clients, get set incr lpush lrange",
        argv: argv(&words),
        port: port.into(),
        ready: argv(&["redis-cli", "-p", port, "ping"]),
        prepare: None,
        load: argv(&[
            "redis-benchmark",
            "-p",
            port,
            "-q",
            "-c",
            "20",
            "-n",
            &requests.to_string(),
            "-t",
            load,
        ]),
        // The lrange test fills its list first.
        requests: 6.0 * f64::from(requests),
        proof: "LRANGE_100".into(),
        stop: libc::SIGTERM,
    })
}

fn nginx(port: &str, dir: &Path, requests: u32) -> io::Result<Server> {
    installed(&["nginx", "ab"])?;
    let (site, state) = (dir.join("site"), dir.join("nginx"));
    fs::create_dir_all(&site)?;
    fs::create_dir_all(&state)?;
    fs::write(site.join("page.html"), "0123456789abcdef\n".repeat(150))?;
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = kinds
        .map(|k| format!("{k}_temp_path {}/{k}; ", state.display()))
        .concat();
    let file = dir.join("nginx.conf");
    // The directive `user` matters only if this runs as root.
    let text = format!(
        "daemon off; worker_processes 2; user nobody nogroup; pid {0}/pid; error_log {0}/errors;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; sendfile on; keepalive_requests 1000000; {temporary}\n\
         server {{ listen 127.0.0.1:{port}; root {1}; }} }}\n",
        state.display(),
        site.display()
    );
    fs::write(&file, text)?;
    let page = format!("http://127.0.0.1:{port}/page.html");
    let ab = |clients: &str, n: &str| argv(&["ab", "-q", "-k", "-c", clients, "-n", n, &page]);
    Ok(Server {
        name: "nginx",
        what: "ab, 16 connections kept, a page of 2.5 kB, 2 workers",
        argv: vec![
            "nginx".into(),
            "-c".into(),
            file.into(),
            "-e".into(),
            state.join("errors").into(),
        ],
        port: port.into(),
        ready: ab("1", "1"),
        prepare: None,
        load: ab("16", &requests.to_string()),
        requests: f64::from(requests),
        proof: "Failed requests:        0".into(),
        stop: libc::SIGQUIT,
    })
}

fn postgres(dir: &Path, each: u32) -> io::Result<Server> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "postgresql is not installed");
    let versions = fs::read_dir("/usr/lib/postgresql").map_err(|_| missing())?;
    let bin = versions
        .flatten()
        .map(|v| v.path().join("bin"))
        .max()
        .ok_or_else(missing)?;
    installed(&["setpriv"])?;
    let data = dir.join("postgres");
    // The server refuses to run as root.
    // SAFETY: the call only returns a number.
    let root = unsafe { libc::geteuid() } == 0;
    let user = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let words = |program: &str, args: &[&str]| {
        let mut words = if root { argv(&user) } else { Vec::new() };
        words.push(bin.join(program).into());
        words.extend(argv(args));
        words
    };
    let place = data.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(&data)?;
    if root {
        std::os::unix::fs::chown(&data, Some(65534), Some(65534))?;
    }
    let made = words(
        "initdb",
        &["-D", place, "-A", "trust", "-U", "bench", "--no-sync"],
    );
    let done = command(&made, dir).output()?;
    if !done.status.success() {
        return Err(io::Error::other(
            String::from_utf8_lossy(&done.stderr).into_owned(),
        ));
    }
    let client = |program: &str, args: &[&str]| {
        let mut words = vec![bin.join(program).into_os_string()];
        words.extend(argv(&["-h", place, "-p", "5499", "-U", "bench"]));
        words.extend(argv(args));
        words
    };
    let server = [
        "-D",
        place,
        "-k",
        place,
        "-p",
        "5499",
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
    ];
    Ok(Server {
        name: "postgres",
        what: "pgbench, 4 clients, 6000 transactions",
        argv: words("postgres", &server),
        port: "5499".into(),
        ready: client("psql", &["-c", "select 1", "postgres"]),
        prepare: Some(client("pgbench", &["-i", "-q", "-s", "2", "postgres"])),
        load: client(
            "pgbench",
            &["-c", "4", "-j", "2", "-t", &each.to_string(), "postgres"],
        ),
        requests: 4.0 * f64::from(each),
        proof: format!("processed: {0}/{0}", 4 * each),
        stop: libc::SIGINT,
    })
}

fn command(words: &[OsString], dir: &Path) -> Command {
    let mut c = Command::new(&words[0]);
    c.args(&words[1..])
        .env_clear()
        .envs(ENVIRONMENT)
        .current_dir(dir)
        .stdin(Stdio::null());
    c
}

/// A running server. If this is dropped early, the server's process group is killed.
struct Running(Child);

impl Running {
    fn signal(&self, to: i32, signal: i32) {
        // SAFETY: kill only sends a signal; the child has not been waited for.
        unsafe { libc::kill(to * self.0.id() as i32, signal) };
    }

    /// Ends the server in an orderly way.
    fn end(&mut self, signal: i32) -> io::Result<()> {
        self.signal(1, signal);
        let since = Instant::now();
        loop {
            match self.0.try_wait()? {
                Some(s) if s.success() => return Ok(()),
                Some(s) => {
                    let how = (s.code(), s.signal());
                    return Err(io::Error::other(format!("the server ended with {how:?}")));
                }
                None if since.elapsed() > LIMIT => {
                    return Err(io::Error::other("the server does not end"));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|s| s.is_none()) {
            self.signal(-1, libc::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

/// Measures `server` in `rounds` rounds, natively and recorded in turn. Each recording must verify.
pub fn measure(tool: &Hindsight, server: &Server, dir: &Path, rounds: u32) -> io::Result<Served> {
    let trace = dir.join("server.hst");
    let mut served = Served {
        name: server.name.into(),
        what: server.what.into(),
        native: Vec::new(),
        recorded: Vec::new(),
        facts: Facts::default(),
        replay_cpu: 0.0,
    };
    for _ in 0..rounds {
        served.native.push(once(server, &server.argv, dir)?);
        let _ = fs::remove_file(&trace);
        let recorded = tool.recorded_words(&server.argv, Some(&trace));
        served.recorded.push(once(server, &recorded, dir)?);
        served.facts = tool.facts(&trace)?;
        served.replay_cpu = tool.verify(&trace, 2, LIMIT)?.cpu;
    }
    let _ = fs::remove_file(&trace);
    Ok(served)
}

/// Requests per second of one run.
fn once(server: &Server, words: &[OsString], dir: &Path) -> io::Result<f64> {
    while_up(server, words, dir, || {
        let began = Instant::now();
        let (good, text) = client(&server.load, dir)?;
        let seconds = began.elapsed().as_secs_f64();
        if !good || !text.contains(&server.proof) {
            return Err(io::Error::other(format!("the load failed: {text}")));
        }
        Ok(server.requests / seconds)
    })
}

/// Loads a server that runs by these words.
pub fn load(server: &Server, words: &[OsString], dir: &Path) -> io::Result<()> {
    once(server, words, dir).map(drop)
}

/// Does something while a server runs by these words, and ends the server.
pub fn while_up<T>(
    server: &Server,
    words: &[OsString],
    dir: &Path,
    what: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let log = dir.join("server.log");
    let out = File::create(&log)?;
    let mut running = Running(
        command(words, dir)
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()?,
    );
    let fails = |what: &str| io::Error::other(format!("{what}: {}", tail(&log)));
    let since = Instant::now();
    while !client(&server.ready, dir)?.0 {
        if since.elapsed() > START || running.0.try_wait()?.is_some() {
            return Err(fails("the server does not answer"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(prepare) = &server.prepare
        && !client(prepare, dir)?.0
    {
        return Err(fails("the server cannot be prepared"));
    }
    let done = what().map_err(|e| fails(&e.to_string()))?;
    running
        .end(server.stop)
        .map_err(|e| fails(&e.to_string()))?;
    Ok(done)
}

/// Whether a client succeeds, and its output.
fn client(words: &[OsString], dir: &Path) -> io::Result<(bool, String)> {
    let mut limited: Vec<OsString> = argv(&["timeout", "300"]);
    limited.extend(words.iter().cloned());
    let done = command(&limited, dir).output()?;
    Ok((
        done.status.success(),
        String::from_utf8_lossy(&done.stdout).into_owned(),
    ))
}

/// Lets everybody read the data directory: servers may run as other users.
pub fn open_to_all(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
}
