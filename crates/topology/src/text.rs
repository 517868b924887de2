//! A topology as lines of text: how it travels from config servers to servers and proxies, and how each record lies in the store of decisions.
//!
//! Words are separated by one blank; `-` stands for nothing. Whatever is not exactly that is nothing.
//!
//! ```text
//! topology  tarn-topology 1 cluster-id revision
//! server    server id host port tls-port hostname zone edition (- | met | shard node) [@machine]
//! shard     shard id epoch (- | master) (- | member,member...) (- | beginner)
//! slots     slots (first-last=shard)...
//! last move last-move id                                        unless there was none
//! restore   restore number                                      while a backup is awaited
//! move      move id from to attempt (waiting | copying | switching | failed) first-last[,first-last]... [reason]
//! end       end
//! ```

use crate::ids::ShardId;
use crate::moves::{Move, Stage};
use crate::record::{Edition, Place, Server, Shard};
use crate::slots::{SlotMap, SlotRange};
use crate::view::Topology;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::str::FromStr;
use wire::SLOTS;

/// The longest host name, zone or other name.
const NAME_BYTES_MAX: usize = 255;

/// What stands in the place of a place for a server that was met.
const MET: &str = "met";

/// The first words of a topology of this form.
const HEAD: &str = "tarn-topology 1";

impl Server {
    /// As a line, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let Server { id, host, port, tls_port, hostname, zone, edition, machine, place, is_met } = self;
        let (hostname, zone, edition) = (or_dash(hostname), or_dash(zone), edition.name());
        let waits = if *is_met { MET } else { "-" };
        let place = place.map_or(waits.to_owned(), |Place { shard, node }| format!("{shard} {node}"));
        let machine = if machine.is_empty() { String::new() } else { format!(" @{machine}") };
        format!("server {id} {host} {port} {tls_port} {hostname} {zone} {edition} {place}{machine}")
    }

    /// From a line; None: it says nothing of a server.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Server> {
        let mut words: Vec<&str> = line.split(' ').collect();
        let machine = words.pop_if(|word| word.starts_with('@')).map_or("", |word| &word[1..]);
        let (fixed, place) = words.split_at_checked(8)?;
        let &[kind, id, host, port, tls_port, hostname, zone, edition] = fixed else { return None };
        let place = match place {
            ["-" | MET] => None,
            [shard, node] => Some(Place { shard: shard_id(shard)?, node: number(node)? }),
            _ => return None,
        };
        let is_met = words.last() == Some(&MET);
        let is_server = kind == "server" && is_name(host) && (machine.is_empty() || is_name(machine));
        is_server.then_some(())?;
        Some(Server {
            id: id.parse().ok()?,
            host: host.to_owned(),
            port: number(port)?,
            tls_port: number(tls_port)?,
            hostname: name(hostname)?,
            zone: name(zone)?,
            edition: Edition::named(edition)?,
            machine: machine.to_owned(),
            place,
            is_met,
        })
    }
}

impl Shard {
    /// As a line, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let Shard { id, epoch, master, members, beginner } = self;
        let maybe = |node: &Option<u32>| node.map_or("-".to_owned(), |node| node.to_string());
        let members: Vec<String> = members.iter().map(u32::to_string).collect();
        let members = or_dash(&members.join(",")).to_owned();
        format!("shard {id} {epoch} {} {members} {}", maybe(master), maybe(beginner))
    }

    /// From a line; None: it says nothing of a shard.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Shard> {
        let words: Vec<&str> = line.split(' ').collect();
        let &["shard", id, epoch, master, members, beginner] = words.as_slice() else { return None };
        let maybe = |word: &str| if word == "-" { Some(None) } else { number(word).map(Some) };
        let members: Option<BTreeSet<u32>> = match members {
            "-" => Some(BTreeSet::new()),
            some => some.split(',').map(number).collect(),
        };
        Some(Shard {
            id: shard_id(id)?,
            epoch: number(epoch)?,
            master: maybe(master)?,
            members: members?,
            beginner: maybe(beginner)?,
        })
    }
}

impl SlotMap {
    /// As a line, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let mut line = "slots".to_owned();
        for (SlotRange { first, last }, owner) in self.ranges() {
            // Writing to a string does not fail.
            let _ = write!(line, " {first}-{last}={owner}");
        }
        line
    }

    /// From a line; None: it says nothing of slots, or gives one to two shards.
    #[must_use]
    pub fn from_line(line: &str) -> Option<SlotMap> {
        let mut words = line.split(' ');
        (words.next() == Some("slots")).then_some(())?;
        let mut map = SlotMap::default();
        for word in words {
            let (range, owner) = word.split_once('=')?;
            let (first, last) = range.split_once('-')?;
            let (first, last, owner) = (number::<u16>(first)?, number::<u16>(last)?, shard_id(owner)?);
            (first <= last && usize::from(last) < SLOTS).then_some(())?;
            for slot in first..=last {
                map.owner(slot).is_none().then_some(())?;
                map.set(slot, Some(owner));
            }
        }
        Some(map)
    }
}

impl Stage {
    fn name(&self) -> &'static str {
        match self {
            Stage::Waiting => "waiting",
            Stage::Copying => "copying",
            Stage::Switching => "switching",
            Stage::Failed(_) => "failed",
        }
    }
}

impl Move {
    /// As a line, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let Move { id, from, to, attempt, stage, slots } = self;
        let slots: Vec<String> =
            slots.iter().map(|range| format!("{}-{}", range.first, range.last)).collect();
        let mut line = format!("move {id} {from} {to} {attempt} {} {}", stage.name(), slots.join(","));
        if let Stage::Failed(reason) = stage {
            line.push(' ');
            line.extend(reason.chars().map(|one| if one.is_control() { ' ' } else { one }));
        }
        line
    }

    /// From a line; None: it says nothing of a move.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Move> {
        let mut words = line.splitn(8, ' ');
        (words.next() == Some("move")).then_some(())?;
        let (id, from, to) = (number(words.next()?)?, shard_id(words.next()?)?, shard_id(words.next()?)?);
        let (attempt, stage, slots) = (number(words.next()?)?, words.next()?, ranges(words.next()?)?);
        let stage = match (stage, words.next()) {
            ("waiting", None) => Stage::Waiting,
            ("copying", None) => Stage::Copying,
            ("switching", None) => Stage::Switching,
            ("failed", Some(reason)) => Stage::Failed(reason.to_owned()),
            _ => return None,
        };
        (from != to).then_some(Move { id, from, to, attempt, stage, slots })
    }
}

/// At least one range, each behind the one before it, and not joined to it.
fn ranges(word: &str) -> Option<Vec<SlotRange>> {
    let mut ranges: Vec<SlotRange> = Vec::new();
    for one in word.split(',') {
        let (first, last) = one.split_once('-')?;
        let range = SlotRange { first: number(first)?, last: number(last)? };
        let follows =
            ranges.last().is_none_or(|before| before.last < u16::MAX && before.last + 1 < range.first);
        (follows && range.first <= range.last && usize::from(range.last) < SLOTS).then_some(())?;
        ranges.push(range);
    }
    Some(ranges)
}

impl Topology {
    /// As lines of text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD} {} {}\n", self.cluster, self.revision);
        let servers = self.servers.values().map(Server::to_line);
        let shards = self.shards.values().map(Shard::to_line);
        let moves = self.moves.values().map(Move::to_line);
        let last_move = Some(self.last_move).filter(|last| *last > 0).map(|last| format!("last-move {last}"));
        let restore = Some(self.restore).filter(|last| *last > 0).map(|last| format!("restore {last}"));
        let numbers = last_move.into_iter().chain(restore);
        let all = servers.chain(shards).chain([self.slots.to_line()]).chain(numbers).chain(moves);
        for line in all.chain(["end".to_owned()]) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// From lines of text; None: they are no whole topology, or name a server, shard or move twice.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Topology> {
        let mut lines = text.split_terminator('\n');
        let head = lines.next()?.strip_prefix(HEAD)?.strip_prefix(' ')?;
        let (cluster, revision) = head.split_once(' ')?;
        is_name(cluster).then_some(())?;
        let mut topology =
            Topology { cluster: cluster.to_owned(), revision: number(revision)?, ..Topology::default() };
        let mut has_slots = false;
        for line in lines.by_ref() {
            match line.split(' ').next()? {
                "server" => {
                    let server = Server::from_line(line)?;
                    topology.servers.insert(server.id, server).is_none().then_some(())?;
                }
                "shard" => {
                    let shard = Shard::from_line(line)?;
                    topology.shards.insert(shard.id, shard).is_none().then_some(())?;
                }
                "slots" => {
                    (!std::mem::replace(&mut has_slots, true)).then_some(())?;
                    topology.slots = SlotMap::from_line(line)?;
                }
                "last-move" => {
                    let last: u64 = number(line.strip_prefix("last-move ")?)?;
                    let is_first = std::mem::replace(&mut topology.last_move, last) == 0;
                    (is_first && last > 0).then_some(())?;
                }
                "restore" => {
                    let last: u64 = number(line.strip_prefix("restore ")?)?;
                    let is_first = std::mem::replace(&mut topology.restore, last) == 0;
                    (is_first && last > 0).then_some(())?;
                }
                "move" => {
                    let one = Move::from_line(line)?;
                    topology.moves.insert(one.id, one).is_none().then_some(())?;
                }
                "end" if line == "end" && has_slots => {
                    return (lines.next().is_none() && text.ends_with('\n')).then_some(topology);
                }
                _ => return None,
            }
        }
        None
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// A number in decimal, as it is written and in no other way.
fn number<T: FromStr + ToString>(word: &str) -> Option<T> {
    word.parse::<T>().ok().filter(|number| number.to_string() == word)
}

fn shard_id(word: &str) -> Option<ShardId> {
    number(word).map(ShardId).filter(|id| *id < ShardId::END)
}

/// Whether a word can stand for a host, a zone or a cluster.
#[must_use]
pub(crate) fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= NAME_BYTES_MAX
        && word != "-"
        && word.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A name that may be missing.
fn name(word: &str) -> Option<String> {
    match word {
        "-" => Some(String::new()),
        word => is_name(word).then(|| word.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ServerId;

    fn topology() -> Topology {
        let id = |byte| ServerId::from_bytes([byte; 20]);
        let server = |byte, place| Server {
            id: id(byte),
            host: format!("10.0.0.{byte}"),
            port: 6379,
            tls_port: 0,
            hostname: if byte == 1 { "one.example".to_owned() } else { String::new() },
            zone: if byte == 2 { "b".to_owned() } else { String::new() },
            edition: Edition::Durable,
            machine: if byte == 3 { "5f0c-e1".to_owned() } else { String::new() },
            place,
            is_met: byte == 5,
        };
        let place = |shard, node| Some(Place { shard: ShardId(shard), node });
        let servers = [
            server(1, place(0, 1)),
            server(2, place(0, 2)),
            server(3, place(7, 1)),
            server(4, None),
            server(5, None),
        ];
        let shard = |id, master, beginner| Shard {
            id: ShardId(id),
            epoch: u64::from(id),
            master,
            members: master.into_iter().chain([2]).collect(),
            beginner,
        };
        let shards = [shard(0, Some(1), None), shard(7, None, Some(1))];
        Topology {
            cluster: "c0ffee".to_owned(),
            revision: 42,
            servers: servers.into_iter().map(|server| (server.id, server)).collect(),
            shards: shards.into_iter().map(|shard| (shard.id, shard)).collect(),
            slots: SlotMap::even(&[ShardId(0), ShardId(7)]),
            last_move: 41,
            restore: 3,
            moves: moves().into_iter().map(|one| (one.id, one)).collect(),
        }
    }

    fn moves() -> [Move; 4] {
        let ranges = |all: &[(u16, u16)]| {
            all.iter().map(|(first, last)| SlotRange { first: *first, last: *last }).collect()
        };
        let one = |id, stage, slots| Move { id, from: ShardId(0), to: ShardId(7), attempt: 3, stage, slots };
        [
            one(1, Stage::Waiting, ranges(&[(0, 0), (2, 9)])),
            one(2, Stage::Copying, ranges(&[(100, 101)])),
            one(40, Stage::Switching, ranges(&[(200, 16_383)])),
            one(41, Stage::Failed("no more  memory".to_owned()), ranges(&[(20, 21)])),
        ]
    }

    #[test]
    fn slots_that_move_can_be_counted() {
        let [one, _, last, failed] = moves();
        assert_eq!(
            (one.count(), one.contains(2), one.contains(1), one.is_under_way()),
            (9, true, false, false)
        );
        assert!(last.is_under_way() && !failed.is_under_way());
        let told = Move { stage: Stage::Failed("of\ntwo lines".to_owned()), ..failed };
        let read = Move::from_line(&told.to_line()).map(|one| one.stage);
        assert_eq!(read, Some(Stage::Failed("of two lines".to_owned())));
        for line in [
            "move 1 0 0 1 waiting 1-2",
            "move 1 0 1 1 waiting 1-2,3-4",
            "move 1 0 1 1 waiting 2-1",
            "move 1 0 1 1 waiting 1-16384",
            "move 1 0 1 1 waiting",
            "move 1 0 1 1 waiting 1-2 why",
            "move 1 0 1 1 failed 1-2",
            "move 1 0 1 1 done 1-2",
        ] {
            assert_eq!(Move::from_line(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let all = topology();
        assert_eq!(Topology::from_text(&all.to_text()), Some(all));
        let empty = Topology { cluster: "a".to_owned(), ..Topology::default() };
        assert_eq!(Topology::from_text(&empty.to_text()), Some(empty));
    }

    #[test]
    fn what_is_not_whole_is_nothing() {
        let text = topology().to_text();
        for cut in 0..text.len() {
            assert_eq!(Topology::from_text(&text[..cut]), None, "{cut}");
        }
        for (what, with) in [
            ("tarn-topology 1", "tarn-topology 2"),
            ("0-8191=0", "0-8192=0"),
            ("0-8191=0", "0-8191=65535"),
            ("8192-16383", "8192-16384"),
            ("8192-16383", "08192-16383"),
            ("durable", "durably"),
            ("end\n", "end\nend\n"),
            ("6379", "65536"),
            ("shard 7", "shard 0"),
            ("slots", "slots\nslots"),
            ("last-move 41", "last-move 41\nlast-move 42"),
            ("last-move 41", "last-move 0"),
            ("restore 3", "restore 3\nrestore 3"),
            ("restore 3", "restore 0"),
            ("10.0.0.1", "-"),
        ] {
            let changed = text.replacen(what, with, 1);
            assert_ne!(changed, text, "{what}");
            assert_eq!(Topology::from_text(&changed), None, "{what} as {with}");
        }
    }

    #[test]
    fn who_is_where_can_be_asked() {
        let all = topology();
        let host = |server: Option<&Server>| server.map(|server| server.host.clone());
        assert_eq!(host(all.master_of(ShardId(0))).as_deref(), Some("10.0.0.1"));
        assert_eq!(host(all.master_of(ShardId(7))), None);
        assert_eq!(host(all.replicas_of(ShardId(0)).next()).as_deref(), Some("10.0.0.2"));
        assert_eq!(host(all.server_at(Place { shard: ShardId(7), node: 1 })).as_deref(), Some("10.0.0.3"));
        assert_eq!(all.servers_of(ShardId(9)).count(), 0);
    }
}
