//! Functions that make tables, for queries to call.

use crate::column::Column;
use crate::recordings::Recordings;
use crate::table::{Provider, Table};
use crate::tables::{
    At, Calls, GrepMemory, LastWrite, MemoryAt, OriginOf, RegistersAt, Stack, ValuesOf, Variables,
    Writes, columns, number,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// A function that makes a table: its name, its parameters, what a row is, and what makes the table.
pub struct TableOf {
    /// Its name.
    pub name: &'static str,
    /// Its parameters, in words. Those in brackets may be left out.
    pub parameters: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// The columns of its table.
    pub columns: fn() -> &'static [Column],
    /// Whether its parameters have this form: one letter for each. `n`: a number, `t`: a text. Small letters must be there.
    form: &'static str,
    make: fn(&Arguments) -> Result<Arc<dyn Table>>,
}

/// All functions that make tables.
pub const TABLES: &[TableOf] = &[
    TableOf {
        name: "calls",
        parameters: "'FUNCTION'",
        about: "each call of a function, with arguments and result; FUNCTION is NAME, FILE!NAME or an address",
        columns: || columns::CALLS,
        form: "t",
        make: |a| {
            Ok(Arc::new(Calls {
                function: a.text(0)?,
            }))
        },
    },
    TableOf {
        name: "writes",
        parameters: "ADDRESS, LENGTH [, 'PLACE' [, PROCESS]]",
        about: "each write to some memory before a place (default: the end), also by the kernel; the last one first",
        columns: || columns::WRITES,
        form: "nnTN",
        make: |a| Ok(Arc::new(a.writes()?)),
    },
    TableOf {
        name: "last_write",
        parameters: "ADDRESS, LENGTH [, 'PLACE' [, PROCESS]]",
        about: "the last write to some memory before a place (default: the end)",
        columns: || columns::WRITES,
        form: "nnTN",
        make: |a| Ok(Arc::new(LastWrite(a.writes()?))),
    },
    TableOf {
        name: "memory",
        parameters: "ADDRESS, LENGTH [, 'PLACE' [, PROCESS]]",
        about: "each byte of some memory at a place (default: the end)",
        columns: || columns::MEMORY,
        form: "nnTN",
        make: |a| {
            Ok(Arc::new(MemoryAt {
                address: a.number(0)?,
                length: a.number(1)?,
                at: a.at(2, None)?,
            }))
        },
    },
    TableOf {
        name: "grep_memory",
        parameters: "'TEXT' or X'BYTES' [, 'PLACE' [, PROCESS]]",
        about: "each place in memory at which these bytes are at a place (default: the end)",
        columns: || columns::GREP,
        form: "tTN",
        make: |a| {
            Ok(Arc::new(GrepMemory {
                bytes: a.bytes(0)?,
                at: a.at(1, None)?,
            }))
        },
    },
    TableOf {
        name: "origin",
        parameters: "ADDRESS, LENGTH [, 'PLACE' [, PROCESS]]",
        about: "where some memory at a place (default: the end) came from: each copy, back to an input or a computation",
        columns: || columns::ORIGIN,
        form: "nnTN",
        make: |a| {
            Ok(Arc::new(OriginOf {
                address: a.number(0)?,
                length: a.number(1)?,
                at: a.at(2, None)?,
            }))
        },
    },
    TableOf {
        name: "registers",
        parameters: "'PLACE' [, THREAD]",
        about: "the general registers at a place",
        columns: || columns::REGISTERS,
        form: "tN",
        make: |a| Ok(Arc::new(RegistersAt(a.at(0, Some(1))?))),
    },
    TableOf {
        name: "stack",
        parameters: "'PLACE' [, THREAD]",
        about: "the call stack at a place, innermost frame first",
        columns: || columns::STACK,
        form: "tN",
        make: |a| Ok(Arc::new(Stack(a.at(0, Some(1))?))),
    },
    TableOf {
        name: "variables",
        parameters: "'PLACE' [, FRAME [, THREAD]]",
        about: "parameters and variables in a frame (default: 0) of the call stack at a place",
        columns: || columns::VARIABLES,
        form: "tNN",
        make: |a| {
            Ok(Arc::new(Variables {
                at: a.at(0, Some(2))?,
                frame: a.maybe(1)?.unwrap_or(0) as usize,
            }))
        },
    },
    TableOf {
        name: "values_of",
        parameters: "'CODE', 'EXPRESSION'",
        about: "what an expression is each time CODE is reached, which is FILE:LINE, a function or an address",
        columns: || columns::VALUES,
        form: "tt",
        make: |a| {
            Ok(Arc::new(ValuesOf {
                code: a.text(0)?,
                expression: a.text(1)?,
            }))
        },
    },
];

/// The most bytes that can be looked for in memory.
const LONGEST_TEXT: usize = 1 << 16;

/// The most bytes whose writes can be asked for.
const MOST_WRITTEN: u64 = 1 << 20;

/// What a query gives to a function.
struct Arguments {
    of: &'static TableOf,
    values: Vec<ScalarValue>,
}

impl Arguments {
    fn wrong<T>(&self) -> Result<T> {
        plan_err!("expected {}({})", self.of.name, self.of.parameters)
    }

    fn text(&self, i: usize) -> Result<String> {
        match self.values.get(i).map(ScalarValue::try_as_str) {
            Some(Some(Some(t))) => Ok(t.to_owned()),
            _ => self.wrong(),
        }
    }

    /// A text, or bytes that are written as `X'0a0b'`; at least one byte.
    fn bytes(&self, i: usize) -> Result<Vec<u8>> {
        let bytes = match self.values.get(i) {
            Some(ScalarValue::Binary(Some(b)) | ScalarValue::LargeBinary(Some(b))) => b.clone(),
            _ => self.text(i)?.into_bytes(),
        };
        match bytes.len() {
            0 => self.wrong(),
            1..=LONGEST_TEXT => Ok(bytes),
            _ => plan_err!("{}: at most {LONGEST_TEXT} bytes", self.of.name),
        }
    }

    fn maybe(&self, i: usize) -> Result<Option<u64>> {
        let Some(value) = self.values.get(i) else {
            return Ok(None);
        };
        if let Some(Some(text)) = value.try_as_str() {
            return match number(text) {
                Some(n) => Ok(Some(n)),
                None => self.wrong(),
            };
        }
        let n = value.cast_to(&DataType::UInt64).ok();
        match n {
            Some(ScalarValue::UInt64(Some(n))) if value.data_type().is_integer() => Ok(Some(n)),
            _ => self.wrong(),
        }
    }

    fn number(&self, i: usize) -> Result<u64> {
        match self.maybe(i)? {
            Some(n) => Ok(n),
            None => self.wrong(),
        }
    }

    /// A place, and behind it a program image, or else a thread at index `thread`.
    fn at(&self, i: usize, thread: Option<usize>) -> Result<At> {
        let place = match self.values.len() > i {
            true => self.text(i)?,
            false => "end".into(),
        };
        let small = |i| {
            Ok::<_, DataFusionError>(self.maybe(i)?.map(|n| u32::try_from(n).unwrap_or(u32::MAX)))
        };
        Ok(At {
            place,
            process: match thread {
                None => small(i + 1)?,
                Some(_) => None,
            },
            thread: match thread {
                Some(t) => small(t)?,
                None => None,
            },
        })
    }

    fn writes(&self) -> Result<Writes> {
        let w = Writes {
            address: self.number(0)?,
            length: self.number(1)?,
            at: self.at(2, None)?,
        };
        match w.length {
            0 => plan_err!("{}: the length is 0", self.of.name),
            // As on the command line. Each byte that is looked for takes memory.
            n if n > MOST_WRITTEN => plan_err!(
                "{}: {n} bytes are too many: at most a mebibyte ({MOST_WRITTEN}) at a time",
                self.of.name
            ),
            _ => Ok(w),
        }
    }
}

struct Maker {
    recordings: Arc<Recordings>,
    of: &'static TableOf,
}

impl Debug for Maker {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(self.of.name)
    }
}

impl TableFunctionImpl for Maker {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let literal = |e: &Expr| match e {
            Expr::Literal(v, _) => Some(v.clone()),
            Expr::Negative(_) => None,
            _ => None,
        };
        let values: Option<Vec<ScalarValue>> = args.exprs().iter().map(literal).collect();
        let least = self
            .of
            .form
            .chars()
            .filter(char::is_ascii_lowercase)
            .count();
        let fits = |v: &Vec<ScalarValue>| (least..=self.of.form.len()).contains(&v.len());
        let arguments = Arguments {
            of: self.of,
            values: values.clone().unwrap_or_default(),
        };
        if !values.as_ref().is_some_and(fits) {
            return arguments.wrong();
        }
        let table = (self.of.make)(&arguments)?;
        Ok(Arc::new(Provider::new(&self.recordings, table)))
    }
}

/// Lets queries call these functions.
pub fn register(context: &SessionContext, recordings: &Arc<Recordings>) {
    for of in TABLES {
        let recordings = Arc::clone(recordings);
        context.register_udtf(of.name, Arc::new(Maker { recordings, of }));
    }
}
