//! What the recorder logs about itself, for those who debug it (`HINDSIGHT_LOG`; see docs/debugging-hindsight.md).
//!
//! Entries go into a ring in memory, one for the process. A crash prints the last ones, and a debugger finds the ring as
//! `HINDSIGHT_LOG_RING`. With `HINDSIGHT_LOG_FILE` each entry is also written at once.
//!
//! Anybody may log, at any time: signal handlers, and who holds locks. So nothing here waits, allocates or takes a lock.
//! While nothing is logged, a log point costs one test of a byte.

use crate::line;
use crate::sys::line::{Line, say};
use crate::sys::{self, config};
use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering::*, fence};
pub use hindsight_events::log::{AREAS, Area, Level};

/// Logs if the user wants it: `log!(Debug, "mapped {at:#x}")`. The area is the folder of the file that says so.
macro_rules! log {
    ($level:ident, $($text:tt)*) => {{
        use $crate::sys::log::{Area, Level};
        const AREA: Area = Area::of_module(module_path!());
        if $crate::sys::log::wants(AREA, Level::$level) {
            $crate::sys::log::write(AREA, Level::$level, format_args!($($text)*));
        }
    }};
}

/// Most bytes of an entry's text in the ring.
const TEXT: usize = 160;

/// Entries in the ring, and those that a crash prints.
const ENTRIES: usize = 256;
const SHOWN: usize = 64;

/// In the place of a position that is not known.
const UNKNOWN: u64 = u64::MAX;

/// [`Entry::stamp`] while somebody writes the entry.
const BUSY: u64 = u64::MAX;

/// One entry. Its words change one by one, so it is known by its stamp whether they belong together.
#[repr(C)]
struct Entry {
    /// The entry's number plus one; 0: there was none yet. [`BUSY`]: it is being written.
    stamp: AtomicU64,
    /// Microseconds of the kernel's clock that only runs forward.
    micros: AtomicU64,
    /// The thread's position.
    position: AtomicU64,
    /// The thread, and from the 32nd bit on area, level, and length of the text in bytes.
    what: AtomicU64,
    text: [AtomicU64; TEXT / 8],
}

impl Entry {
    const fn empty() -> Entry {
        Entry {
            stamp: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            position: AtomicU64::new(UNKNOWN),
            what: AtomicU64::new(0),
            text: [const { AtomicU64::new(0) }; TEXT / 8],
        }
    }
}

/// What an entry says besides its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Heading {
    number: u64,
    micros: u64,
    /// [`UNKNOWN`] if it is not known.
    position: u64,
    tid: u32,
    area: u8,
    level: u8,
}

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (seconds, micros) = (self.micros / 1_000_000, self.micros % 1_000_000);
        write!(
            f,
            "[{} {seconds}.{micros:06} thread {}",
            self.number, self.tid
        )?;
        if self.position != UNKNOWN {
            write!(f, " at {}", self.position)?;
        }
        let area = Area::ALL.get(self.area as usize).map_or("?", |a| a.name());
        let level = Level::ALL.iter().find(|l| **l as u8 == self.level);
        write!(f, " {area} {}] ", level.map_or("?", |l| l.name()))
    }
}

/// The last entries.
#[repr(C)]
struct Ring<const N: usize> {
    /// Number of the next entry.
    next: AtomicU64,
    entries: [Entry; N],
}

impl<const N: usize> Ring<N> {
    const fn new() -> Ring<N> {
        Ring {
            next: AtomicU64::new(0),
            entries: [const { Entry::empty() }; N],
        }
    }

    /// Appends an entry, in the place of the oldest one. Its number stands in the heading then.
    fn put(&self, heading: &mut Heading, text: &[u8]) {
        heading.number = self.next.fetch_add(1, Relaxed);
        let stamp = heading.number + 1;
        let entry = &self.entries[heading.number as usize % N];
        let before = entry.stamp.swap(BUSY, Acquire);
        if before == BUSY {
            // Somebody is writing there, or was killed meanwhile: one of the two entries is lost.
            return;
        }
        if before > stamp {
            return entry.stamp.store(before, Release);
        }
        fence(Release);
        let text = &text[..text.len().min(TEXT)];
        let of = |h: &Heading| (h.area as u64) << 32 | (h.level as u64) << 40;
        let what = heading.tid as u64 | of(heading) | (text.len() as u64) << 48;
        entry.micros.store(heading.micros, Relaxed);
        entry.position.store(heading.position, Relaxed);
        entry.what.store(what, Relaxed);
        for (word, bytes) in entry.text.iter().zip(text.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Relaxed);
        }
        entry.stamp.store(stamp, Release);
    }

    /// The entry with this number, if the ring still has all of it; its text is put into `text`.
    fn get<'a>(&self, number: u64, text: &'a mut [u8; TEXT]) -> Option<(Heading, &'a [u8])> {
        let entry = &self.entries[number as usize % N];
        let stamp = entry.stamp.load(Acquire);
        if stamp != number + 1 {
            return None;
        }
        let what = entry.what.load(Relaxed);
        let heading = Heading {
            number,
            micros: entry.micros.load(Relaxed),
            position: entry.position.load(Relaxed),
            tid: what as u32,
            area: (what >> 32) as u8,
            level: (what >> 40) as u8,
        };
        for (word, bytes) in entry.text.iter().zip(text.as_chunks_mut().0) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
        fence(Acquire);
        let len = ((what >> 48) as usize).min(TEXT);
        (entry.stamp.load(Relaxed) == stamp).then_some((heading, &text[..len]))
    }

    /// The numbers of the last `most` entries.
    fn last(&self, most: usize) -> core::ops::Range<u64> {
        let next = self.next.load(Relaxed);
        next.saturating_sub(most.min(N) as u64)..next
    }
}

/// The process's ring. A child that `fork` makes begins with its parent's entries.
#[unsafe(no_mangle)]
static HINDSIGHT_LOG_RING: Ring<ENTRIES> = Ring::new();

/// The level of each area; 0: nothing is logged.
static LEVELS: [AtomicU8; AREAS] = [const { AtomicU8::new(0) }; AREAS];

/// Anything is logged.
static ON: AtomicBool = AtomicBool::new(false);

/// Tells the position of the thread on whose stack an address lies, if there is one.
pub type Position = fn(u64) -> Option<u64>;

static POSITION: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Says who knows positions. Before that, entries have none.
pub fn ask_position(of: Position) {
    POSITION.store(of as *mut (), Release);
}

/// Begins to log what the configuration says.
pub fn begin() {
    let wanted = &config::get().log;
    for (level, wanted) in LEVELS.iter().zip(wanted).filter(|(_, w)| **w != 0) {
        level.store(*wanted, Relaxed);
        ON.store(true, Relaxed);
    }
}

/// Whether anything is logged.
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Whether entries of this area and level are logged.
#[inline(always)]
pub fn wants(area: Area, level: Level) -> bool {
    LEVELS[area as usize].load(Relaxed) >= level as u8
}

/// Logs, whatever the user wants. See `log!`.
#[cold]
#[inline(never)]
pub fn write(area: Area, level: Level, text: fmt::Arguments) {
    let text = line!("{text}");
    let mut heading = Heading {
        number: 0,
        micros: sys::micros(),
        position: position(&raw const text as u64),
        tid: sys::gettid() as u32,
        area: area as u8,
        level: level as u8,
    };
    HINDSIGHT_LOG_RING.put(&mut heading, text.as_bytes());
    write_through(&entry_line(&heading, text.as_bytes()));
}

/// The position of the thread whose stack this is.
fn position(address: u64) -> u64 {
    let of = POSITION.load(Acquire);
    if of.is_null() {
        return UNKNOWN;
    }
    // SAFETY: `ask_position` stored a function of this type.
    let of = unsafe { core::mem::transmute::<*mut (), Position>(of) };
    of(address).unwrap_or(UNKNOWN)
}

/// An entry as people read it. Names come from the program, and must not command a terminal.
fn entry_line(heading: &Heading, text: &[u8]) -> Line {
    line!("{heading}{}", Plain(text))
}

/// Text of which only printable ASCII is shown.
pub struct Plain<'a>(pub &'a [u8]);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for b in self.0 {
            let shown = matches!(b, b' '..=b'~');
            fmt::Write::write_char(f, if shown { *b as char } else { '?' })?;
        }
        Ok(())
    }
}

/// Writes a line where the user wants the log at once, if anywhere. The file is opened each time: the program must not
/// find a descriptor that it does not know.
pub fn write_through(text: &Line) {
    let file = &config::get().log_file;
    let path = core::ffi::CStr::from_bytes_until_nul(file).unwrap_or(c"");
    match path.to_bytes() {
        b"" => {}
        b"-" => say(text.as_bytes()),
        _ => {
            if let Ok(fd) = sys::open_append(path) {
                sys::write(fd, line!("{}\n", Plain(text.as_bytes())).as_bytes());
                sys::close(fd);
            }
        }
    }
}

/// Whether entries go to a file at once.
pub fn has_file() -> bool {
    is_written_through() && !config::get().log_file.starts_with(b"-\0")
}

/// Whether entries are written at once, so that nothing has to be repeated.
pub fn is_written_through() -> bool {
    is_on() && config::get().log_file[0] != 0
}

/// Shows the last entries to `say`, the oldest first.
pub fn tell(say: impl FnMut(&Line)) {
    tell_of(&HINDSIGHT_LOG_RING, SHOWN, say);
}

fn tell_of<const N: usize>(ring: &Ring<N>, most: usize, mut say: impl FnMut(&Line)) {
    for number in ring.last(most) {
        let mut text = [0; TEXT];
        if let Some((heading, text)) = ring.get(number, &mut text) {
            say(&entry_line(&heading, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    fn heading(micros: u64) -> Heading {
        Heading {
            number: 0,
            micros,
            position: 7,
            tid: 4242,
            area: Area::Memory as u8,
            level: Level::Debug as u8,
        }
    }

    fn lines<const N: usize>(ring: &Ring<N>, most: usize) -> Vec<String> {
        let mut out = Vec::new();
        tell_of(ring, most, |l| {
            out.push(String::from_utf8(l.as_bytes().to_vec()).unwrap());
        });
        out
    }

    #[test]
    fn the_last_entries_are_kept_in_order() {
        let ring = Ring::<4>::new();
        assert!(lines(&ring, 9).is_empty());
        for i in 0..10u64 {
            ring.put(&mut heading(i), std::format!("entry {i}").as_bytes());
        }
        let wanted: Vec<String> = (6..10)
            .map(|i| std::format!("[{i} 0.00000{i} thread 4242 at 7 memory debug] entry {i}"))
            .collect();
        assert_eq!(lines(&ring, 9), wanted);
        assert_eq!(lines(&ring, 2), wanted[2..]);
    }

    #[test]
    fn long_texts_are_cut_and_control_characters_shown_as_such() {
        let ring = Ring::<2>::new();
        let mut h = heading(1_500_000);
        h.position = UNKNOWN;
        ring.put(&mut h, &[b'x'; TEXT + 9]);
        ring.put(&mut heading(0), b"a\x1b[31m\nb\xff");
        let lines = lines(&ring, 2);
        let long = "x".repeat(TEXT);
        assert_eq!(
            lines[0],
            std::format!("[0 1.500000 thread 4242 memory debug] {long}")
        );
        assert!(lines[1].ends_with("] a?[31m?b?"), "{}", lines[1]);
    }

    /// Whoever was killed while writing an entry costs that one only.
    #[test]
    fn an_entry_that_nobody_completes_is_left_out() {
        let ring = Ring::<4>::new();
        (0..4).for_each(|i| ring.put(&mut heading(i), b"whole"));
        ring.entries[1].stamp.store(BUSY, Relaxed);
        (4..7).for_each(|i| ring.put(&mut heading(i), b"more"));
        let found = lines(&ring, 4);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|l| !l.starts_with("[5 ")), "{found:?}");
    }

    /// Many threads write more than the ring holds: what is read is whole.
    #[test]
    fn entries_of_many_threads_are_whole() {
        const THREADS: u64 = 4;
        const EACH: u64 = if cfg!(miri) { 20 } else { 5000 };
        static RING: Ring<8> = Ring::new();
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                s.spawn(move || {
                    for i in 0..EACH {
                        let mut h = heading(thread);
                        h.tid = thread as u32;
                        let letter = b'a' + thread as u8;
                        let len = 1 + (i as usize % TEXT);
                        RING.put(&mut h, &std::vec![letter; len]);
                    }
                });
            }
            for _ in 0..EACH {
                for number in RING.last(8) {
                    let mut text = [0; TEXT];
                    if let Some((h, text)) = RING.get(number, &mut text) {
                        let letter = b'a' + h.tid as u8;
                        assert_eq!(h.micros, h.tid as u64);
                        assert!(text.iter().all(|b| *b == letter), "{text:?}");
                    }
                }
            }
        });
        assert_eq!(RING.next.load(Relaxed), THREADS * EACH);
        // No entry stays locked.
        (0..8).for_each(|i| RING.put(&mut heading(i), b"later"));
        assert_eq!(lines(&RING, 8).len(), 8);
    }

    #[test]
    fn nothing_is_wanted_unless_it_is_said() {
        for area in Area::ALL {
            assert!(!wants(area, Level::Error));
        }
    }

    /// Each folder of the recorder is an area, so that its files can log.
    #[test]
    fn areas_are_the_folders() {
        let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders: Vec<String> = std::fs::read_dir(src)
            .unwrap()
            .filter_map(|e| e.unwrap().file_name().into_string().ok())
            .filter_map(|n| n.strip_suffix(".rs").map(String::from))
            .filter(|n| n != "lib")
            .collect();
        folders.sort();
        let mut areas: Vec<String> = Area::ALL.iter().map(|a| a.name().into()).collect();
        areas.sort();
        assert_eq!(folders, areas);
    }
}
