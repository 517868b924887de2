//! RDB files: all databases of a server in one stream of bytes.
//!
//! | bytes | what |
//! |---|---|
//! | `REDIS0010` | the format's name and version |
//! | 250, two strings | a fact about the writer |
//! | 254, length | what follows is of this database |
//! | 251, two lengths | how many keys it has, and how many of them expire |
//! | 252 and 8 bytes, or 253 and 4 bytes | the next key expires at this Unix time, in milliseconds or seconds |
//! | 248, length; 249, byte | the next key was idle for so many seconds; was used so often |
//! | type, string, value | a key and what it holds |
//! | 255, 8 bytes | the end, and the CRC-64 of all before; zero says that there is none. Before version 5 a file ends without it |
//!
//! Pure: the writer makes bytes, the reader takes them from any source. One thread at a time.
//!
//! 1. What is written is what Redis 7.0 reads, or 5.0 or 7.2 where that is asked for (but for hashes with fields that expire, which 7.4 brought).
//! 2. No file, however hostile, makes the reader panic, or hold much more than the file has bytes.

use super::{
    Checksum, Drain, Reader, RestoreError, Restored, TYPE_STRING, VERSION_OF_50, VERSION_OF_72,
    VERSION_READ_MAX, VERSION_WRITTEN, keep,
};
use super::{
    read_value, write_collection, write_collection_for_50, write_collection_for_72, write_exact_image,
    write_length, write_string,
};
use crate::collection::{CollectionRef, Thresholds};
use crate::crc64::crc64;
use crate::stream::Reads;
use std::fmt;
use std::io::{self, Read};

const MAGIC: &[u8; 5] = b"REDIS";
const HEADER_BYTES: usize = 9;
const CHECKSUM_BYTES: usize = 8;
/// Files of older versions have no checksum.
const VERSION_WITH_CHECKSUM: u32 = 5;
const OP_SLOT: u8 = 244;
const OP_FUNCTIONS: u8 = 245;
const OP_IDLE: u8 = 248;
const OP_FREQUENCY: u8 = 249;
const OP_AUX: u8 = 250;
const OP_SIZES: u8 = 251;
const OP_EXPIRY_MS: u8 = 252;
const OP_EXPIRY_S: u8 = 253;
const OP_DATABASE: u8 = 254;
const OP_END: u8 = 255;
/// The reader asks its source for this many bytes at a time, and for twice as many if one key needs more.
const WINDOW_BYTES: usize = 1 << 20;
/// Facts behind the first that are kept.
const LATE_FACTS_MAX: usize = 64;

/// Functions of more bytes than this are nothing that a server holds.
const LIBRARY_BYTES_MAX: usize = 256 << 20;

/// How much a key was used, as files tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUsage {
    /// Last used so many seconds before the file was written.
    IdleSeconds(u64),
    /// The logarithmic counter.
    Frequency(u8),
}

/// What stands before a value.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The key.
    pub key: &'a [u8],
    /// When it expires: a Unix time in milliseconds.
    pub expires_at_ms: Option<u64>,
    /// How much it was used.
    pub usage: Option<FileUsage>,
}

/// A value to be written.
#[derive(Clone, Copy)]
pub enum FileValue<'a> {
    /// A string's bytes.
    String(&'a [u8]),
    /// Any other type.
    Collection(CollectionRef<'a>),
}

/// Makes a file, piece by piece: what was added is taken whenever there is enough of it.
pub struct FileWriter {
    out: Vec<u8>,
    crc: u64,
    reads: Reads,
}

impl Default for FileWriter {
    fn default() -> Self {
        FileWriter::new()
    }
}

impl FileWriter {
    /// Begins a file.
    pub fn new() -> FileWriter {
        FileWriter::for_readers(Reads::Redis70)
    }

    /// Begins a file for readers of this version and later ones.
    pub fn for_readers(reads: Reads) -> FileWriter {
        let version = match reads {
            Reads::Redis50 => VERSION_OF_50,
            Reads::Redis70 => VERSION_WRITTEN,
            Reads::Redis72 => VERSION_OF_72,
        };
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(format!("{version:04}").as_bytes());
        FileWriter { out, crc: 0, reads }
    }

    /// A fact about the writer.
    pub fn aux(&mut self, name: &str, value: &str) {
        self.out.push(OP_AUX);
        write_string(&mut self.out, name.as_bytes());
        write_string(&mut self.out, value.as_bytes());
    }

    /// The code of a library of functions.
    pub fn add_function_library(&mut self, code: &[u8]) {
        self.out.push(OP_FUNCTIONS);
        write_string(&mut self.out, code);
    }

    /// Begins a database. The counts are hints for whoever reads.
    pub fn database(&mut self, number: u32, keys: u64, expiring: u64) {
        self.out.push(OP_DATABASE);
        write_length(&mut self.out, number.into());
        self.out.push(OP_SIZES);
        write_length(&mut self.out, keys);
        write_length(&mut self.out, expiring);
    }

    /// Goes on with a database that was begun before.
    pub fn select(&mut self, number: u32) {
        self.out.push(OP_DATABASE);
        write_length(&mut self.out, number.into());
    }

    /// Begins a part of this file, for [`FileWriter::append`].
    pub fn part(&self) -> FileWriter {
        FileWriter { out: Vec::new(), crc: 0, reads: self.reads }
    }

    /// Appends a part of which nothing was taken.
    pub fn append(&mut self, mut part: FileWriter) {
        match self.out.is_empty() {
            true => self.out = part.out,
            false => self.out.append(&mut part.out),
        }
    }

    /// A key.
    pub fn entry(
        &mut self,
        key: &[u8],
        value: FileValue<'_>,
        expires_at_ms: Option<u64>,
        usage: Option<FileUsage>,
    ) {
        let head = Head { key, expires_at_ms, usage };
        write_entry_by(self.image_writer(), &mut self.out, head, value, &mut keep);
    }

    /// A key with a long value: whenever there are so many bytes, they are handed on.
    ///
    /// # Errors
    /// Those of `hand_on`. There is no file then.
    pub fn long_entry(
        &mut self,
        head: Head<'_>,
        value: CollectionRef<'_>,
        piece_bytes: usize,
        hand_on: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let write_image = self.image_writer();
        let FileWriter { out, crc, .. } = self;
        let mut handed_on = Ok(());
        write_entry_by(write_image, out, head, FileValue::Collection(value), &mut |out| {
            if out.len() >= piece_bytes {
                *crc = crc64(*crc, out);
                let piece = std::mem::take(out);
                if handed_on.is_ok() {
                    handed_on = hand_on(piece);
                }
            }
        });
        handed_on
    }

    fn image_writer(&self) -> WriteImage {
        match self.reads {
            Reads::Redis50 => write_collection_for_50,
            Reads::Redis70 => write_collection,
            Reads::Redis72 => write_collection_for_72,
        }
    }

    /// Takes back what was added behind these bytes, none of which was taken.
    pub fn truncate(&mut self, pending_bytes: usize) {
        self.out.truncate(pending_bytes);
    }

    /// How many bytes wait to be taken.
    pub fn pending_bytes(&self) -> usize {
        self.out.len()
    }

    /// Takes what was added since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        self.crc = crc64(self.crc, &self.out);
        std::mem::take(&mut self.out)
    }

    /// Ends the file; what is returned is its rest.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(OP_END);
        self.crc = crc64(self.crc, &self.out);
        self.out.extend_from_slice(&self.crc.to_le_bytes());
        self.out
    }
}

/// Appends a key as files hold it. [`EntryReader`] reads what several calls make.
pub fn write_entry(
    out: &mut Vec<u8>,
    key: &[u8],
    value: FileValue<'_>,
    expires_at_ms: Option<u64>,
    usage: Option<FileUsage>,
) {
    write_entry_by(write_collection, out, Head { key, expires_at_ms, usage }, value, &mut keep);
}

/// The same for our own use, as exact as there is an image of it.
pub fn write_entry_exactly(out: &mut Vec<u8>, key: &[u8], value: FileValue<'_>, expires_at_ms: Option<u64>) {
    write_entry_by(write_exact_image, out, Head { key, expires_at_ms, usage: None }, value, &mut keep);
}

type WriteImage = fn(CollectionRef<'_>, &mut Vec<u8>, Drain<'_>);

fn write_entry_by(
    write_image: WriteImage,
    out: &mut Vec<u8>,
    Head { key, expires_at_ms, usage }: Head<'_>,
    value: FileValue<'_>,
    drain: Drain<'_>,
) {
    if let Some(at) = expires_at_ms {
        out.push(OP_EXPIRY_MS);
        out.extend_from_slice(&at.to_le_bytes());
    }
    match usage {
        Some(FileUsage::IdleSeconds(seconds)) => {
            out.push(OP_IDLE);
            write_length(out, seconds);
        }
        Some(FileUsage::Frequency(frequency)) => out.extend_from_slice(&[OP_FREQUENCY, frequency]),
        None => {}
    }
    let type_at = out.len();
    match value {
        FileValue::String(bytes) => {
            out.push(TYPE_STRING);
            write_string(out, key);
            write_string(out, bytes);
        }
        FileValue::Collection(collection) => {
            // The key stands between an image's type and the rest of it.
            let mut is_named = false;
            let mut name = |out: &mut Vec<u8>| {
                if !is_named {
                    is_named = true;
                    let image = out.split_off(type_at);
                    out.push(image[0]);
                    write_string(out, key);
                    out.extend_from_slice(&image[1..]);
                }
            };
            write_image(collection, out, &mut |out| {
                name(out);
                drain(out);
            });
            name(out);
        }
    }
}

/// Reads entries that stand one behind the other, with nothing else.
pub struct EntryReader<'a>(Reader<'a>);

impl<'a> EntryReader<'a> {
    /// Of these bytes.
    pub fn new(entries: &'a [u8]) -> EntryReader<'a> {
        EntryReader(Reader::over(entries))
    }

    /// The next key; None at the end. Its database is 0.
    ///
    /// # Errors
    /// If there is something else.
    pub fn next_entry(&mut self, thresholds: &Thresholds) -> Result<Option<FileEntry>, RestoreError> {
        if self.0.rest.is_empty() {
            return Ok(None);
        }
        match item(&mut self.0, 0, thresholds)? {
            Item::Entry(entry) => Ok(Some(*entry)),
            Item::Database(_) | Item::Library(_) | Item::Fact(..) | Item::Passed | Item::End => {
                Err(RestoreError::BadFormat)
            }
        }
    }
}

/// Why a file is not read.
#[derive(Debug)]
pub enum FileError {
    /// It is no RDB file.
    NotAnRdbFile,
    /// It was written by a newer version.
    TooNew(u32),
    /// It ends before its end.
    CutOff,
    /// Something at this offset is not what it should be, or of a type that is not known.
    Corrupt(u64),
    /// The bytes are not those that were written.
    BadChecksum,
    /// The source failed.
    Source(io::Error),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::NotAnRdbFile => f.write_str("it is not an RDB file"),
            FileError::TooNew(version) => {
                write!(f, "its RDB version is {version}; up to {VERSION_READ_MAX} can be read")
            }
            FileError::CutOff => f.write_str("it ends too early: it is cut off, or corrupt"),
            FileError::Corrupt(offset) => write!(f, "it is corrupt, or of a newer kind, near byte {offset}"),
            FileError::BadChecksum => f.write_str("its checksum is wrong"),
            FileError::Source(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for FileError {}

/// A key read from a file.
#[derive(Debug)]
pub struct FileEntry {
    /// The number of its database.
    pub database: u64,
    /// Its bytes.
    pub key: Vec<u8>,
    /// What it holds.
    pub value: Restored,
    /// When it expires: a Unix time in milliseconds.
    pub expires_at_ms: Option<u64>,
    /// How much it was used.
    pub usage: Option<FileUsage>,
    /// How much of the file it takes.
    pub file_bytes: usize,
}

enum Item {
    Entry(Box<FileEntry>),
    Database(u64),
    Library(Vec<u8>),
    Fact(Vec<u8>, Vec<u8>),
    Passed,
    End,
}

/// Reads a file from any source of bytes.
pub struct FileReader<S> {
    source: S,
    version: u32,
    /// What was read from the source; all before `at` is done with, and in `crc`.
    window: Vec<u8>,
    at: usize,
    /// Offset of the window's first byte in the file.
    offset: u64,
    crc: u64,
    database: u64,
    libraries: Vec<Vec<u8>>,
    /// Of all that the file has had.
    bytes_of_libraries: usize,
    string_max: u64,
    late_facts: Vec<(Vec<u8>, Vec<u8>)>,
    is_at_end: bool,
    checksum: Checksum,
}

impl<S: Read> FileReader<S> {
    /// Begins to read: takes the header.
    ///
    /// # Errors
    /// If it is none, of a version too new, or the source fails.
    pub fn open(source: S) -> Result<FileReader<S>, FileError> {
        let mut reader = FileReader {
            source,
            version: 0,
            window: Vec::new(),
            at: 0,
            offset: 0,
            crc: 0,
            database: 0,
            libraries: Vec::new(),
            bytes_of_libraries: 0,
            string_max: u64::MAX,
            late_facts: Vec::new(),
            is_at_end: false,
            checksum: Checksum::Checked,
        };
        reader.fill(WINDOW_BYTES)?;
        let header = reader.window.get(..HEADER_BYTES).ok_or(FileError::NotAnRdbFile)?;
        let (magic, version) = header.split_at(MAGIC.len());
        let digits =
            str::from_utf8(version).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let version = digits.and_then(|text| text.parse::<u32>().ok());
        match version.filter(|_| magic == MAGIC) {
            None | Some(0) => return Err(FileError::NotAnRdbFile),
            Some(version) if version > u32::from(VERSION_READ_MAX) => return Err(FileError::TooNew(version)),
            Some(version) => reader.version = version,
        }
        reader.pass(HEADER_BYTES);
        Ok(reader)
    }

    /// The version of its format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Offset of the first byte that is not done with: where an item begins, or the checksum, if there is one.
    pub fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// Refuses what declares to be a longer string, before it comes, and more functions than there can be: of somebody who may say anything.
    pub fn set_string_max(&mut self, bytes: u64) {
        self.string_max = bytes;
    }

    /// Passes over the checksum at the file's end, or not.
    pub fn set_checksum(&mut self, checksum: Checksum) {
        self.checksum = checksum;
    }

    /// What the writer says of itself at the file's beginning, by name, as far as it is at hand; to be called before anything else is read.
    pub fn facts(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut facts = Vec::new();
        while let Some((&OP_AUX, fact)) = self.window[self.at..].split_first() {
            let mut reader = Reader::over(fact);
            let (Ok(name), Ok(value)) = (reader.string(), reader.string()) else { break };
            let left = reader.rest.len();
            facts.push((name, value));
            self.pass(self.window.len() - left - self.at);
        }
        facts
    }

    /// The next key; None at the end of a file that was found right.
    ///
    /// # Errors
    /// If there is no such thing; the reader is of no use then.
    pub fn next_entry(&mut self, thresholds: &Thresholds) -> Result<Option<FileEntry>, FileError> {
        loop {
            match self.item(thresholds)? {
                Item::Entry(entry) => return Ok(Some(*entry)),
                Item::Database(number) => self.database = number,
                Item::Library(code) => self.keep_library(code)?,
                Item::Fact(name, value) => self.keep_fact(name, value),
                Item::Passed => {}
                Item::End => return self.check_sum().map(|()| None),
            }
        }
    }

    /// The code of each library of functions that was read so far, and not taken yet.
    pub fn take_libraries(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.libraries)
    }

    /// What the writer has said of itself behind what [`FileReader::facts`] gave, by name, as far as it was read: the last of it.
    pub fn late_facts(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.late_facts
    }

    fn keep_library(&mut self, code: Vec<u8>) -> Result<(), FileError> {
        self.bytes_of_libraries += code.len();
        if self.string_max != u64::MAX && self.bytes_of_libraries > LIBRARY_BYTES_MAX {
            return Err(FileError::Corrupt(self.position()));
        }
        self.libraries.push(code);
        Ok(())
    }

    fn keep_fact(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.late_facts.retain(|(known, _)| *known != name);
        if self.late_facts.len() == LATE_FACTS_MAX {
            self.late_facts.remove(0);
        }
        self.late_facts.push((name, value));
    }

    /// The offset of the first byte behind the file, which may go on with something else; once there are no more keys.
    pub fn end_offset(&self) -> u64 {
        match self.has_checksum() {
            true => self.position() + CHECKSUM_BYTES as u64,
            false => self.position(),
        }
    }

    /// Reads one item, with as much of the file in the window as it takes.
    fn item(&mut self, thresholds: &Thresholds) -> Result<Item, FileError> {
        loop {
            let mut reader = Reader { string_max: self.string_max, ..Reader::over(&self.window[self.at..]) };
            let read = item(&mut reader, self.database, thresholds);
            let (left, ran_out) = (reader.rest.len(), reader.ran_out);
            match read {
                Ok(item) => {
                    self.pass(self.window.len() - left - self.at);
                    return Ok(item);
                }
                Err(_) if ran_out && !self.is_at_end => {
                    self.fill((self.window.len() - self.at).max(WINDOW_BYTES))?;
                }
                Err(_) if ran_out => return Err(FileError::CutOff),
                Err(_) => return Err(FileError::Corrupt(self.position())),
            }
        }
    }

    fn pass(&mut self, count: usize) {
        self.crc = crc64(self.crc, &self.window[self.at..self.at + count]);
        self.at += count;
    }

    /// Reads up to `more` bytes beyond those that are there, and forgets those that are done with.
    fn fill(&mut self, more: usize) -> Result<(), FileError> {
        self.window.drain(..self.at);
        self.offset += self.at as u64;
        self.at = 0;
        let taken = (&mut self.source).take(more as u64).read_to_end(&mut self.window);
        self.is_at_end = taken.map_err(FileError::Source)? < more;
        Ok(())
    }

    fn has_checksum(&self) -> bool {
        self.version >= VERSION_WITH_CHECKSUM
    }

    fn check_sum(&mut self) -> Result<(), FileError> {
        if !self.has_checksum() {
            return Ok(());
        }
        if self.window.len() - self.at < CHECKSUM_BYTES && !self.is_at_end {
            self.fill(CHECKSUM_BYTES)?;
        }
        let sum = self.window[self.at..].first_chunk::<CHECKSUM_BYTES>().ok_or(FileError::CutOff)?;
        match u64::from_le_bytes(*sum) {
            sum if sum == 0 || sum == self.crc => Ok(()),
            _ if self.checksum == Checksum::Ignored => Ok(()),
            _ => Err(FileError::BadChecksum),
        }
    }
}

/// A time to live as a Redis reads it, which has signed ones: -1 is none, and what is before all times is over.
fn moment(at_ms: i64) -> Option<u64> {
    (at_ms != -1).then(|| u64::try_from(at_ms).unwrap_or(0))
}

fn item(reader: &mut Reader<'_>, database: u64, thresholds: &Thresholds) -> Result<Item, RestoreError> {
    let (mut expires_at_ms, mut usage) = (None, None);
    let before = reader.rest.len();
    loop {
        match reader.byte()? {
            OP_EXPIRY_MS => expires_at_ms = moment(i64::from_le_bytes(reader.array()?)),
            OP_EXPIRY_S => expires_at_ms = Some(u64::from(u32::from_le_bytes(reader.array()?)) * 1000),
            OP_IDLE => usage = Some(FileUsage::IdleSeconds(reader.length()?)),
            OP_FREQUENCY => usage = Some(FileUsage::Frequency(reader.byte()?)),
            OP_DATABASE => return Ok(Item::Database(reader.length()?)),
            OP_END => return Ok(Item::End),
            OP_SIZES => {
                reader.length()?;
                reader.length()?;
                return Ok(Item::Passed);
            }
            OP_SLOT => {
                (0..3).try_for_each(|_| reader.length().map(drop))?;
                return Ok(Item::Passed);
            }
            OP_AUX => {
                let name = reader.string()?;
                return Ok(Item::Fact(name, reader.string()?));
            }
            OP_FUNCTIONS => return Ok(Item::Library(reader.string()?)),
            image_type => {
                let key = reader.string()?;
                let value = read_value(image_type, reader, thresholds)?;
                let file_bytes = before - reader.rest.len();
                let entry = FileEntry { database, key, value, expires_at_ms, usage, file_bytes };
                return Ok(Item::Entry(Box::new(entry)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
