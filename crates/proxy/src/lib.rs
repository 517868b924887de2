//! `tarn proxy`: one address for the servers behind it.

#![forbid(unsafe_code)]

mod check;
mod computed;
mod heard;
mod joins;
mod limits;
mod links;
mod parts;
mod run;
mod scans;
mod serve;
mod slot_scans;
mod start;
mod upstream;
mod ways;

pub use start::run;
