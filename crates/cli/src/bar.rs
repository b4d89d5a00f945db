//! How far something is.

use crate::numbers::size;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Progress on a terminal.
pub struct Bar {
    wanted: bool,
    begin: Instant,
    shown: Option<Instant>,
}

impl Bar {
    const WIDTH: usize = 30;

    /// One that is shown if it is wanted and standard error is a terminal.
    pub fn new(wanted: bool) -> Bar {
        Bar {
            wanted: wanted && std::io::stderr().is_terminal(),
            begin: Instant::now(),
            shown: None,
        }
    }

    /// Instructions done and to do.
    pub fn show(&mut self, done: u64, total: u64) {
        let part = (done as f64 / total.max(1) as f64).min(1.0);
        let full = (part * Self::WIDTH as f64) as usize;
        let bar = "#".repeat(full) + &"-".repeat(Self::WIDTH - full);
        let speed = done as f64 / 1e6 / self.begin.elapsed().as_secs_f64();
        self.tell(&format!(
            "[{bar}] {:3.0}%  {speed:.0} million instructions per second ",
            part * 100.0
        ));
    }

    /// Bytes done and to do.
    pub fn part(&mut self, done: u64, total: u64) {
        self.tell(&format!("{} of {} ", size(done), size(total)));
    }

    /// Instructions done for the index, where nobody knows how many there will be.
    pub fn count(&mut self, done: u64) {
        self.tell(&format!(
            "making what is missing of the index: {} million instructions ",
            done / 1_000_000
        ));
    }

    /// Bytes that have come, where nobody knows how many there will be.
    pub fn bytes(&mut self, come: u64) {
        let speed = come as f64 / self.begin.elapsed().as_secs_f64();
        let (come, speed) = (size(come), size(speed as u64));
        self.tell(&format!("{come} received, {speed} per second "));
    }

    fn tell(&mut self, text: &str) {
        let now = Instant::now();
        // Nothing flashes up for what takes a moment.
        let due = match self.shown {
            None => now - self.begin >= Duration::from_millis(300),
            Some(last) => now - last >= Duration::from_millis(100),
        };
        if !self.wanted || !due {
            return;
        }
        self.shown = Some(now);
        let _ = std::io::stderr()
            .write_all(format!("\r{}\x1b[K", hindsight_text::line(text)).as_bytes());
    }

    /// Takes it away.
    pub fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
