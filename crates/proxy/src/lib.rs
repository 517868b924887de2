//! `tarn proxy`: one address for the servers behind it.

#![forbid(unsafe_code)]

mod links;
mod run;
mod serve;
mod start;
mod upstream;
mod ways;

pub use start::run;
