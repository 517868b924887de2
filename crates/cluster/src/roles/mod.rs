//! The roles `tarn config` and `tarn cluster`: each reads its words, and ends with 0 if all is well, else with 1 and a sentence on standard error.

mod asking;
mod config_server;
mod operator;
#[cfg(test)]
mod tests;
mod up;

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
