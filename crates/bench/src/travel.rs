//! What travel in a recording costs: milliseconds per question, at random places.

use crate::stats::Random;
use hindsight_timeline::{
    Breakpoint, Cancel, Cursor, Direction, Options, Reason, Result, Scope, Stops, ThreadId,
    Timeline, Watch, Watchpoint,
};
use std::path::Path;
use std::time::Instant;

/// Instructions after which the rare watchpoint is looked for.
const EARLY: u64 = 1_000_000;
/// Evaluations of a condition.
const MILLION: u64 = 1_000_000;

/// Measures and prints, one line per question.
pub fn run(trace: &Path, rounds: usize) -> Result<()> {
    let begin = Instant::now();
    let t = Timeline::open(trace, Options::default())?;
    let mut c = t.cursor()?;
    c.registers()?;
    let opened = ms(begin);
    println!(
        "open to first registers   {opened:10.1} ms {}",
        goal(opened, 1000.0)
    );

    let status = t.index_status();
    let begin = Instant::now();
    let built = t.build_index(&|_, _| {}, &Cancel::new())?;
    let bytes = format!("{} bytes for a trace of {}", built.bytes, t.trace().len());
    match status.present == status.parts {
        true => println!("index                     was there: {bytes}"),
        false => println!("index                     {:10.1} ms, {bytes}", ms(begin)),
    }
    if let Some(peak) = peak() {
        let goal = goal(peak, 2048.0);
        println!("peak memory               {peak:10.1} MiB {goal}");
    }
    let threads = t.threads()?;
    let longest = threads.iter().max_by_key(|h| h.to - h.from);
    let Some(thread) = longest else { return Ok(()) };
    let (id, from, to) = (thread.id, thread.from, thread.to);
    let all: u64 = threads.iter().map(|h| h.to - h.from).sum();
    println!(
        "instructions              {all:10} in {} threads",
        threads.len()
    );
    // Anywhere in any thread.
    let mut random = Random(1);
    let mut place = || {
        let mut n = random.next() % all.max(1);
        for h in &threads {
            if n < h.to - h.from {
                return (h.id, h.from + n);
            }
            n -= h.to - h.from;
        }
        (id, from)
    };

    let mut questions = Question::default();
    for _ in 0..rounds {
        let (thread, count) = place();
        questions.seek.time(|| c.seek_count(thread, count))?;
        questions
            .back
            .time(|| c.step(Direction::Backward, Scope::Thread))?;
        questions
            .back
            .time(|| c.step(Direction::Backward, Scope::Thread))?;
        // Memory that the program is about to use, and a stack slot.
        let address = nearby(&mut c)?;
        let (thread, count) = place();
        c.seek_count(thread, count)?;
        questions.memory.time(|| c.memory(address & !63, 64))?;
        questions
            .write
            .time(|| c.last_write(address & !7, 8, &Cancel::new()))?;
    }
    questions.seek.print("seek", 50.0);
    questions.back.print("reverse step", 20.0);
    questions.memory.print("64 bytes of memory", 20.0);
    questions.write.print("last write to 8 bytes", 150.0);
    reverse_continue(&mut c, id, from, to)
}

/// An address that an instruction near the cursor accesses.
fn nearby(c: &mut Cursor) -> Result<u64> {
    for _ in 0..100 {
        if let Some(a) = c.accesses()?.first() {
            return Ok(a.address);
        }
        c.step(Direction::Forward, Scope::Thread)?;
    }
    Ok(c.registers()?.gpr[4])
}

fn reverse_continue(c: &mut Cursor, id: ThreadId, from: u64, to: u64) -> Result<()> {
    let cancel = Cancel::new();
    // Something that was written early and, if there is such, never again.
    let mut best: Option<(u64, u64)> = None;
    for step in 0..200 {
        c.seek_count(id, from + EARLY.min(to - from) + 1000 * step)?;
        let written = c.accesses()?.into_iter().find(|a| a.write);
        let Some(a) = written else { continue };
        let count = c.count();
        c.seek_count(id, to)?;
        let last = c.last_write(a.address, a.len.min(8), &cancel)?;
        let at = last.map_or(u64::MAX, |w| w.count);
        if best.is_none_or(|b| at < b.1) {
            best = Some((a.address, at));
        }
        if at <= count {
            break;
        }
    }
    if let Some((address, at)) = best {
        c.seek_count(id, to)?;
        let mut stops = Stops {
            watchpoints: vec![Watchpoint {
                id: 0,
                address,
                len: 1,
                watch: Watch::Write,
                image: None,
            }],
            ..Stops::default()
        };
        let begin = Instant::now();
        let stop = c.run(Direction::Backward, Scope::Thread, &mut stops, &cancel)?;
        let elapsed = ms(begin);
        let hit = matches!(stop.reason, Reason::Watchpoint { .. });
        println!(
            "reverse-continue, watch   {elapsed:10.1} ms {}, {}",
            goal(elapsed, 1000.0),
            if hit {
                format!("hit at {at}")
            } else {
                "no hit".into()
            }
        );
    }
    // An address that is executed often enough; the condition never holds.
    for part in 1..20 {
        c.seek_count(id, from + (to - from) / 20 * part)?;
        let pc = c.registers()?.rip;
        let evaluated = std::cell::Cell::new(0);
        let mut b = Breakpoint::at(0, pc);
        let (seen, stop_at) = (&evaluated, &cancel);
        b.condition = Some(Box::new(move |v| {
            seen.set(seen.get() + 1);
            if seen.get() == MILLION {
                stop_at.cancel();
            }
            v.registers().rip == 0
        }));
        let mut stops = Stops {
            breakpoints: vec![b],
            ..Stops::default()
        };
        c.seek_count(id, to)?;
        let begin = Instant::now();
        c.run(Direction::Backward, Scope::Thread, &mut stops, &cancel)?;
        let elapsed = ms(begin);
        cancel.reset();
        drop(stops);
        if evaluated.get() >= MILLION / 2 {
            println!(
                "reverse-continue, break   {elapsed:10.1} ms {}, {} evaluations",
                goal(elapsed, 10_000.0),
                evaluated.get()
            );
            break;
        }
    }
    Ok(())
}

/// Times of each kind of question.
#[derive(Default)]
struct Question {
    seek: Times,
    back: Times,
    memory: Times,
    write: Times,
}

#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn time<T>(&mut self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let done = f()?;
        self.0.push(ms(begin));
        Ok(done)
    }

    fn print(&mut self, what: &str, reach: f64) {
        self.0.sort_by(f64::total_cmp);
        let at = |part: f64| {
            self.0
                .get(((self.0.len() - 1) as f64 * part) as usize)
                .copied()
                .unwrap_or(0.0)
        };
        println!(
            "{what:<25} {:10.2} ms median, {:.2} 95th percentile {}, {:.2} most",
            at(0.5),
            at(0.95),
            goal(at(0.95), reach),
            at(1.0)
        );
    }
}

/// A figure against what it is to be at most.
fn goal(figure: f64, most: f64) -> String {
    let met = if figure <= most { "met" } else { "NOT MET" };
    format!("(goal {most}: {met})")
}

/// Most memory that this process has had, in MiB.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn ms(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}
