//! Structures in memory.

use super::names::{
    FILE_ATTRIBUTES, FILE_BITS, FILE_SYSTEMS, FILE_TYPES, MOUNTED, SIGACTION, names,
};
use super::sockets;
use super::text::{address, bits, known, octal, quoted, signal, signals};
use hindsight_syscalls::abi;
use hindsight_syscalls::{Set, Shape};

/// The bytes of a structure, where they are known.
pub struct Bytes(pub Vec<Option<u8>>);

impl Bytes {
    /// A number of `len` bytes.
    pub fn at(&self, at: usize, len: usize) -> Option<u64> {
        let bytes = self.0.get(at..at + len)?;
        let mut value = 0;
        for (i, b) in bytes.iter().enumerate() {
            value |= ((*b)? as u64) << (8 * i);
        }
        Some(value)
    }

    pub fn unsigned(&self, at: usize, len: usize) -> String {
        known(self.at(at, len), |v| v.to_string())
    }

    pub fn signed(&self, at: usize, len: usize) -> String {
        let shift = 64 - 8 * len as u32;
        known(self.at(at, len), |v| {
            ((v << shift) as i64 >> shift).to_string()
        })
    }

    pub fn hex(&self, at: usize, len: usize) -> String {
        known(self.at(at, len), |v| match v {
            0 => "0".into(),
            v => format!("{v:#x}"),
        })
    }

    /// A text in a field of `len` bytes. It may end earlier.
    pub fn text(&self, at: usize, len: usize) -> String {
        let all = self
            .0
            .get(at..(at + len).min(self.0.len()))
            .unwrap_or_default();
        let end = all.iter().position(|b| *b == Some(0)).unwrap_or(all.len());
        quoted(&all[..end], false)
    }

    fn is_known(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Seconds and parts of a second.
    fn time(&self, at: usize, part: &str) -> String {
        format!(
            "{{tv_sec={}, tv_{part}={}}}",
            self.signed(at, 8),
            self.signed(at + 8, 8)
        )
    }
}

/// The size of a structure in bytes.
pub fn size(shape: Shape) -> usize {
    match shape {
        Shape::Stat => 144,
        Shape::Statx => 256,
        Shape::Statfs => 120,
        Shape::Timespec | Shape::Timeval | Shape::Rlimit | Shape::SizedSigset => 16,
        Shape::Timezone | Shape::Sigset | Shape::Long | Shape::Hex | Shape::Pair => 8,
        Shape::Times | Shape::Timevals | Shape::Itimerval | Shape::Itimerspec => 32,
        Shape::Rusage => 144,
        Shape::Utsname => 390,
        Shape::Sysinfo => 112,
        Shape::Sigaction | Shape::Tms => 32,
        Shape::Stack | Shape::OpenHow => 24,
        Shape::Siginfo => 32,
        Shape::Int | Shape::Uint | Shape::SchedParam | Shape::Status | Shape::Id => 4,
        Shape::EpollEvent => 12,
        Shape::CloneArgs => 88,
        Shape::Dirents => 0,
        Shape::Sembuf => 6,
        Shape::Winsize => 8,
    }
}

/// A structure in words. `None`: nothing of it is known.
pub fn shown(shape: Shape, b: &Bytes) -> Option<String> {
    if !b.is_known() {
        return None;
    }
    Some(match shape {
        Shape::Stat => stat(b),
        Shape::Statx => format!(
            "{{stx_mask={}, stx_attributes={}, stx_mode={}, stx_size={}, ...}}",
            known(b.at(0, 4), |v| bits(v, names(Set::StatxMask))),
            known(b.at(8, 8), |v| bits(v, FILE_ATTRIBUTES)),
            known(b.at(28, 2), mode),
            b.unsigned(40, 8)
        ),
        Shape::Statfs => statfs(b),
        Shape::Timespec => b.time(0, "nsec"),
        Shape::Timeval => b.time(0, "usec"),
        Shape::Timezone => format!(
            "{{tz_minuteswest={}, tz_dsttime={}}}",
            b.signed(0, 4),
            b.signed(4, 4)
        ),
        Shape::Times => format!("[{}, {}]", file_time(b, 0), file_time(b, 16)),
        Shape::Timevals => format!("[{}, {}]", b.time(0, "usec"), b.time(16, "usec")),
        Shape::Itimerval => timer(b, "usec"),
        Shape::Itimerspec => timer(b, "nsec"),
        Shape::Rlimit => format!(
            "{{rlim_cur={}, rlim_max={}}}",
            known(b.at(0, 8), limit),
            known(b.at(8, 8), limit)
        ),
        Shape::Rusage => format!(
            "{{ru_utime={}, ru_stime={}, ...}}",
            b.time(0, "usec"),
            b.time(16, "usec")
        ),
        Shape::Utsname => format!(
            "{{sysname={}, nodename={}, ...}}",
            b.text(0, 65),
            b.text(65, 65)
        ),
        Shape::Sysinfo => sysinfo(b),
        Shape::Sigaction => sigaction(b),
        Shape::Sigset => known(b.at(0, 8), signals),
        Shape::SizedSigset => format!(
            "{{sigmask={}, sigsetsize={}}}",
            known(b.at(0, 8), address),
            b.unsigned(8, 8)
        ),
        Shape::Stack => alternate_stack(b),
        Shape::Siginfo => siginfo(b),
        Shape::Int => format!("[{}]", b.signed(0, 4)),
        Shape::Uint => format!("[{}]", b.unsigned(0, 4)),
        Shape::SchedParam => format!("[{}]", b.signed(0, 4)),
        Shape::Long => format!("[{}]", b.signed(0, 8)),
        Shape::Hex => format!("[{}]", known(b.at(0, 8), address)),
        Shape::Pair => format!("[{}, {}]", b.signed(0, 4), b.signed(4, 4)),
        Shape::EpollEvent => format!(
            "{{events={}, data={{u32={}, u64={}}}}}",
            known(b.at(0, 4), |v| sockets::events("EPOLL", v)),
            b.unsigned(4, 4),
            b.unsigned(4, 8)
        ),
        Shape::CloneArgs => clone_args(b),
        Shape::Tms => format!(
            "{{tms_utime={}, tms_stime={}, tms_cutime={}, tms_cstime={}}}",
            b.signed(0, 8),
            b.signed(8, 8),
            b.signed(16, 8),
            b.signed(24, 8)
        ),
        Shape::Status => format!("[{}]", known(b.at(0, 4), status)),
        Shape::Id => b.unsigned(0, 4),
        Shape::Dirents => return None,
        Shape::OpenHow => format!(
            "{{flags={}, mode={}, resolve={}}}",
            known(b.at(0, 8), open_flags),
            known(b.at(8, 8), octal),
            b.hex(16, 8)
        ),
        Shape::Sembuf => semaphore(b),
        Shape::Winsize => format!(
            "{{ws_row={}, ws_col={}, ws_xpixel={}, ws_ypixel={}}}",
            b.unsigned(0, 2),
            b.unsigned(2, 2),
            b.unsigned(4, 2),
            b.unsigned(6, 2)
        ),
    })
}

/// A stack for signal handlers.
fn alternate_stack(b: &Bytes) -> String {
    format!(
        "{{ss_sp={}, ss_flags={}, ss_size={}}}",
        known(b.at(0, 8), address),
        known(b.at(8, 4), |v| bits(
            v,
            &[
                (1, "SS_ONSTACK"),
                (2, "SS_DISABLE"),
                (1 << 31, "SS_AUTODISARM")
            ]
        )),
        b.unsigned(16, 8)
    )
}

/// An operation on a semaphore.
fn semaphore(b: &Bytes) -> String {
    format!(
        "{{sem_num={}, sem_op={}, sem_flg={}}}",
        b.unsigned(0, 2),
        b.signed(2, 2),
        known(b.at(4, 2), |v| bits(
            v,
            &[(0o4000, "IPC_NOWAIT"), (0x1000, "SEM_UNDO")]
        ))
    )
}

/// Flags of `open`: first the access mode, then the others.
pub fn open_flags(flags: u64) -> String {
    let how = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"][flags as usize & 3];
    match bits(flags & !3, names(Set::Open)).as_str() {
        "0" => how.into(),
        rest => format!("{how}|{rest}"),
    }
}

/// A file's type and permissions.
fn mode(mode: u64) -> String {
    let kind = mode & 0o170000;
    let mut rest = octal(mode & 0o777);
    if mode & 0o7000 != 0 {
        rest = format!("{}|{rest}", bits(mode & 0o7000, FILE_BITS));
    }
    match FILE_TYPES.iter().find(|t| t.0 == kind) {
        Some((_, name)) => format!("{name}|{rest}"),
        None => octal(mode),
    }
}

fn stat(b: &Bytes) -> String {
    let kind = b.at(24, 4).map(|m| m & 0o170000);
    let what = match kind {
        Some(0o020000 | 0o060000) => known(b.at(40, 8), |d| format!("st_rdev={}", device(d))),
        _ => format!("st_size={}", b.signed(48, 8)),
    };
    format!("{{st_mode={}, {what}, ...}}", known(b.at(24, 4), mode))
}

fn statfs(b: &Bytes) -> String {
    let kind = known(b.at(0, 8), |v| {
        match FILE_SYSTEMS.iter().find(|f| f.0 == v) {
            Some((_, name)) => (*name).into(),
            None => format!("{v:#x}"),
        }
    });
    let mut out = format!("{{f_type={kind}");
    let fields = [
        ("bsize", 8),
        ("blocks", 16),
        ("bfree", 24),
        ("bavail", 32),
        ("files", 40),
        ("ffree", 48),
    ];
    for (name, at) in fields {
        out += &format!(", f_{name}={}", b.unsigned(at, 8));
    }
    out += &format!(", f_fsid={{val=[{}, {}]}}", b.hex(56, 4), b.hex(60, 4));
    let flags = known(b.at(80, 8), |v| bits(v, MOUNTED));
    out + &format!(
        ", f_namelen={}, f_frsize={}, f_flags={flags}}}",
        b.unsigned(64, 8),
        b.unsigned(72, 8)
    )
}

fn sysinfo(b: &Bytes) -> String {
    let mut out = format!(
        "{{uptime={}, loads=[{}, {}, {}]",
        b.signed(0, 8),
        b.unsigned(8, 8),
        b.unsigned(16, 8),
        b.unsigned(24, 8)
    );
    let fields = [
        ("totalram", 32, 8),
        ("freeram", 40, 8),
        ("sharedram", 48, 8),
        ("bufferram", 56, 8),
        ("totalswap", 64, 8),
        ("freeswap", 72, 8),
        ("procs", 80, 2),
        ("totalhigh", 88, 8),
        ("freehigh", 96, 8),
        ("mem_unit", 104, 4),
    ];
    for (name, at, len) in fields {
        out += &format!(", {name}={}", b.unsigned(at, len));
    }
    out + "}"
}

/// A device by its two numbers.
pub fn device(d: u64) -> String {
    let major = d >> 8 & 0xfff | d >> 32 & 0xffff_f000;
    let minor = d & 0xff | d >> 12 & 0xffff_ff00;
    format!("makedev({major:#x}, {minor:#x})")
}

fn file_time(b: &Bytes, at: usize) -> String {
    match b.at(at + 8, 8) {
        Some(0x3fff_ffff) => "UTIME_NOW".into(),
        Some(0x3fff_fffe) => "UTIME_OMIT".into(),
        _ => b.time(at, "nsec"),
    }
}

fn timer(b: &Bytes, part: &str) -> String {
    format!(
        "{{it_interval={}, it_value={}}}",
        b.time(0, part),
        b.time(16, part)
    )
}

fn limit(v: u64) -> String {
    match v {
        u64::MAX => "RLIM64_INFINITY".into(),
        v if v > 1024 && v.is_multiple_of(1024) => format!("{}*1024", v / 1024),
        v => v.to_string(),
    }
}

fn sigaction(b: &Bytes) -> String {
    let flags = b.at(8, 8);
    let field = match flags.is_some_and(|f| f & 4 != 0) {
        true => "sa_sigaction",
        false => "sa_handler",
    };
    let handler = known(b.at(0, 8), |h| match h {
        0 => "SIG_DFL".into(),
        1 => "SIG_IGN".into(),
        h => format!("{h:#x}"),
    });
    let restorer = match flags.is_some_and(|f| f & 0x0400_0000 != 0) {
        true => format!(", sa_restorer={}", known(b.at(16, 8), address)),
        false => String::new(),
    };
    format!(
        "{{{field}={handler}, sa_mask={}, sa_flags={}{restorer}}}",
        known(b.at(24, 8), signals),
        known(flags, |f| bits(f, SIGACTION))
    )
}

fn siginfo(b: &Bytes) -> String {
    let (number, code) = (b.at(0, 4), b.at(8, 4));
    let code = match (number, code) {
        (Some(17), Some(c @ 1..=6)) => {
            const HOW: [&str; 6] = [
                "EXITED",
                "KILLED",
                "DUMPED",
                "TRAPPED",
                "STOPPED",
                "CONTINUED",
            ];
            format!("CLD_{}", HOW[c as usize - 1])
        }
        (_, Some(0)) => "SI_USER".into(),
        (_, Some(c)) => (c as u32 as i32).to_string(),
        (_, None) => "?".into(),
    };
    match number {
        Some(0) => "{}".into(),
        Some(17) => format!(
            "{{si_signo=SIGCHLD, si_code={code}, si_pid={}, si_uid={}, si_status={}, ...}}",
            b.signed(16, 4),
            b.unsigned(20, 4),
            b.signed(24, 4)
        ),
        _ => format!(
            "{{si_signo={}, si_code={code}, ...}}",
            known(number, signal)
        ),
    }
}

fn clone_args(b: &Bytes) -> String {
    let mut out = vec![format!(
        "flags={}",
        known(b.at(0, 8), |v| bits(v, names(Set::CloneFlags)))
    )];
    for (name, at) in [("child_tid", 16), ("parent_tid", 24)] {
        if b.at(at, 8) != Some(0) {
            out.push(format!("{name}={}", known(b.at(at, 8), address)));
        }
    }
    out.push(format!(
        "exit_signal={}",
        known(b.at(32, 8), |s| if s == 0 { "0".into() } else { signal(s) })
    ));
    out.push(format!("stack={}", known(b.at(40, 8), address)));
    out.push(format!("stack_size={}", b.hex(48, 8)));
    if b.at(0, 8).is_none_or(|f| f & abi::CLONE_SETTLS as u64 != 0) {
        out.push(format!("tls={}", known(b.at(56, 8), address)));
    }
    format!("{{{}}}", out.join(", "))
}

/// How a child ended.
fn status(s: u64) -> String {
    let (signo, code) = (s & 0x7f, s >> 8 & 0xff);
    match signo {
        0 => format!("{{WIFEXITED(s) && WEXITSTATUS(s) == {code}}}"),
        _ if s == 0xffff => "{WIFCONTINUED(s)}".into(),
        0x7f => format!("{{WIFSTOPPED(s) && WSTOPSIG(s) == {}}}", signal(code)),
        _ => {
            let core = if s & 0x80 != 0 {
                " && WCOREDUMP(s)"
            } else {
                ""
            };
            format!(
                "{{WIFSIGNALED(s) && WTERMSIG(s) == {}{core}}}",
                signal(signo)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sockets::address_of;
    use super::*;

    fn bytes(b: &[u8]) -> Bytes {
        Bytes(b.iter().map(|b| Some(*b)).collect())
    }

    #[test]
    fn structures_are_shown_as_strace_does() {
        let mut b = [0; 144];
        b[24..28].copy_from_slice(&0o100644u32.to_le_bytes());
        b[48] = 7;
        let text = shown(Shape::Stat, &bytes(&b)).unwrap();
        assert_eq!(text, "{st_mode=S_IFREG|0644, st_size=7, ...}");
        b[24..28].copy_from_slice(&0o041777u32.to_le_bytes());
        let text = shown(Shape::Stat, &bytes(&b)).unwrap();
        assert_eq!(text, "{st_mode=S_IFDIR|S_ISVTX|0777, st_size=7, ...}");
        b[24..28].copy_from_slice(&0o020666u32.to_le_bytes());
        b[40..42].copy_from_slice(&[3, 1]);
        let text = shown(Shape::Stat, &bytes(&b)).unwrap();
        assert_eq!(
            text,
            "{st_mode=S_IFCHR|0666, st_rdev=makedev(0x1, 0x3), ...}"
        );
        let mut limits = [0xff; 16];
        limits[..8].copy_from_slice(&(8u64 << 20).to_le_bytes());
        let text = shown(Shape::Rlimit, &bytes(&limits)).unwrap();
        assert_eq!(text, "{rlim_cur=8192*1024, rlim_max=RLIM64_INFINITY}");
        let inet = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            address_of(&bytes(&inet)).unwrap(),
            "{sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr(\"127.0.0.1\")}"
        );
        assert_eq!(
            address_of(&bytes(b"\x01\0/tmp/x\0zz")).unwrap(),
            "{sa_family=AF_UNIX, sun_path=\"/tmp/x\"}"
        );
        for (value, text) in [
            (0x300, "{WIFEXITED(s) && WEXITSTATUS(s) == 3}"),
            (
                0x8b,
                "{WIFSIGNALED(s) && WTERMSIG(s) == SIGSEGV && WCOREDUMP(s)}",
            ),
            (0x137f, "{WIFSTOPPED(s) && WSTOPSIG(s) == SIGSTOP}"),
        ] {
            assert_eq!(status(value), text);
        }
        // What is not known is not invented.
        let unknown = Bytes(vec![None; 16]);
        assert_eq!(
            (shown(Shape::Timespec, &unknown), address_of(&unknown)),
            (None, None)
        );
        let mut half = vec![Some(0); 8];
        half.extend([None; 8]);
        let text = shown(Shape::Timespec, &Bytes(half)).unwrap();
        assert_eq!(text, "{tv_sec=0, tv_nsec=?}");
        for shape in [
            Shape::Sigaction,
            Shape::CloneArgs,
            Shape::Siginfo,
            Shape::Statx,
        ] {
            assert!(shown(shape, &Bytes(vec![Some(0); 2])).is_some());
        }
        assert_eq!(open_flags(0o2000101), "O_WRONLY|O_CREAT|O_CLOEXEC");
    }
}
