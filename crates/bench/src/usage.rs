//! What a server uses of its machine while it is being measured.
//!
//! If it runs on this machine, `/proc` tells, by the kernel's accounts; else its own INFO must be believed. It counts
//! as local only if the process that INFO names holds the listening socket that was connected to, over a loopback
//! address: the same number on another machine or in another container is another process. Proxies are processes that whoever
//! asks has started, and are taken at their number.

use crate::client::Client;
use crate::engine::threads::{self, ThreadTime};
use crate::results::{ServerUsage, UsageSource};
use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Looks at one server or proxy during one measurement.
#[derive(Debug)]
pub struct Probe {
    place: Place,
    began: Instant,
    rss_bytes_max: u64,
}

/// Looks at all servers of one measurement: one, or the masters of a cluster, or those behind proxies; and at these proxies.
pub struct Probes {
    servers: Vec<Probe>,
    proxies: Vec<Probe>,
}

/// What was used in one measurement; none if nothing is known of a process, or it is gone.
#[derive(Debug, Default)]
pub struct Usage {
    /// By servers and proxies together.
    pub all: Option<ServerUsage>,
    /// The proxies' part of it, if there are some.
    pub proxies: Option<ServerUsage>,
}

impl Probes {
    /// Finds the servers behind these connections. Proxies are named by their processes: not each of them has an INFO.
    pub fn new(clients: Vec<Client>, proxies: impl Iterator<Item = u32>) -> Probes {
        let servers = clients.into_iter().map(Probe::new).collect();
        Probes { servers, proxies: proxies.map(Probe::of_process).collect() }
    }

    /// The measurement begins.
    pub fn begin(&mut self) {
        self.each().for_each(Probe::begin);
    }

    /// Looks at the memory; to be called now and then.
    pub fn look(&mut self) {
        self.each().for_each(Probe::look);
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Probe> {
        self.servers.iter_mut().chain(&mut self.proxies)
    }

    /// The measurement has ended.
    pub fn end(self, operations: u64) -> Usage {
        let used = |probes: Vec<Probe>| {
            let ended = probes.into_iter().map(|probe| probe.end(operations));
            ended.collect::<Option<Vec<ServerUsage>>>()
        };
        let (servers, proxies) = (used(self.servers), used(self.proxies));
        let all = servers.zip(proxies.clone()).map(|(servers, proxies)| [servers, proxies].concat());
        let summed = |usages: Vec<ServerUsage>| usages.into_iter().reduce(together);
        Usage { all: all.and_then(summed), proxies: proxies.and_then(summed) }
    }
}

/// What two processes took.
fn together(one: ServerUsage, other: ServerUsage) -> ServerUsage {
    let is_known = one.source == UsageSource::Proc && other.source == UsageSource::Proc;
    ServerUsage {
        source: if is_known { UsageSource::Proc } else { UsageSource::Info },
        cpu_us_per_operation: one.cpu_us_per_operation + other.cpu_us_per_operation,
        cores_used: one.cores_used + other.cores_used,
        busiest_thread: one.busiest_thread.zip(other.busiest_thread).map(|(one, other)| one.max(other)),
        cores_lacked: one.cores_lacked.zip(other.cores_lacked).map(|(one, other)| one + other),
        rss_bytes: one.rss_bytes + other.rss_bytes,
        rss_bytes_max: one.rss_bytes_max + other.rss_bytes_max,
    }
}

#[derive(Debug)]
enum Place {
    /// A process of this machine, and its threads at the beginning.
    Local { process: u32, before: HashMap<u32, ThreadTime> },
    /// Whom to ask, and the processor seconds at the beginning, by INFO.
    Remote { client: Client, before: Duration },
    /// Neither knows.
    Unknown,
}

impl Probe {
    /// Finds the server behind `client`; the measurement begins with [`Probe::begin`].
    pub fn new(mut client: Client) -> Probe {
        let info = client.info();
        let place = match local_process(&client, &info) {
            Some(process) => return Probe::of_process(process),
            None if processor_time(&info).is_some() => Place::Remote { client, before: Duration::ZERO },
            None => Place::Unknown,
        };
        Probe { place, began: Instant::now(), rss_bytes_max: 0 }
    }

    /// Looks at a process of this machine.
    pub fn of_process(process: u32) -> Probe {
        let place = Place::Local { process, before: HashMap::new() };
        Probe { place, began: Instant::now(), rss_bytes_max: 0 }
    }

    /// The measurement begins.
    pub fn begin(&mut self) {
        match &mut self.place {
            Place::Local { process, before } => *before = threads::of_process(*process).unwrap_or_default(),
            Place::Remote { client, before } => *before = processor_time(&client.info()).unwrap_or_default(),
            Place::Unknown => {}
        }
        self.began = Instant::now();
        self.look();
    }

    /// Looks at the memory; to be called now and then.
    pub fn look(&mut self) {
        if let Place::Local { process, .. } = self.place {
            self.rss_bytes_max = self.rss_bytes_max.max(resident_bytes(process));
        }
    }

    /// The measurement has ended. None if nothing is known, or the server is gone.
    pub fn end(mut self, operations: u64) -> Option<ServerUsage> {
        let span = self.began.elapsed();
        self.look();
        let (source, used, own_accounts, rss_bytes) = match &mut self.place {
            Place::Local { process, before } => {
                let times = threads::of_process(*process)?;
                let since = |(number, time): (&u32, &ThreadTime)| {
                    time.since(before.get(number).unwrap_or(&ThreadTime::default()))
                };
                let used: Duration = times.iter().map(|thread| since(thread).ran).sum();
                let waited: Duration = times.iter().map(|thread| since(thread).waited).sum();
                let busiest = times.iter().map(|thread| since(thread).load(span)).fold(0.0, f64::max);
                (UsageSource::Proc, used, Some((busiest.min(1.0), waited)), resident_bytes(*process))
            }
            Place::Remote { client, before } => {
                let info = client.info();
                let used = processor_time(&info)?.saturating_sub(*before);
                let rss = field(&info, "used_memory_rss").and_then(|number| number.parse().ok());
                (UsageSource::Info, used, None, rss.unwrap_or(0))
            }
            Place::Unknown => return None,
        };
        let seconds = span.as_secs_f64().max(1e-9);
        Some(ServerUsage {
            source,
            cpu_us_per_operation: used.as_secs_f64() * 1e6 / operations.max(1) as f64,
            cores_used: used.as_secs_f64() / seconds,
            busiest_thread: own_accounts.map(|(busiest, _)| busiest),
            cores_lacked: own_accounts.map(|(_, waited)| waited.as_secs_f64() / seconds),
            rss_bytes,
            rss_bytes_max: self.rss_bytes_max.max(rss_bytes),
        })
    }
}

/// The process behind a connection that runs on this machine, from the server's INFO.
pub fn local_process(client: &Client, info: &str) -> Option<u32> {
    let process = field(info, "process_id").and_then(|number| number.parse().ok());
    process.filter(|process| client.peer().is_ok_and(|peer| listens(*process, peer)))
}

/// The value of a line `name:value` of INFO.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The processor time that INFO tells.
fn processor_time(info: &str) -> Option<Duration> {
    let seconds = |name| field(info, name)?.parse::<f64>().ok();
    Duration::try_from_secs_f64(seconds("used_cpu_sys")? + seconds("used_cpu_user")?).ok()
}

/// The resident memory of a process; 0 if it is gone.
pub fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Whether a process of this machine holds a listening socket of this port, which a loopback address reaches.
fn listens(process: u32, peer: SocketAddr) -> bool {
    if !peer.ip().is_loopback() {
        return false;
    }
    let listening: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| {
            table.lines().filter_map(|line| listening_inode(line, peer.port())).collect::<Vec<_>>()
        })
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|link| link.to_str().is_some_and(|link| listening.iter().any(|socket| socket == link)))
}

/// The inode in a line of the kernel's socket table, if it is a socket that listens on this port.
fn listening_inode(line: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, own_port) = fields.get(1)?.rsplit_once(':')?;
    let is_it = u16::from_str_radix(own_port, 16).ok()? == port && *fields.get(3)? == LISTEN;
    if is_it { fields.get(9)?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_process_is_known_by_its_listening_socket() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(listens(std::process::id(), address));
        assert!(!listens(1, address) && !listens(std::process::id(), "192.0.2.1:6379".parse().unwrap()));
        drop(listener);
        assert!(!listens(std::process::id(), address));
    }

    #[test]
    fn info_tells_processor_time() {
        let info =
            "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\nused_cpu_sys_children:9.0\r\n";
        assert_eq!(processor_time(info), Some(Duration::from_millis(1750)));
        assert_eq!(processor_time("redis_version:7\r\n"), None);
    }
}
