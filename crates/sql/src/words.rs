//! A column of words: each stands once in a list, and rows name it by its key.

use datafusion::arrow::array::{ArrayRef, DictionaryArray, Int32Builder, StringArray};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::arrow::error::ArrowError;
use std::collections::HashMap;
use std::sync::Arc;

/// A list with more bytes than this is not carried on.
const MOST: usize = 1 << 20;

/// Makes such a column. Batches share a list, so keys stay valid, until it is long.
#[derive(Default)]
pub struct Words {
    /// The number of the list.
    generation: u32,
    bytes: usize,
    keys: Int32Builder,
    known: HashMap<String, i32>,
    list: Vec<String>,
    /// The list as batches have it, if it has not grown since.
    made: Option<ArrayRef>,
}

impl Words {
    /// The key of a word.
    pub fn key(&mut self, word: &str) -> i32 {
        if let Some(key) = self.known.get(word) {
            return *key;
        }
        let key = self.list.len() as i32;
        self.known.insert(word.into(), key);
        self.list.push(word.into());
        self.bytes += word.len();
        self.made = None;
        key
    }

    /// The rows so far.
    pub fn keys(&mut self) -> &mut Int32Builder {
        &mut self.keys
    }

    /// A number that changes when keys do.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The rows so far as a column. It begins anew.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let list = self
            .made
            .get_or_insert_with(|| Arc::new(StringArray::from_iter_values(&self.list)));
        let column = DictionaryArray::<Int32Type>::try_new(self.keys.finish(), Arc::clone(list))?;
        if self.bytes > MOST {
            self.generation += 1;
            self.bytes = 0;
            self.known.clear();
            self.list.clear();
            self.made = None;
        }
        Ok(Arc::new(column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::Array;

    #[test]
    fn keys_hold_from_batch_to_batch() {
        let mut w = Words::default();
        let (a, b) = (w.key("a"), w.key("b"));
        assert_ne!(a, b);
        w.keys().append_slice(&[b, a, b]);
        let first = w.finish().unwrap();
        let c = w.key("c");
        assert_eq!(w.key("b"), b);
        w.keys().append_value(c);
        w.keys().append_null();
        w.keys().append_value(a);
        let second = w.finish().unwrap();
        let texts = |array: &ArrayRef| -> Vec<Option<String>> {
            let all = array.as_any().downcast_ref::<DictionaryArray<Int32Type>>();
            let all = all.unwrap().downcast_dict::<StringArray>().unwrap();
            all.into_iter().map(|t| t.map(str::to_owned)).collect()
        };
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(texts(&first), [some("b"), some("a"), some("b")]);
        assert_eq!(texts(&second), [some("c"), None, some("a")]);
        assert_eq!(second.len(), 3);
        // A long list ends with its batch.
        assert_eq!(w.generation(), 0);
        w.key(&"x".repeat(MOST));
        assert_eq!(w.key("b"), b);
        w.keys().append_value(b);
        assert_eq!(texts(&w.finish().unwrap()), [some("b")]);
        assert_eq!((w.generation(), w.key("c")), (1, 0));
    }
}
