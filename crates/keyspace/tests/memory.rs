//! Memory: what is freed goes back to the allocator, eviction stays under the
//! ceiling, the hot path allocates nothing, and a million keys expire in time.
//!
//! All in one test, because the allocator's counts are the whole program's.

use keyspace::{
    Change, DbIndex, Eviction, Expiry, Interest, KeyHasher, Keyspace, NewValue, Observer, Options,
    OutOfMemory, Progress, Touch,
};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use sys::UnixMs;
use sys::memory::{CountingAllocator, allocations_of_this_thread, used_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const DB: DbIndex = DbIndex(0);

fn new_keyspace() -> Keyspace {
    let hasher = KeyHasher::from_seed(1);
    Keyspace::new(Options { databases: 16, workers: 1, guests: 0, hasher, seed: 2, now: NOW })
}

fn set(keyspace: &Keyspace, number: u64, value: &[u8], expiry: Expiry) {
    let name = number.to_le_bytes();
    let key = keyspace.key(DB, &name);
    let batch = keyspace.enter(0);
    let mut edit = batch.edit(&[key], NOW, Touch::Yes);
    edit.set(&key, NewValue::Bytes(value), expiry);
    edit.finish();
}

#[test]
fn memory_is_given_back_and_the_ceiling_holds() {
    hot_path_allocates_nothing();
    many_keys_expire_at_once();
    eviction_stays_under_the_ceiling();
    what_is_told_of_evicted_keys_evicts_no_others();
}

fn hot_path_allocates_nothing() {
    let keyspace = new_keyspace();
    (0..1000).for_each(|number| set(&keyspace, number, b"some value or other", Expiry::Clear));
    let before = allocations_of_this_thread();
    (0..1000).for_each(|number| set(&keyspace, number, b"a value, no longer!", Expiry::Clear));
    let batch = keyspace.enter(0);
    for number in 0..2000u64 {
        let name = number.to_le_bytes();
        let key = keyspace.key(DB, &name);
        let view = batch.view(&[key], NOW, Touch::Yes);
        assert_eq!(view.get(&key).is_some(), number < 1000);
        view.finish();
    }
    assert_eq!(allocations_of_this_thread() - before, 0);
}

fn many_keys_expire_at_once() {
    // Unoptimised code gets fewer keys for the same time.
    let keys = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let keyspace = new_keyspace();
    set(&keyspace, u64::MAX, b"stays", Expiry::Clear);
    let before = used_bytes();
    (0..keys).for_each(|number| set(&keyspace, number, b"0123456789", Expiry::At(UnixMs(NOW.0 + 5000))));
    assert!(used_bytes() > before + keys * 40);
    let overhead = keyspace.enter(0).overhead_bytes() as u64;
    assert!(overhead < keys * 40 && overhead < used_bytes(), "{overhead} bytes of overhead");
    let later = UnixMs(NOW.0 + 5200);
    let start = Instant::now();
    let batch = keyspace.enter(0);
    assert_eq!(batch.sweep_expired(NOW, || true, |_, _| unreachable!("nothing is due")), Progress::Done);
    while batch.sweep_expired(later, budget(Duration::from_millis(5)), |_, _| {}) == Progress::More {}
    let took = start.elapsed();
    assert_eq!((keyspace.len(DB), keyspace.expiring(DB), keyspace.stats().expired.get()), (1, 0, keys));
    assert!(used_bytes() < before + (1 << 20), "{} bytes were kept", used_bytes() - before);
    assert!(took < Duration::from_secs(120), "it took {took:?}");
    println!("{keys} keys expired in {took:?}");
}

fn budget(span: Duration) -> impl FnMut() -> bool {
    let start = Instant::now();
    move || start.elapsed() < span
}

fn eviction_stays_under_the_ceiling() {
    let keyspace = new_keyspace();
    let ceiling = used_bytes() + (8 << 20);
    keyspace.policy().set_memory_bytes_max(ceiling);
    keyspace.policy().set_eviction(Eviction::AllLru);
    for number in 0..200_000 {
        let progress = keyspace.enter(0).evict(NOW, used_bytes, |_, _| {}).expect("there are keys to evict");
        assert_eq!(progress, Progress::Done);
        set(&keyspace, number, &[7; 200], Expiry::Clear);
        assert!(used_bytes() < ceiling + (1 << 16));
    }
    assert!(keyspace.len(DB) > 10_000);
    keyspace.policy().set_eviction(Eviction::ExpiringRandom);
    let full = keyspace.enter(0).evict(NOW, used_bytes, |_, _| {});
    assert!(full == Err(OutOfMemory) || used_bytes() <= ceiling);
}

/// Keeps ten copies of what it is told, as for ten clients that track all keys and read nothing.
#[derive(Default)]
struct Trackers(Mutex<Vec<[Vec<Change>; 10]>>);

impl Observer for Trackers {
    fn observe(&self, _: usize, changes: &[Change]) {
        self.0.lock().expect("nobody fails with it locked").push([(); 10].map(|()| changes.to_vec()));
    }

    fn observe_database(&self, _: usize, _: DbIndex, _: &dyn Fn(&[u8]) -> bool) {}
}

fn what_is_told_of_evicted_keys_evicts_no_others() {
    let keyspace = new_keyspace();
    keyspace.set_observer(Box::<Trackers>::default());
    keyspace.policy().set_eviction(Eviction::AllLru);
    (0..300).for_each(|number| set(&keyspace, number, &[7; 1000], Expiry::Clear));
    keyspace.set_interest(Interest::TRACKED, true);
    keyspace.policy().set_memory_bytes_max(used_bytes() - 40_000);
    let evict = || keyspace.enter(0).evict(NOW, used_bytes, |_, _| {});
    assert_eq!(evict(), Ok(Progress::Done));
    let evicted = keyspace.stats().evicted.get();
    assert!((30..=40).contains(&evicted), "{evicted} keys of a kilobyte went for 40 kB");
}
