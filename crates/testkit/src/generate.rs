//! Streams of commands: from the rows' syntax and the pools of values, valid for
//! the most part, and otherwise wrong in the ways in which clients are wrong.
//!
//! Every stream has a family on which most of its requests fall, so that values grow and meet their own commands.
//! The same seed and rows give the same stream.

mod lua;
pub mod schedule;
pub mod scripts;

use crate::differential::{picks, rules};
use crate::settings;
use crate::spec::Spec;
use crate::syntax::Node;
use crate::values::{self, pick};
use command::Group;
use sys::Prng;

/// Connections of one stream.
pub const CONNECTIONS: usize = 4;
/// Most requests sent in one write.
pub const PIPELINE_MAX: u64 = 20;
/// Most repetitions of a repeated part.
const REPEATS_MAX: u64 = 4;
/// Most repetitions where many members are added at once: beyond the limits of all compact encodings.
const MANY_MAX: &[u64] = &[40, 140, 140, 600];
/// How rarely a ZADD is about thousands of members in ascending order.
const ASCENDING_RARITY: u64 = 12;
/// Most requests of a transaction.
const TRANSACTION_MAX: u64 = 6;
/// Reads that all real servers answer alike, with nothing behind the key.
const PLAIN_READS: &[&str] = &["GET", "EXISTS", "STRLEN", "TYPE", "LLEN", "HLEN", "SCARD", "ZCARD", "XLEN"];

/// The words of one request.
pub type Request = Vec<Vec<u8>>;

/// One request of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which connection sends it.
    pub connection: usize,
    /// Neighbouring requests of one batch go out in one write.
    pub batch: usize,
    /// What is sent.
    pub request: Request,
}

/// Makes requests out of rows.
#[derive(Debug)]
pub struct Generator<'a> {
    specs: &'a [Spec],
    prng: Prng,
    /// The family on which most requests fall.
    focus: Option<Group>,
    /// Whether members are being added by the hundred.
    is_adding_many: bool,
    /// Which connections are within a transaction, as far as their requests tell.
    queueing: [bool; CONNECTIONS],
}

impl<'a> Generator<'a> {
    /// A generator over `specs`.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(specs: &'a [Spec], seed: u64) -> Generator<'a> {
        assert!(!specs.is_empty(), "nothing to generate from");
        let mut prng = Prng::from_seed(seed);
        let focus = specs[prng.below(specs.len() as u64) as usize].group;
        let focus = if matches!(focus, Group::Server | Group::Connection) { None } else { Some(focus) };
        Generator { specs, prng, focus, is_adding_many: false, queueing: [false; CONNECTIONS] }
    }

    /// About `len` requests over several connections, of which some speak RESP3 and some use another database.
    /// `is_allowed` leaves out what must not be sent.
    pub fn stream(&mut self, len: usize, is_allowed: impl Fn(&Request) -> bool) -> Vec<Step> {
        let mut steps = Vec::with_capacity(len);
        for connection in 0..CONNECTIONS {
            if connection % 2 == 1 {
                steps.push(Step { connection, batch: connection, request: words(&["HELLO", "3"]) });
            }
            if connection >= 2 {
                let db = self.prng.below(values::DATABASES).to_string();
                steps.push(Step { connection, batch: connection, request: words(&["SELECT", &db]) });
            }
        }
        let mut batch = CONNECTIONS;
        while steps.len() < len {
            let connection = self.prng.below(CONNECTIONS as u64) as usize;
            if self.prng.one_in(8) && !self.queueing[connection] {
                if self.prng.one_in(8) {
                    self.nested_transaction(&mut steps, connection, &mut batch);
                    continue;
                }
                self.transaction(&mut steps, connection, &mut batch, &is_allowed);
                continue;
            }
            for _ in 0..=self.prng.below(PIPELINE_MAX) {
                let request = self.request();
                if is_allowed(&request) && self.is_in_place(connection, &request) {
                    push(&mut steps, connection, &mut batch, request);
                }
            }
            batch += 1;
        }
        steps
    }

    /// A transaction with whatever belongs to one, and now and then with somebody else's requests in between.
    fn transaction(
        &mut self,
        steps: &mut Vec<Step>,
        connection: usize,
        batch: &mut usize,
        is_allowed: &impl Fn(&Request) -> bool,
    ) {
        let watches = self.prng.one_in(2);
        let mut requests = Vec::new();
        if watches {
            let keys = 1 + self.prng.below(3);
            let group = self.focus.unwrap_or(Group::Generic);
            let keys = (0..keys).map(|_| values::argument(&mut self.prng, group, "watch", "key"));
            requests.push(words(&["WATCH"]).into_iter().chain(keys).collect());
        }
        if watches && self.prng.one_in(2) {
            let other = (connection + 1) % CONNECTIONS;
            self.flush(steps, connection, batch, &mut requests);
            let interfering = (0..=self.prng.below(2)).map(|_| self.data_request()).collect::<Vec<_>>();
            requests.extend(interfering.into_iter().filter(|request| is_allowed(request)));
            requests.retain(|request| self.is_in_place(other, request));
            self.flush(steps, other, batch, &mut requests);
        }
        requests.push(words(&["MULTI"]));
        for _ in 0..self.prng.below(TRANSACTION_MAX) {
            let request = self.data_request();
            if is_allowed(&request) && may_be_queued(&request) {
                requests.push(request);
            }
        }
        if self.prng.one_in(12) {
            requests.push(words(&["NOSUCHCOMMAND", "x"]));
        }
        requests.push(words(&[if self.prng.one_in(10) { "DISCARD" } else { "EXEC" }]));
        self.flush(steps, connection, batch, &mut requests);
    }

    /// A transaction with a MULTI or a WATCH inside. Valkey gives it up, and the others go on: it only reads, so that
    /// their keys stay the same.
    fn nested_transaction(&mut self, steps: &mut Vec<Step>, connection: usize, batch: &mut usize) {
        let mut requests = vec![words(&["MULTI"])];
        for _ in 0..=self.prng.below(TRANSACTION_MAX) {
            let group = self.focus.unwrap_or(Group::Generic);
            let key = values::argument(&mut self.prng, group, "watch", "key");
            let name = pick(&mut self.prng, &["MULTI", "WATCH", "GET", "TYPE", ""]);
            let name = if name.is_empty() { pick(&mut self.prng, PLAIN_READS) } else { name };
            requests.push(words(&[name]));
            if name != "MULTI" {
                requests.last_mut().expect("just pushed").push(key);
            }
        }
        requests.push(words(&[if self.prng.one_in(10) { "DISCARD" } else { "EXEC" }]));
        self.flush(steps, connection, batch, &mut requests);
    }

    /// Sends the requests as one batch.
    fn flush(
        &mut self,
        steps: &mut Vec<Step>,
        connection: usize,
        batch: &mut usize,
        requests: &mut Vec<Request>,
    ) {
        for request in requests.drain(..) {
            push(steps, connection, batch, request);
        }
        *batch += 1;
    }

    /// A request of one of the types' families.
    fn data_request(&mut self) -> Request {
        loop {
            let spec = self.spec();
            if !matches!(spec.group, Group::Server | Group::Connection | Group::Transactions) {
                return self.request_of(spec);
            }
        }
    }

    /// Keeps account of transactions. A MULTI or WATCH within one that writes is not sent, since Valkey gives it up then:
    /// `nested_transaction` has them.
    fn is_in_place(&mut self, connection: usize, request: &Request) -> bool {
        let queueing = &mut self.queueing[connection];
        let is = |name: &[u8]| request[0].eq_ignore_ascii_case(name);
        let ends = is(b"exec") || is(b"discard") || is(b"reset");
        if *queueing && !ends && !may_be_queued(request) {
            return false;
        }
        match request.len() {
            1 if is(b"multi") => *queueing = true,
            1 if ends => *queueing = false,
            _ => {}
        }
        true
    }

    /// A command: mostly one of the family in focus, rarely one of the server's own.
    fn spec(&mut self) -> &'a Spec {
        let specs: &'a [Spec] = self.specs;
        if let Some(focus) = self.focus.filter(|_| !self.prng.one_in(3)) {
            let own: Vec<&Spec> = specs.iter().filter(|spec| spec.group == focus).collect();
            if !own.is_empty() {
                return pick(&mut self.prng, &own);
            }
        }
        let spec = &specs[self.prng.below(specs.len() as u64) as usize];
        let is_about_server = matches!(spec.group, Group::Server | Group::Connection);
        if is_about_server && self.focus.is_some() && !self.prng.one_in(4) { self.spec() } else { spec }
    }

    /// One request.
    pub fn request(&mut self) -> Request {
        let spec = self.spec();
        self.request_of(spec)
    }

    /// A request of this command, unless it is one that must be rare and something else comes instead.
    pub fn request_of(&mut self, spec: &Spec) -> Request {
        // What wipes everything would leave little to meet if it came as often as the rest; and what waits, waits long.
        let rarity = match spec.name.as_str() {
            "flushall" | "flushdb" | "swapdb" | "reset" | "multi" => 20,
            "blpop" | "brpop" | "blmove" | "brpoplpush" | "blmpop" | "bzpopmin" | "bzpopmax" | "bzmpop"
            | "bexists" => 4,
            "del" | "unlink" => 3,
            _ => 1,
        };
        if !self.prng.one_in(rarity) {
            return self.request();
        }
        if spec.name == "zadd" && self.prng.one_in(ASCENDING_RARITY) {
            return values::ascending(&mut self.prng);
        }
        let mut request: Request = spec.words().map(|word| self.cased(word)).collect();
        if matches!(spec.name.as_str(), "command|getkeys" | "command|getkeysandflags") {
            request.extend(self.request());
            return request;
        }
        let name_len = request.len();
        self.sequence(spec, &spec.syntax, &mut request);
        if spec.is_container && self.prng.one_in(2) {
            request.push(values::odd(&mut self.prng));
        }
        if self.prng.one_in(6) {
            self.spoil(&mut request, name_len);
        }
        if matches!(spec.name.as_str(), "xread" | "xreadgroup") {
            values::balance_streams(&mut self.prng, &spec.name, &mut request);
        }
        match spec.name.as_str() {
            "config|set" => settings::fit(&mut self.prng, &mut request),
            "zrange" | "zrangestore" => {
                values::fit_range(&mut self.prng, &mut request);
                values::fit_texts(&mut self.prng, &mut request);
            }
            "zrangebylex" | "zrevrangebylex" | "zlexcount" | "zremrangebylex" | "zadd" | "zrem"
            | "zpopmin" | "zcard" => values::fit_texts(&mut self.prng, &mut request),
            "zunion" | "zinter" | "zunionstore" | "zinterstore" => {
                values::fit_weights(&mut self.prng, &mut request);
            }
            _ => {}
        }
        request
    }

    fn sequence(&mut self, spec: &Spec, nodes: &[Node], request: &mut Request) {
        // Where a number of keys or fields stands, and behind which node they end.
        let mut count: Option<(usize, usize)> = None;
        for (at, node) in nodes.iter().enumerate() {
            match node {
                // An id made of the present moment makes streams differ between servers.
                Node::Literal(word) if word == "*" && spec.name == "xadd" => {
                    request.push(self.argument(spec, "id"));
                }
                Node::Literal(word) => request.push(self.cased(word)),
                Node::Argument(name) => {
                    if name == "numkeys" || name == "numfields" {
                        count = Some((request.len(), at + 2));
                    }
                    request.push(self.argument(spec, name));
                }
                Node::Choice(sequences) => self.choice(spec, sequences, request),
                Node::Optional(sequences) => {
                    if self.prng.one_in(2) {
                        self.choice(spec, sequences, request);
                        // Now and then the option twice, or two that exclude each other.
                        if self.prng.one_in(20) {
                            self.choice(spec, sequences, request);
                        }
                    }
                }
                Node::Repeated(sequences) => self.repeat(spec, sequences, request),
            }
            if let Some((place, _)) = count.filter(|(_, end)| *end == at)
                && !self.prng.one_in(12)
            {
                request[place] = (request.len() - place - 1).to_string().into_bytes();
            }
        }
    }

    fn repeat(&mut self, spec: &Spec, sequences: &[Vec<Node>], request: &mut Request) {
        let adds = |node: &Node| matches!(node, Node::Argument(name) if matches!(name.as_str(), "element" | "member" | "field"));
        let may_be_many = sequences.iter().flatten().any(adds);
        self.is_adding_many = may_be_many && self.prng.one_in(24);
        let max = if self.is_adding_many { pick(&mut self.prng, MANY_MAX) } else { REPEATS_MAX };
        for _ in 0..self.prng.below(max + 1) {
            self.choice(spec, sequences, request);
        }
        self.is_adding_many = false;
    }

    fn choice(&mut self, spec: &Spec, sequences: &[Vec<Node>], request: &mut Request) {
        let chosen = &sequences[self.prng.below(sequences.len() as u64) as usize];
        self.sequence(spec, chosen, request);
    }

    fn argument(&mut self, spec: &Spec, name: &str) -> Vec<u8> {
        if self.is_adding_many {
            values::one_of_many(&mut self.prng, spec.group, &spec.name, name)
        } else if self.prng.one_in(30) {
            values::odd(&mut self.prng)
        } else {
            values::argument(&mut self.prng, spec.group, &spec.name, name)
        }
    }

    /// Makes a request wrong, or at least unusual.
    fn spoil(&mut self, request: &mut Request, name_len: usize) {
        let args = request.len() - name_len;
        let at = name_len + self.prng.below(args.max(1) as u64) as usize;
        match self.prng.below(6) {
            0 if args > 0 => drop(request.remove(at)),
            1 => request.push(values::odd(&mut self.prng)),
            2 if args > 0 => request.truncate(at),
            3 if args > 1 => request.swap(at, name_len),
            4 if args > 0 => {
                let repeated = request[at].clone();
                request.push(repeated);
            }
            _ if args > 0 => request[at] = values::odd(&mut self.prng),
            _ => request.push(values::value(&mut self.prng)),
        }
    }

    /// A word in capitals, as it stands or in mixed case.
    fn cased(&mut self, word: &str) -> Vec<u8> {
        match pick(&mut self.prng, &[0, 0, 1, 2]) {
            0 => word.to_ascii_uppercase().into_bytes(),
            1 => word.to_ascii_lowercase().into_bytes(),
            _ => {
                let mut mixed = word.to_ascii_lowercase().into_bytes();
                if let Some(first) = mixed.first_mut() {
                    first.make_ascii_uppercase();
                }
                mixed
            }
        }
    }
}

/// Whether a request neither begins nor ends a transaction, and the driver need not look into its replies, which it
/// cannot within one.
fn may_be_queued(request: &Request) -> bool {
    const BOUNDS: [&[u8]; 5] = [b"multi", b"watch", b"exec", b"discard", b"reset"];
    let is_bound = BOUNDS.iter().any(|name| request[0].eq_ignore_ascii_case(name));
    !is_bound && !picks::changes(request) && !picks::may_convert(request) && !rules::is_newer(request)
}

/// Adds a request. One whose replies the driver has to look into goes alone.
fn push(steps: &mut Vec<Step>, connection: usize, batch: &mut usize, request: Request) {
    let is_alone = picks::Pick::of(&request).is_some() || picks::may_convert(&request);
    *batch += usize::from(is_alone);
    steps.push(Step { connection, batch: *batch, request });
    *batch += usize::from(is_alone);
}

/// A request written as words.
pub fn words(words: &[&str]) -> Request {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Spec> {
        vec![
            Spec::new("get", 2, "key"),
            Spec::new("set", -3, "key value [NX | XX] [GET] [EX seconds | PX milliseconds | KEEPTTL]"),
            Spec::new("client|getname", 2, ""),
        ]
    }

    #[test]
    fn same_seed_gives_the_same_stream() {
        let specs = sample();
        let stream = |seed| Generator::new(&specs, seed).stream(200, |_| true);
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }

    #[test]
    fn every_command_and_option_appears() {
        let specs = sample();
        let mut generator = Generator::new(&specs, 1);
        let requests: Vec<Request> = (0..1_000).map(|_| generator.request()).collect();
        for word in ["get", "set", "client", "getname", "nx", "xx", "ex", "px", "keepttl"] {
            let appears =
                |request: &Request| request.iter().any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
            assert!(requests.iter().any(appears), "{word} never appeared");
        }
    }
}
