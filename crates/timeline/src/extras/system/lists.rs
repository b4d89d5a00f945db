//! Arguments with several elements: lists, buffers, messages, sets.

use super::names::names;
use super::text::{SHOWN, address, bits, known, quoted};
use super::{Call, shapes, sockets, some};
use crate::Result;
use hindsight_syscalls::{Set, Shape};

/// At most this many elements of a list are shown.
const LIST: usize = 32;

impl Call<'_> {
    /// A list of pointers to texts.
    pub(super) fn texts(&mut self, at: u64) -> Result<String> {
        let mut out = Vec::new();
        for i in 0..=LIST as u64 {
            match self.pointer(at.wrapping_add(8 * i))? {
                Some(0) => break,
                _ if out.len() == LIST => out.push("...".into()),
                Some(p) => {
                    let (b, _) = self.until_zero(p, SHOWN + 1)?;
                    let shown = &b[..b.len().min(SHOWN)];
                    out.push(some(shown).map_or(address(p), |s| quoted(s, b.len() > SHOWN)));
                }
                None if out.is_empty() => return Ok(address(at)),
                None => {
                    out.push("?".into());
                    break;
                }
            }
        }
        Ok(format!("[{}]", out.join(", ")))
    }

    pub(super) fn environment(&mut self, at: u64) -> Result<String> {
        if at == 0 {
            return Ok("NULL".into());
        }
        const STEP: usize = 64;
        for step in 0..32 {
            let b = self
                .seen
                .read(at.wrapping_add((8 * STEP * step) as u64), 8 * STEP, false)?;
            for (i, p) in b.chunks(8).enumerate() {
                let pointer: Option<Vec<u8>> = p.iter().copied().collect();
                match pointer {
                    None => return Ok(address(at)),
                    Some(p) if p.iter().all(|b| *b == 0) => {
                        let n = step * STEP + i;
                        let s = if n == 1 { "" } else { "s" };
                        return Ok(format!("{at:#x} /* {n} var{s} */"));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(address(at))
    }

    pub(super) fn list(
        &mut self,
        at: u64,
        shape: Shape,
        count: u64,
        behind: bool,
    ) -> Result<String> {
        if at == 0 {
            return Ok("NULL".into());
        }
        let mut out = Vec::new();
        let size = shapes::size(shape);
        for i in 0..count.min(LIST as u64) {
            let b = self.bytes(at.wrapping_add(i * size as u64), size, behind)?;
            match shapes::shown(shape, &b) {
                Some(text) => out.push(text),
                None if out.is_empty() => return Ok(address(at)),
                None => out.push("?".into()),
            }
        }
        if count > LIST as u64 {
            out.push("...".into());
        }
        Ok(format!("[{}]", out.join(", ")))
    }

    /// A list of buffers. `filled`: only this many bytes of all buffers together were written.
    pub(super) fn buffers(&mut self, at: u64, count: u64, filled: Option<u64>) -> Result<String> {
        if at == 0 {
            return Ok("NULL".into());
        }
        let (mut out, mut left) = (Vec::new(), filled.unwrap_or(u64::MAX));
        for i in 0..count.min(LIST as u64) {
            let entry = at.wrapping_add(16 * i);
            let (base, len) = (self.pointer(entry)?, self.pointer(entry.wrapping_add(8))?);
            let (Some(base), Some(len)) = (base, len) else {
                if out.is_empty() {
                    return Ok(address(at));
                }
                out.push("?".into());
                break;
            };
            let text = self.buffer(base, len.min(left), filled.is_some())?;
            left = left.saturating_sub(len);
            out.push(format!("{{iov_base={text}, iov_len={len}}}"));
        }
        if count > LIST as u64 {
            out.push("...".into());
        }
        Ok(format!("[{}]", out.join(", ")))
    }

    pub(super) fn socket_address(&mut self, at: u64, len: u64, behind: bool) -> Result<String> {
        if at == 0 || len == 0 {
            return Ok(address(at));
        }
        let b = self.bytes(at, len.min(128) as usize, behind)?;
        Ok(sockets::address_of(&b).unwrap_or_else(|| address(at)))
    }

    pub(super) fn message(&mut self, at: u64, filled: Option<u64>) -> Result<String> {
        let behind = filled.is_some();
        let mut field = |n: u64| -> Result<Option<u64>> {
            let b = self.seen.read(at.wrapping_add(n), 8, behind)?;
            Ok(b.iter()
                .rev()
                .try_fold(0, |n, b| b.map(|b| n << 8 | b as u64)))
        };
        let (name, name_len) = (field(0)?, field(8)?.map(|n| n as u32 as u64));
        let (iov, count) = (field(16)?, field(24)?);
        let (control, control_len, flags) = (field(32)?, field(40)?, field(48)?);
        let (Some(name), Some(iov), Some(count)) = (name, iov, count) else {
            return Ok(address(at));
        };
        let name = self.socket_address(name, name_len.unwrap_or(0), behind)?;
        let number = |v: Option<u64>| known(v, |v| v.to_string());
        let mut out = format!("{{msg_name={name}, msg_namelen={}", number(name_len));
        out += &format!(
            ", msg_iov={}, msg_iovlen={count}",
            self.buffers(iov, count, filled)?
        );
        if control_len != Some(0) {
            out += &format!(", msg_control={}", known(control, address));
        }
        let flags = known(flags, |v| bits(v as u32 as u64, names(Set::MessageFlags)));
        Ok(out
            + &format!(
                ", msg_controllen={}, msg_flags={flags}}}",
                number(control_len)
            ))
    }

    /// The descriptors of `poll`. `None`: they are not known.
    pub(super) fn polled(
        &mut self,
        at: u64,
        count: u64,
        come: bool,
    ) -> Result<Option<Vec<String>>> {
        let mut out = Vec::new();
        for i in 0..(count as u32 as u64).min(LIST as u64) {
            let b = self.bytes(at.wrapping_add(8 * i), 8, come)?;
            if b.0.iter().all(Option::is_none) {
                return Ok(None);
            }
            out.extend(sockets::polled(&b, come));
        }
        Ok(Some(out))
    }

    /// A set of descriptors.
    pub(super) fn descriptors(&mut self, at: u64, behind: bool) -> Result<String> {
        if at == 0 {
            return Ok("NULL".into());
        }
        let most = self.args[0].min(1024) as usize;
        let b = self.seen.read(at, most.div_ceil(8), behind)?;
        Ok(match set_bits(&b) {
            Some(set) => {
                let set = set.into_iter().filter(|n| *n < most).map(|n| n.to_string());
                format!("[{}]", set.collect::<Vec<_>>().join(" "))
            }
            None => address(at),
        })
    }

    pub(super) fn processors(&mut self, at: u64, len: u64, behind: bool) -> Result<String> {
        let b = self.seen.read(at, len.min(128) as usize, behind)?;
        Ok(match set_bits(&b) {
            Some(set) => {
                let set: Vec<String> = set.iter().map(ToString::to_string).collect();
                format!("[{}]", set.join(" "))
            }
            None => address(at),
        })
    }

    /// The number of entries that a directory gave.
    pub(super) fn entries(&mut self, at: u64) -> Result<String> {
        if self.failed() {
            return Ok(address(at));
        }
        /// At most this many bytes of entries are read.
        const MOST: usize = 1 << 20;
        /// The size of the shortest entry.
        const LEAST: usize = 24;
        let len = self.len().min(MOST);
        let b = self.seen.read(at, len, true)?;
        let (mut from, mut n) = (0, 0);
        while from + LEAST <= len {
            let (Some(low), Some(high)) = (b[from + 16], b[from + 17]) else {
                return Ok(address(at));
            };
            from += (u16::from_le_bytes([low, high]) as usize).max(LEAST);
            n += 1;
        }
        let entries = if n == 1 { "entry" } else { "entries" };
        Ok(format!("{at:#x} /* {n} {entries} */"))
    }
}

/// The numbers of the set bits.
fn set_bits(bytes: &[Option<u8>]) -> Option<Vec<usize>> {
    let bytes: Vec<u8> = bytes.iter().copied().collect::<Option<_>>()?;
    let is_set = |n: &usize| bytes[n / 8] >> (n % 8) & 1 != 0;
    Some((0..8 * bytes.len()).filter(is_set).collect())
}
