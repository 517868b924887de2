//! The stream as a thread reads it: from the backlog, and where that does not go back so far, from the log's segments.

use crate::replicas::replica::Replica;
use crate::server::Server;
use ::log::StreamReader;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use telemetry::log;

/// How often who reads looks whether there is more.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How long something may take to become durable that was written.
const DURABLE_WITHIN: Duration = Duration::from_secs(60);

/// Bytes that are sent to one replica at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Reads the stream from an offset on.
pub struct Reading<'s> {
    server: &'s Server,
    offset: u64,
    /// What was read from the offset on, and was more than was asked for.
    ahead: Vec<u8>,
    /// It stands behind these.
    segments: Option<StreamReader>,
}

impl<'s> Reading<'s> {
    /// From this offset on.
    pub fn new(server: &'s Server, offset: u64) -> Reading<'s> {
        Reading { server, offset, ahead: Vec::new(), segments: None }
    }

    /// How far it is.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes that are there, none of them beyond `until`; nothing, if there are none yet.
    ///
    /// # Errors
    /// What it needs is not there any more, or cannot be read.
    pub fn next(&mut self, until: u64) -> io::Result<Vec<u8>> {
        let mut bytes = match std::mem::take(&mut self.ahead) {
            none if none.is_empty() => match self.of_backlog() {
                Some(bytes) => bytes,
                None => self.of_segments()?,
            },
            ahead => ahead,
        };
        let left = usize::try_from(until.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        if bytes.len() > left {
            self.ahead = bytes.split_off(left);
        }
        self.offset += bytes.len() as u64;
        Ok(bytes)
    }

    fn of_backlog(&mut self) -> Option<Vec<u8>> {
        let state = self.server.feeding.state.lock();
        let bytes = read_some(&state.backlog, self.offset)?;
        self.segments = None;
        Some(bytes)
    }

    fn of_segments(&mut self) -> io::Result<Vec<u8>> {
        let lost = || io::Error::other("what it needs of the stream is not kept any more");
        let log = self.server.engine.durability.log().ok_or_else(lost)?;
        for _ in 0..2 {
            let reader = match &mut self.segments {
                Some(reader) => reader,
                none => {
                    none.insert(log.read_stream(self.offset).map_err(io::Error::other)?.ok_or_else(lost)?)
                }
            };
            match reader.next_bytes().map_err(io::Error::other)? {
                Some(bytes) => return Ok(bytes),
                None => self.segments = None,
            }
        }
        Ok(Vec::new())
    }
}

/// Some bytes of the backlog from an offset on; None: it has not got them.
pub fn read_some(backlog: &Option<replication::feed::Backlog>, from: u64) -> Option<Vec<u8>> {
    let backlog = backlog.as_ref()?;
    let mut bytes = backlog.read(from)?.to_vec();
    while bytes.len() < PIECE_BYTES
        && let Some(more) = backlog.read(from + bytes.len() as u64).filter(|more| !more.is_empty())
    {
        bytes.extend_from_slice(more);
    }
    Some(bytes)
}

/// Waits until what was written up to an offset can be sent.
///
/// # Errors
/// If the log does not go on.
pub fn wait_until_sendable(server: &Server, offset: u64) -> io::Result<()> {
    let Some(log) = server.engine.durability.log() else { return Ok(()) };
    let began = Instant::now();
    loop {
        let end = server.feeding.state.lock().backlog.as_ref().map(|backlog| backlog.end());
        if end.is_none_or(|end| end >= offset) || log.stream().offset >= offset {
            return Ok(());
        }
        log.request_sync();
        log.writable().map_err(io::Error::other)?;
        if began.elapsed() > DURABLE_WITHIN || server.engine.is_ending() {
            return Err(io::Error::other("the log does not become durable"));
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Sends a replica that is further behind than the backlog what it lacks, in a thread of its own.
pub fn catch_up(server: &Arc<Server>, replica: &Arc<Replica>, from: u64) {
    replica.go_on(None);
    let (thread_server, thread_replica) = (server.clone(), replica.clone());
    let spawned = thread::Builder::new().name("replica-behind".to_owned()).spawn(move || {
        if let Err(error) = run(&thread_server, &thread_replica, from) {
            close(&thread_server, &thread_replica, &error);
        }
    });
    if let Err(error) = spawned {
        close(server, replica, &error);
    }
}

fn run(server: &Server, replica: &Replica, from: u64) -> io::Result<()> {
    let patience = patience(server);
    let mut reading = Reading::new(server, from);
    loop {
        if server.feeding.has_in_backlog(reading.offset()) {
            replica.go_on(Some(reading.offset()));
            return Ok(());
        }
        let before = reading.offset();
        let bytes = reading.next(u64::MAX)?;
        server.feeding.look_at(replica, &bytes, before)?;
        if bytes.is_empty() {
            // What was written before the backlog began, and is not on disk.
            server.engine.durability.log().into_iter().for_each(|log| log.request_sync());
            thread::sleep(LOOK_AGAIN);
        }
        replica.send(bytes, patience)?;
        replica.set_position(reading.offset());
    }
}

/// How long a replica may read nothing.
pub fn patience(server: &Server) -> Duration {
    Duration::from_secs(server.engine.config.repl_timeout_s())
}

/// Ends a replica's connection, and says why.
pub fn close(server: &Server, replica: &Replica, error: &io::Error) {
    if replica.is_gone() {
        log!(Notice, "Connection with replica {} lost.", replica.name());
        return;
    }
    log!(Warning, "Replica {} is closed: {error}", replica.name());
    server.net.clients.kill(&replica.client);
}
