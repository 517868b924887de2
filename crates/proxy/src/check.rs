//! `tarn proxy --check`: whether all that a proxy would be in front of is there, and what it is, and whether each slot is somebody's.

use crate::shards;
use crate::upstream::{self, Node, Upstream, config_servers};
use server::server::Server;
use std::io::{self, Write};
use std::sync::Arc;
use wire::Value;

/// Prints a line. A closed pipe has read enough: how it stands is said by the end as well.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line for each server, one for slots that nobody has, and one for each config server. False: something could not be served, or followed.
pub fn run(host: &Arc<Server>, upstream: &Upstream) -> bool {
    let (routes, mut are_sound) = (upstream.routes(), true);
    for number in &routes.masters {
        let node = &routes.nodes[usize::from(*number)];
        let (place, slots) = (node.to_string(), routes.slots_of(*number));
        match look_at(host, node, routes.is_cluster) {
            Ok(what) => say(&format!("{place:24} {slots:5} slots  {what}")),
            Err(why) => {
                are_sound = false;
                say(&format!("{place:24} {slots:5} slots  NOT SERVED: {why}"));
            }
        }
    }
    let lost = routes.unserved();
    if lost > 0 {
        are_sound = false;
        say(&format!("{lost} slots: NOT SERVED: nobody has them"));
    }
    let places = String::from_utf8_lossy(&host.engine.config.proxy_config_servers()).into_owned();
    let config_servers = Node::parse_all(&places).unwrap_or_else(|why| {
        are_sound = false;
        say(&format!("`proxy-config-servers`: {why}"));
        Vec::new()
    });
    for place in config_servers {
        let shown = place.to_string();
        match ask(host, upstream, &place) {
            Ok(what) => say(&format!("{shown:24} config server  {what}")),
            Err(why) => {
                are_sound = false;
                say(&format!("{shown:24} config server  OF NO USE: {why}"));
            }
        }
    }
    are_sound
}

/// What a config server tells, if that may be relied on.
///
/// # Errors
/// Why it may not.
pub fn ask(host: &Arc<Server>, upstream: &Upstream, place: &Node) -> Result<String, String> {
    let told = config_servers::ask(host, place)?;
    upstream.cluster.agree(&told.cluster)?;
    // What comes first is no older than the question.
    if told.doubt.is_none() && told.revision < upstream.known_at_first {
        return Err(format!(
            "its store is at revision {}, and nodes know of revision {}: it was put back, and they take nothing from it",
            told.revision, upstream.known_at_first
        ));
    }
    match told.doubt {
        Some(why) => Err(why),
        None => Ok(format!(
            "of cluster {}, revision {}, {} servers",
            told.cluster,
            told.revision,
            told.nodes.len()
        )),
    }
}

/// Whether a proxy is there.
pub fn is_proxy(host: &Server, node: &Node) -> bool {
    let told = upstream::ask(host, node, &["INFO shards"]).unwrap_or_default();
    told.first().is_some_and(|shards| upstream::field(shards, shards::UNSERVED).is_some())
}

/// What a server is, of which the directives say whether it is a node of a cluster.
fn look_at(host: &Server, node: &Node, is_of_cluster: bool) -> Result<String, String> {
    // Who has the last one has those before it.
    let last = host.engine.config.databases().saturating_sub(1);
    let replies = upstream::ask(host, node, &["INFO server", "INFO replication", &format!("SELECT {last}")])?;
    let mode = replies.first().and_then(|server| upstream::field(server, "redis_mode"));
    if !is_of_cluster && mode.as_deref() == Some("cluster") {
        return Err("it is a node of a cluster, whose slots move: `proxy-cluster` names such".to_owned());
    }
    if let Some(Value::Error(line)) = replies.last() {
        let line = String::from_utf8_lossy(line);
        return Err(if replies.len() == 3 { format!("database {last}: {line}") } else { line.into_owned() });
    }
    let [server @ Value::Bulk(_), replication @ Value::Bulk(_), _] = &replies[..] else {
        return Err("it does not say what it is".to_owned());
    };
    let names = [("tarn_version", "Tarn"), ("valkey_version", "Valkey"), ("redis_version", "Redis")];
    let what =
        names.iter().find_map(|(name, what)| Some(format!("{what} {}", upstream::field(server, name)?)));
    match upstream::field(replication, "role").as_deref() {
        Some("master") => Ok(format!("{}, a master", what.unwrap_or_else(|| "a server".to_owned()))),
        Some(role) => Err(format!("its role is {role}: it takes no writes")),
        None => Err("it does not say whether it is a master".to_owned()),
    }
}
