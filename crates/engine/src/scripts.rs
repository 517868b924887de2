//! The scripts and libraries that all workers share: their texts, and what is known of them.
//!
//! A worker compiles what it runs for itself; here is only what it compiles. Counters tell it when
//! something that it compiled is gone.
//!
//! Thread rule: any thread.

pub mod interpreter;
pub mod libraries;
pub mod plan;

use command::Flags;
use command::effects::Scope;
use command::table::{self, Runs};
use command::{Handler, Keys};
use parking_lot::RwLock;
use script::{Header, Loaded, Reach, ScriptFlags, Sha};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::Counter;

/// Scripts that only EVAL has brought are kept up to this number, as in Redis 7.4 and Valkey 8: clients that write values into their
/// scripts' texts send another one each time.
const EVALUATED_SCRIPTS_MAX: usize = 500;

/// And up to so many bytes: a text may be as long as a request.
const EVALUATED_BYTES_MAX: usize = 64 << 20;

/// Bytes of all texts beyond which SCRIPT LOAD brings no more: what it has brought stays until SCRIPT FLUSH.
const SCRIPTS_BYTES_MAX: usize = 256 << 20;

/// All scripts and libraries.
#[derive(Default)]
pub struct Scripts {
    cached: RwLock<Cache>,
    /// How often the cache was emptied.
    flushes: AtomicU64,
    /// Scripts that went because others came.
    pub evicted: Counter,
    libraries: RwLock<Libraries>,
    /// How often libraries changed.
    changes: AtomicU64,
    numbers: AtomicU64,
}

/// Scripts by name.
#[derive(Default)]
struct Cache {
    by_name: HashMap<Sha, Arc<Script>>,
    /// Those that only EVAL has brought, in the order in which they came or were spared.
    evaluated: VecDeque<Sha>,
    /// The bytes of their texts.
    evaluated_bytes: usize,
    /// The same of the others.
    loaded_bytes: usize,
}

impl Cache {
    /// Makes those go that only EVAL has brought, if there are too many: the first that were not run again since they were looked
    /// at last. How many went.
    fn evict(&mut self) -> i64 {
        let mut gone = 0;
        while self.evaluated.len() > EVALUATED_SCRIPTS_MAX || self.evaluated_bytes > EVALUATED_BYTES_MAX {
            let Some(sha) = self.evaluated.pop_front() else { break };
            let Some(script) = self.by_name.get(&sha) else { continue };
            if script.is_used.swap(false, Ordering::Relaxed) {
                self.evaluated.push_back(sha);
                continue;
            }
            script.is_gone.store(true, Ordering::Relaxed);
            self.evaluated_bytes -= script.text.len();
            self.by_name.remove(&sha);
            gone += 1;
        }
        gone
    }
}

/// A script.
pub struct Script {
    /// Its text.
    pub text: Vec<u8>,
    /// What its first line says; None without one.
    pub flags: Option<ScriptFlags>,
    /// What it touches.
    pub locks: Locks,
    /// It was run again of late.
    is_used: AtomicBool,
    /// It went from the cache because others came, for ever: its text may come again as another one.
    is_gone: AtomicBool,
}

impl Script {
    fn new(text: &[u8], flags: Option<ScriptFlags>) -> Script {
        Script {
            text: text.to_vec(),
            flags,
            locks: Locks::of(text),
            is_used: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        }
    }

    /// Notes that it is run again. False: it is not in the cache any more.
    #[inline]
    pub fn note_use(&self) -> bool {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        !self.is_gone()
    }

    /// Whether it is not in the cache any more, because others came.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// What a script has to hold.
pub struct Locks {
    reach: Reach,
    /// It was found reaching for keys that it did not declare.
    reaches_out: AtomicBool,
}

/// What a run holds from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The keys that it declares.
    Declared,
    /// Everything.
    All,
}

impl Locks {
    /// Of a script or library with this text.
    pub fn of(text: &[u8]) -> Locks {
        Locks { reach: script::reach(text, &key_positions), reaches_out: AtomicBool::new(false) }
    }

    /// What a run holds. One that leaves nothing behind can begin again, so it may try with less.
    pub fn holds(&self, may_begin_again: bool) -> Holds {
        let is_known = self.reaches_out.load(Ordering::Relaxed);
        match self.reach {
            _ if is_known => Holds::All,
            Reach::Anywhere if !may_begin_again => Holds::All,
            _ => Holds::Declared,
        }
    }

    /// Notes that a run reached for a key that was not declared.
    pub fn note_reaching_out(&self) {
        self.reaches_out.store(true, Ordering::Relaxed);
    }
}

/// Where a command has its keys, if that is sure from its name and the number of words.
fn key_positions(name: &[u8], words: usize) -> Option<Vec<usize>> {
    let command = table::find(name)?;
    if !command.subcommands.is_empty() {
        return None;
    }
    let row = match command.row.handler {
        Runs::Data(row) => row,
        // Behind SELECT the same names are other keys.
        Runs::Server(_)
            if command.looks_around() || command.names_keys() || command.effect == Some(Scope::Selection) =>
        {
            return None;
        }
        Runs::Server(_) => return Some(Vec::new()),
    };
    if !matches!(row.handler, Handler::Read(_) | Handler::Write(_)) || row.flags.contains(Flags::BLOCKING) {
        return None;
    }
    match row.keys {
        Keys::None => Some(Vec::new()),
        Keys::Range { first, last, step } if last >= 0 => {
            Some((first..=last as usize).step_by(step).collect())
        }
        Keys::Range { first, last, step } if words < usize::MAX => {
            Some((first..=words.saturating_add_signed(last)).step_by(step).collect())
        }
        Keys::Range { .. } | Keys::Movable(_) => None,
    }
}

/// A library of functions.
pub struct Library {
    /// Tells it from all others that there ever were.
    pub number: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Its text.
    pub code: Vec<u8>,
    /// Its functions.
    pub functions: Vec<Loaded>,
    /// What its functions touch.
    pub locks: Locks,
}

/// Libraries by name, and which of them has a function.
#[derive(Clone, Default)]
pub struct Libraries {
    /// By name.
    pub by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    /// By the names of functions in lower case: as in Redis, their case does not count.
    owners: HashMap<Vec<u8>, (Arc<Library>, usize)>,
}

impl Libraries {
    /// Adds a library; an old one of the same name goes if it may be replaced.
    ///
    /// # Errors
    /// The error line.
    pub fn add(&mut self, library: Arc<Library>, replaces: bool) -> Result<(), Vec<u8>> {
        let old = self.by_name.get(&library.name);
        if old.is_some() && !replaces {
            return Err([b"ERR Library ", &library.name[..], b" already exists"].concat());
        }
        for function in &library.functions {
            if let Some((owner, _)) = self.owners.get(&function.name.to_ascii_lowercase())
                && owner.name != library.name
            {
                return Err([b"ERR Function ", &function.name[..], b" already exists"].concat());
            }
        }
        self.remove(&library.name);
        for (index, function) in library.functions.iter().enumerate() {
            self.owners.entry(function.name.to_ascii_lowercase()).or_insert((library.clone(), index));
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    /// Takes a library away. False: there is none of that name.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        self.owners.retain(|_, (owner, _)| owner.number != library.number);
        true
    }

    /// How many functions there are.
    pub fn functions(&self) -> usize {
        self.owners.len()
    }
}

impl Scripts {
    /// The script with this name.
    pub fn get(&self, sha: &Sha) -> Option<Arc<Script>> {
        self.cached.read().by_name.get(sha).cloned()
    }

    /// Keeps a script that EVAL has brought, as one of the last [`EVALUATED_SCRIPTS_MAX`].
    pub fn add(&self, sha: Sha, text: &[u8], header: Header) -> Arc<Script> {
        let mut cache = self.cached.write();
        if let Some(script) = cache.by_name.get(&sha) {
            return script.clone();
        }
        let script = Arc::new(Script::new(text, header.flags));
        cache.by_name.insert(sha, script.clone());
        cache.evaluated.push_back(sha);
        cache.evaluated_bytes += text.len();
        self.evicted.add(cache.evict());
        script
    }

    /// Keeps a script until all are forgotten. One that went meanwhile comes anew: workers have forgotten what they compiled of it.
    /// False: there are too many.
    pub fn keep(&self, sha: Sha, script: &Script) -> bool {
        let mut cache = self.cached.write();
        let is_evaluated = cache.evaluated.contains(&sha);
        if cache.by_name.contains_key(&sha) && !is_evaluated {
            return true;
        }
        if cache.loaded_bytes + script.text.len() > SCRIPTS_BYTES_MAX {
            return false;
        }
        if is_evaluated {
            cache.evaluated.retain(|other| *other != sha);
            cache.evaluated_bytes -= script.text.len();
        }
        cache.loaded_bytes += script.text.len();
        cache.by_name.entry(sha).or_insert_with(|| Arc::new(Script::new(&script.text, script.flags)));
        true
    }

    /// Forgets all scripts. Each worker's interpreter goes with them at its next use, or when it is told to look
    /// ([`interpreter::let_go_of_flushed`]).
    pub fn flush(&self) {
        *self.cached.write() = Cache::default();
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// How many scripts there are.
    pub fn len(&self) -> usize {
        self.cached.read().by_name.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.cached.read().by_name.values().map(|script| script.text.len() + size_of::<Script>()).sum()
    }

    /// How often the cache was emptied.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// A library of this code, not yet among the others.
    pub fn new_library(
        &self,
        name: Vec<u8>,
        code: &[u8],
        functions: Vec<Loaded>,
        number: u64,
    ) -> Arc<Library> {
        Arc::new(Library { number, name, code: code.to_vec(), functions, locks: Locks::of(code) })
    }

    /// A number for a new library.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The libraries as they are.
    pub fn libraries(&self) -> Libraries {
        self.libraries.read().clone()
    }

    /// Looks at the libraries.
    pub fn with_libraries<T>(&self, look: impl FnOnce(&Libraries) -> T) -> T {
        look(&self.libraries.read())
    }

    /// Changes the libraries, or leaves them as they are if that fails.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change_libraries<T, E>(
        &self,
        change: impl FnOnce(&mut Libraries) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut libraries = self.libraries.write();
        let mut changed = libraries.clone();
        let result = change(&mut changed)?;
        *libraries = changed;
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(result)
    }

    /// How often libraries changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The library that has a function, and the function's place in it.
    pub fn function(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        self.libraries.read().owners.get(&name.to_ascii_lowercase()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::{EVALUATED_SCRIPTS_MAX, Scripts};
    use script::{Header, Sha, sha};

    fn text(number: usize) -> Vec<u8> {
        format!("return {number}").into_bytes()
    }

    fn add(scripts: &Scripts, number: usize) -> Sha {
        let name = sha(&text(number));
        scripts.add(name, &text(number), Header::of_script(&text(number)).expect("it has none"));
        name
    }

    #[test]
    fn of_evaluated_scripts_the_last_and_those_that_run_again_stay() {
        let scripts = Scripts::default();
        let names: Vec<Sha> = (0..EVALUATED_SCRIPTS_MAX).map(|number| add(&scripts, number)).collect();
        let script = |number: usize| scripts.get(&names[number]);
        assert!(script(0).is_some_and(|script| script.note_use()), "it is run again");
        let kept = script(1).expect("none has gone yet");
        scripts.keep(names[1], &kept);
        let gone = script(2).expect("none has gone yet");
        add(&scripts, 1000);
        assert!(!gone.is_gone(), "one that was loaded does not count");
        add(&scripts, 1001);
        assert!(gone.is_gone() && script(2).is_none() && !gone.note_use());
        for number in 2000..2000 + 3 * EVALUATED_SCRIPTS_MAX {
            add(&scripts, number);
            assert!(kept.note_use());
            assert!(number > 2000 + EVALUATED_SCRIPTS_MAX / 2 || script(0).is_some());
        }
        assert!(script(0).is_none(), "it was not run again");
        assert_eq!(scripts.len(), EVALUATED_SCRIPTS_MAX + 1);
        assert_eq!(scripts.evicted.get(), 1 + 3 * EVALUATED_SCRIPTS_MAX as u64);
        // Evicted while it was being loaded.
        scripts.keep(names[2], &gone);
        assert!(script(2).is_some_and(|script| script.note_use()));
    }
}
