//! Variables as text and as JSON.

use crate::at::bytes_text;
use crate::carried;
use crate::hex::hex;
use hindsight_inspect::symbols::Location;
use hindsight_inspect::{Carried, Completed, Value, integer};
use hindsight_isa::regs::NAMES;
use hindsight_text::line;
use serde_json::{Value as Json, json};

fn location(l: &Location) -> String {
    match l {
        Location::Memory(a) => format!("at {a:#x}"),
        Location::Register(n) => format!("in {}", NAMES[*n as usize & 15]),
        Location::Vector(n) => format!("in xmm{n}"),
        Location::Value(_) | Location::Bytes(_) => "computed".into(),
        Location::Pieces(list) => {
            let parts: Vec<String> = list.iter().map(|p| location(&p.0)).collect();
            parts.join(", ")
        }
        Location::Complex => "in a way not known".into(),
        Location::OptimizedOut => "optimized out".into(),
    }
}

/// What is carried stands behind what is known, and is marked.
pub fn variable_text(v: &Value) -> String {
    let mut value = match v.bytes.is_empty() {
        true => String::new(),
        false => format!(" = {}", line(&v.text)),
    };
    if let Some(c) = &v.carried {
        let known = match v.bytes.iter().any(Option::is_some) {
            true => format!("{}; ", line(&v.text)),
            false => String::new(),
        };
        value = format!(" = {known}{}", completed(c));
    }
    let x = &v.variable;
    let from = |c: &Completed| format!("; {}", Carried::source(&c.from));
    let source = v.carried.as_ref().map(from).unwrap_or_default();
    let passed = match (&v.passed, &v.passed_carried) {
        (None, _) => String::new(),
        (Some(text), None) => format!("; {} when it was called", line(text)),
        (Some(text), Some(c)) => {
            let known = match text.as_str() {
                "?" => String::new(),
                known => format!("{}; ", line(known)),
            };
            format!("; {known}{} when it was called{}", completed(c), from(c))
        }
    };
    format!(
        "{} {}{value}  ({}{source}{passed})",
        line(&x.type_name),
        line(&x.name),
        location(&x.location)
    )
}

fn completed(c: &Completed) -> String {
    format!("{} ({})", line(&c.text), Carried::mark(&c.from))
}

pub fn variable_json(v: &Value) -> Json {
    let x = &v.variable;
    json!({
        "name": x.name, "type": x.type_name, "size": x.size, "parameter": x.parameter,
        "location": location(&x.location),
        "bytes": bytes_text(v.bytes.iter().copied()),
        "integer": v.integer().map(hex), "text": v.text, "passed": v.passed,
        "carried": v.carried.as_ref().map(completed_json),
        "passed_carried": v.passed_carried.as_ref().map(completed_json),
    })
}

fn completed_json(c: &Completed) -> Json {
    json!({
        "bytes": bytes_text(c.bytes.iter().copied()), "integer": integer(&c.bytes).map(hex), "text": c.text,
        "from": carried::json(&c.from),
    })
}
