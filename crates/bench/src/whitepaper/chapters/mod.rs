//! The chapters: a table of them, and what a chapter is made of.
//!
//! A chapter is one row in [`CHAPTERS`] and one function that gives its sections for a [`Scale`]: which workloads, how
//! published, what stands beside them. Running them is `rounds`' part, drawing them the report's.

mod capacity;
mod cluster;
mod durable;
mod memory;
mod pipelining;
mod proxies;
mod replicated;
mod scripts;
mod ttl;

use super::edition::{Edition, Kept, Room};
use super::scale::Scale;
use crate::report::{Allowance, Figure, Layout, Published, published};
use crate::work::{Template, Work};
pub use proxies::BESIDE;

/// memtier_benchmark's default prefix.
const MEMTIER_PREFIX: &str = "memtier-";

/// One chapter.
pub struct Chapter {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What it asks.
    pub about: &'static str,
    /// What its servers promise.
    pub edition: Edition,
    /// Its sections on a machine.
    pub sections: fn(&Scale) -> Vec<Outline>,
}

/// All chapters, in the order in which they are run.
pub const CHAPTERS: &[Chapter] = &[
    Chapter {
        name: "memory",
        title: "Memory",
        about: "All data in memory: how many reads and writes a server answers, and how fast, by value size and mix.",
        edition: Edition::Memory,
        sections: memory::sections,
    },
    Chapter {
        name: "pipelining",
        title: "Pipelining",
        about: "What a client gains that sends several requests before it waits: from one at a time to a hundred.",
        edition: Edition::Memory,
        sections: pipelining::sections,
    },
    Chapter {
        name: "ttl",
        title: "Keys that expire",
        about: "Writing keys that each have a time to live, as session stores do.",
        edition: Edition::Memory,
        sections: ttl::sections,
    },
    Chapter {
        name: "scripts",
        title: "Scripts",
        about: "What it costs to have a command called by a Lua script, sent by its text or by its SHA-1.",
        edition: Edition::Memory,
        sections: scripts::sections,
    },
    Chapter {
        name: "durable",
        title: "Durable",
        about: "Every write on disk before its reply: what that costs, by value size and mix. Every server that the run starts was started anew for this chapter, in an empty folder of its own on the disk that the machine's description names.",
        edition: Edition::Durable,
        sections: durable::sections,
    },
    Chapter {
        name: "capacity-ample",
        title: "Capacity, memory for seven times the data",
        about: "The edition that can do without memory, where it need not: what that costs against the durable edition, which cannot. Every server that the run starts was started anew for this chapter, in an empty folder of its own on the disk that the machine's description names.",
        edition: Edition::Capacity(Room::Ample),
        sections: capacity::ample,
    },
    Chapter {
        name: "capacity-scarce",
        title: "Capacity, memory for a quarter of the data",
        about: "Four times more data than memory under one ceiling: what that costs against having all of it in memory, and whether the ceiling holds. Every server that the run starts was started anew for this chapter, in an empty folder of its own on the disk that the machine's description names.",
        edition: Edition::Capacity(Room::Scarce),
        sections: capacity::scarce,
    },
    Chapter {
        name: "replicated-memory",
        title: "Replicated, in memory",
        about: "Every write in the memory of two servers before its reply: what that costs against a replica that nobody waits for, and against none. Master and replica share the machine.",
        edition: Edition::Replicated(Kept::InMemory),
        sections: replicated::sections,
    },
    Chapter {
        name: "replicated-durable",
        title: "Replicated, durable",
        about: "Every write on the disk of two servers before its reply: what that costs against a replica that nobody waits for, and against none. Master and replica share the machine and the disk that its description names; every server that the run starts was started anew for this chapter, in an empty folder of its own.",
        edition: Edition::Replicated(Kept::OnDisk),
        sections: replicated::sections,
    },
    Chapter {
        name: "cluster",
        title: "Cluster",
        about: "Shards behind one set of slots, spoken to directly: what several of them do, and what clients see when a master is killed and when slots move. All in memory. Every measurement has a cluster of its own, begun anew; the servers below are those of one shard. Peers take part whose command is plainly that of a redis-server or valkey-server; servers that were running before do not.",
        edition: Edition::Cluster,
        sections: cluster::sections,
    },
    Chapter {
        name: "cluster-proxies",
        title: "Cluster, through two proxies",
        about: "Shards behind two proxies, as the published clusters are spoken to: what several of them do, and what the proxies take. Each proxy has half of the connections. All in memory. Every measurement has a cluster and proxies of its own, begun anew; the servers below are those of one shard. Peers take part whose command is plainly that of a redis-server or valkey-server, behind the same two proxies; servers that were running before do not.",
        edition: Edition::Cluster,
        sections: proxies::cluster,
    },
    Chapter {
        name: "twemproxy",
        title: "Proxies: Tarn's beside twemproxy",
        about: "The same load through a proxy of Tarn's and through twemproxy, each in front of two servers of one kind: what the proxy costs. The servers are those of the first --peer-cmd that is plainly a redis-server or valkey-server, or else Tarns with one thread. All in memory, in database 0: twemproxy has no SELECT and speaks to that one only. Every measurement has a proxy and servers of its own, begun anew; those below are the proxies.",
        edition: Edition::Proxies,
        sections: proxies::twemproxy,
    },
];

/// Published scenarios that no chapter covers, and why.
pub const ABSENT: &[(&str, &str)] = &[(
    "Global transactions through dtm",
    "They need the coordinator and two application servers beside the database.",
)];

/// A section before it is run.
pub struct Outline {
    /// Its heading.
    pub title: String,
    /// The conditions.
    pub about: String,
    /// The published table's layout.
    pub layout: Layout,
    /// The workloads, in the order in which they are run.
    pub workloads: Vec<Workload>,
    /// Published figures by the index of their row as it is shown.
    pub figures: Vec<Figure>,
    /// What cannot be compared.
    pub cautions: Vec<String>,
    /// The memory that a server is given, if memory and disk are to be watched.
    pub allowance: Option<Allowance>,
}

/// One workload, for any server.
pub struct Workload {
    /// In a few words.
    pub label: String,
    /// What is asked of the server.
    pub work: Work,
    /// Connections over all threads.
    pub connections: u32,
    /// Threads of the generator.
    pub threads: u32,
    /// Requests in flight on each connection.
    pub pipeline: u32,
    /// How much of it.
    pub amount: Amount,
    /// What the server holds when it begins.
    pub before: Before,
    /// Rows are shown by this number first, then in the order in which they are run.
    pub group: usize,
    /// The cluster that it is run over, if it is not the chapter's servers one by one.
    pub stage: Option<Stage>,
}

/// A cluster that a workload is run over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Its shards.
    pub shards: u16,
    /// Servers of each.
    pub copies: u16,
    /// What is added to a peer's command, each option with a blank before it; if there is something, Tarn takes no part.
    pub peer_options: &'static str,
    /// What happens to it meanwhile.
    pub happening: Option<Happening>,
    /// When, in seconds from the beginning of the measurement.
    pub after_seconds: f64,
    /// The proxies that the load goes through; none: it goes to all nodes.
    pub proxies: u16,
    /// The database that is used through them, where there are several.
    pub database: u32,
}

impl Stage {
    /// So many shards of one copy, to which nothing happens.
    pub const fn quiet(shards: u16) -> Stage {
        Stage {
            shards,
            copies: 1,
            peer_options: "",
            happening: None,
            after_seconds: 0.0,
            proxies: 0,
            database: 0,
        }
    }

    /// The same, the load through so many proxies.
    pub const fn proxied(shards: u16, proxies: u16, database: u32) -> Stage {
        Stage { proxies, database, ..Stage::quiet(shards) }
    }
}

/// What happens to a cluster while it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A master is killed.
    Kill,
    /// Slots go from one shard to another: the first ones, so many.
    Move {
        /// How many.
        slots: u16,
    },
}

/// How much of a workload is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// For the time of a measurement, times a weight.
    Time(f64),
    /// For so many seconds, however long others take.
    Seconds(f64),
    /// So many operations, of which a slow server answers at least so many a second.
    Operations {
        /// How many.
        count: u64,
        /// For the estimate.
        per_second: u64,
    },
}

impl Amount {
    /// Its share of the run's time.
    pub fn weight(self) -> f64 {
        match self {
            Amount::Time(weight) => weight,
            Amount::Seconds(_) | Amount::Operations { .. } => 0.0,
        }
    }
}

/// What a server holds when a workload begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// What the workload before left.
    AsItIs,
    /// Nothing.
    Empty,
    /// These keys and nothing else.
    Filled(Fill),
}

/// Keys of a prefix and a number, all with values of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Before the number.
    pub prefix: &'static str,
    /// Digits to which the number is padded with zeros.
    pub digits: usize,
    /// The first number.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Size of the values.
    pub value_bytes: u64,
}

impl Fill {
    /// The key of a number.
    pub fn key(&self, number: u64) -> String {
        format!("{}{number:0digits$}", self.prefix, digits = self.digits)
    }

    /// The keys that redis-benchmark's tests draw from.
    fn of_kv(count: u64, value_bytes: u64) -> Fill {
        Fill { prefix: "key:", digits: 12, first: 0, count, value_bytes }
    }
}

/// A test of redis-benchmark over random keys; every key is there before the test that fills.
fn kv(test: &str, scale: &Scale, of: Kv, before: Before) -> Workload {
    let name = test.to_uppercase();
    Workload {
        label: name,
        work: Work::Request(
            Template::kv(test, of.value_bytes, Some(of.keys)).expect("the chapters use tests that there are"),
        ),
        connections: of.connections,
        threads: scale.threads(of.connections),
        pipeline: of.pipeline,
        amount: Amount::Time(1.0),
        before,
        group: 0,
        stage: None,
    }
}

/// redis-benchmark's options.
#[derive(Clone, Copy)]
struct Kv {
    connections: u32,
    pipeline: u32,
    keys: u64,
    value_bytes: u64,
}

/// The published figures that a test picks, each beside the row whose index it gives.
fn beside(row: impl Fn(&Published) -> Option<usize>) -> Vec<Figure> {
    let figures = published().iter();
    figures.filter_map(|figure| Some(Figure { row: row(figure)?, published: figure.clone() })).collect()
}
