//! A server's way into its cluster: it introduces itself to a config server, is told what the cluster looks like, and takes its place.
//!
//! What it is told lies in its directory, too, so that a server that starts while no config server can be reached finds its shard. It may be old then: who is
//! master is known to the shard and to its decision only, and both are asked before anything is served ([`crate::insync`]); who has which slots is known to
//! config servers only, so that nothing is served before one of them has said it in this run. What a config server says first is no older than the question.
//!
//! A server takes part in its shard when a config server has let it in, or when none of them could be asked: a directory may have been copied, and who has the
//! same id as another that lives is not let in. Who has no place any more takes part no more.
//!
//! Thread rule: a thread of its own, which alone has the identity.

mod identity;

use crate::dispatch::ownership;
use crate::hearing;
use crate::insync;
use crate::insync::asking::Asking;
use crate::insync::dialling::TlsBy;
use crate::moving;
use crate::server::Server;
use crate::shard::{self, Address, Settings, Shard, Store};
use config::Config;
use engine::{durability, import};
use identity::Identity;
use keyspace::{DbIndex, HashSeed};
use replication::insync::{Decision, Epoch, Event, NodeId, Role};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use sys::file::Fs;
use telemetry::log;
use topology::{Edition, Place, Topology};
use wire::Value;

/// How long it may take to reach a config server, and how long an answer may take. Who follows is told something every second.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a config server may take to tell that this server is master, once its shard says so. Another may know it, and clients wait.
const WORD: Duration = Duration::from_millis(300);

/// How often it looks whether that is so.
const LOOK: Duration = Duration::from_millis(50);

/// Before the next config server is tried.
const RETRY: Duration = Duration::from_millis(200);

/// The same, when all were tried in vain: they are many servers' way into the cluster.
const RETRY_ALL: Duration = Duration::from_secs(1);

/// How answers begin by which a config server lets a server in no more, or not as long as another lives.
const REFUSALS: [&str; 3] = ["REMOVED", "DUPLICATE", "WRONGCLUSTER"];

/// What is told of a server that has lost its place.
const REMOVED: &str =
    "This server has no place in the cluster any more; to have another, it starts with an empty directory";

/// The last topology, in the server's directory.
const TOPOLOGY: &str = "cluster-topology";

/// What stands before the ids of servers that are not heard of.
const SILENT: &[u8] = b"silent";

/// The longest topology that is read from there.
const TOPOLOGY_BYTES_MAX: u64 = 64 << 20;

/// Takes part in the cluster that the directives name. Once, after the start has loaded the data, before any client is served.
///
/// # Errors
/// One sentence for the operator: the directives make no sense, or it is not known who this server is.
pub fn begin(server: &Arc<Server>) -> io::Result<()> {
    let config_servers = config_servers(server)?;
    // Before it is given a place that it cannot take.
    insync::look_at_log(server)?;
    let identity = Identity::open(&server.engine.dir())?;
    if let Some(part) = server.clustered.get() {
        part.introduce(identity.id);
    }
    insync::begin_without(server);
    moving::begin(server, config_servers.clone())?;
    hearing::begin(server)?;
    let server = server.clone();
    std::thread::Builder::new().name("cluster".to_owned()).spawn(move || {
        let troubles = vec![String::new(); config_servers.len()];
        let mut joining = Joining {
            server: &server,
            config_servers,
            identity,
            troubles,
            in_vain: 0,
            is_removed: false,
            is_refused: false,
            may_enter: false,
            introduced: String::new(),
        };
        joining.remember();
        joining.run();
    })?;
    Ok(())
}

/// Looks whether what is in the directory can be a cluster's, if it is to be: with data, it has to hold who the server is in which cluster.
///
/// # Errors
/// One sentence for the operator: it cannot.
pub fn look_at_directory(config: &Config) -> io::Result<()> {
    if !config.cluster_enabled() {
        return Ok(());
    }
    let dir = config.dir();
    let is_suitable = match Identity::is_kept(&dir)? {
        true => durability::seed_of_checkpoint(config, &Fs::Real).is_none_or(HashSeed::is_tagged),
        false => !::log::is_there(&Fs::Real, &dir)? && !import::is_there(config)?,
    };
    match is_suitable {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "The data in {} is not a cluster's: with `cluster-enabled yes` a server begins with an empty directory, and data comes into the cluster by an import",
            dir.display()
        ))),
    }
}

/// Has a node of a cluster know who it is before it has any data.
///
/// # Errors
/// As [`begin`].
pub fn keep_identity(config: &Config) -> io::Result<()> {
    match config.cluster_enabled() {
        true => Identity::open(&config.dir()).map(drop),
        false => Ok(()),
    }
}

/// Where the config servers are.
///
/// # Errors
/// One sentence for the operator: the directives do not say it.
pub fn config_servers(server: &Server) -> io::Result<Vec<Address>> {
    let config = &server.engine.config;
    if !config.shard_name().is_empty() || config.replicaof().is_some() {
        return Err(io::Error::other(
            "A node of a cluster is told its shard and its master by the config servers: no `shard-name`, no `replicaof`",
        ));
    }
    let text = String::from_utf8_lossy(&config.cluster_config_servers()).into_owned();
    let places: Option<Vec<Address>> =
        text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(shard::address).collect();
    places.filter(|places| !places.is_empty()).ok_or_else(|| {
        io::Error::other(
            "`cluster-enabled yes` wants `cluster-config-servers`: `host:port` of each config server (`tarn config`), with commas between them",
        )
    })
}

struct Joining<'j> {
    server: &'j Arc<Server>,
    config_servers: Vec<Address>,
    identity: Identity,
    /// What was told last of why each config server is not reached; empty: it is, or was not tried.
    troubles: Vec<String>,
    /// How many were tried since one has told something.
    in_vain: usize,
    /// Whether it was told that this server has lost its place.
    is_removed: bool,
    /// Whether a config server has refused this server since one has let it in.
    is_refused: bool,
    /// Whether it may take part in its shard.
    may_enter: bool,
    /// As what it has introduced itself last.
    introduced: String,
}

impl Joining<'_> {
    fn run(&mut self) {
        let mut next = 0;
        while !self.server.engine.is_ending() {
            self.in_vain += 1;
            if let Err(error) = self.follow(next) {
                self.note(next, &error.to_string());
            }
            next = (next + 1) % self.config_servers.len();
            if self.in_vain >= self.config_servers.len() && !self.is_refused {
                self.may_enter = true;
                self.enter_late(next);
            }
            let were_all = self.in_vain >= self.config_servers.len();
            if !self.server.engine.is_ending() {
                let haste = if self.awaits_word() { LOOK } else { RETRY };
                std::thread::sleep(if were_all { RETRY_ALL } else { haste });
            }
        }
    }

    /// Tells it once when a config server cannot be reached, or takes this server no more.
    fn note(&mut self, which: usize, trouble: &str) {
        if self.server.engine.is_ending() || self.troubles[which] == trouble {
            return;
        }
        let Address { host, port } = &self.config_servers[which];
        if trouble.is_empty() {
            log!(Notice, "The cluster's config server {host}:{port} is reached");
        } else {
            log!(
                Warning,
                "The cluster's config server {host}:{port} is not reached, or does not take this server: {trouble}"
            );
        }
        trouble.clone_into(&mut self.troubles[which]);
    }

    /// Introduces itself and takes what it is told, until the connection ends.
    fn follow(&mut self, which: usize) -> io::Result<()> {
        let server = self.server;
        let address = &self.config_servers[which].clone();
        let mut topologies = Asking::to(server, address, TlsBy::Cluster, PATIENCE)?;
        match self.introduce(&mut topologies) {
            // It was let in before: only its new name is not written down yet.
            Err(error) if !self.introduced.is_empty() && !self.is_refused && is_for_now(&error) => {}
            Err(error) => {
                self.note_refusal(&error.to_string());
                // Nothing has changed of who this server is: another has taken its place, while this one was not heard of.
                // One that was let in by nobody yet is waited for: who leads since just now takes for living what it was before.
                let was_let_in = !self.introduced.is_empty();
                if error.to_string().starts_with("DUPLICATE")
                    && was_let_in
                    && self.own_record(&topologies)? == self.introduced
                {
                    self.leave(
                        "Another server with the same id has its place in the cluster now; this one takes no part in it any more, until it is started again",
                    );
                }
                return Err(error);
            }
            Ok(()) => {}
        }
        let mut figures = Asking::to(server, address, TlsBy::Cluster, PATIENCE)?;
        let known = server.clustered.get().and_then(|part| part.told()).map_or(0, |told| told.revision);
        let mut told = topologies.ask(&[b"TOPOLOGY", b"FOLLOW", known.to_string().as_bytes()])?;
        // Not before: what it has let this server in by may be old, if it is cut off from the store.
        (self.is_refused, self.may_enter) = (false, true);
        topologies.look_every(LOOK)?;
        self.note(which, "");
        loop {
            match told {
                Value::Bulk(text) if text.is_empty() => {}
                Value::Bulk(text) if text.starts_with(SILENT) => self.note_silent(&text)?,
                Value::Bulk(text) => self.take(&text)?,
                _ => return Err(io::Error::other("what it says is no topology")),
            }
            self.in_vain = 0;
            ownership::confirm(server);
            self.enter_late(which);
            // CONFIG SET has given it another name.
            if self.own_record(&figures)? != self.introduced {
                self.introduce_anew(address)?;
            }
            let id = self.identity.id.to_string();
            figures.say(&[b"SERVER", b"HERE", id.as_bytes(), figures_of(server).as_bytes()])?;
            figures.receive_while(|| self.look_for_word())?;
            told = topologies.receive_while(|| self.look_for_word())?;
        }
    }

    /// Whether this server is master, and waits for a config server's word for longer than that should take.
    fn awaits_word(&self) -> bool {
        let awaited = self.server.clustered.get().and_then(|part| part.awaits_word_for());
        self.config_servers.len() > 1 && awaited.is_some_and(|awaited| awaited > WORD)
    }

    /// Leaves a config server for another that may have news.
    fn look_for_word(&self) -> io::Result<()> {
        match self.awaits_word() {
            true => Err(io::Error::other("it has not told yet that this server is master")),
            false => Ok(()),
        }
    }

    /// Takes the place that is known, if that could not be done when it was told.
    fn enter_late(&mut self, which: usize) {
        let told = self.server.clustered.get().and_then(|part| part.told());
        let Some(told) = told.filter(|_| self.server.shard.get().is_none()) else { return };
        let place = told.servers.get(&self.identity.id).and_then(|own| own.place);
        if let Err(error) = self.take_place(&told, place) {
            self.note(which, &error.to_string());
        }
    }

    fn note_refusal(&mut self, answer: &str) {
        self.is_refused |= REFUSALS.iter().any(|refusal| answer.starts_with(refusal));
        if answer.starts_with("REMOVED") {
            self.leave(REMOVED);
        }
    }

    /// This server has no place any more, for this reason.
    fn leave(&mut self, why: &str) {
        if let Some(shard) = self.server.shard.get()
            && !std::mem::replace(&mut self.is_removed, true)
        {
            log!(Warning, "{why}");
            if let Some(part) = self.server.clustered.get() {
                part.note_removed();
            }
            shard.happened(Event::Removed);
        }
    }

    fn introduce(&mut self, to: &mut Asking<'_>) -> io::Result<()> {
        let own = self.own_record(to)?;
        let cluster = self.identity.cluster.clone().unwrap_or_else(|| "-".to_owned());
        let words = [&b"SERVER"[..], b"JOIN", cluster.as_bytes(), own.as_bytes()];
        let Value::Simple(answer) = to.ask(&words)? else {
            return Err(io::Error::other("it does not say of which cluster it is"));
        };
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let cluster = answer.strip_prefix("id ").ok_or_else(|| io::Error::other("it is no config server"))?;
        self.introduced = own;
        self.identity.join(cluster)
    }

    /// Introduces itself by another name than before, on a connection of its own. As long as nobody can write it down it is tried again, and nothing else waits for it.
    fn introduce_anew(&mut self, address: &Address) -> io::Result<()> {
        let asked = Asking::to(self.server, address, TlsBy::Cluster, RETRY_ALL)
            .and_then(|mut asking| self.introduce(&mut asking));
        match asked {
            Err(error) if REFUSALS.iter().any(|refusal| error.to_string().starts_with(refusal)) => {
                self.note_refusal(&error.to_string());
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// This server's record, without its place.
    fn own_record(&self, to: &Asking<'_>) -> io::Result<String> {
        let config = &self.server.engine.config;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let or = |announced: u16, own: u16| if announced == 0 { own } else { announced };
        let host = match text(config.cluster_announce_ip()) {
            announced if announced.is_empty() => to.own_address()?.to_string(),
            announced => announced,
        };
        let own = topology::Server {
            id: self.identity.id,
            host,
            port: or(config.cluster_announce_port(), config.port()),
            tls_port: or(config.cluster_announce_tls_port(), config.tls_port()),
            hostname: text(config.cluster_announce_hostname()),
            zone: text(config.cluster_zone()),
            edition: edition(config.edition()),
            machine: sys::process::boot_id(),
            place: None,
            is_met: false,
        };
        Ok(own.to_line())
    }

    /// Takes what was told when the server ran last.
    fn remember(&mut self) {
        let path = self.path();
        let Ok(Some(_)) = Fs::Real.kind(&path) else { return };
        let told = Fs::Real.read(&path, TOPOLOGY_BYTES_MAX).and_then(|text| self.publish(&text));
        if let Err(error) = told {
            log!(Warning, "{} says nothing of the cluster: {error}", path.display());
        }
    }

    fn path(&self) -> PathBuf {
        self.server.engine.dir().join(TOPOLOGY)
    }

    fn take(&mut self, text: &[u8]) -> io::Result<()> {
        self.publish(text)?;
        if let Err(error) = Fs::Real.replace(&self.path(), text) {
            log!(Warning, "What the cluster looks like could not be kept: {error}");
        }
        Ok(())
    }

    fn note_silent(&self, text: &[u8]) -> io::Result<()> {
        let ids = std::str::from_utf8(text).ok().map(|text| text.split(' ').skip(1));
        let ids = ids.and_then(|ids| ids.map(|id| id.parse().ok()).collect::<Option<_>>());
        let ids = ids.ok_or_else(|| io::Error::other("it tells of servers that are none"))?;
        if let Some(part) = self.server.clustered.get() {
            part.note_silent(ids);
        }
        Ok(())
    }

    fn publish(&mut self, text: &[u8]) -> io::Result<()> {
        let topology = std::str::from_utf8(text).ok().and_then(Topology::from_text);
        let topology = topology.ok_or_else(|| io::Error::other("what it says is no topology"))?;
        if self.identity.cluster.as_deref() != Some(&topology.cluster) {
            return Err(io::Error::other(format!("it tells of cluster {}", topology.cluster)));
        }
        if self.server.clustered.get().is_some_and(|part| part.is_forgetful(&topology)) {
            return Err(io::Error::other(
                "its store is older than a move of slots that this server knows of; it was restored from a backup, and who has which slots is not what it says",
            ));
        }
        let own = topology.servers.get(&self.identity.id);
        if own.is_none() && self.server.shard.is_on() {
            // Whether it was removed is said when it introduces itself again.
            return Err(io::Error::other("it knows nothing of this server"));
        }
        let place = own.and_then(|own| own.place);
        match ownership::publish(self.server, topology.clone()) {
            true => self.take_place(&topology, place),
            false => Ok(()),
        }
    }

    fn take_place(&mut self, topology: &Topology, place: Option<Place>) -> io::Result<()> {
        let is_its_own = |place: &Place| {
            let shard = self.server.shard.get();
            shard.is_none_or(|shard| shard.settings.name == shard_name(topology, *place))
        };
        let Some(place) = place.filter(is_its_own) else {
            self.leave(REMOVED);
            return Ok(());
        };
        if !self.may_enter {
            return Ok(());
        }
        let nodes = nodes(topology, place, self.server.engine.config.tls_replication());
        if self.server.shard.get().is_none() {
            let settings = self.settings(topology, place, nodes.clone());
            log!(Notice, "This server is node {} of shard {}", place.node, place.shard);
            if let Some(part) = self.server.clustered.get().filter(|_| !begins(topology, place)) {
                // It has its master's.
                drop(part.take_libraries());
            }
            insync::enter(self.server, settings)?;
        }
        if let Some(shard) = self.server.shard.get() {
            // Who is removed counts no more, even if it was not told itself.
            shard.links.keep_only(&self.server.net.clients, |node| nodes.contains_key(&node));
            shard.set_nodes(nodes);
            if let Some(told) = topology.shards.get(&place.shard) {
                shard.happened(Event::Decided { epoch: Epoch(told.epoch) });
            }
            if begins(topology, place) {
                begin_shard(shard);
            }
        }
        Ok(())
    }

    fn settings(&self, topology: &Topology, place: Place, nodes: BTreeMap<NodeId, Address>) -> Settings {
        let mut options = shard::options(&self.server.engine.config);
        let lease = options.lease;
        // A failover takes as long anyway.
        options.failover = options.failover.or(Some(lease));
        Settings {
            name: shard_name(topology, place),
            node: NodeId(place.node),
            nodes,
            store: Store::Cluster { config_servers: self.config_servers.clone(), shard: place.shard.0 },
            options,
        }
    }
}

/// Whether a config server has said that nobody can do what it was asked for just now.
fn is_for_now(error: &io::Error) -> bool {
    let text = error.to_string();
    ["NOLEADER", "UNAVAILABLE"].iter().any(|word| text.starts_with(word))
}

/// Whether whoever has a place is to begin its shard.
fn begins(topology: &Topology, place: Place) -> bool {
    topology.shards.get(&place.shard).is_some_and(|told| told.beginner == Some(place.node))
}

/// Begins the shard, unless it is known to have begun.
fn begin_shard(shard: &Shard) {
    let standing = shard.standing();
    if standing.decision.is_none() && !standing.is_torn {
        shard.begin_shard();
    }
}

/// What the nodes of a place's shard know it by.
fn shard_name(topology: &Topology, place: Place) -> String {
    format!("{}-{}", place.shard, topology.cluster)
}

/// Where the nodes of a place's shard are.
fn nodes(topology: &Topology, place: Place, with_tls: bool) -> BTreeMap<NodeId, Address> {
    let servers = topology.servers_of(place.shard);
    servers.filter_map(|server| Some((NodeId(server.place?.node), Address::of(server, with_tls)))).collect()
}

fn edition(edition: config::Edition) -> Edition {
    match edition {
        config::Edition::Memory => Edition::Memory,
        config::Edition::Durable => Edition::Durable,
        config::Edition::Capacity => Edition::Capacity,
    }
}

/// What operators and the leader are told of a server every second.
fn figures_of(server: &Server) -> String {
    let standing = server.shard.get().map(|shard| shard.standing());
    let role = standing.as_ref().map_or("spare", |standing| match standing.role {
        Role::Master => "master",
        Role::Member => "member",
        Role::Learner => "learner",
        Role::Nobody => "nobody",
    });
    let epoch = standing.as_ref().map_or(0, |standing| standing.epoch.0);
    let version = standing.as_ref().and_then(|standing| standing.decision.as_ref());
    let version = version.map_or(0, |Decision { version, .. }| version.0);
    let offset = standing.as_ref().map_or(0, |standing| standing.end.0);
    let life = standing.as_ref().map_or(0, |standing| standing.id.life.0);
    let serves = u8::from(server.clustered.get().is_some_and(|part| part.view().leads));
    let keyspace = &server.engine.keyspace;
    let batch = keyspace.enter(server.engine.moving_guest());
    let databases = || (0..keyspace.databases()).map(DbIndex);
    let keys: u64 = databases().map(|db| batch.shown(db).0).sum();
    let hidden: u64 = databases().map(|db| batch.hidden(db).0).sum();
    drop(batch);
    format!(
        "run={} role={role} serves={serves} life={life} epoch={epoch} decision={version} offset={offset} keys={keys} hidden={hidden} bytes={} clients={} ops={}",
        server.run_id,
        sys::memory::used_bytes(),
        server.net.clients.count(),
        server.samples.per_second(telemetry::samples::Rate::Commands),
    )
}
