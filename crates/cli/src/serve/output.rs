//! What a client reads: one object of JSON in each line.

use super::Fail;
use crate::out;
use serde_json::{Value as Json, json};
use std::sync::{Mutex, PoisonError};

/// Writes answers. Several threads may, and each line is whole.
#[derive(Default)]
pub struct Answers(Mutex<()>);

impl Answers {
    /// Writes a line. Ends the process if nobody reads any more.
    pub fn line(&self, object: &Json) {
        // What a terminal might obey is escaped: somebody may look at it.
        let text = format!("{}\n", hindsight_text::lines(&object.to_string()));
        let _whole = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out::write(text.as_bytes());
    }

    /// The last line of an answer.
    pub fn done(&self, id: &Json, done: Result<Json, Fail>) {
        self.line(&match done {
            Ok(result) => json!({ "id": id, "result": result }),
            Err(fail) => json!({ "id": id, "error": fail.json() }),
        });
    }
}
