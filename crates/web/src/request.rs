//! A request: an object with fields.

use crate::fail::Fail;
use serde_json::{Map, Value as Json};

/// The fields that nobody has looked at.
pub struct Fields(Map<String, Json>);

impl Fields {
    pub fn read(request: &[u8]) -> Result<Fields, Fail> {
        match serde_json::from_slice(request) {
            Ok(Json::Object(all)) => Ok(Fields(all)),
            Ok(_) => Err(Fail::request("a request is an object")),
            Err(e) => Err(Fail::request(format!("this is no JSON: {e}"))),
        }
    }

    /// A field. Null is the same as none.
    pub fn take(&mut self, name: &str) -> Option<Json> {
        self.0.remove(name).filter(|v| !v.is_null())
    }

    /// A text.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Fail> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(Fail::request(format!("`{name}` is no text"))),
        }
    }

    /// A number, or text that stands for one, also in hexadecimal.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, Fail> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let number = match &value {
            Json::String(text) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            },
            value => value.as_u64(),
        };
        let wrong = || Fail::request(format!("`{name}` is no number"));
        number.map(Some).ok_or_else(wrong)
    }

    /// A number from 1 to `most`.
    pub fn count(&mut self, name: &str, usual: u64, most: u64) -> Result<u64, Fail> {
        match self.number(name)?.unwrap_or(usual) {
            n if (1..=most).contains(&n) => Ok(n),
            _ => Err(Fail::request(format!("`{name}` is from 1 to {most}"))),
        }
    }

    /// A number that must be there.
    pub fn must(&mut self, name: &str) -> Result<u64, Fail> {
        let missing = || Fail::request(format!("`{name}` is missing"));
        self.number(name)?.ok_or_else(missing)
    }

    /// Nothing else may be there: what is misspelt is not ignored.
    pub fn end(self) -> Result<(), Fail> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(Fail::request(format!("there is no field `{name}` here"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn fields_are_what_they_say() {
        let mut f = fields(r#"{"a": 5, "b": "0x1f", "c": "17", "d": null, "e": "x"}"#);
        assert_eq!(f.number("a").unwrap(), Some(5));
        assert_eq!(f.number("b").unwrap(), Some(31));
        assert_eq!(f.number("c").unwrap(), Some(17));
        assert_eq!(f.number("d").unwrap(), None);
        assert_eq!(f.count("d", 3, 9).unwrap(), 3);
        assert_eq!(f.text("e").unwrap().as_deref(), Some("x"));
        f.end().unwrap();
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(Fields::read(b"[1]").is_err() && Fields::read(b"{").is_err());
        let mut f = fields(r#"{"a": -5, "b": "0xz", "c": 0, "more": 1}"#);
        assert!(f.number("a").is_err() && f.number("b").is_err());
        assert!(f.count("c", 1, 9).is_err() && f.must("d").is_err());
        assert!(f.end().is_err());
    }
}
