//! A store of decisions in a directory of this process: all keys in one file of text, replaced as a whole by every change.
//!
//! A change is small and seldom, and all there is are some hundred kilobytes, so the log of the durable edition, with its segments of 64 MB and
//! its threads, would be more than what it keeps. A crash leaves the old file or the new one ([`Fs::replace`]).
//!
//! 1. What was answered is on disk.
//! 2. Keys with a lease lie in memory only: a lease ends with the process that renews it, which is the only one.
//! 3. A file whose replacement failed may be the old or the new one. It is replaced again, by what is known to be answered, before anything else is.
//!
//! ```text
//! tarn-decisions 1 revision
//! key revision value                    a line each, by name
//! end checksum                          CRC-32C of all before
//! ```

use super::{
    Change, Changed, Compare, Entry, Latest, LeaseId, Outcome, Reading, Revision, Seen, Store, Unavailable,
    Watch, Write,
};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::file::{Fs, Lock, remove_unfinished};

/// The file of all keys.
const FILE: &str = "decisions";
/// Who has the directory.
const LOCK: &str = "lock";
/// The first words of the file.
const HEAD: &str = "tarn-decisions 1 ";
/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Changes that watches may be behind.
const RECENT_MAX: usize = 10_000;
/// And how long they may be together: who is behind that reads all again.
const RECENT_BYTES_MAX: usize = 32 << 20;

/// The store.
pub struct Embedded {
    shared: Arc<Shared>,
}

struct Shared {
    fs: Fs,
    dir: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    _lock: Lock,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    value: String,
    revision: Revision,
    lease: Option<LeaseId>,
}

#[derive(Debug, Default)]
struct State {
    revision: Revision,
    entries: BTreeMap<String, Held>,
    /// The last changes, in order.
    recent: VecDeque<(Revision, Vec<Changed>)>,
    /// How long its values are together.
    recent_bytes: usize,
    /// The last revision that `recent` does not know.
    forgotten: Revision,
    /// Leases that are not over.
    leases: BTreeSet<LeaseId>,
    leases_granted: u64,
    /// Whether the file may be another than what is here.
    is_unsettled: bool,
}

impl Embedded {
    /// Opens the store in a directory, or begins one there.
    ///
    /// # Errors
    /// A sentence: another process has it, the disk refuses, or the file makes no sense.
    pub fn open(fs: Fs, dir: &Path) -> Result<Embedded, String> {
        let shown = dir.display();
        fs.create_dir_all(dir).map_err(|error| format!("cannot make the directory {shown}: {error}"))?;
        let lock = fs
            .lock(&dir.join(LOCK))
            .map_err(|error| format!("cannot lock the directory {shown}: {error}"))?
            .ok_or_else(|| format!("another process has the store in {shown}"))?;
        let path = dir.join(FILE);
        remove_unfinished(&fs, &path)
            .map_err(|error| format!("cannot clear the directory {shown}: {error}"))?;
        let kind = fs.kind(&path).map_err(|error| format!("cannot look at {}: {error}", path.display()))?;
        let state = match kind {
            None => State::default(),
            Some(_) => {
                let bytes = fs.read(&path, FILE_BYTES_MAX);
                let bytes = bytes.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                let read = std::str::from_utf8(&bytes).ok().and_then(State::from_text);
                read.ok_or_else(|| {
                    format!("{} is damaged: it is no whole store of decisions", path.display())
                })?
            }
        };
        let shared = Shared {
            fs,
            dir: dir.to_owned(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            _lock: lock,
        };
        Ok(Embedded { shared: Arc::new(shared) })
    }
}

#[cfg(test)]
impl Embedded {
    /// Watches that are behind have to read all again.
    pub fn forget(&self) {
        let mut state = self.shared.state.lock();
        state.forgotten = state.revision;
        state.recent.clear();
        state.recent_bytes = 0;
    }
}

impl State {
    fn to_text(&self, revision: Revision, entries: &BTreeMap<String, Held>) -> String {
        let mut text = format!("{HEAD}{}\n", revision.0);
        for (key, held) in entries.iter().filter(|(_, held)| held.lease.is_none()) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{key} {} {}", held.revision.0, held.value);
        }
        let sum = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "end {sum:08x}");
        text
    }

    fn from_text(text: &str) -> Option<State> {
        let (body, end) = text.split_at(text.trim_end_matches('\n').rfind('\n')? + 1);
        let sum = end.strip_prefix("end ")?.strip_suffix('\n')?;
        (sum == format!("{:08x}", crc32c::crc32c(body.as_bytes()))).then_some(())?;
        let mut lines = body.split_terminator('\n');
        let revision = Revision(lines.next()?.strip_prefix(HEAD)?.parse().ok()?);
        let entries = lines.map(|line| {
            let mut words = line.splitn(3, ' ');
            let (key, of, value) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
            Some((key.to_owned(), Held { value: value.to_owned(), revision: Revision(of), lease: None }))
        });
        let entries: Option<BTreeMap<String, Held>> = entries.collect();
        Some(State { revision, entries: entries?, forgotten: revision, ..State::default() })
    }

    fn holds(&self, compare: &Compare) -> bool {
        self.entries.get(&compare.key).map_or(Revision(0), |held| held.revision) == compare.revision
    }

    /// Whether it can be in the file, and its lease is not over.
    fn can_keep(&self, write: &Write) -> bool {
        let key = write.key();
        let has_name = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
        has_name
            && match write {
                Write::Delete { .. } => true,
                Write::Put { value, lease, .. } => {
                    !value.contains('\n') && lease.is_none_or(|lease| self.leases.contains(&lease))
                }
            }
    }

    fn note(&mut self, revision: Revision, changed: Vec<Changed>) {
        self.recent_bytes += bytes_of(&changed);
        self.recent.push_back((revision, changed));
        while (self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX)
            && let Some((revision, changed)) = self.recent.pop_front()
        {
            self.recent_bytes -= bytes_of(&changed);
            self.forgotten = revision;
        }
    }
}

fn bytes_of(changed: &[Changed]) -> usize {
    changed.iter().map(|one| one.key.len() + one.value.as_ref().map_or(0, String::len)).sum()
}

impl Shared {
    fn write(&self, text: &str) -> std::io::Result<()> {
        self.fs.replace(&self.dir.join(FILE), text.as_bytes())
    }

    /// Makes sure that the file is what is known, if that is not sure.
    fn settle(&self, state: &mut State) -> Result<(), Unavailable> {
        if !state.is_unsettled {
            return Ok(());
        }
        let text = state.to_text(state.revision, &state.entries);
        self.write(&text).map_err(|error| self.refused(&error))?;
        state.is_unsettled = false;
        Ok(())
    }

    fn refused(&self, error: &std::io::Error) -> Unavailable {
        Unavailable(format!("the store's directory {} takes nothing: {error}", self.dir.display()))
    }
}

impl Store for Embedded {
    fn read(&self, prefix: &str) -> Result<Reading, Unavailable> {
        let mut state = self.shared.state.lock();
        self.shared.settle(&mut state)?;
        let entries = state.entries.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let entries = entries.map(|(key, held)| Entry {
            key: key.clone(),
            value: held.value.clone(),
            revision: held.revision,
        });
        Ok(Reading { revision: state.revision, entries: entries.collect() })
    }

    fn get(&self, key: &str) -> Result<Option<Entry>, Unavailable> {
        let reading = self.read(key)?;
        Ok(reading.entries.into_iter().next().filter(|entry| entry.key == key))
    }

    fn latest(&self, prefix: &str) -> Result<Latest, Unavailable> {
        let Reading { revision, entries } = self.read(prefix)?;
        let changed = entries.iter().map(|entry| entry.revision).max().unwrap_or_default();
        Ok(Latest { changed, store: revision })
    }

    fn change(&self, change: &Change) -> Outcome {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        if let Err(Unavailable(why)) = self.shared.settle(state) {
            return Outcome::Unreached(why);
        }
        if !change.writes.iter().all(|write| state.can_keep(write)) {
            return Outcome::Unreached("a key or value cannot be kept".to_owned());
        }
        if !change.compares.iter().all(|compare| state.holds(compare)) {
            return Outcome::Conflict;
        }
        let revision = Revision(state.revision.0 + 1);
        let mut entries = state.entries.clone();
        let mut changed = Vec::new();
        for write in &change.writes {
            let value = match write {
                Write::Delete { key } => {
                    // What is not there does not change.
                    if entries.remove(key).is_none() {
                        continue;
                    }
                    None
                }
                Write::Put { key, value, lease } => {
                    let held = Held { value: value.clone(), revision, lease: *lease };
                    entries.insert(key.clone(), held);
                    Some(value.clone())
                }
            };
            changed.push(Changed { key: write.key().to_owned(), value });
        }
        if changed.is_empty() {
            return Outcome::Done(state.revision);
        }
        if let Err(error) = self.shared.write(&state.to_text(revision, &entries)) {
            state.is_unsettled = true;
            return Outcome::Unknown(self.shared.refused(&error).0);
        }
        state.entries = entries;
        state.revision = revision;
        state.note(revision, changed);
        self.shared.changed.notify_all();
        Outcome::Done(revision)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, Unavailable> {
        Ok(Box::new(Watching { shared: self.shared.clone(), prefix: prefix.to_owned(), after }))
    }

    fn grant(&self, _length: Duration) -> Result<LeaseId, Unavailable> {
        let mut state = self.shared.state.lock();
        state.leases_granted += 1;
        let lease = LeaseId(state.leases_granted);
        state.leases.insert(lease);
        Ok(lease)
    }

    fn renew(&self, lease: LeaseId) -> Result<bool, Unavailable> {
        Ok(self.shared.state.lock().leases.contains(&lease))
    }

    fn release(&self, lease: LeaseId) -> Result<(), Unavailable> {
        let mut state = self.shared.state.lock();
        state.leases.remove(&lease);
        let keys = state.entries.iter().filter(|(_, held)| held.lease == Some(lease));
        let writes = keys.map(|(key, _)| Write::Delete { key: key.clone() }).collect();
        drop(state);
        match self.change(&Change { compares: Vec::new(), writes }) {
            Outcome::Unknown(why) | Outcome::Unreached(why) => Err(Unavailable(why)),
            Outcome::Done(_) | Outcome::Conflict => Ok(()),
        }
    }

    fn place(&self) -> String {
        format!("the directory {}", self.shared.dir.display())
    }
}

struct Watching {
    shared: Arc<Shared>,
    prefix: String,
    after: Revision,
}

impl Watching {
    /// The next change of what is watched, if it has happened.
    fn take(&mut self, state: &State) -> Option<Seen> {
        if self.after < state.forgotten {
            return Some(Seen::Compacted);
        }
        let first = state.recent.partition_point(|(revision, _)| *revision <= self.after);
        for (revision, changed) in state.recent.range(first..) {
            self.after = *revision;
            let changed: Vec<Changed> =
                changed.iter().filter(|changed| changed.key.starts_with(&self.prefix)).cloned().collect();
            if !changed.is_empty() {
                return Some(Seen::Changes { revision: *revision, changed });
            }
        }
        None
    }
}

impl Watch for Watching {
    fn next(&mut self, patience: Duration) -> Result<Seen, Unavailable> {
        let deadline = Instant::now() + patience;
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        loop {
            if let Some(seen) = self.take(&state) {
                return Ok(seen);
            }
            if shared.changed.wait_until(&mut state, deadline).timed_out() {
                return Ok(self.take(&state).unwrap_or(Seen::Quiet));
            }
        }
    }
}
