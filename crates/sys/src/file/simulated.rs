//! A disk in memory that does what disks do at the worst moment, driven by a seed.
//!
//! For tests. Each file has what the program reads (`current`) and what is on the platter (`synced`); writes wait between
//! the two until a sync. Names do the same, until a sync of their directory. A power cut ([`Disk::power_cut`]) gives the
//! disk as the next start finds it: what was synced, and of the rest what [`Survival`] says.
//!
//! One lock a disk; any thread. Invariants:
//! 1. What a sync reported as done survives every power cut, unless [`Faults::lies`] is set.
//! 2. A sync that fails takes by chance some of what waited to the platter and forgets the rest, as a page cache does.
//! 3. The same seed and the same calls give the same faults.

use super::hang::Hang;
use super::{Kind, Mode};
use crate::Prng;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a disk writes in one piece, bytes.
pub const SECTOR: usize = 512;

/// What goes wrong, and how often: once in so many calls; 0 is never.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Writes that fail, some of their sectors done.
    pub write_error_one_in: u64,
    /// Writes that do only a part and say so.
    pub short_write_one_in: u64,
    /// Syncs, of files and directories, that fail.
    pub sync_error_one_in: u64,
    /// Reads that fail.
    pub read_error_one_in: u64,
    /// There is no descriptor for whoever syncs a directory.
    pub lacks_descriptors: bool,
    /// Bytes that all files together may have; None for a disk without end.
    pub space_bytes: Option<u64>,
    /// The power goes before the change with this number (counted by [`Disk::changes`]): it and all calls after it fail.
    pub cut_at_change: Option<u64>,
    /// Syncs report success and do nothing. No program survives this; a test that does not notice tests nothing.
    pub lies: bool,
}

/// What a power cut leaves of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// All of it.
    All,
    /// Each sector and each change of a name by chance, whatever their order was.
    Chance,
    /// Changes of names, and so many bytes of each file's writes in their order; the write in which they end is torn.
    Bytes(u64),
}

/// The disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Platter>);

#[derive(Debug)]
struct Platter {
    state: Mutex<State>,
    hang: Hang,
}

#[derive(Debug)]
struct State {
    prng: Prng,
    faults: Faults,
    changes: u64,
    files: Vec<Content>,
    /// What the program sees, and what is on the platter.
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    waiting_names: Vec<NameChange>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    /// The disk as it was before each change; None while nobody films.
    film: Option<Vec<Disk>>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    current: Vec<u8>,
    synced: Arc<Vec<u8>>,
    waiting: Vec<(u64, Vec<u8>)>,
}

/// A name that means another file than on the platter; None: no file any more.
#[derive(Clone, Debug)]
struct NameChange {
    path: PathBuf,
    file: Option<usize>,
}

/// An open file of a simulated disk.
#[derive(Debug)]
pub struct Handle {
    disk: Disk,
    file: usize,
    may_write: bool,
}

/// A lock on a simulated disk.
#[derive(Debug)]
pub struct Locked {
    disk: Disk,
    path: PathBuf,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.path);
    }
}

impl Disk {
    /// An empty disk without faults.
    pub fn new(seed: u64) -> Disk {
        Disk::with_faults(seed, Faults::default())
    }

    /// An empty disk with these faults.
    pub fn with_faults(seed: u64, faults: Faults) -> Disk {
        Disk::of(State {
            prng: Prng::from_seed(seed),
            faults,
            changes: 0,
            files: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            waiting_names: Vec::new(),
            directories: BTreeSet::new(),
            locks: BTreeSet::new(),
            film: None,
        })
    }

    fn of(state: State) -> Disk {
        Disk(Arc::new(Platter { state: Mutex::new(state), hang: Hang::new() }))
    }

    /// Whoever is to change something waits from now on, or goes on. What is read is read.
    pub fn hang(&self, on: bool) {
        self.0.hang.set(on);
    }

    /// Waits until somebody waits for the disk.
    pub fn wait_until_hanging(&self) {
        self.0.hang.wait_for_one();
    }

    /// From now on these faults.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// How many changes were asked for so far: writes, syncs, changes of names.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Films from now on: a power cut at every change can be tried without doing all over again what led to it.
    pub fn film(&self) {
        self.state().film = Some(Vec::new());
    }

    /// The disk as it was before each change since the last call, or since [`Disk::film`].
    pub fn take_film(&self) -> Vec<Disk> {
        self.state().film.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether two disks on which nothing waits for a sync have the same files with the same content.
    pub fn holds_the_same(&self, other: &Disk) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let (one, other) = (self.state(), other.state());
        let pairs = one.names.iter().zip(&other.names);
        let is_same = |(path, file): (&PathBuf, &usize), (other_path, other_file): (&PathBuf, &usize)| {
            path == other_path && one.files[*file].current == other.files[*other_file].current
        };
        one.names.len() == other.names.len() && pairs.into_iter().all(|(one, other)| is_same(one, other))
    }

    /// Bytes of a file that were written and not synced.
    pub fn unsynced_bytes(&self, path: &Path) -> u64 {
        let state = self.state();
        let waiting = state.names.get(path).map(|file| &state.files[*file].waiting);
        waiting.into_iter().flatten().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// The disk as it is after the power came back: without faults, without locks. This one stays as it is.
    pub fn power_cut(&self, seed: u64, survival: Survival) -> Disk {
        let mut prng = Prng::from_seed(seed);
        let state = self.state();
        let mut names = state.synced_names.clone();
        for change in &state.waiting_names {
            let survives = match survival {
                Survival::Nothing => false,
                Survival::All | Survival::Bytes(_) => true,
                Survival::Chance => prng.one_in(2),
            };
            if survives {
                change.apply_to(&mut names);
            }
        }
        // Files without a name are gone, and cost nothing.
        let mut files = vec![Content::default(); state.files.len()];
        for file in names.values() {
            files[*file] = state.files[*file].after_cut(&mut prng, survival);
        }
        let directories = state.directories.clone();
        drop(state);
        let disk = Disk::new(seed);
        let mut after = disk.state();
        after.files = files;
        after.synced_names.clone_from(&names);
        after.names = names;
        after.directories = directories;
        drop(after);
        disk
    }

    /// Turns one bit of a file over, on the platter and for readers.
    ///
    /// # Panics
    /// If there is no such file or bit.
    pub fn flip(&self, path: &Path, bit: u64) {
        let mut state = self.state();
        let file = *state.names.get(path).expect("the file to damage is there");
        let (at, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        let content = &mut state.files[file];
        content.current[at] ^= mask;
        if let Some(byte) = Arc::make_mut(&mut content.synced).get_mut(at) {
            *byte ^= mask;
        }
    }

    /// The content of a file as the program sees it; None if there is none.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|file| state.files[*file].current.clone())
    }

    /// The files in a directory.
    pub fn names(&self, dir: &Path) -> Vec<PathBuf> {
        self.state().names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect()
    }

    /// Puts a file there, synced.
    pub fn place(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.state();
        let content = Content { synced: Arc::new(bytes.clone()), current: bytes, waiting: Vec::new() };
        state.files.push(content);
        let file = state.files.len() - 1;
        state.names.insert(path.to_owned(), file);
        state.synced_names.insert(path.to_owned(), file);
    }

    pub(super) fn open(&self, path: &Path, mode: Mode) -> io::Result<Handle> {
        let mut state = match mode {
            Mode::CreateNew | Mode::Truncate => self.state_to_change(),
            Mode::Read | Mode::Write | Mode::Direct | Mode::DirectSynced => self.state(),
        };
        state.check_power()?;
        let found = state.names.get(path).copied();
        let file = match (mode, found) {
            (Mode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Mode::Read | Mode::Write | Mode::Direct | Mode::DirectSynced, None) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            (Mode::Read | Mode::Write | Mode::Direct | Mode::DirectSynced, Some(file)) => file,
            // A new content under the old name: nothing that was synced under it is touched before the directory is.
            (Mode::CreateNew | Mode::Truncate, _) => {
                state.begin_change()?;
                state.files.push(Content::default());
                let file = state.files.len() - 1;
                state.rename_now(path, Some(file));
                file
            }
        };
        Ok(Handle { disk: self.clone(), file, may_write: mode != Mode::Read })
    }

    pub(super) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.state().directories.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    pub(super) fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let is_empty = !state.names.keys().any(|name| name.parent() == Some(path));
        match is_empty && state.directories.remove(path) {
            true => Ok(()),
            false => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        }
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        state.check_power()?;
        if !state.directories.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| path.file_name()).map(ToOwned::to_owned).collect())
    }

    pub(super) fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        let state = self.state();
        state.check_power()?;
        let is_dir = state.directories.contains(path).then_some(Kind::Directory);
        Ok(is_dir.or(state.names.contains_key(path).then_some(Kind::File)))
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state_to_change();
        state.begin_change()?;
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.rename_now(to, Some(file));
        state.rename_now(from, None);
        Ok(())
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state_to_change();
        state.begin_change()?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.rename_now(path, None);
        Ok(())
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state_to_change();
        state.check_descriptors()?;
        state.begin_change()?;
        state.chance_of_error(|faults| faults.sync_error_one_in)?;
        if state.faults.lies {
            return Ok(());
        }
        let waiting = std::mem::take(&mut state.waiting_names);
        let (of_dir, others) = waiting.into_iter().partition(|change| change.path.parent() == Some(dir));
        state.waiting_names = others;
        for change in Vec::<NameChange>::into_iter(of_dir) {
            change.apply_to(&mut state.synced_names);
        }
        Ok(())
    }

    pub(super) fn bytes_left(&self) -> u64 {
        self.state().bytes_left()
    }

    pub(super) fn lock(&self, path: &Path) -> io::Result<Option<Locked>> {
        let mut state = self.state();
        state.check_power()?;
        let is_new = state.locks.insert(path.to_owned());
        Ok(is_new.then(|| Locked { disk: self.clone(), path: path.to_owned() }))
    }

    /// For a change, which a disk that hangs keeps waiting.
    fn state_to_change(&self) -> MutexGuard<'_, State> {
        self.0.hang.pass();
        self.state()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked with the lock is over anyway.
        self.0.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn check_descriptors(&self) -> io::Result<()> {
        match self.faults.lacks_descriptors {
            true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            false => Ok(()),
        }
    }

    fn check_power(&self) -> io::Result<()> {
        match self.faults.cut_at_change {
            Some(at) if self.changes > at => Err(io::Error::other("the power is off")),
            _ => Ok(()),
        }
    }

    /// Counts a change; an error if the power is off by then.
    fn begin_change(&mut self) -> io::Result<()> {
        if self.film.is_some() {
            let frame = self.frame();
            self.film.get_or_insert_default().push(frame);
        }
        self.changes += 1;
        self.check_power()
    }

    /// A disk of its own, as this one is now.
    fn frame(&self) -> Disk {
        // Files without a name can never be found again.
        let is_named = |file: usize| {
            let changes = self.waiting_names.iter().filter_map(|change| change.file);
            self.names
                .values()
                .chain(self.synced_names.values())
                .copied()
                .chain(changes)
                .any(|one| one == file)
        };
        let content = |(file, content): (usize, &Content)| {
            if is_named(file) { content.clone() } else { Content::default() }
        };
        Disk::of(State {
            prng: self.prng.clone(),
            faults: self.faults.clone(),
            changes: self.changes,
            files: self.files.iter().enumerate().map(content).collect(),
            names: self.names.clone(),
            synced_names: self.synced_names.clone(),
            waiting_names: self.waiting_names.clone(),
            directories: self.directories.clone(),
            locks: self.locks.clone(),
            film: None,
        })
    }

    fn is_one_in(&mut self, count: u64) -> bool {
        count > 0 && self.prng.one_in(count)
    }

    fn chance_of_error(&mut self, one_in: impl Fn(&Faults) -> u64) -> io::Result<()> {
        match self.is_one_in(one_in(&self.faults)) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }

    fn rename_now(&mut self, path: &Path, file: Option<usize>) {
        let change = NameChange { path: path.to_owned(), file };
        change.apply_to(&mut self.names);
        self.waiting_names.push(change);
    }

    /// How many of `count` bytes at `offset` the disk has room for.
    fn room_for(&self, file: usize, offset: u64, count: usize) -> usize {
        let inside = (self.files[file].current.len() as u64).saturating_sub(offset);
        count.min(usize::try_from(inside.saturating_add(self.bytes_left())).unwrap_or(count))
    }

    /// As many as can be on a disk without end.
    fn bytes_left(&self) -> u64 {
        let Some(space) = self.faults.space_bytes else { return u64::MAX };
        let used: u64 = self.names.values().map(|file| self.files[*file].current.len() as u64).sum();
        space.saturating_sub(used)
    }
}

impl NameChange {
    fn apply_to(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self.file {
            Some(file) => names.insert(self.path.clone(), file),
            None => names.remove(&self.path),
        };
    }
}

impl Content {
    fn write(&mut self, bytes: &[u8], offset: u64) {
        lay_down(&mut self.current, bytes, offset);
        self.waiting.push((offset, bytes.to_owned()));
    }

    fn after_cut(&self, prng: &mut Prng, survival: Survival) -> Content {
        let mut synced = Arc::clone(&self.synced);
        if !self.waiting.is_empty() && survival != Survival::Nothing {
            let bytes = Arc::make_mut(&mut synced);
            match survival {
                Survival::Nothing => {}
                Survival::All => {
                    self.waiting.iter().for_each(|(offset, write)| lay_down(bytes, write, *offset))
                }
                Survival::Chance => {
                    self.waiting.iter().for_each(|(at, write)| lay_down_some(bytes, write, *at, prng))
                }
                Survival::Bytes(mut left) => {
                    for (offset, write) in &self.waiting {
                        let count = write.len().min(left as usize);
                        lay_down(bytes, &write[..count], *offset);
                        left -= count as u64;
                    }
                }
            }
        }
        Content { current: synced.to_vec(), synced, waiting: Vec::new() }
    }
}

/// Writes `bytes` at `offset`, with zeros between the end and there.
fn lay_down(content: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    if bytes.is_empty() {
        return;
    }
    let end = offset as usize + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset as usize..end].copy_from_slice(bytes);
}

/// Writes each sector's part of `bytes` by chance.
fn lay_down_some(content: &mut Vec<u8>, bytes: &[u8], offset: u64, prng: &mut Prng) {
    let mut at = 0;
    while at < bytes.len() {
        let in_sector = (offset as usize + at) % SECTOR;
        let end = (at + SECTOR - in_sector).min(bytes.len());
        if prng.one_in(2) {
            lay_down(content, &bytes[at..end], offset + at as u64);
        }
        at = end;
    }
}

impl Handle {
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.check_power()?;
        state.chance_of_error(|faults| faults.read_error_one_in)?;
        let content = &state.files[self.file].current;
        let from = (offset as usize).min(content.len());
        let count = buffer.len().min(content.len() - from);
        buffer[..count].copy_from_slice(&content[from..from + count]);
        Ok(count)
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state_to_change();
        state.begin_change()?;
        if !self.may_write {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let room = state.room_for(self.file, offset, bytes.len());
        let one_in = state.faults.write_error_one_in;
        if state.is_one_in(one_in) {
            let some = state.prng.below(bytes.len() as u64 + 1) as usize;
            state.files[self.file].write(&bytes[..some.min(room)], offset);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if room == 0 && !bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let one_in = state.faults.short_write_one_in;
        let count = if state.is_one_in(one_in) { 1 + state.prng.below(room as u64) as usize } else { room };
        let count = count.min(room);
        state.files[self.file].write(&bytes[..count], offset);
        Ok(count)
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state_to_change();
        state.begin_change()?;
        if state.faults.lies {
            return Ok(());
        }
        let failed = state.chance_of_error(|faults| faults.sync_error_one_in);
        let State { files, prng, .. } = &mut *state;
        let content = &mut files[self.file];
        let synced = Arc::make_mut(&mut content.synced);
        for (offset, bytes) in content.waiting.drain(..) {
            match failed {
                Ok(()) => lay_down(synced, &bytes, offset),
                Err(_) => lay_down_some(synced, &bytes, offset, prng),
            }
        }
        failed
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.check_power()?;
        Ok(state.files[self.file].current.len() as u64)
    }
}
