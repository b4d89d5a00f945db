//! Why a request has no answer.

use hindsight_inspect as inspect;
use hindsight_timeline as timeline;
use serde_json::{Value as Json, json};

/// An error, as clients get it.
#[derive(Debug)]
pub struct Fail {
    kind: &'static str,
    message: String,
}

impl Fail {
    /// A line that is no request.
    pub const MALFORMED: &str = "malformed";
    /// A request that does not exist, or with fields that do not fit.
    pub const REQUEST: &str = "request";
    /// A place, thread, program image or list that there is not.
    pub const PLACE: &str = "place";
    /// A function, file, line or system call that there is not.
    pub const NAME: &str = "name";
    /// An expression that has no value there.
    pub const EXPRESSION: &str = "expression";
    /// What this recording cannot tell.
    pub const UNSUPPORTED: &str = "unsupported";
    /// The recording is damaged, or cannot be replayed.
    pub const RECORDING: &str = "recording";
    /// The client cancelled it.
    pub const CANCELLED: &str = "cancelled";
    /// Too many requests wait, or too many lists are open.
    pub const BUSY: &str = "busy";

    pub fn new(kind: &'static str, message: impl Into<String>) -> Fail {
        Fail {
            kind,
            message: message.into(),
        }
    }

    /// One of the request's fields does not fit.
    pub fn request(message: impl Into<String>) -> Fail {
        Fail::new(Fail::REQUEST, message)
    }

    pub fn json(&self) -> Json {
        json!({ "kind": self.kind, "message": self.message })
    }
}

impl From<timeline::Error> for Fail {
    fn from(e: timeline::Error) -> Fail {
        use timeline::Error::*;
        let kind = match &e {
            NoPosition(_) | NoPlace(_) | NoThread(_) | NoImage(_) | Empty => Fail::PLACE,
            Unsupported(_) => Fail::UNSUPPORTED,
            Cancelled => Fail::CANCELLED,
            _ => Fail::RECORDING,
        };
        Fail::new(kind, chain(&e))
    }
}

impl From<inspect::Error> for Fail {
    fn from(e: inspect::Error) -> Fail {
        match e {
            inspect::Error::Timeline(e) => e.into(),
            inspect::Error::Expression(why) => Fail::new(Fail::EXPRESSION, why),
            e => Fail::new(Fail::RECORDING, chain(&e)),
        }
    }
}

/// What commands say. Behind their words stands what a library said.
impl From<anyhow::Error> for Fail {
    fn from(e: anyhow::Error) -> Fail {
        let e = match e.downcast::<timeline::Error>() {
            Ok(e) => return e.into(),
            Err(e) => e,
        };
        match e.downcast::<inspect::Error>() {
            Ok(e) => e.into(),
            Err(e) => Fail::request(format!("{e:#}")),
        }
    }
}

impl From<timeline::ParsePlaceError> for Fail {
    fn from(e: timeline::ParsePlaceError) -> Fail {
        Fail::new(Fail::PLACE, e.to_string())
    }
}

/// An error with its causes.
fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}
