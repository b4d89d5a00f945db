//! All orders in which two threads can use the shared memory, tried by loom.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test --release -p hindsight-events --target-dir target/loom --lib models
//! ```
//!
//! Loom knows what the processor may do with stores and loads. A thread that waits for ever is a deadlock, which it reports.

extern crate std;

use crate::consumer::{Consumer, let_go};
use crate::producer;
use crate::ring::{Ctl, Header, RING_BYTES, state};
use crate::shared::{AtomicU32, Byte, Ordering::*};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A ring, and a futex as the kernel has it.
struct Ring {
    ctl: Ctl,
    data: Box<[Byte]>,
    lock: Mutex<()>,
    woken: Condvar,
    /// The consumer is gone, and will never wake anybody.
    gone: AtomicU32,
}

// SAFETY: the producer uses bytes behind the head, the consumer those before it. Loom looks whether they do.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    fn new() -> Arc<Ring> {
        Arc::new(Ring {
            ctl: Ctl::default(),
            data: (0..RING_BYTES).map(|_| Byte::new(0)).collect(),
            lock: Mutex::new(()),
            woken: Condvar::new(),
            gone: AtomicU32::new(0),
        })
    }

    fn data(&self) -> *mut Byte {
        self.data.as_ptr().cast_mut()
    }

    fn consumer(&self) -> Consumer {
        // SAFETY: the ring outlives it, and each model has one.
        unsafe { Consumer::of(&self.ctl, self.data()) }
    }

    /// Puts bytes in the ring, after waiting for room. `false`: the consumer is gone.
    fn put(&self, bytes: &[u8]) -> bool {
        let most = (RING_BYTES - bytes.len()) as u64;
        if producer::used(&self.ctl) > most {
            let mut left = false;
            producer::wait(&self.ctl, most, |word, seen| {
                let guard = self.lock.lock().unwrap();
                left = self.gone.load(Acquire) != 0;
                if left {
                    return ControlFlow::Break(());
                }
                if word.load(Relaxed) == seen {
                    drop(self.woken.wait(guard).unwrap());
                }
                ControlFlow::Continue(())
            });
            if left && producer::used(&self.ctl) > most {
                return false;
            }
        }
        // SAFETY: there is room, and this is the only producer.
        unsafe { producer::put(&self.ctl, self.data(), bytes) };
        true
    }

    fn wake(&self, word: Option<&AtomicU32>) {
        if let Some(word) = word {
            word.fetch_add(1, Release);
            drop(self.lock.lock().unwrap());
            self.woken.notify_all();
        }
    }

    /// Consumes what there is. Looks for a producer that waits only if there was something: one look must do.
    fn pull(&self, c: &mut Consumer, to: &mut Vec<u8>) -> usize {
        let n = c.pull(Some(to), |_, _| {}).expect("nobody overwrites it");
        if n > 0 {
            self.wake(c.waiter());
        }
        n
    }
}

/// Tries all orders in which a thread is interrupted at most this often where it could go on. Three show the known faults of
/// such code, and more take hours.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// What the producer writes: more than the ring holds, so that it begins again at the start.
const EVENTS: [[u8; 3]; 3] = [[1, 2, 3], [4, 5, 6], [7, 8, 9]];

fn all() -> Vec<u8> {
    EVENTS.concat()
}

#[test]
fn what_is_put_is_pulled_whole_and_in_order() {
    model(|| {
        let ring = Ring::new();
        let theirs = ring.clone();
        let producer = thread::spawn(move || EVENTS.iter().all(|e| theirs.put(e)));
        let (mut c, mut got) = (ring.consumer(), Vec::new());
        while got.len() < all().len() {
            if ring.pull(&mut c, &mut got) == 0 {
                thread::yield_now();
            }
            assert_eq!(got.len() % 3, 0, "whole events");
        }
        assert!(producer.join().unwrap());
        assert_eq!(got, all());
    });
}

#[test]
fn a_producer_ends_when_its_consumer_dies() {
    model(|| {
        let ring = Ring::new();
        let theirs = ring.clone();
        let producer = thread::spawn(move || EVENTS.iter().take_while(|e| theirs.put(*e)).count());
        let (mut c, mut got) = (ring.consumer(), Vec::new());
        ring.pull(&mut c, &mut got);
        // As the kernel wakes whoever sleeps too long.
        ring.gone.store(1, Release);
        drop(ring.lock.lock().unwrap());
        ring.woken.notify_all();
        let put = producer.join().unwrap();
        assert!((2..=3).contains(&put), "two fit in any case: {put}");
        ring.pull(&mut c, &mut got);
        assert_eq!(got, all()[..3 * put]);
    });
}

#[test]
fn a_producer_goes_on_when_nobody_reads_what_it_writes() {
    model(|| {
        let ring = Ring::new();
        let theirs = ring.clone();
        let producer = thread::spawn(move || {
            let done = EVENTS.iter().all(|e| theirs.put(e));
            theirs.ctl.state.store(state::ENDED, Release);
            done
        });
        while ring.ctl.state.load(Acquire) != state::ENDED {
            ring.wake(let_go(&ring.ctl));
            thread::yield_now();
        }
        assert!(producer.join().unwrap());
    });
}

#[test]
fn a_ring_has_one_owner_at_a_time_and_the_collector_sees_it() {
    model(|| {
        let shared = Arc::new((Header::default(), Ctl::default(), AtomicU32::new(0)));
        shared.0.rings.store(1, Relaxed);
        let claim = |shared: Arc<(Header, Ctl, AtomicU32)>| {
            let (header, ctl, owners) = &*shared;
            let mine = header.claim(|_| ctl).is_some();
            if mine {
                assert_eq!(owners.fetch_add(1, AcqRel), 0, "two owners");
                ctl.state.store(state::LIVE, Release);
            }
            mine
        };
        // The one before has ended.
        assert!(claim(shared.clone()));
        shared.2.store(0, Release);
        shared.1.state.store(state::ENDED, Release);
        let theirs = shared.clone();
        let other = thread::spawn(move || claim(theirs));
        let (header, ctl, owners) = &*shared;
        header.free(0, ctl);
        let mine = header.claim(|_| ctl).is_some();
        if mine {
            assert_eq!(owners.fetch_add(1, AcqRel), 0, "two owners");
        }
        let others = other.join().unwrap();
        assert!(!(mine && others));
        // Whoever has it is seen.
        let seen = header.live[0].load(Acquire) & 1 != 0;
        assert_eq!(seen, mine || others);
    });
}

#[test]
fn a_process_that_is_being_made_is_counted_once() {
    model(|| {
        let header = Arc::new(Header::default());
        let u = header.expect();
        let (parent, child) = (header.clone(), header.clone());
        let names = thread::spawn(move || parent.name(u, 7));
        // It has its ring at once, while the collector sees that it lives no more.
        let born = thread::spawn(move || child.born(u));
        header.bury(|_| false);
        names.join().unwrap();
        born.join().unwrap();
        assert_eq!(header.unborn.load(Acquire), 0);
    });
}
