//! What each call path cost.
//!
//! A call is the instruction `call`, a return is `ret` to the address behind the call. What else leads out of a function is one
//! of these:
//!
//! - a jump to the beginning of another function: a tail call, which takes the place of the function that jumps;
//! - a return or jump into a function that called this one, as `longjmp` and exceptions make: all functions in between end;
//! - a signal, whose handler counts as called by the function that it interrupts, until the kernel goes on there.
//!
//! A jump into code without a name stays in the function, if that is in the same file: compilers put rarely used parts of one
//! elsewhere. Functions without a name cannot be told apart. Where one calls another, both count as one.

use super::numbers::Front;
use super::places::{End, Function, Known, Place, Places};
use super::{runs, share, threads};
use crate::bounds::Bounds;
use crate::recording::Recording;
use crate::rows::Stop;
use hindsight_timeline::{Cancel, Entry, Executed, ThreadId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Calls that are nested deeper count for the function at this depth.
pub const DEEPEST: usize = 256;
/// All trees have at most this many call paths.
const MOST: usize = 1 << 22;
/// So many calls that did not return are looked through for the one that a jump leads back to.
pub const LOOK: usize = 1 << 14;
/// At most this many calls that have not returned are remembered. If there are more, half of them are forgotten: the oldest.
const OPEN: usize = 1 << 20;
/// The number of a function that no code belongs to.
const NOBODY: u32 = u32::MAX;

/// The call paths of a thread.
pub struct Tree {
    /// The thread.
    pub thread: ThreadId,
    /// Its program image.
    pub image: u32,
    /// The first one stands for the thread. Those that a path calls follow it.
    pub nodes: Vec<Node>,
    /// The functions of nodes.
    pub functions: Vec<Function>,
}

/// A function, called along one path.
#[derive(Clone, Debug)]
pub struct Node {
    /// What called it: a number of a node before this one.
    pub parent: u32,
    /// Its number in [`Tree::functions`]. The first node has none.
    pub function: u32,
    /// How deep it is: the thread is at 0.
    pub depth: u32,
    /// How often it was called.
    pub calls: u64,
    /// Instructions in the function itself.
    pub own: u64,
}

/// The call paths of all threads within the bounds.
pub fn tree(r: &Recording, bounds: &Bounds, cancel: &Cancel) -> Result<Vec<Tree>, Stop> {
    let all = threads(r, bounds)?;
    let paths = AtomicUsize::new(0);
    let made = share(&all, Vec::new, |trees, (thread, image, from, until)| {
        trees.push(Maker::new(*thread, *image, &paths).play(r, (*from, *until), cancel)?);
        Ok(())
    })?;
    let mut trees: Vec<Tree> = made.into_iter().flatten().collect();
    trees.sort_by_key(|t| t.thread);
    Ok(trees)
}

/// A call that has not returned.
#[derive(Clone, Copy)]
struct Open {
    /// Where it returns to. `None`: the kernel called a handler.
    back: Option<u64>,
    /// The node that called.
    node: u32,
    /// The function that called. Where calls are nested deeper than [`DEEPEST`] its node stands for others, too.
    from: u32,
    /// How the run ended that a handler interrupts.
    last: (End, u64),
}

struct Maker<'a> {
    tree: Tree,
    /// How many nodes all trees have.
    paths: &'a AtomicUsize,
    children: HashMap<(u32, u32), u32>,
    places: Places,
    open: Vec<Open>,
    /// Where it is.
    node: u32,
    /// The function in which it is.
    here: u32,
    /// How the run before ended, and the address behind it.
    last: (End, u64),
    /// The number of instructions up to the end of the run before.
    count: u64,
}

impl Maker<'_> {
    fn new(thread: ThreadId, image: u32, paths: &AtomicUsize) -> Maker<'_> {
        let root = Node {
            parent: 0,
            function: NOBODY,
            depth: 0,
            calls: 1,
            own: 0,
        };
        Maker {
            tree: Tree {
                thread,
                image,
                nodes: vec![root],
                functions: Vec::new(),
            },
            paths,
            children: HashMap::new(),
            places: Places::new(thread, image),
            open: Vec::new(),
            node: 0,
            here: NOBODY,
            last: (End::Within, 0),
            count: 0,
        }
    }

    fn play(mut self, r: &Recording, range: (u64, u64), cancel: &Cancel) -> Result<Tree, Stop> {
        let mut failed = None;
        let mut runs = runs(r, self.tree.thread, cancel)?;
        let mut front: Front<Known> = Front::default();
        runs.play(range, |e, taken| {
            if e.interrupted {
                return true;
            }
            front.begin(e, |_| {});
            if e.count != self.count {
                // A gap lies between.
                self.last = (End::Within, 0);
            }
            self.count = e.count;
            let mut done = self.enter_from_kernel(r, e);
            for run in taken {
                let known =
                    done.and_then(|()| front.of(run, |_| self.places.of_run(r, e, run)).copied());
                done = known.and_then(|k| {
                    self.arrive(k.at)?;
                    let n = run.instructions();
                    self.tree.nodes[self.node as usize].own += n;
                    self.count += n;
                    self.last = (k.end, k.behind);
                    Ok(())
                });
                if done.is_err() {
                    break;
                }
            }
            failed = done.err();
            failed.is_none()
        })?;
        self.tree.functions = self.places.functions;
        failed.map_or(Ok(self.tree), Err)
    }

    /// Goes to where the kernel lets the thread go on. It may begin handlers, and end them, without an instruction in between.
    fn enter_from_kernel(&mut self, r: &Recording, e: &Executed) -> Result<(), Stop> {
        for Entry { pc, handler, .. } in e.entries {
            let at = self.places.at(r, *pc, e.count)?;
            match handler {
                true => {
                    let last = std::mem::take(&mut self.last);
                    self.call(None, last, at)?;
                }
                false => self.leave_handler(at),
            }
        }
        Ok(())
    }

    /// Goes to where the next run is.
    #[inline]
    fn arrive(&mut self, at: Place) -> Result<(), Stop> {
        match self.last {
            (End::Within, _) if self.here == at.function => Ok(()),
            (End::Within, _) => self.jump(at),
            (End::Call, behind) => self.call(Some(behind), Default::default(), at),
            (End::Return, _) => match self.open.last() {
                Some(o) if o.back == Some(at.pc) => {
                    (self.node, self.here) = (o.node, o.from);
                    self.open.pop();
                    Ok(())
                }
                _ => self.back(at),
            },
        }
    }

    fn call(&mut self, back: Option<u64>, last: (End, u64), at: Place) -> Result<(), Stop> {
        if self.open.len() >= OPEN {
            self.open.drain(..OPEN / 2);
        }
        self.open.push(Open {
            back,
            node: self.node,
            from: self.here,
            last,
        });
        self.enter(self.node, at.function)
    }

    /// A function is called from a node.
    fn enter(&mut self, parent: u32, function: u32) -> Result<(), Stop> {
        self.here = function;
        let depth = self.tree.nodes[parent as usize].depth + 1;
        let unknown = self.places.functions[function as usize].name.is_none();
        let same = self.tree.nodes[parent as usize].function == function;
        if depth as usize > DEEPEST || unknown && same {
            self.node = parent;
            return Ok(());
        }
        let nodes = &mut self.tree.nodes;
        let new = nodes.len() as u32;
        self.node = *self.children.entry((parent, function)).or_insert(new);
        if self.node == new {
            if self.paths.fetch_add(1, Relaxed) >= MOST {
                return Err(anyhow::anyhow!("there are more than {MOST} call paths").into());
            }
            nodes.push(Node {
                parent,
                function,
                depth,
                calls: 0,
                own: 0,
            });
        }
        nodes[self.node as usize].calls += 1;
        Ok(())
    }

    /// A jump leads into another function than the one that the node stands for.
    fn jump(&mut self, at: Place) -> Result<(), Stop> {
        let to = &self.places.functions[at.function as usize];
        let from = self.places.functions.get(self.here as usize);
        if to.name.is_none() && from.is_some_and(|f| f.module == to.module) {
            return Ok(());
        }
        if at.begins == 0 && to.name.is_some() && self.back_into(at.function) {
            return Ok(());
        }
        self.enter(self.open.last().map_or(0, |o| o.node), at.function)
    }

    /// A return leads elsewhere than the last call says.
    fn back(&mut self, at: Place) -> Result<(), Stop> {
        let mut near = self.open.iter().rev().take(LOOK);
        if let Some(n) = near.position(|o| o.back == Some(at.pc)) {
            self.end(n);
            return Ok(());
        }
        match self.here == at.function {
            true => Ok(()),
            false => self.jump(at),
        }
    }

    /// Ends calls up to the last one of a function. Returns whether it is among them.
    fn back_into(&mut self, function: u32) -> bool {
        let mut near = self.open.iter().rev().take(LOOK);
        let of = |o: &Open| o.from == function;
        let found = near.position(of);
        if let Some(n) = found {
            self.end(n);
        }
        found.is_some()
    }

    /// Ends the last calls, up to the one that has `n` behind it.
    fn end(&mut self, n: usize) -> Open {
        let at = self.open.len() - 1 - n;
        let ended = self.open[at];
        (self.node, self.here) = (ended.node, ended.from);
        self.open.truncate(at);
        ended
    }

    /// The kernel goes on there, and no handler begins. Most often a handler has ended.
    fn leave_handler(&mut self, at: Place) {
        // A call within the handler is made again.
        if self.here == at.function {
            self.last = (End::Within, 0);
            return;
        }
        let mut near = self.open.iter().rev().take(LOOK).enumerate();
        let handlers = near.by_ref().filter(|(_, o)| o.back.is_none());
        let mut first = None;
        let mut of = None;
        for (n, o) in handlers {
            first = first.or(Some(n));
            if o.from == at.function {
                of = Some(n);
                break;
            }
        }
        // If it interrupted a call before the function began, that function is not known from its node.
        self.last = match of.or(first) {
            Some(n) => self.end(n).last,
            None => (End::Within, 0),
        };
    }
}
