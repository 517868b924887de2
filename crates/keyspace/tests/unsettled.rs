//! What a batch does is there to be seen without a lock when it is in the journal, and not before: counts, and which slots are empty.

#![allow(clippy::unwrap_used)] // Tests may.

use keyspace::{
    Batch, Cursor, DbIndex, Expiry, Journal, Key, KeyHasher, Keyspace, NewValue, Options, Span, Stamp, Touch,
    when_stuck,
};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use sys::UnixMs;

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const SOON: UnixMs = UnixMs(NOW.0 + 10);
const LATER: UnixMs = UnixMs(NOW.0 + 1_000);
const DB: DbIndex = DbIndex(0);
const OTHER: DbIndex = DbIndex(1);

/// How many records were appended.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU64>);

impl Journal for Count {
    fn append(&self, _span: Span, _now: UnixMs, _requests: &[u8]) -> Stamp {
        Stamp(self.0.fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn end(&self) -> Stamp {
        Stamp(self.0.load(Ordering::Acquire))
    }
}

/// A keyspace with a key "k" in the first database, which soon expires, and two keys in the other.
fn keyspace() -> (Keyspace, Count) {
    let (hasher, count) = (KeyHasher::from_seed(1), Count::default());
    let keyspace = Keyspace::new(Options { databases: 2, workers: 2, guests: 0, hasher, seed: 1, now: NOW });
    keyspace.set_journal(Box::new(count.clone()));
    for (db, name, expiry) in
        [(DB, "k", Expiry::At(SOON)), (OTHER, "a", Expiry::Clear), (OTHER, "b", Expiry::Clear)]
    {
        set(&keyspace.enter(0), &keyspace.key(db, name.as_bytes()), expiry);
    }
    (keyspace, count)
}

fn set(batch: &Batch<'_>, key: &Key<'_>, expiry: Expiry) {
    let mut edit = batch.edit(&[*key], NOW, Touch::Yes);
    edit.set(key, NewValue::from_bytes(b"v"), expiry);
    edit.say(key, &[b"SET", key.bytes]);
    edit.finish();
    batch.count_write();
}

fn remove(batch: &Batch<'_>, key: &Key<'_>) {
    let mut edit = batch.edit(&[*key], NOW, Touch::Yes);
    assert!(edit.remove(key));
    edit.say(key, &[b"DEL", key.bytes]);
    edit.finish();
    batch.count_write();
}

/// All that is counted, as somebody sees it who locks nothing.
fn seen(keyspace: &Keyspace) -> [u64; 5] {
    let [keys, others] = [DB, OTHER].map(|db| keyspace.len(db));
    let [expiring, others_expiring] = [DB, OTHER].map(|db| keyspace.expiring(db));
    [keys, expiring, others, others_expiring, keyspace.writes()]
}

/// The same but for what commands are counted, as the batch sees it itself.
fn seen_by(batch: &Batch<'_>) -> [u64; 4] {
    [batch.len(DB), batch.expiring(DB), batch.len(OTHER), batch.expiring(OTHER)]
}

/// What is done, what it is done under, and what is counted then.
type Deed = (&'static str, fn(&mut Batch<'_>), [u64; 4]);

const DEEDS: &[Deed] = &[
    ("a new key", |batch| set(batch, &batch.keyspace().key(DB, b"new"), Expiry::Clear), [2, 1, 2, 0]),
    ("a removed key", |batch| remove(batch, &batch.keyspace().key(DB, b"k")), [0, 0, 2, 0]),
    ("no expiry", |batch| set(batch, &batch.keyspace().key(DB, b"k"), Expiry::Clear), [1, 0, 2, 0]),
    (
        "an expired key",
        |batch| {
            let key = batch.keyspace().key(DB, b"k");
            batch.view(&[key], LATER, Touch::Yes).finish();
            assert!(batch.view(&[key], LATER, Touch::Yes).get(&key).is_none());
        },
        [0, 0, 2, 0],
    ),
    (
        "a cleared database",
        |batch| {
            let key = batch.keyspace().key(DB, b"k");
            batch.exclusively(NOW, Touch::Yes, |all| {
                drop(all.clear(DB));
                all.edit().say(&key, &[b"FLUSHDB"]);
            });
        },
        [0, 0, 2, 0],
    ),
    (
        "exchanged databases",
        |batch| {
            let key = batch.keyspace().key(DB, b"k");
            batch.exclusively(NOW, Touch::Yes, |all| {
                all.swap(DB, OTHER);
                all.edit().say(&key, &[b"SWAPDB", b"0", b"1"]);
            });
        },
        [2, 0, 1, 1],
    ),
    (
        "a key that came and went",
        |batch| {
            let key = batch.keyspace().key(DB, b"new");
            set(batch, &key, Expiry::At(SOON));
            remove(batch, &key);
        },
        [1, 1, 2, 0],
    ),
];

#[test]
fn what_is_held_is_counted_for_others_when_it_is_in_the_journal() {
    for (what, deed, after) in DEEDS {
        for holds_all in [false, true] {
            let (keyspace, count) = keyspace();
            let before = seen(&keyspace);
            assert_eq!(before, [1, 1, 2, 0, 3]);
            let mut batch = keyspace.enter(0);
            // What concerns whole databases holds everything.
            match holds_all || what.contains("database") {
                true => batch.hold_all(),
                false => batch.hold(&[keyspace.key(DB, b"k"), keyspace.key(DB, b"new")]),
            }
            deed(&mut batch);
            assert_eq!((seen(&keyspace), count.end()), (before, Stamp(3)), "{what}");
            assert_eq!(seen_by(&batch), *after, "{what}, for itself");
            batch.release();
            assert_eq!((&seen(&keyspace)[..4], count.end()), (&after[..], Stamp(4)), "{what}, afterwards");
            drop(batch);
            assert_eq!(seen_by(&keyspace.enter(1)), *after);
        }
    }
}

#[test]
fn what_a_command_does_is_counted_for_others_when_it_has_ended() {
    let (keyspace, _count) = keyspace();
    let before = seen(&keyspace);
    let batch = keyspace.enter(0);
    let keys = [keyspace.key(DB, b"k"), keyspace.key(OTHER, b"k")];
    let mut edit = batch.edit(&keys, NOW, Touch::Yes);
    let moved = edit.take(&keys[0]).unwrap();
    edit.put(&keys[1], moved, Some(SOON));
    edit.say(&keys[0], &[b"MOVE", b"k", b"1"]);
    assert_eq!(seen(&keyspace), before);
    edit.finish();
    assert_eq!(seen(&keyspace), [0, 0, 3, 1, 3]);
}

#[test]
fn a_dropped_edit_is_counted_as_one_that_is_finished() {
    let (keyspace, count) = keyspace();
    let key = keyspace.key(DB, b"new");
    let batch = keyspace.enter(0);
    let mut edit = batch.edit(&[key], NOW, Touch::Yes);
    edit.set(&key, NewValue::from_bytes(b"v"), Expiry::Clear);
    edit.say(&key, &[b"SET", b"new"]);
    drop(edit);
    assert_eq!((keyspace.len(DB), count.end()), (2, Stamp(4)));
}

/// What a walk found, and where the journal ended behind it.
#[derive(Debug, PartialEq, Eq)]
enum Walked {
    /// It waits for a lock.
    Waits,
    Found(Vec<Vec<u8>>, Stamp),
}

thread_local! {
    static SAY: RefCell<Option<mpsc::Sender<Walked>>> = const { RefCell::new(None) };
}

fn say(walked: Walked) {
    SAY.with_borrow(|sender| drop(sender.as_ref().unwrap().send(walked)));
}

type Walk = fn(&Batch<'_>) -> Vec<Vec<u8>>;

const WALKS: &[(&str, Walk)] = &[
    ("SCAN", |batch| {
        let mut found = Vec::new();
        let end = batch.try_scan(DB, Cursor(0), 100, NOW, |object| found.push(object.key().to_vec()));
        assert_eq!(end, Some(Cursor(0)));
        found
    }),
    ("KEYS", |batch| {
        let mut found = Vec::new();
        batch.for_each(DB, NOW, |object| found.push(object.key().to_vec()));
        found
    }),
    ("RANDOMKEY", |batch| {
        batch.try_random_key(DB, NOW, |_| ()).flatten().into_iter().map(Vec::from).collect()
    }),
];

#[test]
fn a_slot_that_was_emptied_is_not_passed_by_before_that_is_in_the_journal() {
    for (name, walk) in WALKS {
        for holds_all in [false, true] {
            let (keyspace, count) = keyspace();
            let key = keyspace.key(DB, b"k");
            let mut batch = keyspace.enter(0);
            match holds_all {
                true => batch.hold_all(),
                false => batch.hold(&[key]),
            }
            remove(&batch, &key);
            thread::scope(|scope| {
                let (sender, said) = mpsc::channel();
                scope.spawn(|| {
                    SAY.set(Some(sender));
                    when_stuck(|| say(Walked::Waits));
                    let found = walk(&keyspace.enter(1));
                    say(Walked::Found(found, count.end()));
                });
                assert_eq!(said.recv().unwrap(), Walked::Waits, "{name}");
                batch.release();
                drop(batch);
                let found = said.iter().find(|walked| *walked != Walked::Waits);
                assert_eq!(found, Some(Walked::Found(Vec::new(), Stamp(4))), "{name}");
            });
        }
    }
}
