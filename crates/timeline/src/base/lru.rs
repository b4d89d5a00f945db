//! A cache that is bounded in bytes. It evicts the least recently used values first.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values with their sizes. The cache evicts the least recently used ones first.
pub struct LruCache<K, V> {
    values: HashMap<K, (V, usize, u64)>,
    /// The keys, in the order of their last uses.
    used: BTreeMap<u64, K>,
    clock: u64,
    size: usize,
    most: usize,
}

impl<K: Copy + Eq + Hash, V: Clone> LruCache<K, V> {
    /// A cache for values of at most `most` bytes together. A single value may be larger.
    pub fn new(most: usize) -> LruCache<K, V> {
        LruCache {
            values: HashMap::new(),
            used: BTreeMap::new(),
            clock: 0,
            size: 0,
            most,
        }
    }

    pub fn get(&mut self, key: &K) -> Option<V> {
        let (value, _, used) = self.values.get_mut(key)?;
        self.used.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.used.insert(self.clock, *key);
        Some(value.clone())
    }

    /// Drops values.
    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.values.retain(|_, (value, size, used)| {
            let kept = keep(value);
            if !kept {
                self.size -= *size;
                self.used.remove(used);
            }
            kept
        });
    }

    pub fn put(&mut self, key: K, value: V, size: usize) {
        self.clock += 1;
        self.size += size;
        self.used.insert(self.clock, key);
        if let Some((_, size, used)) = self.values.insert(key, (value, size, self.clock)) {
            self.size -= size;
            self.used.remove(&used);
        }
        while self.size > self.most && self.values.len() > 1 {
            let Some((_, oldest)) = self.used.pop_first() else {
                return;
            };
            if let Some((_, size, _)) = self.values.remove(&oldest) {
                self.size -= size;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes() {
        let mut k = LruCache::new(10);
        for i in 0..3 {
            k.put(i, i, 3);
        }
        assert_eq!(k.get(&0), Some(0));
        k.put(3, 3, 4);
        assert_eq!(
            [0, 1, 2, 3].map(|i| k.get(&i).is_some()),
            [true, false, true, true]
        );
        k.put(3, 5, 1);
        assert_eq!((k.get(&3), k.size), (Some(5), 7));
        // A value that is larger than the limit is kept alone.
        k.put(4, 4, 100);
        assert_eq!((k.get(&4), k.values.len(), k.used.len()), (Some(4), 1, 1));
    }
}
