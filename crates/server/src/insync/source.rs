//! What is known of the master that is followed, and of what is here.

use ::log::Lsn;
use replication::insync::{Epoch, LinkId, MemberId, Moment};

/// What the master has said last on a link.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    pub from: MemberId,
    pub epoch: Epoch,
    pub committed: Lsn,
    pub asked_at: Moment,
    pub is_member: bool,
}

/// What is followed of a master's stream.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The link on which its master speaks.
    pub link: LinkId,
    /// By which order it is followed.
    pub order: u64,
}

/// What is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// All that the stream comes to up to where it has come.
    Whole,
    /// What is here is not the shard's, unless that begins with it: a copy is wanted of a master's.
    Foreign,
    /// The same, and it may be a copy that is not whole.
    Torn,
    /// A copy was taken, and is whole when the stream has come so far; None: that is not known yet.
    Partial(Option<u64>),
}
