//! Requests for one thread of the generator: what every workload must offer.

use sys::Prng;

/// A thread's part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which thread, from 0.
    pub thread: u32,
    /// How many threads there are.
    pub threads: u32,
    /// Its connections.
    pub connections: u32,
    /// Connections of the threads before it.
    pub connections_before: u32,
    /// Connections of all threads.
    pub connections_total: u32,
    /// Operations of all threads, if that is how the run ends.
    pub operations_total: Option<u64>,
}

impl Share {
    /// Divides connections among threads, as evenly as may be.
    pub fn divide(threads: u32, connections: u32, operations_total: Option<u64>) -> Vec<Share> {
        let part = |thread: u32| connections / threads + u32::from(thread < connections % threads);
        let before = |thread: u32| (0..thread).map(part).sum();
        (0..threads)
            .map(|thread| Share {
                thread,
                threads,
                connections: part(thread),
                connections_before: before(thread),
                connections_total: connections,
                operations_total,
            })
            .collect()
    }

    /// This thread's part of a number of operations: those whose number leaves the thread's as remainder.
    pub fn part_of(&self, operations: u64) -> u64 {
        let threads = u64::from(self.threads);
        operations / threads + u64::from(u64::from(self.thread) < operations % threads)
    }

    /// The thread's random numbers.
    pub fn prng(&self, seed: u64) -> Prng {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        Prng::from_seed(seed ^ u64::from(self.thread + 1).wrapping_mul(SPREAD))
    }
}

/// What has to happen when the replies of a request are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing: the operation is complete.
    Nothing,
    /// The operation is complete, and this thread's insert of this number has been answered.
    Inserted(u64),
    /// The record that has been read is to be written.
    Update(u64),
    /// The records whose keys are in the reply are to be read.
    ReadAll,
}

/// An operation, or a step of one, whose requests have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Index into [`super::Work::kinds`].
    pub kind: u8,
    /// How many replies it gets, at least 1.
    pub replies: u32,
    /// Whether an empty reply means that something is missing that should be there.
    pub must_exist: bool,
    /// What comes after.
    pub then: Then,
}

impl Issued {
    /// One request that is all of its operation.
    pub fn single(kind: u8) -> Issued {
        Issued { kind, replies: 1, must_exist: false, then: Then::Nothing }
    }
}

/// Writes a thread's requests.
pub trait Feed: Send {
    /// Appends the next operation's first step for the thread's connection of this number.
    fn issue(&mut self, connection: usize, out: &mut Vec<u8>) -> Issued;

    /// Called when the replies to a step with something [`Then`] are in; `reply` is the last one, whole, if the
    /// step was [`Then::ReadAll`], and else empty. Appends the next step and returns it, or returns none if the
    /// operation is complete.
    fn follow(&mut self, _then: Then, _reply: &[u8], _out: &mut Vec<u8>) -> Option<Issued> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_operations_are_divided_without_rest() {
        let shares = Share::divide(3, 50, Some(100));
        assert_eq!(shares.iter().map(|share| share.connections).collect::<Vec<_>>(), [17, 17, 16]);
        assert_eq!(shares[2].connections_before, 34);
        assert_eq!(shares.iter().map(|share| share.part_of(100)).collect::<Vec<_>>(), [34, 33, 33]);
    }
}
