//! Workers at work on the same few keys at once: single and multi-key commands,
//! exclusive sections, scans, sweeps and evictions. At the end the counts are
//! those of the contents, and no transfer has lost or made money.

use keyspace::{
    Ahead, DbIndex, Eviction, Expiry, KeyHasher, Keyspace, NewValue, Options, Progress, Touch, ValueRef,
};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::{Prng, UnixMs};

const WORKERS: usize = 4;
const ACCOUNTS: u64 = 6;
const START: i64 = 1000;
const NOW: u64 = 1_700_000_000_000;
/// Accounts lie here, temporary keys in the other databases.
const BANK: DbIndex = DbIndex(0);
const TEMPORARY: u64 = 40;

fn steps() -> u64 {
    std::env::var("TARN_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(6000)
}

fn balance(value: ValueRef<'_>) -> i64 {
    match value {
        ValueRef::Int(number) => number,
        _ => panic!("accounts hold integers"),
    }
}

struct Worker<'k> {
    keyspace: &'k Keyspace,
    number: usize,
    prng: Prng,
    clock: &'k AtomicU64,
}

impl Worker<'_> {
    fn run(&mut self) {
        for _ in 0..steps() {
            match self.prng.below(100) {
                0..40 => self.transfer(),
                40..75 => self.use_temporary_keys(),
                75..80 => self.sweep(),
                80..85 => self.evict(),
                85..95 => self.scan(),
                95..98 => self.audit(),
                _ => self.swap_or_clear(),
            }
        }
    }

    fn now(&self) -> UnixMs {
        UnixMs(self.clock.load(Ordering::Relaxed))
    }

    fn transfer(&mut self) {
        let (from, to) = (self.prng.below(ACCOUNTS).to_le_bytes(), self.prng.below(ACCOUNTS).to_le_bytes());
        let batch = self.keyspace.enter(self.number);
        let keys = [self.keyspace.key(BANK, &from), self.keyspace.key(BANK, &to)];
        batch.prefetch(
            BANK,
            keys.iter().map(|key| Ahead { slot: key.slot, position: key.position, element: None }),
        );
        let mut edit = batch.edit(&keys, self.now(), Touch::Yes);
        for (key, by) in [(&keys[0], -1), (&keys[1], 1)] {
            let balance = balance(edit.get(key).expect("accounts are not evicted").value());
            edit.set(key, NewValue::Int(balance + by), Expiry::Keep);
        }
        edit.finish();
    }

    fn use_temporary_keys(&mut self) {
        let now = UnixMs(self.clock.fetch_add(1, Ordering::Relaxed));
        let name = self.prng.below(TEMPORARY).to_le_bytes();
        let batch = self.keyspace.enter(self.number);
        let key = self.keyspace.key(DbIndex(1 + self.prng.below(2) as u32), &name);
        batch.prefetch_slot(key.db, key.slot);
        batch.prefetch(
            key.db,
            std::iter::once(Ahead { slot: key.slot, position: key.position, element: None }),
        );
        let mut edit = batch.edit(&[key], now, Touch::Yes);
        match self.prng.below(5) {
            0 => drop(edit.take(&key)),
            1 => edit.bytes_mut(&key, self.prng.below(300) as usize).fill(7),
            _ => {
                edit.set(&key, NewValue::Bytes(&[1; 100]), Expiry::At(UnixMs(now.0 + self.prng.below(2000))))
            }
        }
        edit.finish();
    }

    fn sweep(&mut self) {
        let mut steps = 50;
        let has_budget = || {
            steps -= 1;
            steps > 0
        };
        let batch = self.keyspace.enter(self.number);
        let _: Progress = batch.sweep_expired(self.now(), has_budget, |db, _| assert_ne!(db, BANK));
    }

    fn evict(&mut self) {
        let used = std::cell::Cell::new(self.prng.below(3));
        let batch = self.keyspace.enter(self.number);
        let _ = batch.evict(
            self.now(),
            || used.get(),
            |db, _| {
                assert_ne!(db, BANK, "only expiring keys are evicted");
                used.set(used.get().saturating_sub(1));
            },
        );
    }

    fn scan(&mut self) {
        let batch = self.keyspace.enter(self.number);
        let mut accounts = 0;
        batch.for_each(BANK, self.now(), |_| accounts += 1);
        assert_eq!(accounts, ACCOUNTS);
        batch.try_random_key(DbIndex(1), self.now(), |_| ());
        batch.average_ttl_ms(DbIndex(1), self.now());
    }

    fn audit(&mut self) {
        let now = self.now();
        self.keyspace.enter(self.number).exclusively(now, Touch::No, |all| {
            let view = all.view();
            let names = (0..ACCOUNTS).map(u64::to_le_bytes);
            let sum: i64 = names
                .map(|name| view.peek(&self.keyspace.key(BANK, &name)).expect("an account is there"))
                .map(|object| balance(object.value()))
                .sum();
            assert_eq!(sum, START * ACCOUNTS as i64);
        });
    }

    fn swap_or_clear(&mut self) {
        let now = self.now();
        let swaps = self.prng.one_in(2);
        let cleared = self.keyspace.enter(self.number).exclusively(now, Touch::No, |all| {
            if swaps {
                all.swap(DbIndex(1), DbIndex(2));
                return None;
            }
            Some(all.clear(DbIndex(1)))
        });
        drop(cleared);
    }
}

#[test]
fn workers_on_the_same_keys_keep_counts_and_money() {
    let seed = std::env::var("TARN_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(sys::prng::entropy_seed);
    println!("TARN_SEED={seed}");
    let hasher = KeyHasher::from_seed(seed);
    let keyspace =
        Keyspace::new(Options { databases: 3, workers: WORKERS, guests: 0, hasher, seed, now: UnixMs(NOW) });
    keyspace.policy().set_eviction(Eviction::ExpiringLru);
    keyspace.policy().set_memory_bytes_max(1);
    for number in 0..ACCOUNTS {
        let name = number.to_le_bytes();
        let key = keyspace.key(BANK, &name);
        let batch = keyspace.enter(0);
        let mut edit = batch.edit(&[key], UnixMs(NOW), Touch::Yes);
        edit.set(&key, NewValue::Int(START), Expiry::Clear);
        edit.finish();
    }
    let clock = AtomicU64::new(NOW);
    std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let prng = Prng::from_seed(seed + number as u64);
            let mut worker = Worker { keyspace: &keyspace, number, prng, clock: &clock };
            scope.spawn(move || worker.run());
        }
    });
    let batch = keyspace.enter(0);
    for db in (0..3).map(DbIndex) {
        let (mut keys, mut expiring) = (0, 0);
        batch.for_each(db, UnixMs(0), |object| {
            keys += 1;
            expiring += u64::from(object.expires_at().is_some());
        });
        assert_eq!((keyspace.len(db), keyspace.expiring(db)), (keys, expiring));
    }
}
