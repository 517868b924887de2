//! Named limits of commands, each with its reason.
//!
//! Limits that a directive sets are in `settings`; these are fixed.

/// How many elements a reply may hold that were picked by chance and may repeat (a
/// negative count of SRANDMEMBER, HRANDFIELD or ZRANDMEMBER). Redis has no limit here but its patience: the reply
/// is as long as the number says, whatever the size of the collection.
pub const RANDOM_REPEATED_MAX: i64 = 1 << 27;
