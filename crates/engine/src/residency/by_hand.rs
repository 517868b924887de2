//! Spilling and cleaning by hand: for tests in which nothing happens by itself.

use super::cleaner;
use super::outbox::Outbox;
use crate::Engine;
use keyspace::residency::spill::Aim;
use keyspace::{SLOTS, Slot};
use std::io;

/// Sends all objects away, if there is a store. `beside` is called before each write, when copies are on their way.
///
/// # Errors
/// If the disk refuses.
pub fn spill(engine: &Engine, beside: &mut dyn FnMut()) -> io::Result<()> {
    let Some(store) = engine.residency.store() else { return Ok(()) };
    let mut outbox = Outbox::new(engine, store, engine.spiller_guest(), Aim::All);
    for db in super::numbers_with_keys(engine) {
        for slot in (0..SLOTS as u16).map(Slot) {
            if outbox.take(db, slot)?.leaving > 0 {
                beside();
                outbox.write()?;
            }
        }
    }
    Ok(())
}

/// Cleans the segment that is worth most, however little that is; counts anew first what lives.
///
/// # Errors
/// If the disk refuses.
pub fn clean(engine: &Engine) -> io::Result<()> {
    let Some(store) = engine.residency.store() else { return Ok(()) };
    cleaner::recount(engine, store);
    cleaner::clean(engine, store)
}
