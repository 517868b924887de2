//! What this server says that it is to those who ask for a Redis.

/// The version of Redis whose commands these are.
pub const REDIS_VERSION: &str = "7.2.4";
