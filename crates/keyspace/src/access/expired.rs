//! The keys that an access found expired.

use crate::ids::{DbIndex, Key};
use std::collections::HashSet;

/// Up to so many keys are looked through one by one.
const FEW: usize = 16;

/// A key whose time was up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExpiredKey {
    /// Its database.
    pub db: DbIndex,
    /// Its bytes.
    pub key: Box<[u8]>,
}

/// Keys whose time was up, each once: a command may name a million.
#[derive(Default)]
pub(super) struct ExpiredKeys {
    /// In the order in which they were found.
    keys: Vec<ExpiredKey>,
    /// The same once they are more than [`FEW`].
    many: HashSet<ExpiredKey>,
}

impl ExpiredKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn has(&self, key: &Key<'_>) -> bool {
        if self.many.is_empty() {
            return self.keys.iter().any(|found| found.db == key.db && *found.key == *key.bytes);
        }
        self.many.contains(&ExpiredKey { db: key.db, key: key.bytes.into() })
    }

    /// Adds a key. False: it is there.
    pub(super) fn add(&mut self, key: &Key<'_>) -> bool {
        if self.has(key) {
            return false;
        }
        let found = ExpiredKey { db: key.db, key: key.bytes.into() };
        if self.keys.len() == FEW {
            self.many.extend(self.keys.iter().cloned());
        }
        if self.keys.len() >= FEW {
            self.many.insert(found.clone());
        }
        self.keys.push(found);
        true
    }

    pub(super) fn into_keys(self) -> Vec<ExpiredKey> {
        self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyHasher;

    #[test]
    fn each_key_is_added_once_in_the_order_in_which_they_come() {
        let hasher = KeyHasher::from_seed(1);
        let names: Vec<String> = (0..3 * FEW).map(|number| number.to_string()).collect();
        let mut keys = ExpiredKeys::default();
        for name in &names {
            let [key, other] = [0, 1].map(|db| hasher.key(DbIndex(db), name.as_bytes()));
            assert!(!keys.has(&key) && keys.add(&key));
            assert!(keys.has(&key) && !keys.add(&key) && !keys.has(&other));
        }
        assert!(names.iter().all(|name| !keys.add(&hasher.key(DbIndex(0), name.as_bytes()))));
        let found: Vec<_> = keys.into_keys().into_iter().map(|found| found.key).collect();
        assert!(found.iter().map(|key| &key[..]).eq(names.iter().map(String::as_bytes)));
    }
}
