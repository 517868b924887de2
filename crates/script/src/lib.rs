//! Lua scripts: the interpreter in which EVAL's scripts and functions run, what they find in it, and the
//! way between their values and replies.
//!
//! An [`Engine`] is one worker's interpreter. It knows nothing of keys, locks, users or sessions: what a script
//! asks of the server goes through a [`Host`], which crate `server` provides for the time of a run.
//!
//! Thread rule: an `Engine` and everything in it belong to one thread. The rest is plain values and functions.
//!
//! 1. No script can change what another one finds: tables of the interpreter are only reachable through empty stand-ins
//!    that refuse to be written (`sandbox.lua`).
//! 2. Bytes from scripts never make this crate panic, and what they allocate counts against the
//!    interpreter's limit or against the limits in [`limits`].
//! 3. Texts of errors are Redis 7.2's.

#![deny(unsafe_code)]

mod arguments;
mod bits;
mod bytecode;
mod cjson;
mod cmsgpack;
mod engine;
#[allow(unsafe_code)] // Functions of C in front of those of this crate.
mod gate;
mod host;
#[allow(unsafe_code)] // Functions of C in place of the interpreter's own.
mod library;
pub mod limits;
mod pattern;
mod raise;
mod random;
#[allow(unsafe_code)] // The path of each run and call, by the interpreter's own functions.
mod raw;
mod redis;
pub mod shebang;
mod source;
mod structs;

use lua as _;

pub use engine::{Compiled, Engine, Failure, Loaded, Ran};
pub use host::{Host, Pulse, Refusal};
pub use shebang::{Header, ScriptFlags};
pub use source::{Reach, reach};

use sha1::{Digest, Sha1};

/// The name of a script: the SHA-1 of its text in lower-case hexadecimal digits.
pub type Sha = [u8; 40];

/// A script's name.
pub fn sha(text: &[u8]) -> Sha {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = [0; 40];
    for (pair, byte) in name.chunks_exact_mut(2).zip(Sha1::digest(text)) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    name
}
