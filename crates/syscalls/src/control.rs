//! System calls that are many calls in one: their outputs depend on a request.

use crate::abi::*;
use crate::written::{Class, Out};

/// The sizes of the kernel's `struct termios` and `struct termios2`.
const TERMIOS: u64 = 36;
const TERMIOS2: u64 = 44;
/// The size of `struct ifreq`.
const IFREQ: u64 = 40;
/// The size of `struct flock`.
const FLOCK: u64 = 32;
/// The sizes of the kernel's `struct msqid64_ds`, which programs know as `struct msqid_ds`, and `struct msginfo`.
const MSQID: u64 = 120;
const MSGINFO: u64 = 32;

/// `ioctl`: the requests that ordinary programs make to terminals, files and sockets. Any other may write through
/// pointers in its argument.
pub(crate) fn ioctl(a: &[u64; 6], o: &mut Out) -> Class {
    let len = match a[1] as u32 {
        TCGETS => TERMIOS,
        TCGETS2 => TERMIOS2,
        TIOCGWINSZ => 8,
        TIOCGPGRP | TIOCGSID | TIOCOUTQ | TIOCGPTN | TIOCGPTLCK | TIOCGETD | TIOCGEXCL
        | FIONREAD => 4,
        SIOCGIFNAME | SIOCGIFFLAGS | SIOCGIFADDR | SIOCGIFDSTADDR | SIOCGIFBRDADDR
        | SIOCGIFNETMASK | SIOCGIFMETRIC | SIOCGIFMTU | SIOCGIFHWADDR | SIOCGIFINDEX
        | SIOCGIFTXQLEN => IFREQ,
        FIOQSIZE | FS_IOC_GETFLAGS | FS_IOC_GETVERSION | BLKGETSIZE64 => 8,
        BLKSSZGET => 4,
        TCSETS | TCSETSW | TCSETSF | TCSETS2 | TCSETSW2 | TCSETSF2 | TCSBRK | TCXONC | TCFLSH
        | TIOCSWINSZ | TIOCSPGRP | TIOCSCTTY | TIOCNOTTY | TIOCSPTLCK | TIOCGPTPEER | TIOCSTI
        | TIOCEXCL | TIOCNXCL | FIOCLEX | FIONCLEX | FIONBIO | FIOASYNC | FS_IOC_SETFLAGS
        | FICLONE | FICLONERANGE => 0,
        _ => return Class::Unknown,
    };
    o.add(a[2], len);
    Class::Known
}

/// `fcntl`.
pub(crate) fn fcntl(a: &[u64; 6], o: &mut Out) -> Class {
    let len = match a[1] as u32 {
        F_GETLK | F_OFD_GETLK => FLOCK,
        F_GETOWN_EX | F_GET_RW_HINT | F_GET_FILE_RW_HINT => 8,
        F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD | F_GETFL | F_SETFL | F_SETLK | F_SETLKW
        | F_OFD_SETLK | F_OFD_SETLKW | F_SETOWN | F_GETOWN | F_SETSIG | F_GETSIG | F_SETOWN_EX
        | F_SETLEASE | F_GETLEASE | F_NOTIFY | F_SETPIPE_SZ | F_GETPIPE_SZ | F_ADD_SEALS
        | F_GET_SEALS | F_SET_RW_HINT | F_SET_FILE_RW_HINT => 0,
        _ => return Class::Unknown,
    };
    o.add(a[2], len);
    Class::Known
}

/// `msgctl`. The kernel refuses any other command, also those with the bit IPC_64.
pub(crate) fn msgctl(a: &[u64; 6], o: &mut Out) -> Class {
    let len = match a[1] as u32 {
        // IPC_RMID, IPC_SET.
        0 | 1 => 0,
        // IPC_STAT, MSG_STAT, MSG_STAT_ANY.
        2 | 11 | 13 => MSQID,
        // IPC_INFO, MSG_INFO.
        3 | 12 => MSGINFO,
        _ => return Class::Unknown,
    };
    o.add(a[2], len);
    Class::Known
}

/// `prctl`.
pub(crate) fn prctl(a: &[u64; 6], o: &mut Out) -> Class {
    let len = match a[0] as u32 {
        PR_GET_NAME => 16,
        PR_GET_PDEATHSIG | PR_GET_TSC | PR_GET_UNALIGN | PR_GET_CHILD_SUBREAPER => 4,
        PR_GET_TID_ADDRESS => 8,
        PR_SET_NAME
        | PR_SET_PDEATHSIG
        | PR_SET_DUMPABLE
        | PR_GET_DUMPABLE
        | PR_SET_KEEPCAPS
        | PR_GET_KEEPCAPS
        | PR_SET_TIMING
        | PR_GET_TIMING
        | PR_GET_SECCOMP
        | PR_SET_SECCOMP
        | PR_CAPBSET_READ
        | PR_CAPBSET_DROP
        | PR_SET_SECUREBITS
        | PR_GET_SECUREBITS
        | PR_SET_TIMERSLACK
        | PR_GET_TIMERSLACK
        | PR_SET_MM
        | PR_SET_PTRACER
        | PR_SET_CHILD_SUBREAPER
        | PR_SET_NO_NEW_PRIVS
        | PR_GET_NO_NEW_PRIVS
        | PR_SET_THP_DISABLE
        | PR_GET_THP_DISABLE
        | PR_CAP_AMBIENT
        | PR_SET_VMA => 0,
        _ => return Class::Unknown,
    };
    // The other requests of PR_SET_MM only change what the kernel shows of the process.
    if a[0] as u32 == PR_SET_MM && a[1] as u32 == PR_SET_MM_MAP_SIZE {
        o.add(a[2], 4);
    }
    o.add(a[1], len);
    Class::Known
}

/// An option of TCP whose `getsockopt` maps pages.
const TCP_ZEROCOPY_RECEIVE: u32 = 35;
/// An option of TCP whose `getsockopt` gets the size of one element, and writes many.
const TCP_AO_GET_KEYS: u32 = 41;
/// The first option of IP that belongs to packet filters.
const FIRST_OF_FILTERS: u32 = 64;
/// The largest value of an option, in bytes.
const OPTION: u64 = 1 << 16;

/// `getsockopt`: the levels that ordinary programs use. Options of other levels may count in other units than bytes, or
/// hold pointers through which the kernel writes.
pub(crate) fn getsockopt(a: &[u64; 6], o: &mut Out) -> Class {
    let option = a[2] as u32;
    match a[1] as u32 {
        // It counts instructions of the filter.
        SOL_SOCKET if option == SO_GET_FILTER => return Class::Unknown,
        SOL_SOCKET => {}
        IP | IPV6 if (FIRST_OF_FILTERS..=2 * FIRST_OF_FILTERS).contains(&option) => {
            return Class::Unknown;
        }
        TCP if matches!(option, TCP_ZEROCOPY_RECEIVE | TCP_AO_GET_KEYS) => return Class::Unknown,
        IP | IPV6 | TCP | UDP | NETLINK => {}
        _ => return Class::Unknown,
    }
    o.sized(a[3], a[4], OPTION);
    Class::Known
}

/// Levels of socket options.
const IP: u32 = IPPROTO_IP;
const IPV6: u32 = IPPROTO_IPV6;
const TCP: u32 = IPPROTO_TCP;
const UDP: u32 = IPPROTO_UDP;
const NETLINK: u32 = 270;

/// `arch_prctl`.
pub(crate) fn arch_prctl(a: &[u64; 6], o: &mut Out) -> Class {
    let len = match a[0] {
        // SET_GS, SET_FS, GET_CPUID, SET_CPUID, REQ_XCOMP_PERM, REQ_XCOMP_GUEST_PERM.
        0x1001 | 0x1002 | 0x1011 | 0x1012 | 0x1023 | 0x1025 => 0,
        // GET_FS, GET_GS, GET_XCOMP_SUPP, GET_XCOMP_PERM, GET_XCOMP_GUEST_PERM.
        0x1003 | 0x1004 | 0x1021 | 0x1022 | 0x1024 => 8,
        _ => return Class::Unknown,
    };
    o.add(a[1], len);
    Class::Known
}

/// `seccomp`.
pub(crate) fn seccomp(a: &[u64; 6], o: &mut Out) -> Class {
    match a[0] {
        // SET_MODE_STRICT, SET_MODE_FILTER, GET_ACTION_AVAIL.
        0..=2 => Class::Known,
        // GET_NOTIF_SIZES: three lengths of 16 bits.
        3 => {
            o.add(a[2], 6);
            Class::Known
        }
        _ => Class::Unknown,
    }
}
