//! The runs of Lua scripts that published reports show: what a script costs over the command that it calls.

use super::{Template, Work};

/// A script of one SET.
pub const ONE_SET: &str = "redis.call('SET', KEYS[1], ARGV[1])";
/// The name of [`ONE_SET`], its SHA-1.
const ONE_SET_SHA: &str = "fcd2612e1ca113b83fdfbc2a88493d3b231a32ad";
/// A script of ten SETs in a loop.
pub const TEN_SETS: &str = "for k = 1, 10 do redis.call('SET', KEYS[1], ARGV[1]) end";

/// What `tarn bench eval -t` knows.
pub const SCRIPT_RUNS: &[&str] = &["set", "eval", "evalsha", "eval-ten"];

impl Work {
    /// A run by its name in [`SCRIPT_RUNS`]: `set` is the plain command to compare with, `eval` and `evalsha` are a
    /// script of one SET, `eval-ten` is one of ten SETs.
    pub fn script_run(name: &str, value_bytes: u64, keyspace: Option<u64>) -> Option<Work> {
        let value = "x".repeat(usize::try_from(value_bytes).ok()?);
        let key = "key:__rand_int__";
        let arguments: Vec<&str> = match name {
            "set" => vec!["SET", key, &value],
            "eval" => vec!["EVAL", ONE_SET, "1", key, &value],
            "evalsha" => vec!["EVALSHA", ONE_SET_SHA, "1", key, &value],
            "eval-ten" => vec!["EVAL", TEN_SETS, "1", key, &value],
            _ => return None,
        };
        let load = ["SCRIPT", "LOAD", ONE_SET].map(|word| word.as_bytes().to_vec()).to_vec();
        let before = (name == "evalsha").then_some(load);
        Some(Work::Request(Template { value_bytes, before, ..Template::of(name, &arguments, keyspace) }))
    }
}
