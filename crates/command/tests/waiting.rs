//! A wait that is ended the moment it begins leaves nobody in the queues of its keys.

#![allow(clippy::unwrap_used)] // Tests may.

use command::{Args, Outcome, Sessions, Settings, Wait, Waiting, execute};
use keyspace::{DbIndex, Key, KeyHasher, KeyName, Keyspace, Options, Ticket, Touch};
use sys::UnixMs;
use wire::{Protocol, Reply, RequestBuf};

const NOW: UnixMs = UnixMs(1_700_000_000_000);

/// Somebody ends each wait as soon as it is known.
struct Unblocked<'k>(&'k Keyspace);

impl Sessions for Unblocked<'_> {
    fn ticket(&self) -> Ticket {
        7
    }

    fn begin_wait(&self, _: &Wait, _: &Args<'_>, keys: &[Key<'_>]) {
        assert_eq!(self.0.waiting().keys(), keys.len(), "whoever is known to wait is in all queues");
        let names: Vec<KeyName> = keys.iter().map(|key| (key.db, key.bytes.into())).collect();
        self.0.stop_waiting(self.ticket(), &names);
    }
}

#[test]
fn a_wait_that_is_ended_as_it_begins_leaves_nobody_in_a_queue() {
    let (hasher, settings) = (KeyHasher::from_seed(1), Settings::default());
    let keyspace = Keyspace::new(Options { databases: 1, workers: 1, guests: 0, hasher, seed: 1, now: NOW });
    for words in [
        &["BLPOP", "one", "two", "0"][..],
        &["BEXISTS", "LIST", "0", "one", "two"],
        &["XREAD", "BLOCK", "0", "STREAMS", "one", "two", "$", "$"],
    ] {
        let request = RequestBuf::from_args(words);
        let row = command::FAMILIES.iter().flat_map(|rows| rows.iter());
        let row = row.into_iter().find(|row| row.name.eq_ignore_ascii_case(words[0])).unwrap();
        let sessions = Unblocked(&keyspace);
        let args = Args {
            waiting: Waiting::Begins(&sessions),
            ..Args::new(request.as_request(), &keyspace, (DbIndex(0), NOW), &settings)
        };
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let outcome = execute(row, &mut keyspace.enter(0), &args, Touch::Yes, &mut reply).unwrap();
        assert!(matches!(outcome, Outcome::Blocked(_)), "{words:?}");
        assert_eq!(keyspace.waiting().keys(), 0, "{words:?}");
    }
}
