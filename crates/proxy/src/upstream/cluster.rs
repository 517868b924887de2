//! A Redis Cluster, or Tarn's: asked for its slots when the proxy begins, every few seconds, and whenever a node says that a slot is elsewhere.
//!
//! Nodes are asked. Where none that is known tells, config servers that are named are asked for others, and where one does they are asked now and then whether
//! it was left behind: one that has left the cluster, or is cut off from it, tells for ever what was. Who knows less than was believed before is not believed.

use super::asking::ask;
use super::config_servers::{self, ConfigServers};
use super::identity::ClusterId;
use super::{HOST_BYTES_MAX, NOBODY, Node, Routes, TOO_MANY, Upstream};
use server::server::Server;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use telemetry::log;
use topology::{CLUSTER_FIELD, REVISION_FIELD};
use wire::{SLOTS, Value};

/// How often it is asked where nothing says that slots are elsewhere.
const ASKED_EVERY: Duration = Duration::from_secs(10);
/// How soon it is asked again at the soonest.
const ASKED_AGAIN: Duration = Duration::from_millis(50);
/// For how long nodes are asked, one after another, before config servers are asked for others: all may be gone without a word.
const NODES_FIRST: Duration = Duration::from_secs(4);
/// How often a config server is asked whether the node that tells was left behind: always, and where something says that slots are elsewhere, or a node is lost.
const CHECKED_EVERY: Duration = ASKED_EVERY;
const CHECKED_AGAIN: Duration = Duration::from_secs(2);
/// For how long one config server after the other is asked that when a proxy begins.
const CHECKED_FIRST: Duration = Duration::from_secs(5);

/// What is behind the proxy, as the directives say it.
pub struct Named {
    /// Some nodes.
    pub nodes: Vec<Node>,
    /// Config servers, which know all.
    pub config_servers: Vec<Node>,
}

/// Whoever asks.
pub struct Asking {
    /// Nodes that were named.
    seeds: Vec<Node>,
    /// All others that nodes have named, replicas among them: one of them may be all that is left.
    others: Vec<Node>,
    /// Who names others where none of these tells, and knows whether one that does was left behind.
    config_servers: Option<ConfigServers>,
    /// Who has told last.
    teller: Option<Node>,
    /// Up to where whoever was believed last knew the cluster; None: nobody has said it.
    revision: Option<u64>,
    /// When a config server was asked last whether it knows more, and whether it could tell.
    checked: Option<(Instant, bool)>,
    /// Whose directives say how they are reached.
    host: Arc<Server>,
}

impl Asking {
    /// Whoever asks these, of this cluster.
    pub fn new(named: Named, cluster: &Arc<ClusterId>, host: Arc<Server>) -> Asking {
        let Named { nodes: seeds, config_servers: places } = named;
        let are_named = !places.is_empty();
        let config_servers = are_named.then(|| ConfigServers::new(places, cluster.clone()));
        Asking {
            seeds,
            others: Vec::new(),
            config_servers,
            teller: None,
            revision: None,
            checked: None,
            host,
        }
    }

    /// Asks one node after the other, masters first, and at last those that config servers name, until one tells who has which slot; all servers keep the
    /// numbers that they have.
    ///
    /// # Errors
    /// Why the last of them did not, and what came of asking config servers.
    pub fn ask(&mut self, known: &Routes) -> Result<Routes, String> {
        let masters = known.masters.iter().map(|number| &known.nodes[usize::from(*number)]);
        let nodes: Vec<Node> = masters.chain(&self.seeds).chain(&self.others).cloned().collect();
        let host = self.host.clone();
        let mut round = self.round(&host, known);
        let (floor, longest) = (round.floor, self.config_servers.as_ref().map(|_| NODES_FIRST));
        let said = match (round.ask(&nodes, longest), &mut self.config_servers) {
            (Err(why), Some(config_servers)) => {
                let found = config_servers.find(&host, |told| {
                    round.named_by = Some(told.cluster.clone());
                    // A store that has just been read knows all that there is: where it was put back others have known more.
                    round.floor = if told.doubt.is_none() { floor.min(told.revision) } else { floor };
                    round.ask(&told.nodes, None)
                });
                (round.named_by, round.floor) = (None, floor);
                found.or_else(|others| match nodes.is_empty() {
                    true => {
                        Err(format!("no config server names a node that tells who has which slot: {others}"))
                    }
                    // For some of them there was no time.
                    false => round
                        .ask(&nodes, None)
                        .map_err(|_| format!("{why}; nor does a node that a config server names: {others}")),
                })
            }
            (said, _) => said,
        }?;
        Ok(self.take(said))
    }

    /// Asks a config server whether the cluster has changed since a node has told of it, and then those that it names: one that was left behind answers, too.
    /// None: nobody tells anything else.
    pub fn check(&mut self, known: &Routes) -> Option<Routes> {
        let config_servers = self.config_servers.as_mut()?;
        let later = config_servers.later_than(&self.host, self.revision.unwrap_or(0));
        self.checked = Some((Instant::now(), later.is_ok()));
        let told = later.ok()??;
        let is_gone = self.teller.as_ref().is_some_and(|teller| !told.nodes.contains(teller));
        if self.revision.is_none() && !is_gone {
            // A node of an earlier version does not say what it knows.
            return None;
        }
        let host = self.host.clone();
        let mut round = self.round(&host, known);
        round.named_by = Some(told.cluster);
        round.floor = self.revision.map_or(0, |revision| revision + 1);
        let said = round.ask(&told.nodes, Some(NODES_FIRST)).ok()?;
        if let Some(teller) = self.teller.as_ref().filter(|_| is_gone) {
            log!(
                Notice,
                "{teller} tells what the cluster was before it has left it: {} is believed",
                said.by
            );
        }
        Some(self.take(said))
    }

    /// The same by each of them in turn, until one can tell, or a start has waited for long enough.
    pub fn check_by_any(&mut self, known: &Routes) -> Option<Routes> {
        let count = self.config_servers.as_ref().map_or(0, ConfigServers::count);
        let begun = Instant::now();
        for _ in 0..count {
            let later = self.check(known);
            if self.checked.is_some_and(|(_, has_told)| has_told) || begun.elapsed() > CHECKED_FIRST {
                return later;
            }
        }
        None
    }

    /// Whether it is time for that.
    fn is_due(&self, is_hurried: bool) -> bool {
        self.checked.is_none_or(|(at, has_told)| {
            at.elapsed() >= if is_hurried && has_told { CHECKED_AGAIN } else { CHECKED_EVERY }
        })
    }

    /// Up to where whoever was believed last knew the cluster, if somebody has said it.
    pub fn known(&self) -> Option<u64> {
        self.revision
    }

    fn round<'r>(&self, host: &'r Server, known: &'r Routes) -> Round<'r> {
        let cluster = self.config_servers.as_ref().map(|all| all.cluster.clone());
        // Without config servers nobody could say that a store was put back.
        let floor = self.revision.filter(|_| cluster.is_some()).unwrap_or(0);
        Round { host, known, cluster, named_by: None, floor, asked: Vec::new() }
    }

    /// Believes somebody.
    fn take(&mut self, said: Said) -> Routes {
        self.others = said.others;
        self.revision = said.revision.or(self.revision);
        if let (Some(config_servers), Some(revision)) = (&mut self.config_servers, said.revision) {
            config_servers.note(revision);
        }
        self.teller = Some(said.by);
        said.routes
    }

    /// The nodes that whoever was believed last has named.
    pub fn named(&self) -> &[Node] {
        &self.others
    }

    /// Follows the cluster for as long as there is a proxy.
    pub fn follow(mut self, upstream: &Weak<Upstream>, hurried: &Receiver<()>) {
        let mut is_told = false;
        loop {
            std::thread::sleep(ASKED_AGAIN);
            // Config servers may have been asked too early to be asked again.
            let is_soon = is_told && self.config_servers.is_some();
            let longest = if is_soon { config_servers::ASKED_AGAIN } else { ASKED_EVERY };
            let is_hurried = match hurried.recv_timeout(longest) {
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => false,
                Ok(()) => true,
            };
            let Some(upstream) = upstream.upgrade() else { return };
            match self.ask(&upstream.routes()) {
                Ok(routes) => {
                    if std::mem::take(&mut is_told) {
                        log!(Notice, "Nodes of the cluster tell again who has which slot");
                    }
                    // What was learnt meanwhile keeps its number.
                    upstream.replace(|current| current.follow(&routes));
                    if self.is_due(is_hurried)
                        && let Some(later) = self.check(&upstream.routes())
                    {
                        upstream.replace(|current| current.follow(&later));
                    }
                    upstream.note_named(self.named());
                }
                Err(reason) if !std::mem::replace(&mut is_told, true) => {
                    log!(Warning, "No node of the cluster tells who has which slot: {reason}");
                }
                Err(_) => {}
            }
        }
    }
}

/// What a node says.
#[derive(Clone)]
struct Said {
    by: Node,
    routes: Routes,
    /// All nodes that it names.
    others: Vec<Node>,
    /// The cluster that it is of, and up to where it knows it, if it says that.
    cluster: Option<String>,
    revision: Option<u64>,
}

/// One search for somebody who tells.
struct Round<'r> {
    host: &'r Server,
    known: &'r Routes,
    /// Of which cluster nodes have to be; None: that is not looked at.
    cluster: Option<Arc<ClusterId>>,
    /// Of which cluster they are by what a config server says that names them.
    named_by: Option<String>,
    /// Who knows less of the cluster is not believed.
    floor: u64,
    /// Who was asked, and has said what: nobody is asked twice.
    asked: Vec<(Node, Result<Said, String>)>,
}

impl Round<'_> {
    /// Asks one node after the other, for that long if that is said: who has which slot, and all nodes that are named with that. Of who was asked already it is
    /// looked whether he is to be believed by now.
    fn ask(&mut self, nodes: &[Node], longest: Option<Duration>) -> Result<Said, String> {
        let (begun, mut reason) = (Instant::now(), "no other node is named".to_owned());
        for node in nodes {
            let before = self.asked.iter().find(|(asked, _)| asked == node).map(|(_, said)| said.clone());
            if before.is_none() && longest.is_some_and(|longest| begun.elapsed() > longest) {
                break;
            }
            let is_new = before.is_none();
            let said = before.unwrap_or_else(|| {
                let said = ask(self.host, node, &["CLUSTER INFO", "CLUSTER SLOTS"]);
                let said = said.and_then(|replies| look_at(&replies, self.known, node));
                self.asked.push((node.clone(), said.clone()));
                said
            });
            match said.and_then(|said| self.judge(&said).map(|()| said)) {
                Ok(said) => return Ok(said),
                Err(why) if is_new => reason = format!("{node}: {why}"),
                Err(_) => {}
            }
        }
        Err(reason)
    }

    /// Looks whether a node may be believed.
    fn judge(&self, said: &Said) -> Result<(), String> {
        if let Some(revision) = said.revision.filter(|revision| *revision < self.floor) {
            return Err(format!(
                "it was left behind: it knows the cluster up to revision {revision}, and revision {} is looked for",
                self.floor
            ));
        }
        agree(self.cluster.as_deref(), self.named_by.as_deref(), said.cluster.as_deref())
    }
}

/// Looks whether a node is of the cluster that is looked for; None: any will do. One of an earlier version, or no Tarn, does not tell it.
fn agree(cluster: Option<&ClusterId>, named_by: Option<&str>, its: Option<&str>) -> Result<(), String> {
    match (cluster, named_by, its) {
        (None, ..) => Ok(()),
        // Before anything is known by it.
        (_, Some(named_by), Some(its)) if its != named_by => {
            Err(format!("it is of another cluster ({its}) than the config server that names it ({named_by})"))
        }
        (Some(cluster), ..) => cluster.agree_with_node(its),
    }
}

impl Routes {
    /// Gives slots to whom they have there.
    pub(super) fn follow(&mut self, told: &Routes) {
        let numbers = self.number_all(told.nodes.iter());
        for (slot, owner) in self.slots.iter_mut().zip(&told.slots) {
            *slot = numbers.get(usize::from(*owner)).copied().flatten().unwrap_or(NOBODY);
        }
        self.note_masters();
    }
}

/// Reads what a node says, if it is in touch with the others.
fn look_at(replies: &[Value], known: &Routes, asked: &Node) -> Result<Said, String> {
    match replies {
        [Value::Error(line)] | [_, Value::Error(line)] => Err(String::from_utf8_lossy(line).into_owned()),
        // Who is cut off tells what was.
        [Value::Bulk(info), _] if info.windows(DOWN.len()).any(|line| line == DOWN) => {
            Err("its cluster is down".to_owned())
        }
        [info, slots] => {
            let (routes, others) = take(slots, known, asked)?;
            let revision = field(info, REVISION_FIELD).and_then(|told| told.parse().ok());
            Ok(Said { by: asked.clone(), routes, others, cluster: field(info, CLUSTER_FIELD), revision })
        }
        _ => Err("it does not say who has which slot".to_owned()),
    }
}

/// A line of CLUSTER INFO.
const DOWN: &[u8] = b"cluster_state:fail";

/// A field of what INFO or CLUSTER INFO says.
pub fn field(info: &Value, name: &str) -> Option<String> {
    let Value::Bulk(info) = info else { return None };
    let text = String::from_utf8_lossy(info);
    let told = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    told.map(|told| told.trim_end().to_owned())
}

/// Reads what CLUSTER SLOTS says. A node that names no address for itself is where it was asked; one that has no name where names are shown stays
/// who it was.
fn take(reply: &Value, known: &Routes, asked: &Node) -> Result<(Routes, Vec<Node>), String> {
    let mut others = Vec::new();
    let ranges = match reply {
        Value::Array(ranges) => ranges,
        Value::Error(line) => return Err(String::from_utf8_lossy(line).into_owned()),
        _ => return Err("it does not say who has which slot".to_owned()),
    };
    let mut routes = known.clone();
    routes.slots.fill(NOBODY);
    let mut owned = Vec::new();
    for range in ranges {
        let (slots, nodes) = owner_of(range, asked).ok_or("it does not say who has which slot")?;
        let Some(Some(master)) = nodes.first() else {
            routes.slots[slots.clone()].copy_from_slice(&known.slots[slots]);
            continue;
        };
        owned.push((slots, master.clone()));
        others.extend(nodes.into_iter().flatten());
    }
    let numbers = routes.number_all(owned.iter().map(|(_, master)| master));
    for ((slots, _), number) in owned.into_iter().zip(numbers) {
        routes.slots[slots].fill(number.ok_or(TOO_MANY)?);
    }
    routes.note_masters();
    match routes.masters.is_empty() {
        true => Err("nobody has a slot".to_owned()),
        false => Ok((routes, others)),
    }
}

/// Which slots, and whose: the master first. None in the place of one that has no name.
fn owner_of(range: &Value, asked: &Node) -> Option<(Range<usize>, Vec<Option<Node>>)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else { return None };
    let nodes = nodes.iter().map(|node| node_of(node, asked)).collect::<Option<Vec<_>>>()?;
    let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
    let is_range = first <= last && last < SLOTS && !nodes.is_empty();
    is_range.then_some((first..last + 1, nodes))
}

fn node_of(node: &Value, asked: &Node) -> Option<Option<Node>> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = &parts[..] else { return None };
    let port = u16::try_from(*port).ok()?;
    let at = |host: String| Some(Node { host, port });
    match host {
        Value::Bulk(host) if host == b"?" => Some(None),
        // It stands in lines that clients are told.
        Value::Bulk(host) if host.iter().any(u8::is_ascii_control) || host.len() > HOST_BYTES_MAX => None,
        Value::Bulk(host) if !host.is_empty() => Some(at(String::from_utf8_lossy(host).into_owned())),
        Value::Bulk(_) | Value::Null => Some(at(asked.host.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::NODES_MAX;
    use super::*;

    fn slots(ranges: &[(i64, i64, &str, i64)]) -> Value {
        let range = |(first, last, host, port): &(i64, i64, &str, i64)| {
            let master = vec![Value::Bulk(host.as_bytes().to_vec()), Value::Int(*port)];
            Value::Array(vec![Value::Int(*first), Value::Int(*last), Value::Array(master)])
        };
        Value::Array(ranges.iter().map(range).collect())
    }

    #[test]
    fn servers_keep_their_numbers() {
        let asked = Node::parse("10.0.0.9:7000").unwrap();
        let first = take(&slots(&[(0, 99, "a", 1), (100, 16_383, "", 7000)]), &Routes::empty(true), &asked)
            .unwrap()
            .0;
        assert_eq!((first.of(99), first.of(100)), (Some(0), Some(1)));
        assert_eq!(first.nodes[1], asked);
        let next = take(&slots(&[(0, 49, "b", 1), (50, 99, "10.0.0.9", 7000)]), &first, &asked).unwrap().0;
        assert_eq!((next.of(0), next.of(50), next.of(100)), (Some(2), Some(1), None));
        assert_eq!(next.masters, [1, 2]);
        let unnamed = take(&slots(&[(0, 49, "?", 9), (50, 99, "a", 1)]), &next, &asked).unwrap().0;
        assert_eq!((unnamed.of(0), unnamed.of(50), unnamed.of(100)), (Some(2), Some(0), None));
    }

    #[test]
    fn who_tells_of_other_servers_all_the_time_is_not_kept_in_mind_without_end() {
        let asked = Node::parse("10.0.0.9:7000").unwrap();
        let sound = slots(&[(0, 16_383, "sound", 7000)]);
        let mut routes = take(&sound, &Routes::empty(true), &asked).unwrap().0;
        let mut refused = None;
        for round in 0..5 {
            let hosts: Vec<String> = (0..SLOTS).step_by(4).map(|slot| format!("{round}.{slot}")).collect();
            let each = hosts.iter().zip((0..).step_by(4));
            let ranges: Vec<_> = each.map(|(host, slot)| (slot, slot + 3, &**host, 1)).collect();
            match take(&slots(&ranges), &routes, &asked) {
                Ok((told, _)) => routes.follow(&told),
                Err(why) => refused = Some(why),
            }
            assert!(routes.nodes.len() <= NODES_MAX);
        }
        assert!(refused.is_some_and(|why| why.contains("a new process")));
        // Who is known is followed.
        let (told, _) = take(&sound, &routes, &asked).unwrap();
        routes.follow(&told);
        assert_eq!((routes.of(0), routes.masters.len()), (Some(0), 1));
        let long = "h".repeat(HOST_BYTES_MAX + 1);
        assert!(take(&slots(&[(0, 1, &long, 1)]), &routes, &asked).is_err());
        assert!(Node::parse(&format!("{long}:1")).is_err());
    }

    #[test]
    fn who_is_cut_off_is_not_believed() {
        let asked = Node::parse("a:1").unwrap();
        let info =
            |state: &str| Value::Bulk(format!("cluster_enabled:1\r\ncluster_state:{state}\r\n").into_bytes());
        let look = |state| look_at(&[info(state), slots(&[(0, 9, "b", 2)])], &Routes::empty(true), &asked);
        assert_eq!(look("ok").unwrap().others, [Node::parse("b:2").unwrap()]);
        assert!(look("fail").is_err());
    }

    #[test]
    fn a_node_of_another_cluster_is_not_believed() {
        let cluster = ClusterId::default();
        let look = |more: &str, named_by: Option<&str>| {
            let info = Value::Bulk(format!("cluster_state:ok\r\n{more}").into_bytes());
            let its = field(&info, CLUSTER_FIELD);
            agree(Some(&cluster), named_by, its.as_deref())
        };
        let (own, other) = ("tarn_cluster_id:c0ffee\r\n", "tarn_cluster_id:decaf\r\n");
        assert_eq!(look("", None), Ok(()), "it does not tell");
        // Nothing is taken from one that is not whom its config server means.
        assert!(look(other, Some("c0ffee")).is_err_and(|why| why.contains("another cluster (decaf)")));
        assert_eq!([look(own, Some("c0ffee")), look(own, None)], [Ok(()), Ok(())]);
        assert!(look(other, None).is_err_and(|why| why.contains("another cluster (decaf)")));
        assert!(look("", None).is_err(), "others have told it");
        assert_eq!(look(own, None), Ok(()));
    }

    #[test]
    fn what_says_nothing_of_slots_is_refused() {
        let asked = Node::parse("a:1").unwrap();
        for reply in [
            Value::Error(b"ERR This instance has cluster support disabled".to_vec()),
            Value::Array(Vec::new()),
            Value::Int(1),
            slots(&[(5, 4, "a", 1)]),
            slots(&[(0, 16_384, "a", 1)]),
            slots(&[(0, 1, "a", 70_000)]),
            slots(&[(0, 1, "a\r\n+OK\r\n", 1)]),
        ] {
            assert!(take(&reply, &Routes::empty(true), &asked).is_err(), "{reply:?}");
        }
    }
}
