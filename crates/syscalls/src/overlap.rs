//! System calls that read from memory where they are to write.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::abi::*;
use crate::written::{IOV_MAX, Memory, Out};

/// The sizes of `struct iovec`, `struct msghdr` and `struct mmsghdr`.
const IOVEC: u64 = 16;
const MSGHDR: u64 = 56;
const MMSGHDR: u64 = 64;

/// An address and a number of bytes.
type Extent = (u64, u64);

fn meet(a: Extent, b: Extent) -> bool {
    a.1 != 0 && b.1 != 0 && a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1)
}

/// Whether a call that is about to be made may overwrite the arrays and structures that say where it writes.
/// [`crate::outputs`] could not use them afterwards.
pub fn overwrites_its_buffers(nr: u32, a: &[u64; 6], memory: &dyn Memory) -> bool {
    let o = &Out {
        memory,
        push: &mut |_| {},
    };
    match nr as u64 {
        __NR_readv | __NR_preadv | __NR_preadv2 | __NR_process_vm_readv => {
            let array = (a[1], a[2].min(IOV_MAX) * IOVEC);
            buffers(o, array, &[array])
        }
        __NR_recvmsg => message(o, a[1], (a[1], MSGHDR)),
        __NR_recvmmsg => {
            let count = (a[2] as u32 as u64).min(IOV_MAX);
            let all = (a[1], count * MMSGHDR);
            (0..count).any(|i| message(o, a[1].wrapping_add(i * MMSGHDR), all))
        }
        __NR_getsockopt => {
            let len = o.u32_at(a[4]).unwrap_or(0);
            meet((a[3], len as u64), (a[4], 4))
        }
        __NR_getxattrat => {
            let args = (a[4], a[5]);
            let value = (o.u64_at(a[4]), o.u32_at(a[4].wrapping_add(8)));
            matches!(value, (Some(at), Some(len)) if meet((at, len as u64), args))
        }
        _ => false,
    }
}

/// Whether buffers in an array overlap any of `kept`.
fn buffers(o: &Out, array: Extent, kept: &[Extent]) -> bool {
    (0..array.1 / IOVEC).any(|i| {
        let at = array.0.wrapping_add(i * IOVEC);
        match (o.u64_at(at), o.u64_at(at.wrapping_add(8))) {
            (Some(base), Some(len)) => kept.iter().any(|k| meet((base, len), *k)),
            _ => false,
        }
    })
}

/// Whether the parts of a message overlap its array of buffers, or its header, which is in `headers`.
fn message(o: &Out, at: u64, headers: Extent) -> bool {
    let field = |offset: u64| o.u64_at(at.wrapping_add(offset)).unwrap_or(0);
    let array = (field(16), field(24).min(IOV_MAX) * IOVEC);
    let kept = [headers, array];
    let others = [(field(0), field(8) as u32 as u64), (field(32), field(40))];
    others.iter().any(|p| kept.iter().any(|k| meet(*p, *k))) || buffers(o, array, &kept)
}
