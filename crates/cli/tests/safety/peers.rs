//! Peers that say nothing, too much, or nonsense.

use hindsight_lab::{Running, Scene, kill};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::FromRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Starts a command that prints its port.
fn listening(s: &Scene, args: &[&str], trace: Option<&Path>) -> (Running, u16) {
    let mut c = s.command("sh");
    c.args([
        "-c",
        "exec \"$@\" 2>&1",
        "sh",
        env!("CARGO_BIN_EXE_hindsight"),
    ]);
    c.args(args).args(trace);
    let running = s.start(&mut c);
    let said = running.first_line();
    let port = said.split("127.0.0.1:").nth(1).expect(&said);
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    (running, port.parse().expect(&said))
}

fn connect(port: u16) -> TcpStream {
    let c = TcpStream::connect(("127.0.0.1", port)).unwrap();
    c.set_read_timeout(Some(LIMIT)).unwrap();
    c.set_write_timeout(Some(LIMIT)).unwrap();
    c
}

/// Whether the other side ends the connection in time.
fn is_left(c: &mut TcpStream) -> bool {
    let mut part = [0; 4096];
    loop {
        match c.read(&mut part) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

/// A packet of gdb's protocol.
fn packet(content: &str) -> Vec<u8> {
    let sum = content.bytes().fold(0u8, u8::wrapping_add);
    format!("${content}#{sum:02x}").into_bytes()
}

/// Sends what gdb asks first. Returns the answer.
fn greet(c: &mut TcpStream) -> String {
    c.write_all(&packet("qSupported:swbreak+")).unwrap();
    let (mut out, mut part) = (Vec::new(), [0; 4096]);
    while !out.contains(&b'#') {
        match c.read(&mut part) {
            Ok(n @ 1..) => out.extend_from_slice(&part[..n]),
            other => panic!("no answer: {other:?}"),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The resident pages of a process and its children.
fn pages(pid: i32) -> u64 {
    let of = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let resident = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
        resident.unwrap_or(0)
    };
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|p| p.parse().ok());
    of(pid) + children.map(of).sum::<u64>()
}

#[test]
fn the_server_waits_for_nobody() {
    let s = Scene::new();
    let (_, trace) = s.record(&["/bin/true"]);
    let server = &["gdbserver", "--port", "0", "--timeout", "2", "--idle", "3"];
    let (running, port) = listening(&s, server, Some(&trace));
    // Clients that say nothing, or no whole packet, make nobody wait. They are disconnected.
    let mut silent: Vec<TcpStream> = (0..3).map(|_| connect(port)).collect();
    silent[1].write_all(b"$").unwrap();
    silent[2].write_all(b"+++\x03garbage\xff").unwrap();
    let mut good = connect(port);
    assert!(greet(&mut good).contains("PacketSize"));
    assert!(silent.iter_mut().all(is_left));
    // A client that spoke, and then says nothing.
    assert!(is_left(&mut good));
    // A client that asks without end and reads nothing.
    let mut deaf = connect(port);
    let before = pages(running.id());
    let many = packet("qXfer:features:read:target.xml:0,ffb").repeat(1000);
    let (began, mut sent) = (Instant::now(), 0);
    deaf.set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let mut most = before;
    let ended = loop {
        most = most.max(pages(running.id()));
        assert!(
            began.elapsed() < LIMIT,
            "it is still listened to: {sent} bytes"
        );
        match deaf.write(&many) {
            Ok(n) => sent += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break true,
        }
    };
    assert!(ended);
    let more = (most - before) * 4096;
    assert!(more < 512 << 20, "{more} bytes of memory for a deaf client");
    // Too many clients at once are turned away. The rest is served.
    let mut crowd: Vec<TcpStream> = (0..20).map(|_| connect(port)).collect();
    assert!(crowd.iter_mut().all(is_left));
    assert!(greet(&mut connect(port)).contains("PacketSize"));
    assert!(kill(running.id(), 0), "{}", running.so_far());
    let said = running.so_far();
    for word in ["says nothing", "is turned away"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// Each client has a session of its own.
#[test]
fn several_clients_are_served() {
    let s = Scene::new();
    let (_, trace) = s.record(&["/bin/true"]);
    let (_running, port) = listening(&s, &["gdbserver", "--port", "0"], Some(&trace));
    let mut all: Vec<TcpStream> = (0..3).map(|_| connect(port)).collect();
    for c in &mut all {
        assert!(greet(c).contains("PacketSize"));
    }
    drop(all.remove(0));
    for c in &mut all {
        assert!(greet(c).contains("PacketSize"));
    }
}

#[test]
fn receive_waits_for_a_recording() {
    let s = Scene::new();
    let out = s.path("out.hst");
    let out = out.to_str().unwrap();
    let args = [
        "receive",
        "--listen",
        "127.0.0.1:0",
        "--timeout",
        "2",
        "-o",
        out,
    ];
    let (receiver, port) = listening(&s, &args, None);
    // One after the other: a silent one, one with a part of a beginning, one that leaves at once, one with other data.
    let mut silent = connect(port);
    assert!(is_left(&mut silent));
    let mut slow = connect(port);
    slow.write_all(b"HSTRA").unwrap();
    assert!(is_left(&mut slow));
    drop(connect(port));
    let mut garbage = connect(port);
    let _ = garbage.write_all(&[b'x'; 4096]);
    assert!(is_left(&mut garbage));
    assert!(!Path::new(out).exists());
    let address = format!("tcp:127.0.0.1:{port}");
    let mut record = s.hindsight(&["record", "-q", "-o", &address, "--", "/bin/true"]);
    assert_eq!(s.run(&mut record).status.code(), Some(0));
    let received = receiver.finish();
    assert_eq!(received.status.code(), Some(0), "{}", received.text());
    s.must_verify(Path::new(out));
    for word in [
        "no recording begins within",
        "the connection ended",
        "sends no recording",
    ] {
        assert!(
            received.text().contains(word),
            "{word}: {}",
            received.text()
        );
    }
}

/// A pair of terminals: what is written to the second is read from the first.
fn terminal() -> (File, File) {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: two places for descriptors, which nobody else owns then; no name, settings or size is wanted.
    unsafe {
        assert_eq!(
            libc::openpty(&mut ours, &mut theirs, none, none.cast(), none.cast()),
            0
        );
        (File::from_raw_fd(ours), File::from_raw_fd(theirs))
    }
}

/// Waits until `what` was said, and calls `meanwhile` until then.
fn hear(said: &Mutex<String>, what: &str, meanwhile: &mut dyn FnMut()) {
    let since = Instant::now();
    while !said.lock().unwrap().contains(what) {
        assert!(since.elapsed() < LIMIT, "{what}: {}", said.lock().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        meanwhile();
    }
}

#[test]
fn receive_shows_on_a_terminal_how_far_it_is() {
    let s = Scene::new();
    let (_, trace) = s.record(&["/bin/true"]);
    let whole = fs::read(&trace).unwrap();
    let out = s.path("out.hst");
    let (mut ours, theirs) = terminal();
    let mut receive = s.hindsight(&["receive", "--listen", "127.0.0.1:0", "-o"]);
    let mut receiver = receive.arg(&out).stderr(theirs).spawn().unwrap();
    drop(receive);
    let said = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&said);
    let reader = std::thread::spawn(move || {
        let mut part = [0; 4096];
        // Reading fails when the other side is closed.
        while let Ok(n @ 1..) = ours.read(&mut part) {
            heard
                .lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&part[..n]));
        }
    });
    hear(&said, "127.0.0.1:", &mut || ());
    hear(&said, "\n", &mut || ());
    let text = said.lock().unwrap().clone();
    let port = text.split("127.0.0.1:").nth(1).unwrap().trim();
    let mut c = connect(port.parse().expect(&text));
    // Byte by byte, and the rest when it is shown.
    let mut sent = 0;
    let mut send = |n: usize| {
        let to = whole.len().min(sent + n);
        c.write_all(&whole[sent..to]).unwrap();
        sent = to;
    };
    send(whole.len() / 2);
    hear(&said, "received, ", &mut || send(1));
    send(whole.len());
    drop(c);
    assert!(receiver.wait().unwrap().success());
    reader.join().unwrap();
    s.must_verify(&out);
    // The progress line is removed before the final message.
    let said = said.lock().unwrap();
    let end = said.rsplit("per second").next().unwrap();
    assert!(
        end.contains("\r\x1b[K") && end.contains("out.hst"),
        "{said}"
    );
}

#[test]
fn receive_takes_no_more_than_was_said() {
    let s = Scene::new();
    let (_, trace) = s.record(&["/bin/true"]);
    let begin = fs::read(&trace).unwrap();
    let out = s.path("out.hst");
    let file = out.to_str().unwrap();
    let base = ["receive", "--listen", "127.0.0.1:0", "-o", file];
    // A stream without end.
    let (receiver, port) = listening(&s, &[&base[..], &["--max-size", "3M"]].concat(), None);
    let mut c = connect(port);
    let mut ended = c.write_all(&begin).is_err();
    let since = Instant::now();
    while !ended && since.elapsed() < LIMIT {
        ended = c.write_all(&[0; 1 << 16]).is_err();
    }
    assert!(ended);
    let done = receiver.finish();
    assert_eq!(fs::metadata(&out).unwrap().len(), 3 << 20);
    assert!(done.text().contains("sends more than"), "{}", done.text());
    assert_eq!(done.status.code(), Some(1), "{}", done.text());
    // A beginning, then silence.
    let (receiver, port) = listening(&s, &[&base[..], &["--idle", "1"]].concat(), None);
    let mut c = connect(port);
    c.write_all(&begin[..begin.len() / 2]).unwrap();
    assert!(is_left(&mut c));
    let done = receiver.finish();
    assert!(
        done.text().contains("has sent nothing for 1 seconds"),
        "{}",
        done.text()
    );
    assert_eq!(done.status.code(), Some(1));
    // A beginning, then a connection that breaks.
    let (receiver, port) = listening(&s, &base, None);
    let mut c = connect(port);
    c.write_all(&begin[..begin.len() / 2]).unwrap();
    c.shutdown(Shutdown::Both).unwrap();
    assert_eq!(receiver.finish().status.code(), Some(1));
}
