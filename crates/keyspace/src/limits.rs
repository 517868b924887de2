//! The keyspace's limits and the reasons for them.

/// Strings longer than this live outside their object's block, where they grow
/// with spare room. Up to here, copying a string when its size class changes is
/// cheaper than a second allocation and a second cache miss.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Spare room that a long string gets when it grows, unless an eighth of it is more.
pub const SPARE_BYTES_MIN: usize = 1 << 20;

/// Redis' longest "embstr" string (`OBJ_ENCODING_EMBSTR_SIZE_LIMIT`).
pub const EMBSTR_BYTES_MAX: usize = 44;

/// The most keys that one step of an expiry sweep frees under a slot's lock.
pub const SWEEP_KEYS_MAX: usize = 256;

/// The most keys that one call of eviction frees: some milliseconds' work.
pub const EVICT_KEYS_MAX: usize = 1024;

/// As how many of these a key counts that is on disk: it is read first.
pub const EVICT_COLD_COST: usize = 64;

/// How often eviction samples anew because every candidate had gone or been used
/// meanwhile, before it counts as unable to free a key.
pub const EVICT_ROUNDS_MAX: usize = 16;

/// Candidates for eviction that are remembered from one sample to the next.
pub const POOL_CANDIDATES_MAX: usize = 16;

/// Neighbours from which RANDOMKEY picks one: with slots of few keys, so many
/// that the empty slots before a key hardly change its chance.
pub const RANDOM_KEY_SAMPLES: usize = 32;

/// The most keys that one sample visits while it leaves expired ones out.
pub const SAMPLE_VISITS_MAX: usize = 4096;

/// Keys of a database that may be shadowing at once (see `residency`): they cannot be sent away. Some tenths of a second's worth of
/// reads of a good disk; beyond, commands wait for theirs.
pub const SHADOWING_MAX: u64 = 1 << 14;

/// Of them those that a worker remembers until it has them read.
pub const SHADOWED_NAMES_MAX: usize = 1 << 12;

/// Shadowing keys that are resolved in one stay in a slot that is being spilled: each is a read under the slot's lock.
pub const SPILL_RESOLVES_MAX: usize = 8;

/// Keys whose time to live is averaged for INFO.
pub const TTL_SAMPLES: usize = 64;
