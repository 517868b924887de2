//! Which cluster is behind the proxy, where config servers are named: whoever tells it first counts, and nobody is believed who tells of another.
//!
//! Thread rule: shared.

use parking_lot::Mutex;

/// A cluster's id.
#[derive(Default)]
pub struct ClusterId(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Empty as long as nobody has told it.
    id: String,
    /// A node has: nodes are of a version that does.
    is_told_by_nodes: bool,
}

impl ClusterId {
    /// Somebody who is believed is of the cluster of this id.
    ///
    /// # Errors
    /// As [`ClusterId::look_at`].
    pub fn agree(&self, told: &str) -> Result<(), String> {
        let mut known = self.0.lock();
        if known.id.is_empty() {
            told.clone_into(&mut known.id);
        }
        look_at(&known.id, told)
    }

    /// A node says of which cluster it is, or does not tell it. One that does not is believed as long as no other has told it.
    ///
    /// # Errors
    /// One sentence: it is of another cluster, or may be.
    pub fn agree_with_node(&self, told: Option<&str>) -> Result<(), String> {
        match told {
            Some(told) => {
                self.agree(told)?;
                self.0.lock().is_told_by_nodes = true;
                Ok(())
            }
            None if self.0.lock().is_told_by_nodes => {
                Err("it does not tell of which cluster it is, as others did".to_owned())
            }
            None => Ok(()),
        }
    }

    /// What was told; empty: nothing was.
    pub fn known(&self) -> String {
        self.0.lock().id.clone()
    }

    /// Somebody who may be believed is.
    ///
    /// # Errors
    /// One sentence: it is another cluster.
    pub fn look_at(&self, told: &str) -> Result<(), String> {
        look_at(&self.0.lock().id, told)
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

    #[test]
    fn who_does_not_tell_it_is_believed_until_another_does() {
        let id = ClusterId::default();
        assert_eq!([id.agree("one"), id.agree_with_node(None)], [Ok(()), Ok(())]);
        assert!(id.agree_with_node(Some("other")).is_err() && id.agree_with_node(None).is_ok());
        assert_eq!(id.agree_with_node(Some("one")), Ok(()));
        assert!(id.agree_with_node(None).is_err());
    }
}
