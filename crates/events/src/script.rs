//! The first line of a script, read as the kernel reads it (`fs/binfmt_script.c`).

/// Bytes at the start of a file that the kernel looks at.
pub const LINE: usize = 256;

/// Interpreter and argument of a `#!` line; the argument is empty if there is none. `start` is the file's
/// first [`LINE`] bytes, or the whole file if it is shorter. `None` if it is not a script.
pub fn parse(start: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let body = start.strip_prefix(b"#!")?;
    let whole = body.iter().position(|b| *b == b'\n');
    let mut line = &body[..whole.unwrap_or(body.len())];
    if whole.is_none() && start.len() == LINE {
        // The line is longer than that. The kernel cuts the argument, but the interpreter must be whole.
        let from = line.iter().position(|b| !blank(b))?;
        line[from..].iter().position(|b| blank(b) || *b == 0)?;
    }
    line = &line[..line.iter().position(|b| *b == 0).unwrap_or(line.len())];
    while let [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    while let [b' ' | b'\t', rest @ ..] = line {
        line = rest;
    }
    let end = line.iter().position(blank).unwrap_or(line.len());
    let (interpreter, mut argument) = line.split_at(end);
    while let [b' ' | b'\t', rest @ ..] = argument {
        argument = rest;
    }
    (!interpreter.is_empty()).then_some((interpreter, argument))
}
