//! A collection opened for editing.
//!
//! A compact one is copied out of its block into the worker's scratch space and back
//! when it is closed, a native one is edited in place: who edits does not see the
//! difference. Closing happens when the guard is dropped; a collection that has
//! become empty takes its key with it.
//!
//! Invariants:
//! 1. Only what was noted ([`Opened::note`]) or touched counts as a change, is stored
//!    and told; a guard dropped without either leaves a compact collection as it was.
//! 2. Between opening and closing nothing else touches the slot: the guard has the
//!    only access.

#![allow(unsafe_code)] // A native collection is reached by its address while its table is borrowed.

use crate::access::Access;
use crate::changes::Class;
use crate::ids::Key;
use crate::limits::INLINE_BYTES_MAX;
use crate::object::NewValue;
use crate::table::Place;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use sys::UnixMs;
use value::collection::{Collection, Type};

/// The key holds a value of another type than asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key holds a value of another type")
    }
}

impl std::error::Error for WrongType {}

/// Where the collection is while it is edited.
enum Loaded<C> {
    /// Here.
    Copy(C),
    /// In the keyspace.
    InPlace(NonNull<C>),
    /// Gone back.
    Closed,
}

/// A collection being edited.
pub struct Opened<'e, 'b, C: Type> {
    access: &'e mut Access<'b>,
    key: Key<'e>,
    /// Where the key is. None: it is not there yet.
    place: Option<Place>,
    loaded: Loaded<C>,
    /// When the first field of a hash expired before the edit.
    field_expiry: Option<UnixMs>,
    is_changed: bool,
    /// Whether only those who wait for the key are told of the change.
    is_for_waiters: bool,
    /// Whether a new key has been told of.
    is_announced: bool,
}

impl<'e, 'b, C: Type> Opened<'e, 'b, C> {
    /// Opens the collection of a key that is there.
    pub(crate) fn there(
        access: &'e mut Access<'b>,
        key: Key<'e>,
        place: Place,
    ) -> Result<Opened<'e, 'b, C>, WrongType> {
        let mut field_expiry = None;
        let loaded = match access.compact_at(&key, place) {
            Some((form, bytes)) => {
                if C::read(value::collection::CollectionRef::from_compact(form, bytes)).is_none() {
                    return Err(WrongType);
                }
                let mut scratch = access.take_scratch();
                scratch.extend_from_slice(bytes);
                Loaded::Copy(C::from_compact(form, scratch))
            }
            None => {
                let collection = access.native_at(&key, place).ok_or(WrongType)?;
                field_expiry = collection.as_ref().next_field_expiry();
                Loaded::InPlace(NonNull::from(C::edit(collection).ok_or(WrongType)?))
            }
        };
        let place = Some(place);
        Ok(Opened {
            access,
            key,
            place,
            loaded,
            field_expiry,
            is_changed: false,
            is_for_waiters: false,
            is_announced: false,
        })
    }

    /// A new collection, for a key that is not there.
    pub(crate) fn new(access: &'e mut Access<'b>, key: Key<'e>, value: C) -> Opened<'e, 'b, C> {
        Opened {
            access,
            key,
            place: None,
            loaded: Loaded::Copy(value),
            field_expiry: None,
            is_changed: false,
            is_for_waiters: false,
            is_announced: false,
        }
    }

    /// Whether the key was not there before.
    pub fn is_new(&self) -> bool {
        self.place.is_none()
    }

    /// Marks the collection as changed by this event.
    pub fn note(&mut self, class: Class, event: &'static str) {
        self.touch();
        self.announce();
        self.access.note_event(class, event, &self.key);
    }

    /// That a key was made comes before what happens to it.
    fn announce(&mut self) {
        if self.place.is_none() && !self.is_announced {
            self.is_announced = true;
            self.access.note_event(Class::NEW, "new", &self.key);
        }
    }

    /// Marks the collection as changed by this event in a way that disturbs nobody who watches it, as in Redis, but
    /// concerns those who wait for it.
    pub fn note_for_waiters(&mut self, class: Class, event: &'static str) {
        self.is_for_waiters = !self.is_changed;
        self.is_changed = true;
        self.access.note_event(class, event, &self.key);
    }

    /// Marks the collection as changed without an event.
    pub fn touch(&mut self) {
        self.is_changed = true;
        self.is_for_waiters = false;
    }

    fn close(&mut self) {
        let loaded = std::mem::replace(&mut self.loaded, Loaded::Closed);
        if !self.is_changed {
            // To look for what is to be changed is a use of the key, too.
            self.access.note_use(&self.key, self.place);
            if let Loaded::Copy(value) = loaded {
                self.access.give_scratch(value.into_compact());
            }
            return;
        }
        match loaded {
            Loaded::Copy(value) => self.close_copy(value),
            Loaded::InPlace(native) => {
                // SAFETY: invariant 2; the collection lives in the slot's table, whose only access
                // the guard has borrowed.
                let value = unsafe { native.as_ref() };
                let bytes = value.compact().filter(|(_, bytes)| bytes.len() <= INLINE_BYTES_MAX / 2);
                if value.is_empty() && C::DIES_EMPTY {
                    self.remove();
                } else if let Some((form, bytes)) = bytes {
                    let bytes = bytes.to_vec();
                    self.access.store_value(&self.key, self.place, NewValue::Compact(form, &bytes));
                } else {
                    self.access.note_use(&self.key, self.place);
                    self.access.note_fields(&self.key, self.place, self.field_expiry);
                }
            }
            Loaded::Closed => {}
        }
        if self.is_for_waiters {
            self.access.note_for_waiters(&self.key);
        } else {
            self.access.note_modified(&self.key);
        }
    }

    fn close_copy(&mut self, value: C) {
        if value.is_empty() && C::DIES_EMPTY {
            if self.place.is_some() {
                self.remove();
            }
            self.access.give_scratch(value.into_compact());
            return;
        }
        self.announce();
        match value.compact() {
            Some((form, bytes)) if bytes.len() <= INLINE_BYTES_MAX => {
                self.access.store_value(&self.key, self.place, NewValue::Compact(form, bytes));
                self.access.give_scratch(value.into_compact());
            }
            _ => self.access.store_native(&self.key, self.place, Box::new(value.into())),
        }
    }

    fn remove(&mut self) {
        self.access.remove_there(&self.key);
        self.access.note_event(Class::GENERIC, "del", &self.key);
    }
}

impl<C: Type> Deref for Opened<'_, '_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        match &self.loaded {
            Loaded::Copy(value) => value,
            // SAFETY: invariant 2.
            Loaded::InPlace(native) => unsafe { native.as_ref() },
            Loaded::Closed => unreachable!("only dropping closes"),
        }
    }
}

impl<C: Type> DerefMut for Opened<'_, '_, C> {
    fn deref_mut(&mut self) -> &mut C {
        match &mut self.loaded {
            Loaded::Copy(value) => value,
            // SAFETY: invariant 2, and the borrow of the guard is exclusive.
            Loaded::InPlace(native) => unsafe { native.as_mut() },
            Loaded::Closed => unreachable!("only dropping closes"),
        }
    }
}

impl<C: Type> Drop for Opened<'_, '_, C> {
    fn drop(&mut self) {
        self.close();
    }
}

/// A collection that is put into the keyspace as a whole.
pub(crate) enum Whole {
    Compact(value::collection::Form, Vec<u8>),
    Native(Box<Collection>),
}

impl From<Collection> for Whole {
    fn from(collection: Collection) -> Whole {
        match collection.compact() {
            Some((form, bytes)) if bytes.len() <= INLINE_BYTES_MAX => Whole::Compact(form, bytes.to_vec()),
            _ => Whole::Native(Box::new(collection)),
        }
    }
}
