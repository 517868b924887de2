//! Who is connected, as all others see and reach it.
//!
//! It knows no keys, no session and no server: what clients are owed and may take follows the configuration, and whoever has
//! something for one posts it.

#![forbid(unsafe_code)]

pub mod client;
