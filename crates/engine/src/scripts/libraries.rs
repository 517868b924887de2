//! Libraries of functions, from their code.
//!
//! Thread rule: each thread runs the code in its own interpreter; what it registered is for all.

use super::interpreter::with_interpreter;
use super::{Libraries, Library};
use crate::Engine;
use ::script::limits::LOAD_AGAIN_TIME_MAX;
use ::script::shebang::library_name;
use std::sync::Arc;
use std::time::Duration;
use value::rdb::{self, Checksum};

/// Runs a library's code, which may take so long; what it registered makes a library.
///
/// # Errors
/// The error line.
pub fn make(engine: &Engine, code: &[u8], time_max: Duration) -> Result<Arc<Library>, Vec<u8>> {
    let name = library_name(code)?;
    let number = engine.scripts.next_number();
    let functions =
        with_interpreter(engine, |interpreter| interpreter.engine.load_library(number, code, time_max))?;
    Ok(engine.scripts.new_library(name, code, functions, number))
}

/// Loads a library that a file holds.
///
/// # Errors
/// The error line.
pub fn load(engine: &Engine, code: &[u8]) -> Result<(), Vec<u8>> {
    let library = make(engine, code, LOAD_AGAIN_TIME_MAX)?;
    engine.scripts.change_libraries(|all| all.add(library, false))
}

/// Puts the libraries of a payload in the place of all that there are, and tells no journal.
///
/// # Errors
/// The error line; all are as they were then.
pub fn replace(engine: &Engine, payload: &[u8]) -> Result<(), Vec<u8>> {
    let codes = rdb::restore_libraries(payload, Checksum::Checked)
        .map_err(|error| format!("{error:?}").into_bytes())?;
    let libraries: Vec<Arc<Library>> =
        codes.iter().map(|code| make(engine, code, LOAD_AGAIN_TIME_MAX)).collect::<Result<_, _>>()?;
    engine.scripts.change_libraries(|all| {
        *all = Libraries::default();
        libraries.into_iter().try_for_each(|library| all.add(library, false))
    })
}
