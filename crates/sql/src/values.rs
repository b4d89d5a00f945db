//! Functions that make values, for queries to call.

use crate::recording::Recording;
use crate::recordings::Recordings;
use crate::rows::Stop;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, StringArray, UInt64Array, new_null_array,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options, interleave, take};
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::prelude::SessionContext;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

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
    make: Make,
}

/// What makes the values of rows.
enum Make {
    /// From the arguments alone.
    Plain(fn(&[ArrayRef]) -> anyhow::Result<ArrayRef>),
    /// From the arguments and a recording. The name of that may stand behind them.
    Of(fn(&Recording, &[ArrayRef]) -> anyhow::Result<ArrayRef>),
}

impl ValueOf {
    /// Its name and its parameters, in words.
    pub fn shown(&self) -> String {
        let recording = match self.make {
            Make::Plain(_) => "",
            Make::Of(_) => " [, RECORDING]",
        };
        format!("{}({}{recording})", self.name, self.parameters)
    }
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
        make: Make::Plain(|a| {
            texts(a[0].as_primitive::<UInt64Type>().iter(), |n| {
                Ok(Some(format!("{n:#x}")))
            })
        }),
    },
    ValueOf {
        name: "time_of",
        parameters: "'PLACE'",
        about: "the time of a place: 1A2:3F, 50%, begin, end, crash, event:N, syscall:NAME, mark:NAME, state:N, time:1.5s, 12:34:56; NULL: this recording does not have it, and others are asked, too",
        takes: &[&[TEXT]],
        gives: INT,
        make: Make::Of(|r, a| {
            let clock = r.clock()?;
            let one = |p: Option<&str>| match p.map(|p| r.place(p)).transpose() {
                Ok(position) => Ok(position.map(|p| clock.time(p))),
                // Others may have it.
                Err(Stop::Absent(_)) if !r.is_alone => Ok(None),
                Err(Stop::Absent(e) | Stop::Failed(e)) => Err(e),
                Err(Stop::Enough) => Ok(None),
            };
            let all: anyhow::Result<Int64Array> = a[0].as_string::<i32>().iter().map(one).collect();
            Ok(Arc::new(all?))
        }),
    },
    ValueOf {
        name: "position_of",
        parameters: "TIME",
        about: "the position of a time; NULL: the recording has no such time",
        takes: &[&[INT]],
        gives: TEXT,
        make: Make::Of(|r, a| {
            let clock = r.clock()?;
            let one = |t| Ok(clock.position(t).map(|p| p.to_string()));
            texts(a[0].as_primitive::<Int64Type>().iter(), one)
        }),
    },
    ValueOf {
        name: "symbol",
        parameters: "ADDRESS [, PROCESS]",
        about: "what code is at an address, as FILE!FUNCTION+OFFSET, if one file was ever there; default: in the first process",
        takes: &[&[UINT], &[UINT, INT]],
        gives: TEXT,
        make: Make::Of(|r, a| {
            at(r, a, |image, file, address| {
                Ok(r.location(image, file, address)?.map(|l| l.exact()))
            })
        }),
    },
    ValueOf {
        name: "function",
        parameters: "ADDRESS [, PROCESS]",
        about: "the function at an address, if one file was ever there; default: in the first process",
        takes: &[&[UINT], &[UINT, INT]],
        gives: TEXT,
        make: Make::Of(|r, a| {
            at(r, a, |image, file, address| {
                let location = r.location(image, file, address)?;
                Ok(location.and_then(|l| Some(l.function?.0)))
            })
        }),
    },
    ValueOf {
        name: "source_line",
        parameters: "ADDRESS [, PROCESS]",
        about: "the source line of an address, as FILE:LINE; default: in the first process",
        takes: &[&[UINT], &[UINT, INT]],
        gives: TEXT,
        make: Make::Of(|r, a| at(r, a, |image, file, address| r.line(image, file, address))),
    },
    ValueOf {
        name: "syscall_name",
        parameters: "NUMBER",
        about: "the name of a system call",
        takes: &[&[INT]],
        gives: TEXT,
        make: Make::Plain(|a| {
            let one = |n: i64| Ok(Some(hindsight_timeline::syscall_name(n as u64)));
            texts(a[0].as_primitive::<Int64Type>().iter(), one)
        }),
    },
    ValueOf {
        name: "signal_name",
        parameters: "NUMBER",
        about: "the name of a signal",
        takes: &[&[INT]],
        gives: TEXT,
        make: Make::Plain(|a| {
            let one = |n: i64| Ok(Some(hindsight_timeline::signal_name(n as u64)));
            texts(a[0].as_primitive::<Int64Type>().iter(), one)
        }),
    },
    ValueOf {
        name: "error_name",
        parameters: "RESULT",
        about: "the name of the error that a system call returned; NULL: it returned none",
        takes: &[&[INT]],
        gives: TEXT,
        make: Make::Plain(|a| {
            let one = |n: i64| Ok(hindsight_timeline::error_name(n as u64).map(str::to_owned));
            texts(a[0].as_primitive::<Int64Type>().iter(), one)
        }),
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
    recordings: Arc<Recordings>,
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
        self.of.name == other.of.name && Arc::ptr_eq(&self.recordings, &other.recordings)
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
        let takes = |n: usize| self.of.takes.iter().find(|t| t.len() == n);
        let (mut given, mut name) = (&args.args[..], None);
        if let (Make::Of(_), Some((last, others))) = (&self.of.make, given.split_last())
            && is_text(&last.data_type())
            && takes(others.len()).is_some()
        {
            (given, name) = (others, Some(last));
        }
        let Some(takes) = takes(given.len()) else {
            return plan_err!("expected {}", self.of.shown());
        };
        // NULL means that something is not known, and not that a number is none.
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let cast = |a: &ColumnarValue, t: &DataType| -> Result<ArrayRef> {
            Ok(cast_with_options(&a.to_array(rows)?, t, &options)?)
        };
        let arrays = (given.iter().zip(*takes)).map(|(a, t)| cast(a, t));
        let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
        let name = name.map(|n| cast(n, &TEXT)).transpose()?;
        let made = match &self.of.make {
            Make::Plain(make) => make(&arrays),
            Make::Of(make) => self.of_recordings(*make, &arrays, name.as_ref()),
        };
        let made = made.map_err(|e| DataFusionError::External(e.into_boxed_dyn_error()))?;
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &made, 0,
            )?)),
            false => Ok(ColumnarValue::Array(made)),
        }
    }
}

impl Value {
    /// Makes values of the recordings that `names` says, which may be left out if there is only one.
    fn of_recordings(
        &self,
        make: fn(&Recording, &[ArrayRef]) -> anyhow::Result<ArrayRef>,
        arrays: &[ArrayRef],
        names: Option<&ArrayRef>,
    ) -> anyhow::Result<ArrayRef> {
        let Some(names) = names else {
            anyhow::ensure!(
                self.recordings.is_one(),
                "{}: there are {} recordings: say which by a last argument, such as the column `recording`",
                self.of.shown(),
                self.recordings.len()
            );
            return make(&*self.recordings.open(0)?, arrays);
        };
        // The rows of each recording.
        let mut rows: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        // Where the value of each row is: a list, and the index in that.
        let mut places = vec![(0, 0); names.len()];
        let mut lists: BTreeMap<&str, usize> = BTreeMap::new();
        for (row, name) in names.as_string::<i32>().iter().enumerate() {
            let Some(name) = name else { continue };
            let index = match lists.get(name) {
                Some(index) => *index,
                None => {
                    let index = self.recordings.named(name)?;
                    lists.insert(name, index);
                    index
                }
            };
            rows.entry(index).or_default().push(row as u64);
        }
        // Without a recording nothing is known.
        let mut made = vec![new_null_array(&self.of.gives, 1)];
        for (index, rows) in rows {
            for (i, row) in rows.iter().enumerate() {
                places[*row as usize] = (made.len(), i);
            }
            let rows = UInt64Array::from(rows);
            let its = arrays.iter().map(|a| Ok(take(a, &rows, None)?));
            let its = its.collect::<anyhow::Result<Vec<ArrayRef>>>()?;
            made.push(self.recordings.with(index, |r| make(r, &its))?);
        }
        let made: Vec<&dyn Array> = made.iter().map(|m| &**m).collect();
        Ok(interleave(&made, &places)?)
    }
}

/// Whether it can name a recording. A bare NULL names none.
fn is_text(t: &DataType) -> bool {
    match t {
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, v) => is_text(v),
        _ => false,
    }
}

/// Whether an expression asks a recording for a value.
pub fn asks_recordings(e: &Expr) -> bool {
    let asks = |e: &Expr| match e {
        Expr::ScalarFunction(f) => VALUES
            .iter()
            .any(|v| matches!(v.make, Make::Of(_)) && v.name == f.name()),
        _ => false,
    };
    e.exists(|e| Ok(asks(e))).unwrap_or(true)
}

/// Lets queries call these functions.
pub fn register(context: &SessionContext, recordings: &Arc<Recordings>) {
    for of in VALUES {
        let mut lengths: BTreeSet<usize> = of.takes.iter().map(|t| t.len()).collect();
        if let Make::Of(_) = of.make {
            lengths.extend(of.takes.iter().map(|t| t.len() + 1));
        }
        let arities = lengths.into_iter().map(TypeSignature::Any);
        context.register_udf(ScalarUDF::new_from_impl(Value {
            recordings: Arc::clone(recordings),
            of,
            signature: Signature::one_of(arities.collect(), Volatility::Immutable),
        }));
    }
}
