//! What is asked of a server: the workloads with their parameters, and how each becomes requests.
//!
//! A workload is plain parameters. For a run each thread of the generator gets a [`Feed`] of its own, which
//! writes requests into output buffers; nothing is shared between feeds but how far inserts have come.

mod distribution;
mod feed;
mod memtier;
mod scripts;
mod template;
mod uuids;
mod ycsb;

pub use distribution::{Hotspot, ScrambledZipf, Zipf, fnv_hash, zeta};
pub use feed::{Feed, Issued, Share, Then};
pub use scripts::{ONE_SET, SCRIPT_RUNS, TEN_SETS};
pub use template::{KV_TESTS, KvTest};

/// A workload with its parameters.
#[derive(Clone, Debug)]
pub enum Work {
    /// A YCSB workload over records that are there.
    Ycsb(Ycsb),
    /// Writes the records that a YCSB workload needs, each once.
    YcsbLoad(Ycsb),
    /// One request over and over, as redis-benchmark does it.
    Request(Template),
    /// SET and GET in a ratio, as memtier_benchmark does it.
    Memtier(Memtier),
    /// SET of a new random UUID with EX.
    Uuids {
        /// Size of the values.
        value_bytes: u64,
        /// Time to live.
        seconds: u64,
    },
}

impl Work {
    /// The kinds of operations, in the order of [`Issued::kind`].
    pub fn kinds(&self) -> Vec<String> {
        let names: &[&str] = match self {
            Work::Ycsb(_) | Work::YcsbLoad(_) => &ycsb::KINDS,
            Work::Request(template) => &[&template.name],
            Work::Memtier(_) => &memtier::KINDS,
            Work::Uuids { .. } => &["set"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Which of the kinds write. A request of one's own is taken for a write.
    pub fn writes(&self) -> Vec<bool> {
        let reads: &[&str] = match self {
            Work::Ycsb(_) | Work::YcsbLoad(_) => &["read", "scan"],
            Work::Memtier(_) => &["get"],
            Work::Request(_) | Work::Uuids { .. } => &[],
        };
        self.kinds().iter().map(|kind| !reads.contains(&kind.as_str())).collect()
    }

    /// Whether its requests have random keys of which some belong to another slot than the others.
    pub fn spans_slots(&self) -> bool {
        matches!(self, Work::Request(template) if template.name == "mset" && template.keyspace.is_some())
    }

    /// The requests of all threads.
    pub fn feeds(&self, shares: &[Share], seed: u64) -> Vec<Box<dyn Feed>> {
        let records_in = ycsb::Inserted::new(shares.len());
        let feed = |share: &Share| -> Box<dyn Feed> {
            let prng = share.prng(seed);
            match self {
                Work::Ycsb(workload) => {
                    Box::new(ycsb::Transactions::new(workload, share, records_in.clone(), prng))
                }
                Work::YcsbLoad(workload) => Box::new(ycsb::Load::new(workload, share, prng)),
                Work::Request(template) => Box::new(template::Repeated::new(template, prng)),
                Work::Memtier(memtier) => Box::new(memtier::SetsAndGets::new(memtier, share, prng)),
                Work::Uuids { value_bytes, seconds } => {
                    Box::new(uuids::Expiring::new(*value_bytes, *seconds, prng))
                }
            }
        };
        shares.iter().map(feed).collect()
    }

    /// The same, each request answered when so many replicas have what it wrote; what is no single request stays as it is.
    #[must_use]
    pub fn waiting_for(self, replicas: u32) -> Work {
        match self {
            Work::Request(template) => Work::Request(Template { waits_for: replicas, ..template }),
            other => other,
        }
    }

    /// Size of the values that it writes.
    pub fn value_bytes(&self) -> u64 {
        match self {
            Work::Ycsb(workload) | Work::YcsbLoad(workload) => {
                workload.field_bytes * u64::from(workload.fields)
            }
            Work::Request(template) => template.value_bytes,
            Work::Memtier(memtier) => memtier.value_bytes,
            Work::Uuids { value_bytes, .. } => *value_bytes,
        }
    }

    /// Size of the key space, if it has one.
    pub fn records(&self) -> Option<u64> {
        match self {
            Work::Ycsb(workload) | Work::YcsbLoad(workload) => Some(workload.records),
            Work::Request(template) => template.keyspace,
            Work::Memtier(memtier) => Some(memtier.key_maximum - memtier.key_minimum + 1),
            Work::Uuids { .. } => None,
        }
    }

    /// The label in tables.
    pub fn name(&self) -> String {
        match self {
            Work::Ycsb(workload) => workload.name.clone(),
            Work::YcsbLoad(_) => "load".to_owned(),
            Work::Request(template) => template.name.clone(),
            Work::Memtier(memtier) => format!("set:get {}:{}", memtier.sets, memtier.gets),
            Work::Uuids { seconds, .. } => format!("set uuid ex {seconds}"),
        }
    }

    /// A request that is made once before, such as SCRIPT LOAD.
    pub fn before(&self) -> Option<&[Vec<u8>]> {
        match self {
            Work::Request(template) => template.before.as_deref(),
            _ => None,
        }
    }
}

/// A YCSB workload. [`Ycsb::named`] knows the usual ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Ycsb {
    /// The label in tables, such as `ycsb-a zipfian`.
    pub name: String,
    /// How often each kind of operation occurs.
    pub mix: Mix,
    /// Which records are asked for.
    pub distribution: Distribution,
    /// Records that the load writes, and that runs suppose to be there.
    pub records: u64,
    /// Fields of a record: 1 is a string, more are a hash.
    pub fields: u32,
    /// Size of each field.
    pub field_bytes: u64,
    /// The longest scan; lengths are uniform from 1.
    pub scan_max: u64,
    /// Whether keys are in the order of their numbers instead of hashed.
    pub is_ordered: bool,
    /// Digits to which key numbers are padded with zeros.
    pub key_digits: u32,
    /// Whether inserts put keys into the index that scans need.
    pub is_indexed: bool,
}

/// Shares of the kinds of operations; they add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// GET or HGETALL.
    pub read: f64,
    /// SET or HSET of one field.
    pub update: f64,
    /// A new record.
    pub insert: f64,
    /// A range of the index and its records.
    pub scan: f64,
    /// A read and then an update of the same record.
    pub read_modify_write: f64,
}

/// How records are chosen, as YCSB defines it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Zipf's law with exponent 0.99 over 10 billion ranks, scattered over the records by a hash.
    Zipfian,
    /// Zipf's law backwards from the newest record.
    Latest,
    /// A share of the operations goes to a share of the records, the first ones.
    Hotspot {
        /// Share of the records.
        data: f64,
        /// Share of the operations.
        operations: f64,
    },
}

/// A request with places that are filled anew each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The label in tables and the kind of its latencies, such as `set`.
    pub name: String,
    /// The request; `__rand_int__` stands for twelve random digits if there is a key space.
    pub arguments: Vec<Vec<u8>>,
    /// Random numbers are below this; none leaves `__rand_int__` as it stands.
    pub keyspace: Option<u64>,
    /// Size of the value, for the table.
    pub value_bytes: u64,
    /// Whether it is sent as a line instead of an array.
    pub is_inline: bool,
    /// A request that is made once before, such as SCRIPT LOAD.
    pub before: Option<Vec<Vec<u8>>>,
    /// Replicas that must have what it wrote (`WAIT`) before it counts as answered.
    pub waits_for: u32,
}

/// memtier_benchmark's SET and GET.
#[derive(Clone, Debug, PartialEq)]
pub struct Memtier {
    /// SETs in a row.
    pub sets: u32,
    /// GETs in a row.
    pub gets: u32,
    /// Size of the values.
    pub value_bytes: u64,
    /// Before the number of each key.
    pub prefix: String,
    /// The lowest key number.
    pub key_minimum: u64,
    /// The highest key number.
    pub key_maximum: u64,
    /// Which keys are set.
    pub set_pattern: KeyPattern,
    /// Which keys are asked for.
    pub get_pattern: KeyPattern,
}

/// How memtier_benchmark goes through its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPattern {
    /// Uniform.
    Random,
    /// Gaussian around the middle, with a sixth of the range as standard deviation.
    Gauss,
    /// One after the other, for each connection anew.
    Sequential,
    /// One after the other, the range divided among the connections.
    Parallel,
}
