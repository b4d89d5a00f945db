//! Each call of a thread, as control flow tells it.
//!
//! What begins and ends a call is what [`super::tree`] says. Two things differ, since each call counts for itself:
//!
//! - A tail call is a call of its own. It returns where the call returns that it goes on for.
//! - Nothing is joined: neither calls that are nested deep, nor functions without a name.
//!
//! A thread is followed from its beginning, whatever is asked for. So answers do not depend on that.

use super::numbers::Front;
use super::places::{End, Function, Known, Place, Places};
use super::runs;
use super::tree::LOOK;
use crate::recording::Recording;
use crate::rows::Stop;
use hindsight_timeline::{Cancel, Entry, Executed, ThreadId};

/// At most this many calls that have not returned are remembered. If there are more, the older half is given up.
const OPEN: usize = 1 << 20;

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// The number of instructions that the thread had completed before the function's first one. Of a handler the first one is
    /// completed, too: at the instant before it, the signal comes.
    pub count: u64,
    /// The address of the function's first instruction.
    pub function: u64,
    /// The number of the function in [`Ended::functions`].
    pub number: u32,
    /// That function begins there. Otherwise code without a name stands behind it, such as a stub of the linker.
    pub begins: bool,
    /// How it began.
    pub how: How,
    /// Where it is to return to. `None`: nobody knows, or the kernel called it.
    pub back: Option<u64>,
    /// How many calls had not returned then, with this one. `None`: not all before was recorded, or a jump led back into one of
    /// several calls of a function.
    pub depth: Option<u32>,
    /// What a handler interrupts: how the run before ended.
    last: Last,
    /// Where a handler returned to, and when. It goes on there until the kernel has the thread go on elsewhere.
    left: Option<(u64, u64)>,
}

impl Called {
    fn is_tail(&self) -> bool {
        matches!(self.how, How::Tail(_))
    }
}

/// How a call began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By the call instruction at this address.
    Call(u64),
    /// By a jump out of the last instruction before this address.
    Tail(u64),
    /// The kernel called it to handle a signal.
    Handler,
    /// The thread begins there, or what was not recorded leads there.
    Begins,
}

/// How a run ended.
#[derive(Clone, Copy, Default, Debug)]
struct Last {
    end: End,
    /// The address behind it, and the length of its last instruction.
    behind: u64,
    len: u32,
}

impl Last {
    fn at(self) -> u64 {
        self.behind.wrapping_sub(self.len.into())
    }
}

/// A call that has ended, or of which nothing more will be known.
pub struct Ended<'a> {
    /// The call.
    pub call: Called,
    /// Where it returned to, and how many instructions the thread had completed then. `None`: it did not return, or nobody knows.
    pub returned: Option<(u64, u64)>,
    /// All functions that have numbers.
    pub functions: &'a [Function],
}

/// Which calls are asked for.
pub struct Wanted {
    /// The thread is followed from here, where it begins,
    pub begins: u64,
    /// up to here. Where calls return is known as far.
    pub to: u64,
    /// Calls that begin when the thread has completed so many instructions, or more.
    pub from: u64,
    /// And fewer than these.
    pub until: u64,
}

impl Wanted {
    fn has(&self, call: &Called) -> bool {
        (self.from..self.until).contains(&call.count)
    }
}

/// Gets calls in the order in which they end.
type Tell<'a> = dyn FnMut(&Ended) -> Result<(), Stop> + 'a;

/// Tells the calls of a thread of a program image.
pub fn calls(
    r: &Recording,
    (thread, image): (ThreadId, u32),
    wanted: &Wanted,
    cancel: &Cancel,
    tell: &mut Tell,
) -> Result<(), Stop> {
    let mut stack = Stack {
        places: Places::new(thread, image),
        wanted,
        open: Vec::new(),
        waiting: 0,
        here: None,
        last: Last::default(),
        count: wanted.begins,
        depth: Some(0),
        told: Ok(()),
        tell,
    };
    stack.play(r, thread, cancel)?;
    // Nothing more is known of what is open.
    let n = stack.open.len();
    stack.end(n, None);
    stack.told
}

struct Stack<'a, 't> {
    places: Places,
    wanted: &'a Wanted,
    /// Calls that have not returned, the last one behind.
    open: Vec<Called>,
    /// How many of these are wanted.
    waiting: usize,
    /// Where the run before began.
    here: Option<Place>,
    last: Last,
    /// The number of instructions up to the end of the run before.
    count: u64,
    /// How many calls have not returned. `None`: nobody knows.
    depth: Option<u32>,
    /// What came of telling.
    told: Result<(), Stop>,
    tell: &'a mut Tell<'t>,
}

impl Stack<'_, '_> {
    fn play(&mut self, r: &Recording, thread: ThreadId, cancel: &Cancel) -> Result<(), Stop> {
        let mut failed = None;
        let mut runs = runs(r, thread, cancel)?;
        let mut front: Front<Known> = Front::default();
        runs.play((self.wanted.begins, self.wanted.to), |e, taken| {
            if e.interrupted {
                return true;
            }
            front.begin(e, |_| {});
            if e.count != self.count {
                self.pass_gap();
            }
            self.count = e.count;
            let mut done = self.enter_from_kernel(r, e);
            for run in taken {
                let known = done.and_then(|()| {
                    let k = front.of(run, |_| self.places.of_run(r, e, run));
                    k.copied()
                });
                done = known.map(|k| {
                    self.arrive(k.at);
                    self.here = Some(k.at);
                    self.count += run.instructions();
                    self.last = Last {
                        end: k.end,
                        behind: k.behind,
                        len: k.last,
                    };
                });
                if done.is_err() || self.told.is_err() {
                    break;
                }
            }
            failed = done.err();
            let over = self.count >= self.wanted.until && self.waiting == 0;
            failed.is_none() && self.told.is_ok() && !over
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Goes to where the kernel lets the thread go on. It may begin handlers, and end them, without an instruction in between.
    fn enter_from_kernel(&mut self, r: &Recording, e: &Executed) -> Result<(), Stop> {
        for Entry { pc, handler, .. } in e.entries {
            let at = self.places.at(r, *pc, e.count)?;
            match handler {
                true => {
                    self.push(at, How::Handler, None);
                    self.last = Last::default();
                }
                false => self.leave_handler(at),
            }
            self.here = Some(at);
        }
        Ok(())
    }

    /// Goes to where the next run is.
    #[inline]
    fn arrive(&mut self, at: Place) {
        match self.last.end {
            End::Within if self.here.is_some_and(|h| h.function == at.function) => {}
            End::Within => self.jump(at),
            End::Call => {
                let back = Some(self.last.behind);
                self.push(at, How::Call(self.last.at()), back);
            }
            End::Return => match self.open.last() {
                Some(o) if o.back == Some(at.pc) => self.return_to(at.pc),
                _ => self.back(at),
            },
        }
    }

    /// Notes that a function is called.
    fn push(&mut self, at: Place, how: How, back: Option<u64>) {
        if self.open.len() >= OPEN {
            let rest = self.open.split_off(OPEN / 2);
            let old = std::mem::replace(&mut self.open, rest);
            old.into_iter().for_each(|c| self.say(c, None));
        }
        let count = self.count + u64::from(how == How::Handler);
        if !matches!(how, How::Tail(_)) {
            self.depth = self.depth.map(|d| d.saturating_add(1));
        }
        let call = Called {
            count,
            function: at.pc,
            number: at.function,
            begins: at.begins != 0,
            how,
            back,
            depth: self.depth,
            last: self.last,
            left: None,
        };
        self.waiting += usize::from(self.wanted.has(&call));
        self.open.push(call);
    }

    /// What follows was not recorded. The thread goes on behind it.
    fn pass_gap(&mut self) {
        if self.last.end == End::Return {
            let tails = self.open.iter().rev().take_while(|o| o.is_tail()).count();
            self.end(tails + 1, None);
        }
        (self.last, self.here, self.depth) = (Last::default(), None, None);
    }

    /// A jump, or the end of what was not recorded, leads to a place in another function than before.
    fn jump(&mut self, at: Place) {
        let named = self.places.functions[at.function as usize].name.is_some();
        if at.begins == 0 {
            if named && self.here.is_some() {
                self.back_into(at.function);
            }
        } else if self.here.is_some() && !self.open.is_empty() {
            let back = self.open.last().and_then(|o| o.back);
            self.push(at, How::Tail(self.last.at()), back);
        } else {
            self.push(at, How::Begins, None);
        }
    }

    /// A return leads elsewhere than the last call says.
    fn back(&mut self, at: Place) {
        // Nobody called a handler. It returns to code that asks the kernel to end it.
        let tails = self.open.iter().rev().take_while(|o| o.is_tail()).count();
        let first = self.open.len() - tails;
        let handler = first.checked_sub(1).map(|i| self.open[i]);
        if handler.is_some_and(|h| h.how == How::Handler && h.left.is_none()) {
            let left = Some((at.pc, self.count));
            self.open[first - 1..]
                .iter_mut()
                .for_each(|o| o.left = left);
            return;
        }
        let mut near = self.open.iter().rev().take(LOOK);
        if let Some(n) = near.position(|o| o.back == Some(at.pc)) {
            self.end(n, None);
            self.return_to(at.pc);
        } else if self.here.is_none_or(|h| h.function != at.function) {
            self.jump(at);
        }
    }

    /// Ends calls up to one of a function, if there is one. Nobody knows which of several it is. Then the first one is certain to
    /// go on, and nothing is said of the others.
    fn back_into(&mut self, function: u32) {
        let near = self.open.iter().rev().take(LOOK).enumerate();
        let mut of = near.filter(|(_, o)| o.number == function).map(|(n, _)| n);
        match (of.next(), of.next_back()) {
            (None | Some(0), _) => {}
            (Some(n), None) => self.end(n, None),
            (Some(_), Some(first)) => {
                self.end(first, None);
                self.depth = None;
            }
        }
    }

    /// The last call returns to an address, with those for which it is a tail call.
    fn return_to(&mut self, to: u64) {
        while self.open.last().is_some_and(|o| o.back == Some(to)) {
            let tail = self.open.last().is_some_and(Called::is_tail);
            self.end(1, Some(to));
            if !tail {
                break;
            }
        }
    }

    /// Ends the last `n` calls. `to`: where they return to.
    fn end(&mut self, n: usize, to: Option<u64>) {
        for _ in 0..n {
            let Some(call) = self.open.pop() else {
                return;
            };
            if !call.is_tail() {
                self.depth = self.depth.map(|d| d.saturating_sub(1));
            }
            self.say(call, to);
        }
    }

    fn say(&mut self, call: Called, to: Option<u64>) {
        if !self.wanted.has(&call) {
            return;
        }
        self.waiting -= 1;
        if self.told.is_ok() {
            self.told = (self.tell)(&Ended {
                call,
                returned: to.map(|to| (to, self.count)).or(call.left),
                functions: &self.places.functions,
            });
        }
    }

    /// The kernel goes on there, and no handler begins. Most often a handler has ended.
    fn leave_handler(&mut self, at: Place) {
        self.last = Last::default();
        // A call within the handler is made again.
        if self.here.is_some_and(|h| h.function == at.function) {
            return;
        }
        let near = || self.open.iter().rev().take(LOOK).enumerate();
        let mut handlers = near().filter(|(_, o)| o.how == How::Handler);
        let first = handlers.next();
        let below = |n: usize| self.open.len().checked_sub(n + 2);
        let interrupted = |n: usize| below(n).map(|i| self.open[i].number);
        let of =
            (first.into_iter().chain(handlers)).find(|(n, _)| interrupted(*n) == Some(at.function));
        let found = of.or(first).map(|(n, o)| (n, o.last));
        if let Some((n, last)) = found {
            self.end(n + 1, None);
            self.last = last;
        }
    }
}
