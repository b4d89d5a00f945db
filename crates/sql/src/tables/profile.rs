//! What calls cost, in instructions.

use crate::bounds::Bounds;
use crate::column::Kind::{Int, Text, Word};
use crate::column::{Column, PROCESS, THREAD, column};
use crate::recording::Recording;
use crate::rows::{Rows, Stop};
use crate::sums::{Tree, tree};
use crate::table::Table;

/// Table `profile`.
pub struct Profile;

const PROFILE: &[Column] = &[
    PROCESS,
    THREAD,
    column(
        "depth",
        Int,
        "how many calls lead to it; the first function of a thread has 1",
    ),
    column(
        "stack",
        Text,
        "these functions, the outermost first, with `;` between",
    ),
    column(
        "function",
        Word,
        "the function; in [brackets]: its file, where no name is known",
    ),
    column(
        "module",
        Word,
        "path of its file; NULL: code that the program made",
    ),
    column("calls", Int, "how often it was called along this path"),
    column("instructions", Int, "instructions in the function itself"),
    column("inclusive", Int, "with those of all that it called"),
];

impl Table for Profile {
    fn name(&self) -> &str {
        "profile"
    }

    fn columns(&self) -> &'static [Column] {
        PROFILE
    }

    fn rows(&self, r: &Recording, bounds: &Bounds, out: &mut Rows) -> Result<(), Stop> {
        for t in tree(r, bounds, &out.cancel)? {
            rows(&t, out)?;
        }
        Ok(())
    }
}

fn rows(t: &Tree, out: &mut Rows) -> Result<(), Stop> {
    let mut inclusive: Vec<u64> = t.nodes.iter().map(|n| n.own).collect();
    for (i, n) in t.nodes.iter().enumerate().skip(1).rev() {
        inclusive[n.parent as usize] += inclusive[i];
    }
    let names: Vec<String> = t.functions.iter().map(|f| f.shown()).collect();
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); t.nodes.len()];
    for (i, n) in t.nodes.iter().enumerate().skip(1) {
        children[n.parent as usize].push(i as u32);
    }
    // Depth first, so that one text serves all.
    let mut stack = String::new();
    let mut next: Vec<(u32, usize)> = children[0].iter().rev().map(|c| (*c, 0)).collect();
    while let Some((i, keep)) = next.pop() {
        out.cancel.check()?;
        let n = &t.nodes[i as usize];
        stack.truncate(keep);
        if keep > 0 {
            stack.push(';');
        }
        stack.push_str(&names[n.function as usize]);
        out.int(0, i64::from(t.image));
        out.int(1, i64::from(t.thread.0));
        out.int(2, i64::from(n.depth));
        out.text(3, &stack);
        out.text(4, &names[n.function as usize]);
        out.maybe(5, t.functions[n.function as usize].module.as_ref());
        out.int(6, n.calls as i64);
        out.int(7, n.own as i64);
        out.int(8, inclusive[i as usize] as i64);
        out.end()?;
        next.extend(children[i as usize].iter().rev().map(|c| (*c, stack.len())));
    }
    Ok(())
}
