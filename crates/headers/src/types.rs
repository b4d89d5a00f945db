//! C types, as far as they say what a function gets and may reach.

use crate::attributes::Attributes;
use std::collections::{HashMap, HashSet};

/// A type with its qualifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Type {
    pub shape: Shape,
    /// What has this type must not be changed.
    pub is_const: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shape {
    Void,
    /// An integer of at most so many bytes, in a general register.
    Integer(u64),
    /// A floating-point number of at most so many bytes, in a vector register.
    Float(u64),
    /// A number that is passed in another way, with its name: `long double`, complex ones, vectors.
    Odd(String),
    Pointer(Box<Type>),
    /// As a member. As a parameter it is a pointer.
    Array(Box<Type>),
    Function(Box<Signature>),
    /// A structure or union, by its tag.
    Structure(String),
    /// `va_list`, as a parameter.
    Arguments,
    /// A name that stands for a type that is not known.
    Unknown(String),
}

/// What a function takes and returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    pub returns: Type,
    pub parameters: Vec<Type>,
    /// `...` follows.
    pub is_variadic: bool,
    /// `()` says nothing of parameters.
    pub is_open: bool,
    /// How it is called, if a name of its type says that.
    pub strange: Vec<String>,
}

/// A function that a header declares.
#[derive(Clone, Debug)]
pub struct Function {
    /// The symbol that is called: not the name in C, if an `asm` label says so.
    pub symbol: String,
    pub signature: Signature,
    pub attributes: Attributes,
    /// The header that was asked for.
    pub header: String,
    /// It is declared there, or in a file that it includes and that was asked for, too.
    pub is_wanted: bool,
    pub file: String,
    pub line: u32,
}

/// Whether memory of a type may lead to other memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It has numbers only.
    Flat,
    /// It may: why.
    Further(String),
}

/// What is known of structures: their members, by tag.
pub type Structures = HashMap<String, Vec<Type>>;

impl Type {
    pub fn new(shape: Shape) -> Type {
        Type {
            shape,
            is_const: false,
        }
    }

    pub fn pointer(to: Type) -> Type {
        Type::new(Shape::Pointer(Box::new(to)))
    }

    /// What a parameter of this type is.
    pub fn into_parameter(self) -> Type {
        match self.shape {
            Shape::Array(of) => Type::pointer(*of),
            Shape::Function(_) => Type::pointer(self),
            _ => self,
        }
    }

    /// What can be reached through memory of this type.
    pub fn reach(&self, known: &Structures) -> Reach {
        self.reach_within(known, 0, &mut HashSet::new())
    }

    /// How many types it is made of.
    pub fn parts(&self) -> usize {
        1 + match &self.shape {
            Shape::Pointer(of) | Shape::Array(of) => of.parts(),
            Shape::Function(s) => {
                s.returns.parts() + s.parameters.iter().map(Type::parts).sum::<usize>()
            }
            _ => 0,
        }
    }

    /// `flat`: structures that were found to have numbers only.
    fn reach_within<'a>(
        &'a self,
        known: &'a Structures,
        depth: u32,
        flat: &mut HashSet<&'a str>,
    ) -> Reach {
        match &self.shape {
            Shape::Integer(_) | Shape::Float(_) | Shape::Odd(_) => Reach::Flat,
            Shape::Array(of) => of.reach_within(known, depth, flat),
            Shape::Void => Reach::Further("memory without a type".into()),
            Shape::Pointer(_) => Reach::Further("pointers".into()),
            Shape::Function(_) => Reach::Further("a function".into()),
            Shape::Arguments => Reach::Further("a list of arguments".into()),
            Shape::Unknown(name) => Reach::Further(format!("{name}, a type that is not known")),
            Shape::Structure(tag) => match known.get(tag) {
                None => Reach::Further(format!("{tag}, which is not described here")),
                Some(_) if flat.contains(tag.as_str()) => Reach::Flat,
                // Structures cannot have themselves as members: this is a text that no compiler takes.
                Some(_) if depth > 64 => Reach::Further(format!("{tag}, which has itself")),
                Some(members) => {
                    let mut all = members
                        .iter()
                        .map(|m| m.reach_within(known, depth + 1, flat));
                    match all.any(|r| r != Reach::Flat) {
                        true => Reach::Further(format!("{tag}, which has pointers")),
                        false => {
                            flat.insert(tag);
                            Reach::Flat
                        }
                    }
                }
            },
        }
    }
}
