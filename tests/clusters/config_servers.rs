//! The config servers of a cluster to test, and what their decisions lie in.

use super::cluster::{Kind, wait_until};
use crate::tarn_path;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::etcd::Etcd;
use testkit::relay::Relay;
use testkit::{Client, free_port};
use wire::Value;

/// How long one is waited for that runs, before another is asked: longer than an order is passed on for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Members of etcd, and config servers over them.
const OVER_ETCD: (usize, usize) = (3, 2);

/// Config servers. They end with their handle.
pub struct ConfigServers {
    all: Vec<ConfigServer>,
    /// None: the store is in a directory.
    pub etcd: Option<Etcd>,
    _dir: tempfile::TempDir,
}

struct ConfigServer {
    child: Option<Child>,
    is_stopped: bool,
    address: SocketAddr,
    words: Vec<String>,
    to_etcd: Vec<Relay>,
}

impl ConfigServers {
    /// Those of a cluster that begins, all with these options.
    pub fn begin(kind: Kind, options: &[&str]) -> ConfigServers {
        let dir = tempfile::tempdir().expect("there is room for it");
        let (members, count) = if kind == Kind::OverEtcd { OVER_ETCD } else { (0, 1) };
        let etcd = (members > 0).then(|| Etcd::start(members));
        let one = |_| {
            let port = free_port().expect("there is one");
            let to_etcd: Vec<Relay> = (0..members)
                .map(|at| Relay::to(etcd.as_ref().expect("it has members").address(at)).expect("it listens"))
                .collect();
            let places: Vec<String> =
                to_etcd.iter().map(|relay| format!("http://{}", relay.address())).collect();
            let store = match kind {
                Kind::Embedded => format!("dir:{}", dir.path().display()),
                Kind::OverEtcd => format!("etcd:{}", places.join(",")),
            };
            let words = ["config", "--store", &store, "--port", &port.to_string()].map(str::to_owned);
            let words = words.into_iter().chain(options.iter().map(|word| (*word).to_owned())).collect();
            let address = (Ipv4Addr::LOCALHOST, port).into();
            ConfigServer { child: None, is_stopped: false, address, words, to_etcd }
        };
        let all = (0..count).map(one).collect();
        let mut servers = ConfigServers { all, etcd, _dir: dir };
        servers.start();
        servers
    }

    /// Where they are.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.all.iter().map(|one| one.address).collect()
    }

    /// Starts those that do not run.
    fn start(&mut self) {
        for one in self.all.iter_mut().filter(|one| one.child.is_none()) {
            one.start();
        }
        for one in &self.all {
            wait_until("a config server answers", || one.ask(&["PING"]).is_some());
        }
    }

    /// Ends all of them at once, and all of etcd.
    pub fn end(&mut self) {
        self.all.iter_mut().for_each(ConfigServer::end);
        if let Some(etcd) = &mut self.etcd {
            (0..etcd.count()).for_each(|at| etcd.kill(at));
        }
    }

    /// Asks one after another until one answers as one that has read the store and knows who leads; None: none does.
    pub fn ask(&self, words: &[&str]) -> Option<Value> {
        let mut last = None;
        for one in &self.all {
            let Some(answer) = one.ask(words) else { continue };
            let has_answered = |codes: &[&str]| !matches!(&answer, Value::Error(line) if codes.iter().any(|code| line.starts_with(code.as_bytes())));
            let is_last = has_answered(&["NOLEADER", "UNAVAILABLE", "UNREACHED"]);
            last = Some(answer);
            if is_last {
                break;
            }
        }
        last
    }

    /// The one that leads.
    pub fn leader(&self) -> Option<usize> {
        let leads = |one: &ConfigServer| matches!(one.ask(&["INFO"]), Some(Value::Bulk(text)) if String::from_utf8_lossy(&text).contains("leads:1"));
        self.all.iter().position(leads)
    }

    /// Ends one of them at once.
    pub fn kill(&mut self, at: usize) {
        self.all[at].end();
    }

    /// One of them stands still.
    pub fn stop(&mut self, at: usize) {
        self.all[at].signal("-STOP");
        self.all[at].is_stopped = true;
    }

    /// One of them reaches no member of etcd.
    pub fn cut_off(&self, at: usize) {
        self.all[at].to_etcd.iter().for_each(Relay::cut);
    }

    /// Takes back all that was done to any of them, and to etcd.
    pub fn mend(&mut self) {
        if let Some(etcd) = &mut self.etcd {
            etcd.mend();
        }
        for one in &mut self.all {
            one.to_etcd.iter().for_each(Relay::mend);
            if std::mem::take(&mut one.is_stopped) {
                one.signal("-CONT");
            }
        }
        self.start();
    }
}

impl ConfigServer {
    fn start(&mut self) {
        let mut command = Command::new(tarn_path());
        command.args(&self.words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("it can be run"));
    }

    fn end(&mut self) {
        self.is_stopped = false;
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: &str) {
        if let Some(child) = &self.child {
            let id = child.id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().expect("there is kill").success());
        }
    }

    fn ask(&self, words: &[&str]) -> Option<Value> {
        if self.is_stopped || self.child.is_none() {
            return None;
        }
        let mut client = Client::connect(self.address).ok()?;
        client.stream().set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
        client.call(words).ok()
    }
}

impl Drop for ConfigServers {
    fn drop(&mut self) {
        self.end();
    }
}
