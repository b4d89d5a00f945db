//! What is done about each system call of the program that runs.

mod list;

pub use list::UNSEEN;

use Class::*;
use libc::*;
use list::{LASTING, TABLE};
use std::sync::LazyLock;

/// What is done about a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The kernel does it: it concerns memory, signals or the process itself.
    Own,
    /// The kernel does it. It changes descriptors.
    Descriptors,
    /// It is answered with the recorded ids.
    Identity,
    /// It asks for the time.
    Time,
    /// It asks something and changes nothing, so it may be asked again, also of this machine.
    Query,
    /// It takes something in, once.
    Input,
    /// It reads the next bytes of a descriptor.
    Read,
    /// It writes bytes to a descriptor.
    Write,
    /// It changes something outside of the process. It is never done.
    Effect,
    /// It opens a file by its path.
    Open,
    /// It makes descriptors of another kind.
    Make,
    /// It makes a process.
    Fork,
    /// It makes a thread.
    Thread,
    /// It waits for other threads, or wakes them.
    Futex,
    /// It lets other threads go on.
    Yield,
    /// It ends the thread.
    Exit,
    /// It loads another program.
    Exec,
    /// It waits for a child.
    Wait,
    /// It waits for a signal.
    Suspend,
    /// It sends a signal.
    Kill,
    /// It maps a file.
    Map,
    /// The kernel is said not to have it, since what it is to do stands in memory, which others could change after it was
    /// looked at. Programs fall back to an older call.
    Absent,
    /// It cannot be fed.
    Refused(&'static str),
}

impl Class {
    /// Whether calls of this class are looked for among the recorded ones.
    pub fn is_matched(self) -> bool {
        !matches!(
            self,
            Own | Descriptors | Identity | Map | Futex | Yield | Exit | Absent | Refused(_)
        )
    }
}

/// Advice from here on concerns the machine's memory, not the program's (`MADV_HWPOISON`).
pub const ADVICE: u64 = 100;
/// Arguments of unseen calls from which on somebody looks: the call, the argument, and the value.
pub const LIMITS: &[(i64, u32, u32)] = &[(SYS_madvise, 2, ADVICE as u32)];

/// The class of the call with this number and these arguments.
pub fn class(number: u64, a: &[u64; 6]) -> Class {
    match number as i64 {
        SYS_madvise if a[2] as u32 as u64 >= ADVICE => {
            Refused("it changes how this machine uses its memory")
        }
        SYS_fcntl => fcntl_class(a[1] as i32),
        SYS_ioctl if [FIOCLEX, FIONCLEX].contains(&(a[1] as u32 as u64)) => Descriptors,
        SYS_mmap if a[3] as i32 & MAP_ANONYMOUS != 0 => Own,
        // What is only looked at stays there.
        SYS_recvfrom if a[3] as i32 & (MSG_PEEK | MSG_ERRQUEUE) != 0 => Input,
        SYS_recvmsg if a[2] as i32 & (MSG_PEEK | MSG_ERRQUEUE) != 0 => {
            Refused("it looks at messages without taking them")
        }
        SYS_socketpair if a[0] as i32 != AF_UNIX => {
            Refused("it connects two sockets that are not local")
        }
        SYS_clone if a[0] as i32 & CLONE_THREAD != 0 => Thread,
        SYS_prctl => prctl_class(a[0] as i32),
        SYS_prlimit64 if a[2] != 0 => Effect,
        // Another number than this one changes something.
        SYS_personality if a[0] as u32 != u32::MAX => Effect,
        _ => usize::try_from(number)
            .ok()
            .and_then(|n| CLASSES.get(n))
            .copied()
            .unwrap_or(UNKNOWN),
    }
}

/// Only what is listed here is done or asked. All else is an effect, which is not done.
fn fcntl_class(code: i32) -> Class {
    const GETOWN_EX: i32 = 16;
    const GETSIG: i32 = 11;
    match code {
        F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD => Descriptors,
        F_GETFL | F_GETLK | F_OFD_GETLK | F_GETOWN | GETOWN_EX | GETSIG | F_GETLEASE
        | F_GETPIPE_SZ | F_GET_SEALS => Query,
        _ => Effect,
    }
}

/// What does not concern the outside the kernel does.
fn prctl_class(code: i32) -> Class {
    const VMA: i32 = 0x5356_4d41;
    match code {
        PR_SET_NAME | PR_GET_NAME | PR_SET_PDEATHSIG | PR_GET_PDEATHSIG | VMA => Own,
        PR_CAPBSET_READ | PR_GET_DUMPABLE | PR_GET_KEEPCAPS | PR_GET_NO_NEW_PRIVS
        | PR_GET_SECCOMP | PR_GET_SECUREBITS | PR_GET_TIMERSLACK => Query,
        _ => Effect,
    }
}

/// Of calls that nobody has thought of.
const UNKNOWN: Class = Refused("it makes a system call that cannot be fed");
/// Numbers of calls are smaller.
const NUMBERS: usize = 512;

/// The class of each call by its number, where that does not depend on its arguments.
static CLASSES: LazyLock<[Class; NUMBERS]> = LazyLock::new(|| {
    let mut all = [UNKNOWN; NUMBERS];
    for (class, numbers) in [(Own, UNSEEN)].iter().chain(TABLE) {
        for n in *numbers {
            all[*n as usize] = *class;
        }
    }
    all
});

/// The class of a call that a program makes now. Of a recorded one it is [`class`].
pub fn class_now(number: u64, a: &[u64; 6]) -> Class {
    match number as i64 {
        SYS_openat2 | SYS_clone3 => Absent,
        _ => class(number, a),
    }
}

/// Whether a call leaves something behind in the file system: files that are made, changed or removed.
pub fn is_lasting(number: u64, a: &[u64; 6]) -> bool {
    let number = number as i64;
    LASTING.contains(&number) || opens_to_change(number as u64, a)
}

/// The flags of a call that opens a file. 0: they stand in memory, or it is another call.
pub fn flags(number: u64, a: &[u64; 6]) -> i32 {
    match number as i64 {
        SYS_open => a[1] as i32,
        SYS_openat => a[2] as i32,
        SYS_creat => O_CREAT | O_WRONLY | O_TRUNC,
        _ => 0,
    }
}

/// Whether a call opens a file to change it, or to make it.
pub fn opens_to_change(number: u64, a: &[u64; 6]) -> bool {
    const CHANGES: i32 = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
    flags(number, a) & CHANGES != 0
}

/// Whether a call makes a file, or a folder, and fails if it is there.
pub fn makes_new(number: u64, a: &[u64; 6]) -> bool {
    const NEW: i32 = O_CREAT | O_EXCL;
    matches!(number as i64, SYS_mkdir | SYS_mkdirat) || flags(number, a) & NEW == NEW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_this_machine_is_never_passed_on() {
        let passed = [Class::Own, Class::Descriptors];
        for name in [
            "unlink",
            "rename",
            "kill",
            "connect",
            "sendto",
            "write",
            "setuid",
            "mkdirat",
            "mount",
            "reboot",
            "ptrace",
            "bpf",
            "setns",
            "tgkill",
            "io_uring_enter",
            "execveat",
            "truncate",
        ] {
            let number = hindsight_timeline::syscall_number(name).unwrap();
            assert!(!passed.contains(&class(number, &[0; 6])), "{name}");
        }
    }

    #[test]
    fn threads_are_no_processes() {
        let of = |flags: i32| class(SYS_clone as u64, &[flags as u64, 0, 0, 0, 0, 0]);
        assert_eq!(of(SIGCHLD), Class::Fork);
        assert_eq!(of(CLONE_VM | CLONE_THREAD), Class::Thread);
    }
}
