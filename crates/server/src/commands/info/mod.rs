//! INFO: what the server says about itself, section by section, under the names
//! that clients, exporters and dashboards look for.
//!
//! A field is one line, whatever its name and value are made of: hosts, names and codes of errors come from others, and whoever reads INFO cuts it at its
//! line ends (`a_field_stays_on_its_line_whatever_it_is_made_of`).
//!
//! Nothing here stops other commands: counts are summed as they stand, so that two
//! fields may be from moments a little apart. What this version does not have
//! (files, replicas, modules) shows the values of an idle Redis.

mod load;
mod memory;
mod persistence;
mod server;

pub(crate) use load::duration_counts;
pub(crate) use memory::Usage;

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use command::{Flags, Group, Reach, Result, Row, Shows};
use std::fmt::{Display, Write};
use wire::Reply;

/// INFO.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("info", -1, Reach::Around, Flags::LOADING.union(Flags::STALE).union(Flags::DANGEROUS), info)
        .shows(Shows::WhatItNotes)
        .group(Group::Server)
        .complexity("O(1)")
        .syntax("[section [section ...]]")
        .summary("Tells about the server and its counts, in sections.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])];

/// Whether a section is part of the answer to a plain INFO.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Always,
    WhenAsked,
    /// Only by its own name.
    WhenNamed,
}

type Writer = fn(&mut Context<'_, '_>, &mut Page);

/// The sections in their order, with their titles.
const SECTIONS: &[(&str, Shown, Writer)] = &[
    ("Server", Shown::Always, server::server),
    ("Clients", Shown::Always, server::clients),
    ("Memory", Shown::Always, memory::memory),
    ("Persistence", Shown::Always, persistence::persistence),
    ("Stats", Shown::Always, load::stats),
    ("Replication", Shown::Always, server::replication),
    ("CPU", Shown::Always, load::cpu),
    ("Modules", Shown::Always, |_, _| {}),
    ("Commandstats", Shown::WhenAsked, load::commandstats),
    ("Errorstats", Shown::Always, load::errorstats),
    ("Latencystats", Shown::WhenAsked, load::latencystats),
    ("Cluster", Shown::Always, server::cluster),
    ("Keyspace", Shown::Always, server::keyspace),
    ("Debug", Shown::WhenNamed, load::debug),
];

/// The text of an answer.
pub(crate) struct Page {
    text: String,
}

impl Page {
    fn title(&mut self, title: &str) {
        let gap = if self.text.is_empty() { "" } else { "\r\n" };
        self.text.push_str(&format!("{gap}# {title}\r\n"));
    }

    /// One field.
    pub(crate) fn line(&mut self, name: &str, value: impl Display) {
        Part {
            text: &mut self.text,
            holds: |character| !is_line_end(character) && !"#:".contains(character),
        }
        .add(format_args!("{name}"));
        self.text.push(':');
        Part { text: &mut self.text, holds: |character| !is_line_end(character) }
            .add(format_args!("{value}"));
        self.text.push_str("\r\n");
    }

    /// Several fields.
    fn lines(&mut self, lines: &[(&str, &dyn Display)]) {
        lines.iter().for_each(|(name, value)| self.line(name, value));
    }

    /// The memory that it takes itself.
    fn bytes(&self) -> usize {
        self.text.capacity()
    }
}

/// What a character is shown as that a name or a value of INFO may not hold, as Redis has it where it looks at them.
const STAND_IN: char = '_';

/// A name or a value on its way into a page.
struct Part<'p> {
    text: &'p mut String,
    /// What it may hold.
    holds: fn(char) -> bool,
}

impl Part<'_> {
    fn add(&mut self, part: std::fmt::Arguments<'_>) {
        self.write_fmt(part).expect("a string takes every text");
    }
}

impl Write for Part<'_> {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        // What is plain, as nearly all is, may be in any value.
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" .,=_-%".contains(byte);
        match part.as_bytes().iter().all(is_plain) || part.chars().all(self.holds) {
            true => self.text.push_str(part),
            false => {
                self.text.extend(part.chars().map(|one| if (self.holds)(one) { one } else { STAND_IN }));
            }
        }
        Ok(())
    }
}

/// Whether a line ends at a character for anybody: some clients cut at each that Unicode has for it.
fn is_line_end(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

/// INFO [section [section ...]]
fn info(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let asked: Vec<String> =
        context.request.iter().skip(1).map(|word| String::from_utf8_lossy(word).to_lowercase()).collect();
    let is_asked = |word: &str| asked.iter().any(|asked| asked == word);
    let (all, usual) = (is_asked("all") || is_asked("everything"), asked.is_empty() || is_asked("default"));
    let mut page = Page { text: String::with_capacity(8 << 10) };
    for (title, shown, write) in SECTIONS {
        let is_general = all && *shown != Shown::WhenNamed || usual && *shown == Shown::Always;
        if is_general || is_asked(&title.to_lowercase()) {
            page.title(title);
            write(context, &mut page);
        }
    }
    if let Some((title, lines)) = context.server.section()
        && (all || usual || is_asked(&title.to_lowercase()))
    {
        page.title(title);
        lines().iter().for_each(|(name, value)| page.line(name, value));
    }
    reply.verbatim("txt", page.text.as_bytes());
    Ok(())
}

/// Bytes with a unit: `1.50M`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", UNITS[unit])
}

/// `part` of `whole` as a quotient; 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_stays_on_its_line_whatever_it_is_made_of() {
        let mut page = Page { text: String::new() };
        let host = String::from_utf8_lossy(b"x\r\nrole:master\n\x85\xff");
        page.line("slave0", format_args!("ip={host},port={}", 7));
        page.line("errorstat_A#:B\r\nrole", "count=1");
        page.lines(&[("master_host", &"a\u{85}b\u{2028}c\0d e\u{e9}#:"), ("port", &1)]);
        assert_eq!(
            page.text,
            "slave0:ip=x__role:master_\u{fffd}\u{fffd},port=7\r\nerrorstat_A__B__role:count=1\r\n\
             master_host:a_b_c_d e\u{e9}#:\r\nport:1\r\n"
        );
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (5 << 20, "5.00M"), (3 << 40, "3.00T")]
        {
            assert_eq!(human_bytes(bytes), text);
        }
    }
}
