//! No access and no batch ends with something said that is not in the journal, however it ends.

#![allow(clippy::unwrap_used)] // Tests may.

use keyspace::{
    Batch, DbIndex, Expiry, Journal, Key, KeyHasher, Keyspace, NewValue, Options, Span, Stamp, Touch,
    TypeName,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use sys::UnixMs;

const NOW: UnixMs = UnixMs(1_700_000_000_000);
const LATER: UnixMs = UnixMs(NOW.0 + 1_000);
const DB: DbIndex = DbIndex(0);

/// What was appended, record by record.
#[derive(Clone, Default)]
struct Records {
    records: Arc<Mutex<Vec<String>>>,
    has_no_room: Arc<AtomicBool>,
}

impl Records {
    fn take(&self) -> Vec<String> {
        self.records.lock().unwrap().drain(..).collect()
    }
}

impl Journal for Records {
    fn append(&self, span: Span, _now: UnixMs, requests: &[u8]) -> Stamp {
        let words = String::from_utf8_lossy(requests).replace("\r\n", " ");
        let words: Vec<&str> = words.split(' ').filter(|word| !word.starts_with(['*', '$'])).collect();
        self.records.lock().unwrap().push(format!("{}: {}", span.first.0, words.join(" ").trim()));
        self.end()
    }

    fn end(&self) -> Stamp {
        Stamp(self.records.lock().unwrap().len() as u64)
    }

    fn has_room(&self) -> bool {
        !self.has_no_room.load(Ordering::Relaxed)
    }
}

fn keyspace() -> (Keyspace, Records) {
    let (hasher, records) = (KeyHasher::from_seed(1), Records::default());
    let keyspace = Keyspace::new(Options { databases: 2, workers: 2, guests: 0, hasher, seed: 1, now: NOW });
    keyspace.set_journal(Box::new(records.clone()));
    (keyspace, records)
}

fn set(keyspace: &Keyspace, key: &Key<'_>, expiry: Expiry) {
    let batch = keyspace.enter(0);
    let mut edit = batch.edit(&[*key], NOW, Touch::Yes);
    edit.set(key, NewValue::from_bytes(b"v"), expiry);
    edit.say(key, &[b"SET", key.bytes]);
    edit.finish();
}

#[test]
fn what_a_dropped_view_found_expired_is_said_before_others_write() {
    let (keyspace, records) = keyspace();
    let key = keyspace.key(DB, b"k");
    set(&keyspace, &key, Expiry::At(UnixMs(NOW.0 + 10)));
    let found = |keyspace: &Keyspace| -> Option<()> {
        let batch = keyspace.enter(1);
        let view = batch.view(&[key], LATER, Touch::No);
        // As a handler does that gives up early.
        view.peek(&key).map(|_| ())
    };
    assert_eq!(found(&keyspace), None);
    assert!(keyspace.is_empty(DB), "it is freed, too");
    set(&keyspace, &key, Expiry::Clear);
    assert_eq!(records.take(), ["0: SET k", "0: DEL k", "0: SET k"]);
}

#[test]
fn what_was_said_under_a_dropped_edit_is_in_the_journal() {
    let (keyspace, records) = keyspace();
    let key = keyspace.key(DB, b"k");
    let batch = keyspace.enter(0);
    let mut edit = batch.edit(&[key], NOW, Touch::Yes);
    edit.set(&key, NewValue::from_bytes(b"v"), Expiry::Clear);
    edit.say(&key, &[b"SET", b"k"]);
    drop(edit);
    assert_eq!(records.take(), ["0: SET k"]);
}

#[test]
fn an_exchange_says_nothing_of_keys_between_two_numbers() {
    let (keyspace, records) = keyspace();
    let (here, there) = (keyspace.key(DB, b"k"), keyspace.key(DbIndex(1), b"k"));
    set(&keyspace, &here, Expiry::At(UnixMs(NOW.0 + 10)));
    set(&keyspace, &there, Expiry::Clear);
    {
        // Somebody waits for a list there.
        let batch = keyspace.enter(0);
        let view = batch.view(&[here], NOW, Touch::No);
        view.wait(7, &[here], TypeName::List, true);
        view.finish();
    }
    records.take();
    let mut batch = keyspace.enter(0);
    batch.exclusively(LATER, Touch::Yes, |all| all.swap(DB, DbIndex(1)));
    assert_eq!(batch.next_ready(), Some((DB, b"k"[..].into())), "the live key has come");
    batch.release();
    drop(batch);
    assert_eq!(records.take(), Vec::<String>::new());
    assert_eq!((keyspace.len(DB), keyspace.len(DbIndex(1))), (1, 1));
}

#[test]
fn removals_that_can_wait_do_not_gather_while_the_journal_has_no_room() {
    let (keyspace, records) = keyspace();
    let key = keyspace.key(DB, b"k");
    set(&keyspace, &key, Expiry::At(UnixMs(NOW.0 + 10)));
    records.take();
    records.has_no_room.store(true, Ordering::Relaxed);
    let look = || {
        let batch = keyspace.enter(0);
        let view = batch.view(&[key], LATER, Touch::No);
        assert!(view.get(&key).is_none(), "its time is up all the same");
        view.finish();
        let _ = batch.sweep_expired(LATER, || true, |_, _| panic!("it stays"));
    };
    (0..3).for_each(|_| look());
    assert_eq!((records.take().len(), keyspace.len(DB)), (0, 1));
    records.has_no_room.store(false, Ordering::Relaxed);
    look();
    assert_eq!((records.take(), keyspace.len(DB)), (vec!["0: DEL k".to_owned()], 0));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "has said nothing that is not in the journal")]
fn a_batch_that_leaves_something_behind_stops_a_debug_build() {
    let (keyspace, _records) = keyspace();
    let batch = keyspace.enter(0);
    batch.effects().unwrap().add(DB, NOW, [&b"DEL"[..], b"k"].into_iter());
}

#[test]
fn a_record_is_of_one_moment() {
    let (keyspace, records) = keyspace();
    let key = keyspace.key(DB, b"k");
    let mut batch = keyspace.enter(0);
    assert!(batch.try_hold(&[key]));
    let set = |batch: &Batch<'_>, now| {
        let mut edit = batch.edit(&[key], now, Touch::Yes);
        edit.set(&key, NewValue::from_bytes(b"v"), Expiry::Clear);
        edit.say(&key, &[b"SET", b"k"]);
        edit.finish();
    };
    batch.append_earlier(NOW);
    set(&batch, NOW);
    batch.append_earlier(NOW);
    set(&batch, NOW);
    batch.append_earlier(LATER);
    set(&batch, LATER);
    assert_eq!(records.take(), ["0: SET k SET k"], "as long as the batch holds what it is about");
    batch.release();
    assert_eq!(records.take(), ["0: SET k"]);
}

#[test]
fn nothing_is_said_to_a_journal_that_rests() {
    let (keyspace, records) = keyspace();
    let key = keyspace.key(DB, b"k");
    let rest = |rests| {
        let mut batch = keyspace.enter(1);
        batch.hold_all();
        keyspace.rest_journal(rests);
        batch.release();
    };
    for _ in 0..2 {
        rest(true);
        set(&keyspace, &key, Expiry::Clear);
        assert!(keyspace.enter(0).effects().is_none(), "nobody makes what nobody takes");
        assert!(records.take().is_empty());
        rest(false);
        set(&keyspace, &key, Expiry::Clear);
        assert_eq!(records.take(), ["0: SET k"]);
    }
}
