//! Users that a cluster's store keeps for all of its proxies.

use super::clusters::proxy_of;
use crate::clusters::cluster::{Cluster, Kind};
use crate::tarn_path;
use std::process::Command;
use testkit::ask::{ask, call, call_line, is_error, wait_until};
use testkit::{Client, Program, Server};
use wire::Value;

/// One config server, one server and two proxies.
struct Proxies {
    cluster: Cluster,
    proxies: [Server; 2],
}

impl Proxies {
    fn begin() -> Proxies {
        Proxies::of(Cluster::begin(1, 1, &["--edition", "memory"]))
    }

    fn of(cluster: Cluster) -> Proxies {
        let id = *cluster.topology().unwrap().servers.keys().next().unwrap();
        let (node, place) = (cluster.place_of(id), cluster.place());
        let directives = ["--proxy-users", "cluster", "--proxy-config-servers", &place];
        // One is told of a node, and one finds it by the config servers.
        let proxies =
            [proxy_of(&node, &directives), Server::start(Program::Proxy(tarn_path()), &directives).unwrap()];
        Proxies { cluster, proxies }
    }

    fn client(&self, at: usize) -> Client {
        self.proxies[at].connect().unwrap()
    }

    /// Somebody who has said a name and a password.
    fn log_in(&self, at: usize, name: &str, password: &str) -> Option<Client> {
        let mut client = self.client(at);
        (ask(&mut client, &["AUTH", name, password]) == "OK").then_some(client)
    }

    fn tool(&self, words: &[&str]) -> (bool, String) {
        let mut command = Command::new(tarn_path());
        command.args(["cluster", "users"]).args(words).args(["--config", &self.cluster.place()]);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }
}

fn is_closed(client: &mut Client) -> bool {
    client.call(&["PING"]).is_err()
}

#[test]
fn users_of_one_proxy_are_those_of_all() {
    let all = Proxies::begin();
    let mut operator = all.client(0);
    let set = "ACL SETUSER alice on >secret ~a* &* +@all";
    assert_eq!(call_line(&mut operator, set), testkit::ask::ok());
    let mut alice = [0, 1].map(|at| {
        let mut client = None;
        wait_until("she is let in", || {
            client = all.log_in(at, "alice", "secret");
            client.is_some()
        });
        client.unwrap()
    });
    assert_eq!(ask(&mut alice[1], &["SET", "a1", "1"]), "OK");
    assert!(is_error(&call(&mut alice[1], &["SET", "b1", "1"]), "NOPERM"));
    // A request of the same connection sees what the one before it did.
    operator.send_request(&["ACL", "SETUSER", "alice", "~b*"]).unwrap();
    operator.send_request(&["ACL", "SETUSER", "bob", "on", "nopass", "+@all"]).unwrap();
    operator.send_request(&["AUTH", "bob", "any"]).unwrap();
    operator.send_request(&["ACL", "WHOAMI"]).unwrap();
    let replies: Vec<Value> = (0..4).map(|_| operator.read_value().unwrap()).collect();
    assert_eq!(replies[..3], vec![testkit::ask::ok(); 3]);
    assert_eq!(replies[3], testkit::ask::text("bob"));
    wait_until("her rights are others", || ask(&mut alice[1], &["SET", "b1", "1"]) == "OK");
    // What is wrong is said in the words of ACL, and a transaction takes none of it.
    let wrong = call_line(&mut operator, "ACL SETUSER alice +nothing");
    assert!(is_error(&wrong, "ERR Error in ACL SETUSER modifier"), "{wrong:?}");
    // One word, of which a line makes two selectors.
    let wrong = call(&mut operator, &["ACL", "SETUSER", "alice", "(~x) +get|y)"]);
    assert!(is_error(&wrong, "ERR proxy: the cluster's store keeps a user as a line"), "{wrong:?}");
    assert!(is_error(&call_line(&mut operator, "ACL DELUSER default"), "ERR The 'default' user"));
    assert_eq!(ask(&mut operator, &["MULTI"]), "OK");
    assert!(is_error(&call_line(&mut operator, "ACL DELUSER alice"), "ERR proxy"));
    assert_eq!(ask(&mut operator, &["DISCARD"]), "OK");
    assert_eq!([ask(&mut operator, &["ACL", "SAVE"]), ask(&mut operator, &["ACL", "LOAD"])], ["OK", "OK"]);
    assert_eq!(call_line(&mut operator, "ACL DELUSER alice nobody"), Value::Int(1));
    for mut client in alice {
        wait_until("her connections are closed", || is_closed(&mut client));
    }
    assert!(all.log_in(0, "alice", "secret").is_none() && all.log_in(1, "alice", "secret").is_none());
    // Who deletes himself is told so.
    assert_eq!(call_line(&mut operator, "ACL DELUSER bob"), Value::Int(1));
    assert!(is_closed(&mut operator));
}

#[test]
fn operators_see_to_users_of_proxies() {
    let all = Proxies::begin();
    let (is_done, said) = all.tool(&["set", "user carol on >secret ~* +@all"]);
    assert!(is_done, "{said}");
    wait_until("she is let in", || all.log_in(0, "carol", "secret").is_some());
    let (_, listed) = all.tool(&["list"]);
    assert!(listed.starts_with("user carol on #") && !listed.contains("secret"), "{listed}");
    let (_, json) = all.tool(&["list", "--json"]);
    assert!(json.contains(r#""name":"carol""#), "{json}");
    for wrong in [&["set", "carol on"][..], &["del", "nobody"], &["set"], &["del", "carol", "--json"]] {
        let (is_done, said) = all.tool(wrong);
        assert!(!is_done && said.starts_with("tarn cluster: "), "{said}");
    }
    // What only a later version understands leaves her what she was, and says so.
    assert!(all.tool(&["set", "user carol on what-comes-later"]).0);
    assert!(all.tool(&["set", "user default off ~* +@all"]).0);
    wait_until("nobody comes in without a name", || is_error(&call(&mut all.client(1), &["PING"]), "NOAUTH"));
    let mut carol = all.log_in(1, "carol", "secret").expect("she is what she was");
    let info = ask(&mut carol, &["INFO", "server"]);
    assert!(info.contains("users_unread:1\r\nusers_unread_names:carol\r\n"), "{info}");
    all.proxies[1].await_output(&["The user 'carol' stays what it was"]);
    let refused = call_line(&mut carol, "ACL SETUSER carol resetkeys");
    assert!(is_error(&refused, "ERR proxy"), "{refused:?}");
    assert!(is_error(&call_line(&mut carol, "ACL SAVE"), "ERR proxy"));
    // Without a line of hers the default user is what the directives say.
    assert!(all.tool(&["del", "default"]).0);
    wait_until("anybody is let in", || ask(&mut all.client(1), &["PING"]) == "PONG");
}

#[test]
fn without_config_servers_users_stay_what_they_are() {
    let mut all = Proxies::begin();
    let mut operator = all.client(0);
    assert_eq!(call_line(&mut operator, "ACL SETUSER alice on >secret ~* +@all"), testkit::ask::ok());
    wait_until("she is known", || all.log_in(1, "alice", "secret").is_some());
    all.cluster.config.kill(0);
    for word in ["ACL SETUSER bob on", "ACL DELUSER alice", "ACL LOAD", "ACL SAVE"] {
        let refused = call_line(&mut operator, word);
        assert!(is_error(&refused, "ERR proxy: the users are not changed"), "{word}: {refused:?}");
    }
    for at in [0, 1] {
        let mut alice = all.log_in(at, "alice", "secret").expect("logins go on");
        assert_eq!(ask(&mut alice, &["SET", "k", "1"]), "OK");
    }
    // The store is in a directory: another process of the config server knows it.
    all.cluster.config.mend();
    wait_until("users can be changed", || {
        call_line(&mut operator, "ACL SETUSER bob on nopass +@all") == testkit::ask::ok()
    });
    wait_until("he is known", || all.log_in(1, "bob", "any").is_some());
    all.proxies[1].restart().unwrap();
    assert!(all.log_in(1, "alice", "secret").is_some() && all.log_in(1, "bob", "any").is_some());
}

#[test]
fn whichever_config_server_leads_users_can_be_changed() {
    let mut all = Proxies::of(Cluster::begin_as(Kind::OverEtcd, (1, 1), &["--edition", "memory"]));
    let mut operators = [0, 1].map(|at| all.client(at));
    for round in 0..4 {
        // One that has just begun takes what others know for no older than it is.
        let at = all.cluster.config.leader().expect("one leads");
        all.cluster.config.kill(at);
        for (number, operator) in operators.iter_mut().enumerate() {
            let line = format!("ACL SETUSER u{round}{number} on nopass +@all");
            wait_until("it is changed", || call_line(operator, &line) == testkit::ask::ok());
        }
        for name in [format!("u{round}0"), format!("u{round}1")] {
            for at in [0, 1] {
                wait_until("all know of it", || all.log_in(at, &name, "any").is_some());
            }
        }
        all.cluster.config.mend();
        wait_until("one leads", || all.cluster.config.leader().is_some());
    }
    assert_eq!(call_line(&mut operators[0], "ACL DELUSER u00 u11 u31"), Value::Int(3));
    wait_until("they are gone", || all.log_in(1, "u31", "any").is_none());
}

#[test]
fn who_goes_before_users_are_changed_leaves_nothing_behind() {
    let mut all = Proxies::begin();
    all.cluster.config.kill(0);
    for number in 0..200 {
        let mut client = all.client(0);
        client.send_request(&["ACL", "SETUSER", &format!("u{number}"), "on"]).unwrap();
    }
    let refused = call_line(&mut all.client(0), "ACL SETUSER more on");
    assert!(is_error(&refused, "ERR proxy"), "{refused:?}");
    all.cluster.config.mend();
    wait_until("others are served", || {
        call_line(&mut all.client(0), "ACL SETUSER alice on") == testkit::ask::ok()
    });
}

#[test]
fn directives_that_make_no_sense_together_are_refused() {
    let shard = ["--proxy-shards", "127.0.0.1:1"];
    for (directives, word) in [
        (&["--proxy-users", "cluster"][..], "wants `proxy-config-servers`"),
        (&["--proxy-config-servers", "a:1"], "goes with `proxy-users cluster`"),
        (&["--proxy-users", "cluster", "--proxy-config-servers", "a"], "wants `proxy-config-servers`"),
        (
            &["--proxy-users", "cluster", "--proxy-config-servers", "a:1", "--aclfile", "users.acl"],
            "no `user` lines",
        ),
        (&["--proxy-users", "cluster", "--proxy-config-servers", "a:1", "--user", "x on"], "no `user` lines"),
    ] {
        let started = Server::start(Program::Proxy(tarn_path()), &[&shard[..], directives].concat());
        let why = started.map(drop).expect_err("it is refused").to_string();
        assert!(why.contains(word), "{directives:?}: {why}");
    }
}
