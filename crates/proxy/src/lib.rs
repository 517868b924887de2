//! `tarn proxy`: one address for the servers behind it.

#![forbid(unsafe_code)]

mod bandwidth;
mod cache;
mod check;
mod computed;
mod group_reads;
mod heard;
mod joins;
mod limits;
mod links;
mod losses;
mod parts;
mod pops;
mod reading;
mod replicas;
mod run;
mod scans;
mod serve;
mod shards;
mod slot_scans;
mod start;
mod stream_waits;
mod takeover;
mod upstream;
mod users;
mod waits;
mod ways;
mod written;

pub use start::run;
