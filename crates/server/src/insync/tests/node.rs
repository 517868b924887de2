//! A node: a disk that stays, and a process that comes and goes, which is a whole server without its threads.

use super::super::driver::Driver;
use super::super::fault::Fault;
use super::super::keeping::Keeping;
use super::super::{Ways, open_keeping};
use super::clients::{Held, Waiting};
use super::plan::Plan;
use super::stretch::{Feed, Stretch};
use crate::dispatch::Runner;
use crate::feeding::behind::Reading;
use crate::following::{self, Wanted};
use crate::server::Server;
use crate::session::Session;
use crate::shard::{Address, Outbox, Settings, Shard, Store};
use crate::{assembly, durable};
use acl::Access;
use config::{Config, Edition, Startup};
use engine::{Attention, durability};
use keyspace::HashSeed;
use log::{Flushing, Log, Options};
use net::client::Client;
use net::service::Stop;
use parking_lot::Mutex;
use replication::insync::{LinkId, MemberId, NodeId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::file::Fs;
use sys::file::simulated::Disk;
use sys::{Clock, Prng, Shown};
use tokio::runtime::{LocalOptions, LocalRuntime};
use wire::{Limits, Parser, encode_request};

/// So short that a shard goes through many.
const SEGMENT_BYTES: u64 = 24 * 1024;

pub struct Node {
    pub edition: Edition,
    pub disk: Disk,
    pub clock: Clock,
    pub up: Option<Process>,
    /// Where what was read of its stream begins, and what that is: a log gives nothing of what has been called otherwise for long.
    pub read: (u64, Vec<u8>),
}

impl Node {
    /// Reads on in the stream, as far as it is on disk.
    pub fn read_on(&mut self) {
        let Some(process) = &self.up else { return };
        let (begin, bytes) = &mut self.read;
        let end = process.server.stream().offset;
        // What was cut, or lost with the power, is read anew.
        bytes.truncate(usize::try_from(end.saturating_sub(*begin)).unwrap_or(usize::MAX));
        let mut reading = Reading::new(&process.server, *begin + bytes.len() as u64);
        while let Ok(more) = reading.next(end)
            && !more.is_empty()
        {
            bytes.extend_from_slice(&more);
        }
    }

    /// The stream from an offset on, up to another, as far as it was read.
    pub fn stream(&self, from: u64, until: u64) -> &[u8] {
        let (begin, bytes) = &self.read;
        let at = |offset: u64| (offset.max(*begin) - begin).min(bytes.len() as u64) as usize;
        if from < *begin { &[] } else { &bytes[at(from)..at(until).max(at(from))] }
    }
}

/// What the driver wants others to do.
#[derive(Default)]
pub struct Notes {
    pub dials: Vec<(NodeId, LinkId, Arc<Outbox>)>,
    pub follows: Vec<(u64, NodeId, Wanted)>,
}

/// Notes it.
struct Noting(Arc<Mutex<Notes>>);

impl Ways for Noting {
    fn dial(&self, _: &Arc<Server>, shard: &Arc<Shard>, node: NodeId, _: MemberId) {
        let outbox = Arc::new(Outbox::new().expect("there are descriptors"));
        let link = shard.links.dial(&outbox);
        self.0.lock().dials.push((node, link, outbox));
    }

    fn follow(&self, server: &Arc<Server>, master: &Address, wanted: Wanted) -> u64 {
        let node = NodeId(u32::from(master.port - 1));
        let master = crate::followed::Master { host: master.host.clone(), port: master.port };
        let order = following::stand_behind(server, master, Some(wanted));
        self.0.lock().follows.push((order, node, wanted));
        order
    }
}

/// This side of a link on which nodes say something.
pub enum Side {
    Dialled { link: LinkId, outbox: Arc<Outbox>, of: MemberId, rest: Vec<u8> },
    Accepted { session: Box<Session> },
}

pub struct Process {
    pub server: Arc<Server>,
    pub shard: Arc<Shard>,
    pub driver: Driver,
    pub notes: Arc<Mutex<Notes>>,
    runner: Runner,
    pub sides: BTreeMap<u64, Side>,
    /// What is followed of a master's stream.
    pub stretch: Option<Stretch>,
    /// Who follows this one's, by connection.
    pub feeds: BTreeMap<u64, Feed>,
    pub waiting: Vec<Waiting>,
    /// Clients that a pause holds back.
    pub held: Vec<Held>,
    pub is_flushing: bool,
    /// It will look whether something is due.
    pub has_look: bool,
    /// Up to where the stream was compared with what is committed.
    pub compared: u64,
    /// Cuts and copies that were seen to: what was read before one may be of another stream.
    pub breaks: (u64, u64),
    runtime: LocalRuntime,
}

/// Where the files of a node are on its disk; on the machine there is an empty folder of that name, and full copies for a moment.
fn dir() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("tarn-simulated-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("there is a folder for temporary files");
    dir
}

/// Where a copy is read from.
pub fn spool() -> PathBuf {
    dir().join(format!("{:?}.rdb", std::thread::current().id()))
}

fn config(edition: Edition, dir: &Path) -> Config {
    // Without a log there is nothing to read on in behind the backlog.
    let backlog = if edition == Edition::Memory { "1mb" } else { "16kb" };
    let text = format!(
        "port 0\nbind 127.0.0.1\nedition {}\nthreads 1\nloglevel {}\ndatabases 1\nrepl-backlog-size {backlog}\ndir {}",
        edition.word(),
        if std::env::var_os("TARN_TRACE").is_some() { "notice" } else { "nothing" },
        dir.display()
    );
    let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else { panic!("{text}") };
    *config
}

impl Process {
    /// A server that starts on what a disk has.
    pub fn start(node: &Node, number: usize, plan: &Plan, seed: u64) -> Result<Process, String> {
        let fs = Fs::Simulated(node.disk.clone());
        let config = config(node.edition, &dir());
        fs.create_dir_all(&config.dir()).map_err(|error| error.to_string())?;
        let slots =
            durability::seed_of_checkpoint(&config, &fs).unwrap_or_else(|| HashSeed::from_number(seed));
        let server = assembly::with_seed(config, 2, node.clock.clone(), slots);
        server.engine.set_attention(Attention::LOADING, true);
        let options =
            Options { segment_bytes: SEGMENT_BYTES, flushing: Flushing::ByHand, ..Options::default() };
        durable::open_with(&server, &fs, 1, options)
            .map_err(|error| format!("{number} does not start: {error}"))?;
        following::taken::begin(&server);
        super::super::begin_without(&server);
        // One that comes back with nothing is somebody else.
        let lives = if plan.keeps_lives { number as u64 } else { seed };
        let mut keeping = open_keeping(&server, Prng::from_seed(lives))
            .map_err(|error| format!("{number} does not start: {error}"))?;
        keeping.keep(keeping.kept.clone()).map_err(|error| error.to_string())?;
        let address = |number: usize| Address { host: "node".to_owned(), port: number as u16 + 1 };
        let settings = Settings {
            name: "simulated".to_owned(),
            node: NodeId(number as u32),
            nodes: (0..plan.editions.len()).map(|number| (NodeId(number as u32), address(number))).collect(),
            store: Store::Server(address(plan.editions.len())),
            options: plan.options,
        };
        let id = MemberId { node: settings.node, life: keeping.kept.life };
        let shard = Arc::new(Shard::new(settings, id, keeping.kept.epoch));
        assert!(server.shard.enter(shard.clone()));
        server.engine.set_attention(Attention::LOADING, false);
        let notes = Arc::<Mutex<Notes>>::default();
        let driver = begin_driver(&server, &shard, keeping, &notes, plan.fault);
        let runtime = tokio::runtime::Builder::new_current_thread().build_local(LocalOptions::default());
        Ok(Process {
            runner: Runner::new(server.clone(), 0),
            server,
            shard,
            driver,
            notes,
            sides: BTreeMap::new(),
            stretch: None,
            feeds: BTreeMap::new(),
            waiting: Vec::new(),
            held: Vec::new(),
            is_flushing: false,
            has_look: false,
            compared: 0,
            breaks: (0, 0),
            runtime: runtime.expect("there is one"),
        })
    }

    pub fn log(&self) -> Option<&Arc<Log>> {
        self.server.engine.durability.log()
    }

    /// The state of a connection that nobody else knows of.
    pub fn session(&self) -> Box<Session> {
        let (server, id) = (&self.server, self.server.net.clients.next_id());
        let client = Client::new(id, String::new(), String::new(), -1, (0, 0), server.engine.clock.now());
        Box::new(Session::new(Arc::new(client), Access::newcomer(&server.acl)))
    }

    /// Runs what came on a connection.
    pub fn run(&mut self, session: &mut Session, input: &[u8]) -> (Stop, Vec<u8>, Shown) {
        let mut batch = wire::Batch::new();
        let parsed = Parser::new().parse(input, &Limits::default(), &mut batch, usize::MAX);
        assert_eq!(parsed.ok(), Some(input.len()));
        let (mut out, runner) = (Vec::new(), &mut self.runner);
        // Some commands leave something to do for later.
        let (stop, shown) =
            self.runtime.block_on(async { runner.run(session, &batch, input, (0, batch.len()), &mut out) });
        (stop, out, shown)
    }

    pub fn ask(&mut self, session: &mut Session, words: &[&[u8]]) -> (Stop, Vec<u8>, Shown) {
        let mut input = Vec::new();
        encode_request(&mut input, words);
        self.run(session, &input)
    }

    /// Ends a side of a link, as its connection does.
    pub fn end_side(&mut self, link: u64) {
        match self.sides.remove(&link) {
            Some(Side::Dialled { link, outbox, .. }) if !outbox.is_over() => self.shard.lost(link),
            Some(Side::Accepted { mut session }) => {
                self.server.net.clients.remove(session.client.id);
                session.end(&self.server);
            }
            _ => {}
        }
    }
}

fn begin_driver(
    server: &Arc<Server>,
    shard: &Arc<Shard>,
    keeping: Keeping,
    notes: &Arc<Mutex<Notes>>,
    fault: Option<Fault>,
) -> Driver {
    let mut driver = Driver::new(server, shard, keeping, Box::new(Noting(notes.clone())));
    driver.fault = fault;
    driver
}
