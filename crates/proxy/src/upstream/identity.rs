//! Which cluster is behind the proxy, where config servers are named: whoever tells it first counts, and nobody is believed who tells of another.
//!
//! Thread rule: shared.

use parking_lot::Mutex;

/// A cluster's id; empty as long as nobody has told it.
#[derive(Default)]
pub struct ClusterId(Mutex<String>);

impl ClusterId {
    /// Somebody who is believed is of the cluster of this id.
    ///
    /// # Errors
    /// As [`ClusterId::look_at`].
    pub fn agree(&self, told: &str) -> Result<(), String> {
        let mut known = self.0.lock();
        if known.is_empty() {
            told.clone_into(&mut known);
        }
        look_at(&known, told)
    }

    /// What was told; empty: nothing was.
    pub fn known(&self) -> String {
        self.0.lock().clone()
    }

    /// Somebody who may be believed is.
    ///
    /// # Errors
    /// One sentence: it is another cluster.
    pub fn look_at(&self, told: &str) -> Result<(), String> {
        look_at(&self.0.lock(), told)
    }
}

fn look_at(known: &str, told: &str) -> Result<(), String> {
    match known.is_empty() || known == told {
        true => Ok(()),
        false => {
            Err(format!("it is of another cluster ({told}) than the one that was told of first ({known})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_tells_it_first_counts() {
        let id = ClusterId::default();
        assert_eq!(id.look_at("other"), Ok(()));
        assert_eq!([id.agree("one"), id.agree("one")], [Ok(()), Ok(())]);
        assert!(id.look_at("other").is_err());
        assert!(id.agree("other").is_err_and(|why| why.contains("another cluster (other)")));
        assert_eq!(id.agree("one"), Ok(()));
    }
}
