//! Streams of commands: from the rows' syntax and the pools of values, valid for
//! the most part, and otherwise wrong in the ways in which clients are wrong.
//!
//! The same seed and rows give the same stream.

use crate::settings;
use crate::spec::Spec;
use crate::syntax::Node;
use crate::values::{self, pick};
use sys::Prng;

/// Connections of one stream.
pub const CONNECTIONS: usize = 4;
/// Most requests sent in one write.
pub const PIPELINE_MAX: u64 = 20;
/// Most repetitions of a repeated part.
const REPEATS_MAX: u64 = 4;

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
}

impl<'a> Generator<'a> {
    /// A generator over `specs`.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(specs: &'a [Spec], seed: u64) -> Generator<'a> {
        assert!(!specs.is_empty(), "nothing to generate from");
        Generator { specs, prng: Prng::from_seed(seed) }
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
            for _ in 0..=self.prng.below(PIPELINE_MAX) {
                let request = self.request();
                if is_allowed(&request) {
                    steps.push(Step { connection, batch, request });
                }
            }
            batch += 1;
        }
        steps
    }

    /// One request.
    pub fn request(&mut self) -> Request {
        let spec = &self.specs[self.prng.below(self.specs.len() as u64) as usize];
        // What wipes everything would leave little to meet if it came as often as the rest.
        if matches!(spec.name.as_str(), "flushall" | "flushdb" | "swapdb" | "reset") && !self.prng.one_in(20)
        {
            return self.request();
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
        if spec.name == "config|set" {
            settings::fit(&mut self.prng, &mut request);
        }
        request
    }

    fn sequence(&mut self, spec: &Spec, nodes: &[Node], request: &mut Request) {
        for node in nodes {
            match node {
                // An id made of the present moment makes streams differ between servers.
                Node::Literal(word) if word == "*" && spec.name == "xadd" => {
                    request.push(self.argument(spec, "id"));
                }
                Node::Literal(word) => request.push(self.cased(word)),
                Node::Argument(name) => request.push(self.argument(spec, name)),
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
                Node::Repeated(sequences) => {
                    for _ in 0..self.prng.below(REPEATS_MAX + 1) {
                        self.choice(spec, sequences, request);
                    }
                }
            }
        }
    }

    fn choice(&mut self, spec: &Spec, sequences: &[Vec<Node>], request: &mut Request) {
        let chosen = &sequences[self.prng.below(sequences.len() as u64) as usize];
        self.sequence(spec, chosen, request);
    }

    fn argument(&mut self, spec: &Spec, name: &str) -> Vec<u8> {
        if self.prng.one_in(30) {
            values::odd(&mut self.prng)
        } else {
            values::argument(&mut self.prng, &spec.name, name)
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
