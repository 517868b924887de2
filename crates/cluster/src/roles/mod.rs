//! The roles `tarn config` and `tarn cluster`: each reads its words, and ends with 0 if all is well, else with 1 and a sentence on standard error.

mod config_server;
pub(crate) mod operator;
mod progress;
#[cfg(test)]
mod tests;
mod up;
mod users;

use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs `tarn config` with the words that follow it.
#[must_use]
pub fn config(words: &[String]) -> ExitCode {
    finish("config", config_server::USAGE, words, config_server::run)
}

/// Runs `tarn cluster` with the words that follow it.
#[must_use]
pub fn cluster(words: &[String]) -> ExitCode {
    finish("cluster", operator::USAGE, words, operator::run)
}

fn finish(name: &str, usage: &str, words: &[String], role: fn(&[String]) -> Result<(), String>) -> ExitCode {
    if words.iter().take_while(|word| *word != "--").any(|word| matches!(word.as_str(), "-h" | "--help")) {
        // A closed pipe has read enough.
        let _ = writeln!(io::stdout(), "{usage}");
        return ExitCode::SUCCESS;
    }
    match role(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            let _ = writeln!(io::stderr(), "tarn {name}: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// The name of an option, which is never a letter; a word by itself is an error.
fn option(arg: Arg<'_>) -> Result<String, String> {
    match arg {
        Arg::Long(name) => Ok(name.to_owned()),
        Arg::Short(letter) => Err(format!("there is no option -{letter}; see --help")),
        Arg::Value(word) => Err(format!("'{}' is one word too many; see --help", word.to_string_lossy())),
    }
}

/// The value of an option.
fn value_of(parser: &mut Parser, name: &str) -> Result<OsString, String> {
    parser.value().map_err(|_| format!("--{name} needs a value"))
}
