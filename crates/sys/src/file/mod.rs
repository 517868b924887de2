//! The door to files: the machine's, or a simulated disk that loses what was not synced.
//!
//! All file access of the program goes through an [`Fs`]; `tests/tidy.rs` checks that. Files are read and written at
//! offsets, so that a handle has no position that two threads could fight over.
//!
//! Any thread may use any handle. Invariants:
//! 1. Nothing is on disk before a sync of the file *and* of the directory that names it came back without error.
//! 2. After a sync that failed, what was not synced before counts as lost: a later sync that succeeds proves nothing
//!    about it.
//! 3. A whole write is done or an error comes back; how much of it was done then is unknown.

mod appended;
mod hang;
pub mod reads;
mod real;
mod replace;
pub mod simulated;

pub use appended::Appended;
pub use replace::{Content, Replacement, read_stdin, remove_unfinished, replaced_by};

use crate::UnixMs;
use crate::memory::size_class;
use simulated::Disk;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where files are. Cheap to clone; every clone of a simulated one is the same disk.
#[derive(Clone, Debug, Default)]
pub enum Fs {
    /// The machine's files.
    #[default]
    Real,
    /// A disk in memory, driven by a seed.
    Simulated(Disk),
}

/// Says in an error what it is about: the system's words do not.
pub fn about(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether an error means that the process, or the machine, has no descriptor left: nothing is wrong with the file.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Has the machine's disk hang, or go on, as far as this program can tell: writes past the page cache and syncs wait. For tests
/// of whole servers.
pub fn hang(on: bool) {
    real::HANG.set(on);
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only reading.
    Read,
    /// Reading and writing a file that is there.
    Write,
    /// A new file; an error if there is one of that name.
    CreateNew,
    /// An empty file, new or in place of the content of one that is there.
    Truncate,
    /// As `Write`, and past the page cache where the file system can: offsets, lengths and addresses of what is
    /// written must then be multiples of [`DIRECT_ALIGN`].
    Direct,
    /// As `Direct`, for [`File::write_synced_at`]: that takes another descriptor.
    DirectSynced,
}

/// The alignment that [`Mode::Direct`] asks for, bytes: no disk has larger sectors, and no page is larger.
pub const DIRECT_ALIGN: usize = 4096;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// Something else: a socket, a device.
    Other,
}

/// An open file.
#[derive(Debug)]
pub enum File {
    /// Of the machine.
    Real(real::Handle),
    /// On a simulated disk.
    Simulated(simulated::Handle),
}

/// An exclusive lock, held until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held for its drop")] Held);

#[derive(Debug)]
enum Held {
    #[expect(dead_code, reason = "held for its drop")]
    Real(std::fs::File),
    #[expect(dead_code, reason = "held for its drop")]
    Simulated(simulated::Locked),
}

impl Fs {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(&self, path: &Path, mode: Mode) -> io::Result<File> {
        match self {
            Fs::Real => real::open(path, mode).map(File::Real),
            Fs::Simulated(disk) => disk.open(path, mode).map(File::Simulated),
        }
    }

    /// Makes a directory and those above it; none if they are there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        match self {
            Fs::Real => std::fs::create_dir_all(path),
            Fs::Simulated(disk) => disk.create_dir_all(path),
        }
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// Those of the system.
    pub fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        match self {
            Fs::Real => real::list(dir),
            Fs::Simulated(disk) => disk.list(dir),
        }
    }

    /// Writes a file anew, without a sync: for what is of use only while the process runs.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.open(path, Mode::Truncate)?.write_at(content, 0)
    }

    /// Removes a socket that nobody closed, if that is what lies there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove_socket(&self, path: &Path) -> io::Result<()> {
        match self {
            Fs::Real if real::is_socket(path) => std::fs::remove_file(path),
            _ => Ok(()),
        }
    }

    /// Whether a path leads to a socket, whoever listens there.
    pub fn leads_to_socket(&self, path: &Path) -> bool {
        match self {
            Fs::Real => real::leads_to_socket(path),
            Fs::Simulated(_) => false,
        }
    }

    /// Sets who may do what with a file, as `chmod` does. A simulated disk knows no users.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_permissions(&self, path: &Path, mode: u32) -> io::Result<()> {
        match self {
            Fs::Real => std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)),
            Fs::Simulated(_) => Ok(()),
        }
    }

    /// What a path leads to; None if there is nothing.
    ///
    /// # Errors
    /// Those of the system, but not that there is nothing.
    pub fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        match self {
            Fs::Real => real::kind(path),
            Fs::Simulated(disk) => disk.kind(path),
        }
    }

    /// Gives a file another name, in place of whatever had it, in one step.
    ///
    /// # Errors
    /// Those of the system.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self {
            Fs::Real => std::fs::rename(from, to),
            Fs::Simulated(disk) => disk.rename(from, to),
        }
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        match self {
            Fs::Real => std::fs::remove_file(path),
            Fs::Simulated(disk) => disk.remove(path),
        }
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove_dir(&self, path: &Path) -> io::Result<()> {
        match self {
            Fs::Real => std::fs::remove_dir(path),
            Fs::Simulated(disk) => disk.remove_dir(path),
        }
    }

    /// Bytes that are left on the disk where a path is, for who is not root.
    ///
    /// # Errors
    /// Those of the system.
    pub fn bytes_left(&self, path: &Path) -> io::Result<u64> {
        match self {
            Fs::Real => real::bytes_left(path),
            Fs::Simulated(disk) => Ok(disk.bytes_left()),
        }
    }

    /// When a file was last written to; None if the system does not say. A simulated disk knows no time.
    ///
    /// # Errors
    /// Those of the system.
    pub fn modified(&self, path: &Path) -> io::Result<Option<UnixMs>> {
        match self {
            Fs::Real => real::modified(path),
            Fs::Simulated(_) => Ok(None),
        }
    }

    /// Makes the names of a directory durable: what was created, renamed and removed in it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match self {
            Fs::Real => real::sync_dir(dir),
            Fs::Simulated(disk) => disk.sync_dir(dir),
        }
    }

    /// Takes the exclusive lock that the file `path` stands for; None if somebody else holds it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        match self {
            Fs::Real => Ok(real::lock(path)?.map(|held| Lock(Held::Real(held)))),
            Fs::Simulated(disk) => Ok(disk.lock(path)?.map(|held| Lock(Held::Simulated(held)))),
        }
    }

    /// The same for whoever only reads: where nothing can be written, nobody else writes either, and a lock that cannot be made is not
    /// needed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn lock_to_read(&self, path: &Path) -> io::Result<Option<Option<Lock>>> {
        match self.lock(path) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(Some(None)),
            locked => Ok(locked?.map(Some)),
        }
    }

    /// Gives `to` the permissions that `from` has, if that is there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn copy_permissions(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self, std::fs::metadata(from)) {
            (Fs::Real, Ok(existing)) => std::fs::set_permissions(to, existing.permissions()),
            _ => Ok(()),
        }
    }

    /// The path with all its symbolic links followed; itself where there is nothing.
    pub fn followed(&self, path: &Path) -> PathBuf {
        match self {
            Fs::Real => std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            Fs::Simulated(_) => path.to_owned(),
        }
    }

    /// Reads a whole file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// `FileTooLarge` for a longer one, such as a device that never ends.
    pub fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        match self {
            // From its beginning on and not at offsets: it may be a pipe.
            Fs::Real => replace::read_limited(std::fs::File::open(path)?, bytes_max),
            Fs::Simulated(_) => replace::read_limited(Content::new(self.open(path, Mode::Read)?), bytes_max),
        }
    }

    /// Replaces a file's content so that a crash leaves the old or the new one, whole. Follows a symbolic link and
    /// keeps the permissions.
    ///
    /// # Errors
    /// The first that occurs; the old content is there then, unless only the last sync failed.
    pub fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut replacement = Replacement::begin(self, path)?;
        replacement.write(content)?;
        replacement.commit()
    }
}

impl File {
    /// Reads at most as much as the buffer holds; 0 at the end of the file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            File::Real(file) => file.read_at(buffer, offset),
            File::Simulated(file) => file.read_at(buffer, offset),
        }
    }

    /// Fills the buffer as far as the file goes, and tells how far that was.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read_full_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes all the bytes, extending the file as needed. They are not on disk before [`File::sync_data`].
    ///
    /// # Errors
    /// Those of the system; then some of the bytes may have been written.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let (rest, at) = (&bytes[done..], offset + done as u64);
            let written = match self {
                File::Real(file) => file.write_at(rest, at),
                File::Simulated(file) => file.write_at(rest, at),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all the bytes and makes *them* durable, in one call to the system where it has one. Nothing is said about
    /// what was written before.
    ///
    /// # Errors
    /// Those of the system; then the bytes count as lost.
    pub fn write_synced_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let File::Real(file) = self
            && let Some(done) = file.write_synced_at(bytes, offset)
        {
            return done;
        }
        self.write_at(bytes, offset)?;
        self.sync_data()
    }

    /// Takes the system's lock on the file, which ends with the handle; false if somebody else has it. A simulated disk has no other
    /// processes.
    fn try_lock(&self) -> io::Result<bool> {
        match self {
            File::Real(file) => file.try_lock(),
            File::Simulated(_) => Ok(true),
        }
    }

    /// Whether writes go past the page cache.
    fn is_direct(&self) -> bool {
        match self {
            File::Real(file) => file.is_direct(),
            File::Simulated(_) => false,
        }
    }

    /// Makes the content durable, with as much of the file's attributes as finding it again needs.
    ///
    /// # Errors
    /// Those of the system; then all that was not durable counts as lost.
    pub fn sync_data(&self) -> io::Result<()> {
        match self {
            File::Real(file) => file.sync_data(),
            File::Simulated(file) => file.sync_data(),
        }
    }

    /// Length, bytes.
    ///
    /// # Errors
    /// Those of the system.
    pub fn len(&self) -> io::Result<u64> {
        match self {
            File::Real(file) => file.len(),
            File::Simulated(file) => file.len(),
        }
    }

    /// Whether there is nothing in it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Fills the file with zeros up to `len` bytes, written for real, so that writing there later allocates nothing
    /// and a sync has no attributes to write.
    ///
    /// # Errors
    /// Those of the system, such as a full disk.
    pub fn preallocate(&self, len: u64) -> io::Result<()> {
        /// Bytes between syncs, where writes go to the page cache: so little never keeps the disk busy for long.
        const SYNC_STEP: u64 = 4 << 20;
        let mut at = self.len()?;
        while at < len {
            let count = (len - at).min(ZEROS_BYTES as u64);
            self.write_at(&ZEROS.0[..count as usize], at)?;
            at += count;
            if at % SYNC_STEP < ZEROS_BYTES as u64 && !self.is_direct() {
                self.sync_data()?;
            }
        }
        self.sync_data()
    }
}

/// How many zeros [`File::preallocate`] writes at once.
const ZEROS_BYTES: usize = 256 << 10;

/// At an address that [`Mode::Direct`] takes.
#[repr(align(4096))]
struct Zeros([u8; ZEROS_BYTES]);

const _: () = assert!(align_of::<Zeros>() == DIRECT_ALIGN);

/// Part of the program: allocated for each new file, they would look for a moment like so much more data.
static ZEROS: Zeros = Zeros([0; ZEROS_BYTES]);

/// Bytes at an address that [`Mode::Direct`] takes. The capacity is fixed, so that the address never changes.
#[derive(Debug)]
pub struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    capacity: usize,
}

impl AlignedBytes {
    /// Room for `capacity` bytes, none of them in use.
    pub fn with_capacity(capacity: usize) -> AlignedBytes {
        let mut bytes = Vec::with_capacity(capacity + DIRECT_ALIGN);
        let address = bytes.as_ptr() as usize;
        let start = address.next_multiple_of(DIRECT_ALIGN) - address;
        bytes.resize(start, 0);
        AlignedBytes { bytes, start, capacity }
    }

    /// `len` zeros.
    pub fn zeroed(len: usize) -> AlignedBytes {
        let mut bytes = AlignedBytes::with_capacity(len);
        bytes.resize(len);
        bytes
    }

    /// Bytes in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether none are in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that there is room for in all.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that are allocated for them.
    pub fn allocated_bytes(&self) -> usize {
        size_class(self.bytes.capacity())
    }

    /// Appends.
    ///
    /// # Panics
    /// If there is no room: that would move the bytes.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.capacity - self.len(), "aligned bytes never grow");
        self.bytes.extend_from_slice(bytes);
    }

    /// Cuts, or fills up with zeros.
    ///
    /// # Panics
    /// If there is no room.
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity, "aligned bytes never grow");
        self.bytes.resize(self.start + len, 0);
    }

    /// The bytes in use.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The bytes in use, to be changed.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests;
