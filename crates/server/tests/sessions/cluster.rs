//! A node of a cluster, as its clients meet it: told by the test what the cluster looks like, and whether it leads its shard.
//!
//! Shard 0 has the slots below 8192, those of `b` (3300), `bar` (5061) and `c` (7365); shard 1 has the others, those of `foo` (12182) and `a` (15495).

use crate::harness::{Peer, TestServer};
use engine::Attention;
use log::Lsn;
use replication::insync::{Decision, Epoch, Life, MemberId, NodeId, Role, Version, Writes};
use server::clustered::{Link, Part};
use server::dispatch::ownership;
use server::shard::{Address, Promotion, Settings, Shard, Standing, Store};
use std::cell::RefCell;
use std::sync::Arc;
use sys::UnixMs;
use topology::{ServerId, ShardId, SlotMap, Topology};
use wire::Value;

const TEXT: &str = "\
tarn-topology 1 c0ffee 7
server 0101010101010101010101010101010101010101 10.0.0.1 7001 8001 one.example - durable 0 1
server 0202020202020202020202020202020202020202 10.0.0.2 7002 8002 - - durable 0 2
server 0303030303030303030303030303030303030303 10.0.0.3 7003 8003 three.example - durable 1 1
shard 0 4 1 1,2 -
shard 1 9 1 1 -
slots 0-8191=0 8192-16383=1
end
";

fn topology() -> Topology {
    Topology::from_text(TEXT).expect("it is whole")
}

/// As the shard's driver would tell it.
fn standing(role: Role, epoch: u64, master: u32) -> Standing {
    let member = |node| MemberId { node: NodeId(node), life: Life(1) };
    let decision = Decision {
        version: Version(epoch),
        epoch: Epoch(epoch),
        master: member(master),
        members: [member(1), member(2)].into(),
        is_lossy: false,
    };
    let writes = if role == Role::Master { Writes::Taken } else { Writes::NotMaster };
    Standing {
        id: member(1),
        role,
        epoch: Epoch(epoch),
        writes,
        committed: Lsn::ZERO,
        end: Lsn::ZERO,
        decision: Some(decision),
        is_halted: false,
        is_torn: false,
        is_foreign: false,
        promotion: Promotion::None,
    }
}

struct Node(TestServer);

impl Node {
    /// Node 1 of shard 0, of which nothing is known yet.
    fn alone(directives: &str) -> Node {
        let node = Node(TestServer::start(&format!(
            "edition memory\ncluster-enabled yes\ncluster-announce-hostname one.example\n{directives}"
        )));
        node.part().introduce(ServerId::from_bytes([1; 20]));
        node.part().confirm();
        node
    }

    /// The same as master.
    fn master(directives: &str) -> Node {
        let node = Node::alone(directives);
        node.publish(topology());
        node.part().note_standing(&standing(Role::Master, 4, 1));
        node
    }

    /// The same as a member, whose master is node 2.
    fn member(directives: &str) -> Node {
        let node = Node::alone(directives);
        node.publish(topology());
        node.follows(true);
        node.part().note_standing(&standing(Role::Member, 5, 2));
        node
    }

    fn part(&self) -> &Part {
        self.0.server.clustered.get().expect("it is a node of a cluster")
    }

    fn publish(&self, topology: Topology) {
        assert!(ownership::publish(&self.0.server, topology));
    }

    /// The slots change.
    fn give(&self, slots: SlotMap) {
        let told = self.part().told().expect("it was told");
        self.publish(Topology { revision: told.revision + 1, slots, ..Topology::clone(&told) });
    }

    fn follows(&self, on: bool) {
        self.0.server.engine.set_attention(Attention::FOLLOWING, on);
    }

    fn connect(&self) -> Peer {
        self.0.connect()
    }
}

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const TO_FOO: &str = "MOVED 12182 10.0.0.3:7003";

fn all_of(shard: u16) -> SlotMap {
    SlotMap::even(&[ShardId(shard)])
}

/// The replies to these requests are these.
fn expect(peer: &mut Peer, cases: &[(&str, &str)]) {
    for (request, reply) in cases {
        assert_eq!(peer.ask(request), *reply, "{request}");
    }
}

#[test]
fn a_node_that_was_told_nothing_serves_no_key() {
    let node = Node::alone("");
    let mut peer = node.connect();
    expect(
        &mut peer,
        &[
            ("PING", "PONG"),
            ("GET bar", "CLUSTERDOWN Hash slot not served"),
            ("MGET b c", "CLUSTERDOWN Hash slot not served"),
            ("SPUBLISH bar x", "CLUSTERDOWN Hash slot not served"),
            ("CLUSTER KEYSLOT foo", "12182"),
            ("CLUSTER MYID", "0101010101010101010101010101010101010101"),
            ("DBSIZE", "0"),
        ],
    );
    assert!(peer.ask("CLUSTER INFO").starts_with("cluster_state:fail\r\ncluster_slots_assigned:0\r\n"));
}

#[test]
fn a_master_serves_its_slots_and_says_who_has_the_others() {
    let node = Node::master("");
    let mut peer = node.connect();
    expect(
        &mut peer,
        &[
            ("SET bar 1", "OK"),
            ("GET bar", "1"),
            ("SET foo 1", TO_FOO),
            ("GET foo", TO_FOO),
            ("MGET b c", CROSS_SLOT),
            ("MGET foo b", CROSS_SLOT),
            ("MSET {b}1 1 {b}2 2", "OK"),
            ("DEL {b}1 {b}2", "2"),
            ("DEL foo {foo}1", TO_FOO),
            ("SPUBLISH foo x", TO_FOO),
            ("EVAL 'return 1' 1 foo", TO_FOO),
            ("EVAL 'return 1' 2 b c", CROSS_SLOT),
            ("XREAD STREAMS foo 0", TO_FOO),
            ("BLPOP foo 0", TO_FOO),
            ("GET", "ERR wrong number of arguments for 'get' command"),
            ("WATCH foo", TO_FOO),
            ("SORT foo", TO_FOO),
            ("SELECT 3", "OK"),
            ("GET bar", "NULL"),
            ("GET foo", TO_FOO),
            ("SET bar 3", "OK"),
            ("COPY bar {bar}2 DB 4", "1"),
            ("MOVE bar 5", "1"),
            ("SWAPDB 0 1", "ERR SWAPDB is not allowed in cluster mode"),
            ("ASKING", "OK"),
            ("GET foo", TO_FOO),
        ],
    );
}

#[test]
fn what_config_servers_see_to_is_answered_as_redis_answers_where_nothing_is_to_do() {
    let node = Node::master("");
    let mut peer = node.connect();
    expect(
        &mut peer,
        &[
            ("CLUSTER MEET 10.0.0.3 7003", "OK"),
            ("CLUSTER MEET three.example 7003", "OK"),
            ("CLUSTER MEET 10.0.0.3 x", "ERR Invalid base port specified: x"),
            ("CLUSTER MEET 10.0.0.3 7003 y", "ERR Invalid bus port specified: y"),
            ("CLUSTER FORGET a", "ERR Unknown node a"),
            (
                "CLUSTER FORGET 0101010101010101010101010101010101010101",
                "ERR I tried hard but I can't forget myself...",
            ),
            ("CLUSTER REPLICATE a", "ERR Unknown node a"),
            ("CLUSTER REPLICATE 0101010101010101010101010101010101010101", "ERR Can't replicate myself"),
            (
                "CLUSTER REPLICATE 0202020202020202020202020202020202020202",
                "ERR I can only replicate a master, not a replica.",
            ),
            (
                "CLUSTER REPLICATE 0303030303030303030303030303030303030303",
                "ERR To set a master the node must be empty and without assigned slots.",
            ),
            ("CLUSTER FAILOVER", "ERR You should send CLUSTER FAILOVER to a replica"),
            ("CLUSTER FAILOVER now", "ERR syntax error"),
            ("CLUSTER ADDSLOTS 16384", "ERR Invalid or out of range slot"),
            ("CLUSTER ADDSLOTS 1", "ERR Slot 1 is already busy"),
            ("CLUSTER ADDSLOTSRANGE 5 3", "ERR start slot number 5 is greater than end slot number 3"),
            (
                "CLUSTER ADDSLOTSRANGE 1 2 3",
                "ERR wrong number of arguments for 'cluster|addslotsrange' command",
            ),
            ("CLUSTER DELSLOTS 1 1", "ERR Slot 1 specified multiple times"),
            (
                "CLUSTER DELSLOTS 1",
                "ERR A slot is taken from its shard by a move to another only (`tarn cluster move-slots`)",
            ),
            (
                "CLUSTER FLUSHSLOTS",
                "ERR A slot is taken from its shard by a move to another only (`tarn cluster move-slots`)",
            ),
            ("CLUSTER BUMPEPOCH", "STILL 4"),
            ("CLUSTER SAVECONFIG", "OK"),
            ("CLUSTER SET-CONFIG-EPOCH -1", "ERR Invalid config epoch specified: -1"),
            (
                "CLUSTER SET-CONFIG-EPOCH 1",
                "ERR The user can assign a config epoch only when the node does not know any other node.",
            ),
            ("CLUSTER RESET no", "ERR syntax error"),
            ("SET bar 1", "OK"),
            ("CLUSTER RESET", "ERR CLUSTER RESET can't be called with master nodes containing keys"),
            ("CLUSTER FLUSHSLOTS", "ERR DB must be empty to perform CLUSTER FLUSHSLOTS."),
        ],
    );
    node.give(SlotMap::default());
    expect(
        &mut peer,
        &[
            ("CLUSTER DELSLOTS 1", "ERR Slot 1 is already unassigned"),
            (
                "CLUSTER ADDSLOTS 1",
                "ERR The config servers give slots that are nobody's to shards by themselves, once as many shards as are wanted have begun (`tarn cluster status`)",
            ),
        ],
    );
}

/// As a node of Redis Cluster that nobody has met.
#[test]
fn a_server_that_waits_for_a_place_knows_nobody_and_keeps_libraries() {
    let node = Node::alone("");
    node.follows(true);
    let own = ServerId::from_bytes([1; 20]);
    let mut told = topology();
    let server = told.servers.get_mut(&own).expect("it is there");
    server.place = None;
    node.publish(told);
    let mut peer = node.connect();
    let id = "0101010101010101010101010101010101010101";
    expect(
        &mut peer,
        &[
            (
                "CLUSTER NODES",
                &format!("{id} 10.0.0.1:7001@17001,one.example myself,master - 0 0 0 connected\n"),
            ),
            ("FUNCTION LIST", "Array([])"),
            ("FUNCTION FLUSH", "READONLY You can't write against a read only replica."),
            ("FUNCTION RESTORE x", "ERR DUMP payload version or checksum are wrong"),
            (
                "FUNCTION RESTORE x maybe",
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ),
            (
                "CLUSTER REPLICATE 0202020202020202020202020202020202020202",
                "ERR I can only replicate a master, not a replica.",
            ),
            ("CLUSTER RESET", "OK"),
        ],
    );
    assert!(peer.ask("CLUSTER INFO").contains("cluster_known_nodes:1\r\n"));
    let mut met = topology();
    met.revision += 1;
    let server = met.servers.get_mut(&own).expect("it is there");
    (server.place, server.is_met) = (None, true);
    node.publish(met);
    assert!(peer.ask("CLUSTER INFO").contains("cluster_known_nodes:3\r\n"));
}

#[test]
fn a_server_that_was_removed_has_no_place() {
    let node = Node::master("");
    let mut peer = node.connect();
    expect(&mut peer, &[("GET bar", "NULL")]);
    node.part().note_removed();
    node.part().note_standing(&standing(Role::Nobody, 4, 1));
    node.follows(true);
    expect(&mut peer, &[("CLUSTER RESET", "OK")]);
    assert!(peer.ask("GET bar").starts_with("CLUSTERDOWN"));
    assert!(peer.ask("CLUSTER INFO").contains("cluster_known_nodes:3\r\n"));
}

#[test]
fn patterns_of_sort_stay_in_the_slot() {
    let node = Node::master("");
    let mut peer = node.connect();
    expect(
        &mut peer,
        &[
            ("RPUSH {b}list 2 1", "2"),
            ("MSET {b}w1 9 {b}w2 3", "OK"),
            ("SORT {b}list BY w* LIMIT 0 1", "ERR BY option of SORT denied in Cluster mode."),
            ("SORT {b}list BY *{b}", "ERR BY option of SORT denied in Cluster mode."),
            ("SORT {b}list GET {}*", "ERR GET option of SORT denied in Cluster mode."),
            ("SORT {b}list BY nosort STORE {b}to", "2"),
            ("SORT {b}list BY {b}w* GET # GET {b}w* STORE {b}to", "4"),
            ("LINDEX {b}to 0", "2"),
            ("SORT_RO {b}list GET w*", "ERR GET option of SORT denied in Cluster mode."),
        ],
    );
}

#[test]
fn a_transaction_is_of_one_slot() {
    let node = Node::master("");
    let mut peer = node.connect();
    expect(
        &mut peer,
        &[
            ("MULTI", "OK"),
            ("SET foo 1", TO_FOO),
            ("EXEC", "EXECABORT Transaction discarded because of previous errors."),
            ("MULTI", "OK"),
            ("SET b 1", "QUEUED"),
            ("SET c 1", "QUEUED"),
            ("EXEC", CROSS_SLOT),
            ("EXEC", "ERR EXEC without MULTI"),
            ("EXISTS b", "0"),
            ("MULTI", "OK"),
            ("SET b 1", "QUEUED"),
        ],
    );
    node.give(all_of(1));
    // A transaction whose slot has gone meanwhile is over.
    expect(
        &mut peer,
        &[
            ("EXEC", "MOVED 3300 10.0.0.3:7003"),
            ("EXEC", "ERR EXEC without MULTI"),
            ("WATCH b", "MOVED 3300 10.0.0.3:7003"),
        ],
    );
    node.give(topology().slots);
    expect(&mut peer, &[("EXISTS b", "0"), ("MULTI", "OK"), ("SET b 1", "QUEUED")]);
    peer.send(&["EXEC"]);
    assert_eq!(peer.reply(), Some(Value::Array(vec![Value::Simple(b"OK".to_vec())])));
}

#[test]
fn scripts_stay_where_they_are() {
    let node = Node::master("");
    let mut peer = node.connect();
    let mut run = |script: &str, keys: &[&str]| {
        let count = keys.len().to_string();
        peer.send_words(&[&["EVAL", script, &count], keys].concat());
        peer.text()
    };
    let foreign = "ERR Script attempted to access a non local key in a cluster node";
    assert!(run("return redis.call('GET', 'foo')", &[]).starts_with(foreign));
    assert!(run("return redis.call('MGET', 'b', 'c')", &[]).starts_with(foreign));
    assert_eq!(run("redis.call('SET', 'b', 1) return redis.call('SET', 'c', 1)", &["b"]), "OK");
    let elsewhere = "ERR Script attempted to access keys that do not hash to the same slot";
    assert!(run("#!lua\nreturn redis.call('GET', 'c')", &["b"]).starts_with(elsewhere));
    assert!(run("#!lua\nredis.call('GET', 'c') return redis.call('GET', 'b')", &[]).starts_with(elsewhere));
    assert_eq!(run("#!lua flags=allow-cross-slot-keys\nreturn redis.call('GET', 'c')", &["b"]), "1");
    assert_eq!(
        run("#!lua flags=no-cluster\nreturn 1", &[]),
        "ERR Can not run script on cluster, 'no-cluster' flag is set."
    );
}

#[test]
fn a_script_is_let_in_with_all_it_calls_where_its_slot_has_come_just_now() {
    let node = Node::master("busy-reply-threshold 1\nbusy-reply-scope server");
    let (mut peer, other) = (node.connect(), RefCell::new(node.connect()));
    // The second one comes in one write with one that runs until the slots have changed: its worker has seen them as they were before.
    let until = "repeat until #redis.call('CLUSTER', 'SLOTS') == 1";
    peer.send(&[&format!("EVAL \"{until}\" 1 b"), "EVAL \"return redis.call('SET', KEYS[1], 1)\" 1 foo"]);
    node.0.wait_until("the first one runs", || other.borrow_mut().ask("PING").starts_with("BUSY"));
    node.give(all_of(0));
    assert_eq!(peer.text(), "NULL");
    assert_eq!(peer.text(), "OK");
}

#[test]
fn nothing_is_done_behind_what_was_sent_elsewhere_in_one_write() {
    let node = Node::master("busy-reply-threshold 1\nbusy-reply-scope server");
    let (mut peer, other) = (node.connect(), RefCell::new(node.connect()));
    let until = "repeat until #redis.call('CLUSTER', 'SLOTS') == 1";
    peer.send(&["APPEND foo 1", &format!("EVAL \"{until}\" 1 b"), "APPEND foo 2"]);
    node.0.wait_until("the script runs", || other.borrow_mut().ask("PING").starts_with("BUSY"));
    node.give(all_of(0));
    assert_eq!(peer.texts(3), [TO_FOO, "NULL", TO_FOO]);
    assert_eq!(peer.ask("APPEND foo 1"), "1");
}

#[test]
fn links_are_told_in_pairs_node_by_node() {
    let node = Node::master("");
    for id in [2, 3] {
        let id = ServerId::from_bytes([id; 20]);
        node.part().note_link(Link::To(id), Some(UnixMs(1)));
        node.part().note_link(Link::From(id, 9), Some(UnixMs(1)));
    }
    let mut peer = node.connect();
    peer.send(&["CLUSTER LINKS"]);
    let Some(Value::Array(links)) = peer.reply() else { panic!("it lists them") };
    let shown = |link: &Value| match link {
        Value::Array(words) => match (&words[1], &words[3]) {
            (Value::Bulk(direction), Value::Bulk(id)) => {
                String::from_utf8_lossy(&[direction, &b" "[..], &id[..2]].concat()).into_owned()
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let shown: Vec<String> = links.iter().map(shown).collect();
    assert_eq!(shown, ["to 02", "from 02", "to 03", "from 03"]);
}

#[test]
fn a_replica_is_read_by_those_who_ask_for_it() {
    let node = Node::member("");
    let mut peer = node.connect();
    let to_master = "MOVED 5061 10.0.0.2:7002";
    expect(
        &mut peer,
        &[
            ("GET bar", to_master),
            ("READONLY", "OK"),
            ("GET bar", "NULL"),
            ("MGET bar {bar}1", "[Null, Null]"),
            ("SET bar 1", to_master),
            ("GET foo", TO_FOO),
            ("EVAL 'return 1' 1 bar", "1"),
            ("SPUBLISH bar x", to_master),
            ("MULTI", "OK"),
            ("GET bar", "QUEUED"),
            ("SET bar 1", to_master),
            ("DISCARD", "OK"),
            ("READWRITE", "OK"),
            ("GET bar", to_master),
            ("READONLY", "OK"),
            ("RESET", "RESET"),
            ("GET bar", to_master),
        ]
        .map(|(request, reply)| {
            (request, if reply.starts_with('[') { "Array([Null, Null])" } else { reply })
        }),
    );
    assert_eq!(peer.ask("READONLY"), "OK");
    assert_eq!(peer.field("flags"), "r");
    // It may listen, too.
    peer.send(&["SSUBSCRIBE bar"]);
    assert!(matches!(peer.reply(), Some(Value::Array(_))));
}

#[test]
fn requests_wait_for_a_promotion_that_is_on_its_way() {
    let node = Node::member("");
    let (store, nodes) = (Address { host: "127.0.0.1".to_owned(), port: 1 }, Default::default());
    let settings = Settings {
        name: "s".to_owned(),
        node: NodeId(1),
        nodes,
        store: Store::Server(store),
        options: Default::default(),
    };
    let id = MemberId { node: NodeId(1), life: Life(1) };
    let shard = Shard::new(settings, id, Epoch(5));
    shard.publish(standing(Role::Member, 6, 1), false);
    assert!(node.0.server.shard.enter(Arc::new(shard)));
    node.part().note_standing(&standing(Role::Member, 6, 1));
    let mut peer = node.connect();
    peer.send(&["SET bar 1"]);
    assert!(peer.is_silent(), "it is not known yet who is master");
    node.part().note_standing(&standing(Role::Master, 6, 1));
    assert!(peer.is_silent(), "it does not lead yet");
    node.follows(false);
    assert!(peer.is_silent(), "config servers do not know it yet");
    let mut told = Topology { revision: 8, ..topology() };
    told.shards.get_mut(&ShardId(0)).expect("it is there").epoch = 6;
    node.publish(told);
    assert_eq!(peer.text(), "OK");
    // A request is not answered by who leads no more.
    node.follows(true);
    peer.send(&["GET bar"]);
    assert!(peer.is_silent());
    node.part().note_standing(&standing(Role::Member, 7, 2));
    assert_eq!(peer.text(), "MOVED 5061 10.0.0.2:7002");
}

#[test]
fn who_waits_for_a_key_is_sent_to_where_it_goes() {
    let node = Node::master("");
    let (mut list, mut stream, mut other) = (node.connect(), node.connect(), node.connect());
    list.send(&["BLPOP b {b}2 0"]);
    stream.send(&["XREAD BLOCK 0 STREAMS bar $"]);
    other.send(&["BLPOP c 0"]);
    node.0.wait_until("they wait", || node.0.server.blocked.count() == 3);
    let mut slots = topology().slots;
    slots.set(3300, Some(ShardId(1)));
    slots.set(5061, Some(ShardId(1)));
    node.give(slots);
    assert_eq!(list.text(), "MOVED 3300 10.0.0.3:7003");
    assert_eq!(stream.text(), "MOVED 5061 10.0.0.3:7003");
    assert_eq!(node.connect().ask("RPUSH c 1"), "1");
    assert!(matches!(other.reply(), Some(Value::Array(_))));
    other.send(&["BLPOP c 0"]);
    node.0.wait_until("it waits", || node.0.server.blocked.count() == 1);
    node.give(SlotMap::default());
    assert_eq!(other.text(), "CLUSTERDOWN The cluster is down");
    assert_eq!(list.ask("PING"), "PONG");
}

#[test]
fn channels_of_a_shard_are_left_with_their_slot() {
    let node = Node::master("");
    let mut peer = node.connect();
    assert_eq!(peer.ask("SSUBSCRIBE b c"), CROSS_SLOT);
    assert_eq!(peer.ask("SSUBSCRIBE foo"), TO_FOO);
    let confirmation = |word: &str, channel: &str, count| {
        let words = [word, channel].map(|word| Value::Bulk(word.as_bytes().to_vec()));
        Some(Value::Array([&words[..], &[Value::Int(count)]].concat()))
    };
    for (count, channel) in [(1, "b"), (2, "bar"), (3, "c")] {
        peer.send(&[&format!("SSUBSCRIBE {channel}")]);
        assert_eq!(peer.reply(), confirmation("ssubscribe", channel, count));
    }
    let mut slots = topology().slots;
    slots.set(3300, Some(ShardId(1)));
    slots.set(7365, Some(ShardId(1)));
    node.give(slots);
    assert_eq!(peer.reply(), confirmation("sunsubscribe", "b", 2));
    assert_eq!(peer.reply(), confirmation("sunsubscribe", "c", 1));
    let mut publisher = node.connect();
    assert_eq!(publisher.ask("SPUBLISH c x"), "MOVED 7365 10.0.0.3:7003");
    assert_eq!(publisher.ask("SPUBLISH bar x"), "1");
    assert!(matches!(peer.reply(), Some(Value::Array(words)) if words.len() == 3));
    node.give(all_of(1));
    assert_eq!(peer.reply(), confirmation("sunsubscribe", "bar", 0));
    assert_eq!(peer.ask("ECHO x"), "x", "it listens to nothing any more");
}

#[test]
fn who_caches_keys_of_slots_that_go_is_told_at_once() {
    let node = Node::master("");
    let (mut reader, mut broadcast) = (node.connect(), node.connect());
    let invalidation = |keys: Value| Some(Value::Push(vec![Value::Bulk(b"invalidate".to_vec()), keys]));
    reader.send(&["HELLO 3", "CLIENT TRACKING ON", "GET b", "GET bar"]);
    (0..4).for_each(|_| drop(reader.reply()));
    broadcast.send(&["HELLO 3", "CLIENT TRACKING ON BCAST"]);
    (0..2).for_each(|_| drop(broadcast.reply()));
    let mut slots = topology().slots;
    slots.set(3300, Some(ShardId(1)));
    node.give(slots);
    assert_eq!(reader.reply(), invalidation(Value::Array(vec![Value::Bulk(b"b".to_vec())])));
    assert_eq!(broadcast.reply(), invalidation(Value::Null));
    assert_eq!(reader.ask("ECHO x"), "x", "the other key is still here");
    node.give(all_of(1));
    assert_eq!(reader.reply(), invalidation(Value::Array(vec![Value::Bulk(b"bar".to_vec())])));
}

#[test]
fn a_cluster_with_a_hole_is_down_as_far_as_it_is_to_be() {
    let node = Node::master("");
    let mut slots = topology().slots;
    slots.set(12_182, None);
    node.give(slots);
    let mut peer = node.connect();
    let down = "CLUSTERDOWN The cluster is down";
    expect(
        &mut peer,
        &[
            ("GET foo", "CLUSTERDOWN Hash slot not served"),
            ("GET bar", down),
            ("SET bar 1", down),
            ("SPUBLISH bar x", "0"),
        ],
    );
    node.0.set("cluster-allow-pubsubshard-when-down", "no");
    node.0.set("cluster-allow-reads-when-down", "yes");
    expect(
        &mut peer,
        &[
            ("SPUBLISH bar x", down),
            ("GET bar", "NULL"),
            ("SET bar 1", "CLUSTERDOWN The cluster is down and only accepts read commands"),
        ],
    );
    node.0.set("cluster-require-full-coverage", "no");
    expect(
        &mut peer,
        &[
            ("SET bar 1", "OK"),
            ("GET foo", "CLUSTERDOWN Hash slot not served"),
            ("GET a", "MOVED 15495 10.0.0.3:7003"),
        ],
    );
}

#[test]
fn clients_are_told_of_nodes_as_they_want_to_be() {
    let node = Node::master("");
    let mut peer = node.connect();
    node.0.set("cluster-preferred-endpoint-type", "hostname");
    assert_eq!(peer.ask("GET foo"), "MOVED 12182 three.example:7003");
    node.0.set("cluster-preferred-endpoint-type", "unknown-endpoint");
    assert_eq!(peer.ask("GET foo"), "MOVED 12182 :7003");
    node.0.set("cluster-preferred-endpoint-type", "ip");
    let lines = peer.ask("CLUSTER NODES");
    let own = "0101010101010101010101010101010101010101";
    assert!(
        lines.starts_with(&format!(
            "{own} 10.0.0.1:7001@17001,one.example myself,master - 0 0 4 connected 0-8191\n"
        )),
        "{lines}"
    );
    assert_eq!(lines.lines().count(), 3);
    peer.send(&["CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER LINKS"]);
    assert!(matches!(peer.reply(), Some(Value::Array(ranges)) if ranges.len() == 2));
    assert!(matches!(peer.reply(), Some(Value::Array(shards)) if shards.len() == 2));
    assert_eq!(peer.reply(), Some(Value::Array(Vec::new())));
    peer.send(&[&format!("CLUSTER REPLICAS {own}")]);
    assert!(matches!(peer.reply(), Some(Value::Array(replicas)) if replicas.len() == 1));
    expect(
        &mut peer,
        &[
            (
                "CLUSTER REPLICAS 0202020202020202020202020202020202020202",
                "ERR The specified node is not a master",
            ),
            ("CLUSTER REPLICAS nobody", "ERR Unknown node nobody"),
            (&format!("CLUSTER COUNT-FAILURE-REPORTS {own}"), "0"),
            ("CLUSTER MYSHARDID", "c0ffee0000000000000000000000000000000000"),
        ],
    );
    let info = peer.ask("INFO");
    assert!(info.contains("redis_mode:cluster\r\n") && info.contains("cluster_enabled:1\r\n"));
}

#[test]
fn keys_of_a_slot_are_counted_and_listed() {
    let node = Node::master("");
    let mut peer = node.connect();
    for number in 0..50 {
        peer.ask(&format!("SET {{b}}{number} 1"));
    }
    peer.ask("SET c 1");
    expect(
        &mut peer,
        &[
            ("CLUSTER COUNTKEYSINSLOT 3300", "50"),
            ("CLUSTER COUNTKEYSINSLOT 7365", "1"),
            ("CLUSTER COUNTKEYSINSLOT 0", "0"),
            ("CLUSTER COUNTKEYSINSLOT 16384", "ERR Invalid slot"),
            ("CLUSTER COUNTKEYSINSLOT x", "ERR value is not an integer or out of range"),
            ("CLUSTER GETKEYSINSLOT 3300 -1", "ERR Invalid slot or number of keys"),
            ("CLUSTER GETKEYSINSLOT -1 1", "ERR Invalid slot or number of keys"),
        ],
    );
    let mut listed = |count: usize| {
        peer.send(&[&format!("CLUSTER GETKEYSINSLOT 3300 {count}")]);
        let Some(Value::Array(keys)) = peer.reply() else { panic!("it lists keys") };
        assert!(keys.iter().all(|key| matches!(key, Value::Bulk(name) if name.starts_with(b"{b}"))));
        keys.len()
    };
    assert_eq!([0, 1, 20, 50, 1000].map(&mut listed), [0, 1, 20, 50, 50]);
    assert_eq!(peer.ask("SELECT 1"), "OK");
    assert_eq!(peer.ask("CLUSTER COUNTKEYSINSLOT 3300"), "0");
}

/// As Valkey 8.0.1 answers.
#[test]
fn slots_are_told_by_how_many_keys_they_have() {
    let node = Node::master("");
    let mut peer = node.connect();
    ["SET b 1", "SET {b}x 1", "SET c 1", "SELECT 1", "SET b 1"].iter().for_each(|line| drop(peer.ask(line)));
    let mut told = |words: &str| {
        peer.send(&[&format!("CLUSTER SLOT-STATS {words}")]);
        let Some(Value::Array(slots)) = peer.reply() else { panic!("{words}: it lists slots") };
        let of_slot = |slot: Value| match slot {
            Value::Array(pair) => match pair.as_slice() {
                [Value::Int(slot), Value::Array(figures)] => match figures.as_slice() {
                    [Value::Bulk(name), Value::Int(keys)] if name == b"key-count" => (*slot, *keys),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        slots.into_iter().map(of_slot).collect::<Vec<_>>()
    };
    assert_eq!(told("SLOTSRANGE 3299 3301"), [(3299, 0), (3300, 3), (3301, 0)]);
    assert_eq!(told("orderby KEY-COUNT limit 3"), [(3300, 3), (7365, 1), (0, 0)]);
    assert_eq!(told("ORDERBY key-count ASC LIMIT 2"), [(0, 0), (1, 0)]);
    // Slots of other shards are left out.
    assert_eq!(told("SLOTSRANGE 12182 12182"), []);
    let unknown = "ERR unknown subcommand or wrong number of arguments for 'slot-stats'. Try CLUSTER HELP.";
    let limit = "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).";
    expect(
        &mut peer,
        &[
            ("CLUSTER SLOT-STATS SLOTSRANGE 0", unknown),
            ("CLUSTER SLOT-STATS SLOTSRANGE 0 1 2", unknown),
            ("CLUSTER SLOT-STATS NOSUCH 1 2", unknown),
            (
                "CLUSTER SLOT-STATS SLOTSRANGE 5 2",
                "ERR Start slot number 5 is greater than end slot number 2",
            ),
            ("CLUSTER SLOT-STATS SLOTSRANGE 0 16384", "ERR Invalid or out of range slot"),
            ("CLUSTER SLOT-STATS SLOTSRANGE a 1", "ERR Invalid or out of range slot"),
            ("CLUSTER SLOT-STATS ORDERBY cpu-usec LIMIT 2", "ERR Unrecognized sort metric for ORDERBY."),
            ("CLUSTER SLOT-STATS ORDERBY key-count LIMIT 0", limit),
            ("CLUSTER SLOT-STATS ORDERBY key-count LIMIT x", limit),
            ("CLUSTER SLOT-STATS ORDERBY key-count LIMIT", "ERR syntax error"),
            ("CLUSTER SLOT-STATS ORDERBY key-count foo", "ERR syntax error"),
            (
                "CLUSTER SLOT-STATS ORDERBY key-count ASC DESC",
                "ERR Multiple filters of the same type are disallowed.",
            ),
        ],
    );
}
