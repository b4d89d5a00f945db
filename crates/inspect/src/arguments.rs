//! Arguments and results of calls.

use crate::show::{Read, show};
use crate::{Argument, Inspector, Passed, Result, View, narrow};
use hindsight_symbols::{Class, Location, Parameter, Registers, Signature, Type};
use hindsight_timeline::regs::{CALL_ARGUMENTS, NAMES, RAX, RDX};
use hindsight_timeline::{
    Breakpoint, Call, Cursor, Direction, Error, Reason, Return, Scope, Stops,
};

/// At most this many bytes of a value are looked at.
const LARGEST: u64 = 1 << 12;

/// What a function takes and returns, and where it is.
#[derive(Clone, Debug)]
pub struct Callee {
    signature: Signature,
    /// File address of its first instruction.
    function: u64,
    bias: u64,
}

/// A value as it was found. Each byte may be unknown.
type Bytes = Vec<Option<u8>>;

impl Inspector {
    /// What the function takes and returns that begins at the cursor. `None`: that is not known.
    pub fn signature(&mut self, cursor: &mut Cursor) -> Result<Option<Callee>> {
        let pc = cursor.registers()?.rip;
        let space = self.here(cursor)?;
        let Some(m) = space.mapping(pc) else {
            return Ok(None);
        };
        let function = pc.wrapping_sub(m.bias);
        let bias = m.bias;
        Ok(m.module.signature(function)?.map(|signature| Callee {
            signature,
            function,
            bias,
        }))
    }

    /// The arguments of a call, with the cursor at its beginning. The cursor may go on to the function's body. Without
    /// debug information these are the registers that pass integers. It is then not known whether the function uses
    /// them.
    pub fn arguments(
        &mut self,
        cursor: &mut Cursor,
        known: Option<&Callee>,
        call: &Call,
    ) -> Result<Vec<Argument>> {
        let integers = Call::arguments(&cursor.registers()?);
        let Some(known) = known else {
            let one = |(register, v): (&usize, u64)| Argument {
                name: NAMES[*register].to_string(),
                type_name: None,
                value: Some(Passed::Integer(v)),
                text: Some(format!("{v:#x}")),
            };
            return Ok(CALL_ARGUMENTS.iter().zip(integers).map(one).collect());
        };
        let signature = &known.signature;
        let entry = registers(cursor)?;
        let mut found = vec![None; signature.parameters.len()];
        // Parameters that have a place at the first instruction.
        self.described(cursor, known, &entry, &mut found, |p| !p.spilled)?;
        for ((out, p), passed) in (found.iter_mut())
            .zip(&signature.parameters)
            .zip(passed(signature, &entry))
        {
            if let (None, Some(v)) = (&out, passed) {
                *out = Some(shown(cursor, p, v)?);
            }
        }
        // The others are at their places only in the body.
        if found.iter().any(Option::is_none) && to_body(cursor, known, call)? {
            self.described(cursor, known, &entry, &mut found, |_| true)?;
        }
        let all = signature.parameters.iter().zip(found);
        Ok(all
            .map(|(p, found)| {
                let (value, text) = found.unzip();
                Argument {
                    name: p.name.clone(),
                    type_name: Some(p.type_name.clone()),
                    value: value.flatten(),
                    text,
                }
            })
            .collect())
    }

    /// Fills in what the debug information says at the cursor.
    fn described(
        &mut self,
        cursor: &mut Cursor,
        known: &Callee,
        entry: &Registers,
        found: &mut [Option<(Option<Passed>, String)>],
        which: impl Fn(&Parameter) -> bool,
    ) -> Result<()> {
        let wanted = |i: &usize| which(&known.signature.parameters[*i]);
        if !(0..found.len()).any(|i| wanted(&i) && found[i].is_none()) {
            return Ok(());
        }
        let space = self.here(cursor)?;
        let here = registers(cursor)?;
        let Some(m) = space.mapping(here.rip) else {
            return Ok(());
        };
        let (function, signature) = (known.function, &known.signature);
        let places = View::at(cursor, |view| {
            let mut read = |at| view.word(at);
            (m.module).arguments((function, signature), &here, entry, known.bias, &mut read)
        })??;
        for (i, place) in places.iter().enumerate().take(found.len()) {
            let p = &signature.parameters[i];
            if !wanted(&i) || found[i].is_some() {
                continue;
            }
            let bytes = value_at(cursor, place, p.shape.size.min(LARGEST), &here)?;
            // If no byte is known, it was passed in another way.
            if bytes.iter().any(Option::is_some) || p.shape.size == 0 && p.size == Some(0) {
                found[i] = Some(shown(cursor, p, bytes)?);
            }
        }
        Ok(())
    }

    /// What a call returned: rax as a number of the result's size, and the result as text. `None`: the function returns
    /// nothing, or returns it in another way. The cursor may go to the instant of the return.
    pub fn returned(
        cursor: &mut Cursor,
        thread: hindsight_timeline::ThreadId,
        returned: &Return,
        known: Option<&Callee>,
    ) -> Result<(Option<u64>, Option<String>)> {
        let value = returned.value;
        let Some(known) = known else {
            return Ok((Some(value), Some(format!("{value:#x}"))));
        };
        let Some(result) = &known.signature.result else {
            return Ok((None, None));
        };
        let size = result.size.unwrap_or(8).clamp(1, 8);
        let number = (result.class == Class::Integer).then(|| narrow(value, size));
        let leads = matches!(
            result.shape.kind,
            Type::Pointer { text: true, .. }
                | Type::Pointer {
                    reference: true,
                    ..
                }
        );
        if let Some(v) = number
            && !leads
        {
            return Ok((number, Some(shown(cursor, result, word_bytes(v, size))?.1)));
        }
        cursor.seek_count(thread, returned.count)?;
        let here = registers(cursor)?;
        let len = result.shape.size.min(LARGEST);
        let place = match (result.class, &result.shape.kind) {
            (Class::Integer, _) => Location::Register(RAX as u8),
            (Class::Float, _) => Location::Vector(0),
            // A large structure, or one with a destructor, is where the caller wanted it.
            (_, Type::Struct { name, .. }) if len > 16 || name.starts_with("basic_string<") => {
                Location::Memory(value)
            }
            (_, Type::Struct { .. }) if words(&result.shape) => Location::Pieces(vec![
                (Location::Register(RAX as u8), 8),
                (Location::Register(RDX as u8), 8),
            ]),
            _ => return Ok((None, None)),
        };
        let bytes = value_at(cursor, &place, len, &here)?;
        Ok((number, Some(shown(cursor, result, bytes)?.1)))
    }
}

/// Whether a structure consists of two words that are no floating point numbers.
fn words(shape: &hindsight_symbols::Shape) -> bool {
    let Type::Struct { fields, .. } = &shape.kind else {
        return false;
    };
    let word = |f: &hindsight_symbols::Field| {
        f.shape.size == 8
            && matches!(
                f.shape.kind,
                Type::Signed | Type::Unsigned | Type::Pointer { .. }
            )
    };
    shape.size == 16 && fields.len() == 2 && fields.iter().all(word)
}

/// Goes on to the body of a function, in this call of it. `false`: it is not known where that is, or the call does not
/// come there.
fn to_body(cursor: &mut Cursor, known: &Callee, call: &Call) -> Result<bool> {
    let Some(body) = known.signature.body else {
        return Ok(false);
    };
    let body = body.wrapping_add(known.bias);
    let mut breakpoints = vec![Breakpoint::at(0, body)];
    // The function may be left before.
    breakpoints.extend(call.returned.map(|r| Breakpoint::at(1, r.to)));
    let mut stops = Stops {
        breakpoints,
        ..Stops::default()
    };
    let run = cursor.run(Direction::Forward, Scope::Thread, &mut stops);
    match run {
        Ok(stop) => {
            let there = matches!(stop.reason, Reason::Breakpoint { .. });
            Ok(there && cursor.thread() == call.thread && cursor.registers()?.rip == body)
        }
        // The thread cannot be replayed so far.
        Err(Error::Replay { .. }) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The registers of the cursor's thread.
pub fn registers(cursor: &mut Cursor) -> Result<Registers> {
    let r = cursor.registers()?;
    let vectors = cursor.vectors()?;
    let low = |n: usize| u128::from_le_bytes(std::array::from_fn(|i| vectors.zmm[n][i]));
    Ok(Registers {
        gpr: r.gpr,
        rip: r.rip,
        fs_base: r.fs_base,
        xmm: std::array::from_fn(low),
    })
}

/// How integers and floating point numbers are passed. It ends at the first parameter that takes registers in an
/// unknown way.
fn passed(signature: &Signature, entry: &Registers) -> Vec<Option<Bytes>> {
    let result = signature.result.as_ref();
    // A result in memory takes a register for its address. A value in several pieces takes several.
    let mut clear = result.is_none_or(|r| r.class != Class::Other);
    let mut general = CALL_ARGUMENTS.iter().map(|r| entry.gpr[*r]);
    let mut vector = entry.xmm.iter().take(8).map(|v| *v as u64);
    let one = |p: &Parameter| {
        clear &= p.class != Class::Other;
        let size = p.size.unwrap_or(8).clamp(1, 8);
        let v = match p.class {
            _ if !clear => None,
            Class::Integer => general.next(),
            Class::Float => vector.next(),
            Class::Other => None,
        };
        v.map(|v| word_bytes(v, size))
    };
    signature.parameters.iter().map(one).collect()
}

fn word_bytes(v: u64, size: u64) -> Bytes {
    let bytes = v.to_le_bytes().map(Some);
    bytes[..size.min(8) as usize].to_vec()
}

/// The bytes of a value at a location, where they are known.
pub fn bytes_at(read: &mut Read, place: &Location, len: u64, r: &Registers) -> Bytes {
    match place {
        Location::Memory(addr) => read(*addr, len as usize),
        Location::Register(n) => word_bytes(r.gpr[*n as usize & 15], len),
        Location::Vector(n) => {
            let bytes = r.xmm[*n as usize & 15].to_le_bytes().map(Some);
            bytes[..len.min(16) as usize].to_vec()
        }
        Location::Value(v) => word_bytes(*v, len),
        Location::Bytes(b) => b.iter().take(len as usize).map(|b| Some(*b)).collect(),
        Location::Pieces(list) => {
            let mut out = Vec::new();
            for (place, n) in list {
                let n = (*n).min(len - (out.len() as u64).min(len));
                let mut part = bytes_at(read, place, n, r);
                part.resize(n as usize, None);
                out.append(&mut part);
            }
            out
        }
        Location::Complex | Location::OptimizedOut => Vec::new(),
    }
}

/// The same, as the recording has them at the cursor.
pub fn value_at(cursor: &mut Cursor, place: &Location, len: u64, r: &Registers) -> Result<Bytes> {
    View::at(cursor, |view| {
        bytes_at(&mut |at, len| view.read(at, len), place, len, r)
    })
}

/// A value as a number, if it is one, and as text.
fn shown(cursor: &mut Cursor, p: &Parameter, bytes: Bytes) -> Result<(Option<Passed>, String)> {
    let size = p.size.unwrap_or(8).clamp(1, 8);
    let whole: Option<Vec<u8>> = bytes.iter().copied().collect();
    let number = whole.filter(|b| (1..=8).contains(&b.len())).map(|b| {
        let mut word = [0; 8];
        word[..b.len()].copy_from_slice(&b);
        u64::from_le_bytes(word)
    });
    let value = match (p.class, number) {
        (Class::Integer, Some(v)) => Some(Passed::Integer(narrow(v, size))),
        (Class::Float, Some(v)) if size == 4 => Some(Passed::Float(v as u32)),
        (Class::Float, Some(v)) => Some(Passed::Double(v)),
        _ => None,
    };
    let text = View::at(cursor, |view| {
        show(&p.shape, &bytes, &mut |at, len| view.read(at, len))
    })?;
    Ok((value, text))
}
