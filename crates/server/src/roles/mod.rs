//! The roles around data directories: `tarn import`, `export`, `check` and `restore`.
//!
//! Each reads its words, does one thing without listening anywhere, and ends: with 0 if all is well, else with 1 and a sentence on
//! standard error. What they print on standard output is for people.

mod check;
mod foreign;
mod restore;
mod store;
mod transfer;

use crate::commands;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs `tarn import` with the words that follow it.
pub fn import(words: &[String]) -> ExitCode {
    finish("import", transfer::IMPORT_USAGE, words, transfer::import)
}

/// Runs `tarn export` with the words that follow it.
pub fn export(words: &[String]) -> ExitCode {
    finish("export", transfer::EXPORT_USAGE, words, transfer::export)
}

/// Runs `tarn check` with the words that follow it.
pub fn check(words: &[String]) -> ExitCode {
    finish("check", check::USAGE, words, check::run)
}

/// Runs `tarn restore` with the words that follow it.
pub fn restore(words: &[String]) -> ExitCode {
    finish("restore", restore::USAGE, words, restore::run)
}

/// What a role says when it cannot do what it was asked for: a sentence for standard error.
#[derive(Debug, PartialEq, Eq)]
struct Complaint(String);

impl From<io::Error> for Complaint {
    fn from(error: io::Error) -> Complaint {
        Complaint(error.to_string())
    }
}

impl From<log::Refusal> for Complaint {
    fn from(refusal: log::Refusal) -> Complaint {
        Complaint(refusal.to_string())
    }
}

/// How a role ended that did what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All is well.
    Good,
    /// It found something wrong, and has said what.
    Bad,
}

type Role = fn(&[String], &mut String) -> Result<Verdict, Complaint>;

/// Runs a role, shows what it has to say, and tells how it ended.
fn finish(name: &str, usage: &str, words: &[String], role: Role) -> ExitCode {
    commands::install();
    if words.iter().any(|word| matches!(word.as_str(), "-h" | "--help")) {
        return show(usage, Verdict::Good);
    }
    let mut shown = String::new();
    match role(words, &mut shown) {
        Ok(verdict) => show(shown.trim_end(), verdict),
        Err(Complaint(sentence)) => {
            let _ = writeln!(io::stderr(), "tarn {name}: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn show(text: &str, verdict: Verdict) -> ExitCode {
    // A closed pipe has read enough.
    let _ = writeln!(io::stdout(), "{text}");
    match verdict {
        Verdict::Good => ExitCode::SUCCESS,
        Verdict::Bad => ExitCode::FAILURE,
    }
}

/// The words of a role, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Given {
    words: Vec<String>,
    options: Vec<(String, String)>,
    switches: Vec<String>,
}

impl Given {
    /// Reads words, options that have a value, and switches that have none. Options are not judged.
    ///
    /// # Errors
    /// An option lacks its value, or a switch has one.
    fn read(words: &[String], switches: &[&str]) -> Result<Given, Complaint> {
        let wrong = |error: lexopt::Error| Complaint(error.to_string());
        let mut parser = Parser::from_args(words.iter().map(OsString::from));
        let mut given = Given::default();
        while let Some(arg) = parser.next().map_err(wrong)? {
            let name = match arg {
                Arg::Value(word) => {
                    given.words.push(word.to_string_lossy().into_owned());
                    continue;
                }
                Arg::Short(letter) => return Err(Complaint(format!("there is no option -{letter}"))),
                Arg::Long(name) => name.to_owned(),
            };
            if switches.contains(&name.as_str()) {
                given.switches.push(name);
            } else {
                let value = parser.value().map_err(|_| Complaint(format!("--{name} needs a value")))?;
                given.options.push((name, value.to_string_lossy().into_owned()));
            }
        }
        Ok(given)
    }

    /// Takes an option's value; the last counts if there are several.
    fn take(&mut self, name: &str) -> Option<String> {
        let (taken, rest) =
            std::mem::take(&mut self.options).into_iter().partition(|(given, _)| given == name);
        self.options = rest;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().next_back().map(|(_, value)| value)
    }

    /// Takes the value of an option that has to be there.
    ///
    /// # Errors
    /// It is not.
    fn needed(&mut self, name: &str) -> Result<String, Complaint> {
        self.take(name).ok_or_else(|| Complaint(format!("--{name} is needed; see --help")))
    }

    /// The only word.
    ///
    /// # Errors
    /// There is none, or another.
    fn only_word(&self, what: &str) -> Result<&str, Complaint> {
        match &self.words[..] {
            [word] => Ok(word),
            [] => Err(Complaint(format!("{what} is needed; see --help"))),
            [_, extra, ..] => Err(Complaint(format!("'{extra}' is one word too many; see --help"))),
        }
    }

    /// That nothing is left.
    ///
    /// # Errors
    /// An option that the role does not have.
    fn nothing_else(&self) -> Result<(), Complaint> {
        match self.options.first() {
            Some((name, _)) => Err(Complaint(format!("there is no option --{name}; see --help"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
