//! Functions that queries call: those that make tables, and those that make values.

use crate::column::Column;
use crate::recording::Recording;
use crate::table::{Provider, Table};
use crate::tables::{
    At, Calls, LastWrite, MemoryAt, OriginOf, RegistersAt, Stack, ValuesOf, Variables, Writes,
    columns, number,
};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;
use std::fmt::{self, Debug, Formatter};
use std::hash::{Hash, Hasher};
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
            _ => Ok(w),
        }
    }
}

struct Maker {
    recording: Arc<Recording>,
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
        Ok(Arc::new(Provider::new(&self.recording, table)))
    }
}

/// A function that makes a value.
pub struct ValueOf {
    /// Its name.
    pub name: &'static str,
    /// Its parameters, in words.
    pub parameters: &'static str,
    /// What it gives.
    pub about: &'static str,
    takes: &'static [&'static [DataType]],
    gives: DataType,
    make: fn(&Recording, &[ArrayRef]) -> anyhow::Result<ArrayRef>,
}

const UINT: DataType = DataType::UInt64;
const INT: DataType = DataType::Int64;
const TEXT: DataType = DataType::Utf8;

/// All functions that make values.
pub const VALUES: &[ValueOf] = &[
    ValueOf {
        name: "hex",
        parameters: "NUMBER",
        about: "the number in hexadecimal, with 0x",
        takes: &[&[UINT]],
        gives: TEXT,
        make: |_, a| {
            texts(a[0].as_primitive::<UInt64Type>().iter(), |n| {
                Ok(Some(format!("{n:#x}")))
            })
        },
    },
    ValueOf {
        name: "time_of",
        parameters: "'PLACE'",
        about: "the time of a place: 1A2:3F, 50%, begin, end, crash, event:N, syscall:NAME, time:1.5s, 12:34:56",
        takes: &[&[TEXT]],
        gives: INT,
        make: |r, a| {
            let clock = r.clock()?;
            let one = |p: Option<&str>| p.map(|p| Ok(clock.time(r.place(p)?))).transpose();
            let all: anyhow::Result<Int64Array> = a[0].as_string::<i32>().iter().map(one).collect();
            Ok(Arc::new(all?))
        },
    },
    ValueOf {
        name: "position_of",
        parameters: "TIME",
        about: "the position of a time; NULL: the recording has no such time",
        takes: &[&[INT]],
        gives: TEXT,
        make: |r, a| {
            let clock = r.clock()?;
            let one = |t| Ok(clock.position(t).map(|p| p.to_string()));
            texts(a[0].as_primitive::<Int64Type>().iter(), one)
        },
    },
    ValueOf {
        name: "symbol",
        parameters: "ADDRESS [, PROCESS]",
        about: "what code is at an address, as FILE!FUNCTION+OFFSET, if one file was ever there; default: in the first process",
        takes: &[&[UINT], &[UINT, INT]],
        gives: TEXT,
        make: |r, a| {
            at(r, a, |image, file, address| {
                Ok(r.location(image, file, address)?.map(|l| l.exact()))
            })
        },
    },
    ValueOf {
        name: "function",
        parameters: "ADDRESS [, PROCESS]",
        about: "the function at an address, if one file was ever there; default: in the first process",
        takes: &[&[UINT], &[UINT, INT]],
        gives: TEXT,
        make: |r, a| {
            at(r, a, |image, file, address| {
                let location = r.location(image, file, address)?;
                Ok(location.and_then(|l| Some(l.function?.0)))
            })
        },
    },
    ValueOf {
        name: "source_line",
        parameters: "ADDRESS [, PROCESS]",
        about: "the source line of an address, as FILE:LINE; default: in the first process",
        takes: &[&[UINT], &[UINT, INT]],
        gives: TEXT,
        make: |r, a| at(r, a, |image, file, address| r.line(image, file, address)),
    },
    ValueOf {
        name: "syscall_name",
        parameters: "NUMBER",
        about: "the name of a system call",
        takes: &[&[INT]],
        gives: TEXT,
        make: |_, a| {
            let one = |n: i64| Ok(Some(hindsight_timeline::syscall_name(n as u64)));
            texts(a[0].as_primitive::<Int64Type>().iter(), one)
        },
    },
    ValueOf {
        name: "signal_name",
        parameters: "NUMBER",
        about: "the name of a signal",
        takes: &[&[INT]],
        gives: TEXT,
        make: |_, a| {
            let one = |n: i64| Ok(Some(hindsight_timeline::signal_name(n as u64)));
            texts(a[0].as_primitive::<Int64Type>().iter(), one)
        },
    },
    ValueOf {
        name: "error_name",
        parameters: "RESULT",
        about: "the name of the error that a system call returned; NULL: it returned none",
        takes: &[&[INT]],
        gives: TEXT,
        make: |_, a| {
            let one = |n: i64| Ok(hindsight_timeline::error_name(n as u64).map(str::to_owned));
            texts(a[0].as_primitive::<Int64Type>().iter(), one)
        },
    },
];

fn texts<T>(
    values: impl Iterator<Item = Option<T>>,
    one: impl Fn(T) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<ArrayRef> {
    let all: anyhow::Result<StringArray> = values.map(|v| v.map_or(Ok(None), &one)).collect();
    Ok(Arc::new(all?))
}

/// A text for each address, in a program image that may be named behind it. `one` gets the image, the only file that was
/// ever there, and the address.
fn at(
    r: &Recording,
    a: &[ArrayRef],
    one: impl Fn(u32, usize, u64) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<ArrayRef> {
    let addresses = a[0].as_primitive::<UInt64Type>();
    let images = a.get(1).map(|i| i.as_primitive::<Int64Type>());
    let first = r.first_image()?;
    let of = |(i, address): (usize, Option<u64>)| {
        let image = match images {
            Some(list) if list.is_null(i) => return Ok(None),
            Some(list) => u32::try_from(list.value(i)).unwrap_or(0),
            None => first,
        };
        let Some(at) = address else {
            return Ok(None);
        };
        match r.only_file(image, at)? {
            Some(file) => one(image, file, at),
            None => Ok(None),
        }
    };
    let all: anyhow::Result<StringArray> = addresses.iter().enumerate().map(of).collect();
    Ok(Arc::new(all?))
}

struct Value {
    recording: Arc<Recording>,
    of: &'static ValueOf,
    signature: Signature,
}

impl Debug for Value {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(self.of.name)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.of.name == other.of.name && Arc::ptr_eq(&self.recording, &other.recording)
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of.name.hash(state);
    }
}

impl ScalarUDFImpl for Value {
    fn name(&self) -> &str {
        self.of.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.of.gives.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = args
            .args
            .iter()
            .all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let takes = self.of.takes.iter().find(|t| t.len() == args.args.len());
        let Some(takes) = takes else {
            return plan_err!("expected {}({})", self.of.name, self.of.parameters);
        };
        // NULL means that something is not known, and not that a number is none.
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let arrays: Result<Vec<ArrayRef>> = (args.args.iter().zip(*takes))
            .map(|(a, t)| Ok(cast_with_options(&a.to_array(rows)?, t, &options)?))
            .collect();
        let made = (self.of.make)(&self.recording, &arrays?)
            .map_err(|e| DataFusionError::External(e.into_boxed_dyn_error()))?;
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &made, 0,
            )?)),
            false => Ok(ColumnarValue::Array(made)),
        }
    }
}

/// Lets queries call all functions.
pub fn register(context: &SessionContext, recording: &Arc<Recording>) {
    for of in TABLES {
        let recording = Arc::clone(recording);
        context.register_udtf(of.name, Arc::new(Maker { recording, of }));
    }
    for of in VALUES {
        let arities = of
            .takes
            .iter()
            .map(|t| datafusion::logical_expr::TypeSignature::Any(t.len()));
        context.register_udf(ScalarUDF::new_from_impl(Value {
            recording: Arc::clone(recording),
            of,
            signature: Signature::one_of(arities.collect(), Volatility::Immutable),
        }));
    }
}
