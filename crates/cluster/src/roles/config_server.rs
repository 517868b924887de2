//! `tarn config`: a config server.

use super::{option, value_of};
use crate::control::{Leader, Options, Policy, Setting};
use crate::service::{self, Settings};
use crate::store::Store;
use crate::store::embedded::Embedded;
use crate::store::etcd::{self, Etcd};
use config::Config;
use lexopt::Parser;
use net::descriptors;
use net::tls::{self, ClientCertificates};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use sys::Prng;
use sys::file::Fs;
use telemetry::log;

pub const USAGE: &str = "\
Runs a config server: what the servers, proxies and operators of a cluster talk to.

Usage: tarn config --store PLACE [OPTION ...]

  --store etcd:URL,URL     the decisions lie in etcd, of which these are members: http://10.0.0.1:2379,10.0.0.2:2379
  --store dir:PATH         the decisions lie in a directory of this config server, which is the only one
  --store-user NAME        as whom it speaks to etcd
  --store-password TEXT    and with which password
  --store-ca FILE          the authorities that etcd's certificates come from (those of the web)
  --store-cert FILE        what is shown to etcd, and
  --store-key FILE         its key
  --cluster-name NAME      which cluster of the store (tarn)
  --port PORT              where to listen (7900)
  --bind ADDRESS           at which address; again for each other one (127.0.0.1)
  --announce HOST[:PORT]   where other config servers reach this one (the first --bind, and --port); needed with
                           --bind 0.0.0.0 or ::
  --requirepass PASSWORD   what clients have to say: servers (`masterauth`), operators, other config servers
  --server-user NAME       as whom it speaks to the cluster's servers (the default user)
  --server-password TEXT   and with which password (that of --requirepass)
  --maxclients COUNT       connections at most (10000), and as many as the limit of open files allows

TLS, in the words of redis.conf; files are read when it begins:
  --tls-port PORT          where TLS is spoken; --port 0: nothing else is
  --tls-cert-file FILE, --tls-key-file FILE
                           what is shown to those who come, and to others
  --tls-client-cert-file FILE, --tls-client-key-file FILE
                           what is shown to others, where that is not the same
  --tls-ca-cert-file FILE, --tls-ca-cert-dir DIR
                           the authorities that others' certificates come from
  --tls-auth-clients yes|no|optional
                           whether those who come show a certificate (yes)
  --tls-protocols TEXT     versions (TLSv1.2 TLSv1.3)
  --tls-cluster yes|no     whether other config servers and servers are spoken to by TLS (no)

A cluster that begins takes these over; later `tarn cluster set` changes them:
  --copies COUNT           servers of each shard (2)
  --shards COUNT           shards that are begun as soon as there are servers for them (1)
  --replace-after SECONDS  how long a server may be away before a spare takes its place (600; 8 or more, or 8000ms)
  --await-restore yes|no   slots are given to nobody before a backup is restored (no)
  --leader-lease MS        a leading config server that is silent for so long is replaced (3000)

Ask it with redis-cli: CLUSTER STATUS, CLUSTER HELP. SIGTERM ends it.";

/// What only a cluster that begins takes over.
const OF_A_NEW_CLUSTER: [&str; 4] = ["copies", "shards", "replace-after", "await-restore"];

struct Given {
    store: Option<String>,
    etcd: etcd::Options,
    etcd_certificate: Option<PathBuf>,
    etcd_key: Option<PathBuf>,
    name: String,
    port: u16,
    bind: Vec<String>,
    announce: Option<String>,
    password: Option<String>,
    server_user: String,
    server_password: Option<String>,
    clients_max: usize,
    tls_port: u16,
    tls: tls::Settings,
    policy: Policy,
    /// The settings of the policy that were said.
    said: BTreeSet<&'static str>,
    lease: Duration,
}

impl Default for Given {
    fn default() -> Given {
        Given {
            store: None,
            etcd: etcd::Options::default(),
            etcd_certificate: None,
            etcd_key: None,
            name: "tarn".to_owned(),
            port: 7900,
            bind: Vec::new(),
            announce: None,
            password: None,
            server_user: String::new(),
            server_password: None,
            clients_max: 10_000,
            tls_port: 0,
            tls: tls::Settings::default(),
            policy: Policy {
                copies: 2,
                shards: 1,
                replace_after: Duration::from_secs(600),
                move_rate: 0,
                restore: 0,
                auto_rebalance: None,
                rebalance_threshold: Policy::REBALANCE_THRESHOLD,
            },
            said: BTreeSet::new(),
            lease: Duration::from_secs(3),
        }
    }
}

fn number<T: std::str::FromStr + PartialOrd>(name: &str, value: &str, least: T) -> Result<T, String> {
    let read = value.parse::<T>().ok().filter(|read| *read >= least);
    read.ok_or_else(|| format!("--{name} wants a number, and not '{value}'"))
}

impl Given {
    fn read(words: &[String]) -> Result<Given, String> {
        let mut parser = Parser::from_args(words.iter().map(OsString::from));
        let mut given = Given::default();
        while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
            let name = option(arg)?;
            let value = value_of(&mut parser, &name)?;
            let value = value.into_string().map_err(|_| format!("the value of --{name} is no text"))?;
            given.take(&name, value)?;
        }
        Ok(given)
    }

    fn take(&mut self, name: &str, value: String) -> Result<(), String> {
        self.said.extend(OF_A_NEW_CLUSTER.iter().find(|known| **known == name));
        match name {
            "store" => self.store = Some(value),
            "store-user" => self.etcd.user = value,
            "store-password" => self.etcd.password = value,
            "store-ca" => self.etcd.authorities = Some(value.into()),
            "store-cert" => self.etcd_certificate = Some(value.into()),
            "store-key" => self.etcd_key = Some(value.into()),
            "cluster-name" => self.name = value,
            "port" => self.port = number(name, &value, 0)?,
            "tls-port" => self.tls_port = number(name, &value, 0)?,
            "bind" => self.bind.push(value),
            "announce" => self.announce = Some(value),
            "requirepass" => self.password = Some(value),
            "server-user" => self.server_user = value,
            "server-password" => self.server_password = Some(value),
            "maxclients" => self.clients_max = number(name, &value, 1)?,
            "copies" | "shards" => {
                let setting = Setting::read(name, &value).map_err(|why| format!("--{name}: {why}"))?;
                self.policy = setting.put_to(self.policy);
            }
            "replace-after" => {
                let read = Policy::read_replace_after(&value);
                self.policy.replace_after = read.map_err(|why| format!("--{why}"))?;
            }
            "await-restore" => {
                self.policy.restore = match value.as_str() {
                    "yes" => 1,
                    "no" => 0,
                    _ => return Err(format!("--{name} is yes or no, and not '{value}'")),
                }
            }
            "leader-lease" => self.lease = Duration::from_millis(number(name, &value, 1000)?),
            _ => return self.take_tls(name, value),
        }
        Ok(())
    }

    fn take_tls(&mut self, name: &str, value: String) -> Result<(), String> {
        let tls = &mut self.tls;
        match name {
            "tls-cert-file" => tls.certificate = value.into(),
            "tls-key-file" => tls.key = value.into(),
            "tls-client-cert-file" => tls.client_certificate = value.into(),
            "tls-client-key-file" => tls.client_key = value.into(),
            "tls-ca-cert-file" => tls.authorities_file = value.into(),
            "tls-ca-cert-dir" => tls.authorities_dir = value.into(),
            "tls-protocols" => tls.protocols = value,
            "tls-auth-clients" => {
                tls.client_certificates = match value.as_str() {
                    "yes" => ClientCertificates::Required,
                    "no" => ClientCertificates::NotAsked,
                    "optional" => ClientCertificates::Optional,
                    _ => return Err(format!("--{name} is yes, no or optional, and not '{value}'")),
                }
            }
            "tls-cluster" => {
                tls.is_for_servers = match value.as_str() {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(format!("--{name} is yes or no, and not '{value}'")),
                }
            }
            _ => return Err(format!("there is no option --{name}; see --help")),
        }
        Ok(())
    }

    /// Reads what TLS is spoken by, if it is.
    fn contexts(&self) -> Result<Option<Arc<tls::Contexts>>, String> {
        match (self.tls_port, self.tls.is_for_servers) {
            (0, true) => Err("--tls-cluster wants a --tls-port, too".to_owned()),
            (0, false) if !self.tls.certificate.as_os_str().is_empty() => {
                Err("--tls-cert-file wants a --tls-port".to_owned())
            }
            (0, false) if self.port == 0 => Err("--port 0 wants a --tls-port".to_owned()),
            (0, false) => Ok(None),
            (port, _) if port == self.port => Err("--port and --tls-port are the same".to_owned()),
            _ => {
                let (contexts, warnings) = tls::Contexts::load(&self.tls)?;
                warnings.iter().for_each(|warning| log!(Warning, "{warning}"));
                Ok(Some(Arc::new(contexts)))
            }
        }
    }

    fn settings(self) -> Result<Settings, String> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > 100 || !self.name.chars().all(is_name) {
            return Err(format!(
                "--cluster-name is letters, digits, '-', '_' and '.', and not '{}'",
                self.name
            ));
        }
        let contexts = self.contexts()?;
        let bind = if self.bind.is_empty() { vec!["127.0.0.1".to_owned()] } else { self.bind };
        let own_port = if self.tls.is_for_servers || self.port == 0 { self.tls_port } else { self.port };
        let (host, port) = match &self.announce {
            None => (bind[0].clone(), own_port),
            Some(text) => address(text, own_port)
                .ok_or_else(|| format!("--announce wants HOST or HOST:PORT, and not '{text}'"))?,
        };
        if host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
            return Err(format!(
                "--announce HOST is needed: other config servers cannot reach this one at {host}"
            ));
        }
        let name = hexadecimal();
        let control = Options {
            prefix: format!("/tarn/{}/", self.name),
            own: Leader { name, host, port },
            cluster: hexadecimal(),
            policy: self.policy,
            said: self.said,
            lease: self.lease,
        };
        Ok(Settings {
            bind,
            port: self.port,
            tls_port: self.tls_port,
            peers: contexts.as_ref().filter(|_| self.tls.is_for_servers).and_then(|it| it.client.clone()),
            clients: contexts.map(|contexts| contexts.server.clone()),
            server_password: self.server_password.or_else(|| self.password.clone()),
            password: self.password,
            server_user: self.server_user,
            clients_max: self.clients_max,
            control,
        })
    }
}

/// `HOST:PORT`, or a host alone.
pub fn address(text: &str, port: u16) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.starts_with('[') => (host, port.parse().ok()?),
        _ => (text, port),
    };
    let host = host.trim_matches(['[', ']']);
    let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
    is_host.then(|| (host.to_owned(), port))
}

/// 40 hexadecimal digits that nobody else draws.
fn hexadecimal() -> String {
    let mut random = Prng::from_entropy();
    (0..5).map(|_| format!("{:08x}", random.next_u64() as u32)).collect()
}

impl Given {
    fn store(&self) -> Result<Arc<dyn Store>, String> {
        let place = self.store.as_deref().ok_or("--store is needed; see --help")?;
        match place.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => {
                Ok(Arc::new(Embedded::open(Fs::Real, Path::new(path))?))
            }
            Some(("etcd", members)) if !members.is_empty() => {
                let certificate = match (&self.etcd_certificate, &self.etcd_key) {
                    (None, None) => None,
                    (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
                    _ => return Err("--store-cert and --store-key go together".to_owned()),
                };
                let endpoints = endpoints(members);
                Ok(Arc::new(Etcd::new(etcd::Options { endpoints, certificate, ..self.etcd.clone() })?))
            }
            _ => Err(format!("--store wants dir:PATH or etcd:URL,URL..., and not '{place}'")),
        }
    }
}

/// The addresses of etcd's members. Who says no scheme has that of the one before.
fn endpoints(text: &str) -> Vec<String> {
    let mut scheme = "http";
    let members = text.split(',').map(|member| match member.split_once("://") {
        Some((own, _)) => {
            scheme = own;
            member.to_owned()
        }
        None => format!("{scheme}://{member}"),
    });
    members.collect()
}

/// How many of these clients there can be, with the limit of open files raised as far as it takes and the system lets it.
fn clients_possible(wanted: usize) -> Result<usize, String> {
    let limited = u32::try_from(wanted).unwrap_or(u32::MAX);
    let possible = descriptors::clients_possible(&Config::defaults(), limited);
    let possible = possible.map_err(|error| format!("the limit of open files is not known: {error}"))?;
    match usize::try_from(possible).unwrap_or(usize::MAX) {
        0 => {
            Err("the limit of open files is too low for a config server; raise it with 'ulimit -n'"
                .to_owned())
        }
        possible if possible < wanted => {
            log!(
                Warning,
                "--maxclients is lowered from {wanted} to {possible}: the limit of open files cannot be raised. To serve more, raise it with 'ulimit -n'"
            );
            Ok(possible)
        }
        _ => Ok(wanted),
    }
}

/// Config servers over one etcd that are on several machines do not find each other where each is told to be on its own.
fn warn_of_loopback(own: &Leader) {
    let is_loopback = own.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_loopback || own.host == "localhost" {
        log!(
            Warning,
            "Other config servers are told that this one is at {}, which nobody on another machine reaches: say --announce HOST, or name another address first behind --bind, unless all are on this machine",
            own.host
        );
    }
}

pub fn run(words: &[String]) -> Result<(), String> {
    let given = Given::read(words)?;
    let store = given.store()?;
    let is_alone = given.store.as_deref().is_some_and(|place| place.starts_with("dir:"));
    let settings = given.settings()?;
    if !is_alone {
        warn_of_loopback(&settings.control.own);
    }
    let clients_max = clients_possible(settings.clients_max)?;
    service::run(Settings { clients_max, ..settings }, store)
}
