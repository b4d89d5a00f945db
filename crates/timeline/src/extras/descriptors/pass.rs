//! The pass over all calls.

use super::effects::{Effect, Parts, Place, Way, effect, place};
use super::opening::joined;
use super::received::receives;
use super::table::{Found, OpenFile, Shared, Table, What};
use super::{Flow, Mapped, Paths, Transfer, Unseen, addresses, number, path};
use crate::extras::system::{ERRORS, Seen};
use crate::scan::{Raw, Scan};
use crate::{Cursor, Position, Result, ThreadId, Timeline};
use hindsight_syscalls::abi;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::rc::Rc;

/// The size of an entry of `sendmmsg`, and where in it the number of bytes stands.
const MESSAGE: u64 = 64;
const MESSAGE_LEN: u64 = 56;
/// The most messages of a call.
const MOST_MESSAGES: u64 = 1024;

/// A table that several threads may share.
pub type Files = Rc<RefCell<Table>>;

/// A moment of a call: where it is in the total order, whether it is the one behind the call, and the call.
type Moment = Reverse<(Position, bool, ThreadId, usize)>;

/// A call that is being looked at.
#[derive(Clone, Copy)]
pub struct Call {
    pub thread: ThreadId,
    pub count: u64,
    pub number: u64,
    pub args: [u64; 6],
    pub result: Option<u64>,
}

impl Call {
    pub fn at(&self) -> (ThreadId, u64) {
        (self.thread, self.count)
    }

    pub fn effect(&self) -> Effect {
        effect(self.number, &self.args, self.result)
    }
}

pub struct Pass {
    pub timeline: Timeline,
    pub cursor: Cursor,
    pub paths: Paths,
    /// The tables of the threads that go on.
    pub tables: HashMap<ThreadId, Files>,
    /// The table with which a program image began last. Threads whose making is not recorded have it.
    images: HashMap<u32, Files>,
    /// The tables of children that have not begun, by their ids.
    pub children: HashMap<i32, Files>,
    /// The tables of processes that are about to load another program, by their ids.
    loading: HashMap<i32, Files>,
    /// What the first programs began with.
    inherited: BTreeMap<i32, Shared>,
    random: Option<Shared>,
    met: u64,
    pipes: u64,
    unseen: Unseen,
    /// Other calls are visited too.
    pub tells: bool,
    /// What has happened at the instant itself counts: the calls that return there.
    pub inclusive: bool,
}

impl Pass {
    pub fn new(timeline: &Timeline, paths: Paths) -> Result<Pass> {
        Ok(Pass {
            timeline: timeline.clone(),
            cursor: timeline.cursor()?,
            paths,
            tables: HashMap::new(),
            images: HashMap::new(),
            children: HashMap::new(),
            loading: HashMap::new(),
            inherited: BTreeMap::new(),
            random: None,
            met: 0,
            pipes: 0,
            unseen: Unseen::default(),
            tells: false,
            inclusive: false,
        })
    }

    pub fn run(
        &mut self,
        until: Option<Position>,
        visit: &mut dyn FnMut(&mut Cursor, Flow) -> Result<()>,
    ) -> Result<Unseen> {
        let timeline = self.timeline.clone();
        let engine = &timeline.0;
        let scans = engine.scans()?;
        let mut heap: BinaryHeap<Moment> = BinaryHeap::new();
        let push = |heap: &mut BinaryHeap<Moment>, t: ThreadId, scan: &Scan, from: usize| {
            let is_call = |e: &(u64, Raw)| matches!(e.1, Raw::Syscall { .. });
            let next = scan.events[from..].iter().position(is_call);
            if let Some(i) = next.map(|i| from + i) {
                let position = engine.position_in(t, scan, scan.events[i].0);
                heap.push(Reverse((position, false, t, i)));
            }
            next.is_some()
        };
        for (t, scan) in scans {
            self.unseen.gaps |= !scan.gaps.is_empty();
            push(&mut heap, *t, scan, 0);
        }
        while let Some(Reverse((position, behind, thread, i))) = heap.pop() {
            if until.is_some_and(|u| u < position || u == position && !self.inclusive) {
                break;
            }
            // What begins there has not happened yet. Others may return there.
            if until == Some(position) && !behind {
                continue;
            }
            let scan = &scans[&thread];
            let (
                count,
                Raw::Syscall {
                    number,
                    args,
                    result,
                },
            ) = scan.events[i]
            else {
                continue;
            };
            let call = Call {
                thread,
                count,
                number,
                args,
                result,
            };
            if behind {
                self.behind(call, visit)?;
                if !push(&mut heap, thread, scan, i + 1) {
                    self.tables.remove(&thread);
                }
                continue;
            }
            self.before(call, position, visit)?;
            let position = engine.position_in(thread, scan, count.saturating_add(1));
            heap.push(Reverse((position, true, thread, i)));
        }
        Ok(self.unseen)
    }

    /// What a call does before others can see that it returns.
    fn before(
        &mut self,
        call: Call,
        position: Position,
        visit: &mut dyn FnMut(&mut Cursor, Flow) -> Result<()>,
    ) -> Result<()> {
        // The thread has its table even if it only ends.
        let files = self.files(call.thread)?;
        let mut transfer = |pass: &mut Pass, fd, way, len, parts| {
            let what = (fd, way, len, parts);
            let t = pass.transfer((call, position), &files, what)?;
            visit(&mut pass.cursor, Flow::Moved(&t))
        };
        match call.effect() {
            Effect::Close { first, last } => files.borrow_mut().close(first, last),
            Effect::Move {
                fd,
                way,
                parts,
                len,
            } => transfer(self, fd, way, len, Some(parts))?,
            Effect::Random { at, len } => {
                transfer(self, -1, Way::In, len, Some(Parts::Buffer(at)))?;
            }
            Effect::Map { fd } => {
                let file = self.file(&files, fd);
                let mapped = Mapped {
                    position,
                    thread: call.thread,
                    pid: self.pid(call.thread),
                    fd,
                    file: file.borrow().clone(),
                    address: call.result.unwrap_or(0),
                    len: call.args[1],
                    flags: call.args[3] as u32,
                    offset: call.args[5],
                };
                visit(&mut self.cursor, Flow::Mapped(&mapped))?;
            }
            Effect::Between { from, to, len } => {
                transfer(self, from, Way::In, len, None)?;
                transfer(self, to, Way::Out, len, None)?;
            }
            Effect::Messages { fd, way, at, count } => {
                for i in 0..count.min(MOST_MESSAGES) {
                    let at = at.wrapping_add(MESSAGE * i);
                    let len = (at.wrapping_add(MESSAGE_LEN), 4);
                    if let Some(len @ 1..) = number(&mut self.cursor, call.at(), len, true)? {
                        transfer(self, fd, way, len, Some(Parts::Message(at)))?;
                    }
                }
            }
            Effect::Fork { child, shares } => {
                let shares = match shares {
                    Some(shares) => shares,
                    None => {
                        let flags = number(&mut self.cursor, call.at(), (call.args[0], 8), false)?;
                        flags.is_some_and(|f| f & abi::CLONE_FILES as u64 != 0)
                    }
                };
                let its = match shares {
                    true => Rc::clone(&files),
                    false => Rc::new(RefCell::new(files.borrow().clone())),
                };
                self.children.insert(child, its);
            }
            Effect::Exec => {
                self.loading.insert(self.pid(call.thread), files);
            }
            Effect::Unshare(then) => {
                let mut own = files.borrow().clone();
                match then {
                    Some((first, last, true)) => own.close(first, last),
                    Some((first, last, false)) => own.close_on_exec(first, last, true),
                    None => {}
                }
                self.tables.insert(call.thread, Rc::new(RefCell::new(own)));
            }
            Effect::Hidden => self.unseen.hidden = true,
            _ => {}
        }
        Ok(())
    }

    /// What a call moves through a descriptor.
    fn transfer(
        &mut self,
        (call, position): (Call, Position),
        files: &Files,
        (fd, way, len, parts): (i32, Way, u64, Option<Parts>),
    ) -> Result<Transfer> {
        let shared = match fd {
            -1 => self.random(),
            fd => self.file(files, fd),
        };
        let file = shared.borrow().clone();
        // At the reading end of a pipe `vmsplice` reads.
        let way = match (call.number, &file.what) {
            (abi::__NR_vmsplice, What::Pipe { reads: true, .. }) => Way::In,
            _ => way,
        };
        Ok(Transfer {
            position,
            thread: call.thread,
            count: call.count,
            pid: self.pid(call.thread),
            number: call.number,
            fd,
            offset: self.offset(call, &shared, way, len)?,
            file,
            way,
            len,
            parts,
        })
    }

    /// What others can see once a call has returned.
    fn behind(
        &mut self,
        call: Call,
        visit: &mut dyn FnMut(&mut Cursor, Flow) -> Result<()>,
    ) -> Result<()> {
        let files = self.files(call.thread)?;
        match call.effect() {
            Effect::Open {
                fd,
                dir,
                path,
                flags,
            } => {
                let (file, on_exec) = self.opened(call, &files, (fd, dir), path, flags)?;
                visit(&mut self.cursor, Flow::Opened(&file.borrow()))?;
                files.borrow_mut().put(fd, file, on_exec);
            }
            Effect::Made { fd, what, on_exec } => {
                let what = match what {
                    "socket" => What::Socket {
                        own: None,
                        peer: None,
                    },
                    what => What::Other(what),
                };
                let file = self.new_file(fd, what);
                if file.borrow().what == What::Other("memfd") {
                    file.borrow_mut().next = Some(0);
                    file.borrow_mut().appends = Some(false);
                }
                files.borrow_mut().put(fd, file, on_exec);
            }
            Effect::Pair { at, pipe, on_exec } => self.pair(call, &files, at, pipe, on_exec)?,
            Effect::Copy { from, to, on_exec } => {
                let file = self.file(&files, from);
                files.borrow_mut().put(to, file, on_exec);
            }
            Effect::OnExec { first, last, close } => {
                if first == last {
                    // So that it is known of one that nobody has used yet.
                    self.file(&files, first);
                }
                files.borrow_mut().close_on_exec(first, last, close);
            }
            Effect::Seek { fd, to, moves } => {
                // It fails unless there are places.
                let file = self.file(&files, fd);
                let mut file = file.borrow_mut();
                file.next = Some(to);
                file.moved |= moves;
            }
            effect @ (Effect::Accept { .. } | Effect::Address { .. } | Effect::Told { .. }) => {
                self.connected(call, &files, effect)?;
            }
            Effect::Folder(at) => {
                let folder = match self.paths {
                    Paths::All => path(&mut self.cursor, call.at(), at)?,
                    Paths::Written => None,
                };
                let mut files = files.borrow_mut();
                let folder = folder.and_then(|f| joined(files.folder.as_deref(), f));
                files.folder = folder.map(Rc::from);
            }
            Effect::FolderOf(fd) => {
                let file = self.file(&files, fd);
                let folder = match &file.borrow().what {
                    What::File {
                        path: Some(path), ..
                    } if path.first() == Some(&b'/') => Some(Rc::from(path.as_slice())),
                    _ => None,
                };
                files.borrow_mut().folder = folder;
            }
            _ => {}
        }
        let succeeded = call.result.is_some_and(|r| r < ERRORS);
        if succeeded && (call.number, call.args[1] as u32) == (abi::__NR_fcntl, abi::F_SETFL) {
            let file = self.file(&files, call.args[0] as i32);
            file.borrow_mut().appends = Some(call.args[2] as i32 & abi::O_APPEND != 0);
        }
        if succeeded && !self.unseen.received {
            self.unseen.received = receives(&mut self.cursor, &call)?;
        }
        match self.tells {
            true => self.tell(call, &files, visit),
            false => Ok(()),
        }
    }

    /// What a call says of sockets and their addresses.
    fn connected(&mut self, call: Call, files: &Files, effect: Effect) -> Result<()> {
        match effect {
            Effect::Accept {
                fd,
                listener,
                address,
                len,
                on_exec,
            } => {
                let listener = self.file(files, listener);
                let own = match &listener.borrow().what {
                    What::Socket { own, .. } => own.clone(),
                    _ => None,
                };
                let peer = self.told(call, address, len)?;
                let file = self.new_file(fd, What::Socket { own, peer });
                files.borrow_mut().put(fd, file, on_exec);
            }
            Effect::Address {
                fd,
                address,
                len,
                peer,
            } => {
                let text = self.address(call, address, len, false)?;
                set_address(&self.file(files, fd), peer, text);
            }
            Effect::Told {
                fd,
                address,
                len,
                peer,
            } => {
                if let Some(text) = self.told(call, address, len)? {
                    set_address(&self.file(files, fd), peer, Some(text));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn pair(
        &mut self,
        call: Call,
        files: &Files,
        at: u64,
        pipe: bool,
        on_exec: bool,
    ) -> Result<()> {
        self.pipes += u64::from(pipe);
        for (i, reads) in [(0, true), (1, false)] {
            let place = (at.wrapping_add(4 * i), 4);
            let Some(fd) = number(&mut self.cursor, call.at(), place, true)? else {
                continue;
            };
            let what = match pipe {
                true => What::Pipe {
                    number: self.pipes,
                    reads,
                },
                false => What::Socket {
                    own: None,
                    peer: None,
                },
            };
            let file = self.new_file(fd as i32, what);
            if pipe {
                let given = call.number == abi::__NR_pipe2;
                file.borrow_mut().flags = Some(if given { call.args[1] as i32 } else { 0 });
            }
            files.borrow_mut().put(fd as i32, file, on_exec);
        }
        Ok(())
    }

    /// The address that a call told. Its length stands at `len`.
    fn told(&mut self, call: Call, at: u64, len: u64) -> Result<Option<String>> {
        let len = match len {
            0 => None,
            len => number(&mut self.cursor, call.at(), (len, 4), true)?,
        };
        self.address(call, at, len.unwrap_or(0), true)
    }

    /// The address of a socket in memory, in words.
    fn address(&mut self, call: Call, at: u64, len: u64, behind: bool) -> Result<Option<String>> {
        if at == 0 || len == 0 {
            return Ok(None);
        }
        let mut seen = super::recorded(&mut self.cursor, call.at());
        let bytes = seen.read(at, len.min(addresses::LONGEST) as usize, behind)?;
        Ok(addresses::shown(&bytes))
    }

    pub fn new_file(&mut self, first: i32, what: What) -> Shared {
        self.met += 1;
        Rc::new(RefCell::new(OpenFile::new(self.met, first, what)))
    }

    /// What random bytes come from.
    fn random(&mut self) -> Shared {
        if let Some(s) = &self.random {
            return Rc::clone(s);
        }
        let s = self.new_file(-1, What::Other("random"));
        self.random = Some(Rc::clone(&s));
        s
    }

    /// Where in a file a call reads or writes. It may move the place of the next one.
    fn offset(&mut self, call: Call, file: &Shared, way: Way, len: u64) -> Result<Option<u64>> {
        let mut file = file.borrow_mut();
        // Where such bytes are written, the call does not say: at the end.
        let appends = file.appends.filter(|_| way == Way::Out);
        Ok(match place(call.number, &call.args, way) {
            Place::At(at) => Some(at).filter(|_| appends != Some(true)),
            Place::Found(at) => number(&mut self.cursor, call.at(), (at, 8), false)?
                .filter(|_| appends != Some(true)),
            Place::Next => {
                let at = match way {
                    Way::Out if appends != Some(false) => None,
                    // Calls that are not recorded may have moved it.
                    _ if self.unseen.gaps || self.unseen.hidden => None,
                    _ => file.next,
                };
                file.next = at.and_then(|at| at.checked_add(len));
                at
            }
        })
    }

    /// What a descriptor leads to. If nothing has been said of it, the program has inherited it.
    pub fn file(&mut self, files: &Files, fd: i32) -> Shared {
        let found = files.borrow().find(fd);
        let file = match found {
            Found::OpenFile(s) => return s,
            Found::Closed => self.new_file(fd, What::Unknown),
            Found::Never => match self.inherited.get(&fd) {
                Some(s) => Rc::clone(s),
                None => {
                    let s = self.new_file(fd, What::Inherited);
                    self.inherited.insert(fd, Rc::clone(&s));
                    s
                }
            },
        };
        files.borrow_mut().put(fd, Rc::clone(&file), false);
        file
    }

    pub fn pid(&self, thread: ThreadId) -> i32 {
        let info = self.timeline.0.trace.stream_info(thread.0);
        info.map_or(0, |i| i.pid)
    }

    /// The table of a thread. A thread that has just begun gets it from whoever made it.
    pub fn files(&mut self, thread: ThreadId) -> Result<Files> {
        if let Some(files) = self.tables.get(&thread) {
            return Ok(Rc::clone(files));
        }
        let engine = std::sync::Arc::clone(&self.timeline.0);
        let info = engine.trace.stream_info(thread.0);
        let (tid, image) = info.map_or((0, 0), |i| (i.tid, i.image));
        let is_first = engine.first_thread(image) == Some(thread);
        let by_exec = engine.trace.image(image).is_some_and(|i| i.by_exec);
        let parent = self.images.get(&engine.parent(image));
        let next = |of: &Files| Rc::new(RefCell::new(of.borrow().of_next_program()));
        let copy = |of: &Files| Rc::new(RefCell::new(of.borrow().clone()));
        let loaded = match is_first && by_exec {
            true => self.loading.remove(&self.pid(thread)).or(parent.cloned()),
            false => None,
        };
        let files = if let Some(old) = loaded {
            next(&old)
        } else if let Some(own) = self.children.remove(&tid) {
            own
        } else if let Some(of_image) = self.images.get(&image) {
            Rc::clone(of_image)
        } else if let Some(parent) = parent {
            copy(parent)
        } else {
            let cwd = engine.trace.header().cwd.clone();
            Rc::new(RefCell::new(Table::new(cwd.as_bytes())))
        };
        self.tables.insert(thread, Rc::clone(&files));
        if is_first || !self.images.contains_key(&image) {
            self.images.insert(image, Rc::clone(&files));
        }
        Ok(files)
    }
}

/// Notes the address of a socket, or that of its peer.
fn set_address(file: &Shared, of_peer: bool, address: Option<String>) {
    if let What::Socket { own, peer } = &mut file.borrow_mut().what {
        *(if of_peer { peer } else { own }) = address;
    }
}
