//! MIGRATE: keys go to another server, and from here.
//!
//! Thread rule: the slots of the keys are held, and their worker waits for the other server; other workers serve all other
//! keys and its connections meanwhile (Redis serves nobody). Who needs what is held is held back as behind a slow script, but is never
//! told that anything is busy, since the wait has an end. When the server ends, the wait does, too.
//!
//! The other server is not trusted. All of it, the look-up of its name included, has to be done within the request's timeout
//! and what the keys take at [`BYTES_PER_MS`], however busy it keeps us; nothing is kept of its answers but what fits into
//! [`LINE_BYTES_MAX`].
//!
//! A key is removed here only once the other server has said that it has it.
//!
//! The other server gets nothing that a crash here could take back: what was seen of the keys is on disk before. What its own transaction
//! or script has written cannot be, since that is one record at its end; MIGRATE refuses such keys.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use crate::holders::{Run, What};
use crate::server::Server;
use command::generic::dump::payload;
use command::key_use::{Begin, Find, TAKES};
use command::parse::int;
use command::{
    Error, Flags, Group, KeyFlags, KeySpec, Keys, OptionWords, Reach, Result, Row, Secrets, Shows,
};
use keyspace::{Class, Key, Touch};
use net::connect::{self, Outgoing, PATIENCE};
use net::worker::make_way;
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Reply, Request, encode_request};

/// MIGRATE.
pub const ROWS: &[Row<ServerHandler>] = &[row("migrate", -6, Reach::Keys, Flags::WRITE.union(DANGEROUS), migrate)
        .flags(Flags::WAITS_FOR_OTHERS)
    .shows(Shows::WhatItNotes)
    .secrets(Secrets::OfOptions(OPTIONS, OPTION_WORDS))
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

/// What may follow the timeout.
const OPTION_WORDS: &[OptionWords] = &[
    OptionWords::shown("copy", 0),
    OptionWords::shown("replace", 0),
    OptionWords::secret("auth", 1),
    OptionWords::secret("auth2", 2),
    OptionWords::shown("keys", usize::MAX),
];

const DANGEROUS: Flags = Flags::DANGEROUS.union(Flags::MOVABLEKEYS);
/// What Redis takes for a timeout that is none.
const TIMEOUT_USUAL_MS: u64 = 1000;
/// The pace at which a transfer may take longer than the timeout: a megabyte a second.
const BYTES_PER_MS: usize = 1000;
/// The longest line of an answer: an error's text.
const LINE_BYTES_MAX: usize = 64 << 10;
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
    let (keyspace, own_db) = (&context.server.engine.keyspace, context.session.db);
    let keys: Vec<Key<'_>> =
        options.keys(&request).into_iter().map(|at| keyspace.key(own_db, request.arg(at))).collect();
    // A transaction holds them already.
    let holds = !context.batch.is_holding();
    if holds && !context.batch.try_hold(&keys) {
        return Err(Error::InUse);
    }
    context.session.give_up_claim(context.server);
    context.now = context.batch.moment(context.now);
    let mut watch = Watch::new(context);
    let result = send_and_remove(context, &options, &keys, db, &mut watch, Duration::from_millis(timeout));
    drop(watch);
    if holds && !context.batch.has_ready() {
        context.batch.release();
    }
    match result? {
        0 => reply.simple("NOKEY"),
        _ => reply.ok(),
    }
    Ok(())
}

/// What MIGRATE does while it waits.
struct Watch {
    server: Arc<Server>,
    run: Arc<Run>,
    is_slow: bool,
    looked_at: Instant,
}

impl Watch {
    fn new(context: &Context<'_, '_>) -> Watch {
        let began = Instant::now();
        let run = Run {
            what: What::Migration,
            words: context.request.iter().map(<[u8]>::to_vec).collect(),
            began,
            wrote: false.into(),
            is_killed: false.into(),
            holding: Mutex::new(context.batch.holding()),
        };
        Watch { server: context.server.clone(), run: Arc::new(run), is_slow: false, looked_at: began }
    }

    /// To be called again and again.
    ///
    /// # Errors
    /// The server ends.
    fn look(&mut self) -> io::Result<()> {
        if self.looked_at.elapsed() < PATIENCE {
            return Ok(());
        }
        self.looked_at = Instant::now();
        if self.server.engine.is_ending() {
            return Err(io::Error::other("the server ends"));
        }
        if !self.is_slow {
            self.is_slow = true;
            self.server.holders.add(&self.server.engine, &self.run);
        }
        make_way();
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.is_slow {
            let server = &self.server;
            server.holders.remove(&server.engine, &server.bells, &self.run);
        }
    }
}

/// Sends the keys that are there, and removes those that arrived. How many were sent.
fn send_and_remove(
    context: &mut Context<'_, '_>,
    options: &Options<'_>,
    keys: &[Key<'_>],
    db: i64,
    watch: &mut Watch,
    timeout: Duration,
) -> Result<usize> {
    let (there, requests) = restoring(context, options, keys);
    if there.is_empty() {
        return Ok(0);
    }
    if there.iter().any(|key| context.batch.may_have_changed(key)) {
        return Err(Error::text(
            "ERR MIGRATE can't send a key that its own transaction or script may have changed: that is on disk with all of it or not at all",
        ));
    }
    await_disk(context, watch, timeout)?;
    let mut target = Target::connect(&context.request, watch, timeout, requests.len())?;
    let verdicts = target.ask(options, db, &requests, there.len())?;
    let arrived: Vec<Key<'_>> =
        there.iter().zip(&verdicts.taken).filter(|(_, is_taken)| **is_taken).map(|(key, _)| *key).collect();
    if !options.copies && !arrived.is_empty() {
        let mut edit = context.batch.edit(&arrived, context.now, Touch::No);
        let mut removed = 0;
        for key in &arrived {
            if edit.remove(key) {
                edit.note(Class::GENERIC, "del", key);
                edit.say(key, &[b"DEL", key.bytes]);
                removed += 1;
            }
        }
        edit.finish();
        (0..removed).for_each(|_| context.batch.count_write());
    }
    match verdicts.refusal {
        Some(text) => Err(Error::quoting("ERR Target instance replied with error: ", &text, "")),
        None if verdicts.is_cut => Err(failed("reading")),
        None => Ok(there.len()),
    }
}

/// Waits until what was seen of the keys is on disk: the other server must not have what a crash here could take back.
fn await_disk(context: &Context<'_, '_>, watch: &mut Watch, timeout: Duration) -> Result<()> {
    let durability = &context.server.engine.durability;
    let began = Instant::now();
    while !context.server.net.gate.is_open(context.batch.seen()) {
        if began.elapsed() >= timeout || watch.look().is_err() {
            return Err(Error::text("IOERR error or timeout waiting for the disk"));
        }
        if let Some(log) = durability.log() {
            log.nudge();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
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

/// What the other server said.
#[derive(Default)]
struct Verdicts {
    /// Which of the keys it has.
    taken: Vec<bool>,
    /// The first error.
    refusal: Option<Vec<u8>>,
    /// Nothing came of the keys behind these.
    is_cut: bool,
}

/// What a client is told when the other server could not be talked to.
fn failed(doing: &str) -> Error {
    Error::quoting("IOERR error or timeout ", doing.as_bytes(), " to target instance")
}

/// The connection to the other server.
struct Target<'w> {
    outgoing: Outgoing,
    watch: &'w mut Watch,
    /// What has been read and is no whole line yet.
    partial: Vec<u8>,
}

impl Target<'_> {
    fn connect<'w>(
        request: &Request<'_>,
        watch: &'w mut Watch,
        timeout: Duration,
        bytes: usize,
    ) -> Result<Target<'w>> {
        let (begun, is_secure) = (Instant::now(), watch.server.engine.config.tls_cluster());
        let failed = |error: io::Error| {
            // A real server learns only when it writes that nobody listens, but for TLS.
            Error::text(match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::HostUnreachable
                    if !is_secure =>
                {
                    "IOERR error or timeout writing to target instance"
                }
                _ => "IOERR error or timeout connecting to the client",
            })
        };
        let host = String::from_utf8_lossy(request.arg(1)).into_owned();
        let port = String::from_utf8_lossy(request.arg(2)).parse::<u16>();
        let port = port.map_err(|_| failed(ErrorKind::InvalidInput.into()))?;
        let context = match is_secure {
            false => None,
            true => Some(tls_context(&watch.server).map_err(failed)?),
        };
        let mut look = || watch.look();
        let connected = Outgoing::connect(host, port, context, begun + timeout, &mut look);
        let mut outgoing = connected.map_err(failed)?;
        outgoing.set_deadline(begun + timeout + Duration::from_millis((bytes / BYTES_PER_MS) as u64));
        Ok(Target { outgoing, watch, partial: Vec::new() })
    }

    /// Sends AUTH, SELECT and the requests, and reads the answers to all.
    fn ask(&mut self, options: &Options<'_>, db: i64, requests: &[u8], count: usize) -> Result<Verdicts> {
        let mut head = Vec::new();
        let mut before = 1;
        if !options.credentials.is_empty() {
            connect::encode_authentication(&mut head, &options.credentials);
            before += 1;
        }
        encode_request(&mut head, &[b"SELECT", db.to_string().as_bytes()]);
        self.write(&head).and_then(|()| self.write(requests)).map_err(|_| failed("writing"))?;
        self.verdicts(before, count).map_err(|_| failed("reading"))
    }

    /// What was refused before the keys refuses them all. What was said of some counts though the connection breaks before the
    /// others.
    fn verdicts(&mut self, before: usize, count: usize) -> io::Result<Verdicts> {
        let mut verdicts = Verdicts::default();
        for _ in 0..before {
            // The first one says why: without AUTH the rest is refused, too.
            let refusal = self.refusal()?;
            verdicts.refusal = verdicts.refusal.or(refusal);
        }
        let is_open = verdicts.refusal.is_none();
        for place in 0..count {
            let refusal = match self.refusal() {
                Ok(refusal) => refusal,
                Err(error) if place == 0 => return Err(error),
                Err(_) => {
                    verdicts.is_cut = true;
                    break;
                }
            };
            verdicts.taken.push(is_open && refusal.is_none());
            verdicts.refusal = verdicts.refusal.or(refusal);
        }
        Ok(verdicts)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Target { outgoing, watch, .. } = self;
        outgoing.write_all(bytes, &mut || watch.look())
    }

    /// The next answer's text, if it is an error.
    fn refusal(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        match line.as_slice() {
            [b'+', ..] => Ok(None),
            [b'-', text @ ..] => Ok(Some(text.to_vec())),
            // These requests have no other answers.
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        let mut piece = [0; 4096];
        loop {
            if let Some(end) = self.partial[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.partial.split_off(searched + end + 1);
                let mut line = std::mem::replace(&mut self.partial, rest);
                line.truncate(line.len() - if line.ends_with(b"\r\n") { 2 } else { 1 });
                return Ok(line);
            }
            searched = self.partial.len();
            if searched > LINE_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            let Target { outgoing, watch, .. } = &mut *self;
            match outgoing.read(&mut piece, &mut || watch.look())? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.partial.extend_from_slice(&piece[..count]),
            }
        }
    }
}

/// What a connection with TLS to the other server is made from.
fn tls_context(server: &Server) -> io::Result<Arc<ClientConfig>> {
    let context = server.net.tls.contexts().and_then(|contexts| contexts.client.clone());
    context.ok_or_else(|| io::Error::other("there is none"))
}
