//! The link's machines follow real servers: the data that they bring is the master's, and their offsets are what it counts.
//!
//! A second server of the same kind stands for the replica's data: it loads the RDB and is told what the stream brought.
//! Valkey is left out, with a word, where it is not installed.

#![allow(clippy::unwrap_used)] // Tests may.

#[path = "follow/follower.rs"]
mod follower;

use follower::{Follower, PATIENCE, introduce, receive_rdb, until};
use replication::link::{Ask, Form, Outcome, Place, Replica, UnitKind};
use testkit::ask::{ask, call_line, call_line_well, call_well};
use testkit::{Client, Program, Server, free_port};
use wire::Value;

/// Starts a server; None where it is not installed.
fn start(program: &Program, directives: &[&str]) -> Option<Server> {
    match Server::start(program.clone(), directives) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && *program == Program::Valkey => {
            println!("skipped: valkey-server is not installed");
            None
        }
        started => Some(started.unwrap()),
    }
}

/// A field of INFO.
fn field(client: &mut Client, name: &str) -> String {
    let Value::Bulk(text) = call_line_well(client, "INFO replication") else { panic!("INFO is a string") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// Follows until the master counts no more bytes than the follower has.
fn catch_up(follower: &mut Follower, master: &mut Client) {
    until("the end of the stream", || {
        follower.follow();
        (field(master, "master_repl_offset") == follower.place().offset.to_string()).then_some(())
    });
}

/// A first full sync: the RDB and a follower behind it.
fn full_sync(server: &Server, replica: &Replica, form: fn(Form) -> bool) -> (Vec<u8>, Follower) {
    let (mut connection, outcome) = introduce(server.address(), replica, Ask::Full);
    let Outcome::Full { id, offset } = outcome else { panic!("{outcome:?}") };
    let (rdb, came_in) = receive_rdb(&mut connection);
    assert!(form(came_in), "{came_in:?}");
    assert!(rdb.starts_with(b"REDIS0") || rdb.starts_with(b"VALKEY"), "{}", rdb[..9].escape_ascii());
    (rdb, Follower::new(connection, id, Place { offset, database: 0 }))
}

/// Writes of several kinds, in several databases, some of them as transactions.
fn write(client: &mut Client, round: usize) {
    let lines = [
        "SELECT 0",
        "SET plain {} EX 1000",
        "APPEND text {}",
        "INCRBYFLOAT number 1.5",
        "RPUSH list a b c {}",
        "LPOP list 2",
        "SADD set 1 2 3 4 5 {}",
        "SPOP set 2",
        "ZADD zset 1 a 2 b {} c",
        "SELECT 5",
        "HSET hash f {} g 2",
        "XADD stream * f {}",
        "MULTI",
        "INCR counter",
        "SELECT 9",
        "SET elsewhere {}",
        "SELECT 5",
        "DEL plain",
        "EXEC",
        "PEXPIRE hash 900000",
        "PUBLISH channel {}",
        "SELECT 2",
        "MSET a {} b 2 c 3",
        "DEL a",
    ];
    for line in lines {
        call_line_well(client, &line.replace("{}", &round.to_string()));
    }
    let script = "redis.call('SET', 'by', 'script') return redis.call('SADD', 'many', 1, 2, 3)";
    call_well(client, &["EVAL", script, "0"]);
    call_well(client, &["SET".as_bytes(), b"binary", b"\r\n*3\r\n$EOF:\0\xff"]);
    call_well(client, &["SET".as_bytes(), b"large", &vec![b'x'; 700_000 + round]]);
}

/// Tells a server what the stream brought, each unit as a transaction.
fn apply(follower: &mut Follower, target: &mut Client) {
    let mut applied = std::mem::take(&mut follower.applied).into_iter().peekable();
    while let Some(first) = applied.next() {
        let unit = first.unit;
        call_line_well(target, "MULTI");
        let mut next = Some(first);
        while let Some(one) = next {
            call_well(target, &["SELECT", &one.database.to_string()]);
            call_well(target, &one.arguments);
            next = applied.next_if(|one| one.unit == unit);
        }
        let Value::Array(replies) = call_line_well(target, "EXEC") else { panic!("EXEC gives replies") };
        assert!(!replies.iter().any(|reply| matches!(reply, Value::Error(_))), "{replies:?}");
    }
}

/// The data of both is the same.
#[track_caller]
fn is_same(master: &mut Client, target: &mut Client) {
    assert_eq!(ask(master, &["DEBUG", "DIGEST"]), ask(target, &["DEBUG", "DIGEST"]));
    assert_eq!(
        ask(master, &["INFO", "keyspace"]).lines().count(),
        ask(target, &["INFO", "keyspace"]).lines().count()
    );
}

/// WAIT asks for an acknowledgement, which the follower gives.
fn is_waited_for(follower: &mut Follower, master: &mut Client) {
    catch_up(follower, master);
    call_line_well(master, "SET waited for");
    let asked = follower.kinds.iter().filter(|kind| **kind == UnitKind::GetAck).count();
    master.send_request(&["WAIT", "1", &PATIENCE.as_millis().to_string()]).unwrap();
    until("REPLCONF GETACK", || {
        follower.follow();
        (follower.kinds.iter().filter(|kind| **kind == UnitKind::GetAck).count() > asked).then_some(())
    });
    assert_eq!(master.read_value().unwrap(), Value::Int(1));
}

/// The connection breaks amid a transaction, which is not applied, and is whole once the stream is resumed.
fn is_resumed(follower: &mut Follower, server: &Server, master: &mut Client) {
    catch_up(follower, master);
    let before = (follower.place(), follower.applied.len());
    for line in ["MULTI", "INCR counter", "SELECT 9", "LPUSH cut a", "EXEC"] {
        call_line_well(master, line);
    }
    let end: u64 = field(master, "master_repl_offset").parse().unwrap();
    until("the transaction", || {
        follower.follow_up_to(end - 20);
        (follower.fed() == end - 20).then_some(())
    });
    assert_eq!(follower.applied.len(), before.1);
    assert!(follower.place().offset < end - 20);
    let outcome = follower.resume(server.address());
    assert_eq!(outcome, Outcome::Partial { renamed: None });
    write(master, 7);
    catch_up(follower, master);
    assert!(follower.applied[before.1..].iter().any(|one| one.arguments[0] == b"LPUSH" && one.database == 9));
}

/// All of it, with one server and one form of the RDB.
fn is_followed(program: &Program, diskless: &str, form: fn(Form) -> bool) {
    let directives = [
        "--repl-diskless-sync",
        diskless,
        "--repl-diskless-sync-delay",
        "0",
        "--repl-ping-replica-period",
        "1",
    ];
    let Some(server) = start(program, &directives) else { return };
    let mut target = start(program, &[]).unwrap();
    let mut master = server.connect().unwrap();
    (0..3).for_each(|round| write(&mut master, round));
    let (rdb, mut follower) =
        full_sync(&server, &Replica { listening_port: 7777, ..Replica::default() }, form);
    std::fs::write(target.dir().join("dump.rdb"), &rdb).unwrap();
    target.restart().unwrap();
    let mut copy = target.connect().unwrap();
    catch_up(&mut follower, &mut master);
    (3..6).for_each(|round| write(&mut master, round));
    is_waited_for(&mut follower, &mut master);
    is_resumed(&mut follower, &server, &mut master);
    assert_eq!(field(&mut master, "master_replid"), follower.id.to_string());
    call_line_well(&mut master, "CONFIG SET repl-ping-replica-period 1");
    until("a heartbeat", || {
        follower.follow();
        follower.kinds.contains(&UnitKind::Ping).then_some(())
    });
    assert!(follower.kinds.contains(&UnitKind::Transaction) && follower.kinds.contains(&UnitKind::Select));
    until("what was acknowledged, in the master's INFO", || {
        follower.follow();
        let slave = field(&mut master, "slave0");
        let acknowledged = format!("offset={},", field(&mut master, "master_repl_offset"));
        (slave.contains("state=online") && slave.contains(&acknowledged)).then_some(())
    });
    apply(&mut follower, &mut copy);
    is_same(&mut master, &mut copy);
}

#[test]
fn redis_is_followed_from_a_file() {
    is_followed(&Program::Redis, "no", |form| matches!(form, Form::Length(_)));
}

#[test]
fn redis_is_followed_from_its_memory() {
    is_followed(&Program::Redis, "yes", |form| form == Form::Mark);
}

#[test]
fn valkey_is_followed_from_a_file() {
    is_followed(&Program::Valkey, "no", |form| matches!(form, Form::Length(_)));
}

#[test]
fn valkey_is_followed_from_its_memory() {
    is_followed(&Program::Valkey, "yes", |form| form == Form::Mark);
}

/// A replica that is promoted goes on with the stream of its former master, under a name of its own.
#[test]
fn a_promoted_replica_is_followed_under_its_new_name() {
    for program in [Program::Redis, Program::Valkey] {
        let Some(server) = start(&program, &["--repl-diskless-sync-delay", "0"]) else { continue };
        let port = server.address().port().to_string();
        let middle = start(&program, &["--replicaof", "127.0.0.1", &port]).unwrap();
        let (mut master, mut client) = (server.connect().unwrap(), middle.connect().unwrap());
        let (_, mut follower) = full_sync(&server, &Replica::default(), |_| true);
        write(&mut master, 1);
        catch_up(&mut follower, &mut master);
        until("the replica", || {
            follower.follow();
            (field(&mut client, "master_link_status") == "up").then_some(())
        });
        let end = follower.place().offset;
        until("what the follower has, at the replica", || {
            (field(&mut client, "master_repl_offset").parse::<u64>().unwrap() >= end).then_some(())
        });
        assert_eq!(follower.resume(middle.address()), Outcome::Partial { renamed: None });
        write(&mut master, 2);
        catch_up(&mut follower, &mut client);
        call_line_well(&mut client, "REPLICAOF NO ONE");
        let old = follower.id;
        let outcome = follower.resume(middle.address());
        assert!(matches!(outcome, Outcome::Partial { renamed: Some(_) }), "{outcome:?}");
        assert_ne!(follower.id, old);
        write(&mut client, 3);
        catch_up(&mut follower, &mut client);
        assert_eq!(field(&mut client, "master_replid"), follower.id.to_string());
    }
}

/// What a master says to one that it does not take, or not yet.
#[test]
fn a_master_that_cannot_or_will_not_says_so() {
    for program in [Program::Redis, Program::Valkey] {
        let dead = free_port().unwrap().to_string();
        let Some(orphan) = start(&program, &["--replicaof", "127.0.0.1", &dead]) else { continue };
        let outcome = introduce(orphan.address(), &Replica::default(), Ask::Full).1;
        assert!(matches!(outcome, Outcome::Later(_)), "{outcome:?}");
        let server =
            start(&program, &["--requirepass", "secret", "--repl-diskless-sync-delay", "0"]).unwrap();
        let mut client = server.connect().unwrap();
        assert_eq!(ask(&mut client, &["AUTH", "secret"]), "OK");
        call_line(&mut client, "ACL SETUSER follower on >word +psync +replconf +ping");
        let outcome = |user: Option<&str>, password: Option<&str>| {
            let replica = Replica {
                user: user.map(|user| user.as_bytes().to_vec()),
                password: password.map(|password| password.as_bytes().to_vec()),
                version: Some("8.0.0".to_owned()),
                announced_address: Some("10.1.2.3".to_owned()),
                ..Replica::default()
            };
            introduce(server.address(), &replica, Ask::Full).1
        };
        for (user, password, sentence) in [
            (None, None, "Unexpected reply to PSYNC from master: -NOAUTH"),
            (None, Some("wrong"), "Unable to AUTH to MASTER: -WRONGPASS"),
            (Some("nobody"), Some("secret"), "Unable to AUTH to MASTER: -WRONGPASS"),
        ] {
            let Outcome::Refused(ending) = outcome(user, password) else { panic!("{user:?} {password:?}") };
            assert!(ending.sentence().starts_with(sentence), "{ending}");
        }
        assert!(matches!(outcome(None, Some("secret")), Outcome::Full { .. }));
        assert!(matches!(outcome(Some("follower"), Some("word")), Outcome::Full { .. }));
    }
}
