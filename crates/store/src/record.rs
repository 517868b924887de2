//! Records: one key with the image of its object, and their heads on disk. Bytes: `docs/formats/store.md`.
//!
//! What an image means, what `kind` and `flags` say, and whether a record has expired, only the caller knows. Pure functions,
//! any thread. Invariant: whatever bytes are decoded, lengths are checked before they are used.

use crate::pack;
use std::borrow::Cow;
use sys::UnixMs;

/// A record as it is written, and as it is found in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The database that the key is in.
    pub database: u32,
    /// The key.
    pub key: &'a [u8],
    /// When the key expires, if it does.
    pub expires_at: Option<UnixMs>,
    /// The caller's: which type the image is of.
    pub kind: u8,
    /// The caller's: whatever else it wants to know without decoding the image.
    pub flags: u8,
    /// The object.
    pub image: Image<'a>,
}

/// The bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image<'a> {
    /// As they are.
    Plain(&'a [u8]),
    /// Compressed by the store. A record that is found so can be added again as it is.
    Packed {
        /// What is on disk.
        bytes: &'a [u8],
        /// Length of what they stand for, bytes.
        plain_bytes: u32,
    },
}

/// A record that was read, with memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// As in [`Record`].
    pub database: u32,
    /// As in [`Record`].
    pub key: Vec<u8>,
    /// As in [`Record`].
    pub expires_at: Option<UnixMs>,
    /// As in [`Record`].
    pub kind: u8,
    /// As in [`Record`].
    pub flags: u8,
    /// The object's bytes, as they were before the store compressed them.
    pub image: Vec<u8>,
}

impl OwnedRecord {
    /// The record, to be added again.
    pub fn as_record(&self) -> Record<'_> {
        let OwnedRecord { database, key, expires_at, kind, flags, image } = self;
        let (database, expires_at, kind, flags) = (*database, *expires_at, *kind, *flags);
        Record { database, key, expires_at, kind, flags, image: Image::Plain(image) }
    }
}

impl<'a> Image<'a> {
    /// What is or was written, bytes.
    #[inline]
    pub fn stored(&self) -> &'a [u8] {
        match self {
            Image::Plain(bytes) | Image::Packed { bytes, .. } => bytes,
        }
    }

    /// Length of the object's bytes.
    pub fn plain_bytes(&self) -> usize {
        match self {
            Image::Plain(bytes) => bytes.len(),
            Image::Packed { plain_bytes, .. } => *plain_bytes as usize,
        }
    }

    /// The object's bytes; None if they do not decompress to what was packed.
    pub fn plain(&self) -> Option<Cow<'a, [u8]>> {
        match self {
            Image::Plain(bytes) => Some(Cow::Borrowed(bytes)),
            Image::Packed { bytes, plain_bytes } => {
                let mut plain = Vec::new();
                pack::unpack(bytes, *plain_bytes, &mut plain)?;
                Some(Cow::Owned(plain))
            }
        }
    }
}

impl<'a> Record<'a> {
    /// The record with memory of its own; None if its image does not decompress.
    pub fn to_owned(&self) -> Option<OwnedRecord> {
        let Record { database, key, expires_at, kind, flags, image } = *self;
        Some(OwnedRecord {
            database,
            key: key.to_vec(),
            expires_at,
            kind,
            flags,
            image: image.plain()?.into_owned(),
        })
    }

    pub(crate) fn head(&self, role: Role) -> Head {
        let plain_bytes = match self.image {
            Image::Plain(_) => None,
            Image::Packed { plain_bytes, .. } => Some(plain_bytes),
        };
        Head {
            role,
            kind: self.kind,
            flags: self.flags,
            database: self.database,
            key_bytes: self.key.len(),
            image_bytes: self.image.stored().len(),
            expires_at: self.expires_at,
            plain_bytes,
        }
    }
}

/// What a record is for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A key with its image.
    Whole,
    /// A key with the places of its image's parts.
    Manifest,
    /// A part of an image, without its key.
    Part,
}

/// How wide a head's lengths are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// In a page, 2 bytes each.
    Short,
    /// In an extent, 4 bytes each.
    Long,
}

/// What stands before a record's key and image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub role: Role,
    pub kind: u8,
    pub flags: u8,
    pub database: u32,
    pub key_bytes: usize,
    pub image_bytes: usize,
    pub expires_at: Option<UnixMs>,
    /// Of an image that is packed.
    pub plain_bytes: Option<u32>,
}

/// Bytes of a head at most.
pub(crate) const HEAD_BYTES_MAX: usize = 28;

/// Eight bytes say when the key expires.
const EXPIRES: u8 = 1;
/// The image is packed; four bytes say how long it is unpacked.
const PACKED: u8 = 2;
/// Four bytes say which database it is; without, one of the first 256.
const DATABASE: u8 = 4;
const MANIFEST: u8 = 8;
const PART: u8 = 16;
const ALL: u8 = EXPIRES | PACKED | DATABASE | MANIFEST | PART;

impl Head {
    /// Bytes of the head alone.
    #[inline]
    pub fn bytes(&self, width: Width) -> usize {
        let lengths = match width {
            Width::Short => 8,
            Width::Long => 12,
        };
        lengths
            + if self.database > 255 { 4 } else { 0 }
            + if self.expires_at.is_some() { 8 } else { 0 }
            + if self.plain_bytes.is_some() { 4 } else { 0 }
    }

    /// Bytes of the record.
    #[inline]
    pub fn record_bytes(&self, width: Width) -> usize {
        self.bytes(width) + self.key_bytes + self.image_bytes
    }

    /// Writes the head, and gives its length. Lengths must fit their width.
    pub fn encode(&self, width: Width, out: &mut [u8; HEAD_BYTES_MAX]) -> usize {
        const FITS: &str = "the width was chosen by the lengths";
        let mut marks = match self.role {
            Role::Whole => 0,
            Role::Manifest => MANIFEST,
            Role::Part => PART,
        };
        let mut at = match width {
            Width::Short => {
                let [key_bytes, image_bytes] =
                    [self.key_bytes, self.image_bytes].map(|bytes| u16::try_from(bytes).expect(FITS));
                out[4..6].copy_from_slice(&key_bytes.to_le_bytes());
                out[6..8].copy_from_slice(&image_bytes.to_le_bytes());
                8
            }
            Width::Long => {
                let [key_bytes, image_bytes] =
                    [self.key_bytes, self.image_bytes].map(|bytes| u32::try_from(bytes).expect(FITS));
                out[4..8].copy_from_slice(&key_bytes.to_le_bytes());
                out[8..12].copy_from_slice(&image_bytes.to_le_bytes());
                12
            }
        };
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if self.database > 255 {
            marks |= DATABASE;
            put(&self.database.to_le_bytes());
        }
        if let Some(expires_at) = self.expires_at {
            marks |= EXPIRES;
            put(&expires_at.0.to_le_bytes());
        }
        if let Some(plain_bytes) = self.plain_bytes {
            marks |= PACKED;
            put(&plain_bytes.to_le_bytes());
        }
        let database = u8::try_from(self.database).unwrap_or(0);
        out[..4].copy_from_slice(&[marks, self.kind, self.flags, database]);
        at
    }

    /// Reads a head, and gives its length; None if it is none or cut off. Says nothing about what follows it.
    #[inline]
    pub fn decode(width: Width, bytes: &[u8]) -> Option<(Head, usize)> {
        let first = u64::from_le_bytes(*bytes.first_chunk()?);
        let [marks, kind, flags, database, ..] = first.to_le_bytes();
        let (key_bytes, image_bytes, mut at) = match width {
            Width::Short => ((first >> 32) as usize & 0xffff, (first >> 48) as usize, 8),
            Width::Long => ((first >> 32) as usize, u32_at(bytes, 8)? as usize, 12),
        };
        let mut head = Head {
            role: Role::Whole,
            kind,
            flags,
            database: u32::from(database),
            key_bytes,
            image_bytes,
            expires_at: None,
            plain_bytes: None,
        };
        if marks != 0 {
            head.role = match marks & (MANIFEST | PART) {
                0 => Role::Whole,
                MANIFEST => Role::Manifest,
                PART => Role::Part,
                _ => return None,
            };
            if marks & DATABASE != 0 {
                head.database = u32_at(bytes, at)?;
                at += 4;
            }
            if marks & EXPIRES != 0 {
                let expires_at = bytes.get(at..)?.first_chunk()?;
                head.expires_at = Some(UnixMs(u64::from_le_bytes(*expires_at)));
                at += 8;
            }
            if marks & PACKED != 0 {
                head.plain_bytes = Some(u32_at(bytes, at)?);
                at += 4;
            }
            if marks & !ALL != 0 {
                return None;
            }
        }
        Some((head, at))
    }

    /// The record with this head.
    pub fn record<'a>(&self, key: &'a [u8], stored: &'a [u8]) -> Record<'a> {
        let image = match self.plain_bytes {
            None => Image::Plain(stored),
            Some(plain_bytes) => Image::Packed { bytes: stored, plain_bytes },
        };
        let Head { kind, flags, database, expires_at, .. } = *self;
        Record { database, key, expires_at, kind, flags, image }
    }
}

/// Four bytes as a number, little-endian.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Eight bytes as a number, little-endian.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_as_they_were() {
        for width in [Width::Short, Width::Long] {
            for case in 0..24u32 {
                let head = Head {
                    role: [Role::Whole, Role::Manifest, Role::Part][case as usize % 3],
                    kind: case as u8,
                    flags: 255 - case as u8,
                    database: if case & 4 == 0 { 200 } else { 70_000 },
                    key_bytes: 65_535,
                    image_bytes: 300,
                    expires_at: (case & 8 != 0).then_some(UnixMs(u64::MAX)),
                    plain_bytes: (case & 16 != 0).then_some(u32::MAX),
                };
                let mut bytes = [0; HEAD_BYTES_MAX];
                let length = head.encode(width, &mut bytes);
                assert_eq!(length, head.bytes(width));
                assert_eq!(Head::decode(width, &bytes[..length]), Some((head, length)));
                assert_eq!(Head::decode(width, &bytes[..length - 1]), None, "{case}");
            }
        }
    }
}
