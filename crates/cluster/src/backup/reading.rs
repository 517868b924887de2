//! A shard's file: all its keys, and what is done behind them.

use super::manifest::{ShardFile, hexadecimal, refuse_what_is_no_file};
use replication::link::{MasterStream, Place, Role, Words};
use sha2::{Digest, Sha256};
use std::path::Path;
use sys::file::{Content, Fs, Mode};
use value::collection::Thresholds;
use value::rdb::file::{FileEntry, FileReader};
use wire::Request;

/// The longest transaction, which is in memory as a whole.
const UNIT_BYTES_MAX: usize = 2 << 30;
/// What is read at a time.
const READ_BYTES: usize = 256 << 10;

/// Takes what a file holds, in its order.
pub trait Taker {
    /// A key of the RDB.
    fn key(&mut self, entry: FileEntry) -> Result<(), String>;
    /// A request of the stream, with its bytes.
    fn request(&mut self, database: u32, request: &Request<'_>, bytes: &[u8]) -> Result<(), String>;
    /// The code of libraries of functions, in the RDB.
    fn libraries(&mut self, codes: Vec<Vec<u8>>) -> Result<(), String>;
    /// So many bytes more are read.
    fn passed(&mut self, bytes: u64);
}

/// What a request of the stream is for who has a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It changes keys that it names.
    Keys,
    /// It changes the libraries of functions.
    Functions,
    /// It changes all keys: the copy is of no use to whoever brings it key by key.
    All,
    /// It changes nothing.
    Nothing,
}

/// What it is.
pub fn kind(request: &Request<'_>) -> Kind {
    let name = request.get(0).unwrap_or_default().to_ascii_uppercase();
    match name.as_slice() {
        b"FLUSHALL" | b"FLUSHDB" | b"SWAPDB" => Kind::All,
        b"FUNCTION" => Kind::Functions,
        b"PUBLISH" | b"SPUBLISH" => Kind::Nothing,
        _ => Kind::Keys,
    }
}

/// Looks whether a file is the one that a manifest tells of, byte for byte.
pub fn compare(path: &Path, one: &ShardFile, mut passed: impl FnMut(u64)) -> Result<(), String> {
    refuse_what_is_no_file(path)?;
    let (bytes, sum) = sum(path, &mut passed)?;
    match bytes == one.bytes && sum == one.sha256 {
        true => Ok(()),
        false => Err(format!(
            "{} is not what was written: it has {bytes} bytes (SHA-256 {sum}), and the manifest says {} bytes ({})",
            path.display(),
            one.bytes,
            one.sha256
        )),
    }
}

/// A file's length and SHA-256.
pub fn sum(path: &Path, passed: &mut dyn FnMut(u64)) -> Result<(u64, String), String> {
    let wrong = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let file = Fs::Real.open(path, Mode::Read).map_err(wrong)?;
    let (mut digest, mut buffer, mut bytes) = (Sha256::new(), vec![0; READ_BYTES], 0);
    loop {
        match file.read_at(&mut buffer, bytes).map_err(wrong)? {
            0 => return Ok((bytes, hexadecimal(&digest.finalize()))),
            count => {
                digest.update(&buffer[..count]);
                bytes += count as u64;
                passed(count as u64);
            }
        }
    }
}

/// Reads a file whose stream is of these offsets. Gives the number of keys in the RDB.
pub fn read(path: &Path, (from, until): (u64, u64), taker: &mut impl Taker) -> Result<u64, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{} cannot be used: {error}", path.display());
    let open = || Fs::Real.open(path, Mode::Read).map_err(|error| wrong(&error));
    let mut reader = FileReader::open(Content::new(open()?)).map_err(|error| wrong(&error))?;
    let (mut keys, mut at) = (0, 0);
    while let Some(entry) = reader.next_entry(&Thresholds::DEFAULT).map_err(|error| wrong(&error))? {
        taker.key(entry)?;
        keys += 1;
        taker.passed(reader.position() - at);
        at = reader.position();
    }
    taker.libraries(reader.take_libraries())?;
    let (file, mut at) = (open()?, reader.end_offset());
    let mut stream = MasterStream::new(Place { offset: from, database: 0 }, UNIT_BYTES_MAX);
    let (mut words, mut buffer) = (Words::default(), vec![0; READ_BYTES]);
    loop {
        let count = file.read_at(&mut buffer, at).map_err(|error| wrong(&error))?;
        if count == 0 {
            break;
        }
        at += count as u64;
        stream.feed(&buffer[..count]);
        taker.passed(count as u64);
        while let Some(unit) = stream.next_unit().map_err(|ending| wrong(&ending))? {
            let mut walk = unit.walk(&mut words);
            while let Some(group) = walk.next_group() {
                for one in group.requests().filter(|one| one.role == Role::Command) {
                    taker.request(one.database, &one.request, one.bytes)?;
                }
            }
        }
    }
    match stream.place().offset == until && stream.waiting_bytes() == 0 {
        true => Ok(keys),
        false => Err(wrong(&format_args!(
            "its stream ends at {}, and is to end at {until}",
            stream.place().offset
        ))),
    }
}

/// Looks at all of a file, and does nothing with it.
#[derive(Default)]
pub struct Looking {
    /// How many requests the stream has.
    pub requests: u64,
}

impl Taker for Looking {
    fn key(&mut self, _: FileEntry) -> Result<(), String> {
        Ok(())
    }

    fn request(&mut self, _: u32, request: &Request<'_>, _: &[u8]) -> Result<(), String> {
        self.requests += 1;
        match kind(request) {
            Kind::All => Err("a database was emptied or exchanged while it was copied".to_owned()),
            _ => Ok(()),
        }
    }

    fn libraries(&mut self, _: Vec<Vec<u8>>) -> Result<(), String> {
        Ok(())
    }

    fn passed(&mut self, _: u64) {}
}
