//! What gdb sends.

use super::recording;
use hindsight_gdb::{Patience, Session, serve};
use hindsight_timeline::{Options, Timeline};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Packets of an ordinary session, one a line, without their frames.
pub(super) const SESSIONS: [&str; 3] = [
    "qSupported:multiprocess+;swbreak+;hwbreak+;qRelocInsn+;fork-events+;vContSupported+;QThreadEvents+\n\
     vMustReplyEmpty\nQStartNoAckMode\n!\nHgp0.0\nqXfer:features:read:target.xml:0,1000\n?\nqC\nqfThreadInfo\n\
     qsThreadInfo\nqXfer:auxv:read::0,1000\ng\nm100000,40\nZ0,40000c,1\nvCont?\nvCont;c\nbs\nbc\nz0,40000c,1\nD;1",
    "qSupported:xmlRegisters=i386\nqRcmd,6e6f77\nqRcmd,68656c70\nZ2,100008,8\nbc\nvCont;s:p1.-1\nX100000,4:abcd\n\
     M100000,2:1234\nP0=1122334455667788\np10\nqXfer:libraries-svr4:read::0,100\nqXfer:siginfo:read::0,100\nk",
    "vAttach;47\nHc-1\nqThreadExtraInfo,p47.48\nvCont;r400000,400010:p47.48\nQPassSignals:e;10\n\
     QCatchSyscalls:1;3c\nqXfer:exec-file:read:47:0,40\nvFile:setfs:0\nvFile:open:2f62696e2f6d616465,0,0\nvKill;47",
];

pub fn seeds() -> Vec<Vec<u8>> {
    SESSIONS.iter().map(|s| s.as_bytes().to_vec()).collect()
}

/// Each line as a packet with a checksum.
fn packets(lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines.split(|b| *b == b'\n') {
        let sum = line.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
        out.push(b'$');
        out.extend_from_slice(line);
        out.extend_from_slice(format!("#{sum:02x}").as_bytes());
    }
    out
}

struct Scene {
    _folder: tempfile::TempDir,
    trace: PathBuf,
}

thread_local! {
    static SCENE: Scene = {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("made.hst");
        std::fs::write(&trace, recording::bytes()).unwrap();
        Scene { _folder: folder, trace }
    };
}

/// Sends bytes to a session of a small recording.
fn send(bytes: &[u8]) {
    let options = Options {
        unsaved: true,
        ..Options::default()
    };
    let timeline = SCENE.with(|s| Timeline::open(&s.trace, options)).unwrap();
    let mut session = Session::new(timeline, None, None).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let patience = Patience {
        hello: None,
        silence: None,
    };
    std::thread::scope(|s| {
        s.spawn(move || {
            // The session may end before it has read all.
            let _ = ours.write_all(bytes);
            let _ = ours.shutdown(Shutdown::Write);
        });
        let _ = serve(&mut session, theirs, std::io::sink(), &patience);
    });
}

pub fn run(bytes: &[u8]) {
    send(&packets(bytes));
    send(bytes);
}

/// Files as users have them, and one whose numbers have come to their end.
pub fn bookmark_files() -> Vec<Vec<u8>> {
    let files = [
        r#"{"1": "0:10", "crash": "0:51"}"#,
        r#"{"18446744073709551615": "FFFFFFFFFFFFFFFF:FFFFFFFFFFFFFFFF"}"#,
        "{}",
    ];
    files.map(|f| f.as_bytes().to_vec()).to_vec()
}

/// Opens a session with such a file. It lists the names, goes to some, adds one and removes one.
pub fn bookmarks(bytes: &[u8]) {
    let beside = SCENE.with(|s| s.trace.with_extension("hst.marks"));
    std::fs::write(&beside, bytes).unwrap();
    let commands = [
        "checkpoints",
        "restart 1",
        "restart crash",
        "checkpoint",
        "forget 1",
    ];
    let lines = commands.map(|c| {
        let hex: String = c.bytes().map(|b| format!("{b:02x}")).collect();
        format!("qRcmd,{hex}")
    });
    send(&packets(lines.join("\n").as_bytes()));
    std::fs::remove_file(beside).unwrap();
}
