//! An instruction that makes flags, then reads of memory, then an instruction that uses the flags.

use hindsight_difftest::sequences::{compare, named, next, plain, select};
use iced_x86::{Code, Mnemonic};

#[test]
fn flags_outlive_checks() {
    use Mnemonic::*;
    let of = |list: &[Mnemonic]| -> Vec<Code> {
        select(|c| plain(c) && next(c) && list.contains(&named(*c).mnemonic()))
    };
    let makers = of(&[Cmp, Test, Add, Sub, And, Or, Xor, Adc, Sbb, Inc, Shl, Bt]);
    let readers = of(&[
        Mov, Movzx, Movsx, Movsxd, Pop, Push, Leave, Movsb, Movsq, Movups, Cvtsi2sd, Lea, Not, Xchg,
    ]);
    let users = of(&[
        Cmove, Cmovb, Cmovo, Cmovp, Sete, Setl, Adc, Sbb, Rcl, Inc, Lahf, Mov,
    ]);
    compare(6, 3, |choice| {
        let mut codes = vec![choice.pick(&makers)];
        for _ in 0..1 + choice.below(3) {
            codes.push(choice.pick(&readers));
        }
        codes.push(choice.pick(&users));
        codes
    });
}
