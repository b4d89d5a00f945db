//! A profile as folded stacks: a line for each call path, as flame graphs take it.

use super::read::each;
use crate::engine::Engine;
use anyhow::Result;
use std::collections::HashMap;
use std::io::Write;

/// Writes it. A path begins with the name of its thread. Its number is how many instructions its last function executed.
pub fn write(engine: &Engine, out: &mut dyn Write) -> Result<()> {
    let mut names: HashMap<i64, String> = HashMap::new();
    each(engine, "SELECT thread, name FROM threads", &mut |row| {
        let name = row.text(1).unwrap_or_default();
        let part = |c: char| c == ';' || c.is_control();
        names.insert(row.int(0).unwrap_or(0), name.replace(part, "?"));
        Ok(())
    })?;
    let query = "SELECT thread, stack, instructions FROM profile WHERE instructions > 0";
    each(engine, query, &mut |row| {
        let name = row.int(0).and_then(|t| names.get(&t));
        let name = name.map_or("", String::as_str);
        let stack = row.text(1).unwrap_or_default();
        let stack = stack.replace(char::is_control, "?");
        Ok(writeln!(out, "{name};{stack} {}", row.int(2).unwrap_or(0))?)
    })
}
