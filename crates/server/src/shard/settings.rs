//! What the directives say of a shard.

use config::Config;
use replication::insync::{NodeId, Options};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where another server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Address {
    /// Where other servers reach a server of the cluster.
    #[must_use]
    pub fn of(server: &topology::Server, with_tls: bool) -> Address {
        Address { host: server.host.clone(), port: if with_tls { server.tls_port } else { server.port } }
    }
}

/// Where it lies who is master and who is a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// In one key of a server of Redis' protocol.
    Server(Address),
    /// With the config servers of a cluster, of which each can be asked.
    Cluster {
        /// Where they are; one at least.
        config_servers: Vec<Address>,
        /// The shard's number.
        shard: u16,
    },
}

/// A shard, as one of its nodes knows it when it begins its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// This node.
    pub node: NodeId,
    /// All nodes, as far as they are known then.
    pub nodes: BTreeMap<NodeId, Address>,
    /// The store of decisions.
    pub store: Store,
    /// For the state machine.
    pub options: Options,
}

impl Settings {
    /// What the directives say; None: this server is of no shard.
    ///
    /// # Errors
    /// One sentence for the operator: they make no sense.
    pub fn of(config: &Config) -> Result<Option<Settings>, String> {
        let text =
            |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "`shard-…` takes UTF-8 only".to_owned());
        let name = text(config.shard_name())?;
        if name.is_empty() {
            return Ok(None);
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return Err("`shard-name` is made of letters, digits, `-`, `_` and `.`".to_owned());
        }
        let nodes = nodes(&text(config.shard_nodes())?)?;
        let node = NodeId(config.shard_node());
        if !nodes.contains_key(&node) {
            return Err(format!(
                "`shard-nodes` does not name node {}, which is this one (`shard-node`)",
                node.0
            ));
        }
        let store = address(&text(config.shard_store())?)
            .ok_or_else(|| "`shard-store` is `host:port` of the store of decisions".to_owned())?;
        if config.replicaof().is_some() {
            return Err("a node of a shard follows whom the shard says: no `replicaof`".to_owned());
        }
        Ok(Some(Settings { name, node, nodes, store: Store::Server(store), options: options(config) }))
    }
}

/// What the directives say of any shard.
pub fn options(config: &Config) -> Options {
    let silence = Duration::from_millis(config.shard_silence_ms());
    let lease = Duration::from_millis(config.shard_lease_ms());
    let failover = Some(config.shard_failover_ms()).filter(|ms| *ms > 0).map(Duration::from_millis);
    Options {
        members_min: config.min_sync_replicas() + 1,
        silence,
        heartbeat: (silence / 5).min(lease / 5),
        lease,
        lease_max: lease,
        failover,
        ..Options::default()
    }
}

fn nodes(text: &str) -> Result<BTreeMap<NodeId, Address>, String> {
    let mut nodes = BTreeMap::new();
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let read =
            one.split_once('=').and_then(|(number, place)| Some((number.parse().ok()?, address(place)?)));
        let (number, place) =
            read.ok_or_else(|| format!("`shard-nodes`: '{one}' is not `number=host:port`"))?;
        if nodes.insert(NodeId(number), place).is_some() {
            return Err(format!("`shard-nodes` names node {number} twice"));
        }
    }
    Ok(nodes)
}

/// An address as `host:port`.
pub fn address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| Address { host: host.trim_matches(['[', ']']).to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Startup;

    fn settings(text: &str) -> Result<Option<Settings>, String> {
        let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else { panic!("{text}") };
        Settings::of(&config)
    }

    #[test]
    fn a_shard_is_as_the_directives_say() {
        assert_eq!(settings("edition memory"), Ok(None));
        let all = "edition memory\nshard-name a.b\nshard-node 2\nshard-nodes 1=[::1]:7001,2=h:7002\nshard-store s:9\nmin-sync-replicas 1";
        let read = settings(all).expect("it makes sense").expect("there is one");
        assert_eq!(read.nodes[&NodeId(1)], Address { host: "::1".to_owned(), port: 7001 });
        assert_eq!((read.node, read.options.members_min), (NodeId(2), 2));
        assert_eq!(read.store, Store::Server(Address { host: "s".to_owned(), port: 9 }));
        for (what, with) in [
            ("1=[::1]:7001,2=h:7002", "1=[::1]:7001"),
            ("2=h:7002", "1=h:7002"),
            ("2=h:7002", "2=h"),
            ("2=h:7002", "2=h:0"),
            ("shard-store s:9", "shard-store s"),
            ("shard-name a.b", "shard-name a/b"),
            ("edition memory", "edition memory\nreplicaof h 7"),
        ] {
            assert!(settings(&all.replace(what, with)).is_err(), "{with}");
        }
    }
}
