//! Who waits until a link takes requests again: in the order in which they came, and newcomers behind them.

use net::client::Client;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many requests a client may send when it is its turn.
const REQUESTS_IN_TURN: u32 = 8;

/// Those who wait, and those whose turn it is.
#[derive(Default)]
pub struct Turns {
    waiting: VecDeque<Arc<Client>>,
    /// By the numbers of clients that wait: None; whose turn it is: how many requests they may still send.
    known: HashMap<u64, Option<u32>>,
    /// Those whose turn came last.
    woken: Vec<u64>,
}

impl Turns {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a client may send a request, where there is room: nobody waits, or it is its turn.
    #[inline]
    pub fn may_go(&mut self, client: u64) -> bool {
        self.waiting.is_empty() || self.goes_in_turn(client)
    }

    fn goes_in_turn(&mut self, client: u64) -> bool {
        match self.known.get_mut(&client) {
            Some(Some(left)) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// A client waits.
    pub fn wait(&mut self, client: &Arc<Client>) {
        if self.known.insert(client.id, None) != Some(None) {
            self.waiting.push_back(client.clone());
        }
    }

    /// It is the turn of the next so many.
    pub fn wake(&mut self, count: usize) {
        // Who has not taken its turn by now has gone away, or has nothing more to send. Of those who wait nobody is looked at: they may be many, and this comes often.
        for id in self.woken.drain(..) {
            if matches!(self.known.get(&id), Some(Some(_))) {
                self.known.remove(&id);
            }
        }
        for _ in 0..count {
            let Some(client) = self.waiting.pop_front() else { break };
            self.known.insert(client.id, Some(REQUESTS_IN_TURN));
            self.woken.push(client.id);
            client.wake();
        }
        if self.waiting.is_empty() {
            (self.known, self.woken) = (HashMap::new(), Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::client::Client;
    use sys::UnixMs;

    fn client(id: u64) -> Arc<Client> {
        let nowhere = || "127.0.0.1:1".to_owned();
        Arc::new(Client::new(id, nowhere(), nowhere(), 0, (0, 0), UnixMs(0)))
    }

    #[test]
    fn who_came_first_goes_first_and_newcomers_behind() {
        let mut turns = Turns::default();
        assert!(turns.may_go(1));
        for id in [5, 2, 9] {
            turns.wait(&client(id));
            turns.wait(&client(id));
        }
        assert!(!turns.may_go(1), "others wait");
        turns.wake(1);
        assert!((0..REQUESTS_IN_TURN).all(|_| turns.may_go(5)));
        assert!(!turns.may_go(5), "its turn is over");
        turns.wait(&client(5));
        turns.wake(1);
        assert!(turns.may_go(2) && !turns.may_go(9));
        turns.wake(usize::MAX);
        assert!(turns.is_empty() && turns.may_go(1));
    }
}
