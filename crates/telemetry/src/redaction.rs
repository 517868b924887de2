//! Which words of a request must not be shown to anybody: passwords, in the slow
//! log and to MONITOR. Where they lie is in each command's row.
//!
//! Each command's words are read as its handler reads them, so that a name that looks like an option hides nothing and
//! shifts nothing. Where the handler would give up, everything from there on is hidden: it may be a password in the wrong
//! place.

use command::table::{self, Command};
use command::{OptionWords, Secrets};
use config::TABLE;
use wire::Request;

const SHOWN_INSTEAD: &[u8] = b"(redacted)";

/// The words of a request with its secrets replaced.
pub fn shown<'a>(command: &Command, request: &Request<'a>) -> Vec<&'a [u8]> {
    let mut words: Vec<&[u8]> = request.iter().collect();
    hide_secrets(command.row.secrets, &mut words);
    words
}

/// Hides the secrets of a request.
fn hide_secrets(secrets: Secrets, words: &mut [&[u8]]) {
    match secrets {
        Secrets::None => {}
        Secrets::From(position) => hide(words, position, usize::MAX),
        Secrets::OfRequest(position) => hide_secrets_of_request(words, position),
        Secrets::OfDirectives => hide_config_values(words),
        Secrets::OfOptions(position, options) => hide_behind(words, position, options),
    }
}

fn hide(words: &mut [&[u8]], from: usize, count: usize) {
    words.iter_mut().skip(from).take(count).for_each(|word| *word = SHOWN_INSTEAD);
}

/// Reads options from a position on. What is no option, or lacks words, is hidden with all that follows.
fn hide_behind(words: &mut [&[u8]], from: usize, options: &[OptionWords]) {
    let mut at = from;
    while at < words.len() {
        let known = options.iter().find(|option| words[at].eq_ignore_ascii_case(option.name.as_bytes()));
        let Some(option) = known else { return hide(words, at, usize::MAX) };
        let lacks = option.words != usize::MAX && at + option.words >= words.len();
        if option.are_secret || lacks {
            hide(words, at + 1, option.words);
        }
        at = at.saturating_add(1).saturating_add(option.words);
    }
}

/// Hides the secrets of the request that begins at a position. If that holds a request itself, all of that one: how deep they lie
/// in each other is the client's choice.
fn hide_secrets_of_request(words: &mut [&[u8]], from: usize) {
    let Some(request) = words.get_mut(from..).filter(|request| !request.is_empty()) else { return };
    let Some(command) = table::find(request[0]) else { return };
    let subcommand = request.get(1).and_then(|name| table::find_subcommand(command, name));
    match subcommand.unwrap_or(command).row.secrets {
        Secrets::OfRequest(_) => hide(request, 2, usize::MAX),
        secrets => hide_secrets(secrets, request),
    }
}

/// Shows values of directives that are known not to be secret, and no others.
fn hide_config_values(words: &mut [&[u8]]) {
    if !words.len().is_multiple_of(2) {
        return hide(words, 2, usize::MAX);
    }
    for name in (2..words.len()).step_by(2) {
        let is_harmless =
            |row: &config::Row| row.is_named(words[name]) && !row.flags.contains(config::Flags::SENSITIVE);
        if !TABLE.iter().any(is_harmless) {
            hide(words, name + 1, 1);
        }
    }
}
