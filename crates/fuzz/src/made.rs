//! Recordings that nobody recorded: chunks with correct checksums and any content.

use hindsight_events::{Encoder, EndKind, Event, MAX_EVENT};
use hindsight_isa::regs::{RCX, RDI, RSP};
use hindsight_isa::{CpuState, VecState};
use hindsight_trace::chunk::{ChunkHeader, Codec, FLAG_KEY_FRAME, HEADER_LEN, Kind, unpack};
use hindsight_trace::columns::{ChunkBuilder, Content, Pushed};
use hindsight_trace::meta::Ending;
use hindsight_trace::{
    Header, ModuleHash, ModuleInfo, StreamInfo, StreamKind, StreamSummary, Summary, Text,
};
use xxhash_rust::xxh3::xxh3_64;

/// The address of the code in these recordings.
pub const PC: u64 = 0x40_0000;

/// A trace in the making, chunk by chunk.
#[derive(Default)]
pub struct Made {
    pub bytes: Vec<u8>,
    modules: u32,
}

/// A chunk with this content. It is compressed if that saves room.
pub fn chunk(mut h: ChunkHeader, raw: &[u8]) -> Vec<u8> {
    let packed = (raw.len() > 1 << 12).then(|| hindsight_compress::pack(raw, 1).unwrap());
    let stored = packed.as_deref().unwrap_or(raw);
    h.codec = match packed {
        Some(_) => Codec::Zstd,
        None => Codec::Plain,
    };
    (h.stored_len, h.raw_len) = (stored.len() as u32, raw.len() as u32);
    h.checksum = xxh3_64(stored);
    [&h.to_bytes()[..], stored].concat()
}

/// The chunks of a trace: headers and raw contents. Those that refer to others are as they are stored.
pub fn chunks(bytes: &[u8]) -> Vec<(ChunkHeader, Vec<u8>)> {
    let (mut at, mut out) = (0, Vec::new());
    while let Some(b) = bytes.get(at..).and_then(|b| b.first_chunk()) {
        let h = ChunkHeader::from_bytes(b, at as u64).unwrap();
        let from = at + HEADER_LEN;
        at = from + h.stored_len as usize;
        let stored = bytes[from..at].to_vec();
        let raw = match h.codec {
            // Its content needs other chunks.
            Codec::Copies => stored,
            _ => unpack(&h, from as u64, stored).unwrap(),
        };
        out.push((h, raw));
    }
    out
}

pub fn encode(events: &[(u64, Event)]) -> Vec<u8> {
    let mut e = Encoder::default();
    let mut buf = vec![0; MAX_EVENT];
    let mut out = Vec::new();
    for (pos, event) in events {
        let n = e.encode(*pos, event, &mut buf);
        out.extend_from_slice(&buf[..n]);
    }
    out
}

/// The registers with which these programs begin.
pub fn start(rcx: u64, rdi: u64) -> CpuState {
    let mut s = CpuState {
        rip: PC,
        ..CpuState::default()
    };
    s.gpr[RCX] = rcx;
    s.gpr[RSP] = 0x7fff_0000_8000;
    s.gpr[RDI] = rdi;
    s
}

impl Made {
    pub fn new(header: &Header) -> Made {
        let mut made = Made::default();
        made.json(Kind::Header, 0, 0, header);
        made
    }

    pub fn json(&mut self, kind: Kind, stream: u32, sequence: u32, what: &impl serde::Serialize) {
        let h = ChunkHeader {
            stream,
            sequence,
            ..ChunkHeader::blank(kind)
        };
        self.bytes
            .extend(chunk(h, &serde_json::to_vec(what).unwrap()));
    }

    pub fn begin(&mut self, stream: u32, kind: StreamKind, image: u32, parent: u32) {
        let info = StreamInfo {
            stream,
            kind,
            image,
            parent,
            pid: 70 + image as i32,
            tid: 70 + stream as i32,
            ..StreamInfo::default()
        };
        self.json(Kind::Begin, stream, 0, &info);
    }

    /// Adds events as chunks of a stream. The first chunk gets the number `sequence`. Returns the next number.
    pub fn events(&mut self, stream: u32, mut sequence: u32, events: &[(u64, Event)]) -> u32 {
        let wire = encode(events);
        let (mut at, mut builder) = (0, ChunkBuilder::default());
        loop {
            let (n, how) = builder.push(&wire[at..], |_, _| None);
            at += n;
            let mut content = Content::default();
            builder.take(&mut content);
            let h = ChunkHeader {
                flags: if content.keyframe { FLAG_KEY_FRAME } else { 0 },
                stream,
                sequence,
                events: content.events,
                first_pos: content.first_pos,
                last_pos: content.last_pos,
                ..ChunkHeader::blank(Kind::Stream)
            };
            self.bytes.extend(chunk(h, &content.raw));
            sequence += 1;
            match how {
                Pushed::Full => {}
                Pushed::More => return sequence,
                Pushed::Common | Pushed::Bad => panic!("these are no events"),
            }
        }
    }

    pub fn module(&mut self, path: impl Into<Text>, hash: ModuleHash, size: u64) {
        let info = ModuleInfo {
            path: path.into(),
            hash,
            size,
            shared: false,
        };
        self.json(Kind::Module, 0, self.modules, &info);
        self.modules += 1;
    }

    pub fn piece(&mut self, sequence: u32, offset: u64, size: u64, raw: &[u8]) {
        let h = ChunkHeader {
            sequence,
            first_pos: offset,
            last_pos: size,
            ..ChunkHeader::blank(Kind::Piece)
        };
        self.bytes.extend(chunk(h, raw));
    }

    /// Ends the trace. `ends` has the streams with their numbers of chunks.
    pub fn finish(mut self, ends: &[(u32, u32)], summary: Summary) -> Vec<u8> {
        for (stream, chunks) in ends {
            let s = StreamSummary {
                stream: *stream,
                pid: 71,
                tid: 70 + *stream as i32,
                ..StreamSummary::default()
            };
            self.json(Kind::End, *stream, *chunks, &s);
        }
        self.json(Kind::Summary, 0, 0, &summary);
        self.bytes
    }
}

pub fn header() -> Header {
    Header {
        name: "made".into(),
        exe: "/bin/made".into(),
        argv: vec!["made".into()],
        cwd: "/".into(),
        predictor_bits: 32,
        transcendental: true,
        ..Header::default()
    }
}

pub fn summary() -> Summary {
    Summary {
        ending: Some(Ending::Exit(0)),
        ..Summary::default()
    }
}

/// A recording of one thread that executes `code`, beginning with these registers. `events` follow its key frame, then
/// comes the end. `image` has events of the program image, besides the code.
pub fn program(
    code: &[u8],
    regs: &CpuState,
    image: &[(u64, Event)],
    events: &[(u64, Event)],
    end: u64,
    summary: Summary,
) -> Vec<u8> {
    let mut made = Made::new(&header());
    program_in(&mut made, code, regs, image, events, end);
    let list = chunks(&made.bytes);
    let of = |s: u32| {
        let own = |c: &&(ChunkHeader, Vec<u8>)| c.0.kind == Kind::Stream && c.0.stream == s;
        list.iter().filter(own).count() as u32
    };
    made.finish(&[(1, of(1)), (2, of(2))], summary)
}

/// The same without an end of the trace.
pub fn program_in(
    made: &mut Made,
    code: &[u8],
    regs: &CpuState,
    image: &[(u64, Event)],
    events: &[(u64, Event)],
    end: u64,
) {
    // The bytes after the code are decoded with it.
    let code = [code, &[0x90; 16]].concat();
    made.begin(1, StreamKind::Image, 1, 0);
    let mut all = image.to_vec();
    all.push((
        0,
        Event::Code {
            epoch: 0,
            addr: PC,
            bytes: &code,
        },
    ));
    made.events(1, 0, &all);
    made.begin(2, StreamKind::Thread, 1, 0);
    let (cpu, vec) = (regs.to_bytes(), VecState::default().to_bytes());
    let mut all = vec![(
        0,
        Event::KeyFrame {
            code_epoch: 0,
            cpu: &cpu,
            vec: &vec,
        },
    )];
    all.extend_from_slice(events);
    all.push((
        end,
        Event::End {
            kind: EndKind::Exit,
            code: 0,
            message: b"",
        },
    ));
    made.events(2, 0, &all);
}
