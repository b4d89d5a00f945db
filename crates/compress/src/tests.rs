//! The two implementations read what the other one has written, and neither trusts it.

use super::implementation as by_c;
use hindsight_random::Rng;

#[path = "by_rust.rs"]
mod by_rust;

/// Bytes that compress more or less well.
fn content(r: &mut Rng) -> Vec<u8> {
    let len = match r.below(4) {
        0 => r.below(40),
        1 => r.below(5000),
        2 => r.below(300_000),
        _ => 1 << r.below(22),
    };
    let kinds = 1 + r.below(60);
    let mut out = Vec::with_capacity(len as usize);
    while out.len() < len as usize {
        if out.len() > 10 && r.below(3) == 0 {
            // A copy of what came before.
            let from = r.below(out.len() as u64 - 1) as usize;
            let n = (r.below(300) as usize).min(out.len() - from);
            out.extend_from_within(from..from + n);
        } else {
            out.push(r.below(kinds) as u8);
        }
    }
    out.truncate(len as usize);
    out
}

#[test]
fn each_reads_what_the_other_wrote() {
    let mut r = Rng(1);
    let mut c = (
        by_c::Compressor::new(1).unwrap(),
        by_c::Decompressor::new().unwrap(),
    );
    let mut rust = (
        by_rust::Compressor::new(1).unwrap(),
        by_rust::Decompressor::new().unwrap(),
    );
    for _ in 0..60 {
        let raw = content(&mut r);
        let mut frames = vec![vec![7], vec![7]];
        c.0.append(&raw, &mut frames[0]).unwrap();
        rust.0.append(&raw, &mut frames[1]).unwrap();
        for frame in &frames {
            let mut out = vec![0; raw.len()];
            assert_eq!(frame[0], 7, "it appends");
            assert_eq!(c.1.unpack(&frame[1..], &mut out).unwrap(), raw.len());
            assert!(out == raw);
            out.fill(0);
            assert_eq!(rust.1.unpack(&frame[1..], &mut out).unwrap(), raw.len());
            assert!(out == raw);
            if !raw.is_empty() {
                let short = raw.len() - 1;
                assert!(c.1.unpack(&frame[1..], &mut out[..short]).is_err());
                assert!(rust.1.unpack(&frame[1..], &mut out[..short]).is_err());
            }
        }
    }
}

/// Changes some bytes, mostly at the begin, where tables are.
fn damage(r: &mut Rng, frame: &mut Vec<u8>) {
    for _ in 0..=r.below(3) {
        let at = r.below(frame.len() as u64) as usize;
        match r.below(5) {
            0 => frame.truncate(at.max(1)),
            1 => frame[at] ^= 1 << r.below(8),
            2 => frame[at.min(30)] ^= 1 << r.below(8),
            3 => frame[at] = frame[r.below(frame.len() as u64) as usize],
            _ => frame[at] = r.below(256) as u8,
        }
    }
}

/// The one in Rust panics at nothing: no one could go on behind that in a browser.
#[test]
fn damaged_frames_end_in_errors() {
    let mut r = Rng(3);
    let mut errors = 0;
    for level in [1, 3, 9, 19] {
        for _ in 0..40 {
            let raw = content(&mut r);
            let raw = &raw[..raw.len().min(20_000)];
            let frame = super::pack(raw, level).unwrap();
            for _ in 0..100 {
                let mut frame = frame.clone();
                damage(&mut r, &mut frame);
                let mut out = vec![0; raw.len() + 100];
                let mut rust = by_rust::Decompressor::new().unwrap();
                errors += rust.unpack(&frame, &mut out).is_err() as u32;
            }
        }
    }
    assert!(errors > 1000, "{errors}");
}

/// What is damaged gives an error, or the same by both. That is so for small frames. The C library does not see all damage where the
/// literals of a large one are in four streams.
#[test]
fn damaged_frames_agree() {
    let mut r = Rng(2);
    let mut both = 0;
    for level in [1, 3, 9] {
        for _ in 0..400 {
            let raw = content(&mut r);
            let raw = &raw[..raw.len().min(3000)];
            let mut frame = super::pack(raw, level).unwrap();
            damage(&mut r, &mut frame);
            let mut out = [vec![0; 4000], vec![0; 4000]];
            let by_c = by_c::Decompressor::new()
                .unwrap()
                .unpack(&frame, &mut out[0]);
            let rust = by_rust::Decompressor::new()
                .unwrap()
                .unpack(&frame, &mut out[1]);
            if let (Ok(a), Ok(b)) = (by_c, rust) {
                assert_eq!(out[0][..a], out[1][..b]);
                both += 1;
            }
        }
    }
    assert!(both > 0);
}

/// The most memory that this process had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Four bytes can stand for 128 KiB. Such a frame ends soon behind what there is room for.
#[test]
fn a_frame_that_stands_for_much_is_not_unpacked() {
    // No content size, a window of 2 TiB at most; blocks that repeat one byte 128 KiB times.
    let block = ((128u32 << 10) << 3 | 1 << 1).to_le_bytes();
    for window in [0x00, 0x68, 0xff] {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window];
        for _ in 0..100_000 {
            frame.extend_from_slice(&block[..3]);
            frame.push(1);
        }
        let mut out = vec![0; 1 << 20];
        let before = peak();
        let done = by_rust::Decompressor::new()
            .unwrap()
            .unpack(&frame, &mut out);
        assert!(done.is_err(), "window {window:#x}");
        // It stands for 12 GiB.
        let took = peak() - before;
        assert!(took < 64 << 10, "window {window:#x}: {took} KiB");
    }
}
