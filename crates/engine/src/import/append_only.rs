//! Loads the append-only files of a Redis: a base and its increments, or the one file of older versions.
//!
//! A file may begin with an RDB file; what follows are the requests that were executed since. They run as a loading Redis runs them:
//! errors that they are answered with are counted and passed over (the Redis answered the same), and no key expires meanwhile, since
//! a request behind its time was executed before it.
//!
//! 1. What stands between MULTI and EXEC runs when EXEC has been read, or not at all.
//! 2. Only the last file may end in the middle of something, and only if `aof-load-truncated` allows it.
//! 3. The files are read, and nothing else: they stay as they are.

use super::rdb::{self, Expired};
use super::requests::{Next, Requests};
use crate::Engine;
use crate::apply::{Apply, Rejection};
use command::Group;
use command::table;
use keyspace::DbIndex;
use std::io;
use std::path::{Path, PathBuf};
use sys::UnixMs;
use sys::file::{Fs, Mode};
use telemetry::log;
use wire::{Request, RequestBuf};

/// What RDB files begin with.
pub(super) const RDB_MAGIC: &[u8; 5] = b"REDIS";

/// Errors of requests that the log shows one by one.
const ERRORS_SHOWN_MAX: u64 = 10;

/// Bytes after which a start tells how far it is, and looks whether it has been told to stop.
const BYTES_NOTED: u64 = 256 << 10;

/// Access clocks wrap around after this time, both the one of 2^24 seconds and the one of 2^16 minutes.
const CLOCKS_MS: u64 = (1 << 24) * 15 * 1000;

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Files read.
    pub files: usize,
    /// Keys of RDB files at the beginning of files.
    pub base_keys: u64,
    /// Requests executed.
    pub requests: u64,
    /// Requests among them that were answered with an error.
    pub errors: u64,
    /// Where the last file was cut off, if it was.
    pub cut: Option<Cut>,
}

/// The place behind which nothing of a file was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub path: PathBuf,
    /// In bytes.
    pub offset: u64,
}

/// Loads files, the first of which may be a base, in this order.
///
/// # Errors
/// One sentence for the operator that names file and place.
pub fn load(engine: &Engine, apply: &mut dyn Apply, files: &[PathBuf]) -> io::Result<Tally> {
    let now = engine.clock.now();
    let mut loader = Loader {
        engine,
        apply,
        now,
        early: UnixMs(now.0 % CLOCKS_MS),
        tally: Tally::default(),
        requests_noted: 0,
    };
    let lengths = files.iter().map(|path| Fs::Real.open(path, Mode::Read).and_then(|file| file.len()));
    // A file that cannot be opened is complained about in its turn.
    engine.durability.loading.begin(lengths.map(|len| len.unwrap_or(0)).sum());
    for (index, path) in files.iter().enumerate() {
        let cut = loader.load_file(path)?;
        loader.tally.files += 1;
        if let Some(cut) = cut {
            judge_cut(engine, &cut, index + 1 == files.len())?;
            loader.tally.cut = Some(cut);
        }
    }
    Ok(loader.tally)
}

/// Whether a file that ends too early is loaded nevertheless.
fn judge_cut(engine: &Engine, cut: &Cut, is_last: bool) -> io::Result<()> {
    let Cut { path, offset } = cut;
    let path = path.display();
    if !is_last {
        return Err(io::Error::other(format!(
            "{path} ends in the middle of something behind offset {offset}, and is not the last file: put it back from a copy"
        )));
    }
    if !engine.config.aof_load_truncated() {
        return Err(io::Error::other(format!(
            "Unexpected end of file reading the append only file {path}: it is whole up to offset {offset}; cut it there, or \
             set aof-load-truncated to yes"
        )));
    }
    log!(
        Warning,
        "{path} ends in the middle of something: loaded up to offset {offset}, because aof-load-truncated is yes"
    );
    Ok(())
}

struct Loader<'s> {
    engine: &'s Engine,
    apply: &'s mut dyn Apply,
    now: UnixMs,
    /// A moment in the seventies at which access clocks stand as they do now, and no key expires.
    early: UnixMs,
    tally: Tally,
    requests_noted: u64,
}

/// Requests since a MULTI.
struct Transaction {
    /// Where the MULTI stands.
    begin: u64,
    requests: Vec<RequestBuf>,
}

impl Loader<'_> {
    /// Loads a file; where it was cut off, if so.
    fn load_file(&mut self, path: &Path) -> io::Result<Option<Cut>> {
        let unreadable = |error: io::Error| {
            io::Error::new(error.kind(), format!("Can't load {}: {error}", path.display()))
        };
        let file = Fs::Real.open(path, Mode::Read).map_err(unreadable)?;
        let mut magic = [0; RDB_MAGIC.len()];
        file.read_full_at(&mut magic, 0).map_err(unreadable)?;
        let start = match magic == *RDB_MAGIC {
            true => self.load_rdb(path)?,
            false => 0,
        };
        let mut requests = Requests::new(file, start).map_err(unreadable)?;
        let (mut db, mut transaction) = (DbIndex(0), None);
        let mut noted = start;
        loop {
            let begin = requests.position();
            if begin - noted >= BYTES_NOTED {
                self.note(begin - noted, 0)?;
                noted = begin;
            }
            let cut = match requests.next().map_err(unreadable)? {
                Next::Request(request) => {
                    db = self.take(db, &mut transaction, &request, begin).map_err(|rejection| {
                        io::Error::other(format!(
                            "Can't load {}, offset {begin}: {rejection}",
                            path.display()
                        ))
                    })?;
                    continue;
                }
                Next::Damaged(0) => {
                    let path = path.display();
                    return Err(io::Error::other(format!(
                        "{path} is neither an RDB file nor an append-only file"
                    )));
                }
                Next::Damaged(offset) => {
                    return Err(io::Error::other(format!(
                        "Bad file format reading the append only file {}: it is damaged at offset {offset}; put it back from a \
                         copy, or cut it there, which loses all that follows",
                        path.display()
                    )));
                }
                Next::End => None,
                Next::CutOff => Some(requests.position()),
            };
            let offset = transaction.map(|transaction: Transaction| transaction.begin).or(cut);
            return Ok(offset.map(|offset| Cut { path: path.to_owned(), offset }));
        }
    }

    /// Loads the RDB file that a file begins with; returns where it ends.
    fn load_rdb(&mut self, path: &Path) -> io::Result<u64> {
        let loaded = rdb::load(self.engine, path, self.early, Expired::Kept)?;
        let loaded = loaded.ok_or_else(|| io::Error::other(format!("{} is gone", path.display())))?;
        self.tally.base_keys += loaded.keys;
        self.note(loaded.end, loaded.keys)?;
        Ok(loaded.end)
    }

    /// Tells how far it is.
    fn note(&mut self, bytes: u64, keys: u64) -> io::Result<()> {
        let requests = self.tally.requests - self.requests_noted;
        self.requests_noted = self.tally.requests;
        self.engine.durability.loading.note(bytes, keys, requests);
        self.engine.fail_start_if_ending()
    }

    /// Runs a request, or keeps it for the end of its transaction.
    fn take(
        &mut self,
        db: DbIndex,
        transaction: &mut Option<Transaction>,
        request: &Request<'_>,
        begin: u64,
    ) -> Result<DbIndex, Rejection> {
        // Redis logs what its clients sent.
        let own = self.apply.own(request);
        let request = &own.as_ref().map_or(*request, RequestBuf::as_request);
        let name = request.arg(0);
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        match transaction {
            None if is("multi") => *transaction = Some(Transaction { begin, requests: Vec::new() }),
            None => return self.run(db, request),
            Some(_) if is("exec") => {
                let requests = transaction.take().map(|transaction| transaction.requests).unwrap_or_default();
                return requests.iter().try_fold(db, |db, request| self.run(db, &request.as_request()));
            }
            Some(_) if is("discard") => *transaction = None,
            Some(transaction) => transaction.requests.push(RequestBuf::from(*request)),
        }
        Ok(db)
    }

    fn run(&mut self, db: DbIndex, request: &Request<'_>) -> Result<DbIndex, Rejection> {
        let now = if counts_from_now(request) { self.now } else { self.early };
        self.tally.requests += 1;
        match self.apply.apply(db, now, request) {
            // What follows would go to another database.
            Err(failed @ Rejection::Failed("select", _)) => Err(failed),
            Err(failed @ Rejection::Failed(..)) => {
                self.tally.errors += 1;
                if self.tally.errors <= ERRORS_SHOWN_MAX {
                    log!(
                        Warning,
                        "A request of the append-only file failed, as it may have before: {failed}"
                    );
                }
                Ok(db)
            }
            result => result,
        }
    }
}

/// Whether a request means something else at another time. A Redis logs moments in place of times to live, but older ones and
/// scripts do not always.
fn counts_from_now(request: &Request<'_>) -> bool {
    let Some(command) = table::find_for(request) else { return false };
    let row = &command.row;
    row.group == Group::Scripting || row.counts_from_now.is_some_and(|counts| counts(request))
}
