//! The descriptors of a process.

use hindsight_text::line;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// What a descriptor leads to, be it a file, a socket or something else (an open file description). Copies of a descriptor lead to the same one.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// Numbers them in the order in which they were met, from 1.
    pub number: u64,
    /// The number of the first descriptor that led to it.
    pub first: i32,
    /// What it is.
    pub what: What,
    /// The program moved the place of the next bytes (`lseek`), so they need not stand behind those before.
    pub moved: bool,
    /// Where in the file the next bytes are read or written. `None`: that is not known, or it is no file.
    pub(super) next: Option<u64>,
    /// Whether all is written at the end. `None`: that is not known.
    pub(super) appends: Option<bool>,
    /// The flags with which its path was opened or the pipe was made. `None`: they are not known, or it is neither.
    pub(super) flags: Option<i32>,
    /// The open file of which this is another opening: the program opened `/dev/stdout`, `/dev/fd/N` or the like. That one
    /// is no other opening itself.
    again: Option<Shared>,
}

impl OpenFile {
    /// One of which only this is known.
    pub(super) fn new(number: u64, first: i32, what: What) -> OpenFile {
        OpenFile {
            number,
            first,
            what,
            moved: false,
            next: None,
            appends: None,
            flags: None,
            again: None,
        }
    }

    /// Where in the file the next bytes are read or written. `None`: that is not known, or it has no place.
    pub fn place(&self) -> Option<u64> {
        self.next
    }

    /// The flags with which its path was opened or the pipe was made, as `open` takes them. `None`: they are not known, or it
    /// is neither.
    pub fn flags(&self) -> Option<i32> {
        self.flags
    }

    /// Notes that this is another opening of that. A program can go on with openings of openings for ever, so that the first
    /// of them is noted, and no chain is made.
    pub(super) fn opens_again(&mut self, that: &Shared) {
        let first = that.borrow().again.clone();
        self.again = Some(first.unwrap_or_else(|| Rc::clone(that)));
    }

    /// The open file to which what is written here goes, too: another one if the program opened `/dev/stdout`, `/dev/fd/N` or the
    /// like, and otherwise this one.
    pub fn original(&self) -> OpenFile {
        match &self.again {
            Some(again) => again.borrow().clone(),
            None => self.clone(),
        }
    }
}

/// What an open file is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum What {
    /// The program began with it, so nothing is known of it but its number.
    Inherited,
    /// The program opened a file by its path.
    File {
        /// The path. It is absolute if the working directory was known. `None`: the path is not known, or was not asked for.
        path: Option<Vec<u8>>,
        /// It was opened for writing.
        writes: bool,
        /// It can only be a folder.
        folder: bool,
    },
    /// The reading end of a pipe, or else the writing end. Both ends have the same number.
    Pipe {
        /// Numbers pipes in their order, from 1.
        number: u64,
        /// It is the end that is read from.
        reads: bool,
    },
    /// A socket: its own address and that of its peer, as far as they are known.
    Socket {
        /// The address to which it was bound.
        own: Option<String>,
        /// The address to which it is connected.
        peer: Option<String>,
    },
    /// Something else, in a word: `eventfd`.
    Other(&'static str),
    /// Where it came from is not recorded.
    Unknown,
}

/// What people call it. Paths and names are escaped.
impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            What::Inherited => f.write_str("inherited"),
            What::File {
                path: Some(path), ..
            } => f.write_str(&hindsight_text::bytes(path)),
            What::File { path: None, .. } => f.write_str("a file whose path is not known"),
            What::Pipe { number, reads } => {
                let end = if *reads { "reading" } else { "writing" };
                write!(f, "pipe {number}, {end} end")
            }
            What::Socket { own, peer } => {
                f.write_str("socket")?;
                if let Some(own) = own {
                    write!(f, " at {}", line(own))?;
                }
                match peer {
                    Some(peer) => write!(f, " to {}", line(peer)),
                    None => Ok(()),
                }
            }
            What::Other(what) => f.write_str(what),
            What::Unknown => f.write_str("of unknown origin"),
        }
    }
}

/// An open file to which several descriptors lead.
pub type Shared = Rc<RefCell<OpenFile>>;

#[derive(Clone, Debug)]
struct Entry {
    /// `None`: it was closed.
    file: Option<Shared>,
    on_exec: bool,
}

/// The descriptors of a process, and its working directory.
#[derive(Clone, Debug)]
pub struct Table {
    entries: Rc<BTreeMap<i32, Entry>>,
    /// The working directory, if it is known.
    pub folder: Option<Rc<[u8]>>,
}

/// What is known of a descriptor.
#[derive(Debug)]
pub enum Found {
    OpenFile(Shared),
    /// It was closed, so it must have come in a way that is not recorded.
    Closed,
    /// Nothing was ever said of it.
    Never,
}

impl Table {
    /// That of a process of which nothing is known yet but its working directory.
    pub fn new(folder: &[u8]) -> Table {
        Table {
            entries: Rc::default(),
            folder: Some(Rc::from(folder)),
        }
    }

    pub fn find(&self, fd: i32) -> Found {
        match self.entries.get(&fd) {
            Some(Entry { file: Some(s), .. }) => Found::OpenFile(Rc::clone(s)),
            Some(_) => Found::Closed,
            None => Found::Never,
        }
    }

    pub fn put(&mut self, fd: i32, file: Shared, on_exec: bool) {
        let entry = Entry {
            file: Some(file),
            on_exec,
        };
        Rc::make_mut(&mut self.entries).insert(fd, entry);
    }

    /// Closes these. What was never mentioned may be open all the same, so 0, 1 and 2 are noted too.
    pub fn close(&mut self, first: i32, last: i32) {
        if first > last {
            return;
        }
        let entries = Rc::make_mut(&mut self.entries);
        let closed = Entry {
            file: None,
            on_exec: false,
        };
        for e in entries.range_mut(first..=last) {
            *e.1 = closed.clone();
        }
        let noted = if first == last { first } else { 2.min(last) };
        for fd in first..=noted {
            entries.insert(fd, closed.clone());
        }
    }

    /// Says of these whether the next program gets them.
    pub fn close_on_exec(&mut self, first: i32, last: i32, close: bool) {
        if first > last {
            return;
        }
        for e in Rc::make_mut(&mut self.entries).range_mut(first..=last) {
            e.1.on_exec = close;
        }
    }

    /// What is open, in order: the descriptor, what it leads to, and whether the next program does not get it.
    pub fn open(&self) -> impl Iterator<Item = (i32, &Shared, bool)> {
        let all = self.entries.iter();
        all.filter_map(|(fd, e)| Some((*fd, e.file.as_ref()?, e.on_exec)))
    }

    /// What another program gets that is loaded in place of this one.
    pub fn of_next_program(&self) -> Table {
        let mut next = self.clone();
        for e in Rc::make_mut(&mut next.entries).values_mut() {
            if e.on_exec {
                e.file = None;
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64, first: i32) -> Shared {
        Rc::new(RefCell::new(OpenFile::new(number, first, What::Inherited)))
    }

    fn number(t: &Table, fd: i32) -> Option<u64> {
        match t.find(fd) {
            Found::OpenFile(s) => Some(s.borrow().number),
            _ => None,
        }
    }

    #[test]
    fn copies_lead_to_the_same_and_a_child_has_its_own_table() {
        let mut t = Table::new(b"/");
        assert!(matches!(t.find(1), Found::Never));
        t.put(1, file(1, 1), false);
        let Found::OpenFile(out) = t.find(1) else {
            panic!()
        };
        t.put(10, out, true);
        t.put(3, file(2, 3), false);
        let mut child = t.clone();
        child.put(1, file(3, 4), false);
        child.close(3, 3);
        assert_eq!((number(&t, 1), number(&t, 10)), (Some(1), Some(1)));
        assert_eq!((number(&t, 3), number(&child, 3)), (Some(2), None));
        assert_eq!((number(&child, 1), number(&child, 10)), (Some(3), Some(1)));
        // The next program does not get the copy.
        let next = child.of_next_program();
        assert_eq!((number(&next, 1), number(&next, 10)), (Some(3), None));
        assert!(matches!(next.find(10), Found::Closed));
    }

    #[test]
    fn openings_of_openings_lead_to_the_first_and_make_no_chain() {
        let first = file(1, 1);
        let mut last = Rc::clone(&first);
        for n in 2..300_000 {
            let next = file(n, 1);
            next.borrow_mut().opens_again(&last);
            last = next;
        }
        assert_eq!(last.borrow().original().number, 1);
        assert_eq!(first.borrow().original().number, 1);
        // This one and the last hold it.
        assert_eq!(Rc::strong_count(&first), 2);
    }

    #[test]
    fn ranges_close_what_is_open_in_them() {
        let mut t = Table::new(b"/");
        for fd in [0, 4, 9] {
            t.put(fd, file(fd as u64 + 1, fd), false);
        }
        t.close(1, 8);
        assert_eq!((number(&t, 0), number(&t, 9)), (Some(1), Some(10)));
        assert!(matches!(t.find(4), Found::Closed));
        assert!(matches!(t.find(2), Found::Closed));
        assert!(matches!(t.find(3), Found::Never));
        t.close(0, i32::MAX);
        assert!(matches!(t.find(9), Found::Closed));
        t.close(7, 3);
    }
}
