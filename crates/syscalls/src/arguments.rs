//! What the arguments of system calls mean.

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
    /// An argument that depends on the request of `ioctl`, `fcntl`, `msgctl`, `prctl`, `arch_prctl` or `futex`. Some
    /// requests have none.
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
    /// A handle of a file. The call reads how many bytes it may have, and writes it.
    FileHandle,
    /// The number of a mount, which the call writes. Another argument has flags that say how long it is.
    MountId(u8),
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
    QueueCommand,
    Ptrace,
    Seccomp,
    XattrFlags,
    RseqFlags,
    HandleFlags,
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
