//! What is written is read again: from a whole, a cut or a damaged trace.

mod common;

use common::{Random, info, trace, wire, write_stream};
use hindsight_events::event::MAX_BYTES;
use hindsight_events::{Decoder, Encoder, Event, MAX_EVENT, fresh};
use hindsight_trace::meta::Ending;
use hindsight_trace::{
    ChunkBuilder, Completeness, Error, Header, ModuleHash, Pushed, StreamKind, StreamSummary,
    Summary, Text, Trace, Writer,
};
use proptest::prelude::*;

/// Events of a stream with their positions, as text: events borrow from different buffers.
fn events(pieces: &[Vec<u8>]) -> Vec<String> {
    let mut out = Vec::new();
    for p in pieces {
        let (mut dec, mut at) = (Decoder::default(), 0);
        while at < p.len() {
            let (pos, e, n) = dec.decode(&p[at..]).expect("whole events");
            out.push(format!("{pos} {e:?}"));
            at += n;
        }
    }
    out
}

fn loaded(t: &Trace, stream: u32) -> Vec<Vec<u8>> {
    t.chunks(stream)
        .iter()
        .map(|c| t.load(c).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn streams_round_trip(seed: u64, n in 0usize..400) {
        let (bytes, streams) = trace(&mut Random::new(seed), n);
        let t = Trace::from_bytes(bytes).unwrap();
        prop_assert_eq!(t.completeness(), Completeness::Complete);
        for (id, wire) in streams.iter().enumerate() {
            prop_assert_eq!(events(&loaded(&t, id as u32)), events(std::slice::from_ref(wire)));
        }
    }

    #[test]
    fn streams_arrive_in_any_pieces(seed: u64, cuts in proptest::collection::vec(1usize..5000, 1..40)) {
        let wire = wire(&mut Random::new(seed), 200);
        let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
        w.begin(&info(1, StreamKind::Thread, 1, 0, 7)).unwrap();
        let mut b = ChunkBuilder::default();
        let (mut pending, mut at, mut cuts) = (Vec::new(), 0, cuts.into_iter().cycle());
        while at < wire.len() {
            let n = cuts.next().unwrap().min(wire.len() - at);
            pending.extend_from_slice(&wire[at..at + n]);
            at += n;
            loop {
                let (n, pushed) = b.push(&pending, |_, _| None);
                pending.drain(..n);
                prop_assert_ne!(pushed, Pushed::Bad);
                if pushed == Pushed::More {
                    break;
                }
                w.stream(1, &mut b).unwrap();
            }
        }
        prop_assert!(pending.is_empty());
        w.stream(1, &mut b).unwrap();
        let t = Trace::from_bytes(w.finish(Summary::default()).unwrap().0).unwrap();
        prop_assert_eq!(events(&loaded(&t, 1)), events(&[wire]));
    }
}

#[test]
fn chunks_begin_at_key_frames_and_say_so() {
    let wire = wire(&mut Random::new(5), 2000);
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    write_stream(&mut w, 1, &wire);
    let t = Trace::from_bytes(w.finish(Summary::default()).unwrap().0).unwrap();
    let mut frames = 0;
    for (i, c) in t.chunks(1).iter().enumerate() {
        let b = t.load(c).unwrap();
        let (mut dec, mut at, mut n, mut last) = (Decoder::default(), 0, 0, 0);
        while at < b.len() {
            let (pos, e, len) = dec.decode(&b[at..]).unwrap();
            let frame = matches!(e, Event::KeyFrame { .. });
            assert!(!frame || n == 0);
            if n == 0 {
                assert_eq!((pos, frame), (c.first_pos, c.keyframe));
                frames += frame as u32;
            }
            (at, n, last) = (at + len, n + 1, pos);
        }
        assert_eq!((c.index, c.events, c.last_pos), (i, n, last));
    }
    assert!(frames > 10);
}

#[test]
fn events_can_be_put_between_two_that_came_together() {
    let mut encoder = Encoder::default();
    let encode = |encoder: &mut Encoder, pos, addr| {
        let mut buf = vec![0; MAX_EVENT];
        let n = encoder.encode(pos, &Event::Zero { addr, len: 1 }, &mut buf);
        buf.truncate(n);
        buf
    };
    let before = encode(&mut encoder, 5, 1);
    let between = encode(&mut encoder.clone(), 7, 2);
    let behind = encode(&mut encoder, 9, 3);
    // It came before the one that was put there.
    let never = encode(&mut Encoder::default(), 1, 4);
    let mut b = ChunkBuilder::default();
    let push = |b: &mut ChunkBuilder, wire: &[u8]| b.push(wire, |_, _| None).0;
    assert_eq!(push(&mut b, &before), before.len());
    let from = b.position();
    assert_eq!(push(&mut b, &between), between.len());
    b.measure_from(from);
    assert_eq!(push(&mut b, &never), 0);
    assert_eq!(push(&mut b, &behind), behind.len());
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    w.begin(&info(1, StreamKind::Thread, 1, 0, 1)).unwrap();
    w.stream(1, &mut b).unwrap();
    let t = Trace::from_bytes(w.finish(Summary::default()).unwrap().0).unwrap();
    let zero = |pos, addr| format!("{pos} {:?}", Event::Zero { addr, len: 1 });
    assert_eq!(events(&loaded(&t, 1)), [zero(5, 1), zero(7, 2), zero(9, 3)]);
}

#[test]
fn fresh_memory_is_read_with_its_bytes() {
    let mut encoder = Encoder::default();
    let (mut wire, mut read) = (Vec::new(), Vec::new());
    let mut buf = [0; MAX_EVENT];
    for n in 0..400u64 {
        let (addr, len, key) = (n * 8192, 8192 - n as u32, 1 << 32 | n);
        let len_of_wire = encoder.encode(n, &Event::Fresh { addr, len, key }, &mut buf);
        wire.extend_from_slice(&buf[..len_of_wire]);
        let mut bytes = [0; MAX_BYTES];
        let bytes = fresh::bytes(key, len as usize, &mut bytes);
        read.push(format!("{n} {:?}", Event::Memory { addr, bytes }));
    }
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    write_stream(&mut w, 1, &wire);
    let trace = w.finish(Summary::default()).unwrap().0;
    // 3 MB of bytes, none of which is in the file.
    assert!(trace.len() < 10_000, "{} bytes", trace.len());
    let t = Trace::from_bytes(trace).unwrap();
    assert_eq!(events(&loaded(&t, 1)), read);
    for c in t.chunks(1) {
        assert!(t.load(c).unwrap().len() < 1100 << 10);
        assert_eq!(t.load_outline(c).unwrap(), t.load(c).unwrap());
    }
}

#[test]
fn descriptions_round_trip() {
    let (bytes, _) = trace(&mut Random::new(1), 10);
    let t = Trace::from_bytes(bytes).unwrap();
    assert_eq!(t.header().argv[1].as_bytes(), b"\xff\xfe");
    assert_eq!(t.summary().unwrap().ending, Some(Ending::Exit(3)));
    assert_eq!(t.summary().unwrap().totals.streams, 2);
    assert_eq!(t.counts().len(), 2);
    assert_eq!(t.modules().len(), 3);
    assert_eq!(t.modules()[0].hash, t.modules()[2].hash);
    assert_eq!(
        t.module_bytes(t.modules()[0].hash).unwrap(),
        vec![7; 3 << 20]
    );
    assert_eq!(
        t.module_bytes(t.modules()[1].hash).unwrap().len() as u64,
        t.modules()[1].size
    );
    assert!(matches!(
        t.module_bytes(ModuleHash([0; 16])),
        Err(Error::NoModule(_))
    ));
}

#[test]
fn an_empty_module_is_a_module() {
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    let hash = w.module(Text::from("/empty"), b"").unwrap();
    let t = Trace::from_bytes(w.finish(Summary::default()).unwrap().0).unwrap();
    assert_eq!(t.module_bytes(hash).unwrap(), b"");
}

#[test]
fn versions_before_this_one_are_read() {
    let (mut bytes, _) = trace(&mut Random::new(1), 10);
    let all = |t: &Trace| [1, 2, 3].map(|n| events(&loaded(t, n)));
    let now = all(&Trace::from_bytes(bytes.clone()).unwrap());
    assert!(now.iter().any(|stream| stream.len() == 10));
    for version in 6..=11 {
        bytes[7] = version;
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        let t = Trace::from_bytes(bytes.clone()).unwrap();
        assert!(all(&t) == now, "version {version}");
    }
}

#[test]
fn other_versions_and_other_files_are_named() {
    let (mut bytes, _) = trace(&mut Random::new(1), 1);
    bytes[7] = 99;
    let e = Trace::from_bytes(bytes).err().unwrap();
    assert!(matches!(e, Error::Version { found: 99 }), "{e}");
    assert!(e.to_string().contains("99"));
    for other in [&b"\x7fELF"[..], &[b'x'; 1000], b"HSTRACX"] {
        assert!(matches!(
            Trace::from_bytes(other.into()),
            Err(Error::NotATrace)
        ));
    }
    for cut in [&b""[..], b"HST", b"HSTRACE\x03"] {
        assert!(matches!(
            Trace::from_bytes(cut.into()),
            Err(Error::NoHeader)
        ));
    }
}

#[test]
fn a_trace_cut_anywhere_is_readable_up_to_its_last_whole_chunk() {
    let (bytes, streams) = trace(&mut Random::new(3), 60);
    let whole = [0, 1].map(|i| events(std::slice::from_ref(&streams[i])));
    let first = 64 + u32::from_le_bytes(bytes[40..44].try_into().unwrap()) as usize;
    let mut random = Random::new(8);
    let mut last = (0, 0);
    let mut cut = 0;
    while cut < bytes.len() {
        let t = Trace::from_bytes(bytes[..cut].to_vec());
        if cut < first {
            assert!(matches!(t, Err(Error::NoHeader)), "{cut}");
        } else {
            let t = t.unwrap();
            match t.completeness() {
                Completeness::Cut { offset } => assert!(offset < cut as u64),
                c => assert_eq!(c, Completeness::Unfinished, "{cut}"),
            }
            let got = [0, 1].map(|i| events(&loaded(&t, i)));
            for i in 0..2 {
                assert!(whole[i].starts_with(&got[i]), "{cut}");
            }
            let n = (got[0].len(), got[1].len());
            assert!(n >= last, "{cut}");
            last = n;
        }
        cut += 1 + random.below(97) as usize;
    }
    assert_eq!(last, (60, 60));
}

#[test]
fn a_lost_chunk_does_not_go_unnoticed() {
    let wire = wire(&mut Random::new(4), 500);
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    write_stream(&mut w, 1, &wire);
    let bytes = w.finish(Summary::default()).unwrap().0;
    let t = Trace::from_bytes(bytes.clone()).unwrap();
    let c = t.chunks(1)[3];
    let mut without = bytes.clone();
    without.drain(c.offset as usize..(c.offset + c.stored_len) as usize);
    let t = Trace::from_bytes(without).unwrap();
    assert_eq!(t.chunks(1).len(), 3);
    assert!(matches!(t.completeness(), Completeness::Damaged { offset, .. } if offset == c.offset));
}

#[test]
fn images_form_a_tree() {
    let mut w = Writer::new(
        Vec::new(),
        &Header {
            argv: vec!["sh".into()],
            ..Header::default()
        },
    )
    .unwrap();
    let events = wire(&mut Random::new(6), 3);
    use StreamKind::{Image, Thread};
    // A shell forks. The child executes a program, which has a thread. Another child runs in the shell's
    // memory until it executes something.
    for (i, (kind, image, parent, pid)) in [
        (Image, 1, 0, 10),
        (Thread, 1, 0, 10),
        (Image, 2, 1, 11),
        (Thread, 2, 1, 11),
        (Image, 3, 2, 11),
        (Thread, 3, 2, 11),
        (Thread, 3, 2, 11),
        (Thread, 1, 0, 12),
        (Image, 4, 1, 12),
    ]
    .into_iter()
    .enumerate()
    {
        let mut begin = info(i as u32 + 1, kind, image, parent, pid);
        if (kind, image) == (Image, 3) {
            begin.command = vec!["a b".into(), "c".into()];
        }
        w.begin(&begin).unwrap();
        let mut b = ChunkBuilder::default();
        b.push(&events, |_, _| None);
        w.stream(begin.stream, &mut b).unwrap();
    }
    let t = Trace::from_bytes(w.finish(Summary::default()).unwrap().0).unwrap();
    assert_eq!(t.threads(), [2, 4, 6, 7, 8]);
    let images: Vec<_> = t
        .images()
        .iter()
        .map(|i| {
            (
                i.number,
                i.parent,
                i.pid,
                i.by_exec,
                &i.streams[..],
                &i.threads[..],
            )
        })
        .collect();
    assert_eq!(
        images,
        [
            (1, 0, 10, false, &[1][..], &[2, 8][..]),
            (2, 1, 11, false, &[3], &[4]),
            (3, 2, 11, true, &[5], &[6, 7]),
            (4, 1, 12, true, &[9], &[]),
        ]
    );
    assert_eq!([1, 2, 3].map(|i| t.command(i)), ["sh", "sh", "'a b' c"]);
    assert_eq!(t.stream_info(8).unwrap().pid, 12);
}

#[test]
fn a_stream_without_description_is_damage() {
    let events = wire(&mut Random::new(6), 3);
    for twice in [false, true] {
        let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
        if twice {
            for _ in 0..2 {
                w.begin(&info(1, StreamKind::Thread, 1, 0, 7)).unwrap();
            }
        }
        let mut b = ChunkBuilder::default();
        b.push(&events, |_, _| None);
        w.stream(1, &mut b).unwrap();
        let t = Trace::from_bytes(w.finish(Summary::default()).unwrap().0).unwrap();
        assert!(matches!(t.completeness(), Completeness::Damaged { .. }));
    }
}

#[test]
fn what_a_stream_was_is_known_when_it_has_ended() {
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    let events = wire(&mut Random::new(9), 40);
    for id in 1..4 {
        write_stream(&mut w, id, &events);
        let end = StreamSummary {
            stream: id,
            tid: 100 + id as i32,
            instructions: 7,
            ..StreamSummary::default()
        };
        w.end(end).unwrap();
    }
    write_stream(&mut w, 4, &events);
    let before_summary = w.written() as usize;
    let (bytes, summary) = w.finish(Summary::default()).unwrap();
    assert_eq!(
        (summary.totals.streams, summary.totals.instructions),
        (4, 21)
    );
    let cut = Trace::from_bytes(bytes[..before_summary].to_vec()).unwrap();
    assert_eq!(cut.completeness(), Completeness::Unfinished);
    let whole = Trace::from_bytes(bytes).unwrap();
    assert_eq!(whole.completeness(), Completeness::Complete);
    for t in [&cut, &whole] {
        let counts = t.counts();
        assert_eq!(counts.len(), 4);
        assert_eq!((counts[2].tid, counts[2].instructions), (103, 7));
        assert!(counts.iter().all(|c| c.events == 40 && c.chunks > 0));
    }
}

#[test]
fn nothing_follows_the_end_of_a_stream() {
    let events = wire(&mut Random::new(10), 500);
    let make = |n: u32| {
        let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
        write_stream(&mut w, 1, &events);
        let end = || StreamSummary {
            stream: 1,
            ..StreamSummary::default()
        };
        (0..n).for_each(|_| w.end(end()).unwrap());
        if n == 1 {
            let mut b = ChunkBuilder::default();
            b.push(&events, |_, _| None);
            w.stream(1, &mut b).unwrap();
        }
        w.finish(Summary::default()).unwrap().0
    };
    let why = |bytes| match Trace::from_bytes(bytes).unwrap().completeness() {
        Completeness::Damaged { what, .. } => what,
        other => panic!("{other}"),
    };
    assert_eq!(why(make(1)), "a stream goes on after its end");
    assert_eq!(why(make(2)), "the end of a stream is not where it belongs");
    // Its last chunk is missing.
    let bytes = make(0);
    let t = Trace::from_bytes(bytes.clone()).unwrap();
    let c = *t.chunks(1).last().unwrap();
    let mut without = bytes;
    without.drain(c.offset as usize..(c.offset + c.stored_len) as usize);
    assert_eq!(
        why(without),
        "a chunk is missing before the end of its stream"
    );
}

/// Patches of the lines from `first` on, one after the other, whose words follow from their numbers. Some words are zero.
fn going_through(first: u64, lines: u64) -> Vec<u8> {
    let mut enc = Encoder::default();
    let mut buf = vec![0; MAX_EVENT];
    let mut out = Vec::new();
    for (n, line) in (first..first + lines).enumerate() {
        let word = |i: u64| (line * 8 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let words = std::array::from_fn(|i| {
            if word(i as u64) % 5 == 0 {
                0
            } else {
                word(i as u64)
            }
        });
        let mask = words.iter().rev().fold(0, |m, w| m << 1 | (*w != 0) as u8);
        let event = Event::Patch {
            line: line * 64,
            mask,
            words,
        };
        let n = enc.encode(9 * n as u64, &event, &mut buf);
        out.extend_from_slice(&buf[..n]);
    }
    out
}

/// Threads that go through the same data: the first, two of them at other times, and one only through a part.
#[test]
fn what_a_trace_has_already_is_copied() {
    let wires = [(0, 100_000), (0, 100_000), (0, 100_000), (30_011, 50_000)];
    let wires = wires.map(|(first, lines)| going_through(first, lines));
    let mut w = Writer::new(Vec::new(), &Header::default()).unwrap();
    for (i, wire) in wires.iter().enumerate() {
        write_stream(&mut w, i as u32 + 1, wire);
    }
    let bytes = w.finish(Summary::default()).unwrap().0;
    let t = Trace::from_bytes(bytes.clone()).unwrap();
    assert_eq!(t.completeness(), Completeness::Complete);
    let stored = |s: u32| t.chunks(s).iter().map(|c| c.stored_len).sum::<u64>();
    for s in 2..=4 {
        assert!(
            stored(s) * 20 < stored(1),
            "{s}: {} of {}",
            stored(s),
            stored(1)
        );
    }
    for (i, wire) in wires.iter().enumerate() {
        let got = events(&loaded(&t, i as u32 + 1));
        assert!(
            got == events(std::slice::from_ref(wire)),
            "stream {}",
            i + 1
        );
    }
    // In any order, and from somewhere.
    let mut r = Random::new(3);
    for _ in 0..60 {
        let chunks = t.chunks(1 + r.below(4) as u32);
        let c = &chunks[r.below(chunks.len() as u64) as usize];
        let fresh = Trace::from_bytes(bytes.clone()).unwrap();
        assert!(t.load(c).unwrap() == fresh.load(c).unwrap());
    }
    // Without what is copied there is an error, and no other content.
    let source = t.chunks(1)[2];
    let mut damaged = bytes.clone();
    damaged[(source.offset + source.stored_len / 2) as usize] ^= 1;
    let d = Trace::from_bytes(damaged).unwrap();
    let mut errors = 0;
    for s in 1..=4 {
        for c in d.chunks(s) {
            match d.load(c) {
                Ok(b) => assert!(b == t.load(c).unwrap()),
                Err(Error::Damaged { offset, .. }) => {
                    assert_eq!(offset, source.offset);
                    errors += 1;
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
    assert!(errors >= 4, "{errors}");
}
