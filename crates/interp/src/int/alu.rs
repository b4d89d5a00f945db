//! Arithmetic and logic.

use super::form::{Binary, Ternary, Unary, one, three, two};
use crate::Memory;
use crate::core::Core;
use crate::flags::Flags;
use crate::op::{Int, Op, Run};
use iced_x86::{Instruction, Mnemonic};

/// An operation on two operands: its name, what it is, and whether it stores the result.
macro_rules! operations {
    ($($name:ident $(($writes:literal))?: |$c:ident, $a:ident, $b:ident| $r:expr;)*) => {
        $(
            struct $name;
            impl Binary for $name {
                $(const WRITES: bool = $writes;)?
                #[inline(always)]
                fn apply<T: Int>($c: &mut Core, $a: T, $b: T) -> T {
                    $r
                }
            }
        )*
    };
}

operations! {
    Add: |c, a, b| { let r = a.plus(b); c.flags = Flags::sum(a, b, r); r };
    Sub: |c, a, b| { let r = a.minus(b); c.flags = Flags::difference(a, b, r); r };
    Cmp(false): |c, a, b| { let r = a.minus(b); c.flags = Flags::difference(a, b, r); r };
    Adc: |c, a, b| {
        let r = a.plus(b).plus(T::of(c.flags.cf() as u64));
        c.flags = Flags::sum(a, b, r);
        r
    };
    Sbb: |c, a, b| {
        let r = a.minus(b).minus(T::of(c.flags.cf() as u64));
        c.flags = Flags::difference(a, b, r);
        r
    };
    And: |c, a, b| { let r = a & b; c.flags = Flags::logic(r); r };
    Test(false): |c, a, b| { let r = a & b; c.flags = Flags::logic(r); r };
    Or: |c, a, b| { let r = a | b; c.flags = Flags::logic(r); r };
    Xor: |c, a, b| { let r = a ^ b; c.flags = Flags::logic(r); r };
    // They add with CF or OF as the carry, and change no other flag.
    Adcx: |c, a, b| {
        let r = a.plus(b).plus(T::of(c.flags.cf() as u64));
        let cf = Flags::sum(a, b, r).cf();
        c.flags.set_cf(cf);
        r
    };
    Adox: |c, a, b| {
        let r = a.plus(b).plus(T::of(c.flags.of() as u64));
        let (cf, of) = (c.flags.cf(), Flags::sum(a, b, r).cf());
        c.flags.set_cf_of(cf, of);
        r
    };
}

/// INC and DEC leave CF as it is.
macro_rules! steps {
    ($($name:ident: $step:ident, $flags:ident;)*) => {
        $(
            struct $name;
            impl Unary for $name {
                #[inline(always)]
                fn apply<T: Int>(c: &mut Core, a: T) -> T {
                    let (r, cf) = (a.$step(T::of(1)), c.flags.cf());
                    c.flags = Flags::$flags(a, T::of(1), r);
                    c.flags.set_cf(cf);
                    r
                }
            }
        )*
    };
}

steps! {
    Inc: plus, sum;
    Dec: minus, difference;
}

struct Neg;
impl Unary for Neg {
    fn apply<T: Int>(c: &mut Core, a: T) -> T {
        let r = T::of(0).minus(a);
        c.flags = Flags::difference(T::of(0), a, r);
        r
    }
}

struct Not;
impl Unary for Not {
    fn apply<T: Int>(_: &mut Core, a: T) -> T {
        !a
    }
}

struct Andn;
impl Ternary for Andn {
    fn apply<T: Int>(c: &mut Core, x: T, y: T) -> T {
        let r = !x & y;
        c.flags = Flags::logic(r);
        r
    }
}

pub fn find<M: Memory>(i: &Instruction, o: &mut Op<M>) -> Option<Run<M>> {
    match i.mnemonic() {
        Mnemonic::Add => two::<M, Add>(i, o),
        Mnemonic::Sub => two::<M, Sub>(i, o),
        Mnemonic::Cmp => two::<M, Cmp>(i, o),
        Mnemonic::Adc => two::<M, Adc>(i, o),
        Mnemonic::Sbb => two::<M, Sbb>(i, o),
        Mnemonic::And => two::<M, And>(i, o),
        Mnemonic::Test => two::<M, Test>(i, o),
        Mnemonic::Or => two::<M, Or>(i, o),
        Mnemonic::Xor => two::<M, Xor>(i, o),
        Mnemonic::Adcx => two::<M, Adcx>(i, o),
        Mnemonic::Adox => two::<M, Adox>(i, o),
        Mnemonic::Inc => one::<M, Inc>(i, o),
        Mnemonic::Dec => one::<M, Dec>(i, o),
        Mnemonic::Neg => one::<M, Neg>(i, o),
        Mnemonic::Not => one::<M, Not>(i, o),
        Mnemonic::Andn => three::<M, Andn>(i, o, 1),
        _ => None,
    }
}
