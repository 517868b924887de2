//! Reads of keys of several servers that no server can do alone: a copy of each key is fetched, and the command runs here, on the copies, by the server's
//! own handler. So its errors, the order of its elements and its bytes are the server's.
//!
//! Copies are what DUMP says, and lie in a keyspace that no client sees, under the keys' own names, while the command runs.
//!
//! Thread rule: each worker has a keyspace of its own.
//!
//! Invariants:
//! 1. The keyspace is empty between two commands.
//! 2. The copies for one request are no longer than `proxy-computed-bytes`, taken together.

use crate::joins::{Part, is_null, text_of};
use crate::upstream::{NodeNo, Routes};
use command::execute::key_positions;
use command::table::{Command, CommandId, Runs, find, get};
use command::{Args, Error, execute};
use keyspace::{Batch, DbIndex, HashSeed, Key, KeyHasher, Keyspace, Options, Touch};
use server::server::Server;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use sys::{UnixMs, prng::entropy_seed};
use wire::{Protocol, Reply, Request, RequestBuf, encode_request, key_slot};

/// The most words of a request: each key of it is a request to a server, and a part has a number of 16 bits.
pub const WORDS_MAX: usize = 16_384;

/// The database with the copies.
const DB: DbIndex = DbIndex(0);

/// A request that is done on copies of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    command: CommandId,
    protocol: Protocol,
    request: RequestBuf,
    /// Its keys, each once, in the order of the parts.
    keys: Vec<Vec<u8>>,
}

impl Computed {
    /// A request, and what is to be asked: a copy of each key. None: a slot is nobody's.
    pub fn begin(
        routes: &Routes,
        request: &Request<'_>,
        (command, protocol): (CommandId, Protocol),
    ) -> Option<(Computed, Vec<Part>)> {
        let keys = keys_of(get(command), request);
        let part = |key: &Vec<u8>| {
            let slot = key_slot(key);
            let mut bytes = Vec::new();
            encode_request(&mut bytes, &[b"DUMP", key]);
            Some((routes.of(slot)?, Some(slot), bytes))
        };
        let parts = keys.iter().map(part).collect::<Option<_>>()?;
        Some((Computed { command, protocol, request: RequestBuf::from_args(request.iter()), keys }, parts))
    }

    /// The one server that has all keys, where that is not one of a cluster, which takes one slot at a time.
    pub fn only_node(routes: &Routes, request: &Request<'_>, command: CommandId) -> Option<NodeNo> {
        let keys = keys_of(get(command), request);
        let nodes: BTreeSet<Option<NodeNo>> = keys.iter().map(|key| routes.of(key_slot(key))).collect();
        let only = nodes.first().copied().flatten();
        only.filter(|_| nodes.len() == 1 && !routes.is_cluster)
    }

    /// What the client gets, when the copies are there. None: they are none.
    pub fn answer(&self, copies: &[Vec<u8>]) -> Option<Vec<u8>> {
        with_scratch(|scratch| scratch.run(self, copies))?
    }

    /// What the client gets if the copies are longer than they may be.
    pub fn too_long(&self) -> Vec<u8> {
        let name = get(self.command).row.name;
        format!("-ERR proxy: '{name}' wants more than `proxy-computed-bytes` of keys of several slots\r\n")
            .into_bytes()
    }
}

/// How long the copies for one request may be.
pub fn bytes_max() -> usize {
    with_scratch(|scratch| scratch.host.engine.config.proxy_computed_bytes()).unwrap_or(usize::MAX)
}

/// Whether a request is in order where no key is there.
pub fn is_in_order(request: &Request<'_>) -> bool {
    let is_in_order = |scratch: &mut Scratch| {
        let now = scratch.host.engine.clock.now();
        let keyspace = scratch.keyspace.get_or_insert_with(|| new_keyspace(now));
        let room = Room { host: &scratch.host, keyspace, now };
        let (mut out, mut batch) = (Vec::new(), keyspace.enter(0));
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        find(request.arg(0)).is_some_and(|command| room.run(&mut batch, command, request, &mut reply).is_ok())
    };
    with_scratch(is_in_order).unwrap_or(true)
}

/// The keys of a request, each once.
fn keys_of(command: &Command, request: &Request<'_>) -> Vec<Vec<u8>> {
    let mut positions = Vec::new();
    key_positions(command.row.keys, request, &mut positions);
    let keys: BTreeSet<&[u8]> = positions.into_iter().map(|at| request.arg(at)).collect();
    keys.into_iter().map(<[u8]>::to_vec).collect()
}

/// Where commands run.
struct Scratch {
    host: Arc<Server>,
    /// Made when it is wanted.
    keyspace: Option<Keyspace>,
}

thread_local! {
    /// This thread's.
    static HERE: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

/// Begins that of this thread.
pub fn begin(host: &Arc<Server>) {
    HERE.set(Some(Scratch { host: host.clone(), keyspace: None }));
}

fn with_scratch<T>(run: impl FnOnce(&mut Scratch) -> T) -> Option<T> {
    HERE.with_borrow_mut(|here| here.as_mut().map(run))
}

fn new_keyspace(now: UnixMs) -> Keyspace {
    let hasher = KeyHasher::new(HashSeed::from_entropy());
    Keyspace::new(Options { databases: 1, workers: 1, guests: 0, hasher, seed: entropy_seed(), now })
}

impl Scratch {
    fn run(&mut self, computed: &Computed, copies: &[Vec<u8>]) -> Option<Vec<u8>> {
        let now = self.host.engine.clock.now();
        let keyspace = self.keyspace.get_or_insert_with(|| new_keyspace(now));
        let room = Room { host: &self.host, keyspace, now };
        let mut batch = keyspace.enter(0);
        let answer = room.answer(&mut batch, computed, copies);
        let keys: Vec<Key<'_>> = computed.keys.iter().map(|key| keyspace.key(DB, key)).collect();
        let mut edit = batch.edit(&keys, now, Touch::No);
        for key in &keys {
            edit.remove(key);
        }
        edit.finish();
        answer
    }
}

/// The keyspace at one moment.
struct Room<'r> {
    host: &'r Server,
    keyspace: &'r Keyspace,
    now: UnixMs,
}

impl Room<'_> {
    fn answer(&self, batch: &mut Batch<'_>, computed: &Computed, copies: &[Vec<u8>]) -> Option<Vec<u8>> {
        let restore = find(b"restore")?;
        let mut out = Vec::new();
        for (key, copy) in computed.keys.iter().zip(copies).filter(|(_, copy)| !is_null(copy)) {
            let words = [b"restore", &key[..], b"0", text_of(copy)?];
            let request = RequestBuf::from_args(words);
            let mut reply = Reply::new(&mut out, Protocol::Resp2);
            if let Err(error) = self.run(batch, restore, &request.as_request(), &mut reply) {
                let error = String::from_utf8_lossy(error.as_bytes()).into_owned();
                return Some(
                    format!("-ERR proxy: the copy of a key cannot be read: {error}\r\n").into_bytes(),
                );
            }
        }
        out.clear();
        let command = get(computed.command);
        let request = computed.request.as_request();
        let mut reply = Reply::new(&mut out, computed.protocol);
        if let Err(error) = self.run(batch, command, &request, &mut reply) {
            out.clear();
            Reply::new(&mut out, computed.protocol).error(error.as_bytes());
        }
        Some(out)
    }

    fn run(
        &self,
        batch: &mut Batch<'_>,
        command: &Command,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Error> {
        let Runs::Data(row) = command.row.handler else { return Err(Error::Syntax) };
        let args = Args::new(*request, self.keyspace, (DB, self.now), &self.host.engine.settings);
        execute(row, batch, &args, Touch::No, reply).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::Flags;

    #[test]
    fn what_is_computed_reads_and_changes_nothing() {
        server::commands::install();
        for (at, way) in crate::ways::table().into_iter().enumerate() {
            if way == crate::ways::Way::Computed {
                let row = &get(CommandId(at)).row;
                assert!(
                    row.flags.contains(Flags::READONLY) && matches!(row.handler, Runs::Data(_)),
                    "{}",
                    row.name
                );
                assert!(!row.tips.contains(&"nondeterministic_output"), "{}", row.name);
            }
        }
    }

    #[test]
    fn keys_are_copied_once() {
        server::commands::install();
        let keys = |line: &str| {
            let request = RequestBuf::from_args(line.split(' '));
            let command = find(request.as_request().arg(0)).unwrap();
            let keys = keys_of(command, &request.as_request());
            keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(keys("SINTER b a b"), "a b");
        assert_eq!(keys("ZUNION 2 b a WEIGHTS 1 2"), "a b");
        assert_eq!(keys("LCS b a LEN"), "a b");
        assert_eq!(keys("PFCOUNT c"), "c");
    }
}
