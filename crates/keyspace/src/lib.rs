//! The objects and their only owner: databases cut into slots, their tables,
//! residency in memory, expiry, eviction and scanning.
//!
//! On a command's path it stands between the handlers, which see a [`View`] or an
//! [`Edit`] of locked keys, and memory. It knows no session or disk.

pub mod access;
pub mod ahead;
pub mod beside;
pub mod changes;
mod clock;
mod database;
pub mod effects;
pub mod evict;
#[cfg(test)]
mod fixture;
mod hidden;
pub mod ids;
mod image;
pub mod keyspace;
pub mod limits;
mod locks;
mod moment;
pub mod object;
pub mod opened;
pub mod policy;
pub mod reaper;
pub mod residency;
mod sample;
mod slot;
pub mod sweep;
mod table;
pub mod tour;
mod twin;
mod unsettled;
pub mod waiting;
pub mod walk;

pub use access::{Edit, ExpiredKey, Expiry, Purpose, Usage, View};
pub use ahead::Ahead;
pub use changes::{Change, Class, Interest, Observer, What};
pub use effects::{Effects, Journal, Span, Unit};
pub use evict::OutOfMemory;
pub use ids::{DbIndex, HashSeed, Key, KeyHasher, Position, SLOTS, Slot};
pub use image::SlotView;
pub use keyspace::{Batch, Cleared, Exclusive, KeepsAll, Keyspace, NO_TIME_IS_UP, Options, Touch};
pub use locks::{Holding, when_stuck};
pub use object::{Detached, NewValue, Object, ValueRef};
pub use opened::{Opened, WrongType};
pub use policy::{Eviction, Policy, Removal};
pub use residency::{Gathered, Record, Shelf, Unreadable};
pub use sweep::Progress;
pub use sys::Stamp;
pub use tour::Tour;
pub use value::collection::{Collection, Encoding, Type, TypeName};
pub use waiting::{KeyName, Ticket, Waiter};
pub use walk::Cursor;
