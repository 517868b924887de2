//! What the store keeps for a copy, looked at now and then: a copy that would take too much of the disk for that ends.
//!
//! Whoever makes a copy asks, and whoever waits until somebody takes a piece of it: the store is written to meanwhile. Between two looks a
//! question costs next to nothing.

use crate::Engine;
use std::cell::Cell;
use std::io;
use sys::UnixMs;

/// How often it looks, and how much may be kept in any case as long as the disk has room.
const LOOK_EVERY_MS: u64 = 1000;
const KEPT_BYTES_ALWAYS: u64 = 1 << 30;

/// With so much left on the disk it is no matter how much is kept. With less, no more than is left.
const LEFT_BYTES_ENOUGH: u64 = 1 << 30;

/// Looks how much is kept.
pub struct Lookout<'e> {
    engine: &'e Engine,
    looked_at: Cell<Option<UnixMs>>,
}

impl<'e> Lookout<'e> {
    /// One that has not looked yet.
    pub fn new(engine: &'e Engine) -> Lookout<'e> {
        Lookout { engine, looked_at: Cell::new(None) }
    }

    /// Ends a copy for which too much is kept.
    ///
    /// # Errors
    /// The store keeps more than it holds, or the disk has no room for it.
    pub fn fail_if_much_is_kept(&self) -> io::Result<()> {
        let now = self.engine.clock.now();
        // A clock that is set back looks, too.
        let is_due = |at: UnixMs| now.0.abs_diff(at.0) >= LOOK_EVERY_MS;
        if !self.looked_at.get().is_none_or(is_due) {
            return Ok(());
        }
        self.looked_at.set(Some(now));
        self.look()
    }

    fn look(&self) -> io::Result<()> {
        let Some(store) = self.engine.residency.store() else { return Ok(()) };
        let kept = store.kept_bytes();
        if kept == 0 {
            return Ok(());
        }
        if kept > store.stats().bytes_live.max(KEPT_BYTES_ALWAYS) {
            return Err(io::Error::other(
                "the full copy is read so slowly that the store would have to keep more for it than it holds",
            ));
        }
        let left = store.bytes_left();
        if left < kept.min(LEFT_BYTES_ENOUGH) {
            return Err(io::Error::other(format!(
                "the store keeps {kept} bytes for the full copy, and the disk has only {left} bytes left"
            )));
        }
        // What is left may be for others.
        match self.engine.durability.log().map_or(Ok(()), |log| log.writable()) {
            Err(failure) if failure.is_full() => Err(io::Error::other(format!(
                "the store keeps {kept} bytes for the full copy, and the log has no room: {failure}"
            ))),
            _ => Ok(()),
        }
    }
}
