//! What the arguments and results of system calls mean. `table.rs` says it of each call.

use crate::table::TABLE;

/// What an argument is. Where another argument has its length, the number is that argument's index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// A signed number of 32 bits.
    Int,
    /// A signed number of 64 bits.
    Long,
    /// An unsigned number of 32 bits.
    Uint,
    /// An unsigned number of 64 bits.
    Size,
    /// An address, or a number of which only the bits matter.
    Hex,
    /// A descriptor.
    Fd,
    /// A descriptor of a folder, for relative paths.
    Dir,
    /// Permissions of a file.
    Mode,
    /// Permissions of a file, for `open`, which reads them only if it creates a file. The number is the index of the
    /// flags.
    ModeIf(u8),
    /// The number of a device.
    Device,
    /// The number of a signal.
    Signal,
    /// Named bits.
    Flags(Set),
    /// One of several named numbers.
    One(Set),
    /// Named bits in memory, after the call.
    FlagsBehind(Set),
    /// A text in memory that ends with a zero byte.
    Text,
    /// A list of pointers to texts.
    Texts,
    /// A list of pointers to texts that is only counted: the environment.
    Environment,
    /// Bytes that the call reads. Another argument has their number.
    Bytes(u8),
    /// Bytes that the call writes. It returns their number.
    Filled,
    /// A text that the call writes, with or without a zero at the end. The call returns its length.
    FilledText,
    /// A structure or number that the call reads.
    In(Shape),
    /// A structure or number that the call writes.
    Out(Shape),
    /// A structure or number that the call reads and writes.
    InOut(Shape),
    /// Several structures that the call reads. Another argument has their number.
    Ins(Shape, u8),
    /// Several structures that the call writes. It returns their number.
    Outs(Shape),
    /// A list of buffers: what they hold before the call.
    Buffers(u8),
    /// A list of buffers: what the call has written.
    FilledBuffers(u8),
    /// The address of a socket that the call reads. Another argument is its length.
    Address(u8),
    /// The address of a socket that the call writes. Another argument points to its length.
    FilledAddress(u8),
    /// A message to a socket.
    Message,
    /// A message from a socket.
    FilledMessage,
    /// The descriptors of `poll`: what is awaited, and what has come.
    Polled(u8),
    /// An argument that depends on the request of `ioctl`, `fcntl`, `prctl`, `arch_prctl` or `futex`. Some requests
    /// have none.
    Requested,
    /// A value of a socket's option that the call reads. The number is the index of its length.
    Value(u8),
    /// A value of a socket's option that the call writes. The number is the index of its length.
    FilledValue(u8),
    /// A set of descriptors of `select`, before the call.
    Descriptors,
    /// A set of processors that the call reads. Another argument has its length in bytes.
    Processors(u8),
    /// A set of processors that the call writes. It returns its length in bytes.
    FilledProcessors,
}

/// Sets of names for numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as what they are for")]
pub enum Set {
    Open,
    Access,
    At,
    Protection,
    Mapping,
    Remapping,
    Advice,
    Syncing,
    Whence,
    SignalHow,
    Clock,
    ClockFlags,
    Resource,
    Family,
    SocketType,
    Protocol,
    MessageFlags,
    Shutdown,
    Level,
    OptionName,
    EpollOp,
    EpollFlags,
    EventFlags,
    TimerFlags,
    SignalFdFlags,
    PipeFlags,
    CloneFlags,
    FutexOp,
    Random,
    MemoryFile,
    FcntlCommand,
    Request,
    ArchCode,
    Prctl,
    WaitOptions,
    WaitKind,
    WaitStatus,
    Lock,
    Timer,
    Usage,
    PriorityKind,
    StatxFlags,
    StatxMask,
    Rename,
    Inotify,
    InotifyMask,
    CloseRange,
    Membarrier,
    Fallocate,
    FileAdvice,
    Scheduler,
    Mount,
    Unmount,
    Accept,
    SpliceFlags,
    PidfdFlags,
    Dup3Flags,
    LockAll,
    IpcCreate,
    Ptrace,
    Seccomp,
    XattrFlags,
    RseqFlags,
}

/// What a pointer points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the kernel's structures")]
pub enum Shape {
    Stat,
    Statx,
    Statfs,
    Timespec,
    Timeval,
    Timezone,
    /// Two times: of the last access and of the last change.
    Times,
    Timevals,
    Itimerval,
    Itimerspec,
    Rlimit,
    Rusage,
    Utsname,
    Sysinfo,
    Sigaction,
    Sigset,
    Stack,
    Siginfo,
    /// A set of signals and its size, in the form of `pselect6`.
    SizedSigset,
    Int,
    Uint,
    Long,
    Hex,
    /// Two descriptors.
    Pair,
    EpollEvent,
    CloneArgs,
    SchedParam,
    Tms,
    Status,
    /// Numbers of groups.
    Id,
    Dirents,
    OpenHow,
    Sembuf,
    Winsize,
}

/// What a result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// A number.
    Number,
    /// An address, or bits.
    Address,
    /// The call does not return if it succeeds.
    Nothing,
    /// A mask of permissions: the old one.
    Octal,
}

/// What a call takes and returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// What each argument is.
    pub args: &'static [Arg],
    /// What the result is.
    pub returns: Returns,
}

/// The signature of the call with this name. `None`: only its number of arguments is known.
pub fn signature(name: &str) -> Option<Signature> {
    let args = TABLE.iter().find(|c| c.name == name)?.args.told?;
    let returns = match name {
        "mmap" | "mremap" | "brk" | "shmat" => Returns::Address,
        "exit" | "exit_group" | "rt_sigreturn" => Returns::Nothing,
        "umask" => Returns::Octal,
        _ => Returns::Number,
    };
    Some(Signature { args, returns })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::Arg::*;
    use super::*;
    use crate::names;
    use std::vec::Vec;

    /// Calls of which only the number of arguments is known. They are rare, for administrators, or of very old kernels.
    const WITHOUT: &str = "
        shmctl semctl msgsnd msgrcv msgctl getdents syslog capget capset rt_sigqueueinfo utime uselib ustat
        sysfs modify_ldt pivot_root _sysctl adjtimex swapon reboot setdomainname iopl ioperm create_module
        init_module delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall
        tuxcall security set_thread_area io_setup io_destroy io_getevents io_submit io_cancel get_thread_area
        lookup_dcookie epoll_ctl_old epoll_wait_old remap_file_pages semtimedop vserver mbind set_mempolicy
        get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load
        add_key request_key keyctl ioprio_set ioprio_get migrate_pages futimesat vmsplice move_pages
        rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark name_to_handle_at
        open_by_handle_at clock_adjtime sendmmsg process_vm_readv process_vm_writev kcmp finit_module
        sched_setattr sched_getattr kexec_file_load bpf userfaultfd io_pgetevents io_uring_setup
        io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick process_madvise
        mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self
        memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat map_shadow_stack
        futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr
        lsm_list_modules mseal
    ";

    #[test]
    fn which_calls_have_no_signature_is_known() {
        let without: Vec<&str> = names().filter(|n| signature(n).is_none()).collect();
        let told: Vec<&str> = WITHOUT.split_whitespace().collect();
        assert_eq!(without, told);
    }

    #[test]
    fn arguments_name_others_that_there_are() {
        for c in TABLE {
            let args = c.args.told.unwrap_or_default();
            for a in args {
                let other = match a {
                    ModeIf(n)
                    | Bytes(n)
                    | Ins(_, n)
                    | Buffers(n)
                    | FilledBuffers(n)
                    | Address(n)
                    | FilledAddress(n)
                    | Polled(n)
                    | Value(n)
                    | FilledValue(n)
                    | Processors(n) => *n,
                    _ => 0,
                };
                assert!((other as usize) < args.len().max(1), "{}: {a:?}", c.name);
            }
        }
    }
}
