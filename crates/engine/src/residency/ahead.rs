//! Reading ahead in a thread that waits: the cold keys of what it is about to do, together. A start that replays the log does so.
//!
//! Thread rule: each thread has its own.

use super::fetch::{admit, parse};
use crate::Engine;
use keyspace::residency::ahead::ColdKey;
use std::collections::HashMap;
use store::{PageNo, Store};
use sys::file::reads::{Reads, Way};

/// Pages that are read together.
const DEPTH: usize = 128;

/// One thread's reads.
pub struct ReadAhead<'s> {
    engine: &'s Engine,
    store: &'s Store,
    worker: usize,
    reads: Reads,
    /// The keys that are wanted of each page.
    wanted: HashMap<u32, Vec<ColdKey>>,
}

impl<'s> ReadAhead<'s> {
    /// For a worker's thread; None if there is nothing to read, or the system does not give what that takes: then each key is read
    /// when it is needed.
    pub fn new(engine: &'s Engine, worker: usize) -> Option<ReadAhead<'s>> {
        let store = engine.residency.store().filter(|_| engine.residency.fetches())?;
        let reads = Reads::new(Way::Auto, DEPTH).ok()?;
        Some(ReadAhead { engine, store, worker, reads, wanted: HashMap::new() })
    }

    /// Wants a key. Some others may be in memory when this returns.
    pub fn want(&mut self, key: ColdKey) {
        self.wanted.entry(key.at).or_default().push(key);
        if self.wanted.len() >= DEPTH {
            self.read();
        }
    }

    /// Brings all that were wanted into memory, as far as they can be read.
    pub fn read(&mut self) {
        // A segment is not used for anything else while its file is held.
        let mut files = Vec::with_capacity(self.wanted.len());
        for at in self.wanted.keys() {
            let place = PageNo::new(*at).and_then(|page| self.store.place_within_share(page));
            let Some((file, offset)) = place else { continue };
            let buffer = self.reads.buffer(1);
            self.reads.start(&file, offset, buffer, u64::from(*at));
            files.push(file);
        }
        let buffers = self.reads.buffers().clone();
        let (engine, store, worker) = (self.engine, self.store, self.worker);
        while self.reads.in_flight() > 0 {
            self.reads.wait(|token, buffer, result| {
                let at = token as u32;
                if let Some(keys) = self.wanted.get(&at).filter(|_| result.is_ok())
                    && let Some(page) = parse(store, at, &buffer)
                {
                    admit(engine, &engine.keyspace.enter(worker), &page, keys);
                }
                buffers.give_back(buffer);
            });
        }
        self.wanted.clear();
    }
}
