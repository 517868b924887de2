//! The hottest commands allocate nothing in steady state.

mod run;

use command::{Args, Settings, execute};
use keyspace::{DbIndex, KeyHasher, Keyspace, Options, Touch};
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
