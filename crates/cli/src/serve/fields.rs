//! The fields of a request.

use super::Fail;
use crate::parse;
use hindsight_timeline::{Direction, Place, ThreadId, Watch};
use serde_json::{Map, Value as Json};

/// The fields that nobody has taken yet. A request may have no others than those that are taken.
pub struct Fields(Map<String, Json>);

/// Where a question is asked.
#[derive(Clone, PartialEq, Debug)]
pub enum At {
    /// The crash, or else the end.
    Usual,
    /// What users call a place.
    Place(Place),
    /// An instant of a thread. With an address: at the entry of a signal handler there.
    Instant(ThreadId, u64, Option<u64>),
}

impl Fields {
    pub fn new(all: Map<String, Json>) -> Fields {
        Fields(all)
    }

    /// A field. Null is the same as none.
    pub fn take(&mut self, name: &str) -> Option<Json> {
        self.0.remove(name).filter(|v| !v.is_null())
    }

    /// What `kind` takes of a field.
    fn field<T>(
        &mut self,
        name: &str,
        kind: &str,
        take: impl FnOnce(&Json) -> Option<T>,
    ) -> Result<Option<T>, Fail> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let wrong = || Fail::request(format!("`{name}` is no {kind}"));
        take(&value).map(Some).ok_or_else(wrong)
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, Fail> {
        self.field(name, "text", |v| v.as_str().map(String::from))
    }

    pub fn flag(&mut self, name: &str) -> Result<bool, Fail> {
        let value = self.field(name, "boolean", Json::as_bool)?;
        Ok(value.unwrap_or(false))
    }

    /// A number that is not negative. Large ones come as text, as they do in answers.
    pub fn number(&mut self, name: &str) -> Result<Option<u64>, Fail> {
        self.field(
            name,
            "number from 0, or text with one such as \"0x10\"",
            number,
        )
    }

    pub fn small(&mut self, name: &str) -> Result<Option<u32>, Fail> {
        let take = |v: &Json| number(v).and_then(|n| n.try_into().ok());
        self.field(name, "number from 0 with 32 bits", take)
    }

    /// A number or a text: what stands for an address, a function, a line.
    pub fn word(&mut self, name: &str) -> Result<Option<String>, Fail> {
        self.field(name, "text or number", word)
    }

    pub fn words(&mut self, name: &str) -> Result<Vec<String>, Fail> {
        let take = |v: &Json| v.as_array()?.iter().map(word).collect();
        let all = self.field(name, "list of texts or numbers", take)?;
        Ok(all.unwrap_or_default())
    }

    /// All, or a list of them. `None`: nothing is said.
    pub fn choice(&mut self, name: &str) -> Result<Option<Option<Vec<String>>>, Fail> {
        self.field(name, "true or list", |v| match v {
            Json::Bool(true) => Some(None),
            v => v
                .as_array()?
                .iter()
                .map(word)
                .collect::<Option<_>>()
                .map(Some),
        })
    }

    /// A list of objects.
    pub fn objects(&mut self, name: &str) -> Result<Vec<Fields>, Fail> {
        let object = |v: &Json| v.as_object().cloned().map(Fields);
        let take = |v: &Json| v.as_array()?.iter().map(object).collect();
        let all = self.field(name, "list of objects", take)?;
        Ok(all.unwrap_or_default())
    }

    /// A field that must be there.
    pub fn must<T>(name: &str, found: Option<T>) -> Result<T, Fail> {
        found.ok_or_else(|| Fail::request(format!("`{name}` is missing")))
    }

    pub fn at(&mut self) -> Result<At, Fail> {
        match self.take("at") {
            None => Ok(At::Usual),
            Some(Json::String(text)) => Ok(At::Place(text.parse()?)),
            Some(Json::Object(all)) => Fields(all).instant(),
            Some(_) => Err(Fail::request(
                "`at` is neither text nor an instant such as {\"thread\":2,\"count\":17}",
            )),
        }
    }

    /// An instant, as answers have it.
    fn instant(mut self) -> Result<At, Fail> {
        let thread = self.small("thread")?;
        let count = self.number("count")?;
        let entered = self.number("entered")?;
        // What else answers say of it follows from these.
        for known in ["position", "image"] {
            self.take(known);
        }
        self.end()?;
        let thread = ThreadId(Fields::must("thread", thread)?);
        Ok(At::Instant(thread, Fields::must("count", count)?, entered))
    }

    pub fn place(&mut self, name: &str) -> Result<Option<Place>, Fail> {
        let text = self.text(name)?;
        Ok(text.map(|t| t.parse()).transpose()?)
    }

    pub fn direction(&mut self) -> Result<Direction, Fail> {
        let text = self.text("direction")?;
        match text.as_deref().unwrap_or("forward") {
            "forward" => Ok(Direction::Forward),
            "backward" => Ok(Direction::Backward),
            other => Err(Fail::request(format!(
                "`direction` is forward or backward, and not {other}"
            ))),
        }
    }

    pub fn watch(&mut self, usual: &str) -> Result<Watch, Fail> {
        let text = self.text("access")?;
        match text.as_deref().unwrap_or(usual) {
            "read" => Ok(Watch::Read),
            "write" => Ok(Watch::Write),
            "any" => Ok(Watch::Access),
            other => Err(Fail::request(format!(
                "`access` is read, write or any, and not {other}"
            ))),
        }
    }

    /// Nothing else may be there: what is misspelt is not ignored.
    pub fn end(self) -> Result<(), Fail> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(Fail::request(format!("there is no field `{name}` here"))),
        }
    }
}

fn number(v: &Json) -> Option<u64> {
    match v {
        Json::String(text) => parse::number(text).ok(),
        v => v.as_u64(),
    }
}

fn word(v: &Json) -> Option<String> {
    match v {
        Json::String(text) => Some(text.clone()),
        v => v.as_u64().map(|n| n.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(v: Json) -> Fields {
        Fields(v.as_object().unwrap().clone())
    }

    #[test]
    fn places_are_words_and_instants() {
        let mut f = fields(json!({"at": "50%"}));
        assert_eq!(f.at().unwrap(), At::Place(Place::Percent(50.0)));
        let here = json!({"thread": 2, "count": "0x10", "position": "1:2", "image": 1});
        let mut f = fields(json!({ "at": here }));
        assert_eq!(f.at().unwrap(), At::Instant(ThreadId(2), 16, None));
        assert_eq!(fields(json!({"at": null})).at().unwrap(), At::Usual);
        for wrong in [
            json!("nowhere"),
            json!(7),
            json!({"thread": 2}),
            json!({"tread": 2}),
        ] {
            assert!(fields(json!({ "at": wrong })).at().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_misspelt_is_an_error() {
        let mut f = fields(json!({"address": 16, "lenght": 8}));
        assert_eq!(f.word("address").unwrap().as_deref(), Some("16"));
        assert_eq!(f.number("length").unwrap(), None);
        assert!(
            f.end().unwrap_err().json()["message"]
                .as_str()
                .unwrap()
                .contains("lenght")
        );
        assert!(fields(json!({"n": -1})).number("n").is_err());
        assert!(fields(json!({"n": 1.5})).number("n").is_err());
        assert!(fields(json!({"n": 1u64 << 40})).small("n").is_err());
    }
}
