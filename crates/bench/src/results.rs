//! What a run found out: the model that the generator fills, that `--json` writes and that reports
//! are drawn from.
//!
//! All times are microseconds unless the name says otherwise. Errors are counted and never part of a
//! latency or a rate.

use serde::{Deserialize, Serialize};

/// One workload against one server, after its warm-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// What the server is called in tables.
    pub server: String,
    /// What was asked of it, such as `ycsb-a zipfian` or `set`.
    pub workload: String,
    /// The command line that repeats this measurement alone.
    pub command: String,
    /// Connections over all threads.
    pub connections: u32,
    /// Threads of the generator.
    pub threads: u32,
    /// Requests that a connection sends before it waits for their replies.
    pub pipeline: u32,
    /// Size of a written value; of all fields together if it is a hash.
    pub value_bytes: u64,
    /// Size of the key space, where the workload has one.
    pub records: Option<u64>,
    /// How many operations were asked for, if the run was not bounded by time.
    pub operations_asked: Option<u64>,
    /// Operations per second in open loop; none in closed loop.
    pub rate_asked: Option<f64>,
    /// How long was measured.
    pub seconds: f64,
    /// Operations that were answered without an error.
    pub operations: u64,
    /// Latencies of each kind of operation, such as `read` or `set`.
    pub kinds: Vec<KindLatency>,
    /// Latencies of all operations together; its kind is `all`.
    pub all: KindLatency,
    /// What each second saw.
    pub series: Vec<Second>,
    /// Errors by their text, the most frequent first.
    pub errors: Vec<ErrorCount>,
    /// What the server used, where that can be known: all servers together, and the proxies in front of them.
    pub server_usage: Option<ServerUsage>,
    /// The proxies' part of it, where the load went through some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_usage: Option<ServerUsage>,
    /// Processor time of the generator for each answered operation.
    pub generator_cpu_us_per_operation: f64,
    /// What kept the rate from being higher.
    pub limit: Limit,
    /// The run as a line over time, where something happened in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<TimeLine>,
    /// Why the run ended before its time, such as a server that died. All else is what was measured until then.
    pub unfinished: Option<String>,
}

impl Measurement {
    /// Answered operations per second; 0 if nothing was measured.
    pub fn operations_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }

    /// Errors of all texts.
    pub fn errors_total(&self) -> u64 {
        self.errors.iter().map(|error| error.count).sum()
    }

    /// The latencies of one kind of operation.
    pub fn kind(&self, kind: &str) -> Option<&KindLatency> {
        self.kinds.iter().find(|latency| latency.kind == kind)
    }
}

/// Latencies of one kind of operation, read from an HDR histogram of three digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindLatency {
    /// The kind of operation.
    pub kind: String,
    /// How many were answered.
    pub count: u64,
    /// Mean.
    pub average_us: f64,
    /// Fastest.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Slowest.
    pub max_us: f64,
    /// Percentile (0 to 100, rising) and latency, for a curve up to 99.999 and the maximum at 100.
    pub curve: Vec<(f64, f64)>,
}

/// What was answered within one second of the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// From 0.
    pub second: u32,
    /// Operations answered without an error.
    pub operations: u64,
    /// Errors.
    pub errors: u64,
    /// Mean latency; 0 if nothing was answered.
    pub average_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Slowest.
    pub max_us: f64,
}

/// A run step by step, from the end of the warm-up on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeLine {
    /// Length of a step, in milliseconds.
    pub step_ms: u32,
    /// The steps.
    pub steps: Vec<Step>,
    /// The longest time in which no write was acknowledged to the slots that are watched.
    pub silence: Silence,
    /// What happened meanwhile.
    pub events: Vec<Event>,
}

/// What was answered within one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Operations answered without an error.
    pub operations: u64,
    /// Errors.
    pub errors: u64,
    /// Those of the operations whose slots are watched.
    pub watched: u64,
}

/// A time without acknowledged writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Silence {
    /// Where it begins, in milliseconds from the end of the warm-up.
    pub from_ms: f64,
    /// How long it is.
    pub ms: f64,
}

/// Something that happened to the servers while they were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in milliseconds from the end of the warm-up.
    pub at_ms: f64,
    /// What, in a few words.
    pub what: String,
}

/// How often an error occurred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// The error's line, or what became of the connection.
    pub text: String,
    /// How often.
    pub count: u64,
}

/// Where [`ServerUsage`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageSource {
    /// From `/proc`: the server runs on this machine.
    Proc,
    /// From its own INFO.
    Info,
}

/// Processor and memory of the server during the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerUsage {
    /// Who says so.
    pub source: UsageSource,
    /// Processor time for each answered operation.
    pub cpu_us_per_operation: f64,
    /// Processor time per second: 1 is one core.
    pub cores_used: f64,
    /// The same of its busiest thread, if it is known.
    pub busiest_thread: Option<f64>,
    /// Processor time per second for which its threads were ready and had to wait, if it is known: what the machine
    /// was short of.
    pub cores_lacked: Option<f64>,
    /// Resident memory at the end.
    pub rss_bytes: u64,
    /// The highest seen during the measurement.
    pub rss_bytes_max: u64,
}

/// What kept the rate from being higher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// In one word.
    pub by: LimitedBy,
    /// In one sentence.
    pub sentence: String,
}

/// What kept a rate from being higher, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitedBy {
    /// A thread of the server had no time left, or it did not keep up with the rate.
    Server,
    /// The generator's threads had no time left while the server's had.
    Generator,
    /// Server and generator shared the processors of one machine, and all were busy.
    Machine,
    /// The rate that was asked for was reached.
    Rate,
    /// Nothing was exhausted: replies were waited for, or the server cannot be looked into.
    Unknown,
}
