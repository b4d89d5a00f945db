//! Declarations of preprocessed C: what types are, and which functions there are.
//!
//! This reads no more of C than declarations need. Bodies and values are skipped. What is not understood is left out and
//! told of: it can only make functions unknown, never give one a promise.

mod declarators;
mod specifiers;

use crate::Fault;
use crate::attributes::{Attributes, word};
use crate::tokens::{Kind, Token};
use crate::types::{Function, Shape, Structures, Type};
use std::collections::{BTreeMap, HashMap};

/// Types and parentheses stand within each other at most so often.
const DEEPEST: u32 = 200;
/// A type has at most so many parts. Names of types in types would make them grow without end.
const LARGEST: usize = 400;

/// What a text declares.
pub struct Unit {
    pub structures: Structures,
    /// By their names in C.
    pub functions: BTreeMap<String, Function>,
    /// What was not understood in the headers that were asked for.
    pub faults: Vec<Fault>,
}

/// Reads declarations. `wanted` says whether one is asked for, by its first token.
pub fn parse(tokens: &[Token], wanted: &dyn Fn(&Token) -> bool) -> Result<Unit, Fault> {
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
        lists: 0,
        anonymous: 0,
        names: HashMap::new(),
        unit: Unit {
            structures: Structures::new(),
            functions: BTreeMap::new(),
            faults: Vec::new(),
        },
    };
    while let Some(first) = parser.peek() {
        let begin = parser.at;
        let wanted = wanted(first);
        (parser.depth, parser.lists) = (0, 0);
        if let Err(fault) = parser.declaration(wanted) {
            if wanted {
                parser.unit.faults.push(fault);
            }
            parser.at = begin;
            parser.skip_declaration()?;
        }
    }
    Ok(parser.unit)
}

/// `Err`: it is not understood.
type Read<T> = Result<T, Fault>;

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: u32,
    /// Lists of parameters that this stands in.
    lists: u32,
    /// How many structures without a tag there were.
    anonymous: u32,
    /// What `typedef` named.
    names: HashMap<String, Type>,
    unit: Unit,
}

/// What stands before the names of a declaration.
struct Specifiers {
    base: Type,
    is_typedef: bool,
    is_static: bool,
    attributes: Attributes,
}

/// A name with its type.
struct Declared {
    name: Option<String>,
    of: Type,
    attributes: Attributes,
    label: Option<String>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<&'a Token> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        Some(token)
    }

    fn word(&self) -> Option<&'a str> {
        self.peek().and_then(word)
    }

    fn sees(&self, sign: char) -> bool {
        self.peek().is_some_and(|t| t.is(sign))
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.sees(sign);
        self.at += usize::from(found);
        found
    }

    fn wrong(&self, what: &str) -> Fault {
        match self.peek().or(self.tokens.last()) {
            Some(t) => t.fault(what),
            None => Fault::at("", 0, what),
        }
    }

    fn expect(&mut self, sign: char) -> Read<()> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.wrong(&format!("`{sign}` is missing"))),
        }
    }

    /// What stands within the parentheses that begin here.
    fn group(&mut self, open: char, close: char) -> Read<&'a [Token]> {
        let begin = self.at;
        self.expect(open)?;
        let mut depth = 1;
        while let Some(t) = self.next() {
            if t.is(open) {
                depth += 1;
            } else if t.is(close) {
                depth -= 1;
                if depth == 0 {
                    return Ok(&self.tokens[begin + 1..self.at - 1]);
                }
            }
        }
        self.at = begin;
        Err(self.wrong(&format!("`{open}` without `{close}`")))
    }

    /// One declaration, up to its `;` or the end of its body.
    fn declaration(&mut self, wanted: bool) -> Read<()> {
        if self.take(';') {
            return Ok(());
        }
        // Instructions, and checks of the compiler.
        let others = ["_Static_assert", "static_assert", "asm", "__asm__", "__asm"];
        if self.word().is_some_and(|w| others.contains(&w)) {
            return self.skip_declaration();
        }
        let first = self.at;
        let specifiers = self.specifiers()?;
        if self.take(';') {
            return Ok(());
        }
        loop {
            let mut before = Attributes::default();
            self.attributes(&mut before)?;
            let mut one = self.declarator(&specifiers.base)?;
            one.attributes.add(&before);
            one.attributes.add(&specifiers.attributes);
            let has_body = self.sees('{');
            if has_body && !matches!(one.of.shape, Shape::Function(_)) {
                return Err(self.wrong("a body that belongs to no function"));
            }
            if specifiers.is_typedef {
                if let Some(name) = one.name {
                    if let Shape::Function(signature) = &mut one.of.shape {
                        // How it is called belongs to the type.
                        signature.strange.extend(one.attributes.strange);
                    }
                    self.names.insert(name, one.of);
                }
            } else if matches!(one.of.shape, Shape::Function(_)) && !specifiers.is_static {
                self.function(one, &self.tokens[first], wanted);
            }
            if has_body {
                self.group('{', '}')?;
                return Ok(());
            }
            if self.take('=') {
                self.skip_value()?;
            }
            if self.take(';') {
                return Ok(());
            }
            if !self.take(',') {
                return Err(self.wrong("this is not understood here"));
            }
        }
    }

    fn function(&mut self, one: Declared, at: &Token, wanted: bool) {
        let (Some(name), Shape::Function(signature)) = (one.name, one.of.shape) else {
            return;
        };
        let mut attributes = one.attributes;
        attributes.add_strange(&signature.strange);
        let fresh = Function {
            symbol: one.label.clone().unwrap_or_else(|| name.clone()),
            signature: *signature,
            attributes,
            header: at.source.header.clone(),
            is_wanted: wanted,
            file: at.source.path.clone(),
            line: at.line,
        };
        let Some(known) = self.unit.functions.get_mut(&name) else {
            self.unit.functions.insert(name, fresh);
            return;
        };
        known.attributes.add(&fresh.attributes);
        if one.label.is_some() {
            known.symbol = fresh.symbol;
        }
        if known.signature.is_open {
            known.signature = fresh.signature;
        }
        if wanted && !known.is_wanted {
            (known.is_wanted, known.file, known.line) = (true, fresh.file, fresh.line);
        }
    }

    /// What follows `=`.
    fn skip_value(&mut self) -> Read<()> {
        while let Some(t) = self.peek() {
            match t.kind {
                Kind::Sign(';' | ',') => return Ok(()),
                Kind::Sign('(') => _ = self.group('(', ')')?,
                Kind::Sign('[') => _ = self.group('[', ']')?,
                Kind::Sign('{') => _ = self.group('{', '}')?,
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    /// Goes behind a declaration, whatever it says. `Err`: it does not end.
    fn skip_declaration(&mut self) -> Read<()> {
        let begin = self.at;
        let mut last_was_parameters = false;
        while let Some(t) = self.peek() {
            match t.kind {
                Kind::Sign(';') => {
                    self.at += 1;
                    return Ok(());
                }
                Kind::Sign('(') => {
                    self.group('(', ')')?;
                    last_was_parameters = true;
                    continue;
                }
                Kind::Sign('{') => {
                    self.group('{', '}')?;
                    // The body of a function. Behind one of a structure there may be names.
                    if last_was_parameters && !self.sees(';') {
                        return Ok(());
                    }
                }
                Kind::Sign('}' | ')') => {
                    return Err(t.fault("a parenthesis or brace closes what was not opened"));
                }
                _ => self.at += 1,
            }
            last_was_parameters = false;
        }
        self.at = begin;
        Err(self.wrong("a declaration begins here and does not end"))
    }

    /// Reads all attributes that begin here: `__attribute__((...))` and `[[...]]`.
    fn attributes(&mut self, into: &mut Attributes) -> Read<()> {
        loop {
            let second = self.tokens.get(self.at + 1);
            match self.word() {
                Some("__attribute__" | "__attribute") => {
                    self.at += 1;
                    let outer = self.group('(', ')')?;
                    if let [open, inner @ .., close] = outer
                        && open.is('(')
                        && close.is(')')
                    {
                        into.read(inner);
                    }
                }
                None if self.sees('[') && second.is_some_and(|t| t.is('[')) => {
                    let outer = self.group('[', ']')?;
                    if let [_, inner @ .., _] = outer {
                        into.read_standard(inner);
                    }
                }
                _ => return Ok(()),
            }
        }
    }
}
