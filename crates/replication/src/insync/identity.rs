//! Who and when: nodes, their data, epochs, links, and a node's own time.

use std::fmt;
use std::time::Duration;

/// A place at which a shard's data may be: a server with its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// One life of data: drawn when a directory's log began, or, without a log, when the process did. Who lost data has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u64);

/// What can be a member: data at a node. The same node with other data is somebody else, who knows nothing of what the
/// former had acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// Where the data is.
    pub node: NodeId,
    /// Which data it is.
    pub life: Life,
}

impl fmt::Display for MemberId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{:x}", self.node.0, self.life.0)
    }
}

/// One reign of one master. Rises with each promotion; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch that a promotion in this one begins.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

/// A connection between two nodes, which brings messages in order until it closes. A number is never used again by a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// A reading of a node's monotonic clock, in microseconds from anywhere. Means nothing to other nodes, except that spans
/// measured by any two nodes differ by less than 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// After all others.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// The moment so much later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; nothing if it is not over.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}
