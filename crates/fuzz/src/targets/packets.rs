//! What comes through gdb's connection, without a recording behind it.

use super::gdb::SESSIONS;
use hindsight_packets::{Framer, Incoming, MAX_DATA, MAX_PACKET, Request, frame};

/// Bytes of a request as text, at most, for each byte of its packet. What a number in a packet says takes no memory.
const MOST_TEXT: usize = 200;

pub fn seeds() -> Vec<Vec<u8>> {
    let lines = SESSIONS.iter().flat_map(|s| s.split('\n'));
    let mut all: Vec<Vec<u8>> = lines.map(|l| l.as_bytes().to_vec()).collect();
    // A whole session on the line, with acknowledgements and an interrupt.
    let session = SESSIONS[0].split('\n').map(|l| frame(l.as_bytes()));
    all.push(session.collect::<Vec<_>>().join(&b"+"[..]));
    all.push(b"\x03-$g#67$m100000,4".to_vec());
    all
}

/// Parses the content of a packet, and answers it if that takes no recording.
fn parse(packet: &[u8]) {
    let Ok(request) = Request::parse(packet) else {
        return;
    };
    let shown = format!("{request:?}").len();
    assert!(
        shown <= MOST_TEXT * (packet.len() + 1),
        "{shown} bytes of text for a packet of {}",
        packet.len()
    );
    if let Request::Transfer(t) = request {
        let whole = [b'}'; 300];
        let answer = t.answer(&whole);
        assert!(answer.content().len() <= 2 * whole.len().min(MAX_DATA) + 1);
    }
}

pub fn run(bytes: &[u8]) {
    let mut framer = Framer::default();
    for item in bytes.iter().filter_map(|b| framer.push(*b)) {
        if let Incoming::Packet(content) = item {
            assert!(content.len() <= MAX_PACKET && content.len() < bytes.len());
            parse(&content);
        }
    }
    parse(bytes);
    // What is framed comes out again, whatever came before, unless it has what begins or ends a frame.
    if bytes.len() <= MAX_PACKET && !bytes.iter().any(|b| b"$#".contains(b)) {
        let framed = frame(bytes);
        let mut items = framed.iter().filter_map(|b| framer.push(*b));
        let whole = items.find(|i| matches!(i, Incoming::Packet(_)));
        assert_eq!(whole, Some(Incoming::Packet(bytes.to_vec())));
    }
}
