//! The server and clients that break the protocol.

use crate::common::record;
use hindsight_lab::{Running, Scene};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Starts a server. Returns it with its port.
pub fn server(s: &Scene, trace: &std::path::Path) -> (Running, u16) {
    let mut command = s.command("sh");
    command
        .args([
            "-c",
            "exec \"$@\" 2>&1",
            "sh",
            env!("CARGO_BIN_EXE_hindsight"),
        ])
        .args(["gdbserver", "--port", "0"])
        .arg(trace);
    let running = s.start(&mut command);
    let said = running.first_line();
    let port = said.split("127.0.0.1:").nth(1);
    let port = port.and_then(|p| p.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    (running, port.expect(&said))
}

fn frame(content: &[u8]) -> Vec<u8> {
    let sum = content.iter().fold(0u8, |s, b| s.wrapping_add(*b));
    let mut out = vec![b'$'];
    out.extend_from_slice(content);
    out.extend_from_slice(format!("#{sum:02x}").as_bytes());
    out
}

/// What the server answers to a packet.
pub fn said(c: &mut TcpStream, packet: &str) -> String {
    let answer = ask(c, packet.as_bytes()).unwrap_or_else(|| panic!("{packet}"));
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let begin = answer.find('$').expect(&answer) + 1;
    answer[begin..answer.len() - 3].to_string()
}

/// Sends a packet and reads the answer. `None`: the connection is gone.
fn ask(c: &mut TcpStream, content: &[u8]) -> Option<Vec<u8>> {
    c.write_all(&frame(content)).ok()?;
    let mut out = Vec::new();
    let mut byte = [0];
    loop {
        match c.read(&mut byte) {
            Ok(1) => out.push(byte[0]),
            _ => return None,
        }
        let n = out.len();
        if n > 3 && out[n - 3] == b'#' {
            // Messages for the user come before the answer.
            let told = out.windows(2).any(|w| w == b"$O") && !out.windows(3).any(|w| w == b"$OK");
            if !told {
                return Some(out);
            }
            out.clear();
        }
    }
}

const PACKETS: [&[u8]; 52] = [
    b"qSupported:multiprocess+;swbreak+;hwbreak+;vContSupported+",
    b"?",
    b"g",
    b"p10",
    b"pff",
    b"P0=0000000000000000",
    b"G00",
    b"m401000,40",
    b"m0,ffffffff",
    b"M10,4:00000000",
    b"X10,4:abcd",
    b"Z0,401000,1",
    b"Z0,401000,1;X3,220127",
    b"z0,401000,1",
    b"Z1,0,1",
    b"Z2,7ffffffff000,8",
    b"Z3,ffffffffffffffff,8",
    b"Z4,0,ffffffffffffffff",
    b"z2,0,1",
    b"vCont?",
    b"vCont;s:p1.1",
    b"vCont;s:1",
    b"vCont;c",
    b"D;1",
    b"vAttach;1",
    b"vCont;s",
    b"vCont;c:p1.-1",
    b"vCont;r401000,402000:p1.1",
    b"bs",
    b"bc",
    b"Hg0",
    b"Hgp1.ffffffff",
    b"Hc-1",
    b"T1",
    b"Tp1.7fffffff",
    b"qfThreadInfo",
    b"qsThreadInfo",
    b"qXfer:auxv:read::0,1000",
    b"qXfer:features:read:target.xml:0,ffffffff",
    b"qXfer:libraries-svr4:read::0,fff",
    b"qXfer:siginfo:read::0,10",
    b"qXfer:threads:read::0,ffffffffffffffff",
    b"qXfer:exec-file:read:1:0,100",
    b"QPassSignals:e;10;ff",
    b"QCatchSyscalls:1",
    b"QCatchSyscalls:1;1;zz",
    b"vFile:open:2f70726f632f312f6d617073,0,0",
    b"vFile:pread:0,ffffffff,7fffffffffffffff",
    b"vFile:close:99",
    b"qRcmd,7365656b2035302525",
    b"qRcmd,6c6173742d777269746520302066666666666666666666",
    b"D",
];

#[test]
fn nonsense_does_not_end_the_server() {
    let s = Scene::new();
    let trace = record(
        &s,
        "int n; int main(void) { for (int i = 0; i < 50; i++) n += i; return 0; }",
        &[],
    );
    let (server, port) = server(&s, &trace);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let started = Instant::now();
    for round in 0..120 {
        let mut c = TcpStream::connect(("127.0.0.1", port)).unwrap();
        c.set_read_timeout(Some(Duration::from_millis(if round % 4 == 0 {
            300
        } else {
            30
        })))
        .unwrap();
        for _ in 0..25 {
            let mut p = PACKETS[random(PACKETS.len())].to_vec();
            for _ in 0..random(4) {
                let at = random(p.len() + 1);
                match random(4) {
                    0 => p.insert(at, random(256) as u8),
                    1 if at < p.len() => p[at] = random(256) as u8,
                    2 if at < p.len() => drop(p.remove(at)),
                    _ => p.truncate(at.max(1)),
                }
            }
            let sent = match random(8) {
                // These bytes are no packet.
                0 => (0..random(60)).map(|_| random(256) as u8).collect(),
                1 => b"\x03".to_vec(),
                _ => {
                    if ask(&mut c, &p).is_none() && round % 3 == 0 {
                        break;
                    }
                    continue;
                }
            };
            if c.write_all(&sent).is_err() {
                break;
            }
        }
    }
    // The server still runs, and answers correctly.
    let mut c = TcpStream::connect(("127.0.0.1", port)).unwrap();
    c.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let answer = ask(&mut c, b"qSupported:multiprocess+").expect("an answer");
    assert!(String::from_utf8_lossy(&answer).contains("ReverseContinue+"));
    let answer = ask(&mut c, b"?").expect("an answer");
    assert!(answer.iter().any(|b| *b == b'T' || *b == b'S'));
    assert!(kill_check(&server), "the server has ended");
    println!("{:?}", started.elapsed());
}

fn kill_check(server: &Running) -> bool {
    hindsight_lab::kill(server.id(), 0)
}

#[test]
fn an_interrupt_ends_a_long_run() {
    let s = Scene::new();
    let trace = record(
        &s,
        "volatile long n; int main(void) { for (long i = 0; i < 60000000; i++) n += i; return 0; }",
        &[],
    );
    let (_server, port) = server(&s, &trace);
    let mut c = TcpStream::connect(("127.0.0.1", port)).unwrap();
    c.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ask(&mut c, b"qSupported:multiprocess+;swbreak+;hwbreak+").unwrap();
    ask(&mut c, b"vCont?").unwrap();
    // A condition that never holds: `n` is evaluated again and again.
    let started = Instant::now();
    let wait = std::thread::spawn({
        let mut c = c.try_clone().unwrap();
        move || {
            std::thread::sleep(Duration::from_millis(300));
            c.write_all(b"\x03").unwrap();
        }
    });
    let answer = ask(&mut c, b"vCont;c:p-1.-1").expect("it stops");
    wait.join().unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    // SIGINT, unless the run ended before the interrupt.
    assert!(
        answer.contains("T02") || answer.contains("replaylog"),
        "{answer}"
    );
    println!("{answer} after {:?}", started.elapsed());
}

#[test]
fn damaged_and_malformed_packets_do_not_end_a_session() {
    let s = Scene::new();
    let trace = record(&s, "int main(void) { return 0; }", &[]);
    let (_server, port) = server(&s, &trace);
    let mut c = TcpStream::connect(("127.0.0.1", port)).unwrap();
    c.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The checksum is wrong: the server wants the packet again.
    c.write_all(b"$?#00").unwrap();
    let mut byte = [0];
    c.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"-");
    let stands = said(&mut c, "?");
    assert!(stands.starts_with("T05"), "{stands}");
    // The client has not got the answer: it comes again.
    c.write_all(b"-").unwrap();
    let mut again = vec![0; stands.len() + 4];
    c.read_exact(&mut again).unwrap();
    assert_eq!(again, frame(stands.as_bytes()));
    for malformed in [
        "mx,1",
        "Z0,",
        "vCont;x",
        "Hg",
        "qXfer:auxv:read::0",
        "QPassSignals:x",
    ] {
        assert_eq!(said(&mut c, malformed), "E01", "{malformed}");
    }
    assert_eq!(said(&mut c, "QStartNoAckMode"), "OK");
    // Packets are acknowledged no more, so a damaged one is lost, and nobody would notice.
    c.write_all(b"$?#00").unwrap();
    assert_eq!(c.read(&mut byte).unwrap(), 0, "the connection ends");
}

/// What lldb asks in a session. It names no thread before it continues. It asks much that gdb does not, and accepts
/// empty answers.
#[test]
fn the_words_of_lldb_are_understood() {
    let s = Scene::new();
    let trace = record(
        &s,
        "int total; int add(int a, int b) { return a + b; }\n\
         int main(void) { for (int i = 0; i < 3; i++) total = add(total, i); return total; }",
        &["-no-pie"],
    );
    let symbols = s.run(s.command("nm").arg(s.path("program"))).text();
    let add = symbols.lines().find_map(|l| l.strip_suffix(" T add"));
    let add = u64::from_str_radix(add.expect(&symbols), 16).unwrap();
    let (_server, port) = server(&s, &trace);
    let mut c = TcpStream::connect(("127.0.0.1", port)).unwrap();
    c.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut say = |packet: &str| said(&mut c, packet);
    assert_eq!(say("QStartNoAckMode"), "OK");
    say("qSupported:xmlRegisters=i386,arm,mips,arc;multiprocess+;fork-events+;vfork-events+");
    for unknown in [
        "QThreadSuffixSupported",
        "QListThreadsInStopReply",
        "qHostInfo",
        "qVAttachOrWaitSupported",
        "QEnableErrorStrings",
        "qProcessInfo",
        "qStructuredDataPlugins",
        "qShlibInfoAddr",
        "qRegisterInfo0",
        "jThreadsInfo",
        "jThreadExtendedInfo:",
        "QSaveRegisterState",
        "qMemoryRegionInfo:401000",
    ] {
        assert_eq!(say(unknown), "", "{unknown}");
    }
    assert!(say("vCont?").starts_with("vCont;c;C;s;S"));
    let threads = say("qfThreadInfo");
    let tid = threads.split('.').nth(1).expect(&threads).to_string();
    assert!(say("?").starts_with("T05"), "it stands at its beginning");
    let registers = say("qXfer:features:read:target.xml:0,1ff");
    assert!(registers.contains("i386:x86-64"), "{registers}");
    assert_eq!(say(&format!("Z0,{add:x},1")), "OK");
    // There was no `Hc` before.
    assert!(say("c").starts_with("T05"));
    assert_eq!(say(&format!("Hg{tid}")), "OK");
    let pc = |answer: String| {
        // A star repeats the character before it. The next character says how often.
        let (mut digits, mut rest) = (String::new(), answer.chars());
        while let Some(d) = rest.next() {
            match (d, digits.chars().last()) {
                ('*', Some(last)) => {
                    let n = rest.next().expect(&answer) as usize - 29;
                    digits.extend(std::iter::repeat_n(last, n));
                }
                _ => digits.push(d),
            }
        }
        u64::from_str_radix(&digits, 16)
            .expect(&answer)
            .swap_bytes()
    };
    assert_eq!(pc(say("p10")), add);
    // The bytes at the stack pointer are known. Bytes that nobody has touched are not.
    assert!(say("x0,0").is_empty());
    assert!(say("m10,8").starts_with('E'));
    assert!(!say(&format!("m{add:x},4")).starts_with('E'));
    assert!(say(&format!("vCont;s:{tid}")).starts_with("T05"));
    assert_ne!(pc(say("p10")), add);
    assert!(say("s").starts_with("T05"), "a step of no named thread");
    assert!(say("c").starts_with("T05"));
    assert_eq!(pc(say("p10")), add);
    assert!(say("bc").starts_with("T05"));
    assert_eq!(pc(say("p10")), add);
    assert_eq!(say(&format!("z0,{add:x},1")), "OK");
    assert!(say("c").contains("replaylog:end"));
}
