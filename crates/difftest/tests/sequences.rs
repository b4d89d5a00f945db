//! Short sequences of instructions in one block. They test flags that one instruction leaves to
//! another, faults in the middle, and positions.

use hindsight_difftest::sequences::{compare, next, plain, select};

#[test]
fn sequences_do_what_the_processor_does() {
    let common = select(|c| plain(c) && next(c));
    let (any, last) = (select(next), select(plain));
    compare(8, 2, |choice| {
        let n = 2 + choice.below(5);
        let mut codes: Vec<_> = (1..n)
            .map(|_| {
                let list = if choice.one_in(3) { &any } else { &common };
                choice.pick(list)
            })
            .collect();
        codes.push(choice.pick(&last));
        codes
    });
}
