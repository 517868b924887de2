//! The RDB encoding of single values: DUMP writes it, RESTORE and MIGRATE read it; `file` makes whole files of it.
//!
//! A payload is a type byte, the value's encoding, and a footer: the RDB version in two bytes and the
//! CRC-64 of all before it in eight, both little-endian. Strings and lengths, which every type is made
//! of, are here; a further type adds its own file and a variant of [`Restored`].
//!
//! 1. What is written is what Redis 7.0 writes, so that it and all later ones read it; where 5.0 is to read it, in its types.
//! 2. No payload, however hostile, makes `restore` panic or allocate more than its bytes can hold.

pub mod file;

use crate::collection::{Collection, CollectionRef, Thresholds};
use crate::crc64::crc64;
use crate::hash::Hash;
use crate::limits::{RDB_COMPRESS_BYTES_MIN, RDB_INTEGER_TEXT_BYTES_MAX};
use crate::list::List;
use crate::lzf;
use crate::number::{IntBuffer, format_i64, parse_i64};
use crate::set::Set;
use crate::stream::{Reads, Stream};
use crate::zset::{Zset, ZsetRef};
use std::cell::Cell;

/// The version that payloads are written with: that of Redis 7.0, so that it reads them too.
pub const VERSION_WRITTEN: u16 = 10;
/// The version of Redis 5.0 to 6.2, which know no listpacks but in streams, and no functions.
pub const VERSION_OF_50: u16 = 9;
/// The version of Redis 7.2, which knows when consumers of streams were active.
pub const VERSION_OF_72: u16 = 11;
/// The newest version that is read. 12 (Redis 7.4 and 8.0) only adds types, which are refused as such.
pub const VERSION_READ_MAX: u16 = 12;

const TYPE_STRING: u8 = 0;
/// Stands before the code of a library of functions.
const LIBRARY: u8 = 245;
/// The same in candidates for Redis 7.0, which nobody reads.
const LIBRARY_OF_CANDIDATE: u8 = 246;
const LENGTH_32: u8 = 0x80;
const LENGTH_64: u8 = 0x81;
const ENCODED: u8 = 0xc0;
const ENCODED_INT8: u8 = ENCODED;
const ENCODED_INT16: u8 = ENCODED | 1;
const ENCODED_INT32: u8 = ENCODED | 2;
const ENCODED_LZF: u8 = ENCODED | 3;
/// Compression has to save this much to be kept.
const SAVED_BYTES_MIN: usize = 4;

/// What most images that are said in one word have room in.
const IMAGE_BYTES: usize = 1024;

thread_local! {
    /// Whether strings are compressed where that makes them shorter.
    static COMPRESSES: Cell<bool> = const { Cell::new(true) };
}

/// Does some work, in which this thread compresses nothing that it writes: to compress a value takes several times as long as all else that is done with
/// it on its way to a server nearby.
pub fn uncompressed<T>(work: impl FnOnce() -> T) -> T {
    struct AsBefore(bool);
    impl Drop for AsBefore {
        fn drop(&mut self) {
            COMPRESSES.set(self.0);
        }
    }
    let _before = AsBefore(COMPRESSES.replace(false));
    work()
}

/// A value read from a payload.
#[derive(Clone, Debug)]
pub enum Restored {
    /// A string's bytes; its encoding is chosen anew.
    String(Vec<u8>),
    /// Any other type.
    Collection(Collection),
}

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// Too short, too new, or its checksum is wrong: "DUMP payload version or checksum are wrong".
    BadFooter,
    /// The footer is right but the value is not one: "Bad data format".
    BadFormat,
    /// A library as candidates for Redis 7.0 wrote it.
    OfCandidate,
}

/// Whether the checksum of what is read has to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It has.
    Checked,
    /// It is passed over: tests read what they have damaged.
    Ignored,
}

/// Is shown what was written of an image, after each element, and may take it.
pub(crate) type Drain<'d> = &'d mut dyn FnMut(&mut Vec<u8>);

/// Takes nothing.
pub(crate) fn keep(_: &mut Vec<u8>) {}

/// The DUMP payload of a string.
pub fn dump_string(value: &[u8]) -> Vec<u8> {
    dump_string_for(value, Reads::Redis70)
}

/// The same for these readers.
pub fn dump_string_for(value: &[u8], reads: Reads) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len().min(4096) + 16);
    out.push(TYPE_STRING);
    write_string(&mut out, value);
    write_footer_for(&mut out, reads);
    out
}

/// The DUMP payload of another type.
pub fn dump(collection: CollectionRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write_collection(collection, &mut out, &mut keep);
    write_footer(&mut out);
    out
}

/// The same for our own use, as exact as these readers know one.
pub fn dump_exactly(collection: CollectionRef<'_>, reads: Reads) -> Vec<u8> {
    let mut out = Vec::with_capacity(IMAGE_BYTES);
    match collection {
        CollectionRef::Stream(stream) => stream.write_image(reads, &mut out, &mut keep),
        other if reads == Reads::Redis50 => write_plain_exactly(other, &mut out),
        other => write_exactly(other, &mut out),
    }
    write_footer_for(&mut out, reads);
    out
}

/// Appends a collection's image for our own use, as exact as there is one; [`of_image`] reads it.
pub fn write_exactly(collection: CollectionRef<'_>, out: &mut Vec<u8>) {
    write_exact_image(collection, out, &mut keep);
}

/// In types that Redis 5.0 knows, with scores of -0 as they are.
fn write_plain_exactly(collection: CollectionRef<'_>, out: &mut Vec<u8>) {
    match collection {
        CollectionRef::Zset(zset @ ZsetRef::Native(_)) => zset.write_exact_image(out, &mut keep),
        other => write_collection_for_50(other, out, &mut keep),
    }
}

fn write_exact_image(collection: CollectionRef<'_>, out: &mut Vec<u8>, drain: Drain<'_>) {
    match collection {
        CollectionRef::Stream(stream) => stream.write_image(Reads::Redis72, out, drain),
        CollectionRef::Zset(zset) => zset.write_exact_image(out, drain),
        other => write_collection(other, out, drain),
    }
}

/// Reads what [`write_exactly`] has written.
///
/// # Errors
/// It is something else.
pub fn of_image(image: &[u8], thresholds: &Thresholds) -> Result<Collection, RestoreError> {
    let mut body = Reader::over(image);
    let image_type = body.byte()?;
    match read_value(image_type, &mut body, thresholds)? {
        Restored::Collection(collection) => Ok(collection),
        Restored::String(_) => Err(RestoreError::BadFormat),
    }
}

/// The DUMP payload of a stream with this one's groups, exactly, to which nothing was added yet.
pub fn dump_groups(stream: &Stream, reads: Reads) -> Vec<u8> {
    let mut out = Vec::new();
    stream.write_groups_image(reads, &mut out);
    write_footer_for(&mut out, reads);
    out
}

/// Whether an image is of a compact encoding, written as it was.
pub fn is_compact_image(image: &[u8]) -> bool {
    let types = [Hash::COMPACT_IMAGE_TYPES, Set::COMPACT_IMAGE_TYPES, Zset::COMPACT_IMAGE_TYPES];
    image.first().is_some_and(|image_type| types.iter().any(|known| known.contains(image_type)))
}

/// Appends a collection's type and its image.
fn write_collection(collection: CollectionRef<'_>, out: &mut Vec<u8>, drain: Drain<'_>) {
    match collection {
        CollectionRef::List(list) => list.write_image(out, drain),
        CollectionRef::Hash(hash) => hash.write_image(out, drain),
        CollectionRef::Set(set) => set.write_image(out, drain),
        CollectionRef::Zset(zset) => zset.write_image(out, drain),
        CollectionRef::Stream(stream) => stream.write_image(Reads::Redis70, out, drain),
    }
}

/// The same in the types that Redis 5.0 knows, whatever the encoding is.
fn write_collection_for_50(collection: CollectionRef<'_>, out: &mut Vec<u8>, drain: Drain<'_>) {
    match collection {
        CollectionRef::List(list) => list.write_plain_image(out, drain),
        CollectionRef::Hash(hash) => hash.write_plain_image(out, drain),
        // Its two types are older than that.
        CollectionRef::Set(set) => set.write_image(out, drain),
        CollectionRef::Zset(zset) => zset.write_plain_image(out, drain),
        CollectionRef::Stream(stream) => stream.write_image(Reads::Redis50, out, drain),
    }
}

/// The same as Redis 7.2 writes it.
fn write_collection_for_72(collection: CollectionRef<'_>, out: &mut Vec<u8>, drain: Drain<'_>) {
    match collection {
        CollectionRef::Stream(stream) => stream.write_image(Reads::Redis72, out, drain),
        other => write_collection(other, out, drain),
    }
}

/// Reads a DUMP payload. Bytes between the value and the footer are ignored, as in Redis.
pub fn restore(payload: &[u8], thresholds: &Thresholds) -> Result<Restored, RestoreError> {
    restore_by(payload, thresholds, Checksum::Checked)
}

/// The same, with the checksum looked at or not.
pub fn restore_by(
    payload: &[u8],
    thresholds: &Thresholds,
    checksum: Checksum,
) -> Result<Restored, RestoreError> {
    let mut body = Reader::over(check_footer(payload, checksum)?);
    let image_type = body.byte()?;
    read_value(image_type, &mut body, thresholds)
}

/// Reads what follows a value's type.
fn read_value(
    image_type: u8,
    body: &mut Reader<'_>,
    thresholds: &Thresholds,
) -> Result<Restored, RestoreError> {
    let is_of = |types: &[u8]| types.contains(&image_type);
    Ok(Restored::Collection(match image_type {
        TYPE_STRING => return Ok(Restored::String(body.string()?)),
        _ if is_of(List::IMAGE_TYPES) => List::read_image(image_type, body, thresholds)?.into(),
        _ if is_of(Hash::IMAGE_TYPES) => Hash::read_image(image_type, body, thresholds)?.into(),
        _ if is_of(Set::IMAGE_TYPES) => Set::read_image(image_type, body, thresholds)?.into(),
        _ if is_of(Zset::IMAGE_TYPES) => Zset::read_image(image_type, body, thresholds)?.into(),
        _ if is_of(Stream::IMAGE_TYPES) => Stream::read_image(image_type, body, thresholds)?.into(),
        _ => return Err(RestoreError::BadFormat),
    }))
}

/// Appends version and checksum to a value.
/// Libraries of functions, by their code, as FUNCTION DUMP gives them.
pub fn dump_libraries<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for code in codes {
        out.push(LIBRARY);
        write_string(&mut out, code);
    }
    write_footer(&mut out);
    out
}

/// The code of each library of a payload.
///
/// # Errors
/// The payload is not one, or holds something else.
pub fn restore_libraries(payload: &[u8], checksum: Checksum) -> Result<Vec<Vec<u8>>, RestoreError> {
    let mut body = Reader::over(check_footer(payload, checksum)?);
    let mut codes = Vec::new();
    while !body.rest.is_empty() {
        match body.byte()? {
            LIBRARY => {}
            LIBRARY_OF_CANDIDATE => return Err(RestoreError::OfCandidate),
            _ => return Err(RestoreError::BadFormat),
        }
        codes.push(body.string()?);
    }
    Ok(codes)
}

fn write_footer(out: &mut Vec<u8>) {
    write_footer_for(out, Reads::Redis70);
}

/// A payload of Redis 7.2 has the version of 7.0: what it has beyond that is told by its type.
fn write_footer_for(out: &mut Vec<u8>, reads: Reads) {
    let version = if reads == Reads::Redis50 { VERSION_OF_50 } else { VERSION_WRITTEN };
    out.extend_from_slice(&version.to_le_bytes());
    let crc = crc64(0, out);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// The payload without its footer, once that has been found right.
fn check_footer(payload: &[u8], checksum: Checksum) -> Result<&[u8], RestoreError> {
    let (checked, crc) = payload.split_last_chunk::<8>().ok_or(RestoreError::BadFooter)?;
    let (body, version) = checked.split_last_chunk::<2>().ok_or(RestoreError::BadFooter)?;
    let is_readable = u16::from_le_bytes(*version) <= VERSION_READ_MAX;
    let is_right = checksum == Checksum::Ignored || u64::from_le_bytes(*crc) == crc64(0, checked);
    if !is_readable || !is_right {
        return Err(RestoreError::BadFooter);
    }
    Ok(body)
}

/// Appends a string in its shortest form: an integer, compressed, or as it is.
pub(crate) fn write_string(out: &mut Vec<u8>, value: &[u8]) {
    if value.len() <= RDB_INTEGER_TEXT_BYTES_MAX
        && let Some(integer) = parse_i64(value)
        && write_integer(out, integer)
    {
        return;
    }
    if value.len() > RDB_COMPRESS_BYTES_MIN
        && COMPRESSES.get()
        && let Some(packed) = lzf::compress(value, value.len() - SAVED_BYTES_MIN)
    {
        out.push(ENCODED_LZF);
        write_length(out, packed.len() as u64);
        write_length(out, value.len() as u64);
        out.extend_from_slice(&packed);
        return;
    }
    write_length(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends an integer in one, two or four bytes; `false`, and nothing appended, if it needs more.
#[must_use]
fn write_integer(out: &mut Vec<u8>, value: i64) -> bool {
    if let Ok(value) = i8::try_from(value) {
        out.push(ENCODED_INT8);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        out.push(ENCODED_INT16);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(ENCODED_INT32);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        return false;
    }
    true
}

/// Appends a length in one, two, five or nine bytes.
#[expect(clippy::cast_possible_truncation, reason = "the arm says how large it is")]
pub(crate) fn write_length(out: &mut Vec<u8>, length: u64) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            out.push(LENGTH_32);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(LENGTH_64);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// What stands where a string's length stands.
enum Prefix {
    Length(u64),
    Encoded(u8),
}

/// A cursor over the bytes of a value.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    /// Whether more was asked for than there was.
    ran_out: bool,
    /// What declares to be longer is refused before it is there.
    string_max: u64,
}

impl<'a> Reader<'a> {
    /// Begins with the first of `bytes`.
    pub fn over(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, ran_out: false, string_max: u64::MAX }
    }

    pub fn byte(&mut self) -> Result<u8, RestoreError> {
        self.array().map(|[byte]| byte)
    }

    /// A length; the special encodings, which only strings have, are refused.
    pub fn length(&mut self) -> Result<u64, RestoreError> {
        match self.prefix()? {
            Prefix::Length(length) => Ok(length),
            Prefix::Encoded(_) => Err(RestoreError::BadFormat),
        }
    }

    pub fn string(&mut self) -> Result<Vec<u8>, RestoreError> {
        match self.prefix()? {
            Prefix::Length(length) => self.take(length).map(<[u8]>::to_vec),
            Prefix::Encoded(ENCODED_INT8) => Ok(integer_text(i8::from_le_bytes(self.array()?).into())),
            Prefix::Encoded(ENCODED_INT16) => Ok(integer_text(i16::from_le_bytes(self.array()?).into())),
            Prefix::Encoded(ENCODED_INT32) => Ok(integer_text(i32::from_le_bytes(self.array()?).into())),
            Prefix::Encoded(ENCODED_LZF) => self.compressed(),
            Prefix::Encoded(_) => Err(RestoreError::BadFormat),
        }
    }

    fn compressed(&mut self) -> Result<Vec<u8>, RestoreError> {
        let packed_length = self.length()?;
        let length = self.length()?;
        if length > packed_length.saturating_mul(EXPANSION_MAX) || length > self.string_max {
            return Err(RestoreError::BadFormat);
        }
        let length = usize::try_from(length).map_err(|_| RestoreError::BadFormat)?;
        let packed = self.take(packed_length)?;
        lzf::decompress(packed, length).ok_or(RestoreError::BadFormat)
    }

    fn prefix(&mut self) -> Result<Prefix, RestoreError> {
        let first = self.byte()?;
        let length = match (first >> 6, first) {
            (0, _) => u64::from(first),
            (1, _) => u64::from(first & 0x3f) << 8 | u64::from(self.byte()?),
            (_, LENGTH_32) => u64::from(u32::from_be_bytes(self.array()?)),
            (_, LENGTH_64) => u64::from_be_bytes(self.array()?),
            (3, _) => return Ok(Prefix::Encoded(first)),
            _ => return Err(RestoreError::BadFormat),
        };
        Ok(Prefix::Length(length))
    }

    pub fn take(&mut self, count: u64) -> Result<&[u8], RestoreError> {
        if count > self.string_max {
            return Err(RestoreError::BadFormat);
        }
        let count = usize::try_from(count).map_err(|_| RestoreError::BadFormat)?;
        match self.rest.split_off(..count) {
            Some(taken) => Ok(taken),
            None => Err(self.note_end()),
        }
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let Some((array, rest)) = self.rest.split_first_chunk() else { return Err(self.note_end()) };
        self.rest = rest;
        Ok(*array)
    }

    fn note_end(&mut self) -> RestoreError {
        self.ran_out = true;
        RestoreError::BadFormat
    }
}

/// So many bytes at most stand for one that is packed: a copy of up to 264 bytes takes three.
const EXPANSION_MAX: u64 = 264 / 3;

fn integer_text(value: i64) -> Vec<u8> {
    format_i64(value, &mut IntBuffer::new()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOOTER_BYTES: usize = 2 + 8;

    fn payload(body: &[u8], version: u16) -> Vec<u8> {
        let mut out = [body, &version.to_le_bytes()].concat();
        out.extend_from_slice(&crc64(0, &out).to_le_bytes());
        out
    }

    fn restored(payload: &[u8]) -> Result<Vec<u8>, RestoreError> {
        match restore(payload, &Thresholds::default())? {
            Restored::String(value) => Ok(value),
            Restored::Collection(other) => panic!("no string: {other:?}"),
        }
    }

    #[test]
    fn strings_survive_dump_and_restore() {
        let long = vec![b'x'; 100_000];
        let mixed: Vec<u8> = (0..20_000u32).map(|index| (index * index / 128) as u8).collect();
        for value in [b"".as_slice(), b"0", b"-128", b"128", b"-32769", b"2147483648", b"007", &long, &mixed]
        {
            assert_eq!(restored(&dump_string(value)).as_deref(), Ok(value));
        }
    }

    #[test]
    fn nothing_is_compressed_where_that_is_not_wanted() {
        let long = vec![b'x'; 1000];
        let compressed = dump_string(&long);
        let whole = uncompressed(|| dump_string(&long));
        assert!(compressed.len() < 100 && whole.len() > 1000);
        assert_eq!(restored(&whole).as_deref(), Ok(&long[..]));
        assert_eq!(dump_string(&long), compressed, "it was for that one");
    }

    #[test]
    fn encodings_are_those_of_redis() {
        let body = |value: &[u8]| {
            let payload = dump_string(value);
            payload[..payload.len() - FOOTER_BYTES].to_vec()
        };
        assert_eq!(body(b"-1"), [0, 0xc0, 0xff]);
        assert_eq!(body(b"300"), [0, 0xc1, 0x2c, 0x01]);
        assert_eq!(body(b"-2147483648"), [0, 0xc2, 0, 0, 0, 0x80]);
        assert_eq!(body(b"2147483648"), [b"\0\x0a".as_slice(), b"2147483648"].concat());
        assert_eq!(body(&[b'a'; 21]), [0, 0xc3, 6, 21, 1, b'a', b'a', 0xe0, 10, 0]);
        assert_eq!(body(&[b'a'; 20])[..2], [0, 20]);
        let plain: Vec<u8> = (0..200).collect();
        assert_eq!(body(&plain)[..3], [0, 0x40, 200]);
    }

    #[test]
    fn footer_must_fit_the_body() {
        let good = dump_string(b"value");
        for cut in 0..good.len() {
            assert_eq!(restored(&good[..cut]), Err(RestoreError::BadFooter));
        }
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 1;
            assert_eq!(restored(&bad), Err(RestoreError::BadFooter));
        }
        assert_eq!(restored(&payload(b"\0\x01v", VERSION_READ_MAX)).as_deref(), Ok(b"v".as_slice()));
        assert_eq!(restored(&payload(b"\0\x01v", VERSION_READ_MAX + 1)), Err(RestoreError::BadFooter));
    }

    #[test]
    fn hostile_bodies_are_refused() {
        let bodies: [&[u8]; 10] = [
            b"",
            b"\0",
            b"\xff\x01v",
            b"\0\x05abc",
            b"\0\x80\xff\xff\xff\xffa",
            b"\0\x81\xff\xff\xff\xff\xff\xff\xff\xffa",
            b"\0\xc4",
            b"\0\xc3\x02\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x00a",
            b"\0\xc3\xc0\x01\x02",
            b"\0\x82abcd",
        ];
        for body in bodies {
            assert_eq!(restored(&payload(body, VERSION_WRITTEN)), Err(RestoreError::BadFormat), "{body:?}");
        }
    }
}
