//! Names with what makes their types: pointers, arrays, parameters.

use super::specifiers::{mode_of, vector};
use super::{Declared, Parser, Read};
use crate::attributes::{Attributes, word};
use crate::tokens::{Kind, Token};
use crate::types::{Shape, Signature, Type};

/// What stands behind a name.
enum Suffix {
    Array,
    Parameters(Vec<Type>, bool, bool),
}

impl<'a> Parser<'a> {
    /// A name, or none, whose type is made of `base`.
    pub(super) fn declarator(&mut self, base: &Type) -> Read<Declared> {
        self.depth += 1;
        if self.depth > super::DEEPEST {
            return Err(self.wrong("parentheses stand too deep in each other"));
        }
        let mut of = base.clone();
        let mut ignored = Attributes::default();
        let mut attributes = Attributes::default();
        let mut stars = 0;
        loop {
            // What stands behind `*` is about the pointer.
            match self.word() {
                Some("const" | "__const" | "__const__") => of.is_const = true,
                Some(
                    "volatile" | "__volatile__" | "__volatile" | "restrict" | "__restrict"
                    | "__restrict__" | "_Atomic" | "__extension__" | "_Nonnull" | "_Nullable",
                ) => {}
                Some("__attribute__" | "__attribute") => {
                    self.attributes(&mut ignored)?;
                    // But compilers take how a function is called from here, too.
                    attributes.add_strange(&ignored.strange);
                    continue;
                }
                None if self.sees('*') => {
                    stars += 1;
                    if stars > super::DEEPEST {
                        return Err(self.wrong("a type is too deep"));
                    }
                    of = Type::pointer(of);
                }
                _ => break,
            }
            self.at += 1;
        }
        let mut name = None;
        let mut inner = None;
        if self.sees('(') && self.is_nested() {
            inner = Some(self.group('(', ')')?);
        } else if let Some(w) = self.word()
            && !matches!(w, "asm" | "__asm__" | "__asm")
        {
            name = Some(w.to_owned());
            self.at += 1;
        }
        let begin = self.at;
        let suffixes = self.suffixes(&mut attributes)?;
        let label = self.label()?;
        self.attributes(&mut attributes)?;
        let its = &self.tokens[begin..self.at];
        let (mode, is_vector) = (mode_of(its), vector(its));
        for suffix in suffixes.into_iter().rev() {
            of = Type::new(match suffix {
                Suffix::Array => Shape::Array(Box::new(of)),
                Suffix::Parameters(parameters, is_variadic, is_open) => {
                    Shape::Function(Box::new(Signature {
                        returns: of,
                        parameters,
                        is_variadic,
                        is_open,
                        strange: Vec::new(),
                    }))
                }
            });
        }
        if is_vector {
            of = Type::new(Shape::Odd("a vector".into()));
        } else if let Some(shape) = mode {
            of = Type::new(shape);
        }
        if of.parts() > super::LARGEST {
            return Err(self.wrong("a type is too deep"));
        }
        self.depth -= 1;
        let Some(inner) = inner else {
            return Ok(Declared {
                name,
                of,
                attributes,
                label,
            });
        };
        let mut one = self.within(inner, |p| p.declarator(&of))?;
        one.attributes.add(&attributes);
        one.label = one.label.or(label);
        Ok(one)
    }

    /// Whether `(` begins a declarator in parentheses, not parameters.
    fn is_nested(&self) -> bool {
        let Some(second) = self.tokens.get(self.at + 1) else {
            return false;
        };
        match word(second) {
            Some("__attribute__" | "__attribute") => true,
            Some(w) => !self.is_type(w),
            None => matches!(second.kind, Kind::Sign('*' | '(' | '^')),
        }
    }

    fn suffixes(&mut self, attributes: &mut Attributes) -> Read<Vec<Suffix>> {
        let mut all = Vec::new();
        loop {
            self.attributes(attributes)?;
            if self.sees('[') {
                self.group('[', ']')?;
                if all.len() > super::DEEPEST as usize {
                    return Err(self.wrong("a type is too deep"));
                }
                all.push(Suffix::Array);
            } else if self.sees('(') {
                let list = self.group('(', ')')?;
                self.depth += 1;
                self.lists += 1;
                all.push(self.within(list, Parser::parameters)?);
                self.lists -= 1;
                self.depth -= 1;
            } else {
                return Ok(all);
            }
        }
    }

    fn parameters(&mut self) -> Read<Suffix> {
        let mut all = Vec::new();
        if self.peek().is_none() {
            return Ok(Suffix::Parameters(all, false, true));
        }
        if self.word() == Some("void") && self.tokens.len() == 1 {
            return Ok(Suffix::Parameters(all, false, false));
        }
        loop {
            if self.peek().is_some_and(|t| t.kind == Kind::Dots) {
                return Ok(Suffix::Parameters(all, true, false));
            }
            let specifiers = self.specifiers()?;
            let one = self.declarator(&specifiers.base)?;
            all.push(one.of.into_parameter());
            if self.peek().is_none() {
                return Ok(Suffix::Parameters(all, false, false));
            }
            self.expect(',')?;
        }
    }

    /// The symbol that `asm("...")` names.
    fn label(&mut self) -> Read<Option<String>> {
        if !matches!(self.word(), Some("asm" | "__asm__" | "__asm")) {
            return Ok(None);
        }
        self.at += 1;
        let parts: &[Token] = self.group('(', ')')?;
        let mut all = String::new();
        for part in parts {
            match &part.kind {
                Kind::Text(text) => all.push_str(text),
                // A variable in a register.
                _ => return Ok(None),
            }
        }
        // An empty one names nothing.
        Ok((!all.is_empty()).then_some(all))
    }
}
