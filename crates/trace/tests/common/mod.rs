//! Makes events and traces for tests.
#![allow(dead_code)] // each test file uses its own part

use hindsight_events::event::selected;
use hindsight_events::{Encoder, EndKind, Event, GapReason, MAX_EVENT};
use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};
use hindsight_trace::meta::Ending;
use hindsight_trace::{
    ChunkBuilder, Header, Pushed, StreamInfo, StreamKind, Summary, Text, Writer,
};

/// A small random number generator with the same numbers on every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A number of any size.
    pub fn any(&mut self) -> u64 {
        let shift = self.below(64);
        self.next() >> shift
    }

    pub fn bytes(&mut self, max: u64) -> Vec<u8> {
        let n = self.below(max + 1);
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Masks of patches, all of them different.
static MASKS: [u8; 64] = {
    let (mut masks, mut i) = ([0; 64], 0);
    while i < 64 {
        masks[i] = (i as u8).wrapping_mul(37);
        i += 1;
    }
    masks
};
static WORDS: [u8; 4 * 64] = [0x5a; 4 * 64];

/// Events of all kinds in wire form, as one stream.
pub fn wire(r: &mut Random, events: usize) -> Vec<u8> {
    let mut enc = Encoder::default();
    let mut buf = vec![0; MAX_EVENT];
    let mut out = Vec::new();
    let mut pos = 0;
    for _ in 0..events {
        pos += r.below(1 << 20);
        let cpu: [u8; CPU_STATE_LEN] = std::array::from_fn(|_| r.next() as u8);
        let vec: [u8; VEC_STATE_LEN] = std::array::from_fn(|_| r.next() as u8);
        let bytes = r.bytes(8192);
        let n = enc.encode(pos, &event(r, &cpu, &vec, &bytes), &mut buf);
        out.extend_from_slice(&buf[..n]);
    }
    out
}

fn event<'a>(
    r: &mut Random,
    cpu: &'a [u8; CPU_STATE_LEN],
    vec: &'a [u8; VEC_STATE_LEN],
    bytes: &'a [u8],
) -> Event<'a> {
    match r.below(45) {
        kind @ (11..=14 | 18..=22) => with_bytes(r, kind, bytes),
        0 => Event::PatchBytes {
            addr: r.any(),
            len: 1 + r.below(8) as u8,
            value: r.any(),
        },
        1 => Event::Syscall {
            nr: r.below(400),
            args: std::array::from_fn(|_| r.any()),
        },
        2 => Event::SyscallRet { ret: r.any() },
        3 => {
            let mask = r.below(1 << 19) as u32;
            let values = std::array::from_fn(|i| if mask & 1 << i != 0 { r.any() } else { 0 });
            Event::Regs {
                mask,
                ilen: r.below(16) as u8,
                values,
            }
        }
        4 => Event::RepChunk {
            iterations: r.any(),
        },
        5 => Event::Signal {
            signo: r.below(65) as u8,
            code: r.next() as i32,
            addr: r.any(),
        },
        6 => Event::SetState { cpu, vec },
        7 => Event::Zero {
            addr: r.any(),
            len: r.any(),
        },
        8 => Event::KeyFrame {
            code_epoch: r.any(),
            cpu,
            vec,
        },
        9 => Event::Digest {
            cpu: r.next(),
            vec: r.next(),
        },
        10 => Event::CodeEpoch { epoch: r.any() },
        15 => Event::Seq { number: r.any() },
        16 => Event::GapBegin {
            reason: GapReason::ALL[r.below(3) as usize],
        },
        17 => {
            let mask = r.below(1 << 20) as u32;
            Event::GapEnd {
                mask,
                values: std::array::from_fn(|i| if mask & 1 << i != 0 { r.any() } else { 0 }),
                parts: r.any(),
                vec: bytes,
            }
        }
        23 => {
            let masks = &MASKS[r.below(60) as usize..][..1 + r.below(4) as usize];
            Event::Lines {
                line: (r.any() & !4095) + 64 * r.below(60),
                masks,
                words: &WORDS[..selected(masks)],
            }
        }
        _ => {
            let mask = r.next() as u8;
            let words = std::array::from_fn(|i| if mask & 1 << i != 0 { r.any() } else { 0 });
            Event::Patch {
                line: r.any() & !63,
                mask,
                words,
            }
        }
    }
}

/// Events that carry bytes, and others of memory and code.
fn with_bytes<'a>(r: &mut Random, kind: u64, bytes: &'a [u8]) -> Event<'a> {
    match kind {
        11 => Event::End {
            kind: EndKind::Signal,
            code: r.below(65) as u32,
            message: bytes,
        },
        12 => Event::Code {
            epoch: r.any(),
            addr: r.any(),
            bytes,
        },
        13 => Event::Map {
            addr: r.any(),
            len: r.any(),
            prot: r.below(8) as u32,
            flags: r.any() as u32,
            offset: r.any(),
            object: r.any(),
            path: bytes,
        },
        18 => Event::Mark {
            name: r.below(bytes.len() as u64 + 1) as usize,
            bytes,
        },
        22 => Event::X87 {
            ilen: 1 + r.below(15) as u8,
            status: r.next() as u16,
            tags: r.next() as u8,
            registers: bytes,
        },
        19 => Event::CodeFrom { epoch: r.any() },
        21 => Event::Restate {
            ends: false,
            back: r.below(5),
        },
        20 => Event::CodeOf {
            epoch: r.any(),
            addr: r.any(),
            len: r.below(4097) as u32,
            module: r.next() as u32,
            offset: r.any(),
        },
        _ => Event::Unmap {
            addr: r.any(),
            len: r.any(),
        },
    }
}

/// A trace with two streams and two modules, and the wire form of the streams.
pub fn trace(r: &mut Random, events: usize) -> (Vec<u8>, [Vec<u8>; 2]) {
    let header = Header {
        name: "prog".into(),
        argv: vec![Text::from("prog"), Text::from(&b"\xff\xfe"[..])],
        ..Header::default()
    };
    let mut w = Writer::new(Vec::new(), &header).unwrap();
    let streams = [wire(r, events), wire(r, events)];
    w.module(Text::from("/bin/prog"), &vec![7; 3 << 20])
        .unwrap();
    w.module(Text::from("/lib/other"), &r.bytes(10_000))
        .unwrap();
    w.module(Text::from("/bin/link"), &vec![7; 3 << 20])
        .unwrap();
    for (id, wire) in streams.iter().enumerate() {
        write_stream(&mut w, id as u32, wire);
    }
    let summary = Summary {
        ending: Some(Ending::Exit(3)),
        ..Summary::default()
    };
    (w.finish(summary).unwrap().0, streams)
}

/// The description of a stream.
pub fn info(stream: u32, kind: StreamKind, image: u32, parent: u32, pid: i32) -> StreamInfo {
    StreamInfo {
        stream,
        kind,
        image,
        parent,
        pid,
        tid: pid,
        ..StreamInfo::default()
    }
}

/// Writes a stream in chunks, after its description.
pub fn write_stream(w: &mut Writer<Vec<u8>>, id: u32, wire: &[u8]) {
    let kind = if id == 0 {
        StreamKind::Image
    } else {
        StreamKind::Thread
    };
    w.begin(&info(id, kind, 1, 0, 77)).unwrap();
    let mut b = ChunkBuilder::default();
    let mut at = 0;
    loop {
        let (n, pushed) = b.push(&wire[at..], |_, _| None);
        at += n;
        w.stream(id, &mut b).unwrap();
        match pushed {
            Pushed::Full => {}
            Pushed::More => break,
            Pushed::Common | Pushed::Bad => panic!("bad event at {at}"),
        }
    }
    assert_eq!(at, wire.len());
}
