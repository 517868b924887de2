//! Long values as they are at one moment: whoever copies everything takes them out of a slot in little time, lets the slot go, and writes
//! them afterwards, while they change ([`value::collection::Frozen`]).
//!
//! Where there is a store (capacity edition) none is taken so: what it shows is in memory only while it is looked at, and would stay there.
//!
//! Memory: what is written to a value meanwhile is there twice.

use crate::{Engine, snapshot};
use keyspace::{Object, ValueRef};
use std::io;
use std::thread;
use std::time::Instant;
use sys::UnixMs;
use value::collection::{CollectionRef, Frozen};
use value::rdb::file::{FileUsage, FileWriter, Head};

/// A value of more pieces of the log is long.
const LONG_PIECES: usize = 8;

/// Elements from which the bytes of a collection are estimated: looking at all would take long itself.
const SAMPLES: usize = 5;

/// How many bytes a value has that is not long yet.
pub fn short_bytes_max(engine: &Engine) -> usize {
    LONG_PIECES * engine.settings.piece_bytes()
}

/// A key with a long value.
pub struct FrozenKey {
    key: Box<[u8]>,
    value: Frozen,
    expires_at: Option<UnixMs>,
    usage: Option<FileUsage>,
}

impl FrozenKey {
    /// Takes an object as it is now. None: it is not long, or of a type that is written where it lies.
    pub fn of(engine: &Engine, object: Object<'_>, now: UnixMs) -> Option<FrozenKey> {
        let ValueRef::Collection(collection) = object.value() else { return None };
        if !FrozenKey::is_due(engine, object) {
            return None;
        }
        Some(FrozenKey {
            key: object.key().into(),
            value: collection.freeze()?,
            expires_at: object.expires_at(),
            usage: snapshot::usage_of(engine, object, now),
        })
    }

    /// Whether an object is long enough.
    pub fn is_due(engine: &Engine, object: Object<'_>) -> bool {
        matches!(object.value(), ValueRef::Collection(_))
            && object.bytes(SAMPLES) > short_bytes_max(engine)
            && engine.residency.store().is_none()
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What it held.
    pub fn value(&self) -> CollectionRef<'_> {
        self.value.as_ref()
    }

    /// When it expires.
    pub fn expires_at(&self) -> Option<UnixMs> {
        self.expires_at
    }

    /// Writes it to a file, of which pieces are handed on. It rests behind each for as long as that took to make: nobody waits for a slot,
    /// but for the processor.
    pub fn write(
        &self,
        writer: &mut FileWriter,
        piece_bytes: usize,
        hand_on: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let head = Head { key: &self.key, expires_at_ms: self.expires_at.map(|at| at.0), usage: self.usage };
        let mut began = Instant::now();
        writer.long_entry(head, self.value(), piece_bytes, &mut |piece| {
            let took = began.elapsed();
            hand_on(piece)?;
            thread::sleep(took);
            began = Instant::now();
            Ok(())
        })
    }
}
