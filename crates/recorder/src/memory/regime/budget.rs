//! What the key frames of a quiet thread may cost: a part of the time that the program itself has run. So a program is
//! slowed down by as much, however much memory it has, and on any machine.
//!
//! Time decides only when there is a key frame. Replay finds it in the stream, and depends on no time.

use crate::sys;

/// Key frames take at most one part in so many of the program's time.
const SHARE: u64 = 40;
/// One key frame may take so many halves of what is left of that: what it costs is known only roughly.
const DEBT_HALVES: u64 = 3;
/// Bytes. What is shorter says little about what a byte costs.
const TELLING: u64 = 1 << 20;
/// Nanoseconds. The speed in less than that says little.
const SHORT: u64 = 1_000_000;
/// The unit in which bytes cost nanoseconds.
const MIB: u64 = 1 << 20;

/// What bytes cost, as it was measured lately: nanoseconds for each MiB.
#[derive(Clone, Copy)]
struct Rate(u64);

impl Rate {
    fn of(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.0) / MIB
    }

    /// Learns that this many bytes took so many nanoseconds.
    fn learn(&mut self, bytes: u64, nanos: u64) {
        if bytes >= TELLING {
            self.0 = (3 * self.0 + nanos.saturating_mul(MIB) / bytes) / 4;
        }
    }
}

/// The account of a thread. All times are nanoseconds.
pub struct Budget {
    /// The thread's processor time when the account was opened. `None`: it is not open.
    began: Option<u64>,
    /// What key frames have cost since then, with what the thread would have waited for room meanwhile on a processor of
    /// its own.
    spent: u64,
    /// Bytes that are only looked at.
    look: Rate,
    /// Bytes that are written.
    write: Rate,
    /// The thread at the last look.
    seen: Seen,
    /// Instructions in a microsecond, as it was lately.
    speed: u64,
    /// How much longer all takes since others use the processors too, in sixteenths. The collector has to wait for them as
    /// well.
    crowd: u64,
}

/// What a thread has done so far.
#[derive(Clone, Copy)]
struct Seen {
    position: u64,
    /// Processor time.
    nanos: u64,
    /// For how long it could have run and did not get a processor.
    delay: u64,
}

impl Seen {
    fn now(position: u64) -> Seen {
        Seen {
            position,
            nanos: sys::thread_nanos(),
            delay: sys::run_delay(),
        }
    }
}

/// On a processor of its own.
const ALONE: u64 = 16;
/// The most that others count for.
const CROWDED: u64 = 16 * ALONE;

/// Instructions in a microsecond. Few programs execute more.
const FAST: u64 = 16_000;

/// A clock that runs while a key frame is made.
pub struct Running {
    /// Processor time.
    nanos: u64,
    /// Time of waiting.
    waited: u64,
}

impl Running {
    fn now(waited: u64) -> Running {
        Running {
            nanos: sys::thread_nanos(),
            waited,
        }
    }
}

impl Budget {
    /// An account that is not open. The rates are those of a processor of some years ago.
    pub const fn new() -> Budget {
        Budget {
            began: None,
            spent: 0,
            look: Rate(250_000),
            write: Rate(500_000),
            seen: Seen {
                position: 0,
                nanos: 0,
                delay: 0,
            },
            speed: FAST,
            crowd: ALONE,
        }
    }

    /// Opens the account of a program that begins, or of a copy of one.
    pub fn open(&mut self) {
        self.seen = Seen::now(0);
        (self.began, self.spent) = (Some(self.seen.nanos), 0);
    }

    /// Notes where the thread stands now.
    pub fn note(&mut self, pos: u64) {
        self.note_all(Seen::now(pos));
    }

    fn note_all(&mut self, now: Seen) {
        let nanos = now.nanos.saturating_sub(self.seen.nanos);
        if nanos < SHORT {
            return;
        }
        let instructions = now.position.saturating_sub(self.seen.position);
        let delay = now.delay.saturating_sub(self.seen.delay);
        self.speed = (instructions.saturating_mul(1000) / nanos).clamp(1, FAST);
        let crowd = ALONE.saturating_mul(nanos.saturating_add(delay)) / nanos;
        self.crowd = crowd.min(CROWDED);
        self.seen = now;
    }

    /// At which position `cost` may be spent, as things go.
    pub fn due(&self, pos: u64, cost: u64) -> u64 {
        let wait = cost.saturating_sub(self.left()).saturating_mul(SHARE);
        pos.saturating_add((wait / 1000).saturating_mul(self.speed))
    }

    /// What may be spent now.
    pub fn left(&self) -> u64 {
        let began = self.began.unwrap_or(u64::MAX);
        left(sys::thread_nanos().saturating_sub(began), self.spent)
    }

    /// What it costs to look at some bytes, and to write others.
    pub fn cost(&self, looked_at: u64, written: u64) -> u64 {
        self.look.of(looked_at) + self.write.of(written)
    }

    /// Whether that much may be spent though only `left` is.
    pub fn bears(left: u64, cost: u64) -> bool {
        cost <= left.saturating_mul(DEBT_HALVES) / 2
    }

    /// Starts the clock. `waited` is how long the thread has waited for room until now.
    pub fn start(waited: u64) -> Running {
        Running::now(waited)
    }

    /// Notes what was neither a look nor writing.
    pub fn tried(&mut self, r: &mut Running, waited: u64) {
        self.spend(r, waited);
    }

    /// Notes that pages of this many bytes were looked at. Starts the clock again.
    pub fn looked(&mut self, bytes: u64, r: &mut Running, waited: u64) {
        let nanos = self.spend(r, waited);
        self.look.learn(bytes, nanos);
    }

    /// Notes that this many bytes were written.
    pub fn wrote(&mut self, bytes: u64, r: &mut Running, waited: u64) {
        let nanos = self.spend(r, waited);
        self.write.learn(bytes, nanos);
        log!(
            Debug,
            "that took {} us; a MiB takes {} us, and {} us to be looked at; {} us of {} are spent",
            nanos / 1000,
            self.write.0 / 1000,
            self.look.0 / 1000,
            self.spent / 1000,
            r.nanos.saturating_sub(self.began.unwrap_or(0)) / 1000
        );
    }

    fn spend(&mut self, r: &mut Running, waited: u64) -> u64 {
        let before = core::mem::replace(r, Running::now(waited));
        let waited = waited.saturating_sub(before.waited).saturating_mul(ALONE) / self.crowd;
        let nanos = r.nanos.saturating_sub(before.nanos) + waited;
        self.spent = self.spent.saturating_add(nanos);
        nanos
    }
}

/// What may be spent of a program's time, `run` with all key frames, when they have taken `spent` of it.
fn left(run: u64, spent: u64) -> u64 {
    (run.saturating_sub(spent) / SHARE).saturating_sub(spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_frames_take_their_share_at_most() {
        assert_eq!(left(1_000_000, 0), 25_000);
        // The program itself has run for 1,000,000.
        assert_eq!(left(1_010_000, 10_000), 15_000);
        assert_eq!(left(1_025_000, 25_000), 0);
        assert_eq!(left(1_100_000, 100_000), 0);
        // A key frame that was dearer is paid back.
        assert_eq!(left(4_000_000 + 100_000, 100_000), 0);
        assert_eq!(left(4_400_000 + 100_000, 100_000), 10_000);
    }

    #[test]
    fn nothing_is_left_before_an_account_is_open() {
        let mut b = Budget::new();
        assert_eq!(b.left(), 0);
        b.open();
        assert!(b.left() < 1_000_000_000);
        b.spent = u64::MAX;
        b.speed = 50;
        // A thousand nanoseconds have to be earned by forty thousand, which is two thousand instructions.
        assert_eq!((b.left(), b.due(7, 1000)), (0, 2007));
        b.open();
        assert_eq!(b.spent, 0);
    }

    #[test]
    fn time_of_waiting_counts_less_in_a_crowd() {
        let seen = |position, nanos, delay| Seen {
            position,
            nanos,
            delay,
        };
        let mut b = Budget::new();
        b.note_all(seen(20_000_000, 1_000_000, 0));
        assert_eq!((b.speed, b.crowd), (FAST, ALONE));
        // It had a processor for a quarter of the time.
        b.note_all(seen(22_000_000, 2_000_000, 3_000_000));
        assert_eq!((b.speed, b.crowd), (2000, 4 * ALONE));
        let mut r = Budget::start(0);
        let before = b.spent;
        b.wrote(TELLING, &mut r, 40_000_000_000);
        let spent = b.spent - before;
        assert!((10_000_000_000..11_000_000_000).contains(&spent), "{spent}");
        // Too little to say anything, and clocks that make no sense.
        b.note_all(seen(23_000_000, 2_000_010, 9_000_000));
        assert_eq!(b.crowd, 4 * ALONE);
        b.note_all(seen(0, 9_000_000, u64::MAX));
        assert_eq!((b.speed, b.crowd), (1, CROWDED));
    }

    #[test]
    fn rates_follow_what_is_measured() {
        let mut r = Rate(400);
        r.learn(TELLING - 1, 1 << 40);
        assert_eq!(r.of(2 * MIB), 800);
        r.learn(2 * MIB, 1600);
        assert_eq!(r.of(MIB), 500);
        (0..60).for_each(|_| r.learn(4 * MIB, 4000));
        assert!((990..=1000).contains(&r.of(MIB)));
        assert!(Budget::bears(10, 15) && !Budget::bears(10, 16));
    }
}
