//! A config server in a thread of the test, over a store that can be cut off from it, or tell it nothing.

mod users;

use super::{Settings, serve};
use crate::control::{Leader, Options, Policy};
use crate::store::embedded::Embedded;
use crate::store::{
    Change, Entry, Latest, LeaseId, Outcome, Reading, Revision, Seen, Store, Unavailable, Watch, Write,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::file::Fs;
use testkit::Client;
use testkit::ask::{ask, is_error, wait_until};
use testkit::process::free_port;
use tokio::sync::oneshot;
use topology::{ShardId, SlotMap, Topology};
use wire::{SLOTS, Value};

const PREFIX: &str = "/tarn/test/";

/// A store, and the way to it.
struct Far {
    store: Embedded,
    is_cut: AtomicBool,
    /// It takes no changes.
    is_full: AtomicBool,
    /// Changes are not to be told.
    is_mute: AtomicBool,
    /// Who watches has found it so.
    was_mute: AtomicBool,
}

impl Far {
    fn reach(&self) -> Result<&Embedded, Unavailable> {
        match self.is_cut.load(Ordering::Relaxed) {
            true => Err(Unavailable("it is cut off".to_owned())),
            false => Ok(&self.store),
        }
    }
}

/// The same, where it can be owned.
#[derive(Clone)]
struct Way(Arc<Far>);

impl Store for Way {
    fn read(&self, prefix: &str) -> Result<Reading, Unavailable> {
        self.0.reach()?.read(prefix)
    }

    fn get(&self, key: &str) -> Result<Option<Entry>, Unavailable> {
        self.0.reach()?.get(key)
    }

    fn latest(&self, prefix: &str) -> Result<Latest, Unavailable> {
        self.0.reach()?.latest(prefix)
    }

    fn change(&self, change: &Change) -> Outcome {
        match self.0.reach() {
            Ok(_) if self.0.is_full.load(Ordering::Relaxed) => Outcome::Unreached("no room".to_owned()),
            Ok(store) => store.change(change),
            Err(Unavailable(why)) => Outcome::Unreached(why),
        }
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, Unavailable> {
        let watch = self.0.reach()?.watch(prefix, after)?;
        Ok(Box::new(Watching { way: self.clone(), watch }))
    }

    fn grant(&self, length: Duration) -> Result<LeaseId, Unavailable> {
        self.0.reach()?.grant(length)
    }

    fn renew(&self, lease: LeaseId) -> Result<bool, Unavailable> {
        self.0.reach()?.renew(lease)
    }

    fn release(&self, lease: LeaseId) -> Result<(), Unavailable> {
        self.0.reach()?.release(lease)
    }

    fn place(&self) -> String {
        self.0.store.place()
    }
}

struct Watching {
    way: Way,
    watch: Box<dyn Watch>,
}

impl Watch for Watching {
    fn next(&mut self, _: Duration) -> Result<Seen, Unavailable> {
        self.way.0.reach()?;
        let patience = Duration::from_millis(10);
        match self.way.0.is_mute.load(Ordering::Relaxed) {
            true => {
                self.way.0.was_mute.store(true, Ordering::Relaxed);
                std::thread::sleep(patience);
                Ok(Seen::Quiet)
            }
            false => self.watch.next(patience),
        }
    }
}

/// A config server. It ends with its handle.
struct Config {
    way: Way,
    address: SocketAddr,
    _end: oneshot::Sender<()>,
    _dir: Option<tempfile::TempDir>,
}

impl Config {
    /// One that leads.
    fn start() -> Config {
        Config::start_with(None)
    }

    /// The same, which wants to hear a password.
    fn start_with(password: Option<&str>) -> Config {
        let dir = tempfile::tempdir().expect("a directory");
        let config = Config::start_in(dir.path(), password);
        Config { _dir: Some(dir), ..config }
    }

    /// The same, with the store in a directory of the test's.
    fn start_in(dir: &Path, password: Option<&str>) -> Config {
        let store = Embedded::open(Fs::Real, dir).expect("nobody else has it");
        let way = Way(Arc::new(Far {
            store,
            is_cut: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_mute: AtomicBool::new(false),
            was_mute: AtomicBool::new(false),
        }));
        let port = free_port().expect("there is a port");
        let settings = settings(port, password);
        let (end, ended) = oneshot::channel();
        let store = Arc::new(way.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let serving = async {
                tokio::select! {
                    served = serve(settings, store) => served.expect("it serves"),
                    _ = ended => {}
                }
            };
            tokio::task::LocalSet::new().block_on(&runtime.expect("there is room"), serving);
        });
        let config = Config { way, address: (Ipv4Addr::LOCALHOST, port).into(), _end: end, _dir: None };
        wait_until("it listens", || Client::connect(config.address).is_ok());
        let mut client = config.client();
        if let Some(password) = password {
            ask(&mut client, &["AUTH", password]);
        }
        wait_until("it leads", || ask(&mut client, &["SERVER", "JOIN", "-", &record('a')]).contains("id "));
        wait_until("it tells that", || ask(&mut client, &["TOPOLOGY", "GET"]).contains(&record('a')[..60]));
        config
    }

    fn client(&self) -> Client {
        Client::connect(self.address).expect("it listens")
    }

    fn cut(&self, is_cut: bool) {
        self.way.0.is_cut.store(is_cut, Ordering::Relaxed);
    }

    fn mute(&self, is_mute: bool) {
        self.way.0.is_mute.store(is_mute, Ordering::Relaxed);
        wait_until("who watches hears nothing", || !is_mute || self.way.0.was_mute.load(Ordering::Relaxed));
    }
}

fn settings(port: u16, password: Option<&str>) -> Settings {
    let own = Leader { name: "c".to_owned(), host: "127.0.0.1".to_owned(), port };
    Settings {
        bind: vec![own.host.clone()],
        port,
        tls_port: 0,
        clients: None,
        peers: None,
        password: password.map(str::to_owned),
        server_user: String::new(),
        server_password: None,
        clients_max: 10,
        control: Options {
            prefix: PREFIX.to_owned(),
            own,
            cluster: "c".repeat(40),
            policy: Policy {
                copies: 1,
                shards: 1,
                replace_after: Duration::from_secs(60),
                move_rate: 0,
                restore: 0,
                auto_rebalance: None,
                rebalance_threshold: Policy::REBALANCE_THRESHOLD,
            },
            said: std::collections::BTreeSet::new(),
            lease: Duration::from_secs(3),
        },
    }
}

fn id(digit: char) -> String {
    digit.to_string().repeat(40)
}

fn record(digit: char) -> String {
    format!("server {} 127.0.0.1 7001 0 - - memory -", id(digit))
}

fn follow(client: &mut Client, revision: u64) -> Value {
    client.call(&["TOPOLOGY", "FOLLOW", &revision.to_string()]).expect("it answers")
}

#[test]
fn who_begins_to_follow_is_told_what_the_store_holds_then() {
    let config = Config::start();
    config.mute(true);
    let put = Write::Put { key: format!("{PREFIX}servers/{}", id('b')), value: record('b'), lease: None };
    let Outcome::Done(revision) = config.way.change(&Change { compares: Vec::new(), writes: vec![put] })
    else {
        panic!("nobody else changes it")
    };
    let mut client = config.client();
    // It has something to tell, which is too old.
    assert!(matches!(client.call(&["TOPOLOGY", "GET"]), Ok(Value::Bulk(_))));
    assert!(is_error(&follow(&mut client, 0), "UNAVAILABLE"));
    config.mute(false);
    let Value::Bulk(text) = follow(&mut client, 0) else { panic!("it tells nothing") };
    let told = std::str::from_utf8(&text).ok().and_then(Topology::from_text).expect("a topology");
    assert!(told.revision >= revision.0 && told.servers.len() == 2);
    // Who knows it hears at once that it is so still.
    let known = config.way.latest(PREFIX).expect("it is reached").changed.0;
    assert_eq!(follow(&mut config.client(), known), Value::Bulk(Vec::new()));
}

#[test]
fn who_is_cut_off_from_the_store_sends_servers_to_others() {
    let config = Config::start();
    let (mut client, mut follower) = (config.client(), config.client());
    let mut here = || client.call(&["SERVER", "HERE", &id('a'), ""]).expect("it answers");
    assert_eq!(here(), Value::Simple(b"OK".to_vec()));
    assert!(matches!(follow(&mut follower, 0), Value::Bulk(_)));
    config.cut(true);
    let end = loop {
        match follower.read_value().expect("it says why it ends") {
            Value::Bulk(_) => {}
            end => break end,
        }
    };
    assert!(is_error(&end, "UNAVAILABLE") && follower.read_value().is_err(), "{end:?}");
    assert!(is_error(&here(), "UNAVAILABLE"));
    assert!(is_error(&follow(&mut config.client(), 0), "UNAVAILABLE"));
    config.cut(false);
    wait_until("it is taken for one that serves", || here() == Value::Simple(b"OK".to_vec()));
    assert!(matches!(follow(&mut config.client(), 0), Value::Bulk(_)));
}

#[test]
fn others_may_write_to_the_same_store() {
    let config = Config::start();
    let put = Write::Put { key: "/others/key".to_owned(), value: "1".to_owned(), lease: None };
    let Outcome::Done(revision) = config.way.change(&Change { compares: Vec::new(), writes: vec![put] })
    else {
        panic!("nobody else changes it")
    };
    // Told by a config server that has read the whole store since.
    assert_eq!(follow(&mut config.client(), revision.0), Value::Bulk(Vec::new()));
    assert!(is_error(&follow(&mut config.client(), revision.0 + 1), "PAST"));
}

/// That they are nobody's would have servers refuse what they have.
#[test]
fn while_it_cannot_be_read_whose_the_slots_are_nobody_is_told_anything() {
    let config = Config::start();
    let mut follower = config.client();
    assert!(matches!(follow(&mut follower, 0), Value::Bulk(_)));
    let put = |key: &str, value: &str| {
        let put = Write::Put { key: format!("{PREFIX}{key}"), value: value.to_owned(), lease: None };
        match config.way.change(&Change { compares: Vec::new(), writes: vec![put] }) {
            Outcome::Done(revision) => revision,
            outcome => panic!("nobody else changes it: {outcome:?}"),
        }
    };
    let seen = put("slots", &SlotMap::even(&[ShardId(0)]).to_line());
    let mut told = |until: Revision| loop {
        let Ok(Value::Bulk(text)) = follower.read_value() else { panic!("it ends") };
        match std::str::from_utf8(&text).ok().and_then(Topology::from_text) {
            Some(topology) if topology.revision >= until.0 => return topology,
            // A sign of life, or an earlier one; none of them has slots that are nobody's.
            earlier => assert!(earlier.is_none_or(|one| one.revision < seen.0), "nothing is told between"),
        }
    };
    assert_eq!(told(seen).slots.count(), SLOTS);
    put("slots", "of a later version");
    put(&format!("servers/{}", id('b')), &record('b'));
    let mut late = config.client();
    let refused = follow(&mut late, 0);
    let Value::Error(why) = refused else { panic!("it is told: {refused:?}") };
    let why = String::from_utf8_lossy(&why).into_owned();
    assert!(why.starts_with("UNAVAILABLE") && why.contains("slots"), "{why}");
    assert!(is_error(&late.call(&["TOPOLOGY", "GET"]).expect("it answers"), "UNAVAILABLE"));
    let mended = put("slots", &SlotMap::even(&[ShardId(0)]).to_line());
    let topology = told(mended);
    assert_eq!((topology.slots.count(), topology.servers.len()), (SLOTS, 2));
    wait_until("who comes anew is told", || matches!(follow(&mut config.client(), 0), Value::Bulk(_)));
}

#[test]
fn a_server_that_is_known_is_let_in_while_nobody_leads() {
    let config = Config::start();
    let mut client = config.client();
    let away = Leader {
        name: "d".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: free_port().expect("there is a port"),
    };
    let put = Write::Put { key: format!("{PREFIX}leader"), value: away.to_line(), lease: None };
    assert!(matches!(
        config.way.change(&Change { compares: Vec::new(), writes: vec![put] }),
        Outcome::Done(_)
    ));
    wait_until("it leads no more", || ask(&mut client, &["INFO"]).contains("leads:0\r\n"));
    let own = "c".repeat(40);
    assert_eq!(ask(&mut client, &["SERVER", "JOIN", &own, &record('a')]), format!("id {own}"));
    // What would have to be written, or looked at, is the leader's.
    let moved = record('a').replace("7001", "7002");
    for (cluster, line) in
        [(&own, record('b')), (&own, moved), (&"-".to_owned(), record('a')), (&"d".repeat(40), record('a'))]
    {
        let answer = client.call(&["SERVER", "JOIN", cluster, &line]).expect("it answers");
        assert!(is_error(&answer, "NOLEADER"), "{line}: {answer:?}");
    }
    config.cut(true);
    wait_until("it has no news", || {
        ask(&mut client, &["SERVER", "JOIN", &own, &record('a')]).contains("NOLEADER")
    });
}

/// It would tell what was so before.
#[test]
fn who_is_cut_off_from_the_store_is_not_asked_for_the_topology_if_another_is_there() {
    let (config, other) = (Config::start(), Config::start());
    let place = |config: &Config| ("127.0.0.1".to_owned(), config.address.port());
    let topology = |configs: &[&Config]| {
        let places: Vec<(String, u16)> = configs.iter().map(|config| place(config)).collect();
        crate::roles::operator::topology(&places, &crate::asking::Entry::default())
    };
    let (status, text) = topology(&[&config]).expect("it tells");
    assert_eq!(crate::table::warnings(&status), "");
    config.cut(true);
    let mut client = config.client();
    wait_until("it has seen that", || !ask(&mut client, &["INFO"]).contains("store_status:ok\r\n"));
    let (status, old) = topology(&[&config]).expect("it tells what was");
    assert_eq!(old, text);
    assert!(crate::table::warnings(&status).starts_with("THE STORE OF DECISIONS IS NOT WELL"), "{status}");
    let (status, _) = topology(&[&config, &other]).expect("the other tells");
    assert_eq!(crate::table::warnings(&status), "");
}

/// It reads what it is asked, and is gone.
#[test]
fn what_the_leader_was_asked_that_ends_then_may_have_been_done() {
    let config = Config::start();
    let mut client = config.client();
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
    let address = listener.local_addr().expect("it has one");
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let _ = std::io::Read::read(&mut socket.expect("somebody comes"), &mut [0; 4096]);
        }
    });
    let away = Leader { name: "d".to_owned(), host: "127.0.0.1".to_owned(), port: address.port() };
    let put = Write::Put { key: format!("{PREFIX}leader"), value: away.to_line(), lease: None };
    config.way.change(&Change { compares: Vec::new(), writes: vec![put] });
    wait_until("it leads no more", || ask(&mut client, &["INFO"]).contains("leads:0\r\n"));
    let answer = client.call(&["CLUSTER", "ADD-SHARD"]).expect("it answers");
    let what = format!("UNKNOWN the config server that leads, {address}: ");
    assert!(is_error(&answer, &what), "{answer:?}");
}

#[test]
fn a_store_that_takes_no_changes_is_told_to_all() {
    let config = Config::start();
    let mut client = config.client();
    let full = |is_full| config.way.0.is_full.store(is_full, Ordering::Relaxed);
    full(true);
    let join = client.call(&["SERVER", "JOIN", "-", &record('b')]).expect("it answers");
    let Value::Error(line) = join else { panic!("it has joined: {join:?}") };
    assert!(String::from_utf8_lossy(&line).contains("UNAVAILABLE") && line.ends_with(b"no room"));
    wait_until("INFO says so", || {
        ask(&mut client, &["INFO"]).contains("store_status:it takes no changes: no room\r\n")
    });
    assert!(ask(&mut client, &["CLUSTER", "STATUS"]).starts_with("THE STORE OF DECISIONS IS NOT WELL"));
    let told = ask(&mut client, &["CLUSTER", "STATUS", "JSON"]);
    assert!(told.contains(r#""store":"it takes no changes: no room""#), "{told}");
    full(false);
    wait_until("it is seen that it does", || ask(&mut client, &["INFO"]).contains("store_status:ok\r\n"));
    assert!(ask(&mut client, &["CLUSTER", "STATUS"]).starts_with("cluster "));
}

#[test]
fn who_does_not_say_the_password_does_not_stay() {
    let config = Config::start_with(Some("secret"));
    let (mut stranger, mut known) = (config.client(), config.client());
    assert_eq!(known.call(&["AUTH", "secret"]).expect("it answers"), Value::Simple(b"OK".to_vec()));
    assert!(is_error(&stranger.call(&["PING"]).expect("it answers"), "NOAUTH"));
    assert!(stranger.read_value().is_err_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof));
    assert_eq!(known.call(&["PING"]).expect("it answers"), Value::Simple(b"PONG".to_vec()));
}
