//! Memory that was written: ranges of it, and how they are gathered.

/// How much is known of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// All memory that it wrote in the process was named.
    Known,
    /// It may have written any memory.
    Unknown,
}

/// Memory that may have been written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First address.
    pub addr: u64,
    /// Its length in bytes. It may reach beyond what is mapped.
    pub len: u64,
}

/// Reads the process's memory.
pub trait Memory {
    /// Fills `buf` with the bytes from `addr` on. Returns whether all of it can be read.
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool;

    /// Whether the kernel can certainly write all of `addr..addr + len`. If not, it may have written more than it
    /// reports before it gave up.
    fn takes(&self, _addr: u64, _len: u64) -> bool {
        true
    }
}

/// The most elements that an array of buffers may have.
pub(crate) const IOV_MAX: u64 = 1024;
/// The kernel copies this many bytes at a time. If that fails on the way, it does not count them.
const MOST_MORE: u64 = 1 << 20;
/// The size of the largest socket address.
pub(crate) const ADDR: u64 = 128;

/// Collects ranges. Null pointers and empty ranges are left out.
pub(crate) struct Out<'a> {
    pub memory: &'a dyn Memory,
    pub push: &'a mut dyn FnMut(Range),
}

impl Out<'_> {
    pub fn add(&mut self, addr: u64, len: u64) {
        if addr != 0 && len != 0 {
            (self.push)(Range { addr, len });
        }
    }

    /// Adds a buffer of `size` bytes of which the kernel says that it has written `len`.
    pub fn part(&mut self, addr: u64, len: u64, size: u64) {
        let more = size.saturating_sub(len).min(MOST_MORE);
        let exact = more == 0 || self.memory.takes(addr.wrapping_add(len), more);
        self.add(addr, if exact { len } else { len + more });
    }

    pub fn u64_at(&self, addr: u64) -> Option<u64> {
        let mut b = [0; 8];
        self.memory
            .read(addr, &mut b)
            .then(|| u64::from_le_bytes(b))
    }

    pub fn u32_at(&self, addr: u64) -> Option<u32> {
        let mut b = [0; 4];
        self.memory
            .read(addr, &mut b)
            .then(|| u32::from_le_bytes(b))
    }

    /// Adds the first `len` bytes of an array of buffers.
    pub fn buffers(&mut self, iov: u64, count: u64, mut len: u64) {
        for i in 0..count.min(IOV_MAX) {
            let at = iov.wrapping_add(16 * i);
            let (Some(base), Some(n)) = (self.u64_at(at), self.u64_at(at.wrapping_add(8))) else {
                return;
            };
            self.part(base, n.min(len), n);
            if len < n {
                // The next buffer was not reached.
                return;
            }
            len -= n;
        }
    }

    /// Adds an address whose length is behind the pointer `len`. The kernel sets that length to what it would have
    /// needed.
    pub fn sized(&mut self, addr: u64, len: u64, most: u64) {
        if len == 0 {
            return;
        }
        self.add(len, 4);
        if let Some(n) = self.u32_at(len) {
            self.add(addr, (n as u64).min(most));
        }
    }

    /// Adds a `struct msghdr` and what it names: address, data, control data. `len` bytes were received.
    pub fn message(&mut self, msg: u64, len: u64) {
        self.add(msg, 56);
        let field = |s: &Self, at: u64| s.u64_at(msg.wrapping_add(at)).unwrap_or(0);
        let (name, name_len) = (field(self, 0), field(self, 8) as u32 as u64);
        let (iov, count) = (field(self, 16), field(self, 24));
        let (control, control_len) = (field(self, 32), field(self, 40));
        self.add(name, name_len.min(ADDR));
        self.buffers(iov, count, len);
        self.add(control, control_len);
    }
}
