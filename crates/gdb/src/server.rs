//! The loop between a client and a session.

use crate::answers::{Answers, Next};
use crate::state::session::Session;
use crate::{Error, Result};
use hindsight_packets::{Incoming, Listener, MAX_WAITING, Patience, Sender};
use hindsight_text::line;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, channel, sync_channel};

/// Talks to one client until it leaves. A thread of its own reads `from`, so that an interrupt is noticed while the
/// session runs.
///
/// # Errors
/// The connection fails, or the client does not keep to the protocol.
pub fn serve(
    session: &mut Session,
    from: impl Read + AsRawFd + Send + 'static,
    to: impl Write,
    patience: &Patience,
) -> Result<()> {
    let (send, incoming) = sync_channel(MAX_WAITING);
    let (cancel, listener) = (session.cancel.clone(), Listener::new(from, *patience));
    let (say_why, why) = channel();
    std::thread::spawn(move || {
        let end = listener.run(&send, || cancel.cancel());
        // The client is gone, or speaks to nobody: what runs is of no use.
        cancel.cancel();
        if let Err(e) = end {
            let _ = say_why.send(e);
        }
    });
    let done = talk(session, Sender::new(to), &incoming);
    match why.try_recv() {
        Ok(e) => Err(e.into()),
        Err(_) => done,
    }
}

fn talk(
    session: &mut Session,
    mut sender: Sender<impl Write>,
    incoming: &Receiver<Incoming>,
) -> Result<()> {
    let interrupt = session.interrupt();
    let mut answers = Answers::default();
    // While the user looks, the index is made that the next question needs.
    let mut background = session.timeline.index_in_background();
    let mut renewals = session.renewals;
    loop {
        if renewals != session.renewals {
            renewals = session.renewals;
            let new = session.timeline.index_in_background();
            drop(std::mem::replace(&mut background, new));
        }
        interrupt.end();
        let Ok(item) = incoming.recv() else {
            return Ok(());
        };
        interrupt.begin();
        let timeline = session.timeline.clone();
        let _asking = timeline.asking();
        let packet = match item {
            Incoming::Packet(packet) => packet,
            Incoming::Interrupt => {
                // Nothing runs any more.
                session.cancel.reset();
                continue;
            }
            Incoming::Received => continue,
            Incoming::Again => {
                sender.repeat()?;
                continue;
            }
            Incoming::Damaged if sender.has_acks() => {
                sender.refuse()?;
                continue;
            }
            Incoming::Damaged => return Err(protocol("a packet's checksum is wrong")),
            Incoming::TooLong => return Err(protocol("a packet is too long")),
            Incoming::Stray(byte) => {
                return Err(protocol(&format!("byte {byte:#04x} is outside of packets")));
            }
        };
        match answers.next(session, &packet) {
            Next::Answer(answer) => sender.answer(&answer)?,
            Next::Show(text, answer) => sender.answer_with(Some(&text), &answer)?,
            Next::StopAcks(answer) => {
                sender.answer(&answer)?;
                sender.stop_acks();
            }
            Next::Leave(answer) => {
                sender.answer(&answer)?;
                return Ok(());
            }
            Next::Run => {
                sender.acknowledge()?;
                interrupt.end();
                run(session, &mut answers, &mut sender)?;
            }
        }
    }
}

/// Runs until there is something to tell, and tells it.
fn run(
    session: &mut Session,
    answers: &mut Answers,
    sender: &mut Sender<impl Write>,
) -> Result<()> {
    let told = session.go();
    session.cancel.reset();
    let told = told.unwrap_or_else(|e| {
        // The client is told that the program stopped, and its user why; `monitor why` says it again.
        session.notes.push(format!("[this run ended early: {e}]"));
        session.trouble = Some(e.to_string());
        session.stopped()
    });
    for note in std::mem::take(&mut session.notes) {
        sender.show(&format!("{}\n", line(&note)))?;
    }
    sender.send(&answers.stopped(session, told))?;
    Ok(())
}

fn protocol(what: &str) -> Error {
    hindsight_packets::Error::Protocol(what.into()).into()
}
