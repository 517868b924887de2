//! The same generated commands to one server and to a cluster of three shards, whose clients go where they are sent, while slots move to and fro: every
//! reply must be the same, and at the end every key.
//!
//! A request's keys are put into one slot by a hash tag; those of a few are put into several, and then the cluster refuses it and the other
//! server never hears of it. `parts.rs` says what is not sent, and why; what goes over all keys is put together from all masters (`whole.rs`).
//!
//!     TARN_SECONDS=600 TARN_SEED=$RANDOM ./test --test tests -- --nocapture a_cluster_answers_as_one_server

mod moving;
mod parts;
mod proxied;
mod routed;
mod whole;

use crate::{specs, tarn};
use moving::{Moving, moved_to};
use parts::{Parts, tagged};
use routed::Routed;
use std::net::SocketAddr;
use sys::Prng;
use testkit::differential::judge::{Queue, Verdict, judge};
use testkit::differential::{Answer, Twist, show};
use testkit::generate::{Generator, Request, words};
use testkit::{Budget, Server, Spec};
use topology::ShardId;
use wire::key_slot;

/// Shards of the cluster.
const SHARDS: u16 = 3;
/// Clients at work.
const CLIENTS: u64 = 3;
/// Requests between one emptying of everything and the next.
const ROUND_STEPS: u64 = 1_500;
/// Requests of an ordinary run: some twenty seconds in a debug build.
const STEPS: u64 = 12_000;
/// Most requests in one write.
const PIPELINE_MAX: u64 = 12;
/// Most bytes of the words of several requests in one write.
const PIPELINE_BYTES_MAX: usize = 2_000;
/// Most requests of a transaction.
const TRANSACTION_MAX: u64 = 6;
/// Databases at work.
const DATABASES: u64 = 3;
/// How many of the last requests are shown where something is wrong.
const SHOWN: usize = 60;

/// What both are started with.
const DIRECTIVES: &[&str] = &["--edition", "memory", "--enable-debug-command", "yes"];

/// A script that does what its arguments say.
const SCRIPT: &str = "return redis.pcall(unpack(ARGV))";

/// The cluster, and the server beside it.
struct Pair {
    moving: Moving,
    alone: Server,
    twist: Option<Twist>,
    counts: Counts,
}

/// What was done, so that it can be told whether it was enough.
#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    transactions: u64,
    scripts: u64,
    cross_slot: u64,
    redirections: u64,
}

/// A client of both.
struct Client {
    many: Routed,
    one: testkit::Client,
    db: String,
}

/// One round, from empty databases to the comparison of all.
struct Round<'p> {
    pair: &'p mut Pair,
    prng: Prng,
    generator: Generator<'p>,
    parts: &'p Parts,
    clients: Vec<Client>,
    last: Vec<String>,
}

/// What is wrong, told.
type Checked = Result<(), String>;

impl Pair {
    fn begin() -> Pair {
        let moving = Moving::begin(1, DIRECTIVES);
        let alone = Server::start(tarn(), DIRECTIVES).expect("it starts");
        Pair { moving, alone, twist: None, counts: Counts::default() }
    }

    /// Plays rounds until one finds something, or the budget is spent.
    fn run(&mut self, budget: Budget) -> Checked {
        let (specs, parts) = (specs(), Parts::new());
        let specs: Vec<Spec> = specs.into_iter().filter(parts::is_played).collect();
        let began = self.counts.requests;
        for seed in budget.seed.. {
            if !budget.allows(self.counts.requests - began) {
                break;
            }
            Round::begin(self, &specs, &parts, seed).play_and_tell(seed)?;
        }
        Ok(())
    }
}

impl Client {
    fn new(pair: &Pair) -> Client {
        let many = Routed::new(&pair.moving.nodes, pair.twist);
        Client { many, one: pair.alone.connect().expect("it serves"), db: "0".into() }
    }

    /// The replies of the one server.
    fn ask_one(&mut self, requests: &[Request]) -> Result<Vec<Answer>, String> {
        let sent: Vec<&Request> = requests.iter().collect();
        routed::pipeline(&mut self.one, &sent).map(|replies| replies.into_iter().map(Some).collect())
    }

    fn both(&mut self, request: &Request) -> Result<(Vec<Vec<u8>>, Vec<u8>), String> {
        let one = routed::pipeline(&mut self.one, &[request])?.swap_remove(0);
        Ok((self.many.everywhere(request)?, one))
    }
}

impl<'p> Round<'p> {
    fn begin(pair: &'p mut Pair, specs: &'p [Spec], parts: &'p Parts, seed: u64) -> Round<'p> {
        let clients = (0..CLIENTS).map(|_| Client::new(pair)).collect();
        let generator = Generator::new(specs, seed);
        Round { pair, prng: Prng::from_seed(!seed), generator, parts, clients, last: Vec::new() }
    }

    /// Plays it; what is wrong is told with what was before.
    fn play_and_tell(mut self, seed: u64) -> Checked {
        let played = self.play();
        let clients = self.clients.iter();
        self.pair.counts.redirections += clients.map(|client| client.many.redirections).sum::<u64>();
        let last = &self.last[self.last.len().saturating_sub(SHOWN)..];
        let again = format!("to see it again, perhaps: TARN_SEED={seed} TARN_STEPS=1");
        played.map_err(|wrong| format!("{wrong}\nbehind\n{}\n{again}", last.join("\n")))
    }

    fn play(&mut self) -> Checked {
        self.empty(&words(&["FLUSHALL"]))?;
        let until = self.pair.counts.requests + ROUND_STEPS;
        while self.pair.counts.requests < until {
            let client = self.prng.below(CLIENTS) as usize;
            let tag = self.tag();
            match self.prng.below(100) {
                0..60 => self.pipeline(client, &tag)?,
                60..72 => self.transaction(client, &tag, false)?,
                72..78 => self.transaction(client, &tag, true)?,
                78..84 => self.script(client, &tag)?,
                84..88 => self.across(client)?,
                88..90 => self.transaction_across(client, &tag)?,
                90..92 => self.astray(client, &tag)?,
                92..94 => self.state(client)?,
                94 if self.prng.one_in(2) => self.count(client)?,
                95 if self.prng.one_in(5) => {
                    let request = words(&[["FLUSHDB", "FLUSHALL"][usize::from(self.prng.one_in(3))]]);
                    self.empty(&request)?;
                }
                _ => {
                    let done = self.pair.moving.begin_move(&mut self.prng)?;
                    self.last.push(done);
                }
            }
        }
        let topology = self.pair.moving.settle()?;
        whole::compare(self.pair, &topology)
    }

    fn tag(&mut self) -> String {
        self.pair.moving.tags[self.prng.below(self.pair.moving.tags.len() as u64) as usize].clone()
    }

    /// A request whose keys have this tag.
    fn request(&mut self, tag: &str) -> Request {
        loop {
            let request = self.generator.request();
            if parts::is_sent(&request) {
                return self.parts.tag(request, |_| tag.to_owned());
            }
        }
    }

    fn note(&mut self, client: usize, request: &Request) {
        self.pair.counts.requests += 1;
        let db = &self.clients[client].db;
        self.last.push(format!("  {client} ({db}): {}", show(request)));
    }

    /// What both have answered must be the same.
    fn judge(&self, request: &Request, many: Vec<u8>, one: Answer, queue: &mut Queue) -> Checked {
        let answers = [Some(many), one];
        if judge(request, &answers, queue) == Verdict::Same || parts::is_excused(request, &answers) {
            return Ok(());
        }
        let shown = |answer: &Answer| answer.as_deref().unwrap_or_default().escape_ascii().to_string();
        let [many, one] = &answers;
        Err(format!("{}\nthe cluster: {}\none server: {}", show(request), shown(many), shown(one)))
    }

    /// Requests of one slot in one write.
    fn pipeline(&mut self, client: usize, tag: &str) -> Checked {
        let count = 1 + self.prng.below(PIPELINE_MAX);
        let mut requests: Vec<Request> = Vec::new();
        let mut bytes = 0;
        for _ in 0..count {
            let request = self.request(tag);
            bytes += request.iter().map(Vec::len).sum::<usize>();
            // A node reads all of it at once, so that its requests are done by one state of the cluster.
            if bytes > PIPELINE_BYTES_MAX && !requests.is_empty() {
                break;
            }
            requests.push(request);
        }
        requests.iter().for_each(|request| self.note(client, request));
        let many = self.clients[client].many.pipeline(tag, &requests)?;
        let one = self.clients[client].ask_one(&requests)?;
        for ((request, many), one) in requests.iter().zip(many).zip(one) {
            self.judge(request, many, one, &mut Queue::default())?;
        }
        Ok(())
    }

    /// A transaction, of which it may depend on what was watched, which another client may change.
    fn transaction(&mut self, client: usize, tag: &str, watches: bool) -> Checked {
        self.pair.counts.transactions += 1;
        if watches {
            // A watched key that moves makes EXEC fail.
            self.pair.moving.settle()?;
            let watch = self.parts.tag(words(&["WATCH", "k1", "k2"]), |_| tag.to_owned());
            self.single(client, tag, &watch)?;
            if self.prng.one_in(2) {
                self.pipeline((client + 1) % self.clients.len(), tag)?;
            }
        }
        let mut requests = vec![words(&["MULTI"])];
        for _ in 0..self.prng.below(TRANSACTION_MAX) {
            let request = self.request(tag);
            // Within EXEC's answer nothing is excused.
            if !parts::may_be_excused(&request) {
                requests.push(request);
            }
        }
        requests.push(words(&[if self.prng.one_in(10) { "DISCARD" } else { "EXEC" }]));
        requests.iter().for_each(|request| self.note(client, request));
        let many = self.clients[client].many.transaction(tag, &requests)?;
        let one = self.clients[client].ask_one(&requests)?;
        let mut queue = Queue::default();
        for ((request, many), one) in requests.iter().zip(many).zip(one) {
            self.judge(request, many, one, &mut queue)?;
        }
        Ok(())
    }

    fn single(&mut self, client: usize, tag: &str, request: &Request) -> Checked {
        self.note(client, request);
        let one_request = std::slice::from_ref(request);
        let many = self.clients[client].many.pipeline(tag, one_request)?.swap_remove(0);
        let one = self.clients[client].ask_one(one_request)?.swap_remove(0);
        self.judge(request, many, one, &mut Queue::default())
    }

    /// A request from within a script, which is told its keys.
    fn script(&mut self, client: usize, tag: &str) -> Checked {
        let inner = self.request(tag);
        let keys: Vec<Vec<u8>> = self.parts.keys(&inner).iter().map(|at| inner[*at].clone()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.pair.counts.scripts += 1;
        let count = keys.len().to_string();
        let request = [words(&["EVAL", SCRIPT, &count]), keys, inner.clone()].concat();
        self.note(client, &request);
        let sent = std::slice::from_ref(&request);
        let many = self.clients[client].many.pipeline(tag, sent)?.swap_remove(0);
        let one = self.clients[client].ask_one(sent)?.swap_remove(0);
        self.judge(&inner, many, one, &mut Queue::default())
    }

    /// A request whose keys have several tags: it is refused, and done by nobody.
    fn across(&mut self, client: usize) -> Checked {
        let request = loop {
            let request = self.generator.request();
            let tags: Vec<String> = request.iter().map(|_| self.tag()).collect();
            let request = self.parts.tag(request, |at| tags[at].clone());
            let positions = self.parts.keys(&request);
            let slots: Vec<u16> = positions.iter().map(|at| key_slot(&request[*at])).collect();
            let are_several = slots.windows(2).any(|pair| pair[0] != pair[1]);
            if are_several {
                break request;
            }
        };
        self.pair.counts.cross_slot += 1;
        self.note(client, &request);
        let node = self.prng.below(self.pair.moving.nodes.len() as u64) as usize;
        let reply = self.clients[client].many.at(self.pair.moving.nodes[node], &[&request])?.swap_remove(0);
        if reply != CROSS_SLOT.as_bytes() {
            return Err(format!("{}: {}", show(&request), reply.escape_ascii()));
        }
        Ok(())
    }

    /// A transaction whose requests are of two slots: it is refused, and nothing of it is done.
    fn transaction_across(&mut self, client: usize, tag: &str) -> Checked {
        let other = self.tag();
        let requests = [
            words(&["MULTI"]),
            vec![b"SET".to_vec(), tagged(tag, b"k1"), b"across".to_vec()],
            vec![b"SET".to_vec(), tagged(&other, b"k1"), b"across".to_vec()],
            words(&["EXEC"]),
        ];
        if other == tag {
            return Ok(());
        }
        requests.iter().for_each(|request| self.note(client, request));
        let mut replies = self.clients[client].many.transaction(tag, &requests)?;
        let last = replies.pop().unwrap_or_default();
        // The second is queued where the node has both slots, and else sent elsewhere.
        let is_refused = match replies.pop().unwrap_or_default() {
            queued if queued == b"+QUEUED\r\n" => last == CROSS_SLOT.as_bytes(),
            sent => sent.starts_with(b"-MOVED ") && last.starts_with(b"-EXECABORT "),
        };
        if is_refused { Ok(()) } else { Err(format!("EXEC over two slots: {}", last.escape_ascii())) }
    }

    /// A request to a node that has not got its slot: that says who has it, or what is wrong with the request.
    fn astray(&mut self, client: usize, tag: &str) -> Checked {
        let topology = self.pair.moving.settle()?;
        let owner = self.pair.moving.owner(&topology, key_slot(tag.as_bytes()));
        let others: Vec<SocketAddr> =
            self.pair.moving.nodes.iter().copied().filter(|node| *node != owner).collect();
        let node = others[self.prng.below(others.len() as u64) as usize];
        let request = self.request(tag);
        if self.parts.keys(&request).is_empty() {
            return Ok(());
        }
        self.note(client, &request);
        let reply = self.clients[client].many.at(node, &[&request])?.swap_remove(0);
        if reply != moved_to(tag, owner).as_bytes() {
            return Err(format!("{} at {node}, not {owner}: {}", show(&request), reply.escape_ascii()));
        }
        self.single(client, tag, &request)
    }

    /// A client's connections get another state.
    fn state(&mut self, client: usize) -> Checked {
        let db = self.prng.below(DATABASES).to_string();
        let request = match self.prng.below(4) {
            0 => words(&["HELLO", "3"]),
            1 => words(&["HELLO", "2"]),
            _ => words(&["SELECT", &db]),
        };
        self.note(client, &request);
        let (many, one) = self.clients[client].both(&request)?;
        if request[0] == b"SELECT" {
            self.clients[client].db = db;
        }
        many.into_iter()
            .try_for_each(|reply| self.judge(&request, reply, Some(one.clone()), &mut Queue::default()))
    }

    /// What counts and lists keys, from all nodes together.
    fn count(&mut self, client: usize) -> Checked {
        self.pair.moving.settle()?;
        whole::count(&mut self.clients[client])
    }

    /// Empties a database, or all. What comes from one node to another in between is gone with the second time.
    fn empty(&mut self, request: &Request) -> Checked {
        self.note(0, request);
        self.clients[0].many.everywhere(request)?;
        self.pair.moving.settle()?;
        let (many, one) = self.clients[0].both(request)?;
        many.into_iter()
            .try_for_each(|reply| self.judge(request, reply, Some(one.clone()), &mut Queue::default()))
    }
}

const CROSS_SLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";

#[test]
fn a_cluster_answers_as_one_server_does_while_slots_move() {
    let mut pair = Pair::begin();
    let played = pair.run(Budget::from_env(1, STEPS));
    println!("{:?}, {} moves", pair.counts, pair.moving.moves);
    if let Err(wrong) = played {
        panic!("{wrong}");
    }
    assert_eq!(pair.moving.topology().slots.count(), wire::SLOTS);
    assert!((0..SHARDS).all(|shard| pair.moving.topology().shards.contains_key(&ShardId(shard))));
}

#[test]
fn a_fault_in_what_a_cluster_does_is_found() {
    let mut pair = Pair::begin();
    pair.twist = Some(|request| {
        if request[0].eq_ignore_ascii_case(b"rename") && request.len() == 3 {
            request[0] = b"RENAMENX".to_vec();
        }
    });
    let found = pair.run(Budget::steps(1, 100_000)).expect_err("the fault was not found");
    assert!(found.contains("RENAME") || found.contains("ename"), "{found}");
}
