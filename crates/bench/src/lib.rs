//! Load for any server that speaks the Redis protocol, and what it took: behind `tarn bench`.
//!
//! A [`Plan`] says what shall be measured, [`run`] does it and returns a [`Measurement`]. This crate speaks
//! `wire` only and knows nothing of Tarn's server, so that all servers are measured alike.
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod command_line;
pub mod engine;
pub mod latency;
pub mod plan;
pub mod report;
pub mod results;
pub mod secure;
pub mod usage;
pub mod whitepaper;
pub mod work;

pub use engine::run;
pub use plan::{Direct, End, Observer, Plan, Progress, Target, Unobserved};
pub use results::Measurement;
pub use work::Work;

/// Why nothing could be measured: one sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
