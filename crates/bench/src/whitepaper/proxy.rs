//! Proxies that a run starts in front of servers of its own: Tarn's, and twemproxy.
//!
//! Invariants: 1. All of them listen on the loopback address alone, twemproxy's statistics too. 2. Each has one thread that passes requests on, as twemproxy
//! has not got more. 3. How one was started stands whole in its command line, which repeats it.

use super::edition::TWEMPROXY;
use super::launch::Launched;
use crate::Failure;
use crate::command_line::command_line;
use crate::plan::{Door, Plan, Target, Through};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a report says that has none.
pub const TWEMPROXY_MISSING: &str =
    "twemproxy is left out: its program, nutcracker, is neither on the PATH nor in /usr/sbin.";
/// Its program.
const PROGRAM: &str = "nutcracker";
/// Where a distribution puts it, which a user's PATH often lacks.
const SYSTEM_FOLDER: &str = "/usr/sbin";
/// How its version begins.
const VERSION_BEGIN: &str = "This is nutcracker-";

/// A kind of proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// `tarn proxy`.
    Tarn,
    /// twemproxy, by its program.
    Twemproxy(PathBuf),
}

/// What a proxy is in front of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The nodes of a cluster.
    Cluster,
    /// Servers that know nothing of each other.
    Servers,
}

impl Proxy {
    /// Starts it in front of the servers at these ports.
    ///
    /// # Errors
    /// It does not start, with what it printed.
    pub fn start(
        &self,
        name: &str,
        behind: Behind,
        ports: &[u16],
        within: &Path,
    ) -> Result<Launched, Failure> {
        let name = format!("The proxy of {name}");
        let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        match (self, behind) {
            (Proxy::Tarn, Behind::Cluster) => Launched::proxy(&name, &tarn("cluster", &addresses), within),
            (Proxy::Tarn, Behind::Servers) => Launched::proxy(&name, &tarn("shards", &addresses), within),
            (Proxy::Twemproxy(program), _) => Launched::shell(&name, &twemproxy(program, &addresses), within),
        }
    }

    /// What says its version, if it has no INFO for that.
    pub fn version(&self) -> Option<String> {
        let Proxy::Twemproxy(program) = self else { return None };
        let output = Command::new(program).arg("--version").output().ok()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let version = said.lines().find_map(|line| line.strip_prefix(VERSION_BEGIN))?.trim();
        Some(format!("{TWEMPROXY} {version}"))
    }
}

fn tarn(behind: &str, addresses: &[String]) -> String {
    format!(" --threads 1 --proxy-{behind} {}", addresses.join(","))
}

/// A line of the shell that writes down what twemproxy is to do, and starts it. Its statistics are to be had where a Redis Cluster would have
/// its bus: that port is free, too.
fn twemproxy(program: &Path, addresses: &[String]) -> String {
    let settings = [
        "listen: 127.0.0.1:{port}",
        "redis: true",
        "hash: fnv1a_64",
        "distribution: modula",
        "preconnect: true",
        "servers:",
    ];
    let mut lines = vec!["bench:".to_owned()];
    lines.extend(settings.map(|setting| format!("  {setting}")));
    // Each weighs as much as the others.
    lines.extend(addresses.iter().map(|address| format!("    - {address}:1")));
    let lines: Vec<String> = lines.into_iter().map(|line| format!("'{line}'")).collect();
    format!(
        r"printf '%s\n' {} > bench.yml && exec '{}' -c bench.yml -o /dev/stderr -p bench.pid -a 127.0.0.1 -s $(({{port}} + 10000))",
        lines.join(" "),
        program.display()
    )
}

/// The program of twemproxy, in the folders of a PATH or where distributions have it.
pub fn find_twemproxy(path: Option<&OsStr>) -> Option<PathBuf> {
    let folders = path.into_iter().flat_map(std::env::split_paths);
    in_folders(folders.chain([PathBuf::from(SYSTEM_FOLDER)]))
}

fn in_folders(mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.find_map(|folder| Some(folder.join(PROGRAM)).filter(|program| program.is_file()))
}

/// A plan whose load goes through proxies to these servers. It is repeated by one command for each proxy, all at the same time.
pub fn plan_through(plan: Plan, proxies: Vec<Door>, servers: Vec<Target>) -> Plan {
    let Some(first) = proxies.first() else { return plan };
    let target = first.target.clone();
    let count = u32::try_from(proxies.len()).unwrap_or(u32::MAX);
    let commands = (0..).zip(&proxies).map(|(place, proxy)| {
        let connections = plan.connections / count + u32::from(place < plan.connections % count);
        let threads = (plan.threads / count).max(1);
        command_line(&Plan { target: proxy.target.clone(), connections, threads, ..plan.clone() })
    });
    let command = commands.collect::<Vec<_>>().join(" & ");
    Plan { target, command: Some(command), through: Some(Through { proxies, servers }), ..plan }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Template, Work};

    #[test]
    fn the_program_of_twemproxy_is_found_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none");
        let program = folder.path().join(PROGRAM);
        assert_eq!(in_folders([none.clone(), folder.path().to_owned()].into_iter()), None);
        std::fs::write(&program, "").unwrap();
        assert_eq!(in_folders([none, folder.path().to_owned()].into_iter()), Some(program.clone()));
        assert_eq!(find_twemproxy(Some(folder.path().as_os_str())), Some(program));
    }

    #[test]
    fn proxies_listen_on_the_loopback_address_alone_and_have_one_thread() {
        let addresses = ["127.0.0.1:7001", "127.0.0.1:7002"].map(str::to_owned);
        assert_eq!(tarn("shards", &addresses), " --threads 1 --proxy-shards 127.0.0.1:7001,127.0.0.1:7002");
        let line = twemproxy(Path::new("/usr/sbin/nutcracker"), &addresses);
        for part in [
            r"printf '%s\n' 'bench:' '  listen: 127.0.0.1:{port}' ",
            "'  servers:' '    - 127.0.0.1:7001:1' '    - 127.0.0.1:7002:1' > bench.yml",
            "exec '/usr/sbin/nutcracker' -c ",
            " -a 127.0.0.1 -s $(({port} + 10000))",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn a_load_through_proxies_is_repeated_by_a_command_for_each() {
        let target = |port| Target { port, database: 10, ..Target::default() };
        let work = Work::Request(Template::kv("set", 3, Some(1000)).unwrap());
        let plan = Plan { connections: 5, threads: 2, ..Plan::new("two", Target::default(), work) };
        let doors = [7001, 7002].map(|port| Door { target: target(port), process: 1 });
        let plan = plan_through(plan, doors.to_vec(), Vec::new());
        let command = plan.command.as_deref().unwrap();
        let (one, other) = command.split_once(" & ").unwrap();
        for (command, parts) in
            [(one, ["-p 7001", "--select-db 10", "-c 3"]), (other, ["-p 7002", "--select-db 10", "-c 2"])]
        {
            assert!(parts.iter().all(|part| command.contains(part)), "{command}");
        }
        assert_eq!((plan.target.port, plan.connections), (7001, 5));
    }
}
