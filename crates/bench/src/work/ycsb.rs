//! YCSB's workloads as requests, in the way of YCSB's own binding for Redis.
//!
//! A record is a string (one field) or a hash (more). What scans need is one sorted set, `_indices`, with the keys
//! ordered by their Java hash code. Differences from the binding, which waits for each single reply: an insert
//! sends the record and its entry in the index together, and a scan asks for all of its records together.
//!
//! Invariants:
//! 1. The kinds of operations, the records that are drawn and the values depend on the seed alone. Which of the
//!    newest records are drawn depends on which inserts have been answered, as in YCSB.
//! 2. No operation asks for a record whose insert has not been answered.

use super::{Distribution, Feed, Hotspot, Issued, Mix, ScrambledZipf, Share, Then, Ycsb, Zipf, fnv_hash};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::Prng;
use wire::encode::{encode_arg, encode_request_header};
use wire::{Decoder, Value};

/// Kinds of operations, by their index.
pub const KINDS: [&str; 5] = ["read", "update", "insert", "scan", "read-modify-write"];
const READ: u8 = 0;
const UPDATE: u8 = 1;
const INSERT: u8 = 2;
const SCAN: u8 = 3;
const READ_MODIFY_WRITE: u8 = 4;

/// The sorted set of all keys.
const INDEX_KEY: &[u8] = b"_indices";
/// Random bytes from which values are cut.
const NOISE_BYTES: u64 = 64 * 1024;

impl Ycsb {
    /// A workload by its usual name: `a` to `f`, and those of the published reports: `uniform-read`,
    /// `zipfian-read` and `uniform-50-50`. With YCSB's defaults: 10 fields of 100 bytes, hashed keys.
    pub fn named(name: &str, records: u64) -> Option<Ycsb> {
        let mix = |read, update, insert, scan, read_modify_write| Mix {
            read,
            update,
            insert,
            scan,
            read_modify_write,
        };
        let (mix, distribution) = match name {
            "a" => (mix(0.5, 0.5, 0.0, 0.0, 0.0), Distribution::Zipfian),
            "b" => (mix(0.95, 0.05, 0.0, 0.0, 0.0), Distribution::Zipfian),
            "c" => (mix(1.0, 0.0, 0.0, 0.0, 0.0), Distribution::Zipfian),
            "d" => (mix(0.95, 0.0, 0.05, 0.0, 0.0), Distribution::Latest),
            "e" => (mix(0.0, 0.0, 0.05, 0.95, 0.0), Distribution::Zipfian),
            "f" => (mix(0.5, 0.0, 0.0, 0.0, 0.5), Distribution::Zipfian),
            "uniform-read" => (mix(1.0, 0.0, 0.0, 0.0, 0.0), Distribution::Uniform),
            "zipfian-read" => (mix(1.0, 0.0, 0.0, 0.0, 0.0), Distribution::Zipfian),
            "uniform-50-50" => (mix(0.5, 0.5, 0.0, 0.0, 0.0), Distribution::Uniform),
            _ => return None,
        };
        let mut workload = Ycsb {
            name: String::new(),
            mix,
            distribution,
            records,
            fields: 10,
            field_bytes: 100,
            scan_max: 100,
            is_ordered: false,
            key_digits: 1,
            is_indexed: name == "e",
        };
        workload.relabel(name);
        Some(workload)
    }

    /// Gives it the label that belongs to a usual name and its present distribution: `ycsb-a zipfian`.
    pub fn relabel(&mut self, name: &str) {
        self.name = match name.len() {
            1 => format!("ycsb-{name} {}", self.distribution.name()),
            _ if name.starts_with(self.distribution.name()) => name.to_owned(),
            _ => format!("{name} {}", self.distribution.name()),
        };
    }

    /// The usual name that its label begins with.
    pub fn short_name(&self) -> &str {
        let first = self.name.split(' ').next().unwrap_or("");
        first.strip_prefix("ycsb-").unwrap_or(first)
    }
}

impl Distribution {
    /// Its name in labels and options.
    pub fn name(&self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
            Distribution::Hotspot { .. } => "hotspot",
        }
    }
}

/// Writes keys and records.
struct Records {
    workload: Ycsb,
    fields: Vec<Vec<u8>>,
    /// Printable random bytes; values begin somewhere in them.
    noise: Vec<u8>,
    key: Vec<u8>,
}

impl Records {
    fn new(workload: &Ycsb, prng: &mut Prng) -> Records {
        let fields = (0..workload.fields).map(|field| format!("field{field}").into_bytes()).collect();
        let printable = |prng: &mut Prng| b' ' + prng.below(95) as u8;
        let noise = (0..NOISE_BYTES + workload.field_bytes).map(|_| printable(prng)).collect();
        Records { workload: workload.clone(), fields, noise, key: Vec::new() }
    }

    /// Makes `self.key` the key of a record.
    fn name(&mut self, record: u64) {
        let number = if self.workload.is_ordered { record } else { fnv_hash(record) };
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number);
        self.key.clear();
        self.key.extend_from_slice(b"user");
        let zeros = (self.workload.key_digits as usize).saturating_sub(digits.len());
        self.key.resize(self.key.len() + zeros, b'0');
        self.key.extend_from_slice(digits.as_bytes());
    }

    fn value(&self, prng: &mut Prng) -> &[u8] {
        let begin = prng.below(NOISE_BYTES) as usize;
        &self.noise[begin..begin + self.workload.field_bytes as usize]
    }

    fn write_read(&mut self, record: u64, out: &mut Vec<u8>) {
        self.name(record);
        write_read(self.fields.len(), &self.key, out);
    }

    /// One field anew, or the string.
    fn write_update(&mut self, record: u64, prng: &mut Prng, out: &mut Vec<u8>) {
        self.name(record);
        if let [_] = self.fields[..] {
            self.write_string(prng, out);
        } else {
            let field = prng.below(self.fields.len() as u64) as usize;
            encode_request_header(out, 4);
            encode_arg(out, b"HMSET");
            encode_arg(out, &self.key);
            encode_arg(out, &self.fields[field]);
            encode_arg(out, self.value(prng));
        }
    }

    /// The whole record, and its entry in the index if there is one. Returns how many requests that was.
    fn write_insert(&mut self, record: u64, prng: &mut Prng, out: &mut Vec<u8>) -> u32 {
        self.name(record);
        if let [_] = self.fields[..] {
            self.write_string(prng, out);
        } else {
            encode_request_header(out, 2 + 2 * self.fields.len());
            encode_arg(out, b"HMSET");
            encode_arg(out, &self.key);
            for field in &self.fields {
                encode_arg(out, field);
                encode_arg(out, self.value(prng));
            }
        }
        if !self.workload.is_indexed {
            return 1;
        }
        encode_request_header(out, 4);
        encode_arg(out, b"ZADD");
        encode_arg(out, INDEX_KEY);
        encode_arg(out, itoa::Buffer::new().format(java_hash(&self.key)).as_bytes());
        encode_arg(out, &self.key);
        2
    }

    fn write_string(&self, prng: &mut Prng, out: &mut Vec<u8>) {
        encode_request_header(out, 3);
        encode_arg(out, b"SET");
        encode_arg(out, &self.key);
        encode_arg(out, self.value(prng));
    }

    /// Asks the index for keys.
    fn write_scan(&mut self, record: u64, length: u64, out: &mut Vec<u8>) {
        self.name(record);
        encode_request_header(out, 7);
        encode_arg(out, b"ZRANGEBYSCORE");
        encode_arg(out, INDEX_KEY);
        encode_arg(out, itoa::Buffer::new().format(java_hash(&self.key)).as_bytes());
        encode_arg(out, b"+inf");
        encode_arg(out, b"LIMIT");
        encode_arg(out, b"0");
        encode_arg(out, itoa::Buffer::new().format(length).as_bytes());
    }
}

fn write_read(fields: usize, key: &[u8], out: &mut Vec<u8>) {
    encode_request_header(out, 2);
    encode_arg(out, if fields == 1 { b"GET" } else { b"HGETALL" });
    encode_arg(out, key);
}

/// `String.hashCode` of Java for ASCII text.
fn java_hash(text: &[u8]) -> i32 {
    text.iter().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(*byte)))
}

/// The feed of the load: this thread's records, each once.
pub struct Load {
    records: Records,
    next: u64,
    step: u64,
    prng: Prng,
}

impl Load {
    pub fn new(workload: &Ycsb, share: &Share, mut prng: Prng) -> Load {
        let records = Records::new(workload, &mut prng);
        Load { records, next: u64::from(share.thread), step: u64::from(share.threads), prng }
    }
}

impl Feed for Load {
    fn issue(&mut self, _connection: usize, out: &mut Vec<u8>) -> Issued {
        let replies = self.records.write_insert(self.next, &mut self.prng, out);
        self.next += self.step;
        Issued { replies, ..Issued::single(INSERT) }
    }
}

/// How many inserts of each thread have been answered without a gap.
#[derive(Clone)]
pub struct Inserted(Arc<Vec<AtomicU64>>);

impl Inserted {
    pub fn new(threads: usize) -> Inserted {
        Inserted(Arc::new((0..threads).map(|_| AtomicU64::new(0)).collect()))
    }

    /// How many records there are for certain beyond those that were loaded. Insert `k` of thread `t` is record
    /// `k * threads + t`.
    fn records(&self) -> u64 {
        let least = self.0.iter().map(|answered| answered.load(Ordering::Relaxed)).min().unwrap_or(0);
        least * self.0.len() as u64
    }
}

/// Which records are chosen.
enum Chooser {
    Uniform(u64),
    Zipfian(Box<ScrambledZipf>),
    Latest(Box<Zipf>),
    Hotspot(Hotspot),
}

impl Chooser {
    fn new(workload: &Ycsb, share: &Share) -> Chooser {
        match workload.distribution {
            Distribution::Uniform => Chooser::Uniform(workload.records),
            Distribution::Zipfian => {
                // Room for records to come, so that popular ones stay popular: YCSB takes twice as many as are
                // expected, and one more. A run by time is supposed to make as many operations as there are records.
                let operations = share.operations_total.unwrap_or(workload.records);
                let expected = (operations as f64 * workload.mix.insert * 2.0) as u64;
                Chooser::Zipfian(Box::new(ScrambledZipf::new(workload.records + expected + 1)))
            }
            Distribution::Latest => Chooser::Latest(Box::new(Zipf::new(workload.records))),
            Distribution::Hotspot { data, operations } => {
                Chooser::Hotspot(Hotspot::new(workload.records, data, operations))
            }
        }
    }

    /// A record below `records`, of which there are as many as are known now.
    fn choose(&mut self, records: u64, prng: &mut Prng) -> u64 {
        loop {
            let record = match self {
                Chooser::Uniform(records) => prng.below(*records),
                Chooser::Zipfian(zipf) => zipf.next(prng),
                Chooser::Latest(zipf) => {
                    zipf.grow(records);
                    records - 1 - zipf.next(prng).min(records - 1)
                }
                Chooser::Hotspot(hotspot) => hotspot.next(prng),
            };
            if record < records {
                return record;
            }
        }
    }
}

/// The feed of the workloads proper.
pub struct Transactions {
    records: Records,
    chooser: Chooser,
    /// Adds up the shares of the kinds, in their order.
    borders: [f64; KINDS.len()],
    thread: u64,
    inserts: Inserted,
    /// This thread's inserts that were issued.
    issued: u64,
    /// Of the inserts from the first that has not been answered on, whether each has been.
    open: VecDeque<bool>,
    prng: Prng,
}

impl Transactions {
    pub fn new(workload: &Ycsb, share: &Share, inserts: Inserted, mut prng: Prng) -> Transactions {
        let records = Records::new(workload, &mut prng);
        let mix = workload.mix;
        let mut sum = 0.0;
        let borders = [mix.read, mix.update, mix.insert, mix.scan, mix.read_modify_write].map(|part| {
            sum += part;
            sum
        });
        Transactions {
            records,
            chooser: Chooser::new(workload, share),
            borders,
            thread: u64::from(share.thread),
            inserts,
            issued: 0,
            open: VecDeque::new(),
            prng,
        }
    }

    fn choose_kind(&mut self) -> u8 {
        let unit = self.prng.unit() * self.borders[KINDS.len() - 1];
        let kind = self.borders.iter().position(|border| unit < *border);
        kind.map_or(READ, |kind| kind as u8)
    }

    fn choose_record(&mut self) -> u64 {
        let records = self.records.workload.records + self.inserts.records();
        self.chooser.choose(records, &mut self.prng)
    }

    fn insert(&mut self, out: &mut Vec<u8>) -> Issued {
        let number = self.issued;
        self.issued += 1;
        self.open.push_back(false);
        let threads = self.inserts.0.len() as u64;
        let record = self.records.workload.records + number * threads + self.thread;
        let replies = self.records.write_insert(record, &mut self.prng, out);
        Issued { replies, then: Then::Inserted(number), ..Issued::single(INSERT) }
    }

    /// Insert `number` of this thread has been answered. As in YCSB, its record counts as being there even if
    /// the answer was an error.
    fn acknowledge(&mut self, number: u64) {
        let first_open = self.issued - self.open.len() as u64;
        self.open[(number - first_open) as usize] = true;
        while let Some(true) = self.open.front() {
            self.open.pop_front();
        }
        let answered = self.issued - self.open.len() as u64;
        self.inserts.0[self.thread as usize].store(answered, Ordering::Relaxed);
    }

    /// Asks for the records whose keys the index has returned.
    fn read_all(&mut self, reply: &[u8], out: &mut Vec<u8>) -> Option<Issued> {
        let mut decoder = Decoder::new();
        decoder.feed(reply);
        let Ok(Some(Value::Array(keys))) = decoder.decode() else { return None };
        let mut replies = 0;
        for key in &keys {
            if let Value::Bulk(key) = key {
                write_read(self.records.fields.len(), key, out);
                replies += 1;
            }
        }
        (replies > 0).then(|| Issued { replies, must_exist: true, ..Issued::single(SCAN) })
    }
}

impl Feed for Transactions {
    fn issue(&mut self, _connection: usize, out: &mut Vec<u8>) -> Issued {
        let kind = self.choose_kind();
        if kind == INSERT {
            return self.insert(out);
        }
        let record = self.choose_record();
        match kind {
            UPDATE => {
                self.records.write_update(record, &mut self.prng, out);
                Issued::single(UPDATE)
            }
            SCAN => {
                let length = 1 + self.prng.below(self.records.workload.scan_max.max(1));
                self.records.write_scan(record, length, out);
                Issued { then: Then::ReadAll, must_exist: true, ..Issued::single(SCAN) }
            }
            kind => {
                self.records.write_read(record, out);
                let then = if kind == READ { Then::Nothing } else { Then::Update(record) };
                Issued { then, must_exist: true, ..Issued::single(kind) }
            }
        }
    }

    fn follow(&mut self, then: Then, reply: &[u8], out: &mut Vec<u8>) -> Option<Issued> {
        match then {
            Then::Nothing => None,
            Then::Inserted(number) => {
                self.acknowledge(number);
                None
            }
            Then::Update(record) => {
                self.records.write_update(record, &mut self.prng, out);
                Some(Issued::single(READ_MODIFY_WRITE))
            }
            Then::ReadAll => self.read_all(reply, out),
        }
    }
}

#[cfg(test)]
mod tests;
