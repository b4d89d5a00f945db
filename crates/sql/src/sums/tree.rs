//! What each call path cost.
//!
//! A call is the instruction `call`, a return is `ret` to the address behind the call. What else leads out of a function is one
//! of these:
//!
//! - a jump to the beginning of another function: a tail call, which takes the place of the function that jumps;
//! - a return or jump into a function that called this one, as `longjmp` and exceptions make: all functions in between end;
//! - a signal, whose handler counts as called by the function that it interrupts, until the kernel goes on there.
//!
//! Any other jump stays in the function: compilers put rarely used parts of one elsewhere. Functions without a name cannot be told
//! apart. Where one calls another, both count as one.

use super::numbers::{Front, Numbers};
use super::{file_at, instructions, runs, share, threads};
use crate::bounds::Bounds;
use crate::recording::Recording;
use crate::rows::Stop;
use hindsight_timeline::{Cancel, Executed, Run, ThreadId};
use iced_x86::{FlowControl, Instruction, Mnemonic};
use std::collections::HashMap;

/// Calls that are nested deeper count for the function at this depth.
pub const DEEPEST: usize = 256;
/// A tree has at most this many call paths.
const MOST: usize = 1 << 22;
/// So many calls that did not return are looked through for the one that a jump leads back to.
const LOOK: usize = 1 << 10;

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
    /// Its number in [`Tree::functions`].
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
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum End {
    /// Control stays in the function, or nobody knows better.
    #[default]
    Within,
    Call,
    Return,
}

/// What is known of a run.
#[derive(Clone, Copy, Default)]
struct Known {
    pc: u64,
    /// The address behind it.
    behind: u64,
    function: u32,
    /// It stands at the function's beginning.
    begins: bool,
    /// The function has a name.
    named: bool,
    end: End,
}

/// The call paths of all threads within the bounds.
pub fn tree(r: &Recording, bounds: &Bounds, cancel: &Cancel) -> Result<Vec<Tree>, Stop> {
    let all = threads(r, bounds)?;
    let made = share(&all, Vec::new, |trees, (thread, image, from, until)| {
        trees.push(Maker::new(*thread, *image).play(r, (*from, *until), cancel)?);
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
}

struct Maker {
    tree: Tree,
    children: HashMap<(u32, u32), u32>,
    by_function: HashMap<Function, u32>,
    numbers: Numbers,
    known: Vec<Known>,
    open: Vec<Open>,
    /// Where it is.
    node: u32,
    /// How the run before ended, and the address behind it.
    last: (End, u64),
}

impl Maker {
    fn new(thread: ThreadId, image: u32) -> Maker {
        let none = Function {
            name: None,
            module: None,
        };
        let root = Node {
            parent: 0,
            function: 0,
            depth: 0,
            calls: 1,
            own: 0,
        };
        Maker {
            tree: Tree {
                thread,
                image,
                nodes: vec![root],
                functions: vec![none.clone()],
            },
            children: HashMap::new(),
            by_function: HashMap::from([(none, 0)]),
            numbers: Numbers::default(),
            known: Vec::new(),
            open: Vec::new(),
            node: 0,
            last: (End::Within, 0),
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
            if e.entered {
                self.last = (End::Within, 0);
                if !e.handler {
                    self.leave_handler();
                }
            }
            let mut handler = e.handler;
            for run in taken {
                let known = front.of(run, |_| self.find(r, e, run)).copied();
                let done = known.and_then(|k| {
                    if std::mem::take(&mut handler) {
                        return self.call(None, k);
                    }
                    self.arrive(k)
                });
                match done {
                    Ok(k) => {
                        self.tree.nodes[self.node as usize].own += run.instructions();
                        self.last = (k.end, k.behind);
                    }
                    Err(e) => {
                        failed = Some(e);
                        return false;
                    }
                }
            }
            true
        })?;
        failed.map_or(Ok(self.tree), Err)
    }

    fn find(&mut self, r: &Recording, e: &Executed, run: Run) -> Result<Known, Stop> {
        let (known, tree, by_function) = (&mut self.known, &mut self.tree, &mut self.by_function);
        let number = self.numbers.find(tree.image, e, run, || {
            known.push(know(r, tree, by_function, e, run)?);
            Ok::<_, Stop>(known.len() as u32)
        })?;
        Ok(self.known[number as usize - 1])
    }

    /// Goes to where the next run is.
    #[inline]
    fn arrive(&mut self, k: Known) -> Result<Known, Stop> {
        match self.last {
            (End::Within, _) if self.tree.nodes[self.node as usize].function == k.function => Ok(k),
            (End::Within, _) => self.jump(k),
            (End::Call, behind) => self.call(Some(behind), k),
            (End::Return, _) => match self.open.last() {
                Some(o) if o.back == Some(k.pc) => {
                    self.node = o.node;
                    self.open.pop();
                    Ok(k)
                }
                _ => self.back(k),
            },
        }
    }

    fn call(&mut self, back: Option<u64>, k: Known) -> Result<Known, Stop> {
        self.open.push(Open {
            back,
            node: self.node,
        });
        self.enter(self.node, k.function)?;
        Ok(k)
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
            if nodes.len() >= MOST {
                return Err(anyhow::anyhow!(
                    "thread {} has more than {MOST} call paths",
                    self.tree.thread
                )
                .into());
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
    fn jump(&mut self, k: Known) -> Result<Known, Stop> {
        let caller = self.open.last().map_or(0, |o| o.node);
        if self.node == 0 {
            self.enter(0, k.function)?;
        } else if k.begins {
            self.enter(caller, k.function)?;
        } else if k.named {
            self.back_into(k);
        }
        Ok(k)
    }

    /// A return leads elsewhere than the last call says.
    fn back(&mut self, k: Known) -> Result<Known, Stop> {
        let near = self.open.iter().rev().take(LOOK);
        if let Some(n) = near.clone().position(|o| o.back == Some(k.pc)) {
            let at = self.open.len() - 1 - n;
            self.node = self.open[at].node;
            self.open.truncate(at);
            return Ok(k);
        }
        if !k.named || self.tree.nodes[self.node as usize].function == k.function {
            return Ok(k);
        }
        if self.open.is_empty() {
            // The thread was recorded from its middle on: nobody saw that call.
            self.enter(0, k.function)?;
            return Ok(k);
        }
        self.jump(k)
    }

    /// Ends calls up to one of a function, if it is among them.
    fn back_into(&mut self, k: Known) {
        let mut near = self.open.iter().rev().take(LOOK);
        let of = |o: &Open| self.tree.nodes[o.node as usize].function == k.function;
        if let Some(n) = near.position(of) {
            let at = self.open.len() - 1 - n;
            self.node = self.open[at].node;
            self.open.truncate(at);
        }
    }

    /// The kernel goes on where a signal came.
    fn leave_handler(&mut self) {
        if let Some(at) = self.open.iter().rposition(|o| o.back.is_none()) {
            self.node = self.open[at].node;
            self.open.truncate(at);
        }
    }
}

fn know(
    r: &Recording,
    tree: &mut Tree,
    by_function: &mut HashMap<Function, u32>,
    e: &Executed,
    run: Run,
) -> Result<Known, Stop> {
    let list = instructions(e, run);
    let file = file_at(r, tree.image, run.pc(), tree.thread, e.count)?;
    let location = match file {
        Some(file) => r.location(tree.image, file, run.pc())?,
        None => None,
    };
    let module = location.as_ref().map(|l| l.module.clone());
    let (mut name, mut begins) = (None, false);
    if let Some((function, past)) = location.and_then(|l| l.function) {
        // The compiler puts what is seldom executed elsewhere.
        let cold = [".cold", " [clone .cold]"].iter();
        let whole = cold.filter_map(|end| function.strip_suffix(end)).next();
        begins = past == 0 && whole.is_none();
        name = Some(whole.map(str::to_owned).unwrap_or(function));
    }
    let function = Function { name, module };
    let named = function.name.is_some();
    let next = tree.functions.len() as u32;
    let number = *by_function.entry(function.clone()).or_insert(next);
    if number == next {
        tree.functions.push(function);
    }
    let last = list.last();
    Ok(Known {
        pc: run.pc(),
        behind: last.map_or(run.pc(), Instruction::next_ip),
        function: number,
        begins,
        named,
        end: match last.map(|i| (i.flow_control(), i.mnemonic())) {
            Some((FlowControl::Call | FlowControl::IndirectCall, Mnemonic::Call)) => End::Call,
            Some((FlowControl::Return, Mnemonic::Ret)) => End::Return,
            _ => End::Within,
        },
    })
}
