//! What clients may be owed and take, as the configuration has it.

use config::{ClientClass, ClientsMemory, Config};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stands for no limit.
const UNLIMITED: u64 = u64::MAX;

/// The limits of all clients. They follow the configuration when it has changed.
pub(super) struct Limits {
    /// The hard limit of each class, in bytes; 0 is none.
    output_hard_bytes: [AtomicU64; 3],
    /// See [`Limits::memory_bytes`].
    memory_bytes: AtomicU64,
    /// Whether `maxmemory-clients` says so.
    is_explicit: AtomicBool,
}

impl Default for Limits {
    /// None at all.
    fn default() -> Limits {
        Limits {
            output_hard_bytes: Default::default(),
            memory_bytes: AtomicU64::new(UNLIMITED),
            is_explicit: AtomicBool::new(false),
        }
    }
}

impl Limits {
    /// Takes over what the configuration says.
    pub(super) fn follow(&self, config: &Config) {
        for class in [ClientClass::Normal, ClientClass::Replica, ClientClass::Pubsub] {
            let bytes = config.output_limit(class).hard_bytes;
            self.output_hard_bytes[class as usize].store(bytes, Ordering::Relaxed);
        }
        self.memory_bytes.store(super::eviction::limit_bytes(config).unwrap_or(UNLIMITED), Ordering::Relaxed);
        let is_explicit = config.maxmemory_clients() != ClientsMemory::Unlimited;
        self.is_explicit.store(is_explicit, Ordering::Relaxed);
    }

    /// What a client of a class may be owed, in bytes; 0 stands for no limit.
    #[inline]
    pub(super) fn output_hard_bytes(&self, class: ClientClass) -> u64 {
        self.output_hard_bytes[class as usize].load(Ordering::Relaxed)
    }

    /// What all clients together may take; None: there is no limit.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        Some(self.memory_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != UNLIMITED)
    }

    /// Whether clients have a limit of their own, rather than that of all memory.
    pub(super) fn is_explicit(&self) -> bool {
        self.is_explicit.load(Ordering::Relaxed)
    }
}
