use super::*;

#[test]
fn a_text_that_cannot_be_looked_up_is_asked_for_once() {
    let asked = Cell::new(0);
    let nothing = |_, _| {
        asked.set(asked.get() + 1);
        assert!(asked.get() < 10);
        Vec::new()
    };
    assert_eq!(text(0x1000, nothing), None);
    let memory = |at: u64, len: usize| -> Vec<Option<u8>> {
        let all = [b"a".repeat(100), vec![0; 100]].concat();
        let from = (at - 0x1000) as usize;
        all[from..from + len].iter().map(|b| Some(*b)).collect()
    };
    assert_eq!(text(0x1000, memory), Some(b"a".repeat(100)));
    assert_eq!(text(0x1001, memory), Some(b"a".repeat(99)));
    assert_eq!(text(0, memory), None);
    assert_eq!(text(0x1000, |_, len| vec![Some(1); len]), None);
}

#[test]
fn holes_are_told_up_to_a_number() {
    let bytes: Vec<_> = (0..4 * HOLES).map(|n| (n % 2 == 0).then_some(1)).collect();
    let (blob, holes) = known(bytes);
    assert_eq!(blob.len(), 4 * HOLES);
    assert_eq!(holes.len(), HOLES + 1);
    let (at, len) = holes[HOLES];
    assert_eq!(at + len, 4 * HOLES as u64);
}
