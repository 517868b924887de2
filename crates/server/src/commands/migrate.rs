//! MIGRATE: keys go to another server, and from here.
//!
//! Thread rule: the slots of the keys are held, and their worker waits for the other server; other workers serve all other
//! keys and its connections meanwhile (Redis serves nobody).
//!
//! The other server is not trusted. All of it, the look-up of its name included, has to be done within the request's timeout
//! and what the keys take at [`BYTES_PER_MS`], however busy it keeps us; nothing is kept of its answers but what fits into
//! [`LINE_BYTES_MAX`].
//!
//! A key is removed here only once the other server has said that it has it.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::table::ServerHandler;
use crate::worker::make_way;
use command::generic::dump::payload;
use command::key_use::{Begin, Find, TAKES};
use command::parse::int;
use command::{Error, Flags, Group, KeyFlags, KeySpec, Keys, Result, Row, Shows};
use keyspace::{Class, Key, Touch};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use wire::{Reply, Request, encode_request};

/// MIGRATE.
pub const ROWS: &[Row<ServerHandler>] = &[row("migrate", -6, Flags::WRITE.union(DANGEROUS), migrate)
    .shows(Shows::WhatItNotes)
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
/// The pace at which a transfer may take longer than the timeout: a megabyte a second.
const BYTES_PER_MS: usize = 1000;
/// The longest line of an answer: an error's text.
const LINE_BYTES_MAX: usize = 64 << 10;
/// How long it waits before it lets others have its worker's connections.
const PATIENCE: Duration = Duration::from_millis(10);
/// Names that are looked up at once. One that takes long keeps a thread.
const LOOK_UPS_MAX: usize = 16;
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
    if holds && !context.batch.try_hold(&keys) {
        return Err(Error::InUse);
    }
    context.now = context.batch.moment(context.now);
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
    await_disk(context, timeout)?;
    let mut target = Target::connect(&context.request, timeout, requests.len())?;
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
        None => Ok(there.len()),
        Some(text) => Err(Error::quoting("ERR Target instance replied with error: ", &text, "")),
    }
}

/// Waits until what was seen of the keys is on disk: the other server must not have what a crash here could take back.
fn await_disk(context: &mut Context<'_, '_>, timeout: Duration) -> Result<()> {
    let durability = &context.server.durability;
    // In a transaction they may have been written just now.
    if context.batch.is_holding() {
        context.batch.settle_held();
    }
    let began = Instant::now();
    while !durability.gate.is_open(context.batch.seen()) {
        if began.elapsed() >= timeout {
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
}

/// The connection to the other server.
struct Target {
    stream: TcpStream,
    /// When all has to be done.
    deadline: Instant,
    /// What has been read and is no whole line yet.
    partial: Vec<u8>,
}

impl Target {
    fn connect(request: &Request<'_>, timeout: Duration, bytes: usize) -> Result<Target> {
        let begun = Instant::now();
        let failed = |_: io::Error| Error::text("IOERR error or timeout connecting to the client");
        let host = String::from_utf8_lossy(request.arg(1)).into_owned();
        let port = String::from_utf8_lossy(request.arg(2)).parse::<u16>();
        let port = port.map_err(|_| failed(ErrorKind::InvalidInput.into()))?;
        let addresses = look_up(host, port, begun + timeout).map_err(failed)?;
        let stream = connect_to_any(&addresses, begun + timeout).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let deadline = begun + timeout + Duration::from_millis((bytes / BYTES_PER_MS) as u64);
        Ok(Target { stream, deadline, partial: Vec::new() })
    }

    /// Sends AUTH, SELECT and the requests, and reads the answers to all.
    fn ask(&mut self, options: &Options<'_>, db: i64, requests: &[u8], count: usize) -> Result<Verdicts> {
        let mut head = Vec::new();
        let mut before = 1;
        if !options.credentials.is_empty() {
            let words: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(options.credentials.iter().copied()).collect();
            encode_request(&mut head, &words);
            before += 1;
        }
        encode_request(&mut head, &[b"SELECT", db.to_string().as_bytes()]);
        let failed =
            |doing: &str| Error::quoting("IOERR error or timeout ", doing.as_bytes(), " to target instance");
        self.write(&head).and_then(|()| self.write(requests)).map_err(|_| failed("writing"))?;
        self.verdicts(before, count).map_err(|_| failed("reading"))
    }

    /// What was refused before the keys refuses them all.
    fn verdicts(&mut self, before: usize, count: usize) -> io::Result<Verdicts> {
        let mut verdicts = Verdicts::default();
        for _ in 0..before {
            verdicts.refusal = self.refusal()?.or(verdicts.refusal);
        }
        let is_open = verdicts.refusal.is_none();
        for _ in 0..count {
            let refusal = self.refusal()?;
            verdicts.taken.push(is_open && refusal.is_none());
            verdicts.refusal = verdicts.refusal.or(refusal);
        }
        Ok(verdicts)
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.in_time(|stream| stream.write(bytes))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
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
            match self.in_time(|stream| stream.read(&mut piece))? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.partial.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// Does something with the socket that may take until the deadline, but does not begin it later.
    fn in_time<T>(&mut self, mut act: impl FnMut(&mut TcpStream) -> io::Result<T>) -> io::Result<T> {
        while Instant::now() < self.deadline {
            match act(&mut self.stream) {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) =>
                {
                    make_way();
                }
                result => return result,
            }
        }
        Err(ErrorKind::TimedOut.into())
    }
}

/// The addresses of a host, if they are known in time.
fn look_up(host: String, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    in_thread(deadline, move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
}

/// Runs in a thread what has no time limit of its own; it is not waited for beyond the deadline.
fn in_thread<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    if RUNNING.fetch_add(1, Ordering::Relaxed) >= LOOK_UPS_MAX {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        return Err(ErrorKind::WouldBlock.into());
    }
    let (tell, told) = mpsc::channel();
    let run = move || {
        // Nobody may be waiting any more.
        let _ = tell.send(work());
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("look-up".to_owned()).spawn(run);
    if let Err(error) = thread {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        return Err(error);
    }
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok(result) => return result,
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => make_way(),
            Err(_) => return Err(ErrorKind::TimedOut.into()),
        }
    }
}

fn connect_to_any(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut result = Err(ErrorKind::NotFound.into());
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        make_way();
        result = TcpStream::connect_timeout(address, left);
        if result.is_ok() {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_that_do_not_end_are_not_waited_for() {
        let (end, ended) = mpsc::channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        for number in 0..LOOK_UPS_MAX + 3 {
            let ended = ended.clone();
            let hang = move || {
                let _ = ended.lock().map(|ended| ended.recv());
                Ok(())
            };
            let error = in_thread(Instant::now(), hang).unwrap_err();
            let is_refused = number >= LOOK_UPS_MAX;
            assert_eq!(error.kind(), if is_refused { ErrorKind::WouldBlock } else { ErrorKind::TimedOut });
        }
        drop(end);
        // Their threads end, and there is room again.
        while in_thread(Instant::now() + Duration::from_secs(60), || Ok(7)).ok() != Some(7) {
            std::thread::yield_now();
        }
    }
}
