//! The story of one run of `tarn proxy`.

use crate::bandwidth::{self, Bandwidth};
use crate::check;
use crate::heard::{self, Changes, Hearing};
use crate::limits::DATABASES_MAX;
use crate::links::own::OwnConnections;
use crate::replicas::{self, Replicas};
use crate::serve::Proxy;
use crate::shards::{self, Shards};
use crate::takeover;
use crate::upstream::{Named, Node, Upstream};
use crate::users::Users;
use crate::waits::Waits;
use crate::ways;
use config::{Config, LogLevel, Startup, UsersFrom};
use engine::Attention;
use net::listen::Listeners;
use net::{descriptors, encryption, listen};
use parking_lot::Mutex;
use server::server::{Ending, Server};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use telemetry::{log, logger};
use tokio::task::LocalSet;

/// What every proxy's host is: it has no data.
const HOST: &[u8] =
    b"edition memory\nsave \"\"\nappendonly no\ncluster-enabled no\nshard-name \"\"\nreplicaof no one\n";

const HELP: &str = "\
Usage: tarn proxy [FILE] --proxy-shards HOST:PORT,... [--DIRECTIVE VALUE ...]

Puts servers of which each has a part of the slots behind one address. FILE has the syntax of redis.conf, and every directive of it that is
about clients, users, TLS and the log counts here, too; docs/proxy.md says what is passed on and what is refused.

  --proxy-shards LIST              the servers, as HOST:PORT with commas between them: each has as many slots as the others,
                                   or those that stand in front of it, as in 0-8191=a:6379,8192-16383=b:6379
  --proxy-cluster LIST             nodes of a Redis Cluster, or of Tarn's, as HOST:PORT with commas between them, instead:
                                   it is asked who has which slots
  --proxy-config-servers LIST      config servers of a Tarn cluster, as HOST:PORT with commas between them, instead, or as well:
                                   they name its nodes where none that is known answers; they hear --masterauth
  --proxy-shard-timeout 10         seconds after which a server that owes replies and sends nothing counts as lost; 0: never
  --proxy-read-from master         who answers reads: master, replica (one that has what the client has written), or any
  --tls-cluster yes                TLS to the servers, with --tls-ca-cert-file, and --tls-cert-file and --tls-key-file for what is shown to them
  --masteruser NAME                as whom the proxy speaks to them
  --masterauth PASSWORD            with which password
  --proxy-cache-bytes 0            memory for replies to reads of hot keys; 0: none is kept
  --proxy-bandwidth-limit 0        bytes a second that are sent to clients and taken from them, together; 0: as many as come
  --proxy-takeover PATH            socket file by which a new process of this proxy takes over from the one that runs
  --proxy-drain-timeout 3600       seconds for which the old one serves the connections that it has then; 0: until they end
  --databases 16                   as many as each of them has at least
  --port 6379                      port to listen on; 0 picks a free one and prints it
  --bind 127.0.0.1 -::1            addresses to listen on; those with a dash may be missing
  --requirepass PASSWORD           that clients must give
  --proxy-users file               who keeps its users: file (user, aclfile), or cluster: the store of the cluster whose config servers
                                   are named, for all of its proxies
  --threads 0                      worker threads; 0 is one for each core

      --check                      looks whether all servers and config servers are there, and prints what they are, instead
  -h, --help                       this text
  -v, --version                    the version

Example: tarn proxy --port 6400 --proxy-shards 10.0.0.1:6379,10.0.0.2:6379";

/// Runs `tarn proxy` with the arguments that follow it.
pub fn run(args: &[String]) -> ExitCode {
    sys::memory::release_only_when_told();
    server::commands::install();
    let (checks, args): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| *arg == "--check");
    let args: Vec<String> = args.into_iter().cloned().collect();
    match Config::from_args_and(&args, HOST) {
        Ok(Startup::Serve { config, .. }) if !checks.is_empty() => match check(*config) {
            Ok(true) => {}
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        },
        Ok(Startup::Help) => println!("{HELP}"),
        Ok(Startup::Version) => println!("tarn {}", env!("CARGO_PKG_VERSION")),
        Ok(Startup::Serve { config, warnings }) => match serve(*config, &warnings) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        },
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Looks whether what a proxy would be in front of is there. False: it is not.
fn check(config: Config) -> io::Result<bool> {
    server::start::check_names(&config).map_err(io::Error::other)?;
    let host = server::assembly::new(config, 1);
    // What the log would say is printed. The directives have set the level by now.
    logger::set_level(LogLevel::Nothing);
    encryption::begin(&host.net.tls, &host.engine.config)?;
    // Where these directives would have a proxy listen a server may be, as long as there is none.
    if let Some((node, why)) = names_itself(&host.engine.config)
        && check::is_proxy(&host, &node)
    {
        return Err(io::Error::other(why));
    }
    let upstream = upstream(&host).map_err(io::Error::other)?;
    Ok(check::run(&host, &upstream))
}

fn serve(config: Config, warnings: &[String]) -> io::Result<u8> {
    server::start::check_names(&config).map_err(io::Error::other)?;
    if config.databases() > DATABASES_MAX {
        return Err(io::Error::other(format!("a proxy serves {DATABASES_MAX} `databases` at most")));
    }
    let has_logfile = !config.logfile().is_empty();
    let _running_log = logger::start(&config)?;
    let served = serve_logged(config, warnings);
    // Standard error is told by whoever began this.
    if let Err(error) = served.as_ref()
        && has_logfile
    {
        log!(Warning, "{error}");
    }
    served
}

fn serve_logged(config: Config, warnings: &[String]) -> io::Result<u8> {
    let workers = server::start::worker_count(&config);
    descriptors::make_room_for_clients(&config)?;
    let host = server::assembly::new(config, workers + 1);
    // What is another process' is nobody's here.
    host.net.clients.begin_anywhere();
    // It queues transactions, and neither has their keys nor replicas.
    host.engine.ignore(Attention::MEMORY_CEILING | Attention::NO_REPLICAS);
    let config = &host.engine.config;
    encryption::begin(&host.net.tls, config)?;
    if let Some((_, why)) = names_itself(config) {
        return Err(io::Error::other(why));
    }
    let upstream = upstream(&host).map_err(io::Error::other)?;
    let users = Users::begin(&host, &upstream.cluster).map_err(io::Error::other)?;
    let mut taken = takeover::take(config)?;
    host.net.doors.set_shared(!taken.sockets.is_empty());
    host.is_main.store(taken.sockets.is_empty(), Ordering::Release);
    let listeners = Listeners::bind_or_take(config, std::mem::take(&mut taken.sockets))?;
    log!(
        Notice,
        "Tarn {}, a proxy of {} servers, pid {}",
        env!("CARGO_PKG_VERSION"),
        upstream.routes().masters.len(),
        std::process::id()
    );
    listeners.addresses().iter().for_each(|(_, address)| log!(Notice, "Listening on {address}"));
    warnings.iter().for_each(|warning| log!(Warning, "{warning}"));
    let proxy = Arc::new(Proxy {
        host: host.clone(),
        upstream,
        hearing: Hearing::default(),
        changes: Changes::default(),
        cache: Arc::default(),
        replicas: Replicas::default(),
        waits: Waits::default(),
        own_connections: OwnConnections::default(),
        shards: Shards::default(),
        bandwidth: Bandwidth::default(),
        is_draining: AtomicBool::new(false),
        users,
        taken: Mutex::new(taken),
        idle_workers: AtomicUsize::new(workers + 1),
        ways: ways::table(),
    });
    let told = Arc::downgrade(&proxy);
    let section = move || told.upgrade().map_or_else(Vec::new, |proxy| shards::section(&proxy));
    host.begin_section("Shards", Box::new(section));
    listen(&proxy)?;
    server::start::run_workers(&host, &proxy, listeners, workers + 1)
}

/// Begins the thread of all that listens to servers, or asks them, for no single client.
fn listen(proxy: &Arc<Proxy>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let proxy = proxy.clone();
    let listen = async {
        tokio::join!(
            heard::follow(proxy.clone()),
            replicas::follow(proxy.clone()),
            bandwidth::follow(proxy.clone()),
            leave_at_end(proxy)
        )
    };
    let run = move || LocalSet::new().block_on(&runtime, listen);
    std::thread::Builder::new().name("hear".to_owned()).spawn(run).map(drop)
}

/// Who comes while the process ends is refused at once, and does not wait in a queue at which nobody looks. A server's port keeps others from its files until its
/// very end; a proxy has none but a `unixsocket`, which it removes last.
async fn leave_at_end(proxy: Arc<Proxy>) {
    let host = &proxy.host;
    let _ = host.ending().wait_for(|ending| *ending != Ending::NotYet).await;
    if host.engine.config.unixsocket().is_empty() {
        host.net.doors.leave();
    }
}

/// What of that which is named to be behind it is where it listens itself, and a sentence that says so: requests would go round without end.
fn names_itself(config: &Config) -> Option<(Node, String)> {
    let named = [
        ("proxy-shards", config.proxy_shards()),
        ("proxy-cluster", config.proxy_cluster()),
        ("proxy-config-servers", config.proxy_config_servers()),
    ];
    named.into_iter().find_map(|(directive, places)| {
        let places = String::from_utf8_lossy(&places).into_owned();
        // Slots may stand in front of a server.
        let nodes = places.split(',').filter_map(|word| Node::parse(word.rsplit('=').next()?.trim()).ok());
        let node = nodes.into_iter().find(|node| listen::leads_here(config, &node.host, node.port))?;
        let why = format!("`{directive}` names {node}, where this proxy itself listens (`bind`, `port`)");
        Some((node, why))
    })
}

/// What the directives say is behind it.
fn upstream(host: &Arc<Server>) -> Result<Arc<Upstream>, String> {
    let config = &host.engine.config;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (shards, nodes) = (text(config.proxy_shards()), text(config.proxy_cluster()));
    let config_servers = text(config.proxy_config_servers());
    match (shards.is_empty(), nodes.is_empty(), config_servers.is_empty()) {
        (true, true, true) => Err("a proxy wants `proxy-shards`, `proxy-cluster` or `proxy-config-servers`: `host:port` of servers behind it, or of its cluster's config servers, with commas between them".to_owned()),
        (false, false, _) => Err("`proxy-shards` and `proxy-cluster` are both set: a proxy is in front of one or the other".to_owned()),
        (false, true, false) if config.proxy_users() == UsersFrom::File => Err("`proxy-config-servers` goes with `proxy-users cluster` beside `proxy-shards`, whose slots nobody else is asked for".to_owned()),
        (false, true, _) => {
            Upstream::fixed(&shards).map(Arc::new).map_err(|error| format!("`proxy-shards`: {error}"))
        }
        (true, has_no_nodes, _) => {
            let named = Named {
                nodes: Node::parse_all(&nodes).map_err(|error| format!("`proxy-cluster`: {error}"))?,
                config_servers: Node::parse_all(&config_servers)
                    .map_err(|error| format!("`proxy-config-servers`: {error}"))?,
            };
            let directive = if has_no_nodes { "proxy-config-servers" } else { "proxy-cluster" };
            Upstream::cluster(named, host).map_err(|error| format!("`{directive}`: {error}"))
        }
    }
}
