//! The subscribers of one channel or pattern.

use net::client::Client;
use std::sync::Arc;

/// Sessions in ascending order of their numbers, so that one is found by bisection
/// among many. Mostly they come in that order, too.
#[derive(Default)]
pub struct Subscribers(Vec<Arc<Client>>);

impl Subscribers {
    /// Adds a session, unless it is there.
    pub fn add(&mut self, client: &Arc<Client>) {
        if let Err(place) = self.place_of(client) {
            self.0.insert(place, client.clone());
        }
    }

    /// Takes a session out, if it is there.
    pub fn remove(&mut self, client: &Client) {
        if let Ok(place) = self.place_of(client) {
            self.0.remove(place);
            if self.0.len() < self.0.capacity() / 4 {
                self.0.shrink_to(self.0.len() * 2);
            }
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Client>> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn place_of(&self, client: &Client) -> Result<usize, usize> {
        self.0.binary_search_by_key(&client.id, |known| known.id)
    }
}
