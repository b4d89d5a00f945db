//! The loop between a client and a session.

use crate::filter::{self, Framer, Incoming, MAX_PACKET, Outgoing};
use crate::program::libraries;
use crate::route::{Routed, Router};
use crate::state::forks::Wanted;
use crate::state::session::Session;
use crate::state::stops::Break;
use crate::state::{agent, signals};
use crate::{Error, Result, siginfo, tls};
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::{GdbStubBuilder, GdbStubError};
use hindsight_guard::wait;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Items of what a client has said that wait for an answer. A client waits for each answer, so there are few.
const MOST_WAITING: usize = 256;
/// How long a client that has said so much is waited with before it is left.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a silent client is waited for; `None`: for ever.
#[derive(Clone, Copy, Default, Debug)]
pub struct Patience {
    /// Until its first packet.
    pub hello: Option<Duration>,
    /// Later.
    pub silence: Option<Duration>,
}

impl Patience {
    /// Waits for the first bytes.
    ///
    /// # Errors
    /// They do not come.
    pub fn hear(&self, from: &impl AsRawFd) -> Result<()> {
        match wait(&[from.as_raw_fd()], self.hello)?[0] {
            true => Ok(()),
            false => Err(silent()),
        }
    }
}

fn silent() -> Error {
    Error::Protocol("it says nothing".into())
}

/// Reads what a client says, and hands it over as long as somebody wants it; why it ends, if not because the client went.
fn listen(
    mut from: impl Read + AsRawFd,
    patience: Patience,
    send: &SyncSender<Incoming>,
    interrupt: impl Fn(),
) -> Option<Error> {
    let (mut framer, mut buf) = (Framer::default(), [0; 4096]);
    // Until it has said a whole packet, what it says besides counts for nothing.
    let mut hello = patience.hello.map(|t| Instant::now() + t);
    loop {
        let longest = match hello {
            Some(until) => Some(until.saturating_duration_since(Instant::now())),
            None => patience.silence,
        };
        match wait(&[from.as_raw_fd()], longest) {
            Ok(ready) if ready[0] => {}
            // A signal came, or the time is over.
            Ok(_) if longest.is_none() => continue,
            Ok(_) => return Some(silent()),
            Err(e) => return Some(e.into()),
        }
        let Ok(n @ 1..) = from.read(&mut buf) else {
            return None;
        };
        for item in buf[..n].iter().filter_map(|b| framer.push(*b)) {
            match item {
                Incoming::Interrupt => interrupt(),
                Incoming::Packet(_) => hello = None,
                Incoming::Pass(_) => {}
            }
            let since = Instant::now();
            let mut item = item;
            while let Err(e) = send.try_send(item) {
                item = match e {
                    TrySendError::Full(item) if since.elapsed() < PATIENCE => item,
                    TrySendError::Full(_) => {
                        return Some(Error::Protocol("it says more than is answered".into()));
                    }
                    TrySendError::Disconnected(_) => return None,
                };
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Talks to one client until it leaves. `from` is read by a thread of its own, so that an interrupt
/// is noticed while the session runs.
pub fn serve(
    session: &mut Session,
    from: impl Read + AsRawFd + Send + 'static,
    to: impl Write,
    patience: &Patience,
) -> Result<()> {
    let (send, incoming) = sync_channel(MOST_WAITING);
    let (cancel, patience) = (session.cancel.clone(), *patience);
    let (say_why, why) = channel();
    std::thread::spawn(move || {
        let end = listen(from, patience, &send, || cancel.cancel());
        // The client is gone, or speaks to nobody: what runs is of no use.
        cancel.cancel();
        if let Some(e) = end {
            let _ = say_why.send(e);
        }
    });
    let mut buffer = vec![0; MAX_PACKET];
    let stub = GdbStubBuilder::new(Outgoing::new(to))
        .with_packet_buffer(&mut buffer)
        .build()
        .map_err(|e| Error::Protocol(e.to_string()))?;
    let machine = stub.run_state_machine(session).map_err(failed)?;
    let done = run(session, machine, &incoming);
    match why.try_recv() {
        Ok(e) => Err(e),
        Err(_) => done,
    }
}

fn failed(e: GdbStubError<Error, std::io::Error>) -> Error {
    if e.is_target_error() {
        return e
            .into_target_error()
            .unwrap_or(Error::Protocol("unknown".into()));
    }
    match e.is_connection_error() {
        true => e
            .into_connection_error()
            .map_or(Error::Protocol("unknown".into()), |(e, _)| e.into()),
        false => Error::Protocol(e.to_string()),
    }
}

fn run<W: Write>(
    session: &mut Session,
    mut machine: GdbStubStateMachine<'_, Session, Outgoing<W>>,
    incoming: &Receiver<Incoming>,
) -> Result<()> {
    let interrupt = session.interrupt();
    let mut router = Router::default();
    loop {
        interrupt.end();
        machine = match machine {
            GdbStubStateMachine::Idle(mut idle) => {
                match incoming.recv().inspect(|_| interrupt.begin()) {
                    Err(_) => return Ok(()),
                    Ok(Incoming::Interrupt) => {
                        session.cancel.reset();
                        idle.into()
                    }
                    Ok(Incoming::Pass(bytes)) => feed(session, idle.into(), &bytes)?,
                    Ok(Incoming::Packet(packet)) => {
                        let content = filter::content(&packet);
                        let routed = router.look(session, content).unwrap_or_else(|e| {
                            session.trouble = Some(e.to_string());
                            Routed::Answer(b"E01")
                        });
                        let before = match routed {
                            Routed::Answer(answer) => {
                                idle.borrow_conn().answer(answer)?;
                                machine = idle.into();
                                continue;
                            }
                            Routed::Instead(other) => {
                                machine = feed(session, idle.into(), &filter::frame(&other))?;
                                continue;
                            }
                            Routed::Pass(before) => before,
                        };
                        if filter::is_own(content, session.wanted.execs) {
                            let (words, answer) = match content.strip_prefix(b"qRcmd,") {
                                Some(command) => command_answer(session, command),
                                None => (None, own(session, content)),
                            };
                            idle.borrow_conn().answer_with(words.as_deref(), &answer)?;
                            machine = idle.into();
                            continue;
                        }
                        let out = idle.borrow_conn();
                        if content.starts_with(b"qSupported") {
                            out.supported = true;
                            session.wanted = Wanted::of(content);
                        }
                        out.no_ack |= content == b"QStartNoAckMode";
                        let mut machine = GdbStubStateMachine::Idle(idle);
                        if let Some(before) = before {
                            machine = unheard(session, machine, &before)?;
                        }
                        feed(session, machine, &packet)?
                    }
                }
            }
            GdbStubStateMachine::Running(mut running) => {
                let told = session.go();
                router.stopped();
                session.cancel.reset();
                let told = match told {
                    Ok(told) => told,
                    Err(e) => {
                        // The client is told that it stopped, and its user why; `monitor why` says it again.
                        session.notes.push(format!("[this run ended early: {e}]"));
                        session.trouble = Some(e.to_string());
                        session.stopped()
                    }
                };
                for note in std::mem::take(&mut session.notes) {
                    running.borrow_conn().console(&note)?;
                }
                running.borrow_conn().event = session.event.take();
                running.report_stop(session, told).map_err(failed)?
            }
            GdbStubStateMachine::CtrlCInterrupt(c) => {
                let told = session.stopped();
                c.interrupt_handled(session, Some(told)).map_err(failed)?
            }
            GdbStubStateMachine::Disconnected(_) => return Ok(()),
        };
    }
}

type Machine<'a, W> = GdbStubStateMachine<'a, Session, Outgoing<W>>;

/// Gives the library what came in.
fn feed<'a, W: Write>(
    session: &mut Session,
    mut machine: Machine<'a, W>,
    bytes: &[u8],
) -> Result<Machine<'a, W>> {
    for b in bytes {
        machine = match machine {
            GdbStubStateMachine::Idle(i) => i.incoming_data(session, *b).map_err(failed)?,
            GdbStubStateMachine::Running(r) => r.incoming_data(session, *b).map_err(failed)?,
            other => other,
        };
    }
    Ok(machine)
}

/// The same with a packet of which the client has been answered.
fn unheard<'a, W: Write>(
    session: &mut Session,
    machine: Machine<'a, W>,
    content: &[u8],
) -> Result<Machine<'a, W>> {
    let mute = |machine: Machine<'a, W>, on| match machine {
        GdbStubStateMachine::Idle(mut i) => {
            i.borrow_conn().mute = on;
            i.into()
        }
        other => other,
    };
    let machine = feed(session, mute(machine, true), &filter::frame(content))?;
    Ok(mute(machine, false))
}

/// Answers what the library does not know.
fn own(session: &mut Session, packet: &[u8]) -> Vec<u8> {
    if let Some(list) = packet.strip_prefix(b"QPassSignals:") {
        let list = String::from_utf8_lossy(list);
        let numbers = list
            .split(';')
            .filter_map(|n| u8::from_str_radix(n, 16).ok());
        session.passed = numbers.filter_map(signals::from_gdb).collect();
        return b"OK".to_vec();
    }
    if packet.starts_with(b"qXfer:siginfo:read:") {
        return match session.inferior.signal {
            Some(s) => filter::answer_read(packet, &siginfo::of(session, s)),
            None => b"E01".to_vec(),
        };
    }
    if let Some(arguments) = packet.strip_prefix(b"qGetTLSAddr:") {
        return match tls::address(session, arguments) {
            Ok(Some(address)) => format!("{address:x}").into_bytes(),
            Ok(None) | Err(_) => b"E01".to_vec(),
        };
    }
    if packet.starts_with(b"qXfer:threads:read:") {
        return match threads(session) {
            Ok(list) => filter::answer_read(packet, list.as_bytes()),
            Err(_) => b"E01".to_vec(),
        };
    }
    breakpoint(session, packet).map_or(b"E01".to_vec(), |()| b"OK".to_vec())
}

/// What a `monitor` command prints, if that goes before the answer, and the answer. It is one packet if it can be: gdb
/// leaves the second one in the stream if it is interrupted between two. But where a command failed, gdb is to know,
/// and end the script that it stands in; all its versions take an error only without words. (What the user
/// interrupted ends gdb's scripts by itself.)
fn command_answer(session: &mut Session, command: &[u8]) -> (Option<String>, Vec<u8>) {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let line: Option<Vec<u8>> = command.chunks(2).map(byte).collect();
    let Some(line) = line else {
        return (None, b"E01".to_vec());
    };
    let done = crate::monitor::run(session, &String::from_utf8_lossy(&line));
    match (done.well || done.cancelled, done.text.is_empty()) {
        (true, true) => (None, b"OK".to_vec()),
        (true, false) => (None, filter::hex(&done.text)),
        (false, _) => (Some(done.text), b"E01".to_vec()),
    }
}

/// `Z0,addr,kind;X…`: a breakpoint with conditions.
fn breakpoint(session: &mut Session, packet: &[u8]) -> Option<()> {
    let split = packet.iter().position(|b| *b == b';')?;
    let conditions = agent::parse(&packet[split..])?;
    let mut head = std::str::from_utf8(&packet[..split]).ok()?.split(',');
    let hardware = head.next()? == "Z1";
    let address = u64::from_str_radix(head.next()?, 16).ok()?;
    session.set_break(Break {
        address,
        hardware,
        conditions,
    });
    Some(())
}

fn threads(session: &mut Session) -> Result<String> {
    let mut out = String::from("<threads>");
    for (inferior, id) in session.all_live()? {
        let name = libraries::escape(&inferior.name(&session.timeline, id)?);
        let label = session.thread_label(inferior, id);
        out += &format!(r#"<thread id="{label}" name="{name}">stream {id}</thread>"#);
    }
    Ok(out + "</threads>")
}
