//! A full copy of the master's data: written to a file of its own as it comes, then put in the place of all that is here.

use super::link::look;
use super::taken;
use crate::blocking;
use crate::feeding::unfinished;
use crate::server::Server;
use ::log::{Lsn, ReplicationId, Stream};
use engine::replacement::{self, Alone, Beside, Checked, Failure, Loaded};
use engine::scripts::Libraries;
use keyspace::{DbIndex, Holding};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use sys::file::{File, Fs, Mode};
use telemetry::log;

/// The file that a copy is written to. It goes with the last use of it; what a crash leaves goes at the next start.
pub struct Spool {
    file: File,
    path: PathBuf,
    bytes: u64,
}

/// Pieces of what has come that are not read through yet.
const PIECES: usize = 8;

/// The file's name in the server's directory.
const NAME: &str = "temp-sync.rdb.tmp";

/// Where a copy lies on disk, or would.
pub fn path(server: &Server) -> PathBuf {
    server.engine.dir().join(NAME)
}

impl Spool {
    /// An empty one.
    pub fn begin(server: &Server) -> io::Result<Spool> {
        let path = path(server);
        Ok(Spool { file: Fs::Real.open(&path, Mode::Truncate)?, path, bytes: 0 })
    }

    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(bytes, self.bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// What comes of a copy, for whoever reads it through meanwhile.
pub struct Arriving {
    from: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Arriving {
    /// The two ends: a few pieces wait between them.
    pub fn channel() -> (SyncSender<Vec<u8>>, Arriving) {
        let (to, from) = sync_channel(PIECES);
        (to, Arriving { from, piece: Vec::new(), at: 0 })
    }
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            // Whoever has the other end says nothing more at the end of the copy, or when it gives up.
            let Ok(piece) = self.from.recv() else { return Ok(0) };
            (self.piece, self.at) = (piece, 0);
        }
        let count = into.len().min(self.piece.len() - self.at);
        into[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // What stays is overwritten by the next copy.
        let _ = Fs::Real.remove(&self.path);
    }
}

/// What is to take the place of all that is here.
pub enum Coming<'c> {
    /// It is to be loaded from its file, with these libraries.
    File(&'c Path, Libraries),
    /// It was loaded beside what is here, and these are its libraries.
    Loaded(Box<Loaded>, Libraries, &'c Beside<'c>),
}

/// The stream behind a copy.
pub fn stream_behind(checked: &Checked, stream: Stream) -> Stream {
    Stream { selected: Some(checked.selected), is_masters: true, ..stream }
}

/// Puts a copy that was read through in the place of all that is here; it is of one moment from an offset on, and `stream` goes on behind it.
/// Calls `meanwhile` often.
///
/// # Errors
/// It is wanted no more, or cannot be loaded.
pub fn put_in_place(
    server: &Server,
    order: u64,
    (coming, until): (Coming<'_>, u64),
    stream: Stream,
    meanwhile: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Stream> {
    let engine = &server.engine;
    let alone = match &coming {
        Coming::File(..) => {
            // Until all have left; who comes then is told that data are being loaded.
            let mut waits = || {
                meanwhile()?;
                look(server, order)
            };
            Some(server.holders.claiming_all(engine, || Alone::begin(engine, &mut waits))?)
        }
        Coming::Loaded(..) => None,
    };
    let _still = server.following.stand_still();
    look(server, order)?;
    if server.following.wanted(order).is_some_and(|wanted| !wanted.takes_copy) {
        return Err(io::Error::other("The copy is wanted no more"));
    }
    taken::note_coming(server, (stream.offset, until))?;
    let before = server.stream().id;
    server.following.copies.fetch_add(1, Ordering::Relaxed);
    let replaced = match (coming, &alone) {
        (Coming::File(path, libraries), Some(alone)) => {
            replacement::replace(alone, (path, libraries), stream, meanwhile)
        }
        (Coming::Loaded(loaded, libraries, beside), _) => {
            replacement::take_over(beside, (*loaded, libraries), stream, meanwhile, || {
                server.holders.claim(engine, Holding::all())
            })
        }
        (Coming::File(..), None) => unreachable!("what is loaded from its file is loaded alone"),
    };
    drop(alone);
    let is_emptied = !matches!(replaced, Err(Failure::Kept(_)));
    if server.engine.durability.log().is_none() && is_emptied {
        let now = if replaced.is_ok() { stream } else { Stream::begin(Lsn::ZERO) };
        server.set_stream(now);
    }
    if is_emptied {
        server.tracking.invalidate_all(&server.net.clients, None);
    }
    match replaced {
        Ok(()) => {
            note_in_place(server, before, (stream, until));
            // What was written beside the former data is gone.
            server.engine.keyspace.remember_beside(true);
            serve_waiting(server);
            log!(Notice, "MASTER <-> REPLICA sync: Finished with success");
            Ok(stream)
        }
        Err(Failure::Torn(error)) => {
            log!(
                Warning,
                "The master's copy was loaded, but the log cannot begin behind it: {error}. The server ends; its directory holds what was \
                 there before"
            );
            server.stop(1);
            Err(error)
        }
        Err(failure) => Err(io::Error::other(format!("The master's copy was not loaded: {failure}"))),
    }
}

/// What is here is the copy, where the stream was called something else before, perhaps.
fn note_in_place(server: &Server, before: ReplicationId, (stream, until): (Stream, u64)) {
    server.feeding.break_off(stream.offset);
    if before != stream.id {
        unfinished::forget_all(server);
    }
    taken::note_here(server, (stream.offset, until));
}

/// Who waits for a key that came with the copy is served, on a server that takes writes beside its master. What is loaded tells nobody by itself.
fn serve_waiting(server: &Server) {
    let keyspace = &server.engine.keyspace;
    if keyspace.waiting().keys() == 0 {
        return;
    }
    server.holders.claiming_all(&server.engine, || {
        replacement::alone_behind_scripts(&server.engine, |all| {
            (0..keyspace.databases()).for_each(|db| all.note_ready(DbIndex(db)));
        });
    });
    let (guest, now) = (server.engine.following_guest(), server.engine.clock.now());
    let mut batch = keyspace.enter(guest);
    if batch.has_ready() {
        blocking::serve(server, &mut batch, guest, now);
    }
    batch.release();
}

/// Removes what a run that was ended has left of a copy.
pub fn remove_left(dir: &Path) {
    let _ = Fs::Real.remove(&dir.join(NAME));
}
