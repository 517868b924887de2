//! Load for any server that speaks the Redis protocol, and what it took: behind `tarn bench`.
//!
//! A [`Plan`] says what shall be measured, [`run`] does it and returns a [`Measurement`]. This crate speaks
//! `wire` only and knows nothing of Tarn's server, so that all servers are measured alike.
#![forbid(unsafe_code)]

pub mod latency;
pub mod plan;
pub mod replies;
pub mod results;
pub mod work;

pub use plan::{End, Observer, Plan, Progress, Target, Unobserved};
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

/// Makes one measurement. A server that dies in the middle still gives one, with
/// [`Measurement::unfinished`] saying so.
///
/// # Errors
/// Nothing could be measured: the address is wrong, the password refused, the workload impossible.
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Measurement, Failure> {
    let _ = (plan, observer);
    Err(Failure("the generator is not built yet".to_owned()))
}
