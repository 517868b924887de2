//! What the keyspace is told about memory: the ceiling, whom to evict, and how
//! frequencies are counted. Changed by CONFIG SET while workers read.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// `maxmemory-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Eviction {
    /// Refuse writes instead.
    Never = 0,
    /// The least recently used key.
    AllLru = 1,
    /// The least recently used key among those with an expiry.
    ExpiringLru = 2,
    /// The least frequently used key.
    AllLfu = 3,
    /// The least frequently used key among those with an expiry.
    ExpiringLfu = 4,
    /// Any key.
    AllRandom = 5,
    /// Any key with an expiry.
    ExpiringRandom = 6,
    /// The key that expires soonest.
    SoonestExpiry = 7,
}

impl Eviction {
    const ALL: [Eviction; 8] = [
        Eviction::Never,
        Eviction::AllLru,
        Eviction::ExpiringLru,
        Eviction::AllLfu,
        Eviction::ExpiringLfu,
        Eviction::AllRandom,
        Eviction::ExpiringRandom,
        Eviction::SoonestExpiry,
    ];

    /// The name in redis.conf.
    pub fn name(self) -> &'static str {
        match self {
            Eviction::Never => "noeviction",
            Eviction::AllLru => "allkeys-lru",
            Eviction::ExpiringLru => "volatile-lru",
            Eviction::AllLfu => "allkeys-lfu",
            Eviction::ExpiringLfu => "volatile-lfu",
            Eviction::AllRandom => "allkeys-random",
            Eviction::ExpiringRandom => "volatile-random",
            Eviction::SoonestExpiry => "volatile-ttl",
        }
    }

    /// The policy with this name in redis.conf.
    pub fn from_name(name: &str) -> Option<Eviction> {
        Eviction::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether access clocks count frequencies instead of seconds.
    pub fn counts_frequency(self) -> bool {
        matches!(self, Eviction::AllLfu | Eviction::ExpiringLfu)
    }

    /// Whether any key is as good as another.
    pub fn is_random(self) -> bool {
        matches!(self, Eviction::AllRandom | Eviction::ExpiringRandom)
    }

    /// Whether only keys with an expiry are evicted.
    pub fn expiring_only(self) -> bool {
        use Eviction::*;
        matches!(self, ExpiringLru | ExpiringLfu | ExpiringRandom | SoonestExpiry)
    }
}

/// Why a key goes that no DEL or UNLINK asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// A command that is there for something else leaves nothing of it.
    Command,
    /// Its time is up, or was up already when a command set it.
    Expiry,
    /// There is no room.
    Eviction,
}

/// The policy in force. Each field is read alone, so relaxed order is enough.
#[derive(Debug)]
pub struct Policy {
    memory_bytes_max: AtomicU64,
    eviction: AtomicU8,
    samples: AtomicU32,
    lfu_log_factor: AtomicU32,
    lfu_decay_minutes: AtomicU32,
    /// By [`Removal`].
    unlinks: [AtomicBool; 3],
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            memory_bytes_max: AtomicU64::new(0),
            eviction: AtomicU8::new(Eviction::Never as u8),
            samples: AtomicU32::new(5),
            lfu_log_factor: AtomicU32::new(10),
            lfu_decay_minutes: AtomicU32::new(1),
            unlinks: Default::default(),
        }
    }
}

/// Getters and setters by redis.conf's directives.
impl Policy {
    /// `maxmemory` in bytes; 0 means no ceiling.
    #[inline]
    pub fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets `maxmemory`.
    pub fn set_memory_bytes_max(&self, bytes: u64) {
        self.memory_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// `maxmemory-policy`.
    #[inline]
    pub fn eviction(&self) -> Eviction {
        Eviction::ALL[usize::from(self.eviction.load(Ordering::Relaxed))]
    }

    /// Sets `maxmemory-policy`.
    pub fn set_eviction(&self, eviction: Eviction) {
        self.eviction.store(eviction as u8, Ordering::Relaxed);
    }

    /// What is said for the removal of a key: DEL, or UNLINK (`lazyfree-lazy-server-del`, `-expire`, `-eviction`). Both do the same
    /// here; a replica may free the one at once, and the other in the background.
    pub fn removal(&self, removal: Removal) -> &'static [u8] {
        if self.unlinks[removal as usize].load(Ordering::Relaxed) { b"UNLINK" } else { b"DEL" }
    }

    /// Sets which of the two [`Policy::removal`] is.
    pub fn set_unlinks(&self, removal: Removal, on: bool) {
        self.unlinks[removal as usize].store(on, Ordering::Relaxed);
    }

    /// `maxmemory-samples`.
    pub fn samples(&self) -> u32 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Sets `maxmemory-samples`.
    pub fn set_samples(&self, samples: u32) {
        self.samples.store(samples, Ordering::Relaxed);
    }

    /// `lfu-log-factor`.
    pub fn lfu_log_factor(&self) -> u32 {
        self.lfu_log_factor.load(Ordering::Relaxed)
    }

    /// Sets `lfu-log-factor`.
    pub fn set_lfu_log_factor(&self, factor: u32) {
        self.lfu_log_factor.store(factor, Ordering::Relaxed);
    }

    /// `lfu-decay-time` in minutes.
    pub fn lfu_decay_minutes(&self) -> u32 {
        self.lfu_decay_minutes.load(Ordering::Relaxed)
    }

    /// Sets `lfu-decay-time`.
    pub fn set_lfu_decay_minutes(&self, minutes: u32) {
        self.lfu_decay_minutes.store(minutes, Ordering::Relaxed);
    }
}
