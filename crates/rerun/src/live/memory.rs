//! The memory of a process that runs.

use crate::plan::message;
use hindsight_remote::Process;
use hindsight_syscalls::{Memory, Range, outputs};
use std::io;

/// The longest text that is read.
const TEXT: usize = 4096;
/// The most buffers of a list.
const BUFFERS: u64 = 1024;
/// No more bytes are taken out of a call.
const MOST: usize = 1 << 30;

/// The memory of a process that runs.
pub struct ProcessMemory(Process);

impl ProcessMemory {
    /// # Errors
    /// There is no such process.
    pub fn of(pid: i32) -> io::Result<ProcessMemory> {
        Process::open(pid).map(ProcessMemory)
    }

    /// Opens it again after the process has loaded another program.
    ///
    /// # Errors
    /// The process is gone.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.0.reopen()
    }

    /// Bytes at an address.
    ///
    /// # Errors
    /// They are not all there.
    pub fn bytes(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut out = vec![0; len.min(MOST)];
        self.0.read(address, &mut out)?;
        Ok(out)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(address, bytes)
    }

    /// Writes the bytes that are known.
    ///
    /// # Errors
    /// There is no memory.
    pub fn write_known(&self, address: u64, bytes: &[Option<u8>]) -> io::Result<()> {
        let mut at = 0;
        for part in bytes.chunk_by(|a, b| a.is_some() == b.is_some()) {
            let known: Vec<u8> = part.iter().flatten().copied().collect();
            if !known.is_empty() {
                self.write(address.wrapping_add(at), &known)?;
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// A word of eight bytes.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut b = [0; 8];
        self.0.read(address, &mut b).ok()?;
        Some(u64::from_le_bytes(b))
    }

    /// A text that ends with a zero byte.
    pub fn text(&self, address: u64) -> Option<Vec<u8>> {
        const STEP: usize = 256;
        let mut out = Vec::new();
        while address != 0 && out.len() < TEXT {
            let from = address.wrapping_add(out.len() as u64);
            let mut part = vec![0; STEP - from as usize % STEP];
            self.0.read(from, &mut part).ok()?;
            if let Some(end) = part.iter().position(|b| *b == 0) {
                out.extend_from_slice(&part[..end]);
                return Some(out);
            }
            out.extend(part);
        }
        None
    }

    /// The buffers of a list: addresses and lengths.
    pub fn buffers(&self, list: u64, count: u64) -> Vec<(u64, u64)> {
        let entry = |i: u64| {
            let at = list.wrapping_add(16 * i);
            Some((self.word(at)?, self.word(at.wrapping_add(8))?))
        };
        (0..count.min(BUFFERS)).map_while(entry).collect()
    }

    /// Descriptors that are about to be sent in a message by a call.
    pub fn sent(&self, number: u64, args: &[u64; 6]) -> Vec<i32> {
        if number as i64 != libc::SYS_sendmsg {
            return Vec::new();
        }
        let field = |n: u64| self.word(args[1].wrapping_add(n)).unwrap_or(0);
        let len = field(message::CONTROL_LEN).min(message::MOST) as usize;
        let control = self.bytes(field(message::CONTROL), len);
        let control: Vec<_> = control.unwrap_or_default().into_iter().map(Some).collect();
        let found = message::descriptors(&control).unwrap_or_default();
        found.into_iter().map(|(_, fd)| fd).collect()
    }

    /// What a call writes that returns `ret`.
    pub fn outputs(&self, number: u64, args: &[u64; 6], ret: i64) -> Vec<Range> {
        let mut out = Vec::new();
        outputs(number as u32, args, ret, self, &mut |r| out.push(r));
        out
    }
}

/// Whether nobody else can change this memory of a process that stands still: it is neither shared, nor that of a file that
/// programs make in memory.
pub fn is_private(pid: i32, address: u64, len: u64) -> bool {
    let Ok(maps) = std::fs::read(format!("/proc/{pid}/maps")) else {
        return false;
    };
    String::from_utf8_lossy(&maps)
        .lines()
        .any(|line| holds_privately(line, address, len))
}

/// Whether a process has nothing in a part of its address space.
pub fn is_free(pid: i32, part: std::ops::Range<u64>) -> bool {
    let Ok(maps) = std::fs::read(format!("/proc/{pid}/maps")) else {
        return false;
    };
    !String::from_utf8_lossy(&maps)
        .lines()
        .any(|line| extent(line).is_none_or(|(start, end)| start < part.end && part.start < end))
}

/// The addresses of a mapping.
fn extent(line: &str) -> Option<(u64, u64)> {
    let number = |s: &str| u64::from_str_radix(s, 16).ok();
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some((number(start)?, number(end)?))
}

fn holds_privately(line: &str, address: u64, len: u64) -> bool {
    let Some((start, end)) = extent(line) else {
        return false;
    };
    let mut fields = line.split_ascii_whitespace().skip(1);
    let is_private = fields.next().is_some_and(|rights| rights.ends_with('p'));
    let path = fields.nth(3).unwrap_or_default();
    let holds = start <= address && address.checked_add(len).is_some_and(|e| e <= end);
    holds && is_private && !path.starts_with("/memfd:")
}

impl Memory for ProcessMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        self.0.read(addr, buf).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_private_if_nobody_else_can_change_it() {
        let heap = "55e0a000-55e0c000 rw-p 00000000 00:00 0                  [heap]";
        let none = "7f000000-7f001000 rw-p 00000000 00:00 0 ";
        let shared = "7f000000-7f001000 rw-s 00000000 00:01 33           /dev/zero (deleted)";
        let made = "7f000000-7f001000 r--p 00000000 00:01 33           /memfd:x (deleted)";
        let code = "7f000000-7f001000 r-xp 00000000 fe:00 33           /usr/lib/libc.so.6";
        assert!(holds_privately(heap, 0x55e0a000, 0x2000));
        assert!(!holds_privately(heap, 0x55e0a000, 0x2001));
        assert!(!holds_privately(heap, 0x55e09fff, 1));
        assert!(!holds_privately(heap, u64::MAX, 2));
        assert!(holds_privately(none, 0x7f000000, 9) && holds_privately(code, 0x7f000000, 9));
        assert!(!holds_privately(shared, 0x7f000000, 9));
        assert!(!holds_privately(made, 0x7f000000, 9));
        let local = 0u64;
        assert!(is_private(
            std::process::id() as i32,
            &raw const local as u64,
            8
        ));
    }
}
