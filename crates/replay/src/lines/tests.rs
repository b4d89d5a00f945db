use super::*;
use crate::window::{Window, in_each_window};
use hindsight_isa::observe::MARK;

/// All cells and marks of the first pages and the last ones.
pub(super) fn all<C: Marks>(w: &WindowOf<C>) -> Vec<u8> {
    let mut out = Vec::new();
    for page in (0..40u64).chain((1 << 20) - 2..1 << 20) {
        let mut buf = [0; PAGE];
        w.read(page * 4096, &mut buf);
        out.extend_from_slice(&buf);
        for kind in [AccessKind::Reads, AccessKind::Writes] {
            w.marks(kind, page * 4096, &mut buf);
            out.extend_from_slice(&buf);
        }
    }
    out
}

/// What a checkpoint holds of a window.
pub(super) fn diff<C: Marks>(w: &mut WindowOf<C>, base: &Lines) -> [Lines; 3] {
    [
        w.beyond(base).unwrap(),
        w.marked_lines(AccessKind::Reads).unwrap(),
        w.marked_lines(AccessKind::Writes).unwrap(),
    ]
}

pub(super) fn take_up<C: Marks>(
    w: &mut WindowOf<C>,
    base: &Lines,
    [cells, reads, writes]: &[Lines; 3],
) {
    w.become_lines(base, cells).unwrap();
    w.become_marked(AccessKind::Reads, reads).unwrap();
    w.become_marked(AccessKind::Writes, writes).unwrap();
}

#[test]
fn what_was_comes_back_from_anything() {
    in_each_window!(what_was_comes_back_from_anything_in);
}

fn what_was_comes_back_from_anything_in<C: Marks>() {
    let mut seed = 88172645463325252u64;
    let mut random = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let mut w = WindowOf::<C>::observed().unwrap();
    let base = {
        w.write(3 * 4096 + 60, &[5; 300]);
        w.write(7 * 4096, &[6; 4096]);
        w.beyond(&Lines::default()).unwrap()
    };
    let mut kept: Vec<([Lines; 3], Vec<u8>)> = Vec::new();
    let mut times = 0;
    for round in 0..200 {
        for _ in 0..random(40) {
            let page = match random(20) {
                0 => (1 << 20) - 1,
                n => n * 2,
            };
            let at = page * 4096 + random(4096);
            let len = random(200);
            w.dirty.add(at, len);
            match random(6) {
                0 => w.zero(at, len * 50).unwrap(),
                1 => w.set_marks(AccessKind::Reads, at, len, MARK),
                2 => w.set_marks(AccessKind::Writes, at, len, MARK),
                3 => w.forget(at, len).unwrap(),
                4 => {
                    w.dirty.add((1 << 32) - 1, 2);
                    w.set_slack(AccessKind::Reads, (1 << 32) + random(64));
                    w.set_slack(AccessKind::Reads, (1 << 32) + random(108));
                }
                _ => w.write(at, &vec![random(256) as u8; len as usize]),
            }
        }
        if round % 50 == 49 {
            // From now on only changed pages are looked at.
            w.begin_with(&base).unwrap();
            kept.clear();
        }
        match random(3) {
            0 => kept.push((diff(&mut w, &base), all(&w))),
            1 if !kept.is_empty() => {
                let (lines, held) = &kept[random(kept.len() as u64) as usize];
                take_up(&mut w, &base, lines);
                times += 1;
                assert!(all(&w) == *held, "round {round}");
            }
            _ => {}
        }
    }
    assert!(times > 20);
    take_up(&mut w, &Lines::default(), &Default::default());
    assert!(all(&w).iter().all(|b| *b == 0));
}

#[test]
fn behind_a_key_frame_anything_may_be_accessed() {
    in_each_window!(behind_a_key_frame_anything_may_be_accessed_in);
}

fn behind_a_key_frame_anything_may_be_accessed_in<C: Marks>() {
    let mut base = Lines::default();
    base.push(5, 1, &[7; PAGE]);
    for whole in [false, true] {
        let mut w = WindowOf::<C>::observed().unwrap();
        // The caller promises that only these lines are accessed.
        w.begin_with(&base).unwrap();
        let base = match whole {
            true => {
                w.clear().unwrap();
                Lines::default()
            }
            false => base.clone(),
        };
        if !whole {
            w.clear_marks().unwrap();
        }
        // Translated code writes without telling anybody.
        w.write(20 * 4096, &[9; 64]);
        w.set_marks(AccessKind::Writes, 20 * 4096, 64, MARK);
        let (kept, held) = (diff(&mut w, &base), all(&w));
        w.write(20 * 4096, &[1; 128]);
        w.set_marks(AccessKind::Reads, 22 * 4096, 8, MARK);
        take_up(&mut w, &base, &kept);
        assert!(all(&w) == held, "{whole}");
    }
}

#[test]
fn pages_are_kept_and_given_back() {
    let mut w = Window::observed().unwrap();
    let mut touch = |n: usize| {
        for page in 0..n as u64 {
            w.write_from_outside(page * 4096, &[1]);
            w.set_marks(AccessKind::Reads, page * 4096, 1, MARK);
        }
        w.begin_with(&Lines::default()).unwrap();
        assert!(w.is_clean().unwrap());
        w.pages().unwrap().len()
    };
    assert_eq!([touch(100), touch(KEPT), touch(KEPT + 1)], [100, KEPT, 1]);
}

#[test]
fn changes_from_outside_are_undone() {
    in_each_window!(changes_from_outside_are_undone_in);
}

fn changes_from_outside_are_undone_in<C: Marks>() {
    let mut w = WindowOf::<C>::observed().unwrap();
    let mut lines = Lines::default();
    lines.push(5, 1, &[7; PAGE]);
    for _ in 0..2 {
        w.begin_with(&lines).unwrap();
        assert!(w.is_clean().unwrap());
        let mut held = [0; 65];
        w.read(5 * 4096, &mut held);
        assert_eq!((held[0], held[63], held[64]), (7, 7, 0));
        // The program writes only to the page of `lines`.
        w.set_cells(5 * 4096, [9, 0]);
        w.write_from_outside(9 * 4096 - 1, &[1, 2]);
        w.given(u32::MAX as u64, 2).unwrap();
    }
}

#[test]
fn lines_must_fit_their_pages() {
    let line = vec![1; 64];
    assert!(Lines::new(vec![(3, 2)], line.clone()).is_some());
    assert!(Lines::new(vec![(3, 3)], line.clone()).is_none());
    assert!(Lines::new(vec![(1 << 20, 2)], line.clone()).is_none());
    assert!(Lines::new(vec![(4, 2), (4, 1)], [&line[..], &line].concat()).is_none());
}

/// What goes from window to window asks the first content for pages, and shares those that stay equal. A page that cannot be made
/// is an error from then on, not zeros.
#[test]
fn handed_over_again_and_again() {
    in_each_window!(handed_over_again_and_again_in);
}

fn handed_over_again_and_again_in<C: Marks>() {
    let source = |n: u32| (n != 5000).then(|| Arc::new([n as u8; PAGE]));
    let begin = Lines::later((1..12).chain([5000]).collect(), Box::new(source)).unwrap();
    let mut content = begin.clone();
    for round in 1..6u64 {
        let mut w = WindowOf::<C>::observed().unwrap();
        w.begin_anywhere(&content).unwrap();
        w.write(round * 4096, &[100 + round as u8; 10]);
        w.write((20 + round) * 4096, &[7; 10]);
        let next = w.content_beside(&content).unwrap();
        assert!(next.root().unwrap().is_same(&begin));
        let mut before = Vec::new();
        content.each_made(&mut |number, page| before.push((number, Arc::as_ptr(page))));
        let mut kept = 0;
        next.each_made(&mut |number, page| {
            kept += before.contains(&(number, Arc::as_ptr(page))) as usize;
        });
        assert!(kept as u64 >= 2 * (round - 1), "{kept} in round {round}");
        content = next;
    }
    let mut w = WindowOf::<C>::observed().unwrap();
    w.begin_anywhere(&content).unwrap();
    for n in 1..12u64 {
        let mut bytes = [0; 20];
        w.read(n * 4096, &mut bytes);
        let written = if n < 6 { 100 + n } else { n };
        assert_eq!((bytes[0], bytes[19]), (written as u8, n as u8));
    }
    assert!(w.content().is_ok());
    w.read(5000 * 4096, &mut [0]);
    assert!(matches!(w.content(), Err(crate::Error::Damaged)));
    assert!(content.is_bad());
}
