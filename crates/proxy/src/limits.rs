//! Bounds that several files share.

/// A worker has a place for a link for each of a server's databases.
pub const DATABASES_MAX: usize = 1024;
