//! What the command line tells the recorder before it starts it: a block in the recorder's data
//! that the command line fills in the executable image, found by its marker.

use crate::select::SELECT_LEN;

/// Marks the block in the image.
pub const MARKER: [u8; 16] = *b"hindsight-config";

/// Values of [`Config::children`].
pub mod children {
    /// They are recorded too.
    pub const FOLLOW: u8 = 0;
    /// They run unrecorded.
    pub const NONE: u8 = 1;
    /// Those are recorded that run a program which [`super::Config::matching`] names. The others are
    /// translated all the same, so that what they execute can be recorded.
    pub const MATCHING: u8 = 2;
}

/// Values of [`Config::regime`].
pub mod regime {
    /// All reads are checked.
    pub const CHECKED: u32 = 0;
    /// None are, as long as all changes of memory by others are known.
    pub const QUIET: u32 = 1;
}

/// Longest path, with its terminating zero.
pub const PATH_LEN: usize = 4096;

/// Longest pattern, with its terminating zero.
pub const PATTERN_LEN: usize = 256;

/// Configuration of one recorded program image. Paths are zero-terminated.
#[repr(C)]
#[derive(Clone)]
pub struct Config {
    /// [`MARKER`].
    pub marker: [u8; 16],
    /// [`crate::ring::MAGIC`], so that halves of different builds notice.
    pub magic: u64,
    /// Descriptor of the control file (see [`crate::ring`]); the recorder keeps it to itself.
    pub ctl_fd: i32,
    /// `log2` of the predictor's cells.
    pub predictor_bits: u8,
    /// [`hindsight_isa::cpuid::Baseline`] as its number.
    pub baseline: u8,
    /// 1: translate only, record nothing.
    pub plain: u8,
    /// What becomes of processes that the program makes: see [`children`].
    pub children: u8,
    /// The image that this one replaces by `execve`; 0 for the first of a recording.
    pub parent: u32,
    /// The ring of the thread that made the `execve`, whose stream is to be ended; -1: none.
    pub ring: i32,
    /// Descriptor of the program file, which the recorder closes; -1: `exe` is to be opened.
    pub exe_fd: i32,
    /// The number of its namespace of process ids; 0: the collector's (see [`crate::ring::name_in`]).
    pub namespace: u32,
    /// How reads are recorded: see [`regime`].
    pub regime: u32,
    /// 1: the process ran before it was recorded (see [`crate::attach`]).
    pub attached: u32,
    /// For tests: the quiet regime ends when the program has come to the runtime so many times between
    /// two instructions; 0: it does not.
    pub quiet_for: u64,
    /// For tests: instructions between two times that a quiet thread restates its memory; 0: by what that costs.
    pub restate_every: u64,
    /// For tests: the number, plus one, of a system call of which is not recorded what it wrote; 0: none.
    pub untold: u64,
    /// 1: memory that is only read shares its pages with its cells in the checked regime.
    pub joint: u64,
    /// Least number of instructions between key frames; 0: none but the first.
    pub keyframe_interval: u64,
    /// Least number of instructions between digests of all registers; 0: none.
    pub digest_interval: u64,
    /// What of the program is recorded: see [`crate::select`]. Empty: everything.
    pub select: [u8; SELECT_LEN],
    /// Limits on address space and data, soft and hard, as the program knows them; the kernel's are
    /// lifted as far as that is allowed.
    pub limits: [[u64; 2]; 2],
    /// Seed of what disturbs the timing of threads; 0: nothing does.
    pub chaos: u64,
    /// Of an image that is not recorded, but whose children may be: the collector's process id and
    /// descriptor of the control file, and that file's number.
    pub collector: [i32; 2],
    pub control_file: u64,
    /// The pattern (see [`crate::select::glob`]) for [`children::MATCHING`], zero-terminated.
    pub matching: [u8; PATTERN_LEN],
    /// Descriptor of a file with what the program before has set for this one, and its length;
    /// the recorder closes it.
    pub state_fd: i32,
    pub state_len: u32,
    /// The program file to load (after `#!` and PATH were resolved).
    pub exe: [u8; PATH_LEN],
    /// What AT_EXECFN shows, and whose last component is the command name.
    pub execfn: [u8; PATH_LEN],
}

impl Config {
    /// An empty block with marker and version.
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
            untold: 0,
            joint: 0,
            keyframe_interval: 0,
            digest_interval: 0,
            select: [0; SELECT_LEN],
            limits: [[u64::MAX; 2]; 2],
            chaos: 0,
            collector: [0, -1],
            control_file: 0,
            matching: [0; PATTERN_LEN],
            state_fd: -1,
            state_len: 0,
            exe: [0; PATH_LEN],
            execfn: [0; PATH_LEN],
        }
    }

    /// The block's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: repr(C) without padding (checked below), plain integers only.
        unsafe { core::slice::from_raw_parts((self as *const Config).cast(), size_of::<Config>()) }
    }
}

const _: () = assert!(
    size_of::<Config>()
        == 16 + 8 + 4 + 4 + 24 + 32 + 32 + 32 + 16 + PATTERN_LEN + SELECT_LEN + 2 * PATH_LEN
);

impl Default for Config {
    fn default() -> Self {
        Config::new()
    }
}
