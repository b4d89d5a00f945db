//! Transcendental instructions of the x87. Each maker of processors approximates them in its own way, for all bits of an operand.
//! So the recorder executes them and records what they gave, and replay takes it from there.

use crate::VecState;
use iced_x86::Mnemonic;

/// Bytes of an x87 register.
pub const REGISTER: usize = 10;

/// Which one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transcendental {
    F2xm1,
    Fcos,
    Fpatan,
    Fptan,
    Fsin,
    Fsincos,
    Fyl2x,
    Fyl2xp1,
}

impl Transcendental {
    /// The one of this name.
    pub fn of(m: Mnemonic) -> Option<Transcendental> {
        Some(match m {
            Mnemonic::F2xm1 => Transcendental::F2xm1,
            Mnemonic::Fcos => Transcendental::Fcos,
            Mnemonic::Fpatan => Transcendental::Fpatan,
            Mnemonic::Fptan => Transcendental::Fptan,
            Mnemonic::Fsin => Transcendental::Fsin,
            Mnemonic::Fsincos => Transcendental::Fsincos,
            Mnemonic::Fyl2x => Transcendental::Fyl2x,
            Mnemonic::Fyl2xp1 => Transcendental::Fyl2xp1,
            _ => return None,
        })
    }

    /// How many registers from the top of the stack on it may change. All others keep what they hold, but not their names: the
    /// top moves.
    pub fn results(self) -> usize {
        match self {
            Transcendental::Fptan | Transcendental::Fsincos => 2,
            _ => 1,
        }
    }
}

/// What one left in the x87.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left<'a> {
    /// The status word.
    pub status: u16,
    /// The abridged tag word.
    pub tags: u8,
    /// The registers that it may have changed, from st(0) on.
    pub registers: &'a [u8],
}

impl Left<'_> {
    /// Brings the registers to what the instruction left. Does nothing and returns false if `what` leaves no such thing.
    pub fn apply(&self, what: Transcendental, v: &mut VecState) -> bool {
        if self.registers.len() != what.results() * REGISTER {
            return false;
        }
        v.set_status(self.status);
        v.ftw = self.tags;
        for (to, from) in v.st.iter_mut().zip(self.registers.chunks_exact(REGISTER)) {
            to[..REGISTER].copy_from_slice(from);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_keep_their_values_while_the_top_moves() {
        let mut v = VecState {
            fsw: 6 << 11,
            ..VecState::default()
        };
        for (n, st) in v.st.iter_mut().enumerate() {
            st[..REGISTER].fill(n as u8);
        }
        let registers = [[0x11; REGISTER], [0x22; REGISTER]];
        let registers = registers.as_flattened();
        let left = |status, count| Left {
            status,
            tags: 0xe0,
            registers: &registers[..count * REGISTER],
        };
        // Too many and too few.
        assert!(!left(5 << 11, 2).apply(Transcendental::Fyl2x, &mut v));
        assert!(!left(5 << 11, 1).apply(Transcendental::Fptan, &mut v));
        assert!(left(5 << 11, 2).apply(Transcendental::Fptan, &mut v));
        assert_eq!(v.st.map(|st| st[9]), [0x11, 0x22, 1, 2, 3, 4, 5, 6]);
        assert_eq!((v.fsw, v.ftw), (5 << 11, 0xe0));
        assert!(left(6 << 11, 1).apply(Transcendental::Fpatan, &mut v));
        assert_eq!(v.st.map(|st| st[9]), [0x11, 1, 2, 3, 4, 5, 6, 0x11]);
    }
}
