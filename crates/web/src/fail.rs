//! Why a question has no answer.

use hindsight_timeline::{Error, ParsePlaceError};
use serde_json::json;

/// An error, with the kinds of `docs/serve.md`.
#[derive(Debug)]
pub struct Fail {
    kind: &'static str,
    message: String,
}

impl Fail {
    /// A request does not exist, or has fields that do not fit.
    pub fn request(message: impl Into<String>) -> Fail {
        Fail {
            kind: "request",
            message: message.into(),
        }
    }

    /// The recording has no such place.
    pub fn place(message: impl Into<String>) -> Fail {
        Fail {
            kind: "place",
            message: message.into(),
        }
    }

    /// The answer that says it.
    pub fn said(&self) -> String {
        json!({"error": {"kind": self.kind, "message": self.message}}).to_string()
    }
}

impl From<Error> for Fail {
    fn from(e: Error) -> Fail {
        use Error::*;
        let kind = match &e {
            NoPosition(_) | NoPlace(_) | NoThread(_) | NoImage(_) | Empty => "place",
            Unsupported(_) => "unsupported",
            _ => "recording",
        };
        Fail {
            kind,
            message: e.to_string(),
        }
    }
}

impl From<ParsePlaceError> for Fail {
    fn from(e: ParsePlaceError) -> Fail {
        Fail::place(e.to_string())
    }
}
