//! Each worker's interpreter, and what it has compiled of what all workers share.

use crate::commands::connection::REDIS_VERSION;
use crate::scripts::{Library, Script};
use crate::server::Server;
use ::script::{Engine, Failure, Header, Sha};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A worker's interpreter.
pub(super) struct Interpreter {
    pub engine: Engine,
    flushes: u64,
    changes: u64,
    bytes: usize,
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
pub(super) fn with_interpreter<T>(server: &Server, run: impl FnOnce(&mut Interpreter) -> T) -> T {
    INTERPRETER.with_borrow_mut(|slot| {
        let interpreter = slot.get_or_insert_with(|| Interpreter {
            engine: Engine::new(REDIS_VERSION),
            flushes: server.scripts.flushes(),
            changes: server.scripts.changes(),
            bytes: 0,
        });
        interpreter.forget_what_is_gone(server);
        let result = run(interpreter);
        interpreter.note_bytes(server);
        result
    })
}

impl Interpreter {
    fn forget_what_is_gone(&mut self, server: &Server) {
        let (flushes, changes) = (server.scripts.flushes(), server.scripts.changes());
        if self.flushes != flushes {
            self.flushes = flushes;
            self.engine.flush_scripts();
        }
        if self.changes != changes {
            self.changes = changes;
            server.scripts.with_libraries(|libraries| {
                let is_there = |number| libraries.by_name.values().any(|library| library.number == number);
                self.engine.retain_libraries(is_there);
            });
        }
    }

    fn note_bytes(&mut self, server: &Server) {
        let bytes = self.engine.used_bytes();
        let sum = &server.interpreter_bytes.0;
        if bytes >= self.bytes {
            sum.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            sum.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// The script of this text, known to all workers and compiled here.
    pub fn script(&mut self, server: &Server, sha: Sha, text: &[u8]) -> Result<Arc<Script>, Failure> {
        if let Some(script) = server.scripts.get(&sha) {
            self.compile(sha, &script)?;
            return Ok(script);
        }
        let header = Header::of_script(text)?;
        self.engine.compile(sha, text)?;
        Ok(server.scripts.add(sha, text, header))
    }

    /// Compiles a script here, unless it is.
    pub fn compile(&mut self, sha: Sha, script: &Script) -> Result<(), Failure> {
        if self.engine.has_script(&sha) { Ok(()) } else { self.engine.compile(sha, &script.text) }
    }

    /// Loads a library here, unless it is.
    pub fn load(&mut self, library: &Library) -> Result<(), Failure> {
        if self.engine.has_library(library.number) {
            return Ok(());
        }
        self.engine.load_library(library.number, &library.code).map(|_| ())
    }
}
