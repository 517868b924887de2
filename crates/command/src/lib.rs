//! What each data command does: one file per family with its rows and handlers,
//! and `execute`, which locks a command's keys, runs it and answers.
//!
//! Handlers are synchronous and see only memory. They know no session, socket,
//! edition or disk; the server's own commands (INFO, CLIENT ...) live in crate
//! `server`, with rows of the same shape.

#![forbid(unsafe_code)]

pub mod args;
pub mod bitmap;
pub mod category;
pub mod effects;
pub mod elder;
pub mod error;
pub mod execute;
pub mod generic;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod key_flags;
pub mod key_use;
pub mod limits;
pub mod list;
pub mod parse;
pub mod pieces;
pub mod row;
pub mod set;
pub mod settings;
pub mod stream;
pub mod string;
pub mod table;
pub mod transfer;
pub mod version;
pub mod wait;
pub mod zset;

pub use args::{Args, Hashed};
pub use category::Categories;
pub use error::{Error, Result};
pub use execute::execute;
pub use key_use::{KeyFlags, KeySpec};
pub use row::{
    Channels, Flags, Group, Handler, Keys, OptionWords, Outcome, Reach, Row, ScriptBy, Secrets, Shows, row,
};
pub use settings::Settings;
pub use wait::{Null, Sessions, Wait, Waiting};

/// The rows of all data commands, family by family.
pub const FAMILIES: &[&[Row]] = &[
    bitmap::ROWS,
    string::ROWS,
    list::ROWS,
    hash::ROWS,
    hyperloglog::ROWS,
    stream::ROWS,
    generic::key::ROWS,
    generic::expire::ROWS,
    generic::rename::ROWS,
    generic::scan::ROWS,
    generic::object::ROWS,
    generic::dump::ROWS,
    generic::presence::ROWS,
    generic::sort::ROWS,
    generic::flush::ROWS,
    set::ROWS,
    zset::ROWS,
    geo::ROWS,
];
