//! MIGRATE: keys go to another server, and from here.
//!
//! Thread rule: the slots of the keys are held, and their worker waits for the other server, for at most the request's
//! timeout at each step; other workers serve all other keys meanwhile (Redis serves nobody).
//!
//! A key is removed here only once the other server has said that it has it.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::table::ServerHandler;
use command::generic::dump::payload;
use command::key_use::{Begin, Find, TAKES};
use command::parse::int;
use command::{Error, Flags, Group, KeyFlags, KeySpec, Keys, Result, Row};
use keyspace::{Class, Key, Touch};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use wire::{Decoder, Reply, Request, Value, encode_request};

/// MIGRATE.
pub const ROWS: &[Row<ServerHandler>] = &[row("migrate", -6, Flags::WRITE.union(DANGEROUS), migrate)
    .keys(Keys::Movable(keys))
    .key_specs(&[
        KeySpec::at(3, TAKES),
        KeySpec {
            begin: Begin::Keyword("KEYS", -2),
            find: Find::Range { last: -1, step: 1, limit: 0 },
            flags: TAKES.union(KeyFlags::INCOMPLETE),
        },
    ])
    .group(Group::Generic)
    .since("2.6.0")
    .complexity("O(N) in the size of the values, at both servers, and what the network takes.")
    .syntax(
        "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] \
         [KEYS key [key ...]]",
    )
    .summary("Moves keys to another server.")
    .tips(&["nondeterministic_output"])];

const DANGEROUS: Flags = Flags::DANGEROUS.union(Flags::MOVABLEKEYS);
/// What Redis takes for a timeout that is none.
const TIMEOUT_USUAL_MS: u64 = 1000;
/// Position of the one key, empty where KEYS names several.
const KEY: usize = 3;
/// Position of the first option.
const OPTIONS: usize = 6;

/// What is asked for beyond the place to go to.
#[derive(Default)]
struct Options<'a> {
    copies: bool,
    replaces: bool,
    /// The words behind AUTH or AUTH2.
    credentials: Vec<&'a [u8]>,
    /// Where several keys begin.
    first_of_several: Option<usize>,
}

impl<'a> Options<'a> {
    fn parse(request: &Request<'a>) -> Result<Options<'a>> {
        let mut options = Options::default();
        let mut at = OPTIONS;
        while at < request.len() {
            let is = |word: &[u8]| request.arg(at).eq_ignore_ascii_case(word);
            let left = request.len() - at - 1;
            if is(b"copy") {
                options.copies = true;
            } else if is(b"replace") {
                options.replaces = true;
            } else if is(b"auth") && left >= 1 {
                options.credentials = vec![request.arg(at + 1)];
                at += 1;
            } else if is(b"auth2") && left >= 2 {
                options.credentials = vec![request.arg(at + 1), request.arg(at + 2)];
                at += 2;
            } else if is(b"keys") {
                if !request.arg(KEY).is_empty() {
                    return Err(Error::text(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                    ));
                }
                options.first_of_several = Some(at + 1);
                break;
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    fn keys(&self, request: &Request<'_>) -> Vec<usize> {
        self.first_of_several.map_or(vec![KEY], |first| (first..request.len()).collect())
    }
}

/// The positions of MIGRATE's keys.
fn keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    match Options::parse(request) {
        Ok(options) => positions.extend(options.keys(request)),
        Err(_) => positions.push(KEY),
    }
}

/// MIGRATE host port <key | ""> destination-db timeout [COPY] [REPLACE] [AUTH ...] [KEYS key ...]
fn migrate(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    let options = Options::parse(&request)?;
    let timeout = match int(request.arg(5))? {
        ..=0 => TIMEOUT_USUAL_MS,
        timeout => timeout as u64,
    };
    let db = int(request.arg(4))?;
    let (keyspace, own_db) = (&context.server.keyspace, context.session.db);
    let keys: Vec<Key<'_>> =
        options.keys(&request).into_iter().map(|at| keyspace.key(own_db, request.arg(at))).collect();
    // A transaction holds them already.
    let holds = !context.batch.is_holding();
    if holds {
        context.batch.hold(&keys);
    }
    let result = send_and_remove(context, &options, &keys, db, Duration::from_millis(timeout));
    if holds && !context.batch.has_ready() {
        context.batch.release();
    }
    match result? {
        0 => reply.simple("NOKEY"),
        _ => reply.ok(),
    }
    Ok(())
}

/// Sends the keys that are there, and removes those that arrived. How many were sent.
fn send_and_remove(
    context: &mut Context<'_, '_>,
    options: &Options<'_>,
    keys: &[Key<'_>],
    db: i64,
    timeout: Duration,
) -> Result<usize> {
    let (there, requests) = restoring(context, options, keys);
    if there.is_empty() {
        return Ok(0);
    }
    let mut target = Target::connect(&context.request, timeout)?;
    let answers = target.ask(options, db, &requests, there.len())?;
    let mut refusal = None;
    let mut arrived = Vec::new();
    // The answers to AUTH and SELECT come first.
    let (prefixes, restored) = answers.split_at(answers.len() - there.len());
    let refused_before = prefixes.iter().find_map(error_of);
    for (key, answer) in there.iter().zip(restored) {
        match error_of(answer).or(refused_before.clone()) {
            Some(text) => refusal = refusal.or(Some(text)),
            None => arrived.push(*key),
        }
    }
    if !options.copies && !arrived.is_empty() {
        let mut edit = context.batch.edit(&arrived, context.now, Touch::No);
        for key in &arrived {
            if edit.remove(key) {
                edit.note(Class::GENERIC, "del", key);
                edit.say(key, &[b"DEL", key.bytes]);
                context.server.counts.changes.add(1);
            }
        }
        edit.finish();
    }
    match refusal {
        None => Ok(there.len()),
        Some(text) => Err(Error::quoting("ERR Target instance replied with error: ", text.as_bytes(), "")),
    }
}

/// The keys that are there, and requests that make them elsewhere.
fn restoring<'k>(
    context: &mut Context<'_, '_>,
    options: &Options<'_>,
    keys: &[Key<'k>],
) -> (Vec<Key<'k>>, Vec<u8>) {
    let (mut there, mut requests) = (Vec::new(), Vec::new());
    let view = context.batch.view(keys, context.now, Touch::No);
    for key in keys {
        let Some(object) = view.peek(key) else { continue };
        let ttl = object.expires_at().map_or(0, |at| at.0.saturating_sub(context.now.0).max(1)).to_string();
        let payload = payload(object);
        let mut words = vec![&b"RESTORE"[..], key.bytes, ttl.as_bytes(), &payload];
        if options.replaces {
            words.push(b"REPLACE");
        }
        encode_request(&mut requests, &words);
        there.push(*key);
    }
    view.finish();
    (there, requests)
}

fn error_of(answer: &Value) -> Option<String> {
    match answer {
        Value::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

/// The connection to the other server.
struct Target(TcpStream);

impl Target {
    fn connect(request: &Request<'_>, timeout: Duration) -> Result<Target> {
        let failed = |_: io::Error| Error::text("IOERR error or timeout connecting to the client");
        let host = String::from_utf8_lossy(request.arg(1)).into_owned();
        let port = String::from_utf8_lossy(request.arg(2)).parse::<u16>();
        let port = port.map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
        let address = (host.as_str(), port).to_socket_addrs().map_err(failed)?.next();
        let address = address.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let stream = TcpStream::connect_timeout(&address, timeout).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(timeout)).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        Ok(Target(stream))
    }

    /// Sends AUTH, SELECT and the requests, and gives the answers to all.
    fn ask(&mut self, options: &Options<'_>, db: i64, requests: &[u8], count: usize) -> Result<Vec<Value>> {
        let mut out = Vec::with_capacity(requests.len() + 64);
        let mut expected = count + 1;
        if !options.credentials.is_empty() {
            let words: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(options.credentials.iter().copied()).collect();
            encode_request(&mut out, &words);
            expected += 1;
        }
        encode_request(&mut out, &[b"SELECT", db.to_string().as_bytes()]);
        out.extend_from_slice(requests);
        let failed =
            |doing: &str| Error::quoting("IOERR error or timeout ", doing.as_bytes(), " to target instance");
        self.0.write_all(&out).map_err(|_| failed("writing"))?;
        self.answers(expected).map_err(|_| failed("reading"))
    }

    fn answers(&mut self, expected: usize) -> io::Result<Vec<Value>> {
        let mut decoder = Decoder::new();
        let mut answers = Vec::new();
        let mut buffer = [0; 4096];
        while answers.len() < expected {
            match decoder.decode().map_err(|_| io::ErrorKind::InvalidData)? {
                Some(answer) => answers.push(answer),
                None => match self.0.read(&mut buffer)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => decoder.feed(&buffer[..count]),
                },
            }
        }
        Ok(answers)
    }
}
