//! What stands in memory around a call: the bytes that it gave and got, and the structures that it was given.

use super::ERRORS;
use crate::plan::class::{Class, class};
use crate::plan::message;
use crate::source::Error;
use crate::wire::{Blob, Call, LARGEST, Written};
use hindsight_syscalls::{Arg, Memory, Range, outputs, signature};
use hindsight_timeline::{Cursor, ThreadId, syscall_name};
use libc::*;
use std::cell::{Cell, RefCell};

/// The longest text that is read.
const TEXT: usize = 4096;
/// Bytes that are looked up at a time. An answer takes far more memory.
const PART: usize = 1 << 16;
/// The longest address of a peer.
const LONGEST: u32 = 128;
/// The most buffers of a list.
const BUFFERS: u64 = 1024;
/// The kernel moves no more bytes in a call.
const MOVED: u64 = 0x7fff_f000;
/// So many holes are told at most. What follows the last of them counts as not known.
const HOLES: usize = 1 << 12;

/// Bytes, with zeros for those that are not known, and where these are.
fn known(bytes: Vec<Option<u8>>) -> (Blob, Vec<(u64, u64)>) {
    let (mut at, mut unknown) = (0, Vec::new());
    for part in bytes.chunk_by(|a, b| a.is_some() == b.is_some()) {
        if part[0].is_none() {
            if unknown.len() == HOLES {
                unknown.push((at, bytes.len() as u64 - at));
                break;
            }
            unknown.push((at, part.len() as u64));
        }
        at += part.len() as u64;
    }
    let bytes = bytes.into_iter().map(|b| b.unwrap_or(0)).collect();
    (Blob(bytes), unknown)
}

/// Bytes of a call that moved `n`, of which the last ones may not be known.
fn filled(mut bytes: Vec<Option<u8>>, n: usize) -> Vec<Option<u8>> {
    bytes.resize(n.min(LARGEST).max(bytes.len()), None);
    bytes
}

/// A text that ends with a zero byte, if `bytes` knows all of it. What it does not know may be empty.
fn text(addr: u64, bytes: impl Fn(u64, usize) -> Vec<Option<u8>>) -> Option<Vec<u8>> {
    const STEP: usize = 64;
    let mut out = Vec::new();
    while addr != 0 && out.len() < TEXT {
        let from = addr.wrapping_add(out.len() as u64);
        // It must not reach into the next page before that is needed.
        let part = bytes(from, STEP - from as usize % STEP);
        if part.is_empty() {
            return None;
        }
        for b in part {
            match b? {
                0 => return Some(out),
                b => out.push(b),
            }
        }
    }
    None
}

/// Memory around a call.
pub(super) struct Around<'a> {
    pub(super) at: (ThreadId, u64),
    pub(super) cursor: RefCell<&'a mut Cursor>,
    /// What the stream says of it.
    pub(super) told: Vec<(u64, Vec<u8>)>,
    /// What went wrong first. Nothing more is looked up then.
    pub(super) failed: RefCell<Option<Error>>,
    /// So many bytes may still be looked up.
    pub(super) left: Cell<usize>,
    pub(super) behind: bool,
}

impl Memory for Around<'_> {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        let bytes = self.bytes(addr, buf.len());
        for (b, known) in buf.iter_mut().zip(&bytes) {
            match known {
                Some(k) => *b = *k,
                None => return false,
            }
        }
        bytes.len() == buf.len()
    }
}

impl Around<'_> {
    fn bytes(&self, addr: u64, len: usize) -> Vec<Option<u8>> {
        if len == 0 || addr == 0 || self.failed.borrow().is_some() {
            return Vec::new();
        }
        let Some(left) = self.left.get().checked_sub(len) else {
            return self.fail(Error::TooLarge);
        };
        self.left.set(left);
        if self.behind
            && let Some(told) = self.told(addr, len)
        {
            return told;
        }
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            let part = (len - out.len()).min(PART);
            let from = addr.wrapping_add(out.len() as u64);
            let found = (self.cursor.borrow_mut()).around_call(self.at, (from, part), self.behind);
            match found {
                Ok(bytes) if bytes.len() == part => out.extend(bytes),
                Ok(_) => return Vec::new(),
                Err(e) => return self.fail(e.into()),
            }
        }
        out
    }

    fn fail(&self, e: Error) -> Vec<Option<u8>> {
        self.failed.borrow_mut().get_or_insert(e);
        Vec::new()
    }

    /// Bytes of which the stream says all.
    fn told(&self, addr: u64, len: usize) -> Option<Vec<Option<u8>>> {
        let mut out = Vec::with_capacity(len);
        let mut first = 0;
        while out.len() < len {
            let at = addr.wrapping_add(out.len() as u64);
            let within = |(a, b): &&(u64, Vec<u8>)| at.wrapping_sub(*a) < b.len() as u64;
            // They come in ascending order.
            let next = self.told[first..].iter().position(|t| within(&t));
            first = match next {
                Some(n) => first + n,
                None => self.told.iter().rposition(|t| within(&t))?,
            };
            let (a, bytes) = &self.told[first];
            let rest = &bytes[at.wrapping_sub(*a) as usize..];
            let n = rest.len().min(len - out.len());
            out.extend(rest[..n].iter().map(|b| Some(*b)));
        }
        Some(out)
    }

    fn word(&self, addr: u64) -> Option<u64> {
        let mut b = [0; 8];
        self.read(addr, &mut b).then(|| u64::from_le_bytes(b))
    }

    fn text(&self, addr: u64) -> Option<Vec<u8>> {
        text(addr, |at, len| self.bytes(at, len))
    }

    pub(super) fn texts(&self, call: &mut Call) {
        let Some(s) = signature(&syscall_name(call.number)) else {
            return;
        };
        for (arg, value) in s.args.iter().zip(call.args) {
            if *arg == Arg::Text {
                call.texts.push(self.text(value));
            }
        }
    }

    /// The bytes that a call sent.
    pub(super) fn sent(&self, call: &mut Call) {
        let a = call.args;
        let n = match call.result {
            Some(r) if r < ERRORS => r.min(MOVED),
            _ => return,
        };
        let list = match call.number as i64 {
            SYS_write | SYS_pwrite64 | SYS_sendto => {
                let n = n.min(a[2]) as usize;
                (call.sent, call.unsure) = known(filled(self.bytes(a[1], n), n));
                return;
            }
            SYS_writev | SYS_pwritev | SYS_pwritev2 => Some((a[1], a[2])),
            SYS_sendmsg => (self.word(a[1].wrapping_add(16))).zip(self.word(a[1].wrapping_add(24))),
            _ => return,
        };
        let Some((list, count)) = list else { return };
        (call.sent, call.unsure) = known(filled(self.buffers(list, count, n as usize), n as usize));
    }

    /// The first bytes of a list of buffers.
    fn buffers(&self, list: u64, count: u64, n: usize) -> Vec<Option<u8>> {
        let mut out = Vec::new();
        for i in 0..count.min(BUFFERS) {
            let at = list.wrapping_add(16 * i);
            let (Some(base), Some(len)) = (self.word(at), self.word(at.wrapping_add(8))) else {
                break;
            };
            let left = n - out.len();
            out.extend(self.bytes(base, len.min(left as u64) as usize));
            if out.len() >= n {
                break;
            }
        }
        out
    }

    /// Structures by which results are translated.
    pub(super) fn given(&self, call: &mut Call) {
        let a = call.args;
        let (at, len) = match call.number as i64 {
            SYS_epoll_ctl => (a[3], 12),
            SYS_poll | SYS_ppoll => (a[0], 8 * a[1].min(1 << 16) as usize),
            SYS_sendmsg => match self.besides(a[1]) {
                Some((at, len)) => (at, len),
                None => return,
            },
            SYS_clone3 => return self.older(call),
            _ => return,
        };
        let bytes = self.bytes(at, len);
        call.given = bytes.into_iter().map_while(|b| b).collect();
    }

    /// Where stands what comes with a message besides its bytes, and how long that is.
    fn besides(&self, message: u64) -> Option<(u64, usize)> {
        let at = self.word(message.wrapping_add(message::CONTROL))?;
        let len = self.word(message.wrapping_add(message::CONTROL_LEN))?;
        Some((at, len.min(message::MOST) as usize))
    }

    /// What came with a message besides its bytes: the header, the address of the peer, and control messages.
    fn headed(&self, call: &mut Call) {
        let at = call.args[1];
        let field = |n: u64| self.word(at.wrapping_add(n));
        let name = (field(message::NAME)).zip(field(message::NAME_LEN).map(|n| n as u32));
        let name = name.map(|(at, len)| (at, len.min(LONGEST) as usize));
        let none = (0, 0);
        for (address, len) in [
            (at, message::HEADER),
            name.unwrap_or(none),
            self.besides(at).unwrap_or(none),
        ] {
            call.written.push(Written {
                address,
                bytes: self.bytes(address, len),
            });
        }
        let control = &call.written[message::CONTROL_WRITTEN].bytes;
        if message::descriptors(control).is_none() {
            call.unknown += control.len() as u64;
        }
    }

    /// What `clone3` makes stands in memory. The call becomes the older one that makes the same.
    fn older(&self, call: &mut Call) {
        let field = |n: u64| self.word(call.args[0].wrapping_add(8 * n));
        let all = (0..8).map(field).collect::<Option<Vec<u64>>>();
        let Some(&[flags, _, child, parent, signal, stack, size, tls]) = all.as_deref() else {
            return;
        };
        call.number = SYS_clone as u64;
        call.args = [
            flags | signal,
            stack.wrapping_add(size),
            parent,
            child,
            tls,
            0,
        ];
    }

    /// What a call received, and what else it wrote.
    pub(super) fn results(&self, call: &mut Call, ret: i64) {
        let (nr, a) = (call.number, call.args);
        let n = if ret < 0 {
            0
        } else {
            ret.min(MOVED as i64) as usize
        };
        let is_stream = class(nr, &a) == Class::Read;
        let received = match nr as i64 {
            _ if !is_stream => None,
            SYS_read | SYS_pread64 | SYS_recvfrom => Some(self.bytes(a[1], n.min(a[2] as usize))),
            SYS_getrandom => Some(self.bytes(a[0], n)),
            SYS_readv | SYS_preadv | SYS_preadv2 => Some(self.buffers(a[1], a[2], n)),
            SYS_recvmsg => (self.word(a[1].wrapping_add(16)))
                .zip(self.word(a[1].wrapping_add(24)))
                .map(|(list, count)| self.buffers(list, count, n)),
            _ => None,
        };
        if let Some(received) = received {
            let (bytes, unknown) = known(received);
            call.unknown = unknown.iter().map(|u| u.1).sum();
            call.received = bytes;
        }
        let mut ranges = Vec::new();
        outputs(nr as u32, &a, ret, self, &mut |r: Range| ranges.push(r));
        let skipped = match nr as i64 {
            _ if !is_stream => 0,
            // The first one has the bytes.
            SYS_recvfrom => usize::from(n > 0),
            _ => usize::MAX,
        };
        for r in ranges.into_iter().skip(skipped) {
            let len = r.len.min(MOVED) as usize;
            call.written.push(Written {
                address: r.addr,
                bytes: self.bytes(r.addr, len),
            });
        }
        if nr as i64 == SYS_recvmsg && ret >= 0 {
            self.headed(call);
        }
    }
}

#[cfg(test)]
mod tests;
