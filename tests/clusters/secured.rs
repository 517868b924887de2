//! A cluster in which everybody speaks TLS and wants a password. No way without TLS leads anywhere: config servers have no other port, and servers announce a wrong one.

use super::cluster::wait_until;
use crate::operators::{refused_by, shown_by};
use crate::tarn;
use std::process::{Child, Command, Stdio};
use testkit::ask::{ask, call, ok, text};
use testkit::tls::{Authority, Files};
use testkit::{Client, Program, Server, free_port};
use wire::Value;

struct Site {
    files: Files,
    config: Child,
    port: u16,
    servers: Vec<Server>,
    _dir: tempfile::TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.config.kill();
        let _ = self.config.wait();
    }
}

const SECRET: &str = "config-secret";

impl Site {
    fn start() -> Site {
        let (files, port) = (Files::new().unwrap(), free_port().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let tls: Vec<String> =
            files.directives().into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect();
        let Program::Tarn(program) = tarn() else { panic!("it is Tarn that is tested") };
        let config = Command::new(program)
            .args(["config", "--store", &format!("dir:{}", dir.path().display()), "--port", "0"])
            .args(["--tls-port", &port.to_string(), "--tls-cluster", "yes", "--shards", "2", "--copies", "2"])
            .args(["--requirepass", SECRET])
            .args(&tls)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let place = format!("127.0.0.1:{port}");
        let servers = (0..4).map(|_| {
            let own = free_port().unwrap().to_string();
            let words = ["--edition", "memory", "--tls-port", &own, "--cluster-announce-port", "1"];
            let cluster = ["--cluster-enabled", "yes", "--cluster-config-servers", &place];
            let secret = ["--tls-cluster", "yes", "--tls-replication", "yes", "--masterauth", SECRET];
            let all = [&words[..], &cluster, &secret, &["--requirepass", SECRET]].concat();
            let all: Vec<&str> = all.into_iter().chain(tls.iter().map(String::as_str)).collect();
            Server::start(tarn(), &all).unwrap()
        });
        let servers = servers.collect();
        Site { files, config, port, servers, _dir: dir }
    }

    /// The words of the operator's tool, with everything that it takes to get in.
    fn words(&self, words: &[&str]) -> Vec<String> {
        let (place, path) = (format!("127.0.0.1:{}", self.port), |name: &str| self.files.path(name));
        let entry = ["--config", &place, "--password", SECRET, "--tls", "--cacert", &path("ca.crt")]
            .map(str::to_owned);
        let shown = ["--cert", &path("server.crt"), "--key", &path("server.key")].map(str::to_owned);
        words.iter().map(|word| (*word).to_owned()).chain(entry).chain(shown).collect()
    }

    fn tool(&self, words: &[&str]) -> String {
        let words = self.words(words);
        shown_by("cluster", &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.tool(&["status", "--json"])).unwrap()
    }

    fn refused(&self, words: &[&str]) -> String {
        let place = format!("127.0.0.1:{}", self.port);
        refused_by("cluster", &[&["status", "--config", &place], words].concat())
    }
}

fn is_whole(status: &serde_json::Value) -> bool {
    let shards = status["shards"].as_array().unwrap();
    let mut servers = shards.iter().flat_map(|shard| shard["servers"].as_array().unwrap());
    status["serves"] == true && shards.len() == 2 && servers.all(|server| server["is_member"] == true)
}

#[test]
fn nothing_is_said_without_tls_and_a_password() {
    let site = Site::start();
    let ca = site.files.path("ca.crt");
    // Before it is there nobody is refused for the reason that is meant.
    wait_until("the config server answers", || {
        let words = site.words(&["status"]);
        crate::imports::run("cluster", &words.iter().map(String::as_str).collect::<Vec<_>>()).status.success()
    });
    wait_until("the cluster is whole", || is_whole(&site.status()));
    let shown = ["--cert", &site.files.path("server.crt"), "--key", &site.files.path("server.key")];
    let secure = ["--tls", "--cacert", &ca];
    assert!(site.refused(&["--password", SECRET]).contains("gives no answer"), "without TLS");
    let bare = [&secure[..], &["--password", SECRET]].concat();
    assert!(site.refused(&bare).contains("config server"), "without a certificate");
    assert!(site.refused(&[&secure[..], &shown].concat()).contains("NOAUTH"));
    let wrong = [&secure[..], &shown, &["--password", "config-secreT"]].concat();
    assert!(site.refused(&wrong).contains("WRONGPASS"));
    let named = [&secure[..], &shown, &["--password", SECRET]].concat();
    let place = format!("127.0.0.1:{}", site.port);
    shown_by("cluster", &[&["status", "--config", &place], &named[..]].concat());
    let other = Files::new().unwrap();
    let unknown = ["--tls", "--cacert", &other.path("ca.crt"), "--password", SECRET];
    assert!(
        site.refused(&[&unknown[..], &shown].concat()).contains("is not reached"),
        "of another authority"
    );
    let forged = Authority::new("authority").issue("server");
    forged.write(other.dir(), "forged").unwrap();
    let forged = ["--cert", &other.path("forged.crt"), "--key", &other.path("forged.key")];
    let forged = [&secure[..], &forged, &["--password", SECRET]].concat();
    assert!(site.refused(&forged).contains("config server"), "with a certificate of another authority");
    assert!(site.refused(&["--cacert", &ca]).contains("go with --tls"));
    assert!(site.refused(&["--tls"]).contains("no authority is named"));
    // Shards replicate, config servers have masters hand over, and slots move.
    let connect = |server: &Server| {
        let mut client = Client::connect(server.address()).unwrap();
        assert_eq!(call(&mut client, &["AUTH", SECRET]), ok());
        client
    };
    let set = |server: &Server| {
        let mut client = connect(server);
        (0..50).filter(|number| call(&mut client, &["SET", &format!("k{number}"), "v"]) == ok()).count()
    };
    assert_eq!(site.servers.iter().map(set).sum::<usize>(), 50);
    let master = |shard: usize| {
        let status = site.status();
        let servers = status["shards"][shard]["servers"].as_array().unwrap().clone();
        servers.iter().find(|server| server["is_master"] == true).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let before = master(0);
    assert!(site.tool(&["switch", "0"]).contains("is master of shard 0"));
    assert_ne!(master(0), before);
    wait_until("the cluster is whole", || is_whole(&site.status()));
    assert!(site.tool(&["move-slots", "1", "0-8191"]).contains("1 of 1 moves are over"));
    let last = master(1);
    let is_last = |server: &&Server| ask(&mut connect(server), &["CLUSTER", "MYID"]) == last;
    let server = site.servers.iter().find(is_last).unwrap();
    let mut client = connect(server);
    for number in 0..50 {
        assert_eq!(call(&mut client, &["GET", &format!("k{number}")]), text("v"));
    }
    assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(50));
}
