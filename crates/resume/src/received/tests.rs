//! Frames that the other half could send if somebody had taken it over.

use super::*;
use hindsight_inspect::state::{MappedRange, Open, OpenKind, ThreadState};
use proptest::prelude::*;

const START: u64 = 0x10_0000;
const SIZE: u64 = 16 * PAGE;

/// A process with two mappings, of which nobody may access the second one, and two files.
fn process() -> ProcessState {
    let mapping = |start: u64, prot: u32| MappedRange {
        start,
        end: start + SIZE,
        prot,
        ..MappedRange::default()
    };
    let file = |stored: u32| Open {
        kind: OpenKind::File {
            path: b"/a".to_vec(),
            stored,
            stat: None,
            unsure: None,
        },
        flags: 0,
        place: Some(0),
        shared: false,
        lock: None,
    };
    ProcessState {
        threads: vec![ThreadState {
            registers: vec![0; 20],
            zmm: vec![0; 2048],
            masks: vec![0; 8],
            x87: vec![0; 128],
            ..ThreadState::default()
        }],
        mappings: vec![mapping(START, 3), mapping(START + SIZE, 0)],
        open: vec![file(0), file(1)],
        descriptors: vec![(3, 0, false), (4, 1, true)],
        ..ProcessState::default()
    }
}

fn any_why() -> impl Strategy<Value = Why> {
    prop_oneof![Just(Why::Needed), Just(Why::Reserved), Just(Why::Left)]
}

fn receive(state: &ProcessState, frames: &[Frame]) -> Result<Received> {
    let mut wire = Vec::new();
    let json = serde_json::to_vec(state).unwrap();
    wire::send(&mut wire, &Frame::State(json)).unwrap();
    frames
        .iter()
        .for_each(|f| wire::send(&mut wire, f).unwrap());
    Received::within(wire.as_slice(), 1 << 20, |_| Ok(()))
}

fn files() -> Vec<Frame> {
    vec![Frame::File(0, Some(4)), Frame::File(1, None)]
}

/// Why these frames are refused.
fn refused(state: &ProcessState, frames: &[Frame]) -> String {
    match receive(state, frames) {
        Ok(_) => panic!("it is taken"),
        Err(e) => e.to_string(),
    }
}

/// What cannot begin is refused before its memory comes.
#[test]
fn a_process_is_refused_before_its_memory() {
    let mut wire = Vec::new();
    let json = serde_json::to_vec(&process()).unwrap();
    wire::send(&mut wire, &Frame::State(json)).unwrap();
    let no = |s: &ProcessState| Err(Error::Refused(format!("{} threads", s.threads.len())));
    let refused = Received::within(wire.as_slice(), 1 << 20, no);
    assert_eq!(refused.err().unwrap().to_string(), "1 threads");
    let gone = Received::within(wire.as_slice(), 1 << 20, |_| Ok(()));
    assert!(matches!(gone, Err(Error::Gone(_))));
}

/// Names of what was renamed are looked up in their order, and there is one kernel's code.
#[test]
fn names_in_no_order_and_the_kernel_twice_are_refused() {
    let mut state = process();
    state.renamed = Some(vec![b"a".to_vec(), b"b".to_vec()]);
    assert!(receive(&state, &[&files()[..], &[Frame::End]].concat()).is_ok());
    state.renamed = Some(vec![b"b".to_vec(), b"a".to_vec()]);
    assert!(refused(&state, &[]).contains("does not fit together"));
    state.renamed = None;
    state
        .mappings
        .iter_mut()
        .for_each(|m| m.name = "[vdso]".into());
    assert!(refused(&state, &[]).contains("the kernel's mappings twice"));
}

#[test]
fn what_can_be_is_taken() {
    let frames = [
        Frame::Memory(START, vec![1; 10]),
        Frame::Memory(START + 10, vec![2; 10]),
        Frame::Unknown(START + 8192, 4096, Why::Needed),
        Frame::Unknown(START + SIZE, SIZE, Why::Reserved),
        Frame::File(0, Some(4)),
        Frame::Content(0, 1, vec![7; 2]),
        Frame::File(1, None),
        Frame::End,
    ];
    let r = receive(&process(), &frames).unwrap();
    assert_eq!(r.memory_at(START + 8, 4).unwrap(), [1, 1, 2, 2]);
    assert_eq!(r.files[0].unseen(4), 2);
    assert_eq!(r.unknown, [(START + 8192, 4096)]);
    assert_eq!(r.reserved, [(START + SIZE, SIZE)]);
}

#[test]
fn memory_is_where_something_is_mapped() {
    let bad = [
        vec![Frame::Memory(START, Vec::new())],
        vec![Frame::Memory(START - 1, vec![0; 2])],
        vec![Frame::Memory(START + SIZE - 1, vec![0; 2])],
        vec![Frame::Memory(u64::MAX, vec![0; 2])],
        vec![
            Frame::Memory(START + 1, vec![0; 2]),
            Frame::Memory(START, vec![0; 2]),
        ],
        vec![Frame::Unknown(START, 0, Why::Needed)],
        vec![Frame::Unknown(START, u64::MAX, Why::Needed)],
        vec![Frame::Unknown(1, 1, Why::Needed)],
        // Memory that can be read is not reserved.
        vec![Frame::Unknown(START, PAGE, Why::Reserved)],
        vec![Frame::Unknown(START + SIZE, PAGE, Why::Needed)],
    ];
    for frames in bad {
        let why = refused(&process(), &frames);
        assert!(why.contains("where nothing is mapped"), "{frames:?}: {why}");
    }
}

#[test]
fn files_come_in_order_and_are_bounded() {
    let content = |n, at, len| Frame::Content(n, at, vec![0; len]);
    let bad = [
        vec![content(0, 0, 1)],
        vec![Frame::File(0, None), content(0, 0, 0)],
        vec![Frame::File(0, None), content(0, 5, 2), content(0, 6, 1)],
        vec![Frame::File(0, None), Frame::File(1, None), content(0, 0, 1)],
        vec![Frame::File(0, None), content(0, u64::MAX, 2)],
    ];
    for frames in bad {
        let why = refused(&process(), &frames);
        assert!(why.contains("files that cannot be"), "{frames:?}: {why}");
    }
    assert!(refused(&process(), &[Frame::File(1, None)]).contains("out of order"));
    let three = [files(), vec![Frame::File(2, None)]].concat();
    assert!(refused(&process(), &three).contains("too many files"));
    assert!(refused(&process(), &[Frame::End]).contains("not told"));
    let large = vec![Frame::Memory(START, vec![1; SIZE as usize]); 1];
    assert!(receive(&process(), &[large, files(), vec![Frame::End]].concat()).is_ok());
    let many: Vec<Frame> = (0..5).map(|i| content(0, i << 18, 1 << 18)).collect();
    let many = [vec![Frame::File(0, None)], many].concat();
    assert!(refused(&process(), &many).contains("a quarter of what this machine has left"));
}

#[test]
fn the_end_must_come() {
    assert!(matches!(receive(&process(), &files()), Err(Error::Gone(_))));
}

#[test]
fn impossible_processes_are_refused() {
    type Change = fn(&mut ProcessState);
    let bad: [(&str, Change); 14] = [
        ("mappings", |s| s.mappings[1].start -= PAGE),
        ("mappings", |s| s.mappings.swap(0, 1)),
        ("mappings", |s| s.mappings[1].end = u64::MAX - PAGE + 1),
        ("mappings", |s| s.mappings[0].end = s.mappings[0].start),
        ("mappings", |s| s.mappings[0].start += 1),
        ("mappings", |s| {
            let m = MappedRange {
                start: 0xffff_ffff_ff60_0000,
                end: 0xffff_ffff_ff60_1000,
                prot: 5,
                name: "[vsyscall]".into(),
                ..MappedRange::default()
            };
            s.mappings.push(m);
        }),
        ("threads", |s| s.threads.clear()),
        ("threads", |s| s.threads[0].zmm.truncate(9)),
        ("descriptors", |s| s.descriptors[1].0 = 3),
        ("descriptors", |s| s.descriptors[0].1 = 2),
        ("descriptors", |s| s.descriptors[1].0 = 1 << 20),
        ("descriptors", |s| s.open[0].kind = OpenKind::Standard(3)),
        ("fit together", |s| s.notes = vec![String::new(); 5000]),
        ("fit together", |s| s.lost = vec!["x".repeat(5000)]),
    ];
    for (n, (what, change)) in bad.into_iter().enumerate() {
        let mut state = process();
        change(&mut state);
        let why = refused(&state, &[Frame::End]);
        assert!(why.contains(what), "{n}: {why}");
    }
}

fn frame() -> impl Strategy<Value = Frame> {
    let at = prop_oneof![START - 2..START + 2 * SIZE + 2, any::<u64>()];
    let len = prop_oneof![0..2 * SIZE, any::<u64>()];
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        (at.clone(), bytes()).prop_map(|(at, b)| Frame::Memory(at, b)),
        (at, len, any_why()).prop_map(|(at, len, why)| Frame::Unknown(at, len, why)),
        (0u32..3, any::<Option<u64>>()).prop_map(|(n, size)| Frame::File(n, size)),
        (0u32..3, 0u64..100, bytes()).prop_map(|(n, at, b)| Frame::Content(n, at, b)),
        Just(Frame::End),
        Just(Frame::State(b"{}".to_vec())),
    ]
}

proptest! {
    /// Whatever is taken lies in mappings, in order.
    #[test]
    fn any_frames_are_taken_or_refused(frames in proptest::collection::vec(frame(), 0..12)) {
        if let Ok(r) = receive(&process(), &frames) {
            let all = r.memory.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0);
            prop_assert!(all && r.memory.iter().all(|m| m.0 >= START && m.0 + m.1 <= START + 2 * SIZE));
            prop_assert!(r.files.iter().all(|f| f.known.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0)));
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes: Vec<u8>) {
        prop_assert!(Received::within(bytes.as_slice(), 1 << 20, |_| Ok(())).is_err());
    }
}
