//! The ways by which connections come to workers.
//!
//! Thread rule: any thread sends; each worker has the receiving end of its own.

use crate::placement::Placement;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What comes to one worker.
pub type Arrivals<A> = UnboundedReceiver<A>;

/// The ways to all workers, for arrivals of this kind.
pub struct Inboxes<A>(Arc<[UnboundedSender<A>]>);

impl<A> Clone for Inboxes<A> {
    fn clone(&self) -> Inboxes<A> {
        Inboxes(self.0.clone())
    }
}

impl<A> Inboxes<A> {
    /// For so many workers, with what comes to each.
    pub fn new(workers: usize) -> (Inboxes<A>, Vec<Arrivals<A>>) {
        let (inboxes, arrivals): (Vec<_>, Vec<_>) = (0..workers).map(|_| unbounded_channel()).unzip();
        (Inboxes(inboxes.into()), arrivals)
    }

    /// Sends a connection to `wanted`, or while that is occupied to another worker, where it counts from now on.
    /// False: the server ends.
    pub fn send(&self, placement: &Placement, wanted: usize, arrival: A) -> bool {
        let index = placement.seat(wanted);
        let is_sent = self.0[index].send(arrival).is_ok();
        if !is_sent {
            placement.leave(index);
        }
        is_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_is_counted_where_it_goes_to() {
        let (placement, (inboxes, mut arrivals)) = (Placement::new(3), Inboxes::new(3));
        placement.set_occupied(0, true);
        assert!(inboxes.send(&placement, 0, "one"));
        assert_eq!(arrivals[1].try_recv(), Ok("one"));
        assert_eq!((placement.connections(), placement.connections_of(1)), (1, 1));
    }

    #[test]
    fn whoever_comes_when_the_server_ends_is_not_counted() {
        let (placement, (inboxes, arrivals)) = (Placement::new(2), Inboxes::new(2));
        drop(arrivals);
        assert!(!inboxes.send(&placement, placement.home(), ()));
        assert_eq!(placement.connections(), 0);
    }
}
