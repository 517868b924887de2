//! A cluster in which everybody speaks TLS and wants a password. No way without TLS leads anywhere: config servers have no other port, and servers announce a wrong one.

use super::cluster::{PATIENT, wait_until};
use crate::imports::{complaint, run};
use crate::operators::{refused_by, shown_by};
use crate::{tarn, tarn_path};
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
        Site::start_with(&[])
    }

    /// Config servers with these options, too.
    fn start_with(options: &[&str]) -> Site {
        let (files, port) = (Files::new().unwrap(), free_port().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let tls: Vec<String> =
            files.directives().into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect();
        let Program::Tarn(program) = tarn() else { panic!("it is Tarn that is tested") };
        let config = Command::new(program)
            .args(["config", "--store", &format!("dir:{}", dir.path().display()), "--port", "0"])
            .args(["--tls-port", &port.to_string(), "--tls-cluster", "yes", "--shards", "2", "--copies", "2"])
            .args(["--requirepass", SECRET])
            .args(options)
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
            let all = [&words[..], &cluster, &secret, &["--requirepass", SECRET], &PATIENT].concat();
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

    /// Waits until it answers.
    fn wait_until_there(&self) {
        wait_until("the config server answers", || {
            let words = self.words(&["status"]);
            run("cluster", &words.iter().map(String::as_str).collect::<Vec<_>>()).status.success()
        });
    }

    fn connect(&self, at: usize) -> Client {
        let mut client = self.servers[at].connect_loaded().unwrap();
        assert_eq!(call(&mut client, &["AUTH", SECRET]), ok());
        client
    }

    /// Sets each key at the server that takes it, or asks each for it: what that answers.
    fn ask_owner(&self, words: &[&str]) -> Value {
        let answers = (0..self.servers.len()).map(|at| call(&mut self.connect(at), words));
        let is_here = |answer: &Value| !matches!(answer, Value::Error(line) if line.starts_with(b"MOVED"));
        answers.into_iter().find(is_here).unwrap_or(Value::Null)
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
    site.wait_until_there();
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
    // Each server takes its own as soon as it has heard which these are.
    wait_until("all are set", || site.servers.iter().map(set).sum::<usize>() == 50);
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
    let mut shows_all =
        || (0..50).all(|number| call(&mut client, &["GET", &format!("k{number}")]) == text("v"));
    wait_until("it has heard that all are its own", &mut shows_all);
    assert_eq!(call(&mut client, &["DBSIZE"]), Value::Int(50));
}

#[test]
fn a_proxy_finds_its_cluster_by_tls_and_a_password() {
    let site = Site::start();
    site.wait_until_there();
    let place = format!("127.0.0.1:{}", site.port);
    let tls = site.files.directives().into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
    let tls: Vec<String> = tls.collect();
    let words = |password: &'static str| {
        let own = ["--proxy-config-servers", &place, "--tls-cluster", "yes", "--masterauth", password];
        own.into_iter().chain(tls.iter().map(String::as_str)).map(str::to_owned).collect::<Vec<_>>()
    };
    let check = |password| {
        let words = words(password);
        crate::proxies::check(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    wait_until("the cluster serves", || check(SECRET).0);
    let (_, told) = check(SECRET);
    assert!(told.contains("config server  of cluster "), "{told}");
    let begin = |password| {
        let words = words(password);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Server::start(Program::Proxy(tarn_path()), &words)
    };
    let proxy = begin(SECRET).unwrap();
    let mut client = proxy.connect().unwrap();
    for number in 0..50 {
        wait_until("it is set", || call(&mut client, &["SET", &format!("k{number}"), "v"]) == ok());
    }
    let refused = begin("config-secreT").map(drop).expect_err("the password is wrong").to_string();
    assert!(refused.contains("WRONGPASS"), "{refused}");
}

/// What a user has to be allowed who takes backups and brings them back.
const BACKUP_USER: [&str; 11] = [
    "ACL",
    "SETUSER",
    "backup",
    "on",
    ">backup-secret",
    "~*",
    "&*",
    "+psync",
    "+replconf",
    "+cluster|cut",
    "+ping",
];

#[test]
fn backups_are_taken_and_restored_by_a_user_over_tls() {
    let (site, dir) = (Site::start(), tempfile::tempdir().unwrap());
    site.wait_until_there();
    wait_until("the cluster is whole", || is_whole(&site.status()));
    for number in 0..50 {
        wait_until("it is set", || site.ask_owner(&["SET", &format!("k{number}"), "v"]) == ok());
    }
    let backup = dir.path().join("backup").display().to_string();
    let said = |words: &[&str]| {
        let words = site.words(words);
        complaint("cluster", &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let by = |password: &'static str| ["--server-user", "backup", "--server-password", password];
    let words = |password| [&["backup", backup.as_str()], &by(password)[..]].concat();
    // What does not get in is told so at once.
    assert!(said(&words("backup-secret")).contains("WRONGPASS"), "there is no such user yet");
    let allow = |site: &Site, words: &[&str]| {
        (0..site.servers.len()).for_each(|at| assert_eq!(call(&mut site.connect(at), words), ok()));
    };
    allow(&site, &[&BACKUP_USER[..7], &["+ping", "+psync", "+replconf"]].concat());
    assert!(said(&words("backup-secreT")).contains("WRONGPASS"));
    assert!(said(&words("backup-secret")).contains("NOPERM"), "there is no moment without CLUSTER CUT");
    assert!(!dir.path().join("backup/manifest.json").exists());
    allow(&site, &BACKUP_USER);
    site.tool(&words("backup-secret"));
    site.tool(&["backup", &backup, "--verify"]);

    let other = Site::start_with(&["--await-restore", "yes"]);
    other.wait_until_there();
    allow(&other, &[&BACKUP_USER[..7], &["+slotmove", "+function"]].concat());
    wait_until("all shards have begun", || {
        let shards = other.status()["shards"].as_array().cloned().unwrap_or_default();
        let is_member = |server: &serde_json::Value| server["is_member"] == true;
        shards.len() == 2
            && shards.iter().all(|shard| {
                shard["servers"].as_array().unwrap().iter().filter(|one| is_member(one)).count() == 2
            })
    });
    let restore = [&["restore", backup.as_str()], &by("backup-secret")[..]].concat();
    let wrong = other.words(&[&["restore", backup.as_str()], &by("wrong")[..]].concat());
    let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
    assert!(complaint("cluster", &wrong).contains("WRONGPASS"));
    other.tool(&restore);
    wait_until("the cluster is whole", || is_whole(&other.status()));
    for number in 0..50 {
        wait_until("it is there", || other.ask_owner(&["GET", &format!("k{number}")]) == text("v"));
    }
}
