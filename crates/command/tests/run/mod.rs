//! Commands run in process: a keyspace, a clock that stands still until it is
//! moved, and replies in a form that is easy to read and compare.
//!
//! A reply is written `+OK`, `-ERR text`, `:1`, `"bulk"`, `nil`, `nil-array`,
//! `[a, b]`, `{key: value}`, `~{a, b}`, `,1.5`, `#t`.

#![allow(dead_code)] // Each test binary uses its part.

pub mod cases;

use command::{Args, Error, FAMILIES, Outcome, Row, Settings, execute, row::Flags};
use keyspace::{DbIndex, KeyHasher, Keyspace, Options, Touch};
use sys::{Clock, UnixMs};
use wire::{Decoder, Protocol, Reply, RequestBuf, Value, quote, split_words};

/// Where the simulated clock starts: 2023-11-14, so that moments of the eighties
/// are past and those of the next century are not.
pub const START: UnixMs = UnixMs(1_700_000_000_000);

/// A server without a socket.
pub struct Run {
    pub keyspace: Keyspace,
    pub clock: Clock,
    pub settings: Settings,
    pub protocol: Protocol,
    /// What the last command said of its effect; none after an error.
    pub outcome: Option<Outcome>,
}

impl Default for Run {
    fn default() -> Run {
        let hasher = KeyHasher::from_seed(1);
        Run {
            keyspace: Keyspace::new(Options {
                databases: 16,
                workers: 1,
                guests: 0,
                hasher,
                seed: 1,
                now: START,
            }),
            clock: Clock::simulated(START),
            settings: Settings::default(),
            protocol: Protocol::Resp2,
            outcome: None,
        }
    }
}

impl Run {
    /// Runs one command, written as in redis-cli.
    pub fn run(&mut self, line: &str) -> String {
        self.run_words(&split_words(line.as_bytes()).expect("quotes of a test's command match"))
    }

    /// Runs one command.
    pub fn run_words<W: AsRef<[u8]>>(&mut self, words: &[W]) -> String {
        let out = self.run_raw(words);
        render_bytes(&out)
    }

    /// Runs one command and gives the reply's bytes.
    pub fn run_raw<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Vec<u8> {
        let request = RequestBuf::from_args(words);
        let request = request.as_request();
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, self.protocol);
        let row = find_row(request.arg(0), request.get(1));
        let result = match row {
            None => self.probe(words, &mut reply).map(|()| Outcome::Unchanged),
            Some(row) if !row.accepts(request.len()) => Err(Error::arity(row.name)),
            Some(row) => {
                let (db, now) = (DbIndex(0), self.clock.now());
                let args = Args::new(request, &self.keyspace, (db, now), &self.settings);
                let touch = if row.flags.contains(Flags::NO_TOUCH) { Touch::No } else { Touch::Yes };
                let mut batch = self.keyspace.enter(0);
                execute(row, &mut batch, &args, touch, &mut reply)
            }
        };
        if let Err(error) = &result {
            out.clear();
            Reply::new(&mut out, self.protocol).error(error.as_bytes());
        }
        self.outcome = result.ok();
        out
    }

    /// What a family's cases look at keys with, answered from the keyspace, so that
    /// they depend on no other family: OBJECT ENCODING, TTL, PEXPIRETIME, EXISTS of one key.
    fn probe<W: AsRef<[u8]>>(&self, words: &[W], reply: &mut Reply<'_>) -> Result<(), Error> {
        let word = |at: usize| words[at].as_ref().to_ascii_uppercase();
        let name = word(0);
        let batch = self.keyspace.enter(0);
        let key = words.last().expect("a command has words").as_ref();
        let key = self.keyspace.key(DbIndex(0), key);
        let view = batch.view(&[key], self.clock.now(), Touch::No);
        let object = view.peek(&key);
        let Some(object) = object else {
            match &name[..] {
                b"OBJECT" => reply.null(),
                b"EXISTS" => reply.int(0),
                _ => reply.int(-2),
            }
            return Ok(());
        };
        let expires_at = object.expires_at();
        match &name[..] {
            b"OBJECT" if word(1) == b"ENCODING" => reply.bulk(object.encoding().name().as_bytes()),
            b"EXISTS" => reply.int(1),
            b"PEXPIRETIME" => reply.int(expires_at.map_or(-1, |at| at.0 as i64)),
            b"TTL" => reply.int(expires_at.map_or(-1, |at| (at.0 - self.clock.now().0 + 500) as i64 / 1000)),
            _ => panic!("no command {}", name.escape_ascii()),
        }
        Ok(())
    }
}

/// The row of a command, or of a subcommand where the name is a container's.
pub fn find_row(name: &[u8], second: Option<&[u8]>) -> Option<&'static Row> {
    let named = |row: &&Row, name: &[u8]| row.name.as_bytes().eq_ignore_ascii_case(name);
    let row = FAMILIES.iter().flat_map(|rows| rows.iter()).find(|row| named(row, name))?;
    let full = [name, b"|", second.unwrap_or_default()].concat();
    Some(row.subcommands.iter().find(|row| named(row, &full)).unwrap_or(row))
}

/// A reply's bytes in readable form.
pub fn render_bytes(bytes: &[u8]) -> String {
    let mut decoder = Decoder::new();
    decoder.feed(bytes);
    let value = decoder.decode().expect("the reply is well formed").expect("the reply is complete");
    assert_eq!(decoder.buffered_bytes(), 0, "one reply and no more: {}", bytes.escape_ascii());
    render(&value)
}

/// A reply in readable form.
pub fn render(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(render).collect::<Vec<_>>().join(", ");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Simple(line) => format!("+{}", text(line)),
        Value::Error(line) => format!("-{}", text(line)),
        Value::Int(number) => format!(":{number}"),
        Value::Bulk(bytes) => quote(bytes),
        Value::Null => "nil".into(),
        Value::NullArray => "nil-array".into(),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Set(values) => format!("~{{{}}}", list(values)),
        Value::Push(values) => format!(">[{}]", list(values)),
        Value::Map(pairs) => {
            let pairs: Vec<_> =
                pairs.iter().map(|(key, value)| format!("{}: {}", render(key), render(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Double(number) => format!(",{number}"),
        Value::Bool(truth) => if *truth { "#t" } else { "#f" }.into(),
        Value::Verbatim(format, bytes) => format!("={}:{}", text(format), quote(bytes)),
        Value::BigNumber(digits) => format!("({}", text(digits)),
        Value::Attribute(_, value) => render(value),
    }
}
