//! Where a replay logs which instructions it executes.
//!
//! A *run* is a number of instructions that stand one behind the other and are executed one after the other. The log has an
//! entry of 8 bytes for each run, in the slot of its first instruction: slot `n` belongs to the `n`th instruction since the log
//! began. So nobody counts entries, and a run's entry tells where the next one is. A run in translated code is a segment.
//!
//! While translated code runs, the FS base points so far below the log that the instruction counter, which is negative, leads
//! to the slot: `mov fs:[r11d*8 + displacement], half an entry`. The address has 32 bits. So whatever the counter is, the store
//! is within 4 GiB of the FS base, and these belong to the log.

/// Slots of a log: no more instructions than this are executed until somebody reads it.
pub const SLOTS: u64 = 1 << 13;

/// Bytes of a slot.
pub const SLOT: u64 = 8;

/// Bytes of address space before the log that stores may reach.
pub const BEFORE: u64 = 1 << 32;

/// Bits of an address in an entry. The others say how many instructions the run has.
const ADDRESS: u32 = 48;

/// The entry of a run of `len` instructions at `pc`. `None`: the address does not fit, or the length is 0.
pub fn entry(pc: u64, len: u16) -> Option<u64> {
    (address(pc) == pc && len > 0)
        .then_some(pc << (64 - ADDRESS) >> (64 - ADDRESS) | (len as u64) << ADDRESS)
}

/// Address and length of the run of an entry. An entry that is 0 stands for no run.
pub fn run(entry: u64) -> (u64, u16) {
    (address(entry), (entry >> ADDRESS) as u16)
}

/// The address whose low bits these are.
fn address(low: u64) -> u64 {
    ((low << (64 - ADDRESS)) as i64 >> (64 - ADDRESS)) as u64
}

/// The FS base for a log at `log`, while the counter says how many instructions may be executed until the one of slot `limit`.
pub fn fs_base(log: u64, limit: u64) -> u64 {
    (log + SLOT * (limit + 1)).wrapping_sub(BEFORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_say_what_they_were_made_of() {
        for (pc, len) in [
            (0, 1),
            (0x7fff_ffff_fff0, 64),
            (0xffff_ffff_ff60_0000, 3),
            (1, u16::MAX),
        ] {
            assert_eq!(entry(pc, len).map(run), Some((pc, len)));
        }
        assert_eq!(entry(1 << 52, 1), None);
        assert_eq!(entry(5, 0), None);
    }

    #[test]
    fn the_counter_leads_to_the_slot() {
        // The counter before an instruction when `n` may be executed, itself included.
        let slot = |fs: u64, n: u64| fs + ((n + 1).wrapping_neg() as u32).wrapping_mul(8) as u64;
        let log = 0x7f00_0000_0000;
        for limit in [1, 5, SLOTS] {
            for at in 0..limit {
                assert_eq!(slot(fs_base(log, limit), limit - at), log + 8 * at);
            }
        }
    }
}
