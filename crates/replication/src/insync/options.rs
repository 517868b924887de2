//! What an operator may set of an in-sync set, with the reasons for the defaults.

use std::time::Duration;

/// Settings of one member. All members of a shard should have the same; only availability depends on it, but for
/// `lease_max`, which bounds what members may have lent before they were started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The fewest members, the master among them, with which writes are taken: `min-sync-replicas` and one.
    pub members_min: usize,
    /// A member that has acknowledged nothing for so long is removed; so is one that has made nothing durable for so long
    /// though it was asked to.
    pub silence: Duration,
    /// How often the master is heard when there is nothing to say. A few fit into `silence` and `lease`.
    pub heartbeat: Duration,
    /// For how long an acknowledgement lets the master serve reads. Longer than `silence`, so that reads go on
    /// while a member that died is removed.
    pub lease: Duration,
    /// The longest lease that any earlier process at this node may have lent with other settings.
    pub lease_max: Duration,
    /// What a member waits beyond the lease and its hundredth. Covers the resolution of clocks.
    pub margin: Duration,
    /// A member that hears nothing from its master for so long proposes itself; `None` leaves that to a command.
    pub failover: Option<Duration>,
    /// After so long without an answer the store of decisions is asked again.
    pub answer: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            members_min: 1,
            silence: Duration::from_millis(500),
            heartbeat: Duration::from_millis(100),
            lease: Duration::from_secs(1),
            lease_max: Duration::from_secs(1),
            margin: Duration::from_millis(20),
            failover: None,
            answer: Duration::from_secs(1),
        }
    }
}
