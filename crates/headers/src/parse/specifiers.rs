//! What stands before the names of a declaration: storage, qualifiers and the type itself.

use super::{Parser, Read, Specifiers};
use crate::attributes::{Attributes, word};
use crate::tokens::{Kind, Token};
use crate::types::{Shape, Type};

/// The words of a type of numbers, counted.
#[derive(Default)]
struct Words {
    seen: Vec<String>,
    /// A type that is one word or a structure.
    whole: Option<Type>,
}

impl Words {
    fn has(&self, word: &str) -> bool {
        self.seen.iter().any(|s| s == word)
    }

    fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.whole.is_none()
    }

    /// The type that the words make.
    fn shape(&self) -> Option<Shape> {
        if let Some(whole) = &self.whole {
            if !self.seen.is_empty() {
                // `NAME _Complex` is not what the name says.
                return Some(Shape::Unknown(self.seen.join(" ")));
            }
            return Some(whole.shape.clone());
        }
        let all = self.seen.join(" ");
        let longs = self.seen.iter().filter(|s| *s == "long").count();
        if self.has("_Complex") || self.has("_Imaginary") || self.has("__int128") {
            return Some(Shape::Odd(all));
        }
        if self.has("double") && longs > 0 {
            return Some(Shape::Odd(all));
        }
        if self.has("double") {
            return Some(Shape::Float(8));
        }
        if self.has("float") {
            return Some(Shape::Float(4));
        }
        if self.has("void") {
            return Some(Shape::Void);
        }
        if self.has("char") || self.has("_Bool") {
            return Some(Shape::Integer(1));
        }
        if self.has("short") {
            return Some(Shape::Integer(2));
        }
        if longs > 0 {
            return Some(Shape::Integer(8));
        }
        let int = self.has("int") || self.has("signed") || self.has("unsigned");
        int.then_some(Shape::Integer(4))
    }
}

impl<'a> Parser<'a> {
    pub(super) fn specifiers(&mut self) -> Read<Specifiers> {
        let mut words = Words::default();
        let mut all = Specifiers {
            base: Type::new(Shape::Void),
            is_typedef: false,
            is_static: false,
            attributes: Attributes::default(),
        };
        let mut is_const = false;
        let first = self.at;
        // `mode` gives an integer another size.
        let mut mode = None;
        loop {
            let begin = self.at;
            self.attributes(&mut all.attributes)?;
            mode = mode.or(mode_of(&self.tokens[begin..self.at]));
            let Some(w) = self.word() else { break };
            match w {
                "typedef" => all.is_typedef = true,
                "static" => all.is_static = true,
                "_Noreturn" | "noreturn" => all.attributes.strange.push("noreturn".into()),
                "extern" | "inline" | "__inline" | "__inline__" | "register" | "auto"
                | "_Thread_local" | "__thread" | "__extension__" | "volatile" | "__volatile__"
                | "__volatile" | "restrict" | "__restrict" | "__restrict__" | "constexpr" => {}
                "const" | "__const" | "__const__" => is_const = true,
                "_Atomic" if !self.tokens.get(self.at + 1).is_some_and(|t| t.is('(')) => {}
                "_Alignas" | "alignas" => {
                    self.at += 1;
                    self.group('(', ')')?;
                    continue;
                }
                "struct" | "union" | "enum" => {
                    words.whole = Some(self.structure(w)?);
                    continue;
                }
                "_Atomic" | "typeof" | "__typeof__" | "__typeof" | "typeof_unqual" | "_BitInt"
                | "__auto_type" => {
                    self.at += 1;
                    if self.sees('(') {
                        self.group('(', ')')?;
                    }
                    words.whole = Some(Type::new(Shape::Unknown(w.into())));
                    continue;
                }
                _ => {
                    let number = number(w);
                    if let Some(number) = number {
                        words.seen.push(number.into());
                    } else if words.is_empty() {
                        let of = self.named(w);
                        is_const |= of.is_const;
                        words.whole = Some(of);
                    } else {
                        break;
                    }
                }
            }
            self.at += 1;
        }
        let shape = words.shape();
        let shape = shape.ok_or_else(|| self.wrong("a type is missing"))?;
        all.base = Type {
            shape: mode.unwrap_or(shape),
            is_const,
        };
        if vector(&self.tokens[first..self.at]) {
            all.base.shape = Shape::Odd("a vector".into());
        }
        Ok(all)
    }

    /// The type that a word stands for.
    fn named(&self, w: &str) -> Type {
        let of = |shape| Type::new(shape);
        match w {
            "__builtin_va_list" => of(Shape::Arguments),
            "_Float16" | "__fp16" | "__bf16" => of(Shape::Float(2)),
            "_Float32" => of(Shape::Float(4)),
            "_Float64" | "_Float32x" => of(Shape::Float(8)),
            // In one vector register.
            "_Float128" | "__float128" => of(Shape::Float(16)),
            "_Float64x" | "__float80" => of(Shape::Odd(w.into())),
            "bool" => of(Shape::Integer(1)),
            _ => match self.names.get(w) {
                Some(known) => known.clone(),
                None => of(Shape::Unknown(w.into())),
            },
        }
    }

    /// Whether a word begins a type.
    pub(super) fn is_type(&self, w: &str) -> bool {
        let known = [
            "const",
            "__const",
            "__const__",
            "volatile",
            "__volatile__",
            "struct",
            "union",
            "enum",
            "register",
            "restrict",
            "__restrict",
            "_Atomic",
            "__extension__",
            "typeof",
            "__typeof__",
            "_BitInt",
        ];
        known.contains(&w)
            || number(w).is_some()
            || !matches!(self.named(w).shape, Shape::Unknown(_))
    }

    /// `struct TAG { MEMBERS }`, or one of its parts.
    fn structure(&mut self, kind: &str) -> Read<Type> {
        self.at += 1;
        // These are about the type.
        let mut its = Attributes::default();
        self.attributes(&mut its)?;
        let mut tag = None;
        if let Some(w) = self.word() {
            tag = Some(format!("{kind} {w}"));
            self.at += 1;
        }
        if kind == "enum" && self.take(':') {
            self.specifiers()?;
        }
        if self.sees('{') {
            self.depth += 1;
            if self.depth > super::DEEPEST {
                return Err(self.wrong("structures stand too deep in each other"));
            }
            let body = self.group('{', '}')?;
            self.attributes(&mut its)?;
            if kind != "enum" {
                self.anonymous += u32::from(tag.is_none());
                let n = self.anonymous;
                let tag = tag.get_or_insert_with(|| format!("{kind} without a name ({n})"));
                let members = self.within(body, Parser::members)?;
                self.describe(tag, members);
            }
            self.depth -= 1;
        }
        if kind == "enum" {
            // Those with larger values have eight bytes.
            return Ok(Type::new(Shape::Integer(8)));
        }
        match tag {
            Some(tag) => Ok(Type::new(Shape::Structure(tag))),
            None => Err(self.wrong("a structure has neither a name nor members")),
        }
    }

    /// One that is described in several ways, or only within parameters, may be anything.
    fn describe(&mut self, tag: &str, members: Vec<Type>) {
        let all = &mut self.unit.structures;
        let differs = all.get(tag).is_some_and(|known| *known != members);
        let members = match differs || self.lists > 0 {
            true => vec![Type::new(Shape::Unknown(tag.into()))],
            false => members,
        };
        all.insert(tag.into(), members);
    }

    /// Reads other tokens, and comes back.
    pub(super) fn within<T>(
        &mut self,
        tokens: &'a [Token],
        read: impl FnOnce(&mut Self) -> Read<T>,
    ) -> Read<T> {
        let (outer, at) = (self.tokens, self.at);
        (self.tokens, self.at) = (tokens, 0);
        let result = read(self);
        (self.tokens, self.at) = (outer, at);
        result
    }

    fn members(&mut self) -> Read<Vec<Type>> {
        let mut all = Vec::new();
        while self.peek().is_some() {
            if self.take(';') {
                continue;
            }
            if matches!(self.word(), Some("_Static_assert" | "static_assert")) {
                self.skip_declaration()?;
                continue;
            }
            let specifiers = self.specifiers()?;
            if self.take(';') {
                // A structure in it, whose members are as its own.
                all.push(specifiers.base);
                continue;
            }
            loop {
                // A bit field may have no name.
                let of = match self.sees(':') {
                    true => specifiers.base.clone(),
                    false => self.declarator(&specifiers.base)?.of,
                };
                all.push(of);
                if self.take(':') {
                    self.skip_value()?;
                }
                self.attributes(&mut Attributes::default())?;
                if self.take(',') {
                    continue;
                }
                if self.peek().is_some() {
                    self.expect(';')?;
                }
                break;
            }
        }
        Ok(all)
    }
}

/// The word of a type of numbers, in its usual form.
fn number(w: &str) -> Option<&'static str> {
    Some(match w {
        "void" => "void",
        "char" => "char",
        "short" => "short",
        "int" => "int",
        "long" => "long",
        "float" => "float",
        "double" => "double",
        "signed" | "__signed__" | "__signed" => "signed",
        "unsigned" | "__unsigned__" => "unsigned",
        "_Bool" => "_Bool",
        "_Complex" | "__complex__" | "__complex" => "_Complex",
        "_Imaginary" => "_Imaginary",
        "__int128" | "__int128_t" | "__uint128_t" => "__int128",
        _ => return None,
    })
}

/// The type of an attribute `mode`.
pub(super) fn mode_of(tokens: &[Token]) -> Option<Shape> {
    let its = of_attributes(tokens);
    let name = its.iter().flat_map(|t| t.windows(4)).find_map(|four| {
        // A parameter may have this name.
        let is_mode = matches!(word(&four[0]), Some("mode" | "__mode__"));
        let name = word(&four[2])?;
        (is_mode && four[1].is('(') && four[3].is(')')).then_some(name)
    })?;
    Some(match crate::attributes::plain(name) {
        "QI" | "byte" => Shape::Integer(1),
        "HI" => Shape::Integer(2),
        "SI" => Shape::Integer(4),
        "DI" | "word" | "pointer" | "unwind_word" | "libgcc_cmp_return" => Shape::Integer(8),
        "SF" => Shape::Float(4),
        "DF" => Shape::Float(8),
        other => Shape::Odd(format!("a number of the mode {other}")),
    })
}

/// Whether attributes of these make a vector.
pub(super) fn vector(tokens: &[Token]) -> bool {
    let names = ["vector_size", "ext_vector_type"];
    let mut all = of_attributes(tokens).into_iter().flatten();
    all.any(|t| word(t).is_some_and(|w| names.contains(&crate::attributes::plain(w))))
}

/// What stands in attributes, but not in those of parameters and members.
fn of_attributes(tokens: &[Token]) -> Vec<&[Token]> {
    let mut all = Vec::new();
    let (mut depth, mut begin) = (0u32, 0);
    let mut counts = false;
    for (n, t) in tokens.iter().enumerate() {
        match t.kind {
            Kind::Sign('(' | '[' | '{') => {
                if depth == 0 {
                    begin = n;
                    let last = n.checked_sub(1).and_then(|n| word(&tokens[n]));
                    let is_double = t.is('[') && tokens.get(n + 1).is_some_and(|t| t.is('['));
                    counts = is_double || matches!(last, Some("__attribute__" | "__attribute"));
                }
                depth += 1;
            }
            Kind::Sign(')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 && counts {
                    all.push(&tokens[begin..=n]);
                }
            }
            _ => {}
        }
    }
    all
}
