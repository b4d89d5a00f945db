//! What people write, and what programs give as names.

use hindsight_events::{script, select};
use hindsight_symbols::demangle;
use hindsight_timeline::{Place, Position};

pub fn seeds() -> Vec<Vec<u8>> {
    [
        "1A2:3F",
        "50%",
        "begin",
        "end",
        "crash",
        "event:12",
        "syscall:3",
        "mark:request:2",
        "state:1",
        "mark:a..state:2",
        "time:1.5s",
        "12:34:56",
        "#!/bin/sh -e\n",
        "#! /usr/bin/env python3",
        "libc.so.6!malloc",
        "lib+0x123",
        "*a*b*c?d",
        "_ZN4core3fmt9Formatter3new17h0123456789abcdefE",
        "_ZNSt6vectorIiSaIiEE9push_backEOi",
        "_RNvCs15kBYyAo9fc_7mycrate7example",
        "+main\0-lib*.so\0<begin\0>end\0",
        "\x1b[31mred\u{202e}",
    ]
    .iter()
    .map(|s| s.as_bytes().to_vec())
    .collect()
}

/// Whether a terminal would do something else than show it.
fn commands_a_terminal(text: &str) -> bool {
    text.chars()
        .any(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c))
}

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(place) = text.parse::<Position>() {
        assert_eq!(place.to_string().parse::<Position>().unwrap(), place);
    }
    let _ = text.parse::<Place>();
    if let Some((interpreter, argument)) = script::parse(&bytes[..bytes.len().min(script::LINE)]) {
        assert!(!interpreter.is_empty());
        assert!(interpreter.len() + argument.len() < script::LINE);
    }
    assert!(select::rules(bytes).count() <= bytes.len());
    let _ = select::Function::parse(bytes);
    let (pattern, path) = bytes.split_at(bytes.len() / 2);
    select::glob(&pattern[..pattern.len().min(200)], path);
    select::module_matches(&pattern[..pattern.len().min(200)], path);
    demangle(&text);
    for shown in [hindsight_text::line(&text), hindsight_text::bytes(bytes)] {
        assert!(!commands_a_terminal(&shown), "{shown:?}");
    }
}
