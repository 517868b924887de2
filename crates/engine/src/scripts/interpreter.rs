//! Each worker's interpreter, and what it has compiled of what all workers share.
//!
//! A script is found by its text without a look at its name: naming a text takes as long as a command.
//!
//! Invariants:
//! 1. What a worker finds here is also among the scripts that all share, or is gone from both.

use super::{Library, Script};
use crate::Engine;
use ::script::limits::{COMPILED_SCRIPTS_MAX, LOAD_AGAIN_TIME_MAX};
use ::script::{Compiled, Failure, Header, Sha, sha};
use command::version::REDIS_VERSION;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much an interpreter may grow or shrink before it tells.
const BYTES_UNTOLD_MAX: usize = 16 << 10;

/// Scripts that may have gone before an interpreter forgets them, too.
const COMPILED_SCRIPTS_GONE: usize = 256;

/// A worker's interpreter.
pub struct Interpreter {
    /// What runs it.
    pub engine: ::script::Engine,
    scripts: HashMap<Sha, Rc<Known>, foldhash::fast::RandomState>,
    /// The same by a hash of their texts.
    by_text: HashMap<u64, Rc<Known>, foldhash::fast::RandomState>,
    hasher: foldhash::quality::RandomState,
    flushes: u64,
    changes: u64,
    bytes: usize,
    /// With so many compiled it looks which of them have gone.
    looks_at: usize,
}

/// A script that is compiled here.
pub struct Known {
    /// Its name.
    pub name: Sha,
    /// What all workers know of it.
    pub script: Arc<Script>,
    /// What is to be run.
    pub compiled: Compiled,
}

/// Bytes that the interpreters of all workers hold.
#[derive(Default)]
pub struct InterpreterBytes(AtomicUsize);

impl InterpreterBytes {
    /// The number of bytes.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

/// Uses this worker's interpreter, which comes into being with its first use.
pub fn with_interpreter<T>(engine: &Engine, run: impl FnOnce(&mut Interpreter) -> T) -> T {
    INTERPRETER.with_borrow_mut(|slot| {
        give_up_flushed(engine, slot);
        let interpreter = slot.get_or_insert_with(|| Interpreter::new(engine));
        interpreter.forget_what_is_gone(engine);
        interpreter.engine.set_garbage_bytes_max(garbage_bytes_max(engine));
        let result = run(interpreter);
        interpreter.note_bytes(engine);
        result
    })
}

/// Gives up this worker's interpreter if scripts were flushed since its last use (see [`crate::scripts::Scripts::flush`]).
pub fn let_go_of_flushed(engine: &Engine) {
    INTERPRETER.with_borrow_mut(|slot| give_up_flushed(engine, slot));
}

/// A flush takes the interpreter away as well, with what scripts have left in it; but not one that has libraries, whose state is theirs.
fn give_up_flushed(engine: &Engine, slot: &mut Option<Interpreter>) {
    let is_flushed = |it: &Interpreter| it.flushes != engine.scripts.flushes() && !it.engine.has_libraries();
    if let Some(flushed) = slot.take_if(|interpreter| is_flushed(interpreter)) {
        engine.interpreter_bytes.0.fetch_sub(flushed.bytes, Ordering::Relaxed);
    }
}

/// How much garbage an interpreter may keep: a share of `maxmemory` in which data is not missed.
fn garbage_bytes_max(engine: &Engine) -> usize {
    const SHARE: u64 = 64;
    match engine.config.maxmemory() {
        0 => usize::MAX,
        ceiling => (ceiling / SHARE) as usize,
    }
}

impl Interpreter {
    fn new(engine: &Engine) -> Interpreter {
        Interpreter {
            engine: ::script::Engine::new(REDIS_VERSION),
            scripts: HashMap::default(),
            by_text: HashMap::default(),
            hasher: foldhash::quality::RandomState::default(),
            flushes: engine.scripts.flushes(),
            changes: engine.scripts.changes(),
            bytes: 0,
            looks_at: 0,
        }
    }

    fn forget_what_is_gone(&mut self, engine: &Engine) {
        let (flushes, changes) = (engine.scripts.flushes(), engine.scripts.changes());
        if self.flushes != flushes {
            self.flushes = flushes;
            self.forget_scripts();
        }
        if self.changes != changes {
            self.changes = changes;
            engine.scripts.with_libraries(|libraries| {
                let is_there = |number| libraries.by_name.values().any(|library| library.number == number);
                self.engine.retain_libraries(is_there);
            });
        }
    }

    fn forget_scripts(&mut self) {
        self.by_text.clear();
        for (_, known) in self.scripts.drain() {
            self.engine.forget(known.compiled);
        }
    }

    fn note_bytes(&mut self, engine: &Engine) {
        let bytes = self.engine.used_bytes();
        if bytes.abs_diff(self.bytes) < BYTES_UNTOLD_MAX {
            return;
        }
        let sum = &engine.interpreter_bytes.0;
        if bytes >= self.bytes {
            sum.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            sum.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// The script of this text, known to all workers and compiled here.
    ///
    /// # Errors
    /// It does not compile, or says of itself what cannot be followed.
    pub fn by_text(&mut self, engine: &Engine, text: &[u8]) -> Result<Rc<Known>, Failure> {
        let hash = self.hasher.hash_one(text);
        if let Some(known) = self.by_text.get(&hash)
            && known.script.text == text
            && known.script.note_use()
        {
            return Ok(known.clone());
        }
        let name = sha(text);
        let known = match self.by_name(engine, &name)? {
            Some(known) => known,
            None => {
                let header = Header::of_script(text)?;
                let compiled = self.compile(text)?;
                self.keep(name, engine.scripts.add(name, text, header), compiled)
            }
        };
        self.by_text.insert(hash, known.clone());
        Ok(known)
    }

    /// The script of this name, if any worker knows it, compiled here.
    ///
    /// # Errors
    /// It does not compile.
    pub fn by_name(&mut self, engine: &Engine, name: &Sha) -> Result<Option<Rc<Known>>, Failure> {
        if let Some(known) = self.scripts.get(name).filter(|known| known.script.note_use()) {
            return Ok(Some(known.clone()));
        }
        let Some(script) = engine.scripts.get(name) else { return Ok(None) };
        let compiled = self.compile(&script.text)?;
        Ok(Some(self.keep(*name, script, compiled)))
    }

    fn compile(&mut self, text: &[u8]) -> Result<Compiled, Failure> {
        if self.scripts.len() >= self.looks_at {
            self.forget_those_gone();
            self.looks_at = self.scripts.len() + COMPILED_SCRIPTS_GONE;
        }
        if self.scripts.len() >= COMPILED_SCRIPTS_MAX {
            self.forget_scripts();
        }
        self.engine.compile(text)
    }

    fn forget_those_gone(&mut self) {
        self.by_text.retain(|_, known| !known.script.is_gone());
        for (_, known) in self.scripts.extract_if(|_, known| known.script.is_gone()) {
            self.engine.forget(known.compiled);
        }
    }

    fn keep(&mut self, name: Sha, script: Arc<Script>, compiled: Compiled) -> Rc<Known> {
        let known = Rc::new(Known { name, script, compiled });
        // One that had gone, and came again.
        if let Some(old) = self.scripts.insert(name, known.clone()) {
            self.engine.forget(old.compiled);
        }
        known
    }

    /// Loads a library here, unless it is.
    ///
    /// # Errors
    /// Its code does not run to its end.
    pub fn load(&mut self, library: &Library) -> Result<(), Failure> {
        if self.engine.has_library(library.number) {
            return Ok(());
        }
        self.engine.load_library(library.number, &library.code, LOAD_AGAIN_TIME_MAX).map(|_| ())
    }
}
