//! Executes gathers and scatters element by element. That is needed in a small window, and where
//! elements lie so far apart that they share cells.

use crate::run::dispatch::{Next, resume};
use crate::run::shadow::Shadow;
use crate::run::slow;
use crate::signals::{exceptions, frame};
use crate::sys::guard::{self, Fault};
use crate::thread::{Thread, pass};
use alloc::vec::Vec;
use hindsight_isa::xsave::Area;
use hindsight_isa::{Desc, VecState};
use hindsight_translate::effective::Registers;
use hindsight_translate::vsib::{Elements, gathers};
use iced_x86::Instruction;

/// Executes `i`, at which the thread stands.
pub fn execute(t: &mut Thread, desc: &Desc, i: &Instruction) -> Next {
    let mut v = t.vec();
    let Some(elements) = Elements::of(i, &v, &Registers::from(&*t.ctx)) else {
        slow::unsupported(t, desc.pc);
    };
    let done = match gathers(i) {
        true => gather(t, &elements, &mut v),
        false => scatter(t, &elements, &mut v).map(|()| true),
    };
    match done {
        Ok(true) => {
            elements.finish(&mut v, gathers(i));
            set(t, &v);
            if pass::waiting(t) {
                t.ctx.rip = desc.pc + desc.ilen as u64;
                t.complete();
                return Next::Boundary;
            }
            resume(t, desc)
        }
        // As after an interrupt between two elements. The instruction begins anew and does the
        // rest.
        Ok(false) => {
            set(t, &v);
            frame::emit_state(t);
            Next::Boundary
        }
        Err(f) => {
            exceptions::fault(t, &f);
            Next::Boundary
        }
    }
}

fn set(t: &mut Thread, v: &VecState) {
    let mut area = Area::default();
    t.vectors.layout().from_state(v, &mut area);
    t.set_area(&area);
}

/// Reads the elements of a gather. Replay learns all that is recorded here before it reads any
/// element. So where an element takes the cells of an earlier one, the instruction is cut in two.
/// Then returns false.
fn gather(t: &mut Thread, elements: &Elements, v: &mut VecState) -> Result<bool, Fault> {
    let size = elements.size;
    let mut done: Vec<(usize, u64, [u8; 8])> = Vec::new();
    for &(e, at) in &elements.active {
        t.fill(at, size as u64)?;
        if done
            .iter()
            .any(|(_, at, value)| !t.agrees(*at, &value[..size]))
        {
            for (e, _, value) in done {
                elements.element(v, e).copy_from_slice(&value[..size]);
                elements.deselect(v, e);
            }
            return Ok(false);
        }
        let mut value = [0; 8];
        t.read_cells(at, &mut value[..size]);
        done.push((e, at, value));
    }
    for (e, _, value) in done {
        elements.element(v, e).copy_from_slice(&value[..size]);
    }
    Ok(true)
}

/// Writes the elements of a scatter. Each is tried first: cells may change only if nothing faults
/// later.
fn scatter(t: &mut Thread, elements: &Elements, v: &mut VecState) -> Result<(), Fault> {
    for (_, at) in &elements.active {
        guard::probe_write(*at, elements.size as u64)?;
    }
    for (e, at) in &elements.active {
        let value = elements.element(v, *e);
        guard::write(*at, value)?;
        t.write_cells(*at, value);
    }
    Ok(())
}
