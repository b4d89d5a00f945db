//! Splits expressions into words and signs.

use super::bad;
use crate::Result;

/// A word or sign of an expression.
#[derive(Clone, PartialEq, Debug)]
pub enum Token {
    Number(u64),
    Register(String),
    Name(String),
    Sign(&'static str),
}

/// Splits an expression.
pub fn tokens(text: &str) -> Result<Vec<Token>> {
    const SIGNS: [&str; 9] = ["->", ".", "[", "]", "(", ")", "&", "*", "+"];
    let (mut out, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let word = |more: &str| {
            let is = |c: char| c.is_alphanumeric() || more.contains(c);
            rest.find(|c| !is(c)).unwrap_or(rest.len())
        };
        let len = if first.is_ascii_digit() {
            let len = word("");
            let number = &rest[..len];
            let value = match number.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => number.parse(),
            };
            match value {
                Ok(v) => out.push(Token::Number(v)),
                Err(_) => return bad(format!("{number} is no number")),
            }
            len
        } else if first == '$' {
            let len = 1 + rest[1..]
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(rest.len() - 1);
            out.push(Token::Register(rest[1..len].to_string()));
            len
        } else if first.is_alphabetic() || first == '_' {
            let len = word("_:!@");
            out.push(Token::Name(rest[..len].to_string()));
            len
        } else if rest.starts_with('-') && !rest.starts_with("->") {
            out.push(Token::Sign("-"));
            1
        } else if let Some(sign) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
            out.push(Token::Sign(sign));
            sign.len()
        } else {
            return bad(format!("{text}: {first:?} is not understood"));
        };
        rest = rest[len..].trim_start();
    }
    Ok(out)
}
