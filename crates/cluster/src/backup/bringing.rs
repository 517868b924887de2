//! One shard's file on its way to the master of a shard that has nothing yet: as requests that make each key, in the way in which slots come from another shard.
//!
//! Nobody sees any of it before slots have owners, and nothing of it expires before.

use super::Reach;
use super::manifest::ShardFile;
use super::reading::{self, Kind, Taker, kind};
use crate::asking::Asking;
use command::pieces::{Pieces, Progress, Words};
use keyspace::ValueRef;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::UnixMs;
use topology::Server;
use value::rdb::Restored;
use value::rdb::file::FileEntry;
use wire::{Request, Value};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a master may take to know what it is.
const WELCOME: Duration = Duration::from_secs(30);
/// Between two questions.
const LOOKING: Duration = Duration::from_millis(50);
/// Bytes that were sent and are not answered, at most.
const WINDOW_BYTES: usize = 16 << 20;
/// What is sent at a time.
const PIECE_BYTES: usize = 96 << 10;
/// A value that is longer is brought in pieces.
const VALUE_BYTES: usize = 120 << 10;

/// A server that has all of a shard's file.
pub struct Brought {
    /// The connection on which it was brought.
    asking: Asking,
    /// In which the server was master when it began.
    pub epoch: u64,
}

impl Brought {
    /// Whether what was brought is still all there: the server is still master, and nobody has emptied it, or brings another backup.
    ///
    /// # Errors
    /// It is not, or cannot be asked.
    pub fn confirm(&mut self) -> Result<(), String> {
        match self.asking.ask(&["SLOTMOVE", "CONFIRM"], PATIENCE)? {
            Value::Int(1) => Ok(()),
            _ => Err("what was brought is not whole".to_owned()),
        }
    }
}

/// Brings a shard's file to a server. Counts bytes that are read.
///
/// # Errors
/// One sentence. What was brought is nobody's.
pub fn bring(
    reach: &Reach,
    (path, one): (&Path, &ShardFile),
    to: &Server,
    restore: u64,
    done: &AtomicU64,
) -> Result<Brought, String> {
    let (asking, epoch) = welcome(reach, to, restore)?;
    let mut bringing = Bringing {
        asking,
        pending: None,
        outstanding: VecDeque::new(),
        bytes: 0,
        words: Words::default(),
        functions: Vec::new(),
        done,
    };
    reading::read(path, (one.from, one.until), &mut bringing)?;
    bringing.settle()?;
    bringing.load_functions()?;
    let mut brought = Brought { asking: bringing.asking, epoch };
    brought.confirm()?;
    Ok(brought)
}

/// Has a server take what is brought, and forget what was brought before. Gives the epoch in which it is master.
///
/// # Errors
/// One sentence.
pub fn welcome(reach: &Reach, to: &Server, restore: u64) -> Result<(Asking, u64), String> {
    let began = Instant::now();
    loop {
        let mut asking = reach.server(to)?;
        match asking.ask(&["SLOTMOVE", "RESTORE", &restore.to_string()], PATIENCE) {
            Ok(Value::Int(epoch)) => return Ok((asking, u64::try_from(epoch).unwrap_or_default())),
            Ok(_) => return Err("the server does not say in which epoch it is master".to_owned()),
            // It will be master in a moment, or its copies are not members yet.
            Err(why)
                if ["SLOTMOVE-LATER", "READONLY", "LOADING", "NOREPLICAS"]
                    .iter()
                    .any(|word| why.starts_with(word))
                    && began.elapsed() < WELCOME => {}
            Err(why) => return Err(why),
        }
        thread::sleep(LOOKING);
    }
}

struct Bringing<'b> {
    asking: Asking,
    /// Requests that wait for more of their database.
    pending: Option<(u32, Vec<u8>)>,
    /// How long what is not answered is.
    outstanding: VecDeque<usize>,
    bytes: usize,
    words: Words,
    /// What is to be said of functions, in this order.
    functions: Vec<Vec<Vec<u8>>>,
    done: &'b AtomicU64,
}

impl Bringing<'_> {
    fn send(&mut self, database: u32, requests: &[u8]) -> Result<(), String> {
        match &mut self.pending {
            Some((own, pending)) if *own == database => pending.extend_from_slice(requests),
            _ => {
                self.flush()?;
                self.pending = Some((database, requests.to_vec()));
            }
        }
        match self.pending.as_ref().is_some_and(|(_, pending)| pending.len() >= PIECE_BYTES) {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        let Some((database, requests)) = self.pending.take() else { return Ok(()) };
        while self.bytes + requests.len() > WINDOW_BYTES && !self.outstanding.is_empty() {
            self.receive()?;
        }
        self.asking
            .say(&[&b"SLOTMOVE"[..], b"APPLY", database.to_string().as_bytes(), &requests], PATIENCE)?;
        self.outstanding.push_back(requests.len());
        self.bytes += requests.len();
        Ok(())
    }

    fn receive(&mut self) -> Result<(), String> {
        self.asking.receive(PATIENCE)?;
        self.bytes -= self.outstanding.pop_front().unwrap_or_default();
        Ok(())
    }

    /// Waits until all that there was is answered: it is committed then.
    fn settle(&mut self) -> Result<(), String> {
        self.flush()?;
        while !self.outstanding.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    fn load_functions(&mut self) -> Result<(), String> {
        for request in std::mem::take(&mut self.functions) {
            self.asking.say(&request.iter().map(Vec::as_slice).collect::<Vec<_>>(), PATIENCE)?;
            self.asking.receive(PATIENCE).map_err(|why| format!("its functions: {why}"))?;
        }
        Ok(())
    }
}

impl Taker for Bringing<'_> {
    fn key(&mut self, entry: FileEntry) -> Result<(), String> {
        let database =
            u32::try_from(entry.database).map_err(|_| "a number of a database is none".to_owned())?;
        let value = match &entry.value {
            Restored::String(bytes) => ValueRef::Bytes(bytes),
            Restored::Collection(collection) => ValueRef::Collection(collection.as_ref()),
        };
        let pieces = Pieces::of_value(&entry.key, value, entry.expires_at_ms.map(UnixMs), VALUE_BYTES);
        let (mut progress, mut requests) = (Progress::Nothing, Vec::new());
        while progress != Progress::Everything {
            progress = pieces.encode_next(progress, &mut self.words, &mut requests);
            if requests.len() >= PIECE_BYTES || progress == Progress::Everything {
                self.send(database, &requests)?;
                requests.clear();
            }
        }
        Ok(())
    }

    fn request(&mut self, database: u32, request: &Request<'_>, bytes: &[u8]) -> Result<(), String> {
        match kind(request) {
            Kind::Keys => self.send(database, bytes),
            Kind::Functions => {
                self.functions.push(request.iter().map(<[u8]>::to_vec).collect());
                Ok(())
            }
            Kind::Nothing => Ok(()),
            Kind::All => Err("a database was emptied while it was copied".to_owned()),
        }
    }

    fn libraries(&mut self, codes: Vec<Vec<u8>>) -> Result<(), String> {
        let load = |code| vec![b"FUNCTION".to_vec(), b"LOAD".to_vec(), b"REPLACE".to_vec(), code];
        self.functions.extend(codes.into_iter().map(load));
        Ok(())
    }

    fn passed(&mut self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}
