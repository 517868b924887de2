//! Tools of the tests, and of nothing else: servers as processes, a client that
//! sees raw bytes, a generator of commands made from the command table, and the
//! differential tester, which holds Tarn against real servers.
//!
//! It stands outside the command's path: only dev-dependencies name it. Every
//! random choice comes from a seed, so that whatever was found can be shown again.

#![forbid(unsafe_code)]

pub mod ask;
pub mod cases;
pub mod client;
pub mod contents;
pub mod differential;
mod ends;
pub mod etcd;
pub mod generate;
pub mod network;
pub mod process;
pub mod relay;
pub mod replicated;
pub mod seed;
pub mod settings;
pub mod spec;
pub mod stage;
pub mod syntax;
pub mod tls;
pub mod traffic;
pub mod values;

pub use client::Client;
pub use contents::Contents;
pub use ends::Ends;
pub use process::{Program, START_MAX, Server, free_port};
pub use relay::{Relay, Way};
pub use seed::Budget;
pub use spec::Spec;
