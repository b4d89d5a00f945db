//! Evaluates expressions that name memory: `0x404060`, `table`, `p->next`, `nodes[2].value`, `*p`, `$rsp+8`.

mod tokens;

use crate::arguments::{registers, value_at};
use crate::show::show;
use crate::{Error, Inspector, Result, View};
use hindsight_symbols::{AtEntry, CallFrame, Location, Module, Registers, Shape, Type, Variable};
use hindsight_timeline::Cursor;
use hindsight_timeline::regs::{self, RBP, RSP};
use std::sync::Arc;
use tokens::{Token, tokens};

/// The largest structure in registers, in bytes.
const LARGEST: u64 = 1 << 12;
/// How deep parts of an expression may nest.
const DEPTH: u32 = 64;

/// Memory that somebody has named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// The guest address of the first byte.
    pub address: u64,
    /// Its size in bytes, if the expression says that.
    pub size: Option<u64>,
}

/// What an expression amounts to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evaluated {
    /// As debuggers show it. `?` stands for what is not known.
    pub text: String,
    /// As a number, if it is one that is known and fits. Computed ones have 64 bits and a sign.
    pub number: Option<i64>,
}

/// The lowest bytes of a number.
fn lowest(value: u64, len: u64) -> Vec<Option<u8>> {
    let all = value.to_le_bytes().map(Some);
    all[..len.min(8) as usize].to_vec()
}

/// A type, and the module whose debug information has it.
type Typed = (Shape, Option<Arc<Module>>);

/// The value of a part of an expression.
#[derive(Clone)]
enum Operand {
    /// Memory at an address.
    Memory(u64, Typed),
    /// A computed value, and the type of what it leads to.
    Word(u64, Option<Typed>),
    /// A variable in registers: its lowest bytes, and its type.
    Held(u64, Typed),
}

struct Parser<'a, 'b> {
    words: Vec<Token>,
    at: usize,
    depth: u32,
    inspector: &'a mut Inspector,
    cursor: &'b mut Cursor,
    registers: Registers,
    /// The address at which the frame goes on.
    pc: u64,
    /// The number of the frame.
    frame: usize,
}

impl Inspector {
    /// The memory that an expression names. `frame` is the number of a frame in the cursor's call stack, as users see
    /// it. A variable stands for its place. A number, a register and a computed value are addresses.
    pub fn named(&mut self, cursor: &mut Cursor, text: &str, frame: usize) -> Result<Named> {
        Ok(match self.evaluated(cursor, text, frame)? {
            Operand::Memory(address, (shape, _)) => Named {
                address,
                size: Some(shape.size).filter(|s| *s > 0),
            },
            Operand::Word(address, _) | Operand::Held(address, _) => Named {
                address,
                size: None,
            },
        })
    }

    /// The value of an expression, as [`Inspector::named`] takes it.
    pub fn evaluate(&mut self, cursor: &mut Cursor, text: &str, frame: usize) -> Result<Evaluated> {
        let (shape, bytes) = match self.evaluated(cursor, text, frame)? {
            Operand::Memory(address, (shape, _)) => {
                let len = if shape.size == 0 {
                    8
                } else {
                    shape.size.min(LARGEST)
                };
                let memory = cursor.known_memory(address, len as usize)?;
                (
                    shape,
                    memory.bytes.iter().map(|b| b.map(|k| k.value)).collect(),
                )
            }
            Operand::Word(value, of) => {
                let kind = match of {
                    // An address, of something of that type.
                    Some(_) => Type::Pointer {
                        text: false,
                        reference: false,
                        of: None,
                        to: None,
                    },
                    None => Type::Signed,
                };
                (Shape { kind, size: 8 }, lowest(value, 8))
            }
            Operand::Held(value, (shape, _)) => {
                let mut known = lowest(value, shape.size);
                known.resize(shape.size.min(LARGEST) as usize, None);
                (shape, known)
            }
        };
        Ok(Evaluated {
            number: as_number(&bytes, &shape),
            text: View::at(cursor, |view| {
                show(&shape, &bytes, &mut |at, len| view.read(at, len))
            })?,
        })
    }

    fn evaluated(&mut self, cursor: &mut Cursor, text: &str, frame: usize) -> Result<Operand> {
        let words = tokens(text)?;
        let (registers, pc) = match frame {
            0 => {
                let here = registers(cursor)?;
                (here, here.rip)
            }
            n => self.frame(cursor, n)?,
        };
        let mut parser = Parser {
            words,
            at: 0,
            depth: 0,
            inspector: self,
            cursor,
            registers,
            pc,
            frame,
        };
        let part = parser.sum()?;
        if let Some(rest) = parser.words.get(parser.at) {
            return bad(format!("{text}: {rest:?} does not belong there"));
        }
        Ok(part)
    }

    /// The registers in a frame of the call stack, as far as they are known there, and the address at which the frame
    /// goes on. `frame` is the number that users see. In a caller's frame, rip lies in the call instruction before that
    /// address.
    pub fn frame(&mut self, cursor: &mut Cursor, frame: usize) -> Result<(Registers, u64)> {
        let stack = self.backtrace(cursor)?;
        let i = level(&stack, frame)?;
        let called = i > 0 && !stack[i - 1].signal;
        let mut registers = stack[i].registers;
        registers.rip = registers.rip.wrapping_sub(called as u64);
        Ok((registers, stack[i].pc))
    }

    /// The registers with which the function in a frame began, as far as its caller says.
    pub(crate) fn at_entry(
        &mut self,
        cursor: &mut Cursor,
        frame: usize,
    ) -> Result<Option<AtEntry>> {
        let stack = self.backtrace(cursor)?;
        let space = self.here(cursor)?;
        let level = level(&stack, frame)?;
        View::at(cursor, |view| {
            space.at_entry(&stack, level, &mut |at| view.word(at))
        })
    }
}

/// The index in a call stack of the frame with this number. Inlined functions have numbers of their own.
fn level(stack: &[CallFrame], frame: usize) -> Result<usize> {
    let mut n = 0;
    for (i, f) in stack.iter().enumerate() {
        n += if f.signal { 1 } else { f.frames.len().max(1) };
        if frame < n {
            return Ok(i);
        }
    }
    bad(format!(
        "the call stack has no frame {frame}: there are {n}"
    ))
}

/// A number of this type with these lowest bytes.
fn extended(value: u64, shape: &Shape) -> u64 {
    let unused = 64 - 8 * shape.size.clamp(1, 8) as u32;
    match shape.kind {
        _ if shape.size == 0 => value,
        Type::Signed | Type::Char { signed: true } | Type::Enum { .. } => {
            ((value << unused) as i64 >> unused) as u64
        }
        _ => value << unused >> unused,
    }
}

/// The same as a number, if it is one.
fn as_number(bytes: &[Option<u8>], shape: &Shape) -> Option<i64> {
    let is = matches!(
        shape.kind,
        Type::Bool
            | Type::Signed
            | Type::Unsigned
            | Type::Char { .. }
            | Type::Enum { .. }
            | Type::Pointer { .. }
    );
    if !is || !(1..=8).contains(&shape.size) || bytes.len() as u64 != shape.size {
        return None;
    }
    let bytes: Option<Vec<u8>> = bytes.iter().copied().collect();
    let mut word = [0; 8];
    word[..shape.size as usize].copy_from_slice(&bytes?);
    let value = extended(u64::from_le_bytes(word), shape);
    match shape.kind {
        Type::Signed | Type::Char { .. } | Type::Enum { .. } => Some(value as i64),
        _ => i64::try_from(value).ok(),
    }
}

/// Whether values of this type can be computed with.
fn check_number(shape: &Shape) -> Result<()> {
    match shape.kind {
        Type::Float => bad("a floating-point number cannot be computed with"),
        _ if shape.size > 8 => bad("a structure is no number"),
        _ => Ok(()),
    }
}

fn bad<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Expression(why.into()))
}

impl Parser<'_, '_> {
    fn eat(&mut self, sign: &'static str) -> bool {
        let there = self.words.get(self.at) == Some(&Token::Sign(sign));
        self.at += there as usize;
        there
    }

    fn sum(&mut self) -> Result<Operand> {
        self.depth += 1;
        if self.depth > DEPTH {
            return bad("the expression is nested too deeply");
        }
        let mut left = self.unary()?;
        loop {
            let back = match () {
                _ if self.eat("+") => false,
                _ if self.eat("-") => true,
                _ => break,
            };
            let right = self.unary()?;
            let n = self.word(&right)?;
            // As in C: a pointer moves by the size of what it points to, an array by that of an element.
            let (from, size, kind) = match &left {
                Operand::Memory(at, (shape, m)) => match &shape.kind {
                    Type::Array { of, .. } => {
                        (*at, of.size.max(1), Some(((**of).clone(), m.clone())))
                    }
                    Type::Other => (*at, 1, None),
                    _ => (
                        self.word(&left)?,
                        self.target(&left).map_or(1, |t| t.0.size.max(1)),
                        None,
                    ),
                },
                Operand::Word(v, _) => (*v, 1, None),
                Operand::Held(..) => (
                    self.word(&left)?,
                    self.target(&left).map_or(1, |t| t.0.size.max(1)),
                    None,
                ),
            };
            let kind = kind.or_else(|| self.target(&left));
            let distance = n.wrapping_mul(size);
            let at = match back {
                false => from.wrapping_add(distance),
                true => from.wrapping_sub(distance),
            };
            left = match kind {
                Some(of) => Operand::Word(at, Some(of)),
                None => Operand::Word(at, None),
            };
        }
        self.depth -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Result<Operand> {
        self.depth += 1;
        if self.depth > DEPTH {
            return bad("the expression is nested too deeply");
        }
        let part = if self.eat("*") {
            let inner = self.unary()?;
            self.follow(&inner)
        } else if self.eat("&") {
            match self.unary()? {
                Operand::Memory(at, kind) => Ok(Operand::Word(at, Some(kind))),
                Operand::Word(..) | Operand::Held(..) => {
                    bad("only what is in memory has an address")
                }
            }
        } else {
            self.postfix()
        };
        self.depth -= 1;
        part
    }

    fn postfix(&mut self) -> Result<Operand> {
        let mut part = self.primary()?;
        loop {
            if self.eat("[") {
                let index = self.sum()?;
                let i = self.word(&index)?;
                if !self.eat("]") {
                    return bad("] is missing");
                }
                part = match &part {
                    Operand::Memory(at, (shape, m)) if matches!(shape.kind, Type::Array { .. }) => {
                        let Type::Array { of, .. } = &shape.kind else {
                            return bad("it has no elements");
                        };
                        let at = at.wrapping_add(i.wrapping_mul(of.size));
                        Operand::Memory(at, ((**of).clone(), m.clone()))
                    }
                    other => match self.follow(other)? {
                        Operand::Memory(at, kind) => {
                            let size = kind.0.size.max(1);
                            Operand::Memory(at.wrapping_add(i.wrapping_mul(size)), kind)
                        }
                        other => other,
                    },
                };
            } else if self.eat("->") || self.eat(".") {
                let Some(Token::Name(name)) = self.words.get(self.at).cloned() else {
                    return bad("the name of a field is missing");
                };
                self.at += 1;
                part = self.field(part, &name)?;
            } else {
                return Ok(part);
            }
        }
    }

    fn primary(&mut self) -> Result<Operand> {
        let Some(token) = self.words.get(self.at).cloned() else {
            return bad("the expression ends too early");
        };
        self.at += 1;
        match token {
            Token::Number(n) => Ok(Operand::Word(n, None)),
            Token::Register(name) => {
                let n = regs::by_name(&name);
                match (n, name.as_str()) {
                    (Some(n), _) => Ok(Operand::Word(self.registers.gpr[n], None)),
                    (_, "rip" | "pc") => Ok(Operand::Word(self.pc, None)),
                    (_, "sp") => Ok(Operand::Word(self.registers.gpr[RSP], None)),
                    (_, "fp") => Ok(Operand::Word(self.registers.gpr[RBP], None)),
                    (_, "fs_base") => Ok(Operand::Word(self.registers.fs_base, None)),
                    _ => bad(format!("there is no register {name}")),
                }
            }
            Token::Name(name) => self.name(&name),
            Token::Sign("(") => {
                let inner = self.sum()?;
                match self.eat(")") {
                    true => Ok(inner),
                    false => bad(") is missing"),
                }
            }
            Token::Sign(s) => bad(format!("{s} was not expected")),
        }
    }

    /// A variable of the frame's function. The innermost scope with this name counts. `passed`: with what was passed.
    fn local(
        &mut self,
        module: &Module,
        bias: u64,
        name: &str,
        passed: bool,
    ) -> Result<Option<Variable>> {
        let find = |cursor: &mut Cursor, entry: Option<&AtEntry>| -> Result<_> {
            let all = View::at(cursor, |view| {
                module.variables(&self.registers, entry, bias, &mut |at| view.word(at))
            })??;
            // The innermost scope comes last.
            Ok(all.into_iter().rfind(|v| v.name == name))
        };
        let found = find(self.cursor, None)?;
        let unknown = |v: &Variable| matches!(v.location, Location::Complex);
        if !found.as_ref().is_some_and(|v| passed || unknown(v)) {
            return Ok(found);
        }
        // It may be computed from what the caller says.
        match self.inspector.at_entry(self.cursor, self.frame)? {
            Some(entry) => find(self.cursor, Some(&entry)),
            None => Ok(found),
        }
    }

    /// A variable of the frame, otherwise one of a file, otherwise a function.
    fn name(&mut self, name: &str) -> Result<Operand> {
        let space = self.inspector.here(self.cursor)?;
        if let Some(m) = space.mapping(self.registers.rip) {
            let (module, bias) = (Arc::clone(&m.module), m.bias);
            // gdb's notation for what was passed as a parameter. The parameter may have another value now.
            let (own, passed) = match name.strip_suffix("@entry") {
                Some(own) => (own, true),
                None => (name, false),
            };
            if let Some(v) = self.local(&module, bias, own, passed)? {
                let kind = (v.shape, Some(module));
                let place = match passed {
                    true => v.passed.unwrap_or(Location::OptimizedOut),
                    false => v.location,
                };
                return match place {
                    Location::Memory(at) => Ok(Operand::Memory(at, kind)),
                    Location::Complex | Location::OptimizedOut => {
                        bad(format!("{name} is not known here: it is optimized out"))
                    }
                    place => {
                        let len = kind.0.size.min(LARGEST);
                        let bytes = value_at(self.cursor, &place, len, &self.registers)?;
                        let whole: Option<Vec<u8>> = bytes.into_iter().take(8).collect();
                        let Some(whole) = whole else {
                            return bad(format!("the value of {name} is not known here"));
                        };
                        let mut word = [0; 8];
                        word[..whole.len()].copy_from_slice(&whole);
                        Ok(Operand::Held(u64::from_le_bytes(word), kind))
                    }
                };
            }
        }
        let (file, own) = match name.split_once('!') {
            Some((file, own)) => (Some(file), own),
            None => (None, name),
        };
        let mut seen: Vec<*const Module> = Vec::new();
        for m in space.mappings() {
            let path = m.module.path().rsplit('/').next().unwrap_or_default();
            let is = file.is_none_or(|f| {
                path == f
                    || path
                        .strip_prefix(f)
                        .is_some_and(|r| r.starts_with(['.', '-']))
            });
            if !is || seen.contains(&Arc::as_ptr(&m.module)) {
                continue;
            }
            seen.push(Arc::as_ptr(&m.module));
            if let Some(g) = m.module.global(own) {
                let shape = match g.size {
                    Some(size) if g.shape.size == 0 => Shape { size, ..g.shape },
                    _ => g.shape,
                };
                let at = g.addr.wrapping_add(m.bias);
                return Ok(Operand::Memory(at, (shape, Some(Arc::clone(&m.module)))));
            }
        }
        match space.find(name)[..] {
            [] => bad(format!(
                "there is no variable, function or symbol {name} here"
            )),
            [at] => Ok(Operand::Word(at, None)),
            _ => bad(format!("several functions are called {name}")),
        }
    }

    /// The value of a part as a number.
    fn word(&mut self, part: &Operand) -> Result<u64> {
        let (at, shape) = match part {
            Operand::Word(v, _) => return Ok(*v),
            Operand::Held(v, (shape, _)) => {
                check_number(shape)?;
                return Ok(extended(*v, shape));
            }
            Operand::Memory(at, (shape, _)) => (*at, shape),
        };
        check_number(shape)?;
        let size = if shape.size == 0 { 8 } else { shape.size };
        let Some(bytes) = self.cursor.known_memory(at, size as usize)?.whole() else {
            return bad(format!("what is at {at:#x} is not known here"));
        };
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(&bytes);
        Ok(extended(u64::from_le_bytes(word), shape))
    }

    /// The type of what a pointer of this type points to.
    fn leads(&self, kind: &Typed) -> Option<Typed> {
        let Type::Pointer { to, .. } = &kind.0.kind else {
            return None;
        };
        let module = kind.1.as_ref()?;
        Some((module.target((*to)?), Some(Arc::clone(module))))
    }

    fn target(&self, part: &Operand) -> Option<Typed> {
        match part {
            Operand::Memory(_, kind) | Operand::Held(_, kind) => self.leads(kind),
            Operand::Word(_, of) => of.clone(),
        }
    }

    /// What a part points to.
    fn follow(&mut self, part: &Operand) -> Result<Operand> {
        let of = self.target(part);
        let at = match part {
            Operand::Memory(at, (shape, _)) if matches!(shape.kind, Type::Array { .. }) => *at,
            other => self.word(other)?,
        };
        let of = match part {
            Operand::Memory(_, (shape, m)) => match &shape.kind {
                Type::Array { of, .. } => Some(((**of).clone(), m.clone())),
                _ => of,
            },
            Operand::Word(..) | Operand::Held(..) => of,
        };
        let unknown = || {
            (
                Shape {
                    kind: Type::Other,
                    size: 8,
                },
                None,
            )
        };
        Ok(Operand::Memory(at, of.unwrap_or_else(unknown)))
    }

    /// A field of a structure. A pointer or reference to the structure serves as well.
    fn field(&mut self, part: Operand, name: &str) -> Result<Operand> {
        let mut part = part;
        // An array stands for its first element.
        if let Operand::Word(..)
        | Operand::Held(
            _,
            (
                Shape {
                    kind: Type::Pointer { .. },
                    ..
                },
                _,
            ),
        )
        | Operand::Memory(
            _,
            (
                Shape {
                    kind: Type::Pointer { .. } | Type::Array { .. },
                    ..
                },
                _,
            ),
        ) = part
        {
            part = self.follow(&part)?;
        }
        let Operand::Memory(at, (shape, module)) = part else {
            return bad(format!(
                "only a structure has fields, so there is no {name}"
            ));
        };
        match shape.fields_called(Some(name)) {
            Some((offset, field)) => Ok(Operand::Memory(
                at.wrapping_add(offset),
                (field.clone(), module),
            )),
            None => bad(format!("it has no field {name}")),
        }
    }
}
