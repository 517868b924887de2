//! A database without clients: what fills it from files, keeps a log of it, sends away what does not fit into memory and saves it. It
//! knows no session, no connection and no command of the server's own: who serves clients hands in what it needs of them.

#![forbid(unsafe_code)]

pub mod apply;
mod attention;
pub mod durability;
mod engine;
mod frozen;
pub mod full_copy;
pub mod import;
mod leisure;
mod loading;
pub mod moment;
pub mod replacement;
pub mod residency;
pub mod scripts;
pub mod slot_copy;
pub mod snapshot;

pub use attention::Attention;
pub use engine::{Engine, image_reads};
