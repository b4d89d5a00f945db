//! What a function may write, by its attributes and the types of its parameters.
//!
//! Each rule gives an upper bound. Where none follows, the function is left out.

use crate::attributes::{Access, Mode};
use crate::types::{Function, Reach, Shape, Signature, Structures, Type};
use std::fmt;

/// So many parameters are in general registers, and so many in vector registers. The others are on the stack.
const GENERAL: usize = 6;
const VECTOR: usize = 8;
/// The size of a `va_list`.
const LIST: u64 = 24;

/// On what a declaration rests. Each one takes the word of the ones before it, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ground {
    /// On `pure` or `const`: the function has no effect that its caller may see.
    Promise,
    /// On attributes that say what becomes of parameters. They say nothing of memory that an earlier call was given.
    Attributes,
    /// On the types of the parameters alone.
    Types,
}

/// What is said of headers besides what stands in them.
#[derive(Clone, Default, Debug)]
pub struct Rules {
    /// Functions of included files count, too, if the file's path has one of these texts.
    pub included: Vec<String>,
    /// Functions that are `pure` do not allocate, not even for a while.
    pub pure_takes_no_memory: bool,
}

/// What is known of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Declared {
        ground: Ground,
        /// The items of the declaration.
        items: Vec<Item>,
        /// Why.
        reasons: Vec<String>,
    },
    /// Nothing bounds what it may write: why.
    LeftOut(String),
}

/// An item of a declaration. Parameters are those in general registers, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    Bytes(usize, u64),
    /// As many bytes as this parameter says.
    Sized(usize, usize),
    /// A parameter, so many bytes each.
    Times(usize, usize, u64),
    Open(usize),
    Format(usize),
    Heap,
    Stdio,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Item::Bytes(n, bytes) => write!(f, "w:{n}{{{bytes}}}"),
            Item::Sized(n, size) => write!(f, "w:{n}[{size}]"),
            Item::Times(n, size, each) => write!(f, "w:{n}[{size}*{each}]"),
            Item::Open(n) => write!(f, "w:{n}.."),
            Item::Format(n) => write!(f, "f:{n}"),
            Item::Heap => write!(f, "heap"),
            Item::Stdio => write!(f, "stdio"),
        }
    }
}

/// The effect of a function.
pub fn of(function: &Function, known: &Structures, rules: &Rules) -> Outcome {
    match found(function, known, rules) {
        Ok(outcome) => outcome,
        Err(why) => Outcome::LeftOut(why),
    }
}

/// What attributes say that a function writes, whatever else it may write.
pub fn stated(function: &Function, known: &Structures) -> Vec<Item> {
    let Ok(registers) = registers(&function.signature) else {
        return Vec::new();
    };
    let all = Found {
        function,
        known,
        registers,
        ground: Ground::Attributes,
        items: Vec::new(),
        reasons: Vec::new(),
    };
    let item = |access: &Access| {
        let register = all.registers.get(access.parameter).copied().flatten()?;
        match &function.signature.parameters.get(access.parameter)?.shape {
            Shape::Pointer(to) => Some(all.written(register, access, to)),
            _ => None,
        }
    };
    let its = function
        .attributes
        .access
        .iter()
        .filter(|a| a.mode.writes());
    its.filter_map(item).collect()
}

fn found(function: &Function, known: &Structures, rules: &Rules) -> Result<Outcome, String> {
    let a = &function.attributes;
    let signature = &function.signature;
    if let Some(strange) = a.strange.first() {
        return Err(format!("it is {strange}"));
    }
    if a.has_several_formats {
        return Err("it has several formats".into());
    }
    let registers = registers(signature)?;
    if let Some(n) = signature.parameters.iter().position(calls) {
        return Err(format!(
            "parameter {} is a function, which it may call",
            n + 1
        ));
    }
    let mut reasons = Vec::new();
    let promise = match (a.is_const, a.is_pure) {
        (true, _) => Some("const"),
        (_, true) => Some("pure"),
        _ => None,
    };
    match promise {
        // Compilers do not believe it either.
        Some(name) if signature.returns.shape == Shape::Void => {
            reasons.push(format!("`{name}` does not count, since it returns nothing"));
        }
        Some(name) if a.access.iter().any(|a| a.mode.writes()) => {
            reasons.push(format!("`{name}` does not count, since it writes"));
        }
        Some(_) if signature.is_variadic => {
            return Err("it takes any number of parameters, and does not say which".into());
        }
        Some(name) => {
            return Ok(Outcome::Declared {
                ground: Ground::Promise,
                // What a pure function takes and gives back is no effect. But it changes what lies in free blocks.
                // So may one that is `const`: those of GLib do.
                items: match rules.pure_takes_no_memory {
                    true => Vec::new(),
                    false => vec![Item::Heap],
                },
                reasons: vec![name.into()],
            });
        }
        None => {}
    }
    let mut all = Found {
        function,
        known,
        registers,
        ground: Ground::Types,
        items: Vec::new(),
        reasons,
    };
    if a.allocates {
        all.ground = Ground::Attributes;
        all.reasons.push("malloc".into());
    }
    all.formats()?;
    let mut by_type = Vec::new();
    let mut guessed = false;
    for (n, parameter) in signature.parameters.iter().enumerate() {
        guessed |= all.parameter(n, parameter, &mut by_type)?;
    }
    if guessed {
        all.ground = Ground::Types;
    }
    if !by_type.is_empty() {
        all.reasons.push(format!("by type: {}", by_type.join(", ")));
    }
    if all.reasons.is_empty() {
        all.reasons.push("by type: no pointers".into());
    }
    // It may use the heap, or streams: nothing says that it does not.
    all.items.push(Item::Stdio);
    Ok(Outcome::Declared {
        ground: all.ground,
        items: all.items,
        reasons: all.reasons,
    })
}

/// In which general register each parameter is. `Err`: something is passed in another way.
fn registers(signature: &Signature) -> Result<Vec<Option<usize>>, String> {
    if signature.is_open {
        return Err("its parameters are not said".into());
    }
    match &signature.returns.shape {
        Shape::Structure(tag) => return Err(format!("it returns a {tag}, which may be in memory")),
        // Through a hidden pointer, it may be, if it is not in registers that are its own.
        Shape::Odd(name) if !is_wide(name) => {
            return Err(format!("it returns {name}, which may be in memory"));
        }
        Shape::Unknown(name) => return Err(format!("what it returns is not known: {name}")),
        _ => {}
    }
    let (mut general, mut vector) = (0, 0);
    let mut all = Vec::new();
    for (n, parameter) in signature.parameters.iter().enumerate() {
        let wrong = |what: &str| Err(format!("parameter {} is {what}", n + 1));
        match &parameter.shape {
            Shape::Integer(_) | Shape::Pointer(_) | Shape::Arguments => {
                all.push(Some(general));
                general += 1;
            }
            Shape::Float(_) => {
                all.push(None);
                vector += 1;
            }
            Shape::Odd(name) => {
                return wrong(&format!(
                    "{name}, which is passed on the stack or in pieces"
                ));
            }
            Shape::Structure(tag) => return wrong(&format!("a {tag}, not a pointer to one")),
            Shape::Unknown(name) => return wrong(&format!("{name}, a type that is not known")),
            Shape::Void | Shape::Array(_) | Shape::Function(_) => return wrong("of no type"),
        }
    }
    match general > GENERAL || vector > VECTOR {
        // The function may use their place for something else.
        true => Err("it has parameters on the stack".into()),
        false => Ok(all),
    }
}

/// Whether this is `long double` or `__int128`, which come back in registers.
fn is_wide(name: &str) -> bool {
    let all = ["long", "double", "signed", "unsigned", "__int128"];
    name.split(' ').all(|w| all.contains(&w))
}

/// Whether a parameter leads to a function at once.
fn calls(parameter: &Type) -> bool {
    match &parameter.shape {
        Shape::Pointer(to) => matches!(to.shape, Shape::Function(_)) || calls(to),
        _ => false,
    }
}

struct Found<'a> {
    function: &'a Function,
    known: &'a Structures,
    registers: Vec<Option<usize>>,
    ground: Ground,
    items: Vec<Item>,
    reasons: Vec<String>,
}

impl Found<'_> {
    fn formats(&mut self) -> Result<(), String> {
        let printf = self.function.attributes.printf;
        let register = |n: usize| self.registers.get(n).copied().flatten();
        if let Some((format, has_dots)) = printf
            && let Some(at) = register(format)
        {
            self.items.push(Item::Format(at));
            let first = if has_dots { "..." } else { "va_list" };
            let reason = format!("format(printf, {}, {first})", format + 1);
            self.reasons.push(reason);
            self.ground = Ground::Attributes;
            if has_dots != self.function.signature.is_variadic {
                return Err("it takes any number of parameters, and does not say which".into());
            }
        } else if self.function.signature.is_variadic {
            return Err("it takes any number of parameters, and does not say which".into());
        }
        Ok(())
    }

    /// Adds what becomes of a parameter. Whether only a type says that it is written.
    fn parameter(
        &mut self,
        n: usize,
        parameter: &Type,
        by_type: &mut Vec<String>,
    ) -> Result<bool, String> {
        let Some(register) = self.registers.get(n).copied().flatten() else {
            return Ok(false);
        };
        let name = n + 1;
        let to = match &parameter.shape {
            Shape::Arguments => {
                if !matches!(self.function.attributes.printf, Some((_, false))) {
                    return Err(format!("parameter {name} is a list of arguments"));
                }
                self.items.push(Item::Bytes(register, LIST));
                return Ok(false);
            }
            Shape::Pointer(to) => to,
            _ => return Ok(false),
        };
        if to.shape == Shape::Structure("struct _IO_FILE".into()) {
            // A stream is memory of the C library, and all that `stdio` covers.
            by_type.push(format!("{name} is a stream"));
            return Ok(false);
        }
        let all = &self.function.attributes.access;
        let its: Vec<Access> = all.iter().filter(|a| a.parameter == n).copied().collect();
        let is_bytes = matches!(to.shape, Shape::Void | Shape::Integer(1));
        let reach = match to.reach(self.known) {
            Reach::Further(_) if is_bytes && !its.is_empty() => Reach::Flat,
            other => other,
        };
        let follows = |what: &str| Err(format!("parameter {name} leads to {what}"));
        if its.is_empty() {
            return match reach {
                Reach::Further(what) => follows(&what),
                Reach::Flat if to.is_const => {
                    by_type.push(format!("{name} is const"));
                    Ok(false)
                }
                Reach::Flat => {
                    by_type.push(format!("{name} is not const"));
                    self.items.push(Item::Open(register));
                    Ok(true)
                }
            };
        }
        self.ground = self.ground.min(Ground::Attributes);
        for access in &its {
            self.reasons.push(shown(access));
        }
        let is = |mode: Mode| its.iter().any(|a| a.mode == mode);
        let reads = is(Mode::ReadOnly) || is(Mode::ReadWrite);
        if reads && let Reach::Further(what) = reach {
            return follows(&what);
        }
        // Where two say something else, both may happen.
        for access in its.iter().filter(|a| a.mode.writes()) {
            let item = self.written(register, access, to);
            if !self.items.contains(&item) {
                self.items.push(item);
            }
        }
        Ok(false)
    }

    /// What an attribute says that is written. Without a size that may be any number: headers of the C library say so of
    /// strings (`ctermid`).
    fn written(&self, register: usize, access: &Access, to: &Type) -> Item {
        let size = access.size.and_then(|s| {
            let of = self.function.signature.parameters.get(s)?;
            let register = self.registers.get(s).copied().flatten()?;
            matches!(of.shape, Shape::Integer(_)).then_some(register)
        });
        let each = match to.shape {
            Shape::Void => Some(1),
            Shape::Integer(bytes) | Shape::Float(bytes) => Some(bytes),
            _ => None,
        };
        match (size, each) {
            (Some(size), Some(1)) => Item::Sized(register, size),
            // Less than 6 would be the number of a parameter.
            (Some(size), Some(each)) => Item::Times(register, size, each.max(8)),
            _ => Item::Open(register),
        }
    }
}

fn shown(access: &Access) -> String {
    let mode = match access.mode {
        Mode::None => "none",
        Mode::ReadOnly => "read_only",
        Mode::WriteOnly => "write_only",
        Mode::ReadWrite => "read_write",
    };
    let size = access.size.map(|s| format!(", {}", s + 1));
    let size = size.unwrap_or_default();
    format!("access({mode}, {}{size})", access.parameter + 1)
}
