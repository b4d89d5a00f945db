//! GNU attributes of functions.

use crate::tokens::{Kind, Token};

/// What a function does with what a parameter points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    None,
    ReadOnly,
    WriteOnly,
    ReadWrite,
}

impl Mode {
    pub fn writes(self) -> bool {
        matches!(self, Mode::WriteOnly | Mode::ReadWrite)
    }
}

/// `access(MODE, PARAMETER, SIZE)`. Parameters are counted from 0 here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub mode: Mode,
    pub parameter: usize,
    pub size: Option<usize>,
}

/// The attributes of a function that say what it may write. All are promises: of several declarations each one counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    pub is_pure: bool,
    pub is_const: bool,
    /// It returns memory that nobody else has: `malloc`, `alloc_size`.
    pub allocates: bool,
    pub access: Vec<Access>,
    /// The parameter that is a format as for `printf`, and whether the arguments follow as `...`.
    pub printf: Option<(usize, bool)>,
    /// It has `printf` formats that differ.
    pub has_several_formats: bool,
    /// Names of those that make a function one of another kind: that does not return, or is called in another way.
    pub strange: Vec<String>,
}

impl Attributes {
    /// Adds those of another declaration.
    pub fn add(&mut self, other: &Attributes) {
        self.is_pure |= other.is_pure;
        self.is_const |= other.is_const;
        self.allocates |= other.allocates;
        self.has_several_formats |= other.has_several_formats;
        if let Some(printf) = other.printf {
            self.format(printf);
        }
        for a in &other.access {
            if !self.access.contains(a) {
                self.access.push(*a);
            }
        }
        self.add_strange(&other.strange);
    }

    fn format(&mut self, printf: (usize, bool)) {
        self.has_several_formats |= self.printf.is_some_and(|known| known != printf);
        self.printf = Some(printf);
    }

    /// Adds those of a list within `[[...]]`. `pure` without `gnu::` is no attribute there.
    pub fn read_standard(&mut self, list: &[Token]) {
        for one in split(list) {
            let is_gnu = matches!(one, [space, a, b, ..] if a.is(':') && b.is(':')
                && matches!(word(space), Some("gnu" | "__gnu__")));
            let mut its = Attributes::default();
            match one {
                [_, a, b, rest @ ..] if !is_gnu && a.is(':') && b.is(':') => its.read(rest),
                _ => its.read(one),
            }
            match is_gnu {
                true => self.add(&its),
                false => self.add_strange(&its.strange),
            }
        }
    }

    /// Adds those that make a function one of another kind.
    pub fn add_strange(&mut self, strange: &[String]) {
        for s in strange {
            if !self.strange.contains(s) {
                self.strange.push(s.clone());
            }
        }
    }

    /// Adds those of a list: what stands within the parentheses of `__attribute__((...))`.
    pub fn read(&mut self, list: &[Token]) {
        for one in split(list) {
            // `gnu::pure`
            let one = match one {
                [space, a, b, rest @ ..] if a.is(':') && b.is(':') => match word(space) {
                    Some("gnu" | "__gnu__") => rest,
                    _ => continue,
                },
                _ => one,
            };
            let Some(name) = one.first().and_then(word) else {
                continue;
            };
            let arguments = match one.get(1..) {
                Some([open, inner @ .., close]) if open.is('(') && close.is(')') => split(inner),
                _ => Vec::new(),
            };
            self.one(plain(name), &arguments);
        }
    }

    fn one(&mut self, name: &str, arguments: &[&[Token]]) {
        match name {
            "pure" => self.is_pure = true,
            "const" => self.is_const = true,
            "malloc" | "alloc_size" => self.allocates = true,
            "access" => self.access.extend(access(arguments)),
            "format" => {
                let kind = arguments.first().and_then(|a| word(a.first()?));
                let at = |n: usize| arguments.get(n).and_then(|a| number(a));
                if let (Some("printf" | "gnu_printf"), Some(format), Some(first)) =
                    (kind.map(plain), at(1), at(2))
                    && format > 0
                {
                    self.format((format - 1, first > 0));
                }
            }
            "noreturn"
            | "returns_twice"
            | "ms_abi"
            | "regparm"
            | "naked"
            | "fastcall"
            | "stdcall"
            | "thiscall"
            | "vectorcall"
            | "regcall"
            | "preserve_most"
            | "preserve_all"
            | "no_caller_saved_registers"
            | "interrupt" => {
                self.strange.push(name.into());
            }
            _ => {}
        }
    }
}

fn access(arguments: &[&[Token]]) -> Option<Access> {
    let mode = match plain(word(arguments.first()?.first()?)?) {
        "none" => Mode::None,
        "read_only" => Mode::ReadOnly,
        "write_only" => Mode::WriteOnly,
        "read_write" => Mode::ReadWrite,
        _ => return None,
    };
    Some(Access {
        mode,
        parameter: number(arguments.get(1)?)?.checked_sub(1)?,
        size: arguments
            .get(2)
            .and_then(|a| number(a))
            .and_then(|n| n.checked_sub(1)),
    })
}

/// A name without the underscores that keep it apart from macros.
pub fn plain(name: &str) -> &str {
    let inner = name.strip_prefix("__").and_then(|n| n.strip_suffix("__"));
    inner.unwrap_or(name)
}

pub fn word(token: &Token) -> Option<&str> {
    match &token.kind {
        Kind::Word(w) => Some(w),
        _ => None,
    }
}

/// A number, in parentheses or not.
fn number(tokens: &[Token]) -> Option<usize> {
    match tokens {
        [open, inner @ .., close] if open.is('(') && close.is(')') => number(inner),
        [one] => match &one.kind {
            Kind::Number(n) => n.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The parts of a list between commas.
fn split(list: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0u32;
    list.split(|t| {
        match t.kind {
            Kind::Sign('(' | '[' | '{') => depth += 1,
            Kind::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && t.is(',')
    })
    .collect()
}
