//! An object: key, value, type, expiry and access clock in one allocation.
//!
//! ```text
//! 0          4             8               12                (20)     (24)
//! | meta u32 | key_len u32 | value_len u32 | expires_at u64? | at u32? | key | value |
//! ```
//!
//! `meta` is 4 bits of kind, 4 bits of flags and 24 bits of access clock. The
//! expiry is there only if its flag is set, and so is where on disk the same object lies. The upper two bits of `value_len` count
//! how often the object was used of late, and the third says whether it is shadowing (see `residency`). The block's size is always the size
//! class of what it holds, so its capacity needs no field: a new value that fits
//! the same class is written in place.
//!
//! Thread rule: an object belongs to the table of its slot; whoever holds the
//! slot's lock may read and change it.
//!
//! Invariants:
//! 1. A block's address is a multiple of 16 and below 2^47.
//! 2. Kind `Boxed` has an owned `Box<Vec<u8>>` as its 8-byte value, freed with it.
//! 3. Kind `Native` has an owned `Box<Collection>` there.

#![allow(unsafe_code)] // The layout of objects; fuzzed by tests/fuzz.rs.

mod residence;

pub(crate) use residence::Stored;

use crate::limits::{INLINE_BYTES_MAX, SPARE_BYTES_MIN};
use crate::opened::WrongType;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use sys::UnixMs;
use sys::memory::size_class;
use value::collection::{Collection, CollectionRef, Encoding, Form, Type, TypeName};
use value::table::{Handle, OwnWords};

const META: usize = 0;
const KEY_LEN: usize = 4;
const VALUE_LEN: usize = 8;
const HEADER: usize = 12;
const EXPIRES_AT: usize = 12;

const CLOCK_MASK: u32 = (1 << 24) - 1;
const KIND_SHIFT: u32 = 24;
const KIND_MASK: u32 = 0xf << KIND_SHIFT;
const HAS_EXPIRY: u32 = 1 << 28;
/// The slot counts this key among those whose fields expire.
const FIELDS_EXPIRE: u32 = 1 << 29;
/// The block says where on disk the same object lies.
const HAS_AT: u32 = 1 << 30;
/// A copy of the object is on its way to the disk.
const IS_LEAVING: u32 = 1 << 31;

/// `at` of an object like which there is nothing on disk any more.
const NOWHERE: u32 = u32::MAX;

const VALUE_LEN_MASK: u32 = (1 << 28) - 1;
/// In the field of `value_len`: an older version of the object may be on disk, and have a word in the table.
const SHADOWING: u32 = 1 << 28;
const USES_SHIFT: u32 = 29;
/// The most uses that are counted.
const USES_MAX: u32 = 7;
const _: () = assert!(INLINE_BYTES_MAX <= VALUE_LEN_MASK as usize);

/// How a value is stored. The numbers are part of the block layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    /// A 64-bit integer.
    Int = 0,
    /// Bytes set as a whole, at most `EMBSTR_BYTES_MAX`.
    Embstr = 1,
    /// Bytes in the block.
    Raw = 2,
    /// A pointer to bytes outside the block.
    Boxed = 3,
    /// The compact encoding of a list.
    List = 4,
    /// That of a hash.
    Hash = 5,
    /// That of a set of integers.
    SetOfInts = 6,
    /// That of another set.
    Set = 7,
    /// That of a sorted set.
    Zset = 8,
    /// A pointer to a collection outside the block.
    Native = 9,
}

impl Kind {
    #[inline]
    fn from_meta(meta: u32) -> Kind {
        let number = (meta & KIND_MASK) >> KIND_SHIFT;
        Kind::from_number(number).unwrap_or_else(|| unreachable!("no object has kind {number}"))
    }

    #[inline]
    fn from_number(number: u32) -> Option<Kind> {
        Some(match number {
            0 => Kind::Int,
            1 => Kind::Embstr,
            2 => Kind::Raw,
            3 => Kind::Boxed,
            4 => Kind::List,
            5 => Kind::Hash,
            6 => Kind::SetOfInts,
            7 => Kind::Set,
            8 => Kind::Zset,
            9 => Kind::Native,
            _ => return None,
        })
    }
}

impl From<Form> for Kind {
    fn from(form: Form) -> Kind {
        match form {
            Form::List => Kind::List,
            Form::Hash => Kind::Hash,
            Form::SetOfInts => Kind::SetOfInts,
            Form::Set => Kind::Set,
            Form::Zset => Kind::Zset,
        }
    }
}

impl Kind {
    /// The compact encoding that the block's bytes are.
    #[inline]
    fn form(self) -> Option<Form> {
        match self {
            Kind::List => Some(Form::List),
            Kind::Hash => Some(Form::Hash),
            Kind::SetOfInts => Some(Form::SetOfInts),
            Kind::Set => Some(Form::Set),
            Kind::Zset => Some(Form::Zset),
            Kind::Int | Kind::Embstr | Kind::Raw | Kind::Boxed | Kind::Native => None,
        }
    }

    /// Whether the block's value is a pointer to what it owns.
    #[inline]
    fn owns_more(self) -> bool {
        matches!(self, Kind::Boxed | Kind::Native)
    }
}

/// A value as its reader sees it.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// A string that is an integer in its canonical form.
    Int(i64),
    /// Any other string.
    Bytes(&'a [u8]),
    /// A value of another type.
    Collection(CollectionRef<'a>),
}

impl ValueRef<'_> {
    /// TYPE's answer.
    pub fn type_name(self) -> TypeName {
        match self {
            ValueRef::Int(_) | ValueRef::Bytes(_) => TypeName::String,
            ValueRef::Collection(collection) => collection.type_name(),
        }
    }
}

/// A value to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewValue<'a> {
    /// Stored as 8 bytes.
    Int(i64),
    /// Stored as they are; short ones get encoding "embstr".
    Bytes(&'a [u8]),
    /// Stored as they are, with encoding "raw" whatever their length: the result
    /// of an edit, as opposed to a value set as a whole.
    Edited(&'a [u8]),
    /// A collection in its compact encoding, of at most [`INLINE_BYTES_MAX`] bytes.
    Compact(Form, &'a [u8]),
}

impl<'a> NewValue<'a> {
    /// A string as SET stores it: an integer if that loses nothing.
    #[inline]
    pub fn from_bytes(bytes: &'a [u8]) -> NewValue<'a> {
        const INT_CHARS_MAX: usize = 20;
        // Almost every text shows by its first byte that it is no number.
        let may_be_int =
            bytes.len() <= INT_CHARS_MAX && bytes.first().is_some_and(|b| *b <= b'9' && *b >= b'-');
        match if may_be_int { value::number::parse_i64(bytes) } else { None } {
            Some(number) => NewValue::Int(number),
            None => NewValue::Bytes(bytes),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            NewValue::Int(_) => Kind::Int,
            NewValue::Bytes(b) | NewValue::Edited(b) if b.len() > INLINE_BYTES_MAX => Kind::Boxed,
            NewValue::Bytes(b) if b.len() <= crate::limits::EMBSTR_BYTES_MAX => Kind::Embstr,
            NewValue::Bytes(_) | NewValue::Edited(_) => Kind::Raw,
            NewValue::Compact(form, _) => Kind::from(*form),
        }
    }

    fn inline_bytes(&self) -> usize {
        match self {
            NewValue::Int(_) => 8,
            NewValue::Bytes(b) | NewValue::Edited(b) if b.len() > INLINE_BYTES_MAX => 8,
            NewValue::Bytes(b) | NewValue::Edited(b) | NewValue::Compact(_, b) => b.len(),
        }
    }
}

/// An owned block. Copying the handle does not copy the object; the table that
/// holds the handle frees it exactly once, with [`Block::free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(NonNull<u8>);

// SAFETY: a block is plain memory without thread affinity; the slot's lock
// orders all accesses to it.
unsafe impl Send for Block {}

impl Block {
    /// Allocates an object. `key` must be shorter than 4 GB, as every request is.
    pub(crate) fn new(key: &[u8], value: NewValue<'_>, expires_at: Option<UnixMs>, clock: u32) -> Block {
        let bytes = block_bytes(key.len(), value.inline_bytes(), Parts::of(expires_at));
        let block = Block(allocate(bytes));
        block.write(key, value, expires_at, clock);
        block
    }

    /// Allocates an object whose value is a collection outside the block.
    pub(crate) fn of_native(
        key: &[u8],
        collection: Box<Collection>,
        expires_at: Option<UnixMs>,
        clock: u32,
    ) -> Block {
        let block = Block(allocate(block_bytes(key.len(), 8, Parts::of(expires_at))));
        block.write_header(Kind::Native, key, 8, expires_at, clock);
        block.put_u64(block.value_offset(), Box::into_raw(collection) as u64);
        block
    }

    /// Puts a new value and expiry into the block if they fit its size class.
    /// `key` is the key that the block has. False: nothing was changed.
    #[inline]
    pub(crate) fn overwrite(
        self,
        key: &[u8],
        value: NewValue<'_>,
        expires_at: Option<UnixMs>,
        clock: u32,
    ) -> bool {
        let bytes = block_bytes(key.len(), value.inline_bytes(), Parts::of(expires_at));
        if size_class(bytes) != self.capacity() || self.kind().owns_more() {
            return false;
        }
        self.write(key, value, expires_at, clock);
        true
    }

    /// A view of the object.
    ///
    /// # Safety
    /// The block must stay alive and unchanged for `'a`: the caller's borrow of
    /// the slot's table sees to that.
    #[inline]
    pub(crate) unsafe fn object<'a>(self) -> Object<'a> {
        Object { block: self, lifetime: PhantomData }
    }

    /// A new block with this block's value under the key and expiry given. A value
    /// outside the block moves over, so that this block has only itself to free.
    pub(crate) fn rebuilt(self, key: &[u8], expires_at: Option<UnixMs>, clock: u32) -> Block {
        let (kind, value_len) = (self.kind(), self.value_len());
        let block = Block(allocate(block_bytes(key.len(), value_len, Parts::of(expires_at))));
        block.write_header(kind, key, value_len, expires_at, clock);
        block.put_bytes(block.value_offset(), self.value_bytes());
        if kind.owns_more() {
            self.give_up_value();
        }
        block
    }

    /// The bytes of the value that lie in the block: a pointer, if it owns more.
    fn value_bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the value lies within this block; callers look at it while the block is live and unchanged.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().add(self.value_offset()), self.value_len()) }
    }

    /// What the value owns is another block's now.
    fn give_up_value(self) {
        self.set_meta(self.meta() & !KIND_MASK | (Kind::Int as u32) << KIND_SHIFT);
    }

    fn write(self, key: &[u8], value: NewValue<'_>, expires_at: Option<UnixMs>, clock: u32) {
        let kind = value.kind();
        self.write_header(kind, key, value.inline_bytes(), expires_at, clock);
        let value_at = self.value_offset();
        match value {
            NewValue::Int(number) => self.put_u64(value_at, number as u64),
            NewValue::Bytes(bytes) | NewValue::Edited(bytes) if kind == Kind::Boxed => {
                self.put_u64(value_at, Box::into_raw(Box::new(bytes.to_vec())) as u64);
            }
            NewValue::Bytes(bytes) | NewValue::Edited(bytes) | NewValue::Compact(_, bytes) => {
                self.put_bytes(value_at, bytes);
            }
        }
    }

    /// Writes everything but the value.
    #[inline]
    fn write_header(self, kind: Kind, key: &[u8], value_len: usize, expires_at: Option<UnixMs>, clock: u32) {
        let flags = if expires_at.is_some() { HAS_EXPIRY } else { 0 };
        self.put_u32(META, (clock & CLOCK_MASK) | (kind as u32) << KIND_SHIFT | flags);
        self.put_u32(KEY_LEN, u32::try_from(key.len()).expect("a request is shorter than 4 GB"));
        self.put_u32(VALUE_LEN, value_len as u32);
        if let Some(at) = expires_at {
            self.put_u64(EXPIRES_AT, at.0);
        }
        self.put_bytes(key_offset(Parts::of(expires_at)), key);
    }

    #[inline]
    fn meta(self) -> u32 {
        self.get_u32(META)
    }

    #[inline]
    fn set_meta(self, meta: u32) {
        self.put_u32(META, meta);
    }

    #[inline]
    fn kind(self) -> Kind {
        Kind::from_meta(self.meta())
    }

    #[inline]
    fn has_expiry(self) -> bool {
        self.meta() & HAS_EXPIRY != 0
    }

    #[inline]
    fn capacity(self) -> usize {
        size_class(block_bytes(self.get_u32(KEY_LEN) as usize, self.value_len(), self.parts()))
    }

    #[inline]
    fn parts(self) -> Parts {
        Parts { expiry: self.has_expiry(), at: self.has_at() }
    }

    #[inline]
    fn value_len(self) -> usize {
        (self.get_u32(VALUE_LEN) & VALUE_LEN_MASK) as usize
    }

    #[inline]
    fn value_offset(self) -> usize {
        key_offset(self.parts()) + self.get_u32(KEY_LEN) as usize
    }

    #[inline]
    fn has_at(self) -> bool {
        self.meta() & HAS_AT != 0
    }

    /// The pointer that a boxed value consists of.
    fn boxed(self) -> *mut Vec<u8> {
        debug_assert_eq!(self.kind(), Kind::Boxed);
        self.get_u64(self.value_offset()) as *mut Vec<u8>
    }

    /// The pointer that a native value consists of.
    fn native(self) -> *mut Collection {
        debug_assert_eq!(self.kind(), Kind::Native);
        self.get_u64(self.value_offset()) as *mut Collection
    }

    /// A native collection, to be changed.
    ///
    /// # Safety
    /// The caller holds the only access to the slot's table for `'a`.
    pub(crate) unsafe fn native_mut<'a>(self) -> Option<&'a mut Collection> {
        // SAFETY: invariant 3, and the caller has the only access.
        (self.kind() == Kind::Native).then(|| unsafe { &mut *self.native() })
    }

    /// Whether the value may be a hash with fields that expire.
    pub(crate) fn may_have_fields(self) -> bool {
        self.kind() == Kind::Native
    }

    /// Whether the slot counts this key among those whose fields expire.
    #[inline]
    pub(crate) fn fields_expire(self) -> bool {
        self.meta() & FIELDS_EXPIRE != 0
    }

    /// Sets what [`Block::fields_expire`] says.
    pub(crate) fn set_fields_expire(self, expire: bool) {
        let flag = if expire { FIELDS_EXPIRE } else { 0 };
        self.set_meta(self.meta() & !FIELDS_EXPIRE | flag);
    }

    /// Changes the moment of expiry of an object that has one.
    pub(crate) fn move_expiry(self, at: UnixMs) {
        assert!(self.has_expiry(), "only an expiry that is there can be moved");
        self.put_u64(EXPIRES_AT, at.0);
    }

    /// Gives a string another length without moving the block; bytes gained are
    /// zero, and the encoding becomes "raw". False: it is no such string or does not
    /// fit, and nothing was changed.
    pub(crate) fn resize(self, len: usize) -> bool {
        match self.kind() {
            Kind::Boxed => {
                // SAFETY: invariant 2; a block is only changed with its slot locked.
                resize_boxed(unsafe { &mut *self.boxed() }, len);
                true
            }
            Kind::Embstr | Kind::Raw => self.resize_inline(len),
            _ => false,
        }
    }

    fn resize_inline(self, len: usize) -> bool {
        let key_len = self.get_u32(KEY_LEN) as usize;
        let (old, offset) = (self.value_len(), self.value_offset());
        if len > INLINE_BYTES_MAX || size_class(block_bytes(key_len, len, self.parts())) != self.capacity() {
            return false;
        }
        if len > old {
            // SAFETY: `offset + len` lies within the block's size class, checked above.
            unsafe { ptr::write_bytes(self.0.as_ptr().add(offset + old), 0, len - old) }
        }
        self.put_u32(VALUE_LEN, len as u32 | self.get_u32(VALUE_LEN) & !VALUE_LEN_MASK);
        self.set_meta(self.meta() & !KIND_MASK | (Kind::Raw as u32) << KIND_SHIFT);
        true
    }

    /// A string's bytes to be edited in place. None for an integer and for other types.
    ///
    /// # Safety
    /// The caller holds the only access to the slot's table for `'a`.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> Option<&'a mut [u8]> {
        match self.kind() {
            // SAFETY: invariant 2, and the caller has the only access.
            Kind::Boxed => Some(unsafe { &mut *self.boxed() }),
            Kind::Embstr | Kind::Raw => {
                let len = self.value_len();
                // SAFETY: the value lies within the block from its offset on, and the
                // caller has the only access.
                Some(unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().add(self.value_offset()), len) })
            }
            _ => None,
        }
    }

    // The accessors below read and write fields within the header or at offsets
    // derived from the lengths in it; every block is at least that large.

    #[inline]
    fn get_u32(self, offset: usize) -> u32 {
        // SAFETY: the header lies within every block; unaligned reads need no alignment.
        unsafe { ptr::read_unaligned(self.0.as_ptr().add(offset).cast()) }
    }

    #[inline]
    fn put_u32(self, offset: usize, number: u32) {
        // SAFETY: as in `get_u32`.
        unsafe { ptr::write_unaligned(self.0.as_ptr().add(offset).cast(), number) }
    }

    #[inline]
    fn get_u64(self, offset: usize) -> u64 {
        // SAFETY: callers read the expiry or an 8-byte value, both within the block.
        unsafe { ptr::read_unaligned(self.0.as_ptr().add(offset).cast()) }
    }

    #[inline]
    fn put_u64(self, offset: usize, number: u64) {
        // SAFETY: as in `get_u64`.
        unsafe { ptr::write_unaligned(self.0.as_ptr().add(offset).cast(), number) }
    }

    #[inline]
    fn put_bytes(self, offset: usize, bytes: &[u8]) {
        // SAFETY: callers have sized the block for these bytes at this offset, and
        // a request's bytes never lie within a block.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.as_ptr().add(offset), bytes.len()) }
    }
}

// SAFETY: invariant 1, and the address is the handle.
unsafe impl Handle for Block {
    type Words = OwnWords;

    #[inline]
    fn address(self) -> u64 {
        self.0.as_ptr() as u64
    }

    #[inline]
    unsafe fn from_address(address: u64) -> Block {
        // SAFETY: the caller's address is that of a live block, hence not null.
        Block(unsafe { NonNull::new_unchecked(address as *mut u8) })
    }

    unsafe fn free(self) {
        match self.kind() {
            // SAFETY: invariant 2; the caller gives up the object.
            Kind::Boxed => drop(unsafe { Box::from_raw(self.boxed()) }),
            // SAFETY: invariant 3; the caller gives up the object.
            Kind::Native => crate::reaper::free(unsafe { Box::from_raw(self.native()) }),
            _ => {}
        }
        let layout = layout(self.capacity());
        // SAFETY: the block was allocated with this layout: its size class
        // follows from its contents, which never change it.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

/// An object in its table, borrowed for as long as its slot is locked.
#[derive(Clone, Copy)]
pub struct Object<'a> {
    block: Block,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> Object<'a> {
    /// The key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        let block = self.block;
        let (offset, len) = (key_offset(block.parts()), block.get_u32(KEY_LEN) as usize);
        // SAFETY: the key lies within the block, which lives for 'a (see `Block::object`).
        unsafe { std::slice::from_raw_parts(block.0.as_ptr().add(offset), len) }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> ValueRef<'a> {
        let block = self.block;
        match block.kind() {
            Kind::Int => ValueRef::Int(block.get_u64(block.value_offset()) as i64),
            Kind::Embstr | Kind::Raw => ValueRef::Bytes(self.inline_bytes()),
            // SAFETY: invariant 2; the block lives and stays unchanged for 'a.
            Kind::Boxed => ValueRef::Bytes(unsafe { &*block.boxed() }),
            kind => ValueRef::Collection(self.collection(kind)),
        }
    }

    fn inline_bytes(&self) -> &'a [u8] {
        self.block.value_bytes()
    }

    fn collection(&self, kind: Kind) -> CollectionRef<'a> {
        match kind.form() {
            Some(form) => CollectionRef::from_compact(form, self.inline_bytes()),
            // SAFETY: invariant 3; the block lives and stays unchanged for 'a.
            None => unsafe { &*self.block.native() }.as_ref(),
        }
    }

    /// A collection outside the block.
    #[inline]
    pub(crate) fn native(&self) -> Option<CollectionRef<'a>> {
        // SAFETY: invariant 3; the block lives and stays unchanged for 'a.
        (self.block.kind() == Kind::Native).then(|| unsafe { &*self.block.native() }.as_ref())
    }

    /// The bytes of a collection in its compact encoding.
    #[inline]
    pub(crate) fn compact(&self) -> Option<(Form, &'a [u8])> {
        self.block.kind().form().map(|form| (form, self.inline_bytes()))
    }

    /// `OBJECT ENCODING`.
    pub fn encoding(&self) -> Encoding {
        match self.block.kind() {
            Kind::Int => Encoding::Int,
            Kind::Embstr => Encoding::Embstr,
            Kind::Raw | Kind::Boxed => Encoding::Raw,
            kind => self.collection(kind).encoding(),
        }
    }

    /// When the key expires.
    #[inline]
    pub fn expires_at(&self) -> Option<UnixMs> {
        self.block.has_expiry().then(|| UnixMs(self.block.get_u64(EXPIRES_AT)))
    }

    /// About when the first field of the key's hash expires, if one does.
    #[inline]
    pub(crate) fn next_field_expiry(&self) -> Option<UnixMs> {
        match self.block.kind() {
            Kind::Native => self.collection(Kind::Native).next_field_expiry(),
            _ => None,
        }
    }

    /// When there may be something to free: the key, or fields of its hash.
    pub(crate) fn next_due(&self) -> Option<UnixMs> {
        let field = if self.block.fields_expire() { self.next_field_expiry() } else { None };
        self.expires_at().into_iter().chain(field).min()
    }

    /// Whether the key's time is up at `now`.
    #[inline]
    pub fn is_expired(&self, now: UnixMs) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// The access clock, as `crate::clock` understands it.
    #[inline]
    pub(crate) fn clock(&self) -> u32 {
        self.block.meta() & CLOCK_MASK
    }

    /// Sets the access clock. It lies apart from what other references show, so
    /// a reader may set it; the slot's lock keeps other threads away.
    #[inline]
    pub(crate) fn set_clock(&self, clock: u32) {
        self.block.set_meta(self.block.meta() & !CLOCK_MASK | clock & CLOCK_MASK);
    }

    /// The value, if it is a collection of this type.
    ///
    /// # Errors
    /// It is something else.
    pub fn read<C: Type>(&self) -> Result<C::Ref<'a>, WrongType> {
        match self.value() {
            ValueRef::Collection(collection) => C::read(collection).ok_or(WrongType),
            ValueRef::Int(_) | ValueRef::Bytes(_) => Err(WrongType),
        }
    }

    /// A copy of its own, without an expiry.
    pub(crate) fn copied(&self) -> Detached {
        let block = self.block;
        let key = self.key();
        Detached(match block.kind() {
            // SAFETY: invariant 2; the block lives for 'a.
            Kind::Boxed => Block::new(key, NewValue::Edited(unsafe { &*block.boxed() }), None, self.clock()),
            Kind::Native => {
                let copy = Box::new(self.collection(Kind::Native).to_owned());
                Block::of_native(key, copy, None, self.clock())
            }
            _ => block.rebuilt(key, None, self.clock()),
        })
    }

    /// Bytes of memory that the object takes, its table word not counted; those of a
    /// collection are estimated from `samples` elements, 0 being all.
    pub fn bytes(&self, samples: usize) -> usize {
        let outside = match self.block.kind() {
            // SAFETY: invariant 2; the block lives for 'a.
            Kind::Boxed => unsafe {
                size_class(size_of::<Vec<u8>>()) + size_class((*self.block.boxed()).capacity())
            },
            Kind::Native => {
                size_class(size_of::<Collection>()) + self.collection(Kind::Native).allocated_bytes(samples)
            }
            _ => 0,
        };
        self.block.capacity() + outside
    }
}

/// An object taken out of its table. Dropping it frees it.
pub struct Detached(Block);

impl Detached {
    /// Takes over a block that its table has let go of.
    pub(crate) fn new(block: Block) -> Detached {
        Detached(block)
    }

    /// Its block, which stays its own.
    pub(crate) fn block(&self) -> Block {
        self.0
    }

    /// The object.
    pub fn object(&self) -> Object<'_> {
        // SAFETY: `self` owns the block and the borrow keeps it alive and unchanged.
        unsafe { self.0.object() }
    }

    /// The value under another key.
    pub(crate) fn into_block(self, key: &[u8], expires_at: Option<UnixMs>) -> Block {
        self.0.rebuilt(key, expires_at, self.object().clock())
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        // SAFETY: the owner goes away, and no table has the block any more.
        unsafe { self.0.free() }
    }
}

/// Grows by doubling while that costs less than a megabyte of spare room, then by
/// an eighth: a long string must not take twice its memory.
fn resize_boxed(string: &mut Vec<u8>, len: usize) {
    if len > string.capacity() {
        let spare = len.min(SPARE_BYTES_MIN).max(len / 8);
        string.reserve_exact(len + spare - string.len());
    }
    string.resize(len, 0);
}

/// What a block has between its header and its key.
#[derive(Clone, Copy)]
struct Parts {
    expiry: bool,
    at: bool,
}

impl Parts {
    /// Of an object that is not on disk.
    #[inline]
    fn of(expires_at: Option<UnixMs>) -> Parts {
        Parts { expiry: expires_at.is_some(), at: false }
    }
}

#[inline]
fn at_offset(has_expiry: bool) -> usize {
    HEADER + 8 * usize::from(has_expiry)
}

#[inline]
fn key_offset(parts: Parts) -> usize {
    at_offset(parts.expiry) + 4 * usize::from(parts.at)
}

#[inline]
fn block_bytes(key_len: usize, value_len: usize, parts: Parts) -> usize {
    key_offset(parts) + key_len + value_len
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, 16).expect("a block is far smaller than isize::MAX")
}

fn allocate(bytes: usize) -> NonNull<u8> {
    let layout = layout(size_class(bytes));
    // SAFETY: the layout is never empty: a block has at least its header.
    let block = unsafe { alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
}
