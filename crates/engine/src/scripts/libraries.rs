//! Libraries of functions, from their code.
//!
//! Thread rule: each thread runs the code in its own interpreter; what it registered is for all.

use super::interpreter::with_interpreter;
use super::{Libraries, Library};
use crate::Engine;
use ::script::limits::{LOAD_AGAIN_TIME_MAX, LOAD_TIME_MAX};
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

/// The libraries of a copy, made and found to fit together; they are put in no place yet. Each may take as long as one that a client loads.
///
/// # Errors
/// The error line.
pub fn made_of(engine: &Engine, codes: &[Vec<u8>]) -> Result<Libraries, Vec<u8>> {
    let mut all = Libraries::default();
    for code in codes {
        all.add(make(engine, code, LOAD_TIME_MAX)?, false)?;
    }
    Ok(all)
}

/// Whether a payload is of no libraries.
pub fn are_none(payload: &[u8]) -> bool {
    rdb::restore_libraries(payload, Checksum::Checked).is_ok_and(|codes| codes.is_empty())
}

/// Puts the libraries of a payload in the place of all that there are, and tells no journal. The code of one that is there already, word
/// for word, is not run again.
///
/// # Errors
/// The error line; all are as they were then.
pub fn replace(engine: &Engine, payload: &[u8]) -> Result<(), Vec<u8>> {
    let codes = rdb::restore_libraries(payload, Checksum::Checked)
        .map_err(|error| format!("{error:?}").into_bytes())?;
    let there = engine.scripts.libraries();
    let same = |code: &[u8]| {
        let known = there.by_name.get(&library_name(code).ok()?)?;
        (known.code == code).then(|| known.clone())
    };
    // A log says all of them for each change of one.
    let make = |code: &Vec<u8>| same(code).map_or_else(|| make(engine, code, LOAD_AGAIN_TIME_MAX), Ok);
    let libraries: Vec<Arc<Library>> = codes.iter().map(make).collect::<Result<_, _>>()?;
    engine.scripts.change_libraries(|all| {
        *all = Libraries::default();
        libraries.into_iter().try_for_each(|library| all.add(library, false))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;
    use keyspace::HashSeed;
    use sys::Clock;

    /// Puts these in the place of all others, and gives what tells each from all that there ever were.
    fn numbers(engine: &Engine, codes: &[&str]) -> Vec<u64> {
        let payload = rdb::dump_libraries(codes.iter().map(|code| code.as_bytes()));
        replace(engine, &payload).unwrap();
        engine.scripts.libraries().by_name.values().map(|library| library.number).collect()
    }

    #[test]
    fn a_library_that_stays_as_it_was_is_not_run_again() {
        let engine = Engine::new(Config::defaults(), 1, Clock::Real, HashSeed::from_number(1));
        let a = "#!lua name=a\nredis.register_function('one', function() return 1 end)";
        let b = "#!lua name=b\nredis.register_function('two', function() return 2 end)";
        let other_b = "#!lua name=b\nredis.register_function('one', function() return 1 end)";
        let before = numbers(&engine, &[a, b]);
        assert_eq!(numbers(&engine, &[a, b]), before);
        let after = numbers(&engine, &[a, &b.replace("return 2", "return 3")]);
        assert!(after[0] == before[0] && after[1] > before[1], "{before:?} {after:?}");
        assert_eq!(numbers(&engine, &[a]), before[..1]);
        assert!(engine.scripts.function(b"two").is_none());
        assert!(replace(&engine, &rdb::dump_libraries([a, other_b].map(str::as_bytes).into_iter())).is_err());
        assert_eq!(engine.scripts.function(b"ONE").unwrap().0.number, before[0]);
        assert!(numbers(&engine, &[other_b])[0] > after[1], "a function may move to another library");
    }
}
