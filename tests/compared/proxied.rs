//! The same generated commands to one server and through a proxy to three: every reply must be the same but where the proxy says that it does not
//! serve a request, which then the one server never hears of; and at the end every key.
//!
//! Behind the proxy are servers that have the slots in turn, or a cluster whose slots go to and fro, of which nothing is to be seen, or one whose masters are killed. Then
//! some requests have an error that says so, and both begin anew with nothing.

use super::moving::Moving;
use super::parts::{self, Parts};
use super::routed::{self, Routed};
use super::{Checked, SHARDS, SHOWN, whole};
use crate::clusters::cluster::wait_until;
use crate::proxies::Proxied;
use crate::{specs, tarn, tarn_path};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use sys::Prng;
use testkit::differential::judge::{Queue, Verdict, judge};
use testkit::differential::{Twist, show};
use testkit::generate::{Generator, Request, words};
use testkit::{Budget, Program, Server, Spec};
use topology::{ServerId, ShardId, Topology};
use wire::key_slot;

/// Requests between one emptying of everything and the next.
const ROUND_STEPS: u64 = 2_000;
/// Requests of an ordinary run.
const STEPS: u64 = 12_000;
/// Most requests in one write.
const PIPELINE_MAX: u64 = 12;
/// Databases at work.
const DATABASES: u64 = 3;
/// Commands that are not generated, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("spop", "takes what it likes"),
    ("scan", "lists one server after the other: looked at by a step of its own"),
];

/// Commands that are served whichever keys they have.
const ALWAYS: &[&str] = &[
    "dbsize",
    "del",
    "exists",
    "get",
    "keys",
    "lcs",
    "mget",
    "mset",
    "pfcount",
    "sdiff",
    "sinter",
    "sintercard",
    "sunion",
    "touch",
    "unlink",
    "zdiff",
    "zinter",
    "zintercard",
    "zunion",
];

/// Commands that go over all keys: a moment of a cluster whose slots move is no other's.
const OF_ALL: &[&str] = &["keys", "dbsize", "randomkey", "flushdb"];
/// How a reply begins to a request whose server has failed, which may have been done.
const LOST: &[&str] =
    &["-UNANSWERED ", "-ERR proxy: no connection", "-CLUSTERDOWN ", "-LOADING ", "-MASTERDOWN "];
/// One in so many steps, slots are sent elsewhere, or a master fails.
const DISTURBED: u64 = 25;

/// What servers are.
const DIRECTIVES: &[&str] = &["--edition", "memory", "--enable-debug-command", "yes"];
/// What those are that fail: of the other edition a crash may take something back.
const DURABLE: &[&str] = &["--edition", "durable", "--enable-debug-command", "yes"];

/// What the proxy stands in front of.
enum Behind {
    /// Servers that have the slots in turn.
    Shards(Vec<Server>),
    /// A cluster whose slots go to and fro.
    Moving(Moving),
    /// One whose masters fail, and which of its servers is down.
    Failing(Moving, Option<ServerId>),
}

/// The proxy, what is behind it, and the server beside it.
struct Pair {
    proxy: Server,
    behind: Behind,
    tags: Vec<String>,
    alone: Server,
    twist: Option<Twist>,
    requests: u64,
    /// Which commands the proxy did not serve, in whatever form.
    refused: BTreeSet<String>,
    /// How often something was lost, and how many masters have failed.
    lost: u64,
    failed: u64,
}

impl Behind {
    /// Waits until nothing moves, and all are there.
    fn settle(&mut self) -> Checked {
        match self {
            Behind::Shards(_) => {}
            Behind::Moving(moving) => drop(moving.settle()?),
            Behind::Failing(moving, down) => {
                if let Some(id) = down.take() {
                    moving.cluster.restart(id);
                }
                moving.cluster.wait_until_whole();
            }
        }
        Ok(())
    }

    /// Who has which slots, where servers do not have them in turn.
    fn topology(&self) -> Option<Topology> {
        match self {
            Behind::Shards(_) => None,
            Behind::Moving(moving) | Behind::Failing(moving, _) => Some(moving.topology()),
        }
    }

    /// Who has a slot, when it is settled.
    fn owner(&self, topology: Option<&Topology>, slot: u16) -> SocketAddr {
        match (self, topology) {
            (Behind::Moving(moving) | Behind::Failing(moving, _), Some(topology)) => {
                moving.owner(topology, slot)
            }
            (Behind::Shards(shards), _) => shards[usize::from(slot) * shards.len() / wire::SLOTS].address(),
            _ => panic!("a cluster has a topology"),
        }
    }

    /// Whether requests may be lost.
    fn fails(&self) -> bool {
        matches!(self, Behind::Failing(..))
    }
}

/// One round, from empty databases to the comparison of all.
struct Round<'p> {
    pair: &'p mut Pair,
    prng: Prng,
    generator: Generator<'p>,
    parts: &'p Parts,
    many: Routed,
    one: testkit::Client,
    last: Vec<String>,
}

impl Pair {
    fn begin(directives: &[&str]) -> Pair {
        let Proxied { shards, proxy } = Proxied::of((&tarn(), DIRECTIVES), usize::from(SHARDS), directives);
        Pair::of(proxy, Behind::Shards(shards), (0..6).map(|number| format!("t{number}")).collect())
    }

    fn of(proxy: Server, behind: Behind, tags: Vec<String>) -> Pair {
        let alone = Server::start(tarn(), DIRECTIVES).expect("it starts");
        let (twist, refused) = (None, BTreeSet::new());
        Pair { proxy, behind, tags, alone, twist, requests: 0, refused, lost: 0, failed: 0 }
    }

    fn before(moving: Moving, behind: impl FnOnce(Moving) -> Behind) -> Pair {
        let servers = moving.topology().servers;
        let seeds: Vec<String> = servers.keys().map(|id| moving.cluster.place_of(*id)).collect();
        let words = ["--proxy-cluster", &seeds.join(","), "--proxy-shard-timeout", "2"];
        let proxy = Server::start(Program::Proxy(tarn_path()), &words).expect("it starts");
        let tags = moving.tags.clone();
        Pair::of(proxy, behind(moving), tags)
    }

    /// Plays rounds until one finds something, or the budget is spent.
    fn run(&mut self, budget: Budget) -> Checked {
        let stands_still = matches!(self.behind, Behind::Shards(_));
        let is_played = |spec: &Spec| {
            let is_left_out = LEFT_OUT.iter().any(|(name, _)| *name == spec.name);
            !is_left_out && (parts::is_played(spec) || OF_ALL.contains(&&*spec.name) && stands_still)
        };
        let (specs, parts): (Vec<Spec>, _) = (specs().into_iter().filter(is_played).collect(), Parts::new());
        for seed in budget.seed.. {
            if !budget.allows(self.requests) {
                break;
            }
            let many = Routed::new(&[self.proxy.address()], self.twist);
            let one = self.alone.connect().expect("it serves");
            let generator = Generator::new(&specs, seed);
            let prng = Prng::from_seed(!seed);
            let last = Vec::new();
            Round { pair: self, prng, generator, parts: &parts, many, one, last }.play_and_tell(seed)?;
        }
        Ok(())
    }
}

impl Round<'_> {
    fn play_and_tell(mut self, seed: u64) -> Checked {
        let played = self.play();
        let last = &self.last[self.last.len().saturating_sub(SHOWN)..];
        let again = format!("to see it again: TARN_SEED={seed} TARN_STEPS=1");
        played.map_err(|wrong| format!("{wrong}\nbehind\n{}\n{again}", last.join("\n")))
    }

    fn play(&mut self) -> Checked {
        self.pair.behind.settle()?;
        self.begin_anew()?;
        let until = self.pair.requests + ROUND_STEPS;
        while self.pair.requests < until {
            if !matches!(self.pair.behind, Behind::Shards(_)) && self.prng.one_in(DISTURBED) {
                self.disturb()?;
            }
            match self.prng.below(100) {
                0..70 => {
                    let count = 1 + self.prng.below(PIPELINE_MAX);
                    let requests: Vec<Request> = (0..count).map(|_| self.request()).collect();
                    self.ask(&requests)?;
                }
                70..90 => self.transaction()?,
                90..96 => self.script()?,
                _ => self.state()?,
            }
        }
        self.ask(&[words(&["HELLO", "2"])])?;
        self.compare()
    }

    /// Slots begin to go elsewhere; or a master fails, or is there again.
    fn disturb(&mut self) -> Checked {
        let done = match &mut self.pair.behind {
            Behind::Shards(_) => return Ok(()),
            Behind::Moving(moving) => moving.begin_move(&mut self.prng)?,
            Behind::Failing(moving, down @ None) => {
                // Only who is whole loses nothing.
                moving.cluster.wait_until_whole();
                let shard = ShardId(self.prng.below(u64::from(SHARDS)) as u16);
                let master = moving.topology().master_of(shard).ok_or("it has no master")?.id;
                moving.cluster.kill(master);
                *down = Some(master);
                self.pair.failed += 1;
                format!("the master of {shard} is killed")
            }
            Behind::Failing(moving, down) => {
                let id = down.take().ok_or("nobody is down")?;
                moving.cluster.restart(id);
                format!("{id} is started again")
            }
        };
        self.last.push(done);
        Ok(())
    }

    /// Nothing is left at either.
    fn begin_anew(&mut self) -> Checked {
        let all = words(&["FLUSHALL"]);
        let mut said = Vec::new();
        wait_until("the proxy has all deleted", || {
            said = self.many.pipeline("", std::slice::from_ref(&all)).unwrap_or_default();
            !self.pair.behind.fails() || said == [b"+OK\r\n"]
        });
        match said == [b"+OK\r\n"] && routed::pipeline(&mut self.one, &[&all])? == [b"+OK\r\n"] {
            true => Ok(()),
            false => Err(format!("FLUSHALL: {said:?}")),
        }
    }

    fn tag(&mut self) -> String {
        self.pair.tags[self.prng.below(self.pair.tags.len() as u64) as usize].clone()
    }

    /// A request whose keys have one tag, or now and then each its own.
    fn request(&mut self) -> Request {
        let tags: Vec<String> = (0..6).map(|_| self.tag()).collect();
        let are_several = self.prng.one_in(4);
        loop {
            let request = self.generator.request();
            if parts::is_sent(&request) {
                return self
                    .parts
                    .tag(request, |at| tags[if are_several { at % tags.len() } else { 0 }].clone());
            }
        }
    }

    /// Asks both, and the one server only what the proxy serves.
    fn ask(&mut self, requests: &[Request]) -> Checked {
        self.ask_for(requests, requests)
    }

    /// The same of requests whose replies are those to others.
    fn ask_for(&mut self, requests: &[Request], inner: &[Request]) -> Checked {
        self.pair.requests += requests.len() as u64;
        self.last.extend(requests.iter().map(|request| show(request)));
        let many = self.many.pipeline("", requests)?;
        if self.pair.behind.fails() && many.iter().any(|reply| is_lost(reply)) {
            self.pair.lost += 1;
            self.last.push("something is lost".to_owned());
            return self.begin_anew();
        }
        let is_served: Vec<bool> = many.iter().map(|reply| !is_refusal(reply)).collect();
        let sent: Vec<&Request> = requests
            .iter()
            .zip(&is_served)
            .filter(|(_, served)| **served)
            .map(|(request, _)| request)
            .collect();
        let mut one = routed::pipeline(&mut self.one, &sent)?.into_iter();
        let mut queue = Queue::default();
        let sent_as = requests.iter().map(|request| &request[0]);
        for (((request, many), is_served), sent_as) in inner.iter().zip(many).zip(is_served).zip(sent_as) {
            if !is_served {
                if ALWAYS.iter().any(|always| sent_as.eq_ignore_ascii_case(always.as_bytes())) {
                    return Err(format!("{}\nis refused: {}", show(request), many.escape_ascii()));
                }
                let name = request[0].to_ascii_lowercase();
                self.pair.refused.insert(String::from_utf8_lossy(&name).into_owned());
                continue;
            }
            let answers = [Some(many), one.next()];
            let is_same = judge(request, &answers, &mut queue) == Verdict::Same
                || parts::is_excused(request, &answers)
                || self.is_any_key(request, &answers);
            if !is_same {
                let shown = |answer: &Option<Vec<u8>>| {
                    answer.as_deref().unwrap_or_default().escape_ascii().to_string()
                };
                let [many, one] = &answers;
                return Err(format!(
                    "{}\nthe proxy: {}\none server: {}",
                    show(request),
                    shown(many),
                    shown(one)
                ));
            }
        }
        Ok(())
    }

    /// RANDOMKEY says what it likes, as long as there are keys, or none, at both.
    fn is_any_key(&self, request: &Request, answers: &[Option<Vec<u8>>; 2]) -> bool {
        let is_null = |answer: &Option<Vec<u8>>| {
            answer.as_ref().is_some_and(|reply| reply.starts_with(b"$-1") || reply.starts_with(b"_"))
        };
        request[0].eq_ignore_ascii_case(b"randomkey")
            && request.len() == 1
            && is_null(&answers[0]) == is_null(&answers[1])
    }

    /// What the proxy does not queue dooms the transaction, of which the one server then hears nothing.
    fn transaction(&mut self) -> Checked {
        let tag = self.tag();
        let mut requests = vec![words(&["MULTI"])];
        for _ in 0..self.prng.below(6) {
            let request = loop {
                let request = self.generator.request();
                let is_of_keys = !self.parts.keys(&request).is_empty();
                let is_sent = parts::is_sent(&request) && !parts::may_be_excused(&request);
                if is_of_keys && is_sent && !is_of_its_moment(&request) {
                    break self.parts.tag(request, |_| tag.clone());
                }
            };
            let name = String::from_utf8_lossy(&request[0]).to_ascii_lowercase();
            if !self.pair.refused.contains(&name) {
                requests.push(request);
            }
        }
        requests.push(words(&[if self.prng.one_in(10) { "DISCARD" } else { "EXEC" }]));
        // One that is refused for the first time is found out before.
        for request in &requests[1..requests.len() - 1] {
            self.ask(std::slice::from_ref(request))?;
        }
        let names: Vec<String> =
            requests.iter().map(|one| String::from_utf8_lossy(&one[0]).to_ascii_lowercase()).collect();
        match names.iter().any(|name| self.pair.refused.contains(name)) {
            true => Ok(()),
            false => self.ask(&requests),
        }
    }

    /// A request from within a script, which is told its keys.
    fn script(&mut self) -> Checked {
        let inner = self.request();
        let keys: Vec<Vec<u8>> = self.parts.keys(&inner).iter().map(|at| inner[*at].clone()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let count = keys.len().to_string();
        let request = [words(&["EVAL", super::SCRIPT, &count]), keys, inner.clone()].concat();
        self.ask_for(&[request], &[inner])
    }

    /// The connections get another state.
    fn state(&mut self) -> Checked {
        let db = self.prng.below(DATABASES).to_string();
        let request = match self.prng.below(4) {
            0 => words(&["HELLO", "3"]),
            1 => words(&["HELLO", "2"]),
            _ => words(&["SELECT", &db]),
        };
        self.last.push(show(&request));
        let many = self.many.pipeline("", std::slice::from_ref(&request))?.swap_remove(0);
        let one = routed::pipeline(&mut self.one, &[&request])?.swap_remove(0);
        // What HELLO says of a server is its own.
        match request[0] == b"HELLO" || many == one {
            true => Ok(()),
            false => Err(format!("{}: {} and {}", show(&request), many.escape_ascii(), one.escape_ascii())),
        }
    }

    /// Compares all keys of all databases.
    fn compare(&mut self) -> Checked {
        self.pair.behind.settle()?;
        let mut shards: BTreeMap<SocketAddr, testkit::Client> = BTreeMap::new();
        for db in 0..DATABASES {
            let select = words(&["SELECT", &db.to_string()]);
            self.ask(&[select.clone(), words(&["DBSIZE"])])?;
            let listed = routed::pipeline(&mut self.one, &[&words(&["KEYS", "*"])])?.swap_remove(0);
            let mut scanned = self.scan()?;
            let mut keys = whole::texts(&listed)?;
            scanned.sort_unstable();
            scanned.dedup();
            keys.sort_unstable();
            if scanned != keys {
                return Err(format!("SCAN through the proxy lists {} keys of {}", scanned.len(), keys.len()));
            }
            let topology = self.pair.behind.topology();
            for key in &keys {
                let place = self.pair.behind.owner(topology.as_ref(), key_slot(key));
                let connect = || testkit::Client::connect(place).expect("it serves");
                let shard = shards.entry(place).or_insert_with(connect);
                routed::pipeline(shard, &[&select])?;
                whole::compare_key(shard, &mut self.one, key)
                    .map_err(|wrong| format!("database {db}: {wrong}"))?;
            }
        }
        Ok(())
    }

    /// All keys that SCAN lists, one step after the other.
    fn scan(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let (mut cursor, mut keys) = (b"0".to_vec(), Vec::new());
        loop {
            let request = vec![b"SCAN".to_vec(), cursor, b"COUNT".to_vec(), b"7".to_vec()];
            let reply = self.many.pipeline("", &[request])?.swap_remove(0);
            let Some(wire::Value::Array(mut parts)) = testkit::client::decode(&reply) else {
                return Err(format!("SCAN: {}", reply.escape_ascii()));
            };
            let (Some(wire::Value::Array(found)), Some(wire::Value::Bulk(next))) = (parts.pop(), parts.pop())
            else {
                return Err(format!("SCAN: {}", reply.escape_ascii()));
            };
            keys.extend(
                found
                    .into_iter()
                    .filter_map(|key| if let wire::Value::Bulk(key) = key { Some(key) } else { None }),
            );
            cursor = next;
            if cursor == b"0" {
                return Ok(keys);
            }
        }
    }
}

/// Whether a request says something else when it is made again, if a millisecond has passed: whether a key is to last longer, or shorter, than it was to just before.
fn is_of_its_moment(request: &Request) -> bool {
    let is = |word: &[u8], one: &str| word.eq_ignore_ascii_case(one.as_bytes());
    ["expire", "pexpire"].iter().any(|name| is(&request[0], name))
        && request.iter().any(|word| is(word, "GT") || is(word, "LT"))
}

const REFUSED: &[u8] = b"is not served by a proxy";

fn is_refusal(reply: &[u8]) -> bool {
    reply.starts_with(b"-CROSSSLOT ")
        || reply.starts_with(b"-ERR proxy: ") && reply.windows(REFUSED.len()).any(|words| words == REFUSED)
}

fn is_lost(reply: &[u8]) -> bool {
    LOST.iter().any(|begin| reply.starts_with(begin.as_bytes()))
}

#[test]
fn a_proxy_answers_as_one_server_does() {
    let mut pair = Pair::begin(&[]);
    if let Err(wrong) = pair.run(Budget::from_env(1, STEPS)) {
        panic!("{wrong}");
    }
    println!("{} requests; not served in every form: {:?}", pair.requests, pair.refused);
}

#[test]
fn a_proxy_that_keeps_replies_to_hot_keys_answers_as_one_server_does() {
    let mut pair = Pair::begin(&["--proxy-cache-bytes", "1mb"]);
    if let Err(wrong) = pair.run(Budget::from_env(2, STEPS)) {
        panic!("{wrong}");
    }
}

#[test]
fn a_proxy_answers_as_one_server_does_while_slots_move() {
    let mut pair = Pair::before(Moving::begin(1, DIRECTIVES), Behind::Moving);
    if let Err(wrong) = pair.run(Budget::from_env(3, STEPS)) {
        panic!("{wrong}");
    }
    let Behind::Moving(moving) = &pair.behind else { panic!("it moves") };
    println!(
        "{} requests, {} moves; not served in every form: {:?}",
        pair.requests, moving.moves, pair.refused
    );
}

#[test]
fn a_proxy_answers_as_one_server_does_or_says_so_while_masters_fail() {
    let mut pair = Pair::before(Moving::begin(2, DURABLE), |moving| Behind::Failing(moving, None));
    if let Err(wrong) = pair.run(Budget::from_env(4, ROUND_STEPS)) {
        panic!("{wrong}");
    }
    println!(
        "{} requests, {} masters failed, {} times something was lost",
        pair.requests, pair.failed, pair.lost
    );
}

#[test]
fn a_fault_in_what_a_proxy_passes_on_is_found() {
    let mut pair = Pair::begin(&[]);
    pair.twist = Some(|request| {
        if request[0].eq_ignore_ascii_case(b"append") && request.len() == 3 {
            request[0] = b"SET".to_vec();
        }
    });
    pair.run(Budget::steps(1, 100_000)).expect_err("the fault was not found");
}
