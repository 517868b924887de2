//! Bounds that several files share.

/// A worker has a place for a link for each of a server's databases.
pub const DATABASES_MAX: usize = 1024;
/// How many seconds' worth of bytes may be owed of what `proxy-bandwidth-limit` allows: a reply that is longer than all that holds clients back for no longer.
pub const DEBT_S: i64 = 10;
/// What was not used of that counts for one part of so many of a second.
pub const CREDIT_PART: i64 = 10;
/// The most clients whose turn comes at once: those behind them are to wait for what these move.
pub const TURNS_MAX: usize = 256;
