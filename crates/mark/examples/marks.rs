//! Records only the parts that it asks for: `hindsight record --start-stopped -- marks [THREADS]`.

fn work(n: u64) -> u64 {
    (0..n).fold(1, |h, i| h.wrapping_mul(31).rotate_left(7) ^ i)
}

fn main() {
    let threads = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(2);
    let before = work(100_000);
    // A recorder must not change the program's output. So the output names it only if asked.
    let told = std::env::var_os("MARKS_TELL").is_some();
    let recorded = hindsight_mark::start();
    hindsight_mark::mark("begin", &before.to_le_bytes());
    let workers: Vec<_> = (0..threads)
        .map(|i: u64| {
            std::thread::spawn(move || {
                let a = work(10_000 + i);
                hindsight_mark::mark("worker", &i.to_le_bytes());
                hindsight_mark::stop();
                let b = work(200_000);
                hindsight_mark::start();
                a ^ b ^ work(10_000)
            })
        })
        .collect();
    let sum = workers
        .into_iter()
        .filter_map(|w| w.join().ok())
        .fold(0u64, u64::wrapping_add);
    hindsight_mark::mark("end", b"");
    hindsight_mark::stop();
    println!("{before:x} {sum:x} {:x}", work(100_000));
    if told {
        println!(
            "recorded: {recorded}, still: {}",
            hindsight_mark::is_recording()
        );
    }
}
