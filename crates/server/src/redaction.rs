//! Which words of a request must not be shown to anybody: passwords, in the slow
//! log and to MONITOR.

use crate::config::{self, TABLE};
use crate::dispatch::table::Command;
use wire::Request;

const SHOWN_INSTEAD: &[u8] = b"(redacted)";

/// The words of a request with its secrets replaced.
pub fn shown<'a>(command: &Command, request: &Request<'a>) -> Vec<&'a [u8]> {
    let mut words: Vec<&[u8]> = request.iter().collect();
    match command.row.name {
        "auth" => hide(&mut words, 1, usize::MAX),
        "acl|setuser" | "acl|deluser" | "acl|getuser" => hide(&mut words, 2, usize::MAX),
        "config|set" => hide_config_values(&mut words),
        "hello" => hide_behind(&mut words, b"auth", 2),
        "migrate" => {
            hide_behind(&mut words, b"auth", 1);
            hide_behind(&mut words, b"auth2", 2);
        }
        _ => {}
    }
    words
}

fn hide(words: &mut [&[u8]], from: usize, count: usize) {
    words.iter_mut().skip(from).take(count).for_each(|word| *word = SHOWN_INSTEAD);
}

fn hide_behind(words: &mut [&[u8]], option: &[u8], count: usize) {
    if let Some(place) = words.iter().position(|word| word.eq_ignore_ascii_case(option)) {
        hide(words, place + 1, count);
    }
}

fn hide_config_values(words: &mut [&[u8]]) {
    for name in (2..words.len()).step_by(2) {
        let is_secret =
            |row: &config::Row| row.is_named(words[name]) && row.flags.contains(config::Flags::SENSITIVE);
        if TABLE.iter().any(is_secret) {
            hide(words, name + 1, 1);
        }
    }
}
