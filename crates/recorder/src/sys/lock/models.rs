//! All orders in which threads can use a lock, tried by loom. Some of them are killed while they have it.
//!
//! In models in which sleeps end by themselves, at most one thread waits: two could look at the lock by turns for ever,
//! and loom would try that.
//!
//! ```sh
//! scripts/loom
//! ```

use super::word::Word;
use super::{Guard, Lock, Owner, ask};
use core::sync::atomic::Ordering::{self, *};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64};
use loom::thread;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

/// Two numbers that are equal, except while somebody changes them. Loom looks that nobody uses them
/// at the same time.
struct Pair {
    numbers: UnsafeCell<[u32; 2]>,
    /// How often they were mended.
    mended: u32,
}

impl Pair {
    /// The first half of a change.
    fn begin(&mut self) {
        // SAFETY: the pair is borrowed mutably; loom checks it.
        self.numbers.with_mut(|n| unsafe { (*n)[0] += 1 });
    }

    fn finish(&mut self) {
        // SAFETY: as above.
        self.numbers.with_mut(|n| unsafe { (*n)[1] += 1 });
    }

    fn get(&self) -> [u32; 2] {
        // SAFETY: the pair is borrowed; loom checks it.
        self.numbers.with(|n| unsafe { *n })
    }

    fn mend(&mut self) {
        // SAFETY: as in `begin`.
        self.numbers.with_mut(|n| unsafe { (*n)[0] = (*n)[1] });
        self.mended += 1;
    }
}

type Shared = Lock<Pair, AtomicU64>;

fn shared() -> Arc<Shared> {
    let pair = Pair {
        numbers: UnsafeCell::new([0, 0]),
        mended: 0,
    };
    Arc::new(Lock::of(AtomicU64::new(0), pair, Some(Pair::mend)))
}

/// A thread that may be killed.
struct Mortal {
    address: u64,
    dead: AtomicBool,
}

impl Owner for Mortal {
    fn is(&self, address: u64) -> bool {
        self.address == address
    }

    fn has(&self, address: u64) -> bool {
        self.address == address
    }

    fn is_gone(&self) -> bool {
        self.dead.load(Acquire)
    }
}

/// The threads of the model that is tried at present. Loom runs one thread of it at a time.
static MORTALS: Mutex<Vec<Arc<Mortal>>> = Mutex::new(Vec::new());
/// Models use [`MORTALS`] one after the other.
static MODEL: Mutex<()> = Mutex::new(());

fn find(address: u64, then: &mut dyn FnMut(&dyn Owner)) {
    let all = MORTALS.lock().unwrap_or_else(|e| e.into_inner());
    let found = all.iter().find(|m| m.address == address).cloned();
    drop(all);
    if let Some(owner) = found {
        then(&*owner);
    }
}

/// The threads are known by the addresses 8, 16 and so on.
fn mortals<const N: usize>() -> [Arc<Mortal>; N] {
    let all: [_; N] = std::array::from_fn(|i| {
        Arc::new(Mortal {
            address: (i as u64 + 1) * 8,
            dead: AtomicBool::new(false),
        })
    });
    *MORTALS.lock().unwrap_or_else(|e| e.into_inner()) = all.to_vec();
    all
}

/// Tries all orders in which a thread is interrupted at most this often where it could go on.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let one = MODEL.lock().unwrap_or_else(|e| e.into_inner());
    ask(find);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        f();
        MORTALS.lock().unwrap_or_else(|e| e.into_inner()).clear();
    });
    drop(one);
}

/// Changes both numbers.
fn change(lock: &Shared, me: &Mortal) {
    let mut guard = lock.lock_as(me.address);
    let [a, b] = guard.get();
    assert_eq!(a, b, "somebody sees half of a change");
    guard.begin();
    guard.finish();
}

/// Where a thread is killed.
#[derive(Clone, Copy)]
enum Killed {
    Looking,
    /// Before its first write.
    Early,
    Halfway,
    /// After its last write.
    Late,
}

/// Takes the lock and is killed with it.
fn die(lock: &Shared, me: &Mortal, at: Killed) {
    let mut guard = lock.lock_as(me.address);
    match at {
        Killed::Looking => assert_eq!(guard.get()[0], guard.get()[1]),
        Killed::Early => {
            let _: &mut Pair = &mut guard;
        }
        Killed::Halfway => guard.begin(),
        Killed::Late => {
            guard.begin();
            guard.finish();
        }
    }
    std::mem::forget(guard);
    me.dead.store(true, Release);
}

#[test]
fn one_thread_at_a_time_uses_the_value() {
    model(|| {
        let (lock, [one, two]) = (shared(), mortals());
        let theirs = lock.clone();
        let other = thread::spawn(move || change(&theirs, &two));
        change(&lock, &one);
        other.join().unwrap();
        let guard = lock.lock_as(one.address);
        assert_eq!((guard.get(), guard.mended), ([2, 2], 0));
    });
}

/// A thread takes the lock and is killed, while another one wants it too.
fn killed(at: Killed, whole: u32, mended: u32) {
    model(move || {
        let (lock, [one, two]) = (shared(), mortals());
        let theirs = lock.clone();
        let other = thread::spawn(move || die(&theirs, &one, at));
        change(&lock, &two);
        other.join().unwrap();
        // If the one that was killed had it last, it is inherited now.
        let guard = lock.lock_as(two.address);
        assert_eq!((guard.get(), guard.mended), ([whole, whole], mended));
    });
}

#[test]
fn a_lock_of_one_that_only_looked_goes_on_as_it_is() {
    killed(Killed::Looking, 1, 0);
}

#[test]
fn a_lock_of_one_that_was_about_to_write_is_mended() {
    killed(Killed::Early, 1, 1);
}

#[test]
fn a_lock_of_one_that_was_killed_halfway_is_mended_once() {
    killed(Killed::Halfway, 1, 1);
}

#[test]
fn a_lock_of_one_that_had_written_all_is_mended() {
    killed(Killed::Late, 2, 1);
}

/// Two threads find out at the same time that the owner is gone.
#[test]
fn a_lock_has_one_heir() {
    model(|| {
        let (lock, [one, two, three]) = (shared(), mortals());
        die(&lock, &one, Killed::Halfway);
        let inherit = |lock: &Shared, me: &Mortal| {
            let heir = lock.inherit(me.address);
            if heir {
                let mut guard = Guard(lock);
                guard.begin();
                guard.finish();
            }
            heir
        };
        let theirs = lock.clone();
        let other = thread::spawn(move || inherit(&theirs, &two));
        let mine = inherit(&lock, &three);
        assert!(mine != other.join().unwrap());
        let guard = lock.lock_as(three.address);
        assert_eq!((guard.get(), guard.mended), ([1, 1], 1));
    });
}

/// The one that inherits is killed as well, before it has given the lock back.
#[test]
fn an_inherited_lock_can_be_inherited_again() {
    model(|| {
        let (lock, [one, two, three]) = (shared(), mortals());
        die(&lock, &one, Killed::Halfway);
        let theirs = lock.clone();
        let other = thread::spawn(move || die(&theirs, &two, Killed::Halfway));
        change(&lock, &three);
        other.join().unwrap();
        let guard = lock.lock_as(three.address);
        assert_eq!((guard.get(), guard.mended), ([1, 1], 2));
    });
}

/// Nobody takes a lock from one that lives, however long that takes.
#[test]
fn a_living_owner_keeps_its_lock() {
    model(|| {
        let (lock, [one, two]) = (shared(), mortals());
        let guard = lock.lock_as(one.address);
        let word = lock.owner.load(Relaxed);
        assert!(!lock.inherit_from(&*one, two.address));
        assert_eq!(lock.owner.load(Relaxed), word);
        drop(guard);
        // Another thread has it now. That the first one is gone does not matter.
        let guard = lock.lock_as(two.address);
        one.dead.store(true, Release);
        assert!(!lock.inherit_from(&*one, one.address));
        drop(guard);
    });
}

/// A word on which a thread sleeps until it is woken, however long that takes. Loom finds out if
/// nobody does.
struct Patient {
    word: AtomicU64,
    /// What the kernel locks to compare the word and to wake.
    kernel: loom::sync::Mutex<()>,
    woken: loom::sync::Condvar,
}

impl Word for Patient {
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }

    fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.word.compare_exchange(old, new, success, failure)
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.word.fetch_or(bits, order)
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.word.swap(value, order)
    }

    fn sleep(&self, value: u64, _: u32) -> bool {
        let kernel = self.kernel.lock().unwrap();
        if self.word.load(SeqCst) == value {
            drop(self.woken.wait(kernel).unwrap());
        }
        false
    }

    fn wake(&self) {
        let _kernel = self.kernel.lock().unwrap();
        self.woken.notify_one();
    }
}

/// Everybody who sleeps is woken, also if several do.
#[test]
fn who_sleeps_is_woken() {
    model(|| {
        let pair = Pair {
            numbers: UnsafeCell::new([0, 0]),
            mended: 0,
        };
        let word = Patient {
            word: AtomicU64::new(0),
            kernel: loom::sync::Mutex::new(()),
            woken: loom::sync::Condvar::new(),
        };
        let lock = Arc::new(Lock::of(word, pair, Some(Pair::mend)));
        let add = |lock: &Lock<Pair, Patient>, address| {
            let mut guard = lock.lock_as(address);
            guard.begin();
            guard.finish();
        };
        let others = [8, 16].map(|address| {
            let lock = lock.clone();
            thread::spawn(move || add(&lock, address))
        });
        add(&lock, 24);
        others.into_iter().for_each(|o| o.join().unwrap());
        assert_eq!(lock.lock_as(24).get(), [3, 3]);
    });
}
