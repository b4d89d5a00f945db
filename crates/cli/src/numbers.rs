//! Numbers and times for people.

use hindsight_store::LocalTime;

/// A number with a space between each three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// A number of bytes for people.
pub fn size(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{:.1} KiB", n as f64 / 1024.0),
        10_000_000..10_000_000_000 => format!("{:.1} MiB", n as f64 / (1 << 20) as f64),
        _ => format!("{:.1} GiB", n as f64 / (1u64 << 30) as f64),
    }
}

/// The sum of numbers that a recording says. They may be anything, and so the sum is at most the greatest number.
pub fn total(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// A time of day, in seconds after the beginning of 1970.
pub fn local_time(seconds: i64) -> String {
    let t = LocalTime::at(seconds);
    let date = format!("{}-{:02}-{:02}", t.year, t.month, t.day);
    format!("{date} {:02}:{:02}:{:02}", t.hour, t.minute, t.second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1234567), "1 234 567");
        assert_eq!(size(9999), "9999 B");
        assert_eq!(size(10 << 20), "10.0 MiB");
    }
}
