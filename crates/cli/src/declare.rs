//! `hindsight declare`: what functions write, derived from their headers.

use crate::args::{self, Trust};
use crate::out;
use anyhow::{Context, Result, bail};
use hindsight_headers::{Choice, Compiler, Ground, Rules};
use hindsight_inspect::Declarations;

/// Derives declarations, and writes them.
pub fn run(a: &args::Declare) -> Result<i32> {
    if a.file.trim().is_empty() || a.file.contains(['[', ']', '#', '/', '\n']) {
        bail!("--file is the beginning of a file's name, such as libz.so");
    }
    // An empty `CC` is none.
    let command = if a.compiler.is_empty() {
        "cc"
    } else {
        &a.compiler
    };
    let compiler = Compiler::new(command, &a.options);
    let version = compiler.version()?;
    let rules = Rules {
        included: a.included.clone(),
        pure_takes_no_memory: a.pure_takes_no_memory,
    };
    let found = hindsight_headers::derive(&compiler, &a.headers, &rules)?;
    if found.functions.is_empty() {
        bail!(
            "{} declares no functions. Those of files that it includes are taken with --included TEXT",
            a.headers.join(", ")
        );
    }
    let choice = Choice {
        library: a.file.clone(),
        ground: match a.trust {
            Trust::Promises => Ground::Promise,
            Trust::Attributes => Ground::Attributes,
            Trust::Types => Ground::Types,
        },
        is_brief: a.brief,
    };
    let text = found.text(&choice, &head(a, &version));
    // What was written must be understood later.
    Declarations::read(&text).context("what was derived cannot be read")?;
    match &a.output {
        Some(path) => std::fs::write(path, &text).with_context(|| path.display().to_string())?,
        None => out::println(text.trim_end()),
    }
    let count = found.count(choice.ground);
    if count == 0 {
        crate::say(&format!(
            "none of the {} functions gets a declaration; the comments say why (--trust may allow more)",
            found.functions.len()
        ));
        return Ok(1);
    }
    Ok(0)
}

/// How the file was made.
fn head(a: &args::Declare, version: &str) -> String {
    let mut words = vec!["hindsight declare --file".to_owned(), quoted(&a.file)];
    words.extend(a.headers.iter().map(|h| quoted(h)));
    for text in &a.included {
        words.push(format!("--included {}", quoted(text)));
    }
    match a.trust {
        Trust::Promises => words.push("--trust promises".into()),
        Trust::Attributes => {}
        Trust::Types => words.push("--trust types".into()),
    }
    if a.pure_takes_no_memory {
        words.push("--pure-takes-no-memory".into());
    }
    if a.brief {
        words.push("--brief".into());
    }
    if !a.options.is_empty() {
        words.push("--".into());
        words.extend(a.options.iter().map(|o| quoted(o)));
    }
    format!(
        "What functions may write, derived from headers. Made by:\n  {}\nwith {version}.\n\
         Behind each declaration stands what it follows from. docs/declared-functions.md says what is taken on trust.\n",
        words.join(" ")
    )
}

/// A word of a command line.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=+,:@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
