//! A topology as clients of Redis Cluster are told it: what CLUSTER SLOTS, SHARDS, NODES, REPLICAS and INFO answer, and redirections.
//!
//! Who has no master is a master without slots here, as a new node of Redis Cluster is; and one that waits for a place is not told of, and tells of nobody, as such a node
//! is before it was met ([`Server::is_met`]). There is no bus: its ports are written as Redis would
//! number them, its links are up but to servers that config servers do not hear of, and nothing is told of messages.

use crate::ids::{ServerId, ShardId};
use crate::record::Server;
use crate::slots::SlotRange;
use crate::view::Topology;
use std::collections::BTreeSet;
use std::fmt::Write;
use wire::{Reply, SLOTS};

/// A field of CLUSTER INFO that is Tarn's own: up to where the node has been told how the cluster looks, by which proxies know who was left behind.
pub const REVISION_FIELD: &str = "tarn_topology_revision";
/// Another: the cluster's id, by which proxies know whose node it is.
pub const CLUSTER_FIELD: &str = "tarn_cluster_id";

/// How far the port of the bus is from that for clients.
const BUS_PORT_DISTANCE: u32 = 10_000;

/// By what clients are told to reach a node (`cluster-preferred-endpoint-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Its address.
    Address,
    /// Its name.
    Hostname,
    /// The address at which they have reached the node that tells them.
    Unknown,
}

impl Endpoint {
    /// As the directive's values are numbered.
    #[must_use]
    pub fn from_number(number: u8) -> Endpoint {
        match number {
            0 => Endpoint::Address,
            1 => Endpoint::Hostname,
            _ => Endpoint::Unknown,
        }
    }

    /// What stands in a redirection.
    fn text(self, server: &Server) -> &str {
        match self {
            Endpoint::Address => &server.host,
            Endpoint::Hostname if server.hostname.is_empty() => "?",
            Endpoint::Hostname => &server.hostname,
            Endpoint::Unknown => "",
        }
    }
}

/// A topology as one server tells it to one client.
#[derive(Clone, Copy, Debug)]
pub struct Telling<'a> {
    /// What is told.
    pub topology: &'a Topology,
    /// Who tells it.
    pub own: ServerId,
    /// By what clients reach nodes.
    pub endpoint: Endpoint,
    /// Whether the client speaks TLS.
    pub is_secure: bool,
    /// Where the teller's stream is.
    pub offset: u64,
    /// Whether the cluster is up.
    pub is_up: bool,
    /// Servers that config servers have not heard of for a while.
    pub silent: &'a BTreeSet<ServerId>,
}

impl Telling<'_> {
    /// The error that sends a client elsewhere, without its dash.
    #[must_use]
    pub fn moved(&self, slot: u16, to: &Server) -> String {
        format!("MOVED {slot} {}:{}", self.endpoint.text(to), self.port(to))
    }

    /// CLUSTER SLOTS: each range with its master and those replicas that have everything.
    pub fn slots(&self, reply: &mut Reply<'_>) {
        let ranges: Vec<(SlotRange, &Server, Vec<&Server>)> = self
            .topology
            .slots
            .ranges()
            .filter_map(|(range, shard)| {
                let master = self.topology.master_of(shard)?;
                let is_there = |one: &&Server| self.topology.is_member(one) && !self.has_failed(one);
                let replicas = self.topology.replicas_of(shard).filter(is_there).collect();
                Some((range, master, replicas))
            })
            .collect();
        reply.array(ranges.len());
        for (range, master, replicas) in ranges {
            reply.array(3 + replicas.len());
            reply.int(i64::from(range.first));
            reply.int(i64::from(range.last));
            self.node(master, reply);
            replicas.into_iter().for_each(|replica| self.node(replica, reply));
        }
    }

    fn node(&self, server: &Server, reply: &mut Reply<'_>) {
        reply.array(4);
        match self.endpoint {
            Endpoint::Unknown => reply.null(),
            Endpoint::Address | Endpoint::Hostname => reply.bulk(self.endpoint.text(server).as_bytes()),
        }
        reply.int(i64::from(self.port(server)));
        reply.bulk(server.id.to_string().as_bytes());
        let by_address = self.endpoint == Endpoint::Address;
        let shows_name = self.endpoint != Endpoint::Hostname && !server.hostname.is_empty();
        reply.map(usize::from(!by_address) + usize::from(shows_name));
        if !by_address {
            pair("ip", &server.host, reply);
        }
        if shows_name {
            pair("hostname", &server.hostname, reply);
        }
    }

    /// CLUSTER SHARDS: each shard with its slots and nodes, and each server without a shard as one by itself.
    pub fn shards(&self, reply: &mut Reply<'_>) {
        let spares = self.known().filter(|server| self.shard_of(server).is_none());
        let mut all: Vec<(Vec<SlotRange>, Vec<&Server>)> = Vec::new();
        let shards = self.topology.shards.keys().filter(|_| !self.is_stranger());
        for shard in shards {
            let servers: Vec<&Server> = self.topology.servers_of(*shard).collect();
            if !servers.is_empty() {
                all.push((self.topology.slots.ranges_of(*shard).collect(), servers));
            }
        }
        all.extend(spares.map(|spare| (Vec::new(), vec![spare])));
        reply.array(all.len());
        for (ranges, servers) in all {
            reply.map(2);
            reply.bulk(b"slots");
            reply.array(2 * ranges.len());
            for range in ranges {
                reply.int(i64::from(range.first));
                reply.int(i64::from(range.last));
            }
            reply.bulk(b"nodes");
            reply.array(servers.len());
            servers.into_iter().for_each(|server| self.details(server, reply));
        }
    }

    fn details(&self, server: &Server, reply: &mut Reply<'_>) {
        let ports = [("port", server.port), ("tls-port", server.tls_port)];
        let ports: Vec<_> = ports.into_iter().filter(|(_, port)| *port > 0).collect();
        let has_name = !server.hostname.is_empty();
        reply.map(6 + ports.len() + usize::from(has_name));
        pair("id", &server.id.to_string(), reply);
        for (word, port) in ports {
            reply.bulk(word.as_bytes());
            reply.int(i64::from(port));
        }
        pair("ip", &server.host, reply);
        pair("endpoint", self.endpoint.text(server), reply);
        if has_name {
            pair("hostname", &server.hostname, reply);
        }
        let is_replica = self.is_replica(server);
        pair("role", if is_replica { "replica" } else { "master" }, reply);
        reply.bulk(b"replication-offset");
        let offset = if server.id == self.own { self.offset } else { 0 };
        reply.int(i64::try_from(offset).unwrap_or(i64::MAX));
        let is_whole = !is_replica || self.topology.is_member(server);
        let health = match (self.has_failed(server), is_whole) {
            (true, _) => "fail",
            (false, true) => "online",
            (false, false) => "loading",
        };
        pair("health", health, reply);
    }

    /// CLUSTER NODES: a line for each server.
    #[must_use]
    pub fn nodes(&self) -> String {
        let mut servers: Vec<&Server> = self.known().collect();
        servers.sort_by_key(|server| (server.place.is_none(), server.place, server.id));
        servers.into_iter().map(|server| self.line(server) + "\n").collect()
    }

    /// CLUSTER REPLICAS: the lines of a master's replicas; None: it is no master.
    #[must_use]
    pub fn replicas(&self, master: &Server) -> Option<Vec<String>> {
        if self.is_replica(master) {
            return None;
        }
        let shard = self.shard_of(master).filter(|_| self.topology.is_master(master));
        let replicas = shard.into_iter().flat_map(|shard| self.topology.replicas_of(shard));
        Some(replicas.map(|replica| self.line(replica)).collect())
    }

    fn line(&self, server: &Server) -> String {
        let Server { id, host, hostname, .. } = server;
        let bus = u32::from(if server.port > 0 { server.port } else { server.tls_port }) + BUS_PORT_DISTANCE;
        let mut line = format!("{id} {host}:{}@{bus}", self.port(server));
        // Writing to a string does not fail.
        if !hostname.is_empty() {
            let _ = write!(line, ",{hostname}");
        }
        let myself = if *id == self.own { "myself," } else { "" };
        let shard = self.shard_of(server);
        let epoch = shard.and_then(|shard| self.topology.shards.get(&shard)).map_or(0, |shard| shard.epoch);
        let followed = shard.filter(|_| self.is_replica(server));
        let (failed, link) =
            if self.has_failed(server) { (",fail", "disconnected") } else { ("", "connected") };
        match followed {
            Some(shard) => {
                let master = self.topology.master_of(shard).map(|master| master.id.to_string());
                let master = master.as_deref().unwrap_or("-");
                let _ = write!(line, " {myself}slave{failed} {master} 0 0 {epoch} {link}");
            }
            None => {
                let _ = write!(line, " {myself}master{failed} - 0 0 {epoch} {link}");
            }
        }
        let owned = shard.filter(|_| self.topology.is_master(server));
        for range in owned.into_iter().flat_map(|shard| self.topology.slots.ranges_of(shard)) {
            let _ = match range.len() {
                1 => write!(line, " {}", range.first),
                _ => write!(line, " {}-{}", range.first, range.last),
            };
        }
        line
    }

    /// CLUSTER INFO: as in Redis, and which cluster it is at which revision, if that is known ([`CLUSTER_FIELD`], [`REVISION_FIELD`]).
    #[must_use]
    pub fn info(&self) -> String {
        let topology = self.topology;
        let assigned = topology.slots.count();
        let with_slots: Vec<ShardId> = topology
            .shards
            .keys()
            .copied()
            .filter(|shard| topology.slots.ranges_of(*shard).next().is_some())
            .collect();
        let served: usize = with_slots
            .iter()
            .filter(|shard| topology.master_of(**shard).is_some_and(|master| !self.has_failed(master)))
            .map(|shard| topology.slots.count_of(*shard))
            .sum();
        let epoch = topology.shards.values().map(|shard| shard.epoch).max().unwrap_or(0);
        let own = topology.servers.get(&self.own).and_then(|server| self.shard_of(server));
        let own_epoch = own.and_then(|shard| topology.shards.get(&shard)).map_or(0, |shard| shard.epoch);
        let figures = [
            ("cluster_slots_assigned", assigned as u64),
            ("cluster_slots_ok", served as u64),
            ("cluster_slots_pfail", 0),
            ("cluster_slots_fail", (assigned - served.min(assigned)) as u64),
            ("cluster_known_nodes", self.known().count() as u64),
            ("cluster_size", with_slots.len() as u64),
            ("cluster_current_epoch", epoch),
            ("cluster_my_epoch", own_epoch),
            ("cluster_stats_messages_sent", 0),
            ("cluster_stats_messages_received", 0),
            ("total_cluster_links_buffer_limit_exceeded", 0),
        ];
        let mut text = format!("cluster_state:{}\r\n", if self.is_up { "ok" } else { "fail" });
        for (name, figure) in figures {
            let _ = write!(text, "{name}:{figure}\r\n");
        }
        if !topology.cluster.is_empty() {
            let Topology { cluster, revision, .. } = topology;
            let _ = write!(text, "{CLUSTER_FIELD}:{cluster}\r\n{REVISION_FIELD}:{revision}\r\n");
        }
        text
    }

    /// The id of the shard that a server is of, in the form of a node's: that of the cluster and the shard's number. A server without a shard is one
    /// by itself.
    #[must_use]
    pub fn shard_name(&self, server: ServerId) -> String {
        let shard = self.topology.servers.get(&server).and_then(|server| self.shard_of(server));
        match shard {
            Some(ShardId(number)) => {
                let cluster: String = self.topology.cluster.chars().take(36).collect();
                format!("{cluster:0<36}{number:04x}")
            }
            None => server.to_string(),
        }
    }

    /// Whether the teller waits for a place, and nobody has met it.
    fn is_stranger(&self) -> bool {
        self.topology.servers.get(&self.own).is_some_and(is_unmet)
    }

    /// The servers that are nodes of one cluster with the teller, and itself.
    fn known(&self) -> impl Iterator<Item = &Server> {
        let is_stranger = self.is_stranger();
        let is_known = move |server: &&Server| server.id == self.own || !is_stranger && !is_unmet(server);
        self.topology.servers.values().filter(is_known)
    }

    fn shard_of(&self, server: &Server) -> Option<ShardId> {
        server.place.map(|place| place.shard).filter(|shard| self.topology.shards.contains_key(shard))
    }

    /// Whether a server is taken for dead. Nobody takes itself for that.
    fn has_failed(&self, server: &Server) -> bool {
        server.id != self.own && self.silent.contains(&server.id)
    }

    /// Whether a server stands behind another, which is master.
    fn is_replica(&self, server: &Server) -> bool {
        let shard = self.shard_of(server).and_then(|shard| self.topology.shards.get(&shard));
        shard.is_some_and(|shard| shard.master.is_some()) && !self.topology.is_master(server)
    }

    fn port(&self, server: &Server) -> u16 {
        if self.is_secure { server.tls_port } else { server.port }
    }
}

fn is_unmet(server: &Server) -> bool {
    server.place.is_none() && !server.is_met
}

fn pair(name: &str, text: &str, reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

// No more slots than a u16 counts.
const _: () = assert!(SLOTS <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::{id, three_shards};
    use wire::Protocol;

    fn telling(topology: &Topology, endpoint: Endpoint, is_secure: bool) -> Telling<'_> {
        const NOBODY: &BTreeSet<ServerId> = &BTreeSet::new();
        Telling { topology, own: id(1), endpoint, is_secure, offset: 17, is_up: false, silent: NOBODY }
    }

    fn replied(protocol: Protocol, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, protocol));
        String::from_utf8(out).expect("it is text").replace("\r\n", " ")
    }

    fn bulk(text: &str) -> String {
        format!("${} {text} ", text.len())
    }

    fn name(number: u8) -> String {
        bulk(&id(number).to_string())
    }

    #[test]
    fn a_client_is_sent_where_it_can_go() {
        let topology = three_shards();
        let to = |endpoint, is_secure, number| {
            telling(&topology, endpoint, is_secure).moved(5, &topology.servers[&id(number)])
        };
        assert_eq!(to(Endpoint::Address, false, 3), "MOVED 5 10.0.0.3:7003");
        assert_eq!(to(Endpoint::Address, true, 3), "MOVED 5 10.0.0.3:8003");
        assert_eq!(to(Endpoint::Hostname, false, 1), "MOVED 5 one.example:7001");
        assert_eq!(to(Endpoint::Hostname, false, 3), "MOVED 5 ?:7003");
        assert_eq!(to(Endpoint::Unknown, false, 3), "MOVED 5 :7003");
    }

    #[test]
    fn slots_have_masters_and_whole_replicas() {
        let topology = three_shards();
        let by_address = replied(Protocol::Resp3, |reply| {
            telling(&topology, Endpoint::Address, false).slots(reply);
        });
        let named = format!("{}%1 {}{}", name(1), bulk("hostname"), bulk("one.example"));
        let second = format!("*4 {}:7002 {}%0 ", bulk("10.0.0.2"), name(2));
        let third = format!("*4 {}:7003 {}%0 ", bulk("10.0.0.3"), name(3));
        // The fifth server is no member.
        let fourth = format!("*4 {}:7004 {}%0 ", bulk("10.0.0.4"), name(4));
        let expected = format!(
            "*2 *4 :0 :5461 *4 {}:7001 {named}{second}*4 :5462 :10922 {third}{fourth}",
            bulk("10.0.0.1")
        );
        assert_eq!(by_address, expected);
        let by_name = replied(Protocol::Resp2, |reply| {
            telling(&topology, Endpoint::Hostname, true).slots(reply);
        });
        let first =
            format!("*4 {}:8001 {}*2 {}{}", bulk("one.example"), name(1), bulk("ip"), bulk("10.0.0.1"));
        assert!(by_name.starts_with(&format!("*2 *4 :0 :5461 {first}*4 {}:8002", bulk("?"))), "{by_name}");
        let unknown = replied(Protocol::Resp3, |reply| {
            telling(&topology, Endpoint::Unknown, false).slots(reply);
        });
        let both = format!("{}{}{}{}", bulk("ip"), bulk("10.0.0.1"), bulk("hostname"), bulk("one.example"));
        let first = format!("*4 _ :7001 {}%2 {both}", name(1));
        assert!(unknown.starts_with(&format!("*2 *4 :0 :5461 {first}")), "{unknown}");
    }

    #[test]
    fn shards_are_told_whole() {
        let topology = three_shards();
        let told = replied(Protocol::Resp3, |reply| {
            telling(&topology, Endpoint::Address, false).shards(reply);
        });
        let node = |number: u8, more: &str, role: &str, offset: u64, health: &str| {
            let host = format!("10.0.0.{number}");
            let count = if more.is_empty() { 8 } else { 9 };
            [
                format!("%{count} {}{}", bulk("id"), name(number)),
                format!(
                    "{}:{} {}:{} ",
                    bulk("port"),
                    7000 + u16::from(number),
                    bulk("tls-port"),
                    8000 + u16::from(number)
                ),
                format!("{}{}{}{}{more}", bulk("ip"), bulk(&host), bulk("endpoint"), bulk(&host)),
                format!("{}{}{}:{offset} ", bulk("role"), bulk(role), bulk("replication-offset")),
                format!("{}{}", bulk("health"), bulk(health)),
            ]
            .concat()
        };
        let named = format!("{}{}", bulk("hostname"), bulk("one.example"));
        let shard = |slots: &str, nodes: &[String]| {
            let (count, nodes) = (nodes.len(), nodes.concat());
            format!("%2 {}{slots}{}*{count} {nodes}", bulk("slots"), bulk("nodes"))
        };
        let expected = [
            "*4 ".to_owned(),
            shard(
                "*2 :0 :5461 ",
                &[node(1, &named, "master", 17, "online"), node(2, "", "replica", 0, "online")],
            ),
            shard(
                "*2 :5462 :10922 ",
                &[
                    node(4, "", "replica", 0, "online"),
                    node(3, "", "master", 0, "online"),
                    node(5, "", "replica", 0, "loading"),
                ],
            ),
            shard("*2 :10923 :16383 ", &[node(6, "", "master", 0, "online")]),
            shard("*0 ", &[node(9, "", "master", 0, "online")]),
        ]
        .concat();
        assert_eq!(told, expected);
    }

    #[test]
    fn nodes_are_lines() {
        let mut topology = three_shards();
        topology.slots.set(3, None);
        topology.slots.set(5, None);
        let (own, other) = (id(1), id(3));
        let expected = format!(
            "\
{own} 10.0.0.1:7001@17001,one.example myself,master - 0 0 4 connected 0-2 4 6-5461
{} 10.0.0.2:7002@17002 slave {own} 0 0 4 connected
{} 10.0.0.4:7004@17004 slave {other} 0 0 7 connected
{other} 10.0.0.3:7003@17003 master - 0 0 7 connected 5462-10922
{} 10.0.0.5:7005@17005 slave {other} 0 0 7 connected
{} 10.0.0.6:7006@17006 master - 0 0 0 connected
{} 10.0.0.9:7009@17009 master - 0 0 0 connected
",
            id(2),
            id(4),
            id(5),
            id(6),
            id(9)
        );
        let telling = telling(&topology, Endpoint::Address, false);
        assert_eq!(telling.nodes(), expected);
        let lines: Vec<&str> = expected.lines().collect();
        let replicas = |number: u8| telling.replicas(&topology.servers[&id(number)]);
        assert_eq!(replicas(3), Some(vec![lines[2].to_owned(), lines[4].to_owned()]));
        assert_eq!((replicas(9), replicas(2)), (Some(Vec::new()), None));
    }

    #[test]
    fn who_was_not_met_is_not_told_of_and_tells_of_nobody() {
        let mut topology = three_shards();
        let spare = topology.servers.get_mut(&id(9)).expect("it is there");
        spare.is_met = false;
        let told = telling(&topology, Endpoint::Address, false);
        assert_eq!(told.nodes().lines().count(), 6);
        assert!(!told.nodes().contains(&id(9).to_string()));
        assert!(told.info().contains("cluster_known_nodes:6\r\n"), "{}", told.info());
        assert!(replied(Protocol::Resp2, |reply| told.shards(reply)).starts_with("*3 "));
        let told = Telling { own: id(9), ..told };
        let line = format!("{} 10.0.0.9:7009@17009 myself,master - 0 0 0 connected\n", id(9));
        assert_eq!(told.nodes(), line);
        assert!(told.info().contains("cluster_known_nodes:1\r\n"), "{}", told.info());
        assert!(replied(Protocol::Resp2, |reply| told.shards(reply)).starts_with("*1 "));
        // Where slots are it tells all the same: a client may ask it first.
        assert!(replied(Protocol::Resp2, |reply| told.slots(reply)).starts_with("*2 "));
    }

    #[test]
    fn who_is_not_heard_of_has_failed() {
        let topology = three_shards();
        let silent = [id(1), id(3), id(4), id(9)].into();
        let telling = Telling { silent: &silent, ..telling(&topology, Endpoint::Address, false) };
        let flags: Vec<(String, String)> = telling
            .nodes()
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .map(|words| (words[2].to_owned(), words[7].to_owned()))
            .collect();
        let expected = [
            ("myself,master", "connected"),
            ("slave", "connected"),
            ("slave,fail", "disconnected"),
            ("master,fail", "disconnected"),
            ("slave", "connected"),
            ("master", "connected"),
            ("master,fail", "disconnected"),
        ];
        assert_eq!(flags, expected.map(|(flags, link)| (flags.to_owned(), link.to_owned())));
        assert!(telling.info().contains("cluster_slots_ok:5462\r\n"), "{}", telling.info());
        let slots = replied(Protocol::Resp2, |reply| telling.slots(reply));
        assert!(!slots.contains(":7004") && slots.contains(":7003"), "{slots}");
        let shards = replied(Protocol::Resp2, |reply| telling.shards(reply));
        assert_eq!(shards.matches(" fail ").count(), 3, "{shards}");
    }

    #[test]
    fn figures_count_what_is_served() {
        let topology = three_shards();
        let text = telling(&topology, Endpoint::Address, false).info();
        let figure = |name: &str| {
            let line = text.split("\r\n").find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.strip_prefix(':')).map(str::to_owned)
        };
        for (name, expected) in [
            ("cluster_state", "fail"),
            ("cluster_slots_assigned", "16384"),
            ("cluster_slots_ok", "10923"),
            ("cluster_slots_fail", "5461"),
            ("cluster_known_nodes", "7"),
            ("cluster_size", "3"),
            ("cluster_current_epoch", "7"),
            ("cluster_my_epoch", "4"),
            (CLUSTER_FIELD, &topology.cluster),
            (REVISION_FIELD, &topology.revision.to_string()),
        ] {
            assert_eq!(figure(name).as_deref(), Some(expected), "{name}");
        }
        let untold = telling(&Topology::default(), Endpoint::Address, false).info();
        assert!(!untold.contains(CLUSTER_FIELD), "{untold}");
    }

    #[test]
    fn shards_have_names_of_forty_digits() {
        let topology = three_shards();
        let telling = telling(&topology, Endpoint::Address, false);
        assert_eq!(telling.shard_name(id(3)), "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffee0001");
        assert_eq!(telling.shard_name(id(9)), id(9).to_string());
        assert_eq!(
            (telling.shard_name(id(1)).len(), telling.shard_name(id(3))),
            (40, telling.shard_name(id(4)))
        );
    }
}
