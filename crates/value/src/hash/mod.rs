//! Hashes: fields with values, and perhaps with the moments at which their time is up.
//!
//! Packed in a listpack of fields and values in turn as long as they are few and short, exactly as long as
//! in Redis 7.2; then, and whenever a field is given an expiry, a table ([`fields`]). There is no way back.
//!
//! Plain values, any thread. There is no clock here: what depends on the time is told it.
//!
//! 1. A field whose time is up is not there for any method that takes `now`. Others count it.
//! 2. A packed hash has no expiries.

mod fields;
mod image;
#[cfg(test)]
mod tests;

pub use fields::{Field, Fields, Removed};

use crate::collection::{Collection, CollectionRef, Encoding, Form, Thresholds, Type};
use crate::limits::LISTPACK_BYTES_MAX;
use crate::listpack::{Element, Listpack, ListpackRef, Position as At};
use crate::number::IntBuffer;
use crate::table::Position;
use sys::UnixMs;

/// A hash.
#[derive(Clone, Debug)]
pub enum Hash {
    /// In one piece.
    Packed(Listpack),
    /// In a table.
    Table(Fields),
}

/// A hash to be read.
#[derive(Clone, Copy, Debug)]
pub enum HashRef<'a> {
    /// In one piece.
    Packed(ListpackRef<'a>),
    /// In a table.
    Table(&'a Fields),
}

/// What became of a field that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// It was not there.
    Added,
    /// It has another value now.
    Replaced,
}

/// What happens to a field's expiry when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldExpiry {
    /// It goes away.
    Clear,
    /// It stays.
    Keep,
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::Packed(Listpack::new())
    }
}

impl Hash {
    /// Makes a table of it if these fields and values, about to be set, are too many or too long for a listpack.
    pub fn expect<'t>(&mut self, texts: impl ExactSizeIterator<Item = &'t [u8]>, thresholds: &Thresholds) {
        let Hash::Packed(listpack) = self else { return };
        let fields = texts.len() / 2;
        let mut bytes = listpack.as_ref().bytes().len();
        let mut fits = fields <= thresholds.hash_max_listpack_entries;
        for text in texts {
            fits &= text.len() <= thresholds.hash_max_listpack_value;
            bytes = bytes.saturating_add(text.len());
        }
        if !fits || bytes > LISTPACK_BYTES_MAX {
            self.become_table();
        }
    }

    /// Sets a field.
    pub fn set(
        &mut self,
        name: &[u8],
        value: &[u8],
        expiry: FieldExpiry,
        thresholds: &Thresholds,
        now: UnixMs,
    ) -> Set {
        if name.len().max(value.len()) > thresholds.hash_max_listpack_value {
            self.become_table();
        }
        match self {
            Hash::Table(fields) => set_in_table(fields, name, value, expiry, now),
            Hash::Packed(listpack) => {
                let set = set_in_listpack(listpack, name, value);
                if self.len() > thresholds.hash_max_listpack_entries {
                    self.become_table();
                }
                set
            }
        }
    }

    /// Takes a field away. Whether it was there.
    pub fn remove(&mut self, name: &[u8], now: UnixMs) -> bool {
        match self {
            Hash::Table(fields) => fields.remove(name, now),
            Hash::Packed(listpack) => {
                let Some(at) = find(listpack.as_ref(), name) else { return false };
                listpack.remove_range(at, 2);
                true
            }
        }
    }

    /// Sets or takes away the expiry of a field that is there.
    pub fn set_expiry(&mut self, name: &[u8], expires_at: Option<UnixMs>) {
        if expires_at.is_some() {
            self.become_table();
        }
        if let Hash::Table(fields) = self {
            fields.set_expiry(name, expires_at);
        }
    }

    /// A field's value.
    #[inline]
    pub fn get(&self, name: &[u8], now: UnixMs) -> Option<Element<'_>> {
        self.as_ref().get(name, now)
    }

    /// As [`HashRef::expires_at`].
    pub fn expires_at(&self, name: &[u8], now: UnixMs) -> Option<Option<UnixMs>> {
        self.as_ref().expires_at(name, now)
    }

    /// Frees up to `most` fields whose time has been up for a moment, each shown to `visit` before. How many it freed.
    pub fn remove_expired(&mut self, now: UnixMs, most: usize, visit: impl FnMut(&[u8])) -> (usize, Removed) {
        match self {
            Hash::Packed(_) => (0, Removed::All),
            Hash::Table(fields) => fields.remove_expired(now, most, visit),
        }
    }

    /// Makes it a table if it is none.
    fn become_table(&mut self) {
        let Hash::Packed(listpack) = self else { return };
        let mut fields = Fields::default();
        let (mut name_digits, mut value_digits) = (IntBuffer::new(), IntBuffer::new());
        for (name, value) in pairs(listpack.as_ref()) {
            fields.set(name.bytes(&mut name_digits), value.bytes(&mut value_digits), None);
        }
        *self = Hash::Table(fields);
    }
}

fn set_in_table(fields: &mut Fields, name: &[u8], value: &[u8], expiry: FieldExpiry, now: UnixMs) -> Set {
    let expires_at = match expiry {
        FieldExpiry::Clear => None,
        FieldExpiry::Keep => fields.get(name, now).and_then(|field| field.expires_at),
    };
    match fields.set(name, value, expires_at) {
        Some(before) if before.was_visible(now) => Set::Replaced,
        _ => Set::Added,
    }
}

fn set_in_listpack(listpack: &mut Listpack, name: &[u8], value: &[u8]) -> Set {
    let there = find(listpack.as_ref(), name);
    match there.and_then(|at| listpack.as_ref().next(at)) {
        Some(at) => {
            listpack.replace(at, value);
            Set::Replaced
        }
        None => {
            listpack.push_back(name);
            listpack.push_back(value);
            Set::Added
        }
    }
}

#[inline]
fn find(listpack: ListpackRef<'_>, name: &[u8]) -> Option<At> {
    listpack.find(name, listpack.first()?, 2)
}

/// The fields of a listpack with their values.
fn pairs<'a>(listpack: ListpackRef<'a>) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
    let mut elements = listpack.iter();
    std::iter::from_fn(move || Some((elements.next()?, elements.next()?)))
}

impl<'a> HashRef<'a> {
    /// The hash whose compact encoding these bytes are.
    #[inline]
    pub fn from_compact(bytes: &'a [u8]) -> HashRef<'a> {
        HashRef::Packed(ListpackRef::new(bytes))
    }

    /// How many fields there are, those counted whose time is up and that have not been freed yet.
    #[allow(clippy::len_without_is_empty)] // A hash in the keyspace is never empty.
    pub fn len(self) -> usize {
        match self {
            HashRef::Packed(listpack) => listpack.len() / 2,
            HashRef::Table(fields) => fields.len(),
        }
    }

    /// How many fields there are.
    pub fn visible(self, now: UnixMs) -> usize {
        match self {
            HashRef::Packed(listpack) => listpack.len() / 2,
            HashRef::Table(fields) => fields.visible(now),
        }
    }

    /// A field's value.
    #[inline]
    pub fn get(self, name: &[u8], now: UnixMs) -> Option<Element<'a>> {
        match self {
            HashRef::Packed(listpack) => {
                let at = find(listpack, name)?;
                listpack.next(at).map(|at| listpack.element(at))
            }
            HashRef::Table(fields) => fields.get(name, now).map(|field| Element::Bytes(field.value)),
        }
    }

    /// When a field's time is up: None if there is no such field, then None if it has no expiry.
    pub fn expires_at(self, name: &[u8], now: UnixMs) -> Option<Option<UnixMs>> {
        match self {
            HashRef::Packed(listpack) => find(listpack, name).map(|_| None),
            HashRef::Table(fields) => fields.get(name, now).map(|field| field.expires_at),
        }
    }

    /// Calls `visit` with each field and its value.
    #[inline]
    pub fn for_each(self, now: UnixMs, mut visit: impl FnMut(Element<'a>, Element<'a>)) {
        match self {
            HashRef::Packed(listpack) => pairs(listpack).for_each(|(name, value)| visit(name, value)),
            HashRef::Table(fields) => {
                for field in fields.iter().filter(|field| !field.is_expired(now)) {
                    visit(Element::Bytes(field.name), Element::Bytes(field.value));
                }
            }
        }
    }

    /// Calls `visit` with fields from a cursor on, at least `count` of them unless it reaches the end; with all
    /// of a packed hash. Returns the cursor to go on with, 0 at the end. Fields that are there throughout are
    /// visited however the hash grows or shrinks between the calls.
    pub fn scan(
        self,
        cursor: u64,
        count: usize,
        now: UnixMs,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) -> u64 {
        match self {
            HashRef::Packed(_) => {
                self.for_each(now, visit);
                0
            }
            HashRef::Table(fields) => {
                let show = |field: Field<'a>| visit(Element::Bytes(field.name), Element::Bytes(field.value));
                let next = fields.scan(Position::from_cursor(cursor), count, now, show);
                next.map_or(0, |position| position.0)
            }
        }
    }

    /// A field and its value picked by numbers from a source of random bits, each as likely as any other.
    #[expect(clippy::cast_possible_truncation, reason = "an index is below a length")]
    pub fn random(self, now: UnixMs, mut random: impl FnMut() -> u64) -> Option<(Element<'a>, Element<'a>)> {
        match self {
            HashRef::Packed(listpack) => {
                let index = random().checked_rem(self.len() as u64)?;
                let at = listpack.seek(2 * index as isize)?;
                let value = listpack.next(at)?;
                Some((listpack.element(at), listpack.element(value)))
            }
            HashRef::Table(fields) => {
                let field = fields.random(now, random)?;
                Some((Element::Bytes(field.name), Element::Bytes(field.value)))
            }
        }
    }

    /// No later than the first moment at which a field's time is up, give or take an eighth of a second. None:
    /// no field has an expiry.
    pub fn next_expiry(self) -> Option<UnixMs> {
        match self {
            HashRef::Packed(_) => None,
            HashRef::Table(fields) => fields.next_expiry(),
        }
    }

    /// OBJECT ENCODING's answer.
    pub fn encoding(self) -> Encoding {
        match self {
            HashRef::Packed(_) => Encoding::Listpack,
            HashRef::Table(_) => Encoding::Hashtable,
        }
    }

    /// Bytes of memory outside the key's block, estimated from at most `samples` elements (0: all).
    pub fn allocated_bytes(self, samples: usize) -> usize {
        match self {
            HashRef::Packed(listpack) => listpack.bytes().len(),
            HashRef::Table(fields) => fields.bytes(samples),
        }
    }

    /// How many separate allocations it has.
    pub fn pieces(self) -> usize {
        match self {
            HashRef::Packed(_) => 1,
            HashRef::Table(fields) => fields.len(),
        }
    }

    /// A copy of its own.
    pub fn to_owned(self) -> Hash {
        match self {
            HashRef::Packed(listpack) => Hash::Packed(Listpack::from_bytes(listpack.bytes().to_vec())),
            HashRef::Table(fields) => Hash::Table(fields.clone()),
        }
    }
}

impl Type for Hash {
    type Ref<'a> = HashRef<'a>;

    fn compact(&self) -> Option<(Form, &[u8])> {
        match self {
            Hash::Packed(listpack) => Some((Form::Hash, listpack.as_ref().bytes())),
            Hash::Table(_) => None,
        }
    }

    fn into_compact(self) -> Option<Vec<u8>> {
        match self {
            Hash::Packed(listpack) => Some(listpack.into_bytes()),
            Hash::Table(_) => None,
        }
    }

    fn from_compact(_form: Form, bytes: Vec<u8>) -> Hash {
        Hash::Packed(Listpack::from_bytes(bytes))
    }

    fn as_ref(&self) -> HashRef<'_> {
        match self {
            Hash::Packed(listpack) => HashRef::Packed(listpack.as_ref()),
            Hash::Table(fields) => HashRef::Table(fields),
        }
    }

    fn len(&self) -> usize {
        self.as_ref().len()
    }

    fn read(collection: CollectionRef<'_>) -> Option<HashRef<'_>> {
        match collection {
            CollectionRef::Hash(it) => Some(it),
            _ => None,
        }
    }

    fn edit(collection: &mut Collection) -> Option<&mut Hash> {
        match collection {
            Collection::Hash(it) => Some(it),
            _ => None,
        }
    }
}
