//! `tarn proxy`: one address for the servers behind it.

#![forbid(unsafe_code)]

mod heard;
mod joins;
mod links;
mod parts;
mod run;
mod serve;
mod start;
mod upstream;
mod ways;

pub use start::run;
