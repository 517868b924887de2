//! What the keyspace knows of lists, hashes, sets, sorted sets and streams: how to
//! keep one, whatever it is, and no more.
//!
//! A type has an owned form, which is edited, and a borrowed one, which is read. Its
//! encodings are compact (bytes that lie in the key's own block) or native
//! (structures of their own); [`Type::compact`] tells which.
//!
//! Thread rule: plain values; whoever owns one may send it anywhere.
//!
//! To add a type: a variant here and in [`CollectionRef`], a [`Form`] for each of its
//! compact encodings, and a file that implements [`Type`].

use crate::hash::{Hash, HashRef, Removed};
use crate::list::{List, ListRef};
use crate::set::{Set, SetRef};
use crate::stream::Stream;
use crate::table::Position;
use crate::zset::{Zset, ZsetRef};
use sys::UnixMs;

/// `OBJECT ENCODING`'s names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A 64-bit integer.
    Int,
    /// A short string that was set as a whole.
    Embstr,
    /// Any other string.
    Raw,
    /// A small list, hash, set or sorted set in one piece.
    Listpack,
    /// A list in several pieces.
    Quicklist,
    /// A small set of integers in one piece.
    Intset,
    /// A hash or set with a table.
    Hashtable,
    /// A sorted set with a table and an order.
    Skiplist,
    /// A stream.
    Stream,
}

impl Encoding {
    /// The name that clients see.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Int => "int",
            Encoding::Embstr => "embstr",
            Encoding::Raw => "raw",
            Encoding::Listpack => "listpack",
            Encoding::Quicklist => "quicklist",
            Encoding::Intset => "intset",
            Encoding::Hashtable => "hashtable",
            Encoding::Skiplist => "skiplist",
            Encoding::Stream => "stream",
        }
    }
}

/// What a key holds: TYPE's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeName {
    /// A string.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    Zset,
    /// A hash.
    Hash,
    /// A stream.
    Stream,
}

impl TypeName {
    /// The name that clients see.
    pub fn name(self) -> &'static str {
        match self {
            TypeName::String => "string",
            TypeName::List => "list",
            TypeName::Set => "set",
            TypeName::Zset => "zset",
            TypeName::Hash => "hash",
            TypeName::Stream => "stream",
        }
    }
}

/// The compact encodings. Each is a string of bytes that means something by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A list: a listpack of its elements.
    List,
    /// A hash: a listpack of fields and values in turn.
    Hash,
    /// A set of integers: an intset.
    SetOfInts,
    /// Another set: a listpack of its members.
    Set,
    /// A sorted set: a listpack of members and scores in turn, in order.
    Zset,
}

/// When compact encodings give way to native ones: redis.conf's thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// `list-max-listpack-size`: elements of a list's node if positive, a step of bytes if negative.
    pub list_max_listpack_size: i32,
    /// Texts of a list that are so long lie by themselves, however much a node may hold (DEBUG QUICKLIST-PACKED-THRESHOLD).
    pub list_plain_bytes_min: usize,
    /// `hash-max-listpack-entries`.
    pub hash_max_listpack_entries: usize,
    /// `hash-max-listpack-value`, in bytes.
    pub hash_max_listpack_value: usize,
    /// `set-max-intset-entries`.
    pub set_max_intset_entries: usize,
    /// `set-max-listpack-entries`.
    pub set_max_listpack_entries: usize,
    /// `set-max-listpack-value`, in bytes.
    pub set_max_listpack_value: usize,
    /// `zset-max-listpack-entries`.
    pub zset_max_listpack_entries: usize,
    /// `zset-max-listpack-value`, in bytes.
    pub zset_max_listpack_value: usize,
    /// `stream-node-max-bytes`; 0: no limit.
    pub stream_node_max_bytes: usize,
    /// `stream-node-max-entries`; 0: no limit.
    pub stream_node_max_entries: usize,
    /// `hll-sparse-max-bytes`.
    pub hll_sparse_max_bytes: usize,
}

impl Thresholds {
    /// Redis' own defaults.
    pub const DEFAULT: Thresholds = Thresholds {
        list_max_listpack_size: -2,
        list_plain_bytes_min: usize::MAX,
        hash_max_listpack_entries: 128,
        hash_max_listpack_value: 64,
        set_max_intset_entries: 512,
        set_max_listpack_entries: 128,
        set_max_listpack_value: 64,
        zset_max_listpack_entries: 128,
        zset_max_listpack_value: 64,
        stream_node_max_bytes: 4096,
        stream_node_max_entries: 100,
        hll_sparse_max_bytes: 3000,
    };
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds::DEFAULT
    }
}

/// A collection in its owned form.
#[derive(Clone, Debug)]
pub enum Collection {
    /// A list.
    List(List),
    /// A hash.
    Hash(Hash),
    /// A set.
    Set(Set),
    /// A sorted set.
    Zset(Zset),
    /// A stream.
    Stream(Stream),
}

/// A collection to be read.
#[derive(Clone, Copy, Debug)]
pub enum CollectionRef<'a> {
    /// A list.
    List(ListRef<'a>),
    /// A hash.
    Hash(HashRef<'a>),
    /// A set.
    Set(SetRef<'a>),
    /// A sorted set.
    Zset(ZsetRef<'a>),
    /// A stream.
    Stream(&'a Stream),
}

/// A collection as it was at a moment ([`CollectionRef::freeze`]): read wherever one likes while the collection itself changes. The two
/// share what has not changed, in any threads.
///
/// Of sorted sets only members with their scores by rank are as they were: the scores by member are those of now.
#[derive(Debug)]
pub struct Frozen(Collection);

impl Frozen {
    /// It, to be read.
    pub fn as_ref(&self) -> CollectionRef<'_> {
        self.0.as_ref()
    }
}

/// One of the types, for those who are generic over them.
pub trait Type: Sized + Into<Collection> {
    /// The borrowed form.
    type Ref<'a>: Copy;

    /// Whether a key whose last element goes away goes away with it.
    const DIES_EMPTY: bool = true;

    /// The compact encoding that it is in, and its bytes. None: it is native.
    fn compact(&self) -> Option<(Form, &[u8])>;

    /// The same, giving the bytes away.
    fn into_compact(self) -> Option<Vec<u8>>;

    /// The value whose compact encoding these bytes are. They come from [`Type::compact`]
    /// and are not checked.
    fn from_compact(form: Form, bytes: Vec<u8>) -> Self;

    /// It, to be read.
    fn as_ref(&self) -> Self::Ref<'_>;

    /// How many elements it has.
    fn len(&self) -> usize;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// This type in a collection to be read.
    fn read(collection: CollectionRef<'_>) -> Option<Self::Ref<'_>>;

    /// This type in a collection to be changed.
    fn edit(collection: &mut Collection) -> Option<&mut Self>;
}

impl Collection {
    /// The collection whose compact encoding these bytes are.
    pub fn from_compact(form: Form, bytes: Vec<u8>) -> Collection {
        match form {
            Form::List => List::from_compact(form, bytes).into(),
            Form::Hash => Hash::from_compact(form, bytes).into(),
            Form::SetOfInts | Form::Set => Set::from_compact(form, bytes).into(),
            Form::Zset => Zset::from_compact(form, bytes).into(),
        }
    }

    /// The compact encoding that it is in, and its bytes.
    pub fn compact(&self) -> Option<(Form, &[u8])> {
        match self {
            Collection::List(list) => list.compact(),
            Collection::Hash(hash) => hash.compact(),
            Collection::Set(set) => set.compact(),
            Collection::Zset(zset) => zset.compact(),
            Collection::Stream(stream) => stream.compact(),
        }
    }

    /// Frees up to `most` fields of a hash whose time has been up for a moment, each shown to `visit` before. How many it freed.
    pub fn remove_expired_fields(
        &mut self,
        now: UnixMs,
        most: usize,
        visit: impl FnMut(&[u8]),
    ) -> (usize, Removed) {
        match self {
            Collection::Hash(hash) => hash.remove_expired(now, most, visit),
            _ => (0, Removed::All),
        }
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        match self {
            Collection::List(list) => list.len(),
            Collection::Hash(hash) => hash.len(),
            Collection::Set(set) => set.len(),
            Collection::Zset(zset) => zset.len(),
            Collection::Stream(stream) => stream.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// It, to be read.
    pub fn as_ref(&self) -> CollectionRef<'_> {
        match self {
            Collection::List(list) => CollectionRef::List(list.as_ref()),
            Collection::Hash(hash) => CollectionRef::Hash(hash.as_ref()),
            Collection::Set(set) => CollectionRef::Set(set.as_ref()),
            Collection::Zset(zset) => CollectionRef::Zset(zset.as_ref()),
            Collection::Stream(stream) => CollectionRef::Stream(stream.as_ref()),
        }
    }
}

impl<'a> CollectionRef<'a> {
    /// The collection whose compact encoding these bytes are.
    pub fn from_compact(form: Form, bytes: &'a [u8]) -> CollectionRef<'a> {
        match form {
            Form::List => CollectionRef::List(ListRef::from_compact(bytes)),
            Form::Hash => CollectionRef::Hash(HashRef::from_compact(bytes)),
            Form::SetOfInts | Form::Set => CollectionRef::Set(SetRef::from_compact(form, bytes)),
            Form::Zset => CollectionRef::Zset(ZsetRef::from_compact(bytes)),
        }
    }

    /// About when the first field of a hash expires, if one does.
    #[inline]
    pub fn next_field_expiry(self) -> Option<UnixMs> {
        match self {
            CollectionRef::Hash(hash) => hash.next_expiry(),
            _ => None,
        }
    }

    /// TYPE's answer.
    pub fn type_name(self) -> TypeName {
        match self {
            CollectionRef::List(_) => TypeName::List,
            CollectionRef::Hash(_) => TypeName::Hash,
            CollectionRef::Set(_) => TypeName::Set,
            CollectionRef::Zset(_) => TypeName::Zset,
            CollectionRef::Stream(_) => TypeName::Stream,
        }
    }

    /// OBJECT ENCODING's answer.
    pub fn encoding(self) -> Encoding {
        match self {
            CollectionRef::List(list) => list.encoding(),
            CollectionRef::Hash(hash) => hash.encoding(),
            CollectionRef::Set(set) => set.encoding(),
            CollectionRef::Zset(zset) => zset.encoding(),
            CollectionRef::Stream(_) => Encoding::Stream,
        }
    }

    /// Bytes of memory that it takes, estimated from at most `samples` elements
    /// (0: from all).
    pub fn allocated_bytes(self, samples: usize) -> usize {
        match self {
            CollectionRef::List(list) => list.allocated_bytes(samples),
            CollectionRef::Hash(hash) => hash.allocated_bytes(samples),
            CollectionRef::Set(set) => set.allocated_bytes(samples),
            CollectionRef::Zset(zset) => zset.allocated_bytes(samples),
            CollectionRef::Stream(stream) => stream.allocated_bytes(samples),
        }
    }

    /// The address of the word where a search for an element of this position begins, in a collection that
    /// has a table; for prefetching.
    #[inline]
    pub fn home_address(self, position: Position) -> Option<usize> {
        match self {
            CollectionRef::Hash(HashRef::Table(fields)) => Some(fields.home_address(position)),
            CollectionRef::Set(SetRef::Table(members)) => Some(members.home_address(position)),
            CollectionRef::Zset(ZsetRef::Native(members)) => Some(members.home_address(position)),
            _ => None,
        }
    }

    /// The address of the element that such a search is likely to look at.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits")]
    pub fn likely_address(self, position: Position) -> Option<usize> {
        let address = match self {
            CollectionRef::Hash(HashRef::Table(fields)) => fields.likely_address(position),
            CollectionRef::Set(SetRef::Table(members)) => members.likely_address(position),
            CollectionRef::Zset(ZsetRef::Native(members)) => members.likely_address(position),
            _ => None,
        };
        address.map(|address| address as usize)
    }

    /// A copy of its own.
    pub fn to_owned(self) -> Collection {
        match self {
            CollectionRef::List(list) => Collection::List(list.to_owned()),
            CollectionRef::Hash(hash) => Collection::Hash(hash.to_owned()),
            CollectionRef::Set(set) => Collection::Set(set.to_owned()),
            CollectionRef::Zset(zset) => Collection::Zset(zset.to_owned()),
            CollectionRef::Stream(stream) => Collection::Stream(stream.clone()),
        }
    }

    /// It as it is now, to be read while it changes. That takes a step for some thousands of elements: for each segment of a table, for each
    /// chunk of a list's nodes. Of a stream it takes one for each node, and its groups are copied. None: it is compact, so a copy is as good.
    pub fn freeze(self) -> Option<Frozen> {
        let frozen = match self {
            CollectionRef::List(ListRef::Quicklist(list)) => Collection::List(List::Quicklist(list.clone())),
            CollectionRef::Hash(HashRef::Table(fields)) => Collection::Hash(Hash::Table(fields.frozen())),
            CollectionRef::Set(SetRef::Table(members)) => Collection::Set(Set::Table(members.frozen())),
            CollectionRef::Zset(ZsetRef::Native(native)) => {
                Collection::Zset(Zset::Native(Box::new(native.frozen())))
            }
            CollectionRef::Stream(stream) => Collection::Stream(stream.clone()),
            _ => return None,
        };
        Some(Frozen(frozen))
    }

    /// How many steps it takes to free it, roughly: the number of separate allocations.
    pub fn pieces(self) -> usize {
        match self {
            CollectionRef::List(list) => list.pieces(),
            CollectionRef::Hash(hash) => hash.pieces(),
            CollectionRef::Set(set) => set.pieces(),
            CollectionRef::Zset(zset) => zset.pieces(),
            CollectionRef::Stream(stream) => stream.pieces(),
        }
    }
}

/// Implements what is the same for every type but the stream: the ways in and out of a
/// [`Collection`].
macro_rules! member_of_collection {
    ($($name:ident),*) => {$(
        impl From<$name> for Collection {
            fn from(value: $name) -> Collection {
                Collection::$name(value)
            }
        }
    )*};
}

member_of_collection!(List, Hash, Set, Zset, Stream);
