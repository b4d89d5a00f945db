// The ways in which threads meet in Rust.
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, RwLock};
use std::thread;

const THREADS: u64 = 3;
const ROUNDS: u64 = 100;
static ONCE: Once = Once::new();

fn main() {
    let (send, receive) = channel();
    let (send_few, receive_few) = sync_channel(2);
    let turn = Arc::new((Mutex::new(0), Condvar::new()));
    let (barrier, table) = (Arc::new(Barrier::new(THREADS as usize)), Arc::new(RwLock::new(0)));
    let run = |me: u64| {
        let (send, send_few, turn) = (send.clone(), send_few.clone(), Arc::clone(&turn));
        let (barrier, table) = (Arc::clone(&barrier), Arc::clone(&table));
        thread::spawn(move || {
            for i in 0..ROUNDS {
                send.send(i).unwrap();
                send_few.send(i * me).unwrap();
                let mut now = turn.1.wait_while(turn.0.lock().unwrap(), |now| *now % THREADS != me).unwrap();
                *now += 1;
                drop(now);
                turn.1.notify_all();
                ONCE.call_once(|| send.send(1000).unwrap());
                match i % THREADS == me {
                    true => *table.write().unwrap() += 1,
                    false => assert!(*table.read().unwrap() <= ROUNDS),
                }
                barrier.wait();
            }
            thread::park_timeout(std::time::Duration::from_millis(1));
        })
    };
    let threads: Vec<_> = (0..THREADS).map(run).collect();
    drop((send, send_few));
    let few: u64 = receive_few.iter().sum();
    let all: u64 = receive.iter().sum();
    threads.into_iter().for_each(|t| t.join().unwrap());
    println!("{few} {all} {} {}", turn.0.lock().unwrap(), table.read().unwrap());
}
