//! The differential tester: one stream of generated commands goes to the server
//! under test and to real servers, and every reply must be the same, byte for
//! byte, but for what a line of [`rules`] excuses. After every stream the whole
//! keyspace is compared too.
//!
//! One thread drives all connections, batch by batch, so that a stream means the
//! same thing every time it is played.
//!
//! A second kind of stream, a schedule (see [`interleave`]), is played turn by turn with clients that wait for keys and for
//! each other. A third is about scripts and functions, in generated Lua; one of four streams is of this kind.
//!
//! Invariants:
//! 1. A stream begins on empty servers and fresh connections, so that any part of it can be played alone.
//! 2. What is found is shrunk: no request can be left out of what is reported.

pub mod interleave;
pub mod judge;
pub mod keyspace;
mod moments;
mod patience;
pub mod picks;
mod records;
pub mod rules;
mod shrink;
mod ties;
mod wording;

use crate::client::{Client, decode};
use crate::generate::{CONNECTIONS, Generator, Request, Step, schedule, scripts, words};
use crate::process::{Program, Server};
use crate::seed::Budget;
use crate::settings;
use crate::spec::Spec;
use judge::{Queue, Verdict};
use picks::Pick;
use std::collections::HashSet;
use std::fmt;
use std::io;
use wire::Value;

/// Requests of one stream.
const STREAM_STEPS: usize = 1_000;
/// Requests of a stream of scripts, each of which does many things.
const SCRIPT_STEPS: usize = 300;
/// One of so many streams is about scripts.
const SCRIPTS_SHARE: u64 = 4;
/// What all servers are started with: no value over one megabyte, so that offsets at the edge cost nothing.
const DIRECTIVES: &[&str] = &["--proto-max-bulk-len", "1mb"];

/// Of Tarn, if everything is to be on disk most of the time.
const EAGER: &[&str] = &["--edition", "capacity", "--maxmemory", "4gb", "--eager-spill", "yes"];

/// Whether the environment asks for that: `TARN_EAGER_SPILL=1`.
fn is_eager() -> bool {
    std::env::var_os("TARN_EAGER_SPILL").is_some()
}

/// A reply, or None where the server closed or did not answer.
pub type Answer = Option<Vec<u8>>;
/// Changes a reply of the server under test before it is looked at: the fault that the tester must find.
pub type Alter = fn(&Request, &mut Vec<u8>);

/// Changes a request for the server under test before it is sent: a fault in what it does.
pub type Twist = fn(&mut Request);

/// What is generated and played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests of all commands, pipelined, of which none waits for another.
    Stream,
    /// Turns of clients that block, are served, subscribe and leave.
    Schedule,
    /// Scripts and functions.
    Scripts,
}

/// Whether a server answers somebody who comes anew.
fn is_heard(server: &Server) -> bool {
    server.connect().and_then(|mut client| client.call(&["PING"])).is_ok()
}

/// One server taking part.
#[derive(Debug)]
struct Node {
    server: Server,
    connections: [Option<Client>; CONNECTIONS],
    alter: Option<Alter>,
    twist: Option<Twist>,
    /// What it gave for the latest FUNCTION DUMP.
    dumped: Vec<u8>,
}

/// Real servers that may be lost at the beginning of a run, and how many streams allow one more: most of what is played has to be compared.
const LOST_MAX: u32 = 3;
const STREAMS_PER_LOSS: u32 = 200;

/// The server under test and the real ones.
#[derive(Debug)]
pub struct Differential {
    /// The first is under test.
    nodes: Vec<Node>,
    kind: Kind,
    /// The real servers have refused different requests of the stream that is played, as a rule allows.
    have_parted: bool,
    /// What the stream that is played was given up at, as the real servers hold different things from there on.
    given_up: Option<Request>,
}

/// What was found, with the shortest stream that shows it.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The request whose replies differ; the last of `stream` or one about the keyspace.
    pub request: Request,
    /// Names and replies, that of the server under test first.
    pub answers: Vec<(&'static str, Answer)>,
    /// What kind of difference it is.
    pub verdict: Verdict,
    /// Where in the stream; None for a difference of the keyspaces after it.
    pub position: Option<usize>,
    /// The requests that lead to it.
    pub stream: Vec<Step>,
    /// Plays the whole stream that it was found in.
    pub seed: u64,
    /// The last lines that a server under test printed before it ended, if it did.
    pub output: Option<String>,
}

impl Differential {
    /// Starts the server under test and the real ones, the Redis among them first.
    ///
    /// # Errors
    /// If one does not start.
    pub fn start(subject: Program, oracles: &[Program]) -> io::Result<Differential> {
        let programs = std::iter::once(&subject).chain(oracles);
        let nodes =
            programs.map(|program| Node::start(program.clone())).collect::<io::Result<Vec<Node>>>()?;
        Ok(Differential { nodes, kind: Kind::Stream, have_parted: false, given_up: None })
    }

    /// Plays schedules from now on.
    pub fn with_schedules(mut self) -> Differential {
        self.kind = Kind::Schedule;
        self
    }

    /// Plays nothing but scripts and functions from now on.
    pub fn with_scripts(mut self) -> Differential {
        self.kind = Kind::Scripts;
        self
    }

    fn generate(&self, specs: &[Spec], seed: u64) -> Vec<Step> {
        match self.kind {
            Kind::Stream if !seed.is_multiple_of(SCRIPTS_SHARE) => {
                Generator::new(specs, seed).stream(STREAM_STEPS, rules::is_allowed)
            }
            Kind::Stream | Kind::Scripts => scripts::generate(specs, seed, SCRIPT_STEPS),
            Kind::Schedule => schedule::generate(specs, seed),
        }
    }

    /// Plants a fault into the replies of the server under test.
    pub fn plant(&mut self, alter: Alter) {
        self.nodes[0].alter = Some(alter);
    }

    /// Plants a fault into what the server under test does.
    pub fn plant_twist(&mut self, twist: Twist) {
        self.nodes[0].twist = Some(twist);
    }

    /// Plays generated streams until one shows a difference, which is shrunk, or the budget is spent; the number of
    /// requests played.
    ///
    /// # Errors
    /// If a server cannot be driven at all.
    pub fn run(&mut self, specs: &[Spec], budget: Budget) -> io::Result<Result<u64, Box<Difference>>> {
        let (mut played, mut streams, mut lost) = (0, 0, 0);
        for seed in budget.seed.. {
            if !budget.allows(played) {
                break;
            }
            let stream = self.generate(specs, seed);
            played += stream.len() as u64;
            streams += 1;
            let found = self
                .play(&stream)
                .map_err(|error| io::Error::new(error.kind(), format!("seed {seed}: {error}")))?;
            if let Some(request) = &self.given_up {
                println!("seed {seed}: given up where the real servers part: {}", show(request));
            }
            if let Some(found) = found {
                if lost < LOST_MAX + streams / STREAMS_PER_LOSS && self.replace_mute(&found)? {
                    println!(
                        "seed {seed}: a real server does not answer any more, and is started again: {found}"
                    );
                    lost += 1;
                    continue;
                }
                // In case the servers cannot be driven any more.
                println!("found with seed {seed}, to be shrunk: {found}");
                let shrunk = self.shrink(stream, found)?;
                return Ok(Err(Box::new(Difference { seed, ..shrunk })));
            }
        }
        Ok(Ok(played))
    }

    /// Plays all streams of the budget, prints and gathers the differences, one of each kind. For the work on many at once;
    /// what is found late may be a consequence of what was found before.
    ///
    /// # Errors
    /// If a server cannot be driven at all.
    pub fn survey(&mut self, specs: &[Spec], budget: Budget) -> io::Result<Vec<Difference>> {
        let mut kinds = HashSet::new();
        let mut gathered = Vec::new();
        let mut played = 0;
        for seed in budget.seed.. {
            if !budget.allows(played) {
                break;
            }
            let stream = self.generate(specs, seed);
            played += stream.len() as u64;
            let Some(found) = self.play(&stream)? else { continue };
            if kinds.insert(found.signature()) {
                let shrunk = self.shrink(stream, found)?;
                let found = Difference { seed, ..shrunk };
                println!("{found}\n");
                gathered.push(found);
            }
        }
        Ok(gathered)
    }

    /// Plays one stream on empty servers.
    ///
    /// # Errors
    /// If a server cannot be driven at all.
    pub fn play(&mut self, stream: &[Step]) -> io::Result<Option<Difference>> {
        for node in &mut self.nodes {
            node.reset()?;
        }
        self.have_parted = false;
        self.given_up = None;
        if self.kind == Kind::Schedule {
            return self.play_schedule(stream);
        }
        let mut queues: [Queue; CONNECTIONS] = Default::default();
        let mut position = 0;
        for batch in stream.chunk_by(|a, b| a.batch == b.batch && a.connection == b.connection) {
            if let Some(found) = self.play_batch(batch, &mut queues[batch[0].connection])? {
                let position = position + found.position.unwrap_or(0);
                return Ok(Some(Difference { position: Some(position), ..found }));
            }
            if self.given_up.is_some() {
                return Ok(None);
            }
            position += batch.len();
        }
        if let Some(found) = records::compare(self, stream)? {
            return Ok(Some(found));
        }
        keyspace::compare(self)
    }

    fn play_batch(&mut self, batch: &[Step], queue: &mut Queue) -> io::Result<Option<Difference>> {
        let connection = batch[0].connection;
        if let [step] = batch
            && let Some(pick) = Pick::of(&step.request)
        {
            if !queue.is_open {
                return self.play_pick(step, pick);
            }
            if picks::changes(&step.request) {
                return Ok(None);
            }
        }
        if let [step] = batch
            && picks::may_convert(&step.request)
            && (queue.is_open || self.meets_unordered(step)?)
        {
            return Ok(None);
        }
        for node in &mut self.nodes {
            node.send(connection, batch)?;
        }
        for (position, step) in batch.iter().enumerate() {
            let answers: Vec<Answer> =
                self.nodes.iter_mut().map(|node| node.answer(connection, &step.request)).collect();
            let verdict = judge::judge(&step.request, &answers, queue);
            self.have_parted |= !judge::have_same_errors(&answers[1..]);
            if verdict == Verdict::Parted {
                self.given_up = Some(step.request.clone());
                return Ok(None);
            }
            if verdict != Verdict::Same {
                let found = self.difference(&step.request, answers, verdict)?;
                return Ok(Some(Difference { position: Some(position), ..found }));
            }
            if answers.iter().all(Option::is_none) {
                *queue = Queue::default();
                self.nodes.iter_mut().for_each(|node| node.connections[connection] = None);
                break;
            }
        }
        Ok(None)
    }

    /// Starts the real servers again that were lost, if that is all that was found: one does not answer any more where the server under
    /// test and the other real one agree, or both do not, and not to anybody. There are scripts after which Valkey 8.0.1 never answers
    /// again, and such that lose both.
    fn replace_mute(&mut self, found: &Difference) -> io::Result<bool> {
        let answered: Vec<&Answer> =
            found.answers.iter().map(|(_, answer)| answer).filter(|answer| answer.is_some()).collect();
        let is_subject_there = found.answers[0].1.is_some();
        let do_agree = answered.windows(2).all(|pair| pair[0] == pair[1]);
        if self.kind == Kind::Schedule || !is_subject_there || !do_agree {
            return Ok(false);
        }
        if answered.len() == 1 && self.nodes[1..].iter().any(|node| is_heard(&node.server)) {
            return Ok(false);
        }
        for (node, (_, answer)) in self.nodes.iter_mut().zip(&found.answers) {
            if answer.is_none() {
                node.server.restart()?;
            }
        }
        Ok(answered.len() < found.answers.len())
    }

    /// What was found; revives the server under test if it has ended.
    fn difference(
        &mut self,
        request: &Request,
        answers: Vec<Answer>,
        verdict: Verdict,
    ) -> io::Result<Difference> {
        let mut output = None;
        for node in &mut self.nodes {
            if node.server.ended()?.is_some() {
                output = Some(node.server.last_lines());
                node.server.restart()?;
            }
        }
        let names = self.nodes.iter().map(|node| node.server.program().name());
        Ok(Difference {
            request: request.clone(),
            answers: names.zip(answers).collect(),
            verdict,
            position: None,
            stream: Vec::new(),
            seed: 0,
            output,
        })
    }

    /// Asks every server, each over its own connection of `clients`, and judges the answers.
    fn ask(&mut self, clients: &mut [Client], requests: &[Request]) -> io::Result<Asked> {
        let mut answers = Vec::new();
        for client in clients {
            answers.push(client.pipeline(requests));
        }
        let mut columns = Vec::new();
        for result in answers {
            columns.push(match result {
                Ok(replies) => replies.into_iter().map(Some).collect(),
                Err(_) => vec![None; requests.len()],
            });
        }
        for (at, request) in requests.iter().enumerate() {
            let answers: Vec<Answer> =
                columns.iter().map(|column: &Vec<Answer>| column[at].clone()).collect();
            let verdict = judge::judge(request, &answers, &mut Queue::default());
            if verdict != Verdict::Same {
                return Ok(Asked::Differs(Box::new(self.difference(request, answers, verdict)?)));
            }
        }
        let subject = columns.swap_remove(0);
        Ok(Asked::Same(subject.into_iter().flatten().collect()))
    }

    /// A new connection to each server.
    fn connect(&self) -> io::Result<Vec<Client>> {
        self.nodes.iter().map(|node| node.server.connect()).collect()
    }
}

/// What [`Differential::ask`] found.
enum Asked {
    /// The replies of the server under test.
    Same(Vec<Vec<u8>>),
    Differs(Box<Difference>),
}

impl Node {
    fn start(program: Program) -> io::Result<Node> {
        let directives = if let Program::Tarn(_) = program {
            [DIRECTIVES, if is_eager() { EAGER } else { &["--edition", "memory"] }].concat()
        } else {
            DIRECTIVES.to_vec()
        };
        let server = Server::start(program, &directives)?;
        Ok(Node { server, connections: Default::default(), alter: None, twist: None, dumped: Vec::new() })
    }

    /// Empties the server and closes all connections.
    fn reset(&mut self) -> io::Result<()> {
        self.connections = Default::default();
        if self.server.ended()?.is_some() {
            self.server.restart()?;
        }
        let mut client = self.server.connect()?;
        let mut requests = vec![words(&["FLUSHALL"]), settings::reset()];
        requests.extend(
            [["SLOWLOG", "RESET"], ["FUNCTION", "FLUSH"], ["SCRIPT", "FLUSH"], ["CONFIG", "RESETSTAT"]]
                .map(|ask| words(&ask)),
        );
        for request in requests {
            let name = self.server.program().name();
            let unanswered = |error: io::Error| {
                io::Error::new(error.kind(), format!("{name} does not answer {}: {error}", show(&request)))
            };
            if let Value::Error(line) = client.call(&request).map_err(unanswered)? {
                return Err(io::Error::other(format!("{name} cannot be reset: {}", line.escape_ascii())));
            }
        }
        Ok(())
    }

    /// Sends a batch in one write. A server that takes nothing more shows by not answering.
    fn send(&mut self, connection: usize, batch: &[Step]) -> io::Result<()> {
        let client = match &mut self.connections[connection] {
            Some(client) => client,
            empty => empty.insert(self.server.connect()?),
        };
        let mut bytes = Vec::new();
        for step in batch {
            let mut request = step.request.clone();
            for word in request.iter_mut().filter(|word| *word == scripts::DUMPED) {
                word.clone_from(&self.dumped);
            }
            encode(&request, self.twist, &mut bytes);
        }
        let _ = client.send(&bytes);
        Ok(())
    }

    /// Sends one request and waits for its reply.
    fn ask(&mut self, connection: usize, request: &Request) -> io::Result<Answer> {
        let step = Step { connection, batch: 0, request: request.clone() };
        self.send(connection, std::slice::from_ref(&step))?;
        Ok(self.answer(connection, request))
    }

    fn answer(&mut self, connection: usize, request: &Request) -> Answer {
        let client = self.connections[connection].as_mut()?;
        let mut reply = client.read_reply().ok()?;
        // Messages out of band answer nothing; schedules compare them.
        while reply.starts_with(b">") {
            reply = client.read_reply().ok()?;
        }
        if let Some(alter) = self.alter {
            alter(request, &mut reply);
        }
        if request.len() == 2
            && request[1].eq_ignore_ascii_case(b"dump")
            && let Some(Value::Bulk(payload)) = decode(&reply)
        {
            self.dumped = payload;
        }
        Some(reply)
    }
}

/// Appends a request, with the fault that is planted.
fn encode(request: &Request, twist: Option<Twist>, bytes: &mut Vec<u8>) {
    let mut twisted = request.clone();
    if let Some(twist) = twist {
        twist(&mut twisted);
    }
    let args: Vec<&[u8]> = twisted.iter().map(Vec::as_slice).collect();
    wire::encode_request(bytes, &args);
}

/// A request as redis-cli would take it, shortened where it is very long.
pub fn show(request: &[Vec<u8>]) -> String {
    let mut line = Vec::new();
    for (at, word) in request.iter().enumerate() {
        if at > 0 {
            line.push(b' ');
        }
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
        if !word.is_empty() && word.iter().all(is_plain) {
            line.extend_from_slice(word);
        } else {
            line.push(b'"');
            line.extend(word.escape_ascii());
            line.push(b'"');
        }
    }
    shorten(&String::from_utf8_lossy(&line))
}

/// Long texts, with their middle left out.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 4_000;
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    let (head, tail) = (&text[..SHOWN / 2], &text[text.len() - SHOWN / 2..]);
    format!("{head} ...[{} characters]... {tail}", text.len() - SHOWN)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} at: {}", self.verdict, show(&self.request))?;
        for (name, answer) in &self.answers {
            let shown = answer.as_ref().map_or("(closed, or nothing more)".into(), |reply| {
                shorten(&reply.escape_ascii().to_string())
            });
            writeln!(f, "{name:>8}: {shown}")?;
        }
        writeln!(f, "after these requests (connection: request):")?;
        for step in &self.stream {
            writeln!(f, "  {}: {}", step.connection, show(&step.request))?;
        }
        if let Some(output) = &self.output {
            writeln!(f, "a server ended; its last lines:\n{output}")?;
        }
        write!(f, "to see it again: TARN_SEED={} TARN_STEPS=1", self.seed)
    }
}
