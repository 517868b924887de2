//! The hottest commands allocate nothing in steady state, and long values go from key to key without being said again.

mod run;

use command::{Args, Settings, execute};
use keyspace::{DbIndex, Journal, KeyHasher, Keyspace, Options, Span, Stamp, Touch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::UnixMs;
use sys::memory::{CountingAllocator, allocations_of_this_thread};
use wire::{Protocol, Reply, RequestBuf, split_words};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Allocations of the command's second run.
fn allocations_of(setup: &str, line: &str) -> u64 {
    let (hasher, now) = (KeyHasher::from_seed(1), run::START);
    let keyspace = Keyspace::new(Options { databases: 1, workers: 1, guests: 0, hasher, seed: 1, now });
    let settings = Settings::default();
    let mut out = Vec::with_capacity(4096);
    let mut batch = keyspace.enter(0);
    let mut count = 0;
    for line in [setup, line, line] {
        let request = RequestBuf::from_args(split_words(line.as_bytes()).expect("quotes match"));
        let request = request.as_request();
        let row = run::find_row(request.arg(0), None).expect("the command is there");
        let args = Args::new(request, &keyspace, (DbIndex(0), now), &settings);
        let before = allocations_of_this_thread();
        let executed =
            execute(row, &mut batch, &args, Touch::Yes, &mut Reply::new(&mut out, Protocol::Resp2));
        count = allocations_of_this_thread() - before;
        assert!(executed.is_ok(), "{line}");
    }
    count
}

#[test]
fn hot_commands_allocate_nothing_in_steady_state() {
    for (setup, line) in [
        ("SET k v", "GET k"),
        ("SET k v", "GET missing"),
        ("SET k v", "SET k w"),
        ("SET k v EX 10", "SET k w EX 10"),
        ("SET k 12", "SET k abcdefgh"),
        ("SET k 1", "INCR k"),
        ("SET k 1 EX 10", "INCRBY k 1000000000000"),
        ("SET k v", "SETNX k w"),
        ("SETRANGE k 100 x", "SETRANGE k 50 y"),
        ("SETBIT k 1000 1", "SETBIT k 500 1"),
        ("SET k abcdef", "STRLEN k"),
        ("SET k abcdef", "GETRANGE k 1 2"),
        ("SETBIT k 1000 1", "BITFIELD k INCRBY u8 100 1 GET u4 0"),
        ("SETBIT k 1000 1", "BITCOUNT k"),
        ("RPUSH k a b c d", "LRANGE k 0 -1"),
        ("RPUSH k a b c d", "LSET k 1 e"),
        ("RPUSH k a b c d", "LPOP k"),
        ("RPUSH k a b c d", "LMOVE k k LEFT RIGHT"),
    ] {
        assert_eq!(allocations_of(setup, line), 0, "{line}");
    }
}

/// Counts the bytes that are appended.
#[derive(Clone, Default)]
struct Bytes(Arc<AtomicU64>);

impl Journal for Bytes {
    fn append(&self, _: Span, _: UnixMs, requests: &[u8]) -> Stamp {
        Stamp(self.0.fetch_add(requests.len() as u64, Ordering::Relaxed) + requests.len() as u64)
    }

    fn end(&self) -> Stamp {
        Stamp(self.0.load(Ordering::Relaxed))
    }
}

#[test]
fn a_long_value_goes_elsewhere_with_few_allocations_and_a_short_record() {
    let (hasher, now) = (KeyHasher::from_seed(1), run::START);
    let keyspace = Keyspace::new(Options { databases: 2, workers: 1, guests: 0, hasher, seed: 1, now });
    let (settings, bytes) = (Settings::default(), Bytes::default());
    keyspace.set_journal(Box::new(bytes.clone()));
    // Databases and tables are made by those that come first.
    for (line, is_counted) in [
        ("SETRANGE k 50000000 x", false),
        ("RENAME k l", false),
        ("RENAME l k", true),
        ("MOVE k 1", false),
        ("SETRANGE k 50000000 x", false),
        ("RENAMENX k l", true),
        ("COPY l k", true),
    ] {
        let request = RequestBuf::from_args(split_words(line.as_bytes()).expect("quotes match"));
        let request = request.as_request();
        let row = run::find_row(request.arg(0), None).expect("the command is there");
        let args = Args::new(request, &keyspace, (DbIndex(0), now), &settings);
        let mut out = Vec::new();
        let before = (allocations_of_this_thread(), bytes.0.load(Ordering::Relaxed));
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        assert!(execute(row, &mut keyspace.enter(0), &args, Touch::Yes, &mut reply).is_ok());
        let allocations = allocations_of_this_thread() - before.0;
        let appended = bytes.0.load(Ordering::Relaxed) - before.1;
        assert!(appended < 100, "{line} appends {appended} bytes");
        assert!(!is_counted || allocations < 20, "{line} allocates {allocations} times");
    }
}
