//! What the half of `resume` says that reads the recording, if somebody has taken it over.

use hindsight_inspect::ProcessState;
use hindsight_inspect::state::{MappedRange, Open, OpenKind, ThreadState};
use hindsight_resume::Received;

/// A frame: its kind, two numbers, its bytes.
fn frame(kind: u8, a: u64, b: u64, bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u32).to_le_bytes();
    [&[kind][..], &a.to_le_bytes(), &b.to_le_bytes(), &len, bytes].concat()
}

fn state() -> Vec<u8> {
    let mapping = |start: u64, prot: u32| MappedRange {
        start,
        end: start + 0x4000,
        prot,
        ..MappedRange::default()
    };
    let open = |kind: OpenKind| Open {
        kind,
        flags: 0,
        place: Some(0),
        shared: false,
        lock: None,
    };
    let file = OpenKind::File {
        path: b"/etc/hostname".to_vec(),
        stored: 0,
        stat: None,
        unsure: None,
    };
    let state = ProcessState {
        threads: vec![ThreadState {
            registers: vec![0; 20],
            zmm: vec![0; 2048],
            masks: vec![0; 8],
            x87: vec![0; 128],
            ..ThreadState::default()
        }],
        mappings: vec![mapping(0x1_0000, 3), mapping(0x2_0000, 0)],
        open: vec![open(OpenKind::Standard(0)), open(file)],
        descriptors: vec![(0, 0, false), (3, 1, true)],
        ..ProcessState::default()
    };
    serde_json::to_vec(&state).unwrap_or_default()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let frames = [
        frame(0, 0, 0, &state()),
        frame(1, 0x1_0000, 0, &[1; 16]),
        frame(2, 0x1_1000, 0x1000, &[]),
        frame(3, 0x2_0000, 0x4000, &[]),
        frame(5, 0, 8, &[]),
        frame(6, 0, 2, b"text"),
        frame(7, 0, 0, &[]),
    ];
    let part = frames[..2].concat();
    vec![frames.concat(), part]
}

pub fn run(bytes: &[u8]) {
    let Ok(r) = Received::from(bytes, |_| Ok(())) else {
        return;
    };
    let all = &r.state.mappings;
    assert!(all.windows(2).all(|w| w[0].end <= w[1].start));
    assert!(all.iter().all(|m| m.start < m.end && m.end < 1 << 47));
    let count = r.state.open.len();
    assert!(r.state.descriptors.iter().all(|d| (d.1 as usize) < count));
}
