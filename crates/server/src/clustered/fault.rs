//! Mistakes that tests plant in what a server makes of its cluster, so that they prove that they are found.
//!
//! Outside of tests none can be planted, and asking for one is a constant `false`.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A master serves though no config server has told it a topology that names it in its epoch.
    ServesUnnamed,
    /// A server that restarts serves by the topology in its directory.
    OldTopologyAtRestart,
    /// A topology is taken though there was a later one.
    EarlierIsTaken,
}

impl Fault {
    /// Whether this is the one that was planted.
    pub fn is(planted: Option<Fault>, fault: Fault) -> bool {
        cfg!(test) && planted == Some(fault)
    }
}
