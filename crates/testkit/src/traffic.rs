//! Traffic of many clients at once: generated streams of data commands and of scripts, waits and what ends them, short times
//! to live of keys and fields, and what concerns whole databases, alone, in transactions and in scripts.
//!
//! Answers are read and not judged: other suites do that. A server that closes a connection or does not answer fails. Clients
//! run each in a thread of its own and share a [`Progress`]. The same seed makes the same requests of each client; how they
//! meet is up to the server.

use crate::client::Client;
use crate::differential::rules;
use crate::generate::{CONNECTIONS, Generator, Request, Step, scripts, words};
use crate::spec::Spec;
use crate::values::{KEYS, pick};
use std::io;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sys::Prng;

/// Of FLUSHALL and FLUSHDB in generated streams, one of so many stays.
const FLUSHES_KEPT: u64 = 40;
/// Requests of one stream.
const STREAM_REQUESTS: usize = 500;
/// Clients that play generated streams.
const STREAMS: usize = 2;
/// Clients that send what `Role::Whole` makes up.
const WHOLES: usize = 2;
/// Clients that wait for keys.
const WAITERS: usize = 2;
/// Groups and consumers of streams.
const GROUPS: &[&str] = &["g", "h"];
const CONSUMERS: &[&str] = &["ann", "bob"];
const STREAM_KEYS: &[&str] = &["s", "t", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"];
const HASHES: &[&str] = &["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "k1"];
const FIELDS: &[&str] = &["a", "b", "c"];
const LISTS: &[&str] = &["l", "m", "k2"];

/// Longest wait for a part of a round.
const ROUND_MAX: Duration = Duration::from_secs(600);

/// What clients send and what they do not.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Commands that are newer than the real servers.
    pub use_newer: bool,
    /// Directives of the server.
    pub set_directives: bool,
    /// BGREWRITEAOF.
    pub begin_checkpoints: bool,
    /// What real servers keep from their followers: what scripts and functions do that ask for it, and how long a BITFIELD makes
    /// a string that then fails.
    pub withhold: bool,
}

/// What one client does.
#[derive(Clone, Copy, Debug)]
enum Role<'a> {
    Stream(&'a [Spec]),
    Scripts(&'a [Spec]),
    Whole,
    Waiter,
}

/// How far a round has come, for all of its clients: counted in what `Role::Whole` has sent, so that it is long enough for
/// what goes on beside it, whatever the others do; or in what a client sends that is alone.
#[derive(Debug)]
pub struct Progress {
    sent: Mutex<usize>,
    grew: Condvar,
    wanted: usize,
}

impl Progress {
    /// Of a round of so many requests.
    pub fn of(wanted: usize) -> Progress {
        Progress { sent: Mutex::new(0), grew: Condvar::new(), wanted }
    }

    /// From 0 to 1, and more when it is over.
    pub fn share(&self) -> f64 {
        *self.sent() as f64 / self.wanted as f64
    }

    /// Waits until it has come so far.
    ///
    /// # Panics
    /// If that takes longer than any round does.
    pub fn wait_for(&self, share: f64) {
        let is_before = |sent: &mut usize| (*sent as f64) < share * self.wanted as f64;
        let waited = self.grew.wait_timeout_while(self.sent(), ROUND_MAX, is_before);
        let is_late = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        assert!(!is_late, "the clients of a round send nothing any more");
    }

    /// Ends the round.
    pub fn end(&self) {
        self.note(self.wanted);
    }

    fn note(&self, requests: usize) {
        *self.sent() += requests;
        self.grew.notify_all();
    }

    fn is_over(&self) -> bool {
        self.share() >= 1.0
    }

    fn sent(&self) -> MutexGuard<'_, usize> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client's part of a round.
#[derive(Debug)]
pub struct Traffic<'a> {
    role: Role<'a>,
    prng: Prng,
    habits: Habits,
    /// Whether the round is measured by what it sends.
    counts: bool,
    /// Whether databases are exchanged in this round. That stamps all slots together: in the other rounds each has its own stamp.
    swaps: bool,
}

/// A client that fails, in whatever way, ends the round for all: nobody waits for what it does not send any more.
struct Failing<'a>(&'a Progress);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

/// Those of `specs` that are generated.
pub fn specs(specs: Vec<Spec>, habits: Habits) -> Vec<Spec> {
    let is_fit = |spec: &Spec| {
        let name = spec.name.split('|').next().unwrap_or_default();
        let is_newer =
            name.starts_with('h') && name != "hello" || ["bexists", "delifeq", "msetex"].contains(&name);
        (habits.set_directives || spec.name != "config|set")
            && (habits.use_newer && is_newer || rules::is_generated(&spec.name))
    };
    specs.into_iter().filter(is_fit).collect()
}

/// The clients of a round.
pub fn roles(specs: &[Spec], habits: Habits, seed: u64) -> Vec<Traffic<'_>> {
    let mut prng = Prng::from_seed(seed);
    let swaps = prng.one_in(2);
    let groups = [
        (Role::Stream(specs), STREAMS),
        (Role::Scripts(specs), 1),
        (Role::Whole, WHOLES),
        (Role::Waiter, WAITERS),
    ];
    let roles = groups.into_iter().flat_map(|(role, count)| std::iter::repeat_n(role, count));
    let of = |role: Role<'_>| matches!(role, Role::Whole);
    roles
        .map(|role| Traffic { counts: of(role), role, prng: Prng::from_seed(prng.next_u64()), habits, swaps })
        .collect()
}

/// The client of a round that has only one, which never waits.
pub fn alone(specs: &[Spec], habits: Habits, seed: u64) -> Traffic<'_> {
    let mut prng = Prng::from_seed(seed);
    let swaps = prng.one_in(2);
    let role = pick(&mut prng, &[Role::Stream(specs), Role::Scripts(specs), Role::Whole]);
    Traffic { role, prng, habits, counts: true, swaps }
}

impl Traffic<'_> {
    /// Sends requests and reads all answers, until the round is over.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn play(&mut self, server: SocketAddr, progress: &Progress) {
        let failing = Failing(progress);
        let played = match self.role {
            Role::Stream(specs) => self.play_streams(server, progress, |seed| {
                Generator::new(specs, seed).stream(STREAM_REQUESTS, rules::is_allowed)
            }),
            Role::Scripts(specs) => {
                self.play_streams(server, progress, |seed| scripts::generate(specs, seed, STREAM_REQUESTS))
            }
            Role::Whole => self.repeat(server, progress, Traffic::whole),
            Role::Waiter => self.repeat(server, progress, Traffic::wait),
        };
        played.expect("the server answers");
        drop(failing);
    }

    /// Plays streams, each over connections of its own, batch by batch.
    fn play_streams(
        &mut self,
        server: SocketAddr,
        progress: &Progress,
        generate: impl Fn(u64) -> Vec<Step>,
    ) -> io::Result<()> {
        while !progress.is_over() {
            let stream = generate(self.prng.next_u64());
            let mut clients = (0..CONNECTIONS)
                .map(|_| Client::connect_loaded(server))
                .collect::<io::Result<Vec<Client>>>()?;
            for batch in stream.chunk_by(|a, b| a.batch == b.batch && a.connection == b.connection) {
                let requests = batch.iter().map(|step| step.request.clone());
                let requests: Vec<Request> = requests.filter(|request| self.is_kept(request)).collect();
                send(&mut clients[batch[0].connection], &requests)?;
                self.note(progress, requests.len());
                if progress.is_over() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether a generated request is sent: what empties or exchanges everything comes too often for anything to grow.
    fn is_kept(&mut self, request: &Request) -> bool {
        if !self.habits.withhold && is_withheld(request) {
            return false;
        }
        let name = request[0].to_ascii_lowercase();
        match name.as_slice() {
            b"swapdb" => self.swaps,
            b"flushall" | b"flushdb" => self.prng.one_in(FLUSHES_KEPT),
            // Full memory is no matter of this, and in the capacity edition everybody waits for some of it to be free.
            b"config" if !self.habits.set_directives => false,
            b"config" => !request.iter().any(|word| word.eq_ignore_ascii_case(b"maxmemory")),
            _ => true,
        }
    }

    fn repeat(
        &mut self,
        server: SocketAddr,
        progress: &Progress,
        make: fn(&mut Self) -> Vec<Request>,
    ) -> io::Result<()> {
        let mut client = Client::connect_loaded(server)?;
        while !progress.is_over() {
            let requests = make(self);
            send(&mut client, &requests)?;
            self.note(progress, requests.len());
        }
        Ok(())
    }

    fn note(&self, progress: &Progress, requests: usize) {
        if self.counts {
            progress.note(requests);
        }
    }

    /// A few requests, alone or as one transaction.
    fn whole(&mut self) -> Vec<Request> {
        let count = 1 + self.prng.below(5);
        let mut requests: Vec<Request> = (0..count).map(|_| self.request()).collect();
        if self.prng.one_in(3) {
            requests.insert(0, words(&["MULTI"]));
            requests.push(words(&["EXEC"]));
        }
        requests
    }

    fn request(&mut self) -> Request {
        match self.prng.below(40) {
            0..8 if self.habits.use_newer => self.about_fields(),
            8..18 => self.about_streams(),
            18..24 => self.about_times(),
            24..29 => self.about_names(),
            29..32 => self.push(),
            32 if self.swaps => words(&["SWAPDB", "0", self.pick(&["1", "2"])]),
            33..36 => words(&["SELECT", self.pick(&["0", "0", "1", "2"])]),
            36 if self.habits.begin_checkpoints => words(&["BGREWRITEAOF"]),
            37 => self.script(),
            38 => self.functions(),
            _ => words(&[self.pick(&["OBJECT", "MEMORY"]), "HELP"]),
        }
    }

    fn pick(&mut self, of: &[&'static str]) -> &'static str {
        pick(&mut self.prng, of)
    }

    fn number(&mut self, below: u64) -> String {
        self.prng.below(below).to_string()
    }

    /// Hashes whose fields expire soon.
    fn about_fields(&mut self) -> Request {
        let (hash, field, other) = (self.pick(HASHES), self.pick(FIELDS), self.pick(FIELDS));
        let (soon, text) = (self.number(30), self.number(100));
        match self.prng.below(12) {
            0..3 => words(&["HSET", hash, field, &text, other, &text]),
            3..6 => words(&["HPEXPIRE", hash, &soon, "FIELDS", "1", field]),
            6 => words(&[
                "HSETEX",
                hash,
                "PX",
                &(1 + self.prng.below(30)).to_string(),
                "FIELDS",
                "1",
                field,
                &text,
            ]),
            7 => words(&["HDEL", hash, field]),
            8 => words(&["HGETEX", hash, "PX", &(1 + self.prng.below(30)).to_string(), "FIELDS", "1", field]),
            9 => words(&["HINCRBY", hash, field, "1"]),
            10 => words(&["SETNX", hash, &text]),
            _ => words(&["HPERSIST", hash, "FIELDS", "1", field]),
        }
    }

    fn about_streams(&mut self) -> Request {
        let (stream, group, consumer) = (self.pick(STREAM_KEYS), self.pick(GROUPS), self.pick(CONSUMERS));
        let text = self.number(1000);
        match self.prng.below(24) {
            0..6 => words(&["XADD", stream, "*", "f", &text]),
            6..9 => words(&["XREADGROUP", "GROUP", group, consumer, "COUNT", "2", "STREAMS", stream, ">"]),
            9 => words(&["XREADGROUP", "GROUP", group, consumer, "NOACK", "STREAMS", stream, ">"]),
            10 => words(&["XREADGROUP", "GROUP", group, consumer, "STREAMS", "s", "t", ">", ">"]),
            11..14 => words(&["XGROUP", "CREATE", stream, group, self.pick(&["0", "$"]), "MKSTREAM"]),
            14 => words(&["XGROUP", "DESTROY", stream, group]),
            15 => words(&["XGROUP", "SETID", stream, group, "0"]),
            16 => words(&["XGROUP", "DELCONSUMER", stream, group, consumer]),
            17 => words(&["XAUTOCLAIM", stream, group, consumer, "0", "0"]),
            18 => words(&["XTRIM", stream, "MAXLEN", &self.number(20)]),
            19 => words(&["XADD", stream, "MAXLEN", "~", "10", "*", "f", &text]),
            20 => words(&["XCLAIM", stream, group, consumer, "0", "0-1", "FORCE", "JUSTID"]),
            21 => words(&["DEL", stream]),
            22 => words(&["XGROUP", "CREATECONSUMER", stream, group, consumer]),
            _ => words(&["COPY", stream, self.pick(STREAM_KEYS), "REPLACE"]),
        }
    }

    /// Keys that expire soon, and what looks at them then.
    fn about_times(&mut self) -> Request {
        let key = String::from_utf8_lossy(pick(&mut self.prng, &KEYS[..4])).into_owned();
        let (soon, text) = ((1 + self.prng.below(30)).to_string(), self.number(100));
        match self.prng.below(13) {
            0..3 => words(&["PEXPIRE", &key, &soon]),
            3 | 4 => words(&["SET", &key, &text, "PX", &soon]),
            5 => words(&["SETNX", &key, &text]),
            6 => words(&["GETEX", &key, "PX", &soon]),
            7 => words(&["APPEND", &key, &text]),
            8 => words(&["DEBUG", "OBJECT", &key]),
            9 => words(&["RESTORE", &key, &soon, "\u{0}\u{1}"]),
            10 => words(&["EXISTS", &key, &key]),
            11 => words(&["PERSIST", &key]),
            _ => words(&["INCR", &key]),
        }
    }

    /// What moves values between names and databases.
    fn about_names(&mut self) -> Request {
        const ANY: &[&str] = &["k1", "k2", "k3", "h1", "h2", "s", "t", "l", "m"];
        let (from, to) = (self.pick(ANY), self.pick(ANY));
        match self.prng.below(8) {
            0..3 => words(&["RENAME", from, to]),
            3 => words(&["RENAMENX", from, to]),
            4 => words(&["COPY", from, to, "REPLACE"]),
            5 => words(&["COPY", from, to, "DB", self.pick(&["1", "2"]), "REPLACE"]),
            6 => words(&["MOVE", from, self.pick(&["1", "2"])]),
            _ => words(&["UNLINK", from, to]),
        }
    }

    /// What ends waits.
    fn push(&mut self) -> Request {
        let (list, text) = (self.pick(LISTS), self.number(100));
        match self.prng.below(5) {
            0..3 => words(&["RPUSH", list, &text, &text]),
            3 => words(&["ZADD", "z", "1", &text]),
            _ => words(&["LMPOP", "2", list, self.pick(LISTS), "LEFT", "COUNT", "2"]),
        }
    }

    /// A script that does some of all that, in databases that it selects.
    fn script(&mut self) -> Request {
        const TEXT: &str = "redis.pcall('SELECT', ARGV[1]) redis.pcall('XREADGROUP', 'GROUP', 'g', 'ann', 'STREAMS', 's', '>') \
             if ARGV[3] == '1' then redis.pcall('SWAPDB', 0, ARGV[2]) end \
             if ARGV[4] == '1' then redis.pcall('HPEXPIRE', 'h1', 5, 'FIELDS', 1, 'a') end redis.pcall('RENAME', 'k1', 'k3') redis.pcall('INCR', 'k4') return redis.pcall('SPOP', 'k2')";
        let (one, other) = (self.pick(&["0", "1"]), self.pick(&["1", "2"]));
        let flag = |is_set| if is_set { "1" } else { "0" };
        words(&["EVAL", TEXT, "0", one, other, flag(self.swaps), flag(self.habits.use_newer)])
    }

    fn functions(&mut self) -> Request {
        let name = self.pick(&["own1", "own2"]);
        let code = format!(
            "#!lua name={name}\nredis.register_function('{name}', function() return {} end)",
            self.number(9)
        );
        match self.prng.below(4) {
            0 => words(&["FUNCTION", "DELETE", name]),
            _ => words(&["FUNCTION", "LOAD", "REPLACE", &code]),
        }
    }

    /// A wait that ends soon.
    fn wait(&mut self) -> Vec<Request> {
        let (one, other) = (self.pick(LISTS), self.pick(LISTS));
        let (group, consumer) = (self.pick(GROUPS), self.pick(CONSUMERS));
        let request = match self.prng.below(7) {
            0 => words(&["BLPOP", one, other, "0.02"]),
            1 => words(&["BLMOVE", one, other, "LEFT", "RIGHT", "0.02"]),
            2 => words(&["BLMPOP", "0.02", "2", one, other, "RIGHT", "COUNT", "2"]),
            3 => words(&["BZPOPMIN", "z", "0.02"]),
            4 => words(&["BRPOPLPUSH", one, other, "0.02"]),
            5 => {
                words(&["XREADGROUP", "GROUP", group, consumer, "BLOCK", "20", "STREAMS", "s", "t", ">", ">"])
            }
            _ => words(&["XREADGROUP", "GROUP", group, consumer, "BLOCK", "20", "STREAMS", "s", ">"]),
        };
        vec![request]
    }
}

/// Whether something of this may be kept from followers by a real server.
fn is_withheld(request: &Request) -> bool {
    let has = |part: &[u8]| {
        request.iter().any(|word| word.windows(part.len()).any(|found| found.eq_ignore_ascii_case(part)))
    };
    has(b"set_repl") || has(b"bitfield") && has(b"fail")
}

/// Sends requests in one write and reads an answer to each; messages out of band answer none.
fn send(client: &mut Client, requests: &[Request]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for request in requests {
        let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        wire::encode_request(&mut bytes, &words);
    }
    client.send(&bytes)?;
    for request in requests {
        let told = |error: io::Error| {
            let request: Vec<String> = request.iter().map(|word| word.escape_ascii().to_string()).collect();
            io::Error::new(error.kind(), format!("{error}: {}", request.join(" ")))
        };
        while client.read_reply().map_err(told)?.starts_with(b">") {}
    }
    Ok(())
}
