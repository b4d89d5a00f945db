use super::super::mapped::Mapped;
use super::super::shared::WindowOf;
use super::super::store::{AccessKind, Marks};
use crate::access_marks::LineMarks;
use crate::lines::{Lines, SharedPage};
use hindsight_isa::observe::{MARK, UNKNOWN};
use proptest::prelude::*;
use std::sync::Arc;

const KINDS: [AccessKind; 2] = [AccessKind::Reads, AccessKind::Writes];

/// Something that is done to a window.
#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Set(u64, [u8; 16]),
    Give(u64, u8, u64),
    Zero(u64, u64),
    Mark(usize, u64, u64, u8),
    WriteMarks(usize, u64, Vec<u8>),
    Unknown(u64, u64),
    Forget(u64, u64),
    Given(u64, u64),
    Taken(u64, Vec<u8>),
    Clear,
    ClearMarks,
    TakeMarks,
    /// Begins with pages that are made later.
    Later(Vec<u32>),
    /// Begins with lines that are there.
    Held(u8),
    /// Goes back to what was noted.
    Back,
    Note,
}

/// Addresses near those at which something happens: the first pages, the last ones, and some between.
fn address() -> impl Strategy<Value = u64> {
    let page = prop_oneof![0u64..4, 500u64..506, (1u64 << 20) - 3..1 << 20];
    let place = prop_oneof![0u64..4096, 4060u64..4096, Just(0u64)];
    (page, place, 0u64..3).prop_map(|(page, place, high)| (high << 32) + page * 4096 + place)
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let len = || prop_oneof![0u64..70, 0u64..20_000];
    prop_oneof![
        4 => (address(), bytes()).prop_map(|(a, b)| Step::Write(a, b)),
        2 => (address(), any::<[u8; 16]>()).prop_map(|(a, b)| Step::Set(a, b)),
        2 => (address(), 0u8..9, any::<u64>()).prop_map(|(a, n, v)| Step::Give(a, n, v)),
        2 => (address(), len()).prop_map(|(a, n)| Step::Zero(a, n)),
        4 => (0usize..2, address(), len(), prop_oneof![Just(MARK), Just(UNKNOWN)])
            .prop_map(|(k, a, n, m)| Step::Mark(k, a, n, m)),
        1 => (0usize..2, address(), bytes()).prop_map(|(k, a, b)| Step::WriteMarks(k, a, b)),
        1 => (address(), 0u64..300).prop_map(|(a, n)| Step::Unknown(a, n)),
        1 => (address(), len()).prop_map(|(a, n)| Step::Forget(a, n)),
        1 => (address(), len()).prop_map(|(a, n)| Step::Given(a, n)),
        1 => (address(), bytes()).prop_map(|(a, b)| Step::Taken(a, b)),
        1 => Just(Step::Clear),
        1 => Just(Step::ClearMarks),
        1 => Just(Step::TakeMarks),
        1 => proptest::collection::btree_set(prop_oneof![0u32..4, 500u32..506], 0..6)
            .prop_map(|p| Step::Later(p.into_iter().collect())),
        1 => any::<u8>().prop_map(Step::Held),
        1 => Just(Step::Back),
        2 => Just(Step::Note),
    ]
}

/// A window, and what was noted of it.
struct Tried<C> {
    w: WindowOf<C>,
    base: Lines,
    noted: Option<[Lines; 3]>,
    shown: Vec<(u32, u64, Vec<LineMarks>, Vec<u8>)>,
}

impl<C: Marks> Tried<C> {
    fn new() -> Tried<C> {
        Tried {
            w: WindowOf::observed().unwrap(),
            base: Lines::default(),
            noted: None,
            shown: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        let w = &mut self.w;
        match step {
            Step::Write(at, bytes) => w.write_from_outside(*at, bytes),
            Step::Set(at, bytes) => {
                w.touch(*at, 16);
                w.dirty.add(*at, 16);
                w.set_cells(*at, *bytes);
            }
            Step::Give(at, n, value) => {
                w.dirty.add(*at, 8);
                match n {
                    8 => w.give_word(*at, *value),
                    n => w.give_bytes(*at, *n, *value),
                }
            }
            Step::Zero(at, n) => w.zero(*at, *n).unwrap(),
            Step::Mark(kind, at, n, mark) => {
                w.dirty.add(*at, *n);
                w.set_marks(KINDS[*kind], *at, *n, *mark);
            }
            Step::WriteMarks(kind, at, bytes) => {
                w.dirty.add(*at, bytes.len() as u64);
                w.write_marks(KINDS[*kind], *at, bytes);
            }
            Step::Unknown(at, n) => {
                w.dirty.add(*at, *n);
                w.unknown(*at, *n);
            }
            Step::Forget(at, n) => w.forget(*at, *n).unwrap(),
            Step::Given(at, n) => w.given(*at, *n).unwrap(),
            Step::Taken(at, bytes) => {
                w.dirty.add(*at, bytes.len() as u64);
                w.taken(*at, bytes);
            }
            Step::Clear => w.clear().unwrap(),
            Step::ClearMarks => w.clear_marks().unwrap(),
            Step::TakeMarks => {
                let shown = &mut self.shown;
                w.take_marks(&mut |page, lines, marks, cells| {
                    let its = (0..64).filter(|i| lines & 1 << i != 0);
                    let its = its.map(|i| marks[i]).collect();
                    shown.push((page, lines, its, cells.to_vec()));
                })
                .unwrap();
            }
            Step::Later(pages) => {
                let content = |number: u32| -> Option<SharedPage> {
                    let byte = |i: usize| (number as usize + i / 100) as u8;
                    Some(Arc::new(std::array::from_fn(byte)))
                };
                let lines = Lines::later(pages.clone(), Box::new(content)).unwrap();
                self.begin(lines);
            }
            Step::Held(byte) => {
                let page: SharedPage = Arc::new([*byte; 4096]);
                let pages = [501, 503].map(|n| (n, Some(Arc::clone(&page))));
                let lines = Lines::shared(pages.into_iter()).unwrap();
                self.begin(lines);
            }
            Step::Note => {
                let kinds = KINDS.map(|k| self.w.marked_lines(k).unwrap());
                let [reads, writes] = kinds;
                self.noted = Some([self.w.beyond(&self.base).unwrap(), reads, writes]);
            }
            Step::Back => {
                if let Some([cells, reads, writes]) = &self.noted {
                    w.become_lines(&self.base, cells).unwrap();
                    w.become_marked(KINDS[0], reads).unwrap();
                    w.become_marked(KINDS[1], writes).unwrap();
                }
            }
        }
    }

    fn begin(&mut self, lines: Lines) {
        self.w.begin_anywhere(&lines).unwrap();
        (self.base, self.noted) = (lines, None);
    }

    /// All that can be seen of it, in the pages in which something happens.
    fn seen(&mut self) -> (Vec<u8>, [Lines; 3], Lines) {
        let mut out = Vec::new();
        for page in (0..10u64).chain(499..512).chain((1 << 20) - 4..1 << 20) {
            let mut buf = [0; 4096];
            self.w.read(page * 4096, &mut buf);
            assert_eq!(buf, *self.w.page(page as u32));
            assert_eq!(buf[..16], self.w.cells::<16>(page * 4096));
            out.extend_from_slice(&buf);
            for kind in KINDS {
                self.w.marks(kind, page * 4096, &mut buf);
                out.extend_from_slice(&buf);
            }
        }
        let mut across = [0; 100];
        self.w.read((1 << 32) - 50, &mut across);
        out.extend_from_slice(&across);
        let [reads, writes] = KINDS.map(|k| self.w.marked_lines(k).unwrap());
        let cells = self.w.beyond(&self.base).unwrap();
        let content = self.w.content().unwrap();
        (out, [cells, reads, writes], content.in_pages())
    }
}

/// What a window holds, whatever pages of it are zero.
fn held(lines: &Lines) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::new();
    lines.each(&mut |page, bytes| {
        if *bytes != [0; 4096] {
            all.push((page, bytes.to_vec()));
        }
    });
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn both_windows_are_equal(steps in proptest::collection::vec(step(), 1..60)) {
        let mut mapped = Tried::<Mapped>::new();
        let mut paged = Tried::<super::Paged>::new();
        for step in &steps {
            mapped.take(step);
            paged.take(step);
        }
        prop_assert_eq!(&mapped.shown, &paged.shown);
        let (a, b) = (mapped.seen(), paged.seen());
        prop_assert!(a.0 == b.0, "cells or marks differ");
        prop_assert!(a.1 == b.1, "what a checkpoint holds differs");
        prop_assert!(held(&a.2) == held(&b.2), "what it hands over differs");
        prop_assert_eq!(mapped.w.laid_pages(), paged.w.laid_pages());
    }
}

#[test]
fn too_much_memory_is_noticed() {
    let mut w = WindowOf::<super::Paged>::new(hindsight_isa::Predictor::WINDOW).unwrap();
    // Only the first byte of each page is written, but the page is there.
    let most = super::table::MOST as u64;
    for page in 0..most {
        w.set_cells(page * 4096, [1]);
    }
    w.set_cells(most * 4096, [1]);
    assert!(w.is_full());
    assert_eq!(w.cells::<1>(most * 4096), [0]);
    w.clear().unwrap();
    assert!(!w.is_full());
}
