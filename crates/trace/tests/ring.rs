//! The latest part of a recording: what is dropped, and whether the rest is a whole trace.

mod common;

use common::{Random, info};
use hindsight_events::{Decoder, Encoder, Event, MAX_EVENT};
use hindsight_isa::state::{CPU_STATE_LEN, VEC_STATE_LEN};
use hindsight_trace::{
    ChunkBuilder, Completeness, Header, Limit, Ring, StreamInfo, StreamKind, StreamSummary,
    Summary, Text, Told, Trace,
};
use std::time::Duration;

/// Writes a stream into a ring.
struct Source {
    id: u32,
    enc: Encoder,
    builder: ChunkBuilder,
    pos: u64,
}

impl Source {
    fn new(ring: &mut Ring, id: u32, kind: StreamKind, image: u32, parent: u32) -> Source {
        ring.begin(&info(id, kind, image, parent, image as i32));
        Source {
            id,
            enc: Encoder::default(),
            builder: ChunkBuilder::default(),
            pos: 0,
        }
    }

    fn emit(&mut self, e: &Event) {
        let mut buf = [0; MAX_EVENT];
        let n = self.enc.encode(self.pos, e, &mut buf);
        self.builder.push(&buf[..n], |_, _| None);
        self.pos += 1;
    }

    /// Adds a chunk of about `kib` KiB that does not compress.
    fn chunk(&mut self, ring: &mut Ring, r: &mut Random, keyframe: bool, kib: u64) {
        if keyframe {
            self.emit(&Event::KeyFrame {
                code_epoch: 1,
                cpu: &[0; CPU_STATE_LEN],
                vec: &[0; VEC_STATE_LEN],
            });
        }
        for _ in 0..kib * 1024 / 64 {
            let words = std::array::from_fn(|_| r.next());
            self.emit(&Event::Patch {
                line: 64,
                mask: 0xff,
                words,
            });
        }
        ring.stream(self.id, &mut self.builder, &Told::default())
            .unwrap();
    }

    /// Adds a chunk that is a state point. Its position.
    fn state_point(&mut self, ring: &mut Ring) -> u64 {
        let at = self.pos;
        let bound = |ends| Event::Restate { ends, back: 0 };
        self.emit(&Event::KeyFrame {
            code_epoch: 1,
            cpu: &[0; CPU_STATE_LEN],
            vec: &[0; VEC_STATE_LEN],
        });
        self.emit(&bound(false));
        self.emit(&bound(true));
        ring.stream(self.id, &mut self.builder, &Told::default())
            .unwrap();
        at
    }

    fn end(self, ring: &mut Ring) {
        ring.end(StreamSummary {
            stream: self.id,
            ..StreamSummary::default()
        });
    }
}

fn trace(ring: &Ring) -> Trace {
    let held = ring.snapshot(Vec::new(), true);
    let t = Trace::from_bytes(held.write(Vec::new(), None, Summary::default()).unwrap().0).unwrap();
    assert_eq!(t.completeness(), Completeness::Complete);
    for s in t.streams() {
        let chunks = t.chunks(s);
        chunks.iter().for_each(|c| drop(t.load(c).unwrap()));
        let dropped = t.stream_info(s).unwrap().dropped;
        assert!(chunks[0].keyframe || dropped.is_none());
        let first = dropped.map_or(0, |d| d.instructions);
        assert_eq!(chunks[0].first_pos, first);
    }
    t
}

const MIB: u64 = 1 << 20;

#[test]
fn whole_intervals_are_dropped_from_the_front() {
    let file = tempfile::tempfile().unwrap();
    for file in [None, Some(file)] {
        let r = &mut Random::new(1);
        let mut ring = Ring::new(&Header::default(), Limit::Bytes(MIB), file).unwrap();
        let mut a = Source::new(&mut ring, 1, StreamKind::Thread, 1, 0);
        let mut b = Source::new(&mut ring, 2, StreamKind::Thread, 1, 0);
        for i in 0..100 {
            a.chunk(&mut ring, r, i % 3 == 0, 50);
            b.chunk(&mut ring, r, i % 2 == 0, 20);
            assert!(ring.bytes() <= MIB);
            trace(&ring);
        }
        assert!(ring.bytes() > MIB / 2);
        let t = trace(&ring);
        // Both streams are there up to their ends.
        for s in [&a, &b] {
            assert_eq!(t.chunks(s.id).last().unwrap().last_pos, s.pos - 1);
        }
        let gone = t.header().ring.clone().unwrap();
        let kept: u64 = t.summary().unwrap().totals.instructions;
        assert_eq!(gone.instructions + kept, a.pos + b.pos - 2);
    }
}

#[test]
fn the_last_state_points_of_each_thread_are_held() {
    let r = &mut Random::new(7);
    let ring = Ring::new(&Header::default(), Limit::Bytes(MIB), None).unwrap();
    let mut ring = ring.keep_states(3);
    let mut many = Source::new(&mut ring, 1, StreamKind::Thread, 1, 0);
    let mut one = Source::new(&mut ring, 2, StreamKind::Thread, 1, 0);
    let mut none = Source::new(&mut ring, 3, StreamKind::Thread, 1, 0);
    one.state_point(&mut ring);
    let mut points = Vec::new();
    for i in 1..10 {
        points.push(many.state_point(&mut ring));
        many.chunk(&mut ring, r, false, 1);
        // A key frame that restates nothing does not count.
        many.chunk(&mut ring, r, true, 1);
        none.chunk(&mut ring, r, true, 1);
        let t = trace(&ring);
        let kept = points.len().min(3);
        let chunks = t.chunks(1);
        assert_eq!(chunks.len(), 3 * kept);
        let first = points[points.len() - kept];
        assert_eq!(chunks[0].first_pos, first);
        assert_eq!((t.chunks(2).len(), t.chunks(3).len()), (1, i));
    }
    let told = trace(&ring).header().ring.clone().unwrap();
    assert_eq!(told.limit, "1.0 MiB, 3 state points");
}

#[test]
fn a_thread_that_waits_does_not_keep_others_out() {
    let r = &mut Random::new(2);
    let mut ring = Ring::new(&Header::default(), Limit::Bytes(MIB), None).unwrap();
    let mut large = Source::new(&mut ring, 1, StreamKind::Thread, 1, 0);
    let mut small = Source::new(&mut ring, 2, StreamKind::Thread, 1, 0);
    let mut busy = Source::new(&mut ring, 3, StreamKind::Thread, 1, 0);
    large.chunk(&mut ring, r, true, 600);
    assert_eq!(ring.take_wishes(), [1]);
    small.chunk(&mut ring, r, true, 10);
    for _ in 0..40 {
        busy.chunk(&mut ring, r, true, 50);
    }
    // The thread that held much has lost it, and is asked for a key frame. The other one still has its chunk.
    let t = trace(&ring);
    assert!(t.chunks(1).is_empty() && t.chunks(2).len() == 1 && t.chunks(3).len() > 15);
    large.chunk(&mut ring, r, false, 10);
    assert!(trace(&ring).chunks(1).is_empty());
    large.chunk(&mut ring, r, true, 10);
    assert_eq!(trace(&ring).chunks(1).len(), 1);
    // A thread that makes no key frame is asked for one once.
    ring.take_wishes();
    for _ in 0..10 {
        busy.chunk(&mut ring, r, false, 50);
    }
    assert_eq!(ring.take_wishes(), [3]);
}

#[test]
fn images_go_with_the_last_that_needs_them() {
    let r = &mut Random::new(3);
    let mut ring = Ring::new(&Header::default(), Limit::Bytes(MIB), None).unwrap();
    let mut stream = 0;
    let most = [false, true].map(|executed| {
        let mut most = 0;
        for image in stream / 2 + 1..stream / 2 + 40 {
            let mut code = Source::new(&mut ring, stream + 1, StreamKind::Image, image, image - 1);
            if executed {
                ring.begin(&StreamInfo {
                    executed,
                    ..info(stream + 1, StreamKind::Image, image, image - 1, 9)
                });
            }
            let mut thread = Source::new(&mut ring, stream + 2, StreamKind::Thread, image, 0);
            stream += 2;
            code.emit(&Event::Unmap { addr: 1, len: 2 });
            ring.stream(code.id, &mut code.builder, &Told::default())
                .unwrap();
            let path = format!("/bin/{image}");
            ring.module(Text::from(path.as_str()), path.repeat(99).as_bytes())
                .unwrap();
            thread.chunk(&mut ring, r, true, 200);
            thread.end(&mut ring);
            code.end(&mut ring);
            let t = trace(&ring);
            most = most.max(t.images().len());
            for m in t.modules() {
                t.module_bytes(m.hash).unwrap();
            }
        }
        most
    });
    // Code is inherited by `fork`, and not by `execve`.
    assert_eq!(most[0], 39);
    let t = trace(&ring);
    assert!(t.images().len() <= 5);
    assert_eq!(t.header().ring.as_ref().unwrap().threads, 73);
    // Modules are named by their number.
    assert_eq!(t.modules().len(), 78);
}

#[test]
fn what_is_older_than_asked_goes() {
    let r = &mut Random::new(4);
    let limit = Limit::Time(Duration::from_millis(200));
    let mut ring = Ring::new(&Header::default(), limit, None).unwrap();
    let mut a = Source::new(&mut ring, 1, StreamKind::Thread, 1, 0);
    let mut idle = Source::new(&mut ring, 2, StreamKind::Thread, 1, 0);
    idle.chunk(&mut ring, r, true, 10);
    for _ in 0..12 {
        a.chunk(&mut ring, r, true, 10);
        std::thread::sleep(Duration::from_millis(50));
    }
    ring.trim();
    let t = trace(&ring);
    // A waiting thread keeps its last interval: that is what it did within the time.
    assert!((1..8).contains(&t.chunks(1).len()) && t.chunks(2).len() == 1);
}

/// A page of code.
fn code(source: &mut Source, ring: &mut Ring, epoch: u64, page: u64, byte: u8) {
    source.pos = 0;
    source.emit(&Event::Code {
        epoch,
        addr: page * 4096,
        bytes: &[byte; 4096],
    });
    if source.builder.events() == 64 {
        put(source, ring, (epoch.saturating_sub(63), epoch));
    }
}

fn put(source: &mut Source, ring: &mut Ring, epochs: (u64, u64)) {
    let told = Told {
        epochs: Some(epochs),
        ..Told::default()
    };
    ring.stream(source.id, &mut source.builder, &told).unwrap();
}

/// The contents of a page that are left in a stream, with their epochs.
fn versions(t: &Trace, stream: u32, page: u64) -> Vec<(u64, u8)> {
    let mut out = Vec::new();
    for c in t.chunks(stream) {
        let wire = t.load(c).unwrap();
        let (mut decoder, mut at) = (Decoder::default(), 0);
        while let Some((_, event, n)) = decoder.decode(&wire[at..]) {
            at += n;
            match event {
                Event::Code { epoch, addr, bytes } if addr == page * 4096 => {
                    out.push((epoch, bytes[0]));
                }
                _ => {}
            }
        }
    }
    out
}

#[test]
fn code_that_was_superseded_goes() {
    let r = &mut Random::new(5);
    let mut ring = Ring::new(&Header::default(), Limit::Bytes(MIB), None).unwrap();
    let mut image = Source::new(&mut ring, 1, StreamKind::Image, 1, 0);
    let mut busy = Source::new(&mut ring, 2, StreamKind::Thread, 1, 0);
    let mut idle = Source::new(&mut ring, 3, StreamKind::Thread, 1, 0);
    // One thread has slept since epoch 5. A process was forked at epoch 7.
    let mut most = 0;
    for epoch in 1..=12_000u64 {
        code(&mut image, &mut ring, epoch, 1 + epoch % 3, epoch as u8);
        if epoch % 50 == 0 {
            image.pos = 0;
            image.emit(&Event::Unmap {
                addr: epoch << 12,
                len: 4096,
            });
        }
        if epoch == 1 {
            // This code is used all the time and never changes.
            code(&mut image, &mut ring, epoch, 100, 77);
        }
        if epoch == 5 {
            idle.emit(&Event::CodeEpoch { epoch });
            put(&mut idle, &mut ring, (epoch, epoch));
        }
        if epoch == 7 {
            let mut child = Source::new(&mut ring, 4, StreamKind::Image, 2, 1);
            child.emit(&Event::CodeFrom { epoch });
            let told = Told {
                inherited: Some(epoch),
                ..Told::default()
            };
            ring.stream(4, &mut child.builder, &told).unwrap();
            ring.begin(&info(5, StreamKind::Thread, 2, 0, 2));
        }
        if epoch % 100 == 0 {
            for _ in 0..3 * 16 {
                let words = std::array::from_fn(|_| r.next());
                busy.emit(&Event::Patch {
                    line: 64,
                    mask: 0xff,
                    words,
                });
            }
            busy.emit(&Event::CodeEpoch { epoch });
            put(&mut busy, &mut ring, (epoch, epoch));
        }
        if epoch % 500 == 0 {
            ring.begin_round();
            ring.end_round(&[(1, (5, 5)), (1, (epoch, epoch))]).unwrap();
            let t = trace(&ring);
            most = most.max(t.chunks(1).iter().map(|c| c.raw_len()).sum());
            // What is needed is the same as if nothing had been removed.
            let at = |page, epoch| {
                let all = versions(&t, 1, page);
                all.iter().rev().find(|v| v.0 <= epoch).map(|v| v.1)
            };
            for page in 1..4 {
                for needed in [5, 7] {
                    let last = (1..=needed).rev().find(|e| 1 + e % 3 == page);
                    assert_eq!(at(page, needed), last.map(|e| e as u8), "epoch {needed}");
                }
            }
            assert_eq!(versions(&t, 1, 100), [(1, 77)]);
        }
    }
    // Without compaction it would be 48 MiB.
    assert!(most < 20 << 20, "{most}");
    let t = trace(&ring);
    assert!(versions(&t, 1, 1).len() < 2000);
    assert!(t.chunks(1).len() < 80, "{}", t.chunks(1).len());
}

#[test]
fn without_whole_rounds_nothing_goes() {
    let mut ring = Ring::new(&Header::default(), Limit::Bytes(MIB), None).unwrap();
    let mut image = Source::new(&mut ring, 1, StreamKind::Image, 1, 0);
    for epoch in 1..=3000u64 {
        code(&mut image, &mut ring, epoch, 1, epoch as u8);
        // A process is about to be made each time, so no round ends.
        ring.begin_round();
    }
    put(&mut image, &mut ring, (2950, 3000));
    assert_eq!(versions(&trace(&ring), 1, 1).len(), 3000);
    // What came after the round began may be needed by events that nobody has seen.
    code(&mut image, &mut ring, 3001, 1, 1);
    put(&mut image, &mut ring, (3001, 3001));
    ring.end_round(&[]).unwrap();
    let left = versions(&trace(&ring), 1, 1);
    assert_eq!(left.first().map(|v| v.0), Some(2944), "{left:?}");
}
