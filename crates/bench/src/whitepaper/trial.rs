//! Clusters that a run starts for one measurement: their servers, the proxies in front of them, who has which slots, and the keys that they hold when it begins.
//!
//! Of Tarn they are what `tarn cluster up` begins: a config server with the store in its directory, and servers that get their places from it. A
//! peer's are made by the commands that `redis-cli --cluster create` sends, which itself refuses fewer than three masters.
//!
//! Invariant: a cluster is whole before it is measured: at each server each slot has a master and as many replicas as it is to have.

use super::chapters::{Fill, Stage};
use super::edition::Edition;
use super::launch::Launched;
use super::proxy::{Behind, Proxy, plan_through};
use super::rounds;
use crate::Failure;
use crate::client::Client;
use crate::engine::direct::map::Map;
use crate::plan::{Direct, Door, Plan, Target};
use crate::usage;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::{SLOTS, Value, encode_request, key_slot};

/// How long a cluster may take until it is whole.
const WHOLE_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// Keys that are written at once.
const FILL_KEYS: u64 = 1_000;

/// How to start a contestant's clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Tarn.
    Tarn,
    /// A command line of the shell that starts one node, with `{port}` in it.
    Peer(String),
    /// Servers that know nothing of each other, behind a proxy. One of them is started by such a command line; where there is none, it is Tarn.
    Behind(Proxy, Option<String>),
}

impl Recipe {
    /// The proxies that stand in front of its servers, if some do.
    pub fn proxy(&self) -> &Proxy {
        match self {
            Recipe::Tarn | Recipe::Peer(_) => &Proxy::Tarn,
            Recipe::Behind(proxy, _) => proxy,
        }
    }

    /// The database that is used through proxies: a Redis Cluster has but one.
    fn database(&self, stage: &Stage) -> u32 {
        if matches!(self, Recipe::Peer(_)) { 0 } else { stage.database }
    }
}

/// A cluster that runs, or servers that know nothing of each other.
pub struct Trial {
    /// Tarn's config server.
    config: Option<Launched>,
    servers: Vec<Launched>,
    /// What is in front of them.
    proxies: Vec<Launched>,
    /// The database that is used through the proxies.
    database: u32,
}

fn local(port: u16) -> Target {
    Target { port, ..Target::default() }
}

impl Trial {
    /// Begins a cluster, its files in folders within the one given, waits until it is whole, and begins its proxies.
    ///
    /// # Errors
    /// A server does not start, or the cluster does not become whole.
    pub fn begin(recipe: &Recipe, name: &str, stage: &Stage, within: &Path) -> Result<Trial, Failure> {
        let mut trial = Trial::begin_servers(recipe, name, stage, within)?;
        let is_cluster = !matches!(recipe, Recipe::Behind(..));
        if is_cluster {
            trial.wait_until_whole(name, usize::from(stage.copies))?;
        }
        let behind = if is_cluster { Behind::Cluster } else { Behind::Servers };
        let ports: Vec<u16> = trial.servers.iter().map(|server| server.port).collect();
        let start = |_| recipe.proxy().start(name, behind, &ports, within);
        trial.proxies = (0..stage.proxies).map(start).collect::<Result<_, _>>()?;
        trial.database = recipe.database(stage);
        Ok(trial)
    }

    fn begin_servers(recipe: &Recipe, name: &str, stage: &Stage, within: &Path) -> Result<Trial, Failure> {
        let count = stage.shards * stage.copies;
        let own = |settings: &str| {
            // One thread for each shard, as the published instances have a core for each.
            let settings = format!(" --threads 1{settings}");
            let start = |_| Launched::tarn(name, Edition::Cluster, &settings, within);
            (0..count).map(start).collect::<Result<Vec<_>, _>>()
        };
        let by_shell = |command: &str| {
            let start = |_| Launched::shell(name, command, within);
            (0..count).map(start).collect::<Result<Vec<_>, _>>()
        };
        let trial = |servers| Trial { config: None, servers, proxies: Vec::new(), database: 0 };
        match recipe {
            Recipe::Tarn => {
                let settings = format!(" --shards {} --copies {}", stage.shards, stage.copies);
                let config = Launched::config_server(name, &settings, within)?;
                let mut trial = trial(own(&format!(
                    " --cluster-enabled yes --cluster-config-servers 127.0.0.1:{}",
                    config.port
                ))?);
                trial.config = Some(config);
                Ok(trial)
            }
            Recipe::Peer(command) => {
                let trial = trial(by_shell(&format!("{command}{}", stage.peer_options))?);
                trial.acquaint(usize::from(stage.shards))?;
                Ok(trial)
            }
            Recipe::Behind(_, Some(command)) => Ok(trial(by_shell(command)?)),
            Recipe::Behind(_, None) => Ok(trial(own("")?)),
        }
    }

    /// A plan whose load goes to it: through its proxies, or to all of its nodes.
    pub fn plan(&self, plan: Plan) -> Plan {
        if self.proxies.is_empty() {
            return Plan { target: self.target(), direct: Some(Direct::default()), ..plan };
        }
        let doors = self.proxies.iter().map(|proxy| Door {
            target: Target { database: self.database, ..local(proxy.port) },
            process: proxy.id(),
        });
        let servers = self.servers.iter().map(|server| local(server.port));
        plan_through(plan, doors.collect(), servers.collect())
    }

    /// Where what describes it is asked: of a proxy, or of a node if there is none.
    pub fn entry(&self) -> Target {
        self.proxies.first().map_or_else(|| self.target(), |proxy| local(proxy.port))
    }

    /// One of its nodes.
    pub fn target(&self) -> Target {
        local(self.servers.first().map_or(0, |server| server.port))
    }

    /// How many of them there are.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Where its config server is, if it has one.
    pub fn config(&self) -> Option<Target> {
        self.config.as_ref().map(|config| local(config.port))
    }

    /// The command line that started the first of its nodes.
    pub fn command(&self) -> String {
        self.servers.first().map(|server| server.command.clone()).unwrap_or_default()
    }

    /// The same of its proxies.
    pub fn command_of_proxy(&self) -> Option<String> {
        self.proxies.first().map(|proxy| proxy.command.clone())
    }

    /// The server that listens at a port.
    pub fn at(&self, port: u16) -> Option<&Launched> {
        self.servers.iter().find(|server| server.port == port)
    }

    /// Who has which slots.
    ///
    /// # Errors
    /// Nobody tells.
    pub fn map(&self) -> Result<Map, Failure> {
        let target = self.target();
        Map::ask(&mut Client::connect(&target)?, &target)
    }

    /// Makes one cluster of a peer's servers, the first of them masters with slots in even parts.
    fn acquaint(&self, shards: usize) -> Result<(), Failure> {
        let mut clients = Vec::new();
        for server in &self.servers {
            clients.push(Client::connect(&local(server.port))?);
        }
        let border = |shard: usize| SLOTS * shard / shards;
        for (shard, client) in clients.iter_mut().enumerate().take(shards) {
            let epoch = (shard + 1).to_string();
            let (first, last) = (border(shard).to_string(), (border(shard + 1) - 1).to_string());
            well(client, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            well(client, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
        }
        for server in &self.servers[1..] {
            well(&mut clients[0], &["CLUSTER", "MEET", "127.0.0.1", &server.port.to_string()])?;
        }
        let began = Instant::now();
        for at in shards..clients.len() {
            let Value::Bulk(id) = well(&mut clients[at % shards], &["CLUSTER", "MYID"])? else {
                return Err(Failure("CLUSTER MYID is answered with no name.".to_owned()));
            };
            let id = String::from_utf8_lossy(&id).into_owned();
            // A node that it has not heard of yet it cannot follow.
            while let Err(failure) = well(&mut clients[at], &["CLUSTER", "REPLICATE", &id]) {
                if began.elapsed() > WHOLE_MAX {
                    return Err(failure);
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    fn wait_until_whole(&self, name: &str, copies: usize) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            let lacking = self.lacking(copies);
            match lacking {
                None => return Ok(()),
                Some(lacking) if began.elapsed() > WHOLE_MAX => {
                    let waited = WHOLE_MAX.as_secs();
                    return Err(Failure(format!(
                        "The cluster of {name} is not whole after {waited} s: {lacking}."
                    )));
                }
                Some(_) => std::thread::sleep(POLL),
            }
        }
    }

    /// What the cluster lacks to be whole.
    fn lacking(&self, copies: usize) -> Option<String> {
        if let Some(config) = &self.config
            && !holds_all(config.port)
        {
            return Some("not all of its servers hold what was acknowledged".to_owned());
        }
        self.servers.iter().find_map(|server| {
            let lacking = of_node(server.port, copies).unwrap_or_else(|failure| Some(failure.0));
            lacking.map(|lacking| format!("127.0.0.1:{}: {lacking}", server.port))
        })
    }

    /// Writes keys, each to where it belongs, which proxies know if there are some.
    ///
    /// # Errors
    /// A server refuses, or the user has stopped the run.
    pub fn fill(&self, fill: &Fill, is_interrupted: &AtomicBool) -> Result<(), Failure> {
        if let Some(proxy) = self.proxies.first() {
            let target = Target { database: self.database, ..local(proxy.port) };
            return rounds::write(&mut Client::connect(&target)?, fill, is_interrupted);
        }
        let map = self.map()?;
        let mut clients = Vec::new();
        for node in map.nodes() {
            clients.push(Client::connect(&node.target(&self.target()))?);
        }
        let value = vec![b'x'; usize::try_from(fill.value_bytes).unwrap_or(usize::MAX)];
        let (mut next, behind_last) = (fill.first, fill.first + fill.count);
        while next < behind_last {
            if is_interrupted.load(Ordering::Relaxed) {
                return Err(Failure("stopped while its keys were written".to_owned()));
            }
            let end = (next + FILL_KEYS).min(behind_last);
            let mut requests = vec![(Vec::new(), 0); clients.len()];
            for number in next..end {
                let key = fill.key(number);
                let node = map.owner(key_slot(key.as_bytes())).unwrap_or_default();
                let (bytes, count) = &mut requests[node];
                encode_request(bytes, &[b"SET", key.as_bytes(), value.as_slice()]);
                *count += 1;
            }
            for (client, (bytes, count)) in clients.iter_mut().zip(&requests) {
                for reply in client.requests(bytes, *count)? {
                    if let Value::Error(line) = reply {
                        let line = String::from_utf8_lossy(&line).into_owned();
                        return Err(Failure(format!("the keys of the workload cannot be written: {line}")));
                    }
                }
            }
            next = end;
        }
        Ok(())
    }
}

impl Drop for Trial {
    /// Kills all of it: nothing of it is wanted any more, and in order each master would hand over to the next one that is to end.
    fn drop(&mut self) {
        self.proxies.iter().chain(&self.servers).chain(&self.config).for_each(Launched::kill);
    }
}

/// A reply that is no error.
pub fn well(client: &mut Client, words: &[&str]) -> Result<Value, Failure> {
    let arguments: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match client.request(&arguments)? {
        Value::Error(line) => {
            Err(Failure(format!("{} is refused: {}.", words.join(" "), String::from_utf8_lossy(&line))))
        }
        reply => Ok(reply),
    }
}

/// Whether all slots are served, and each server holds everything that its shard has acknowledged, by Tarn's config server.
fn holds_all(port: u16) -> bool {
    let asked = || {
        let reply = well(&mut Client::connect(&local(port)).ok()?, &["CLUSTER", "STATUS", "JSON"]).ok()?;
        let (Value::Bulk(text) | Value::Verbatim(_, text) | Value::Simple(text)) = reply else { return None };
        serde_json::from_slice::<serde_json::Value>(&text).ok()
    };
    let Some(status) = asked() else { return false };
    let shards = status["shards"].as_array().into_iter().flatten();
    let mut servers = shards.flat_map(|shard| shard["servers"].as_array().into_iter().flatten());
    status["serves"].as_bool() == Some(true) && servers.all(|one| one["is_member"].as_bool() == Some(true))
}

/// What a node lacks, for all that it says of itself and of the cluster.
fn of_node(port: u16, copies: usize) -> Result<Option<String>, Failure> {
    let mut client = Client::connect(&local(port))?;
    let info = match well(&mut client, &["CLUSTER", "INFO"])? {
        Value::Bulk(text) | Value::Verbatim(_, text) => String::from_utf8_lossy(&text).into_owned(),
        _ => String::new(),
    };
    if usage::field(&info, "cluster_state") != Some("ok") {
        return Ok(Some("cluster_state is not ok".to_owned()));
    }
    let slots = well(&mut client, &["CLUSTER", "SLOTS"])?;
    // First, last, and a line for each server.
    let has_all = |line: &Value| matches!(line, Value::Array(line) if line.len() == 2 + copies);
    if !matches!(&slots, Value::Array(lines) if !lines.is_empty() && lines.iter().all(has_all)) {
        return Ok(Some("CLUSTER SLOTS does not name all copies".to_owned()));
    }
    let info = client.info();
    let is_behind = usage::field(&info, "role") == Some("slave")
        && usage::field(&info, "master_link_status") != Some("up");
    Ok(is_behind.then(|| "it has not got its master's data".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_redis_cluster_has_no_other_database() {
        let stage = Stage::proxied(1, 2, 10);
        let database = |recipe: Recipe| recipe.database(&stage);
        assert_eq!(database(Recipe::Peer("redis-server --port {port}".to_owned())), 0);
        assert_eq!([Recipe::Tarn, Recipe::Behind(Proxy::Tarn, None)].map(database), [10, 10]);
    }
}
