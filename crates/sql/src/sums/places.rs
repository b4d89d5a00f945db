//! Which functions code belongs to, and how runs of it end.

use super::numbers::Numbers;
use super::{file_at, instructions, whole};
use crate::recording::Recording;
use crate::rows::Stop;
use hindsight_timeline::{Executed, Run, ThreadId};
use iced_x86::{FlowControl, Instruction, Mnemonic};
use std::collections::HashMap;

/// Of this many runs something is known at a time.
const RUNS: usize = 1 << 20;

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
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u32)]
pub enum End {
    /// Control stays in the function, or nobody knows better.
    #[default]
    Within,
    Call,
    Return,
}

/// What is known of an address.
#[derive(Clone, Copy, Default, Debug)]
pub struct Place {
    /// The address.
    pub pc: u64,
    /// The number of its function.
    pub function: u32,
    /// 1 if it is the function's beginning, otherwise 0: as wide as the number beside it, like [`End`].
    pub begins: u32,
}

/// What is known of a run.
#[derive(Clone, Copy, Default)]
pub struct Known {
    /// Where it begins.
    pub at: Place,
    /// The address behind it.
    pub behind: u64,
    /// How it ends.
    pub end: End,
    /// Length in bytes of its last instruction.
    pub last: u32,
}

/// What is known of the runs of a thread.
pub struct Places {
    thread: ThreadId,
    image: u32,
    /// The functions that have numbers.
    pub functions: Vec<Function>,
    by_function: HashMap<Function, u32>,
    numbers: Numbers,
    known: Vec<Known>,
}

impl Places {
    /// Of a thread of a program image.
    pub fn new(thread: ThreadId, image: u32) -> Places {
        Places {
            thread,
            image,
            functions: Vec::new(),
            by_function: HashMap::new(),
            numbers: Numbers::default(),
            known: Vec::new(),
        }
    }

    /// What is known of a run.
    pub fn of_run(&mut self, r: &Recording, e: &Executed, run: Run) -> Result<Known, Stop> {
        if self.known.len() >= RUNS {
            self.known.clear();
            self.numbers.clear();
        }
        let mut functions = (&mut self.functions, &mut self.by_function);
        let (known, thread) = (&mut self.known, (self.thread, self.image));
        let number = self.numbers.find(self.image, e, run, || {
            let list = instructions(e, run);
            let last = list.last();
            known.push(Known {
                at: place(r, &mut functions, thread, run.pc(), e.count)?,
                behind: last.map_or(run.pc(), Instruction::next_ip),
                end: match last.map(|i| (i.flow_control(), i.mnemonic())) {
                    Some((FlowControl::Call | FlowControl::IndirectCall, Mnemonic::Call)) => {
                        End::Call
                    }
                    Some((FlowControl::Return, Mnemonic::Ret)) => End::Return,
                    _ => End::Within,
                },
                last: last.map_or(0, |i| i.len() as u32),
            });
            Ok::<_, Stop>(known.len() as u32)
        })?;
        Ok(self.known[number as usize - 1])
    }

    /// What is at an address when the thread has completed `count` instructions.
    pub fn at(&mut self, r: &Recording, pc: u64, count: u64) -> Result<Place, Stop> {
        let mut functions = (&mut self.functions, &mut self.by_function);
        place(r, &mut functions, (self.thread, self.image), pc, count)
    }
}

/// Functions, and the number of each.
type Functions<'a> = (&'a mut Vec<Function>, &'a mut HashMap<Function, u32>);

fn place(
    r: &Recording,
    functions: &mut Functions,
    (thread, image): (ThreadId, u32),
    pc: u64,
    count: u64,
) -> Result<Place, Stop> {
    let file = file_at(r, image, pc, thread, count)?;
    let location = match file {
        Some(file) => r.location(image, file, pc)?,
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
    let next = functions.0.len() as u32;
    let number = *functions.1.entry(function.clone()).or_insert(next);
    if number == next {
        functions.0.push(function);
    }
    Ok(Place {
        pc,
        function: number,
        begins: u32::from(begins),
    })
}
