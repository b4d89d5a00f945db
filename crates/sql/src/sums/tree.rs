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

use super::numbers::{Front, Numbers};
use super::{file_at, instructions, runs, share, threads, whole};
use crate::bounds::Bounds;
use crate::recording::Recording;
use crate::rows::Stop;
use hindsight_timeline::{Cancel, Entry, Executed, Run, ThreadId};
use iced_x86::{FlowControl, Instruction, Mnemonic};
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
/// Of this many runs something is known at a time.
const RUNS: usize = 1 << 20;
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

/// A function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    /// Its name. `None`: nobody knows.
    pub name: Option<String>,
    /// Path of its file. `None`: code that the program made.
    pub module: Option<String>,
}

impl Function {
    /// Its name, or that of its file in brackets. What separates functions in a stack is not part of it.
    pub fn shown(&self) -> String {
        match (&self.name, &self.module) {
            (Some(name), _) => name.replace(';', ","),
            (None, Some(module)) => {
                let file = module.rsplit('/').next().unwrap_or(module);
                format!("[{}]", file.replace(';', ","))
            }
            (None, None) => "[made at run time]".into(),
        }
    }
}

/// How a run ends.
// As wide as what stands beside it. It is copied for each run, and a copy of smaller fields would wait for their stores.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
enum End {
    /// Control stays in the function, or nobody knows better.
    #[default]
    Within,
    Call,
    Return,
}

/// What is known of an address.
#[derive(Clone, Copy, Default)]
struct Place {
    pc: u64,
    function: u32,
    /// 1 if it is the function's beginning, otherwise 0: as wide as the number beside it, like [`End`].
    begins: u32,
}

/// What is known of a run.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Where it begins.
    at: Place,
    /// The address behind it.
    behind: u64,
    end: End,
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
    /// How the run ended that a handler interrupts.
    last: (End, u64),
}

struct Maker<'a> {
    tree: Tree,
    /// How many nodes all trees have.
    paths: &'a AtomicUsize,
    children: HashMap<(u32, u32), u32>,
    by_function: HashMap<Function, u32>,
    numbers: Numbers,
    known: Vec<Known>,
    open: Vec<Open>,
    /// Where it is.
    node: u32,
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
            by_function: HashMap::new(),
            numbers: Numbers::default(),
            known: Vec::new(),
            open: Vec::new(),
            node: 0,
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
                let known = done.and_then(|()| front.of(run, |_| self.find(r, e, run)).copied());
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
        failed.map_or(Ok(self.tree), Err)
    }

    fn find(&mut self, r: &Recording, e: &Executed, run: Run) -> Result<Known, Stop> {
        if self.known.len() >= RUNS {
            self.known.clear();
            self.numbers.clear();
        }
        let (known, tree, by_function) = (&mut self.known, &mut self.tree, &mut self.by_function);
        let number = self.numbers.find(tree.image, e, run, || {
            let list = instructions(e, run);
            let last = list.last();
            known.push(Known {
                at: place(r, tree, by_function, run.pc(), e.count)?,
                behind: last.map_or(run.pc(), Instruction::next_ip),
                end: match last.map(|i| (i.flow_control(), i.mnemonic())) {
                    Some((FlowControl::Call | FlowControl::IndirectCall, Mnemonic::Call)) => {
                        End::Call
                    }
                    Some((FlowControl::Return, Mnemonic::Ret)) => End::Return,
                    _ => End::Within,
                },
            });
            Ok::<_, Stop>(known.len() as u32)
        })?;
        Ok(self.known[number as usize - 1])
    }

    /// Goes to where the kernel lets the thread go on. It may begin handlers, and end them, without an instruction in between.
    fn enter_from_kernel(&mut self, r: &Recording, e: &Executed) -> Result<(), Stop> {
        for Entry { pc, handler, .. } in e.entries {
            let at = place(r, &mut self.tree, &mut self.by_function, *pc, e.count)?;
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
            (End::Within, _) if self.tree.nodes[self.node as usize].function == at.function => {
                Ok(())
            }
            (End::Within, _) => self.jump(at),
            (End::Call, behind) => self.call(Some(behind), Default::default(), at),
            (End::Return, _) => match self.open.last() {
                Some(o) if o.back == Some(at.pc) => {
                    self.node = o.node;
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
            last,
        });
        self.enter(self.node, at.function)
    }

    /// A function is called from a node.
    fn enter(&mut self, parent: u32, function: u32) -> Result<(), Stop> {
        let depth = self.tree.nodes[parent as usize].depth + 1;
        let unknown = self.tree.functions[function as usize].name.is_none();
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
        let deepest = self.tree.nodes[self.node as usize].depth as usize >= DEEPEST;
        if deepest && self.open.last().is_some_and(|o| o.node == self.node) {
            // The node stands for all that is called there.
            return Ok(());
        }
        let to = &self.tree.functions[at.function as usize];
        let now = self.tree.nodes[self.node as usize].function;
        let from = self.tree.functions.get(now as usize);
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
        match self.tree.nodes[self.node as usize].function == at.function {
            true => Ok(()),
            false => self.jump(at),
        }
    }

    /// Ends calls up to the last one of a function. Returns whether it is among them.
    fn back_into(&mut self, function: u32) -> bool {
        let mut near = self.open.iter().rev().take(LOOK);
        let of = |o: &Open| self.tree.nodes[o.node as usize].function == function;
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
        self.node = ended.node;
        self.open.truncate(at);
        ended
    }

    /// The kernel goes on there, and no handler begins. Most often a handler has ended.
    fn leave_handler(&mut self, at: Place) {
        // A call within the handler is made again.
        if self.tree.nodes[self.node as usize].function == at.function {
            self.last = (End::Within, 0);
            return;
        }
        let mut near = self.open.iter().rev().take(LOOK).enumerate();
        let handlers = near.by_ref().filter(|(_, o)| o.back.is_none());
        let mut first = None;
        let mut of = None;
        for (n, o) in handlers {
            first = first.or(Some(n));
            if self.tree.nodes[o.node as usize].function == at.function {
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

/// What is at an address when the tree's thread has completed `count` instructions.
fn place(
    r: &Recording,
    tree: &mut Tree,
    by_function: &mut HashMap<Function, u32>,
    pc: u64,
    count: u64,
) -> Result<Place, Stop> {
    let file = file_at(r, tree.image, pc, tree.thread, count)?;
    let location = match file {
        Some(file) => r.location(tree.image, file, pc)?,
        None => None,
    };
    let module = location.as_ref().map(|l| l.module.clone());
    let (mut name, mut begins) = (None, false);
    if let Some((function, past)) = location.and_then(|l| l.function) {
        let main = whole(&function).map(str::to_owned);
        begins = past == 0 && main.is_none();
        name = Some(main.unwrap_or(function));
    }
    let function = Function { name, module };
    let next = tree.functions.len() as u32;
    let number = *by_function.entry(function.clone()).or_insert(next);
    if number == next {
        tree.functions.push(function);
    }
    Ok(Place {
        pc,
        function: number,
        begins: u32::from(begins),
    })
}
