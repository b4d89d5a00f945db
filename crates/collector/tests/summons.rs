//! Which threads the collector makes come to the recorder.

mod common;

use common::*;
use hindsight_events::Event;
use hindsight_trace::Header;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::*};

/// The ids of the threads of the test.
static THREADS: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];
/// How often each was signalled.
static CAME: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

extern "C" fn count(_: i32) {
    // SAFETY: the call uses no memory.
    let me = unsafe { libc::gettid() };
    if let Some(i) = THREADS.iter().position(|t| t.load(Relaxed) == me) {
        CAME[i].fetch_add(1, Relaxed);
    }
}

/// A signal would end the call of one that is in a system call, and kill one that has only begun.
#[test]
fn only_threads_that_compute_are_summoned() {
    let action = count as extern "C" fn(i32);
    // SAFETY: the handler uses only atomic variables.
    unsafe { libc::signal(libc::SIGTRAP, action as libc::sighandler_t) };
    let registers = Event::Regs {
        mask: 1,
        ilen: 0,
        values: [0; 19],
    };
    let call = Event::Syscall {
        nr: 61,
        args: [0; 6],
    };
    let streams: [&[Event]; 3] = [&[registers, call], &[registers], &[]];
    let done = AtomicBool::new(false);
    let header = Header {
        keyframe_interval: 1 << 20,
        ..Header::default()
    };
    collect_with(Disk::default(), &header, |control, _| {
        let control = &control;
        std::thread::scope(|s| {
            for (i, events) in streams.into_iter().enumerate() {
                let done = &done;
                s.spawn(move || {
                    THREADS[i].store(Who::thread().tid, Relaxed);
                    let mut p = Producer::new(control, i + 1);
                    events.iter().for_each(|e| p.emit(0, e));
                    control.header().request_attention(i + 1);
                    // It has a processor all the time, as in a loop, or where a call takes long.
                    while !done.load(Relaxed) && CAME[1].load(Relaxed) < 3 {
                        std::hint::spin_loop();
                    }
                    done.store(true, Relaxed);
                    p.end();
                });
            }
        });
    });
    assert_eq!([0, 2].map(|i| CAME[i].load(Relaxed)), [0, 0]);
}
