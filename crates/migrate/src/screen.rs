//! What is shown of how far it is: a line each second, written again and again on a terminal, and sentences that stay.
//!
//! Thread rule: any thread says something; one shows the line.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far one source is. Written by whoever follows it.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Whether its copy is made, and its stream followed.
    pub is_following: AtomicBool,
    /// Whether the target knows that the end has begun.
    pub is_ending: AtomicBool,
    /// Keys that were copied.
    pub keys: AtomicU64,
    /// Bytes of the copy that have come.
    pub copied_bytes: AtomicU64,
    /// Up to where the target has answered for the stream.
    pub applied: AtomicU64,
    /// Requests of the stream that were applied.
    pub requests: AtomicU64,
    /// Whether the target's answer to some of them was lost, so that it is not known whether it refused one.
    pub has_unheard: AtomicBool,
    /// Those of them that do more than take keys away, as a source does by itself with keys whose time is up.
    pub changes: AtomicU64,
}

static HAS_LINE: AtomicBool = AtomicBool::new(false);

/// Shows how far it is.
pub fn show(line: &str) {
    let mut out = io::stdout();
    // A closed pipe has read enough.
    if out.is_terminal() {
        let _ = write!(out, "\r\x1b[K{line}");
        HAS_LINE.store(true, Ordering::Relaxed);
    } else {
        let _ = writeln!(out, "{line}");
    }
    let _ = out.flush();
}

/// Says something that stays.
pub fn say(line: &str) {
    let before = if HAS_LINE.swap(false, Ordering::Relaxed) { "\r\x1b[K" } else { "" };
    let mut out = io::stdout();
    let _ = writeln!(out, "{before}{line}");
    let _ = out.flush();
}
