//! The recorder's configuration. The command line finds this block in the recorder's executable image by its
//! marker and fills it in before it starts the recorder.

use crate::log::{AREAS, Levels};
use crate::select::SELECT_LEN;

/// Marks the block in the executable image.
pub const MARKER: [u8; 16] = *b"hindsight-config";

/// Values of [`Config::children`].
pub mod children {
    /// They are recorded too.
    pub const FOLLOW: u8 = 0;
    /// They run unrecorded.
    pub const NONE: u8 = 1;
    /// Children are recorded if they run a program that [`super::Config::matching`] names. The others are
    /// translated but not recorded: a program that one of them executes may match.
    pub const MATCHING: u8 = 2;
}

/// Values of [`Config::regime`].
pub mod regime {
    /// All reads are checked.
    pub const CHECKED: u32 = 0;
    /// No read is checked while every change that others make to memory is known.
    pub const QUIET: u32 = 1;
}

/// Longest path, with its terminating zero.
pub const PATH_LEN: usize = 4096;

/// Longest pattern, with its terminating zero.
pub const PATTERN_LEN: usize = 256;

/// Longest path of a log file, with its terminating zero.
pub const LOG_FILE_LEN: usize = 256;

/// Configuration of one recorded program image. Paths end with a zero byte.
#[repr(C)]
#[derive(Clone)]
pub struct Config {
    /// [`MARKER`].
    pub marker: [u8; 16],
    /// [`crate::ring::MAGIC`]. Recorder and command line of different builds notice each other by it.
    pub magic: u64,
    /// Descriptor of the control file (see [`crate::ring`]). The recorder hides it from the program.
    pub ctl_fd: i32,
    /// `log2` of the predictor's cells.
    pub predictor_bits: u8,
    /// [`hindsight_isa::cpuid::Baseline`] as a number.
    pub baseline: u8,
    /// 1: translate only, record nothing.
    pub plain: u8,
    /// What happens to child processes: see [`children`].
    pub children: u8,
    /// The image that this one replaces by `execve`; 0 for the first of a recording.
    pub parent: u32,
    /// The ring of the thread that called `execve`. Its stream is to be ended. -1: none.
    pub ring: i32,
    /// Descriptor of the program file, which the recorder closes. -1: the recorder opens `exe`.
    pub exe_fd: i32,
    /// Number of the program's namespace of process ids. 0: the collector's (see [`crate::ring::name_in`]).
    pub namespace: u32,
    /// How reads are recorded: see [`regime`].
    pub regime: u32,
    /// 1: the process ran before recording began (see [`crate::attach`]).
    pub attached: u32,
    /// For tests: how often the program enters the runtime between two instructions before the quiet regime
    /// ends. 0: it does not end for that reason.
    pub quiet_for: u64,
    /// For tests: instructions between two restatements of a quiet thread's memory. 0: the recorder decides
    /// by what a restatement costs.
    pub restate_every: u64,
    /// 1: all key frames of a quiet thread restate all memory. The recording may lose its beginning.
    pub whole_frames: u64,
    /// 1: a quiet thread makes state points before calls that make threads or processes, execute programs, or map much.
    pub state_calls: u64,
    /// For tests: the number, plus one, of a system call whose writes are not recorded. 0: none.
    pub untold: u64,
    /// For tests: an invariant does not hold when this many blocks of code have been translated. 0: it holds.
    pub violate_after: u64,
    /// 1: in the checked regime, memory that is only read shares its pages with its cells.
    pub page_sharing: u64,
    /// In the checked regime: the most bytes that the kernel wrote in a call that are recorded.
    pub data_limit: u64,
    /// Smallest number of instructions between key frames. 0: only the first key frame.
    pub keyframe_interval: u64,
    /// Smallest number of instructions between digests of all registers. 0: no digests.
    pub digest_interval: u64,
    /// Nanoseconds for which an answer about the time is repeated. 0: none is.
    pub clock_throttle: u64,
    /// Seed of what stands in memory that the program gets (see [`crate::fresh`]). 0: what stood there stays.
    pub fill_fresh: u32,
    _pad: u32,
    /// Which part of the program is recorded: see [`crate::select`]. Empty: everything.
    pub select: [u8; SELECT_LEN],
    /// Limits on address space and data, soft and hard, as the program sees them. The recorder raises the
    /// kernel's own limits as far as it may.
    pub limits: [[u64; 2]; 2],
    /// Seed for disturbing the timing of threads. 0: the timing is not disturbed.
    pub chaos: u64,
    /// For an image that a recorded one has executed: the collector's process id, and the collector's descriptor of
    /// the control file.
    pub collector: [i32; 2],
    /// The pattern (see [`crate::select::glob`]) for [`children::MATCHING`], zero-terminated.
    pub matching: [u8; PATTERN_LEN],
    /// Descriptor and length of a file with state that the previous image left for this one. The recorder
    /// closes it.
    pub state_fd: i32,
    pub state_len: u32,
    /// What the recorder logs about itself: the level of each area (see [`crate::log`]).
    pub log: Levels,
    /// Where the log goes at once: a path, or `-` for descriptor 2. Empty: it stays in memory.
    pub log_file: [u8; LOG_FILE_LEN],
    /// The program file to load. `#!` lines and PATH are resolved already.
    pub exe: [u8; PATH_LEN],
    /// What AT_EXECFN shows. Its last component is the command name.
    pub execfn: [u8; PATH_LEN],
}

impl Config {
    /// A configuration with marker and version, and defaults for the rest.
    pub const fn new() -> Config {
        Config {
            marker: MARKER,
            magic: crate::ring::MAGIC,
            ctl_fd: -1,
            predictor_bits: 32,
            baseline: 0,
            plain: 0,
            children: children::FOLLOW,
            parent: 0,
            ring: -1,
            exe_fd: -1,
            namespace: 0,
            regime: regime::CHECKED,
            attached: 0,
            quiet_for: 0,
            restate_every: 0,
            whole_frames: 0,
            state_calls: 0,
            untold: 0,
            violate_after: 0,
            page_sharing: 0,
            data_limit: 0,
            keyframe_interval: 0,
            digest_interval: 0,
            clock_throttle: 0,
            fill_fresh: 0,
            _pad: 0,
            select: [0; SELECT_LEN],
            limits: [[u64::MAX; 2]; 2],
            chaos: 0,
            collector: [0, -1],
            matching: [0; PATTERN_LEN],
            state_fd: -1,
            state_len: 0,
            log: [0; AREAS],
            log_file: [0; LOG_FILE_LEN],
            exe: [0; PATH_LEN],
            execfn: [0; PATH_LEN],
        }
    }

    /// The block's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `Config` is repr(C), holds only plain integers, and has no padding (checked below).
        unsafe { core::slice::from_raw_parts((self as *const Config).cast(), size_of::<Config>()) }
    }
}

const _: () = assert!(
    size_of::<Config>()
        == 8 + 8
            + 4
            + 4
            + 24
            + 32
            + 56
            + 56
            + 16
            + PATTERN_LEN
            + SELECT_LEN
            + AREAS
            + LOG_FILE_LEN
            + 2 * PATH_LEN
);

impl Default for Config {
    fn default() -> Self {
        Config::new()
    }
}
