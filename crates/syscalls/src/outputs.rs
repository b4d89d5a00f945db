//! The memory that a system call may have written.
#![allow(non_upper_case_globals, reason = "the kernel's names of system calls")]

use crate::abi::*;
use crate::control;
use crate::table::{TIMESPEC, TIMEVAL, Writes, writes};
use crate::written::{ADDR, Class, IOV_MAX, Memory, Out, Range};

const EPOLL_EVENT: u64 = 12;
const POLLFD: u64 = 8;
/// What stands before the bytes of a `struct file_handle`: their number, and the type.
const FILE_HANDLE: u64 = 8;

/// Calls `push` for all memory that the call may have written. `a` are its arguments, `ret` is what it returned.
/// Changes of mappings, and writes to memory that other processes share, are not included.
///
/// The sizes are those of the kernel's structures on x86-64.
pub fn outputs(
    nr: u32,
    a: &[u64; 6],
    ret: i64,
    memory: &dyn Memory,
    push: &mut dyn FnMut(Range),
) -> Class {
    let mut out = Out { memory, push };
    let o = &mut out;
    let failed = (-4095..0).contains(&ret);
    // It is not known how far the call came.
    if ret == -(EFAULT as i64) && writes(nr) != Writes::Nothing {
        return Class::Unknown;
    }
    if ret == -(ENOSYS as i64) {
        return Class::Known;
    }
    let n = if failed { 0 } else { ret as u64 };
    match writes(nr) {
        Writes::Nothing => return Class::Known,
        Writes::Unknown => return Class::Unknown,
        Writes::Results(_) if failed => return Class::Known,
        Writes::Results(list) | Writes::Always(list) => {
            list.iter().for_each(|(arg, len)| o.add(a[*arg], *len));
            return Class::Known;
        }
        Writes::Coded => {}
    }
    match nr as u64 {
        // The following calls also write when they fail.
        __NR_select => {
            fd_sets(o, a);
            o.add(a[4], TIMEVAL);
        }
        __NR_pselect6 => {
            fd_sets(o, a);
            o.add(a[4], TIMESPEC);
        }
        // A call with more descriptors than are possible is refused before it writes.
        __NR_poll | __NR_ppoll if ret == -(EINVAL as i64) => {}
        __NR_poll => o.add(a[0], a[1] as u32 as u64 * POLLFD),
        __NR_ppoll => {
            o.add(a[0], a[1] as u32 as u64 * POLLFD);
            o.add(a[2], TIMESPEC);
        }
        // The header then says which version the kernel knows.
        __NR_capget | __NR_capset if failed => o.add(a[0], 8),
        // The results are written before the call is certain to succeed.
        __NR_clone | __NR_clone3 => children(nr, a, o),
        // The given length of the address was negative, but the data had been received by then.
        __NR_recvfrom if ret == -(EINVAL as i64) => o.add(a[1], a[2]),
        // It writes what it found before it came to memory that is not mapped.
        __NR_mincore => o.add(a[2], a[1].div_ceil(4096)),
        // For a buffer that is too short, the kernel writes the length that it should have.
        __NR_getsockopt if failed => {
            o.add(a[4], 4);
            return class_of_success(nr, a);
        }
        // If the handle does not fit, the kernel writes how long it is, and the mount. It writes the handle last, so
        // its length is right even where the two meet.
        __NR_name_to_handle_at => {
            let is_long = a[4] as i32 & AT_HANDLE_MNT_ID_UNIQUE != 0;
            o.add(a[3], if is_long { 8 } else { 4 });
            let len = if failed { None } else { o.u32_at(a[2]) };
            o.add(a[2], FILE_HANDLE + len.unwrap_or(0) as u64);
        }
        __NR_futex => {
            // Locks with priority inheritance and FUTEX_WAKE_OP change the words.
            const WAITS_AND_WAKES: [u64; 6] = [0, 1, 3, 4, 9, 10];
            if !WAITS_AND_WAKES.contains(&(a[1] & 0x7f)) {
                o.add(a[0], 4);
                o.add(a[4], 4);
            }
        }
        __NR_recvmmsg => {
            o.add(a[4], TIMESPEC);
            for i in 0..n.min(IOV_MAX) {
                let msg = a[1].wrapping_add(64 * i);
                o.add(msg, 64);
                let len = o.u32_at(msg.wrapping_add(56)).unwrap_or(0);
                o.message(msg, len as u64);
            }
            if n < a[2] as u32 as u64 {
                // A part of the first message that does not count may have been received.
                o.message(a[1].wrapping_add(64 * n), 0);
            }
        }
        __NR_sendmmsg => o.add(a[1], n.min(IOV_MAX) * 64),
        _ if failed && class_of_success(nr, a) == Class::Known => {}
        _ => return succeeded(nr, a, n, o),
    }
    Class::Known
}

/// How much is known of the call if it succeeds.
fn class_of_success(nr: u32, a: &[u64; 6]) -> Class {
    struct Nothing;
    impl Memory for Nothing {
        fn read(&self, _: u64, _: &mut [u8]) -> bool {
            false
        }
    }
    let mut out = Out {
        memory: &Nothing,
        push: &mut |_| {},
    };
    succeeded(nr, a, 0, &mut out)
}

fn fd_sets(o: &mut Out, a: &[u64; 6]) {
    let bytes = a[0].min(1 << 20).div_ceil(64) * 8;
    for set in &a[1..4] {
        o.add(*set, bytes);
    }
}

/// What `clone` and `clone3` write of the new thread or process.
fn children(nr: u32, a: &[u64; 6], o: &mut Out) {
    if nr as u64 == __NR_clone {
        o.add(a[2], 4);
        return o.add(a[3], 4);
    }
    // pidfd, child_tid and parent_tid of `struct clone_args`
    for field in [8, 16, 24] {
        let at = o.u64_at(a[0].wrapping_add(field)).unwrap_or(0);
        o.add(at, 4);
    }
}

/// Adds what a call wrote that returned `n`, where the table does not say it.
fn succeeded(nr: u32, a: &[u64; 6], n: u64, o: &mut Out) -> Class {
    match nr as u64 {
        // Buffers: as many bytes were written as the call returned.
        __NR_read | __NR_pread64 | __NR_getdents | __NR_getdents64 => o.part(a[1], n, a[2]),
        __NR_readlink | __NR_listxattr | __NR_llistxattr | __NR_flistxattr => o.add(a[1], n),
        __NR_readlinkat => o.add(a[2], n),
        __NR_getcwd => o.add(a[0], n),
        __NR_getrandom => o.part(a[0], n, a[1]),
        __NR_getxattr | __NR_lgetxattr | __NR_fgetxattr => o.add(a[2], n),
        __NR_listxattrat => o.add(a[3], n),
        // A `struct xattr_args` begins with the address of the value.
        __NR_getxattrat => {
            let value = o.u64_at(a[4]).unwrap_or(0);
            o.add(value, n);
        }
        // What the kernel does not know of a longer structure becomes zeros.
        __NR_file_getattr => o.add(a[2], a[3]),
        __NR_syslog => o.add(a[1], n),
        __NR_readv | __NR_preadv | __NR_preadv2 => o.buffers(a[1], a[2], n),
        __NR_process_vm_readv => o.buffers(a[1], a[2], n),
        __NR_getgroups => o.add(a[1], n * 4),
        __NR_sched_getaffinity => o.add(a[2], n),
        __NR_epoll_wait | __NR_epoll_pwait | __NR_epoll_pwait2 => {
            o.part(a[1], n * EPOLL_EVENT, a[2] as u32 as u64 * EPOLL_EVENT);
        }

        // Sockets.
        __NR_recvfrom => {
            // With MSG_TRUNC, more is returned than was written.
            o.part(a[1], n.min(a[2]), a[2]);
            o.sized(a[4], a[5], ADDR);
        }
        __NR_recvmsg => o.message(a[1], n),
        __NR_accept | __NR_accept4 | __NR_getsockname | __NR_getpeername => {
            o.sized(a[1], a[2], ADDR);
        }
        __NR_getsockopt => return control::getsockopt(a, o),

        // Results of a fixed size.
        __NR_capget => {
            o.add(a[0], 8);
            o.add(a[1], 24);
        }
        __NR_capset => o.add(a[0], 8),
        __NR_sched_getattr => o.add(a[1], a[2]),
        __NR_arch_prctl => return control::arch_prctl(a, o),
        __NR_seccomp => return control::seccomp(a, o),
        __NR_mq_timedreceive => {
            o.add(a[1], n);
            o.add(a[3], 4);
        }
        __NR_msgrcv => o.add(a[1], n + 8),

        __NR_ioctl => return control::ioctl(a, o),
        __NR_fcntl => return control::fcntl(a, o),
        __NR_msgctl => return control::msgctl(a, o),
        __NR_prctl => return control::prctl(a, o),
        _ => return Class::Unknown,
    }
    Class::Known
}

/// How many pointers in memory lead from a call's arguments to the place that it writes. It is more than 0 for calls
/// whose buffers are in a list or in a structure.
pub fn indirections(nr: u32) -> u32 {
    match nr as u64 {
        __NR_recvmsg | __NR_recvmmsg => 2,
        __NR_readv
        | __NR_preadv
        | __NR_preadv2
        | __NR_process_vm_readv
        | __NR_ioctl
        | __NR_getxattrat => 1,
        _ => 0,
    }
}

/// Whether a call with this number may write memory of the process that makes it.
pub fn may_write(nr: u32) -> bool {
    writes(nr) != Writes::Nothing
}
