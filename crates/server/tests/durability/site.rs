//! A durable server on a simulated disk, without sockets and threads: requests are run by the dispatch itself, the log is
//! flushed by hand, and every key can be looked at without touching it.

use crate::shown::{Content, Shown};
use acl::Access;
use command::table::{self, Runs};
use command::{Args, execute};
use config::{Config, Startup};
use engine::durability;
use keyspace::{DbIndex, HashSeed, Key, Stamp, Touch, TypeName, ValueRef};
use log::{Flushing, Log, Options};
use net::client::Client;
use net::service::Stop;
use server::assembly;
use server::dispatch::Runner;
use server::durable;
use server::server::Server;
use server::session::Session;
use std::io;
use std::path::Path;
use std::sync::Arc;
use sys::file::Fs;
use sys::file::simulated::Disk;
use sys::{Clock, UnixMs};
use testkit::generate::{Request, words};
use tokio::runtime::LocalOptions;
use wire::{Limits, Parser, Protocol, Reply, RequestBuf, encode_arg, encode_request_header};

/// Databases: two that are mostly used, and one that rarely is.
pub const DATABASES: u32 = 3;

/// Workers, of which the first runs the requests; they share sweeps and recovery.
pub const WORKERS: usize = 3;

/// The client that waits for keys.
const WAITER: u64 = 2;

/// Others that come and go.
const NEWCOMER: u64 = 3;

/// So short that a workload goes through several.
const SEGMENT_BYTES: u64 = 24 * 1024;

/// Where the log is on the disk. No such directory is on the machine.
pub fn dir() -> &'static Path {
    Path::new("/nowhere/tarn")
}

pub struct Site {
    pub server: Arc<Server>,
    runner: Runner,
    pub session: Session,
}

impl Site {
    /// Recovers what a disk holds for an edition, by so many threads. Keys have their slots by the seed if there is no checkpoint.
    pub fn open(edition: &str, disk: &Disk, seed: u64, clock: &Clock, threads: usize) -> io::Result<Site> {
        let text = format!(
            "port 0\nbind 127.0.0.1\nedition {edition}\nthreads 2\nloglevel warning\ndatabases {DATABASES}\n\
             maxmemory-policy allkeys-random\nenable-debug-command yes\nlog-piece-size {}\ndir {}",
            // In half of them much is large, and in pieces.
            if seed % 2 == 1 { "64" } else { "120kb" },
            dir().display()
        );
        let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else { panic!("{text}") };
        let fs = Fs::Simulated(disk.clone());
        let seed =
            durability::seed_of_checkpoint(&config, &fs).unwrap_or_else(|| HashSeed::from_number(seed));
        server::commands::install();
        let server = assembly::with_seed(*config, WORKERS, clock.clone(), seed);
        let options =
            Options { segment_bytes: SEGMENT_BYTES, flushing: Flushing::ByHand, ..Options::default() };
        durable::open_with(&server, &fs, threads, options)?;
        let client = Client::new(1, String::new(), String::new(), -1, (0, 0), clock.now());
        let session = Session::new(Arc::new(client), Access::newcomer(&server.acl));
        Ok(Site { runner: Runner::new(server.clone(), 0), session, server })
    }

    pub fn log(&self) -> Arc<Log> {
        self.server.engine.durability.log().unwrap().clone()
    }

    /// Runs requests that came in one read; gives the replies and up to where they are held back.
    pub fn run(&mut self, requests: &[Request]) -> (Vec<u8>, Stamp) {
        let (stop, out, stamp) = run(&mut self.runner, &mut self.session, requests);
        assert_eq!(stop, Stop::Done, "{requests:?}");
        (out, stamp)
    }

    /// A session of a client that has just come.
    pub fn newcomer(&self) -> Session {
        self.session_of(NEWCOMER)
    }

    /// A session of a client with this number.
    pub fn session_of(&self, id: u64) -> Session {
        let client =
            Client::new(id, String::new(), String::new(), -1, (0, 0), self.server.engine.clock.now());
        Session::new(Arc::new(client), Access::newcomer(&self.server.acl))
    }

    /// Runs another session's requests, as far as it does not have to wait.
    pub fn run_as(&mut self, session: &mut Session, requests: &[Request]) -> (Stop, Vec<u8>, Stamp) {
        run(&mut self.runner, session, requests)
    }

    /// Lets another session wait for a key until [`Site::end_wait`], unless the key is ready.
    pub fn wait(&mut self, request: Request) {
        let mut session = self.session_of(WAITER);
        session.select(self.session.db);
        let (stop, _, _) = run(&mut self.runner, &mut session, &[request]);
        assert_ne!(stop, Stop::Closing);
    }

    pub fn end_wait(&self) {
        self.server.blocked.end(&self.server.engine.keyspace, WAITER);
    }

    /// How many keys there are, those whose time is up counted.
    pub fn keys(&self) -> u64 {
        self.server.engine.databases().map(|db| self.server.engine.keyspace.len(db)).sum()
    }

    /// The libraries of functions, by name.
    pub fn libraries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let libraries = self.server.engine.scripts.libraries();
        libraries.by_name.iter().map(|(name, library)| (name.clone(), library.code.to_vec())).collect()
    }

    /// All of a key, even if its time is up: as somebody sees it who lives in 1970.
    pub fn shown(&self, db: u32, name: &[u8]) -> Option<Shown> {
        let key = self.server.engine.keyspace.key(DbIndex(db), name);
        // Looking would make a database of slots.
        if self.server.engine.keyspace.is_empty(key.db) {
            return None;
        }
        let (expires_at, known) = {
            let batch = self.server.engine.keyspace.enter(0);
            let view = batch.view(&[key], UnixMs(0), Touch::No);
            let object = view.peek(&key)?;
            let known = match object.value() {
                ValueRef::Bytes(bytes) => Ok(Content::Bytes(bytes.to_vec())),
                ValueRef::Int(number) => Ok(Content::Bytes(number.to_string().into_bytes())),
                collection @ ValueRef::Collection(_) => Err(collection.type_name()),
            };
            (object.expires_at().map(|at| at.0), known)
        };
        let content = known.unwrap_or_else(|type_name| self.collection(&key, type_name));
        Some(Shown { expires_at, content })
    }

    fn collection(&self, key: &Key<'_>, type_name: TypeName) -> Content {
        match type_name {
            TypeName::List => Content::Bytes(self.answer(key, 1, &["LRANGE", "0", "-1"])),
            TypeName::Zset => Content::Bytes(self.answer(key, 1, &["ZRANGE", "0", "-1", "WITHSCORES"])),
            TypeName::Stream => {
                Content::stream(&self.answer(key, 2, &["XINFO", "STREAM", "FULL", "COUNT", "0"]))
            }
            TypeName::Set => Content::set(&self.answer(key, 1, &["SMEMBERS"])),
            TypeName::Hash => {
                let pairs = self.answer(key, 1, &["HGETALL"]);
                let mut fields = Content::pairs(&pairs);
                let count = fields.len().to_string();
                let mut request = words(&["HPEXPIRETIME", "FIELDS", &count]);
                request.insert(1, key.bytes.to_vec());
                request.extend(fields.iter().map(|(field, _, _)| field.clone()));
                let moments = self.reply(key.db, &request);
                Content::add_moments(&mut fields, &moments);
                Content::Fields(fields)
            }
            other => panic!("{other:?} is no collection"),
        }
    }

    fn answer(&self, key: &Key<'_>, at: usize, request: &[&str]) -> Vec<u8> {
        let mut request = words(request);
        request.insert(at, key.bytes.to_vec());
        self.reply(key.db, &request)
    }

    fn reply(&self, db: DbIndex, request: &Request) -> Vec<u8> {
        let request = RequestBuf::from_args(request);
        let request = request.as_request();
        let Runs::Data(row) = table::find_for(&request).unwrap().row.handler else {
            panic!("a data command")
        };
        let keyspace = &self.server.engine.keyspace;
        let args = Args::new(request, keyspace, (db, UnixMs(0)), &self.server.engine.settings);
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let _ = execute(row, &mut keyspace.enter(0), &args, Touch::No, &mut reply).unwrap();
        out
    }
}

/// Runs requests that came in one read.
fn run(runner: &mut Runner, session: &mut Session, requests: &[Request]) -> (Stop, Vec<u8>, Stamp) {
    let mut input = Vec::new();
    for request in requests {
        encode_request_header(&mut input, request.len());
        request.iter().for_each(|word| encode_arg(&mut input, word));
    }
    let mut batch = wire::Batch::new();
    let parsed = Parser::new().parse(&input, &Limits::default(), &mut batch, usize::MAX);
    assert_eq!(parsed.unwrap(), input.len());
    let mut out = Vec::new();
    // Some of them leave something to do for later.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
    let (stop, shown) =
        runtime.block_on(async { runner.run(session, &batch, &input, (0, batch.len()), &mut out) });
    (stop, out, shown.up_to)
}
