//! The story of one run of `tarn server`: read the configuration, take the
//! addresses, start the workers, wait for the end.

use crate::commands::shutdown;
use crate::departure::Wish;
use crate::names::Names;
use crate::server::{Ending, Scripting, Server};
use crate::{assembly, commands, durable, feeding, following, insync, joining, supervision};
use config::{Config, Edition, Startup, TABLE};
use engine::Attention;
use engine::{durability, snapshot};
use net::inboxes::Inboxes;
use net::listen::{Listeners, Speech};
use net::service::Service;
use net::worker::{self, Arrival};
use net::{accept, descriptors, encryption};
use script::limits::STACK_BYTES;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use sys::file::Fs;
use telemetry::{log, logger};
use tokio::runtime::{LocalOptions, LocalRuntime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Runs `tarn server` with the arguments that follow it.
pub fn run(args: &[String]) -> ExitCode {
    sys::memory::release_only_when_told();
    commands::install();
    match Config::from_args(args) {
        Ok(Startup::Help) => {
            println!("{}", HELP);
            ExitCode::SUCCESS
        }
        Ok(Startup::Version) => {
            println!("Tarn server v={} bits=64", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Startup::Serve { config, mut warnings }) => {
            let looked = look_for_proxies(&config).and_then(|more| check_names(&config).map(|()| more));
            match looked {
                Ok(more) => warnings.extend(more),
                Err(error) => {
                    eprintln!("{error}");
                    return ExitCode::FAILURE;
                }
            }
            match serve(*config, &warnings) {
                Ok(status) => ExitCode::from(status),
                // The log has said why.
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Directives that say what a proxy is: whoever gives one to a server takes it for one.
const WHAT_A_PROXY_IS: [&str; 5] =
    ["proxy-cluster", "proxy-config-servers", "proxy-shards", "proxy-takeover", "proxy-users"];

/// What is said of a proxy to a server: the warnings about what has no effect.
///
/// # Errors
/// One sentence for the operator: a proxy is meant.
fn look_for_proxies(config: &Config) -> Result<Vec<String>, String> {
    let names = TABLE.iter().map(|row| row.name).filter(|name| name.starts_with("proxy-"));
    let defaults = Config::defaults();
    let said = names.filter(|name| config.get(&[name]) != defaults.get(&[name]));
    let (wrong, idle): (Vec<&str>, Vec<&str>) = said.partition(|name| WHAT_A_PROXY_IS.contains(name));
    match wrong.first() {
        Some(name) => Err(format!("`{name}` is a directive of `tarn proxy`: a server has its keys itself")),
        None => Ok(idle
            .iter()
            .map(|name| format!("`{name}` has no effect: it is a directive of `tarn proxy`"))
            .collect()),
    }
}

/// Whether the lines of `rename-command` can be followed, and others can find this server if it is a node.
///
/// # Errors
/// What is wrong.
pub fn check_names(config: &Config) -> Result<(), String> {
    let names = Names::of(&config.renamed_commands())?;
    let has_nodes = config.cluster_enabled() || !config.shard_name().is_empty();
    if config.cluster_enabled() && !config.cluster_announce_ip().iter().all(u8::is_ascii_graphic) {
        return Err("`cluster-announce-ip`: an address is one word".to_owned());
    }
    match names.unknown_to_nodes().filter(|_| has_nodes) {
        None => Ok(()),
        Some(name) => Err(format!(
            "`rename-command {name}`: a node of a cluster or a shard is spoken to by others with this command, and has to keep its name"
        )),
    }
}

const HELP: &str = "\
Usage: tarn server [FILE] [--DIRECTIVE VALUE ...]

FILE has the syntax of redis.conf; `-` in its place, or as the last word, reads it from standard input.
Every directive of redis.conf can also be given on the command line, where it counts more than in FILE. The most used ones, with
the values that they have where nothing else is said:

  --edition durable                durable: a reply to a write means it is on disk; memory: all data in RAM only;
                                   capacity: as durable, and data beyond `maxmemory` lies on disk
  --dir ./tarn-data                where files go; made if it is not there
  --port 6379                      port to listen on; 0 picks a free one and prints it
  --bind 127.0.0.1 -::1            addresses to listen on; those with a dash may be missing
  --unixsocket PATH                Unix socket to listen on, too; with --port 0 instead
  --tls-port 0                     port for TLS, with --tls-cert-file and --tls-key-file
  --requirepass PASSWORD           that clients must give
  --threads 0                      worker threads; 0 is one for each core
  --maxmemory 0                    memory ceiling, such as 4gb; 0 is none
  --maxmemory-policy noeviction    what goes at the ceiling
  --save SECONDS CHANGES           edition memory: when to write an RDB file
  --appendonly no                  edition memory: yes keeps a log, synced as --appendfsync everysec says
  --log-retention no               how much of the log stays for `tarn restore`, such as 12h or 20gb
  --logfile PATH                   where to write what goes to standard output else
  --loglevel notice                debug, verbose, notice or warning

  -h, --help                       this text
  -v, --version                    the version

Examples: tarn server
          tarn server --edition memory --port 7777 --maxmemory 4gb --maxmemory-policy allkeys-lru
          tarn server redis.conf --dir ./data --logfile ''";

fn serve(config: Config, warnings: &[String]) -> io::Result<u8> {
    let has_logfile = !config.logfile().is_empty();
    let running_log = logger::start(&config).inspect_err(|error| eprintln!("{error}"))?;
    let result = serve_logged(config, warnings);
    match &result {
        Ok(_) => log!(Warning, "Tarn is now ready to exit, bye bye..."),
        Err(error) => {
            log!(Warning, "{error}");
            if has_logfile {
                eprintln!("{error}");
            }
        }
    }
    drop(running_log);
    result
}

/// Where memory is what there is too little of, free pieces of it go back to the system, however small; huge pages are made of
/// whole ones.
fn keep_memory_dense() {
    sys::pages::without_huge_pages();
    sys::memory::release_small_pieces();
}

fn serve_logged(config: Config, warnings: &[String]) -> io::Result<u8> {
    let made = MadeDirectories::for_files(&config.dir())?;
    joining::look_at_directory(&config)?;
    if config.edition() == Edition::Capacity {
        keep_memory_dense();
    }
    // Before anything is said of being there, since who reads it may end the server at once.
    let front = Front::new()?;
    let workers = worker_count(&config);
    descriptors::make_room_for_clients(&config)?;
    let listeners = Listeners::bind(&config)?;
    let _socket_file = listeners.unix_path().cloned().map(RemovedAtEnd);
    let _pidfile = Pidfile(Pidfile::path(&config));
    write_pidfile(&config);
    // One more than are announced: the spare one (see `placement`).
    let server = assembly::new(config, workers + 1);
    server.engine.residency.set_handles(descriptors::of_store(&server.engine.config)?);
    encryption::begin(&server.net.tls, &server.engine.config)?;
    announce(&server, &listeners, workers, warnings);
    // A server whose score cannot be set still serves, and has said so.
    let _ = server.follow_oom_score();
    acl::load_at_start(&server.acl, &server.engine.config)?;
    made.keep();
    joining::keep_identity(&server.engine.config)?;
    // Clients are told meanwhile that the data is being loaded.
    server.engine.set_attention(Attention::LOADING, true);
    // A replica tells its master at once which port it has.
    listeners.open(&server.net.doors)?;
    let loading = load(&server, &listeners, workers)?;
    let status = run_behind(front, &server, &server, listeners, workers + 1);
    loading.join().expect("a thread that panics ends the process")?;
    status
}

/// The directories that were not there, innermost first. A start that is refused before it looks for data leaves none of them.
struct MadeDirectories(Vec<PathBuf>);

impl MadeDirectories {
    /// Makes the directory for the server's files.
    fn for_files(dir: &Path) -> io::Result<MadeDirectories> {
        let is_missing = |dir: &&Path| Fs::Real.kind(dir).is_ok_and(|kind| kind.is_none());
        let missing = dir.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        Fs::Real.create_dir_all(dir).map_err(|error| {
            io::Error::new(error.kind(), format!("Can't create the directory {}: {error}", dir.display()))
        })?;
        Ok(MadeDirectories(missing))
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        for dir in &self.0 {
            // One that somebody has put something into meanwhile stays.
            let _ = Fs::Real.remove_dir(dir);
        }
    }
}

/// Becomes a node of the cluster or of the shard that the directives name, or follows the master that they name.
fn take_part(server: &Arc<Server>) -> io::Result<()> {
    if server.clustered.is_on() {
        return joining::begin(server);
    }
    if !insync::begin(server)? {
        following::begin(server);
    }
    Ok(())
}

/// Loads the data in a thread of its own; without it there is nothing to serve, and the server ends.
fn load(
    server: &Arc<Server>,
    listeners: &Listeners,
    workers: usize,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (server, ready) = (server.clone(), ready_lines(listeners));
    std::thread::Builder::new().name("load".to_owned()).stack_size(STACK_BYTES).spawn(move || {
        snapshot::remove_unfinished(&server.engine);
        let loaded = durable::open(&server, &Fs::Real, workers);
        if loaded.is_ok() {
            feeding::remove_left(&server.engine.dir());
            feeding::unfinished::begin(&server);
            following::taken::begin(&server);
            if let Err(error) = take_part(&server) {
                log!(Warning, "{error}");
                server.stop(1);
                return Err(error);
            }
            server.engine.set_attention(Attention::LOADING, false);
            ready.iter().for_each(|line| log!(Notice, "{line}"));
            supervision::notify(&server, supervision::READY);
        } else {
            server.stop(1);
        }
        loaded
    })
}

/// What says that the server is ready: connections wait in the sockets' queues.
fn ready_lines(listeners: &Listeners) -> Vec<&'static str> {
    let addresses = listeners.addresses();
    let has = |speech| addresses.iter().any(|(spoken, _)| *spoken == speech);
    let tcp = has(Speech::Plain).then_some("Ready to accept connections tcp");
    let tls = has(Speech::Tls).then_some("Ready to accept connections tls");
    let unix = listeners.unix_path().map(|_| "Ready to accept connections unix");
    tcp.into_iter().chain(tls).chain(unix).collect()
}

/// A file that is of use only while the server runs.
struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        // Nobody is left to whom a failure would matter.
        let _ = Fs::Real.remove(&self.0);
    }
}

/// A file with the process id, which is removed in the end unless another process has written its own.
struct Pidfile(PathBuf);

impl Pidfile {
    fn path(config: &Config) -> PathBuf {
        PathBuf::from(OsString::from_vec(config.pidfile()))
    }

    fn text() -> Vec<u8> {
        format!("{}\n", std::process::id()).into_bytes()
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        if Fs::Real.read(&self.0, 64).is_ok_and(|text| text == Pidfile::text()) {
            // Nobody is left to whom a failure would matter.
            let _ = Fs::Real.remove(&self.0);
        }
    }
}

/// Writes the process id where `pidfile` says; a server that cannot still serves.
pub fn write_pidfile(config: &Config) {
    let path = Pidfile::path(config);
    if !path.as_os_str().is_empty()
        && let Err(error) = Fs::Real.write(&path, &Pidfile::text())
    {
        log!(Warning, "Can't write the pidfile {}: {error}", path.display());
    }
}

/// How many workers `threads` asks for.
pub fn worker_count(config: &Config) -> usize {
    match config.threads() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

fn announce(server: &Server, listeners: &Listeners, workers: usize, warnings: &[String]) {
    let version = env!("CARGO_PKG_VERSION");
    log!(
        Notice,
        "Tarn {version}, edition {}, pid {}",
        server.engine.config.edition().word(),
        std::process::id()
    );
    for (speech, address) in listeners.addresses() {
        match speech {
            Speech::Plain => log!(Notice, "Listening on {address}"),
            Speech::Tls => log!(Notice, "Listening on {address} (TLS)"),
        }
    }
    if let Some(path) = listeners.unix_path() {
        log!(Notice, "Listening on {}", path.display());
    }
    log!(Notice, "{workers} worker threads, files in {}", server.engine.dir().display());
    for warning in warnings {
        log!(Warning, "{warning}");
    }
}

/// Dropped by every worker at its end.
type Alive = Sender<std::convert::Infallible>;

/// Serves until a signal or SHUTDOWN ends the server, without data of its own; returns the exit status. What is served is the server itself,
/// or what uses it: [`Service::net`] is the server's. Its TLS has begun.
///
/// # Errors
/// If users cannot be loaded, threads cannot be started or the listening sockets cannot be watched.
pub fn run_workers<S: Service>(
    server: &Arc<Server>,
    service: &Arc<S>,
    listeners: Listeners,
    workers: usize,
) -> io::Result<u8> {
    let front = Front::new()?;
    let _socket_file = listeners.unix_path().cloned().map(RemovedAtEnd);
    acl::load_at_start(&server.acl, &server.engine.config)?;
    let _pidfile = Pidfile(Pidfile::path(&server.engine.config));
    // Who takes over from another process writes it when that one has left.
    if server.is_main.load(Ordering::Acquire) {
        write_pidfile(&server.engine.config);
    }
    listeners.open(&server.net.doors)?;
    ready_lines(&listeners).iter().for_each(|line| log!(Notice, "{line}"));
    supervision::notify(server, supervision::READY);
    run_behind(front, server, service, listeners, workers)
}

fn run_behind<S: Service>(
    front: Front,
    server: &Arc<Server>,
    service: &Arc<S>,
    listeners: Listeners,
    workers: usize,
) -> io::Result<u8> {
    let (inboxes, arrivals) = Inboxes::new(workers);
    let (alive, all_gone): (Alive, _) = channel(1);
    let mut threads = Vec::new();
    for (index, arrivals) in arrivals.into_iter().enumerate() {
        let (server, service) = (server.clone(), service.clone());
        let (inboxes, alive) = (inboxes.clone(), alive.clone());
        let work = move || {
            if let Err(error) = worker::run(service, index, inboxes, arrivals) {
                log!(Warning, "Can't start a worker: {error}");
                server.stop(1);
            }
            drop(alive);
        };
        let thread = std::thread::Builder::new().name(format!("worker-{index}")).stack_size(STACK_BYTES);
        let thread = thread.spawn(work);
        threads.push(thread.map_err(|error| io::Error::other(format!("Can't start a worker: {error}")))?);
    }
    drop(alive);
    let status = front.accept_until_end((server, service), (listeners, inboxes), all_gone);
    // Whatever ended the accepting ends the workers.
    server.stop(1);
    for thread in threads {
        thread.join().expect("a worker that panics ends the process");
    }
    // SHUTDOWN has saved before the end began; after a signal nobody has.
    let saved = durability::close(&server.engine).and(snapshot::save_at_end(&server.engine));
    status.and_then(|status| saved.map(|()| status))
}

/// What the main thread does: it accepts and waits for signals, and nothing else.
struct Front {
    runtime: LocalRuntime,
    signals: Signals,
}

impl Front {
    /// From now on signals that come are kept until [`Front::accept_until_end`] looks.
    fn new() -> io::Result<Front> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        let within = runtime.enter();
        let signals = Signals::catch()?;
        drop(within);
        Ok(Front { runtime, signals })
    }

    fn accept_until_end<S: Service>(
        self,
        (server, service): (&Arc<Server>, &Arc<S>),
        (listeners, inboxes): (Listeners, Inboxes<Arrival<S>>),
        mut all_gone: Receiver<std::convert::Infallible>,
    ) -> io::Result<u8> {
        let Front { runtime, mut signals } = self;
        runtime.block_on(async {
            accept::spawn(listeners, service, &inboxes)?;
            let mut ending = server.ending();
            let (status, scripts) = loop {
                tokio::select! {
                    name = signals.next() => {
                        if name == HANGUP {
                            encryption::read_again(&server.net.tls, &server.engine.config);
                            continue;
                        }
                        log!(Warning, "Received {name}, scheduling shutdown...");
                        let wish = shutdown::wish_of_signal(server, name == "SIGINT");
                        let number = shutdown::ask(server, wish);
                        if let Some(scripts) = depart(server, (number, wish), &mut signals).await {
                            break (0, scripts);
                        }
                    }
                    () = server.departure.wanted() => {
                        // The one that was wanted may be given up by now.
                        let Some((number, wish, _)) = server.departure.underway() else { continue };
                        if let Some(scripts) = depart(server, (Some(number), wish), &mut signals).await {
                            break (0, scripts);
                        }
                    }
                    ended = ending.wait_for(|ending| *ending != Ending::NotYet) => match ended.as_deref() {
                        Ok(Ending::Stop { status, scripts }) => break (*status, *scripts),
                        _ => break (0, Scripting::Awaited),
                    },
                }
            };
            supervision::notify(server, "STOPPING=1");
            server.stop_with(status, scripts);
            tokio::select! {
                _ = signals.meanwhile(all_gone.recv()) => Ok(status),
                () = script_outlasts(server, scripts) => leave_script_behind(server, status, scripts),
            }
        })
    }
}

/// Waits for replicas and saves what has to be saved, while clients are still served. None: the server stays.
async fn depart(
    server: &Arc<Server>,
    (number, wish): (Option<u64>, Wish),
    signals: &mut Signals,
) -> Option<Scripting> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let departing = {
        let server = server.clone();
        // Who asked waits for it.
        move || {
            let _ = tell.send(shutdown::depart(&server, number, wish));
        }
    };
    if std::thread::Builder::new().name("shutdown".to_owned()).spawn(departing).is_err() {
        return Some(Scripting::Awaited);
    }
    signals.meanwhile(told).await.unwrap_or(None)
}

/// How long a script that has written something may run on at the server's end: what watches over servers kills most of them after
/// ten seconds.
const SCRIPT_TIME: Duration = Duration::from_secs(6);

/// How often it is looked whether such a script still runs.
const SCRIPT_LOOK: Duration = Duration::from_millis(50);

/// Returns when there is still one that runs, although its time is over.
async fn script_outlasts(server: &Server, scripts: Scripting) {
    tokio::time::sleep(match scripts {
        Scripting::Awaited => SCRIPT_TIME,
        Scripting::LeftBehind => worker::DRAIN_TIME,
    })
    .await;
    while server.holders.scripts().is_empty() {
        tokio::time::sleep(SCRIPT_LOOK).await;
    }
}

/// Ends the process while a script runs. What it has written is in memory only, and its slots are locked: neither the log nor a
/// snapshot has a part of it, and none can be written that has all others.
fn leave_script_behind(server: &Server, status: u8, scripts: Scripting) -> ! {
    log!(Warning, "A script still runs; the server ends without it, and nothing that it has written is kept");
    let synced = durability::sync(&server.engine);
    let completed = durability::refuse_owed(&server.engine);
    for error in [&synced, &completed].into_iter().filter_map(|done| done.as_ref().err()) {
        log!(Warning, "{error}");
    }
    let loses_snapshot = scripts == Scripting::Awaited && snapshot::is_due_at_end(&server.engine);
    if loses_snapshot {
        log!(Warning, "The final RDB snapshot is not written: the script has keys that belong to it");
    }
    logger::flush();
    let is_lost = synced.is_err() || completed.is_err() || loses_snapshot;
    std::process::exit(if is_lost { 1 } else { i32::from(status) })
}

/// Files are read again when this comes. A terminal that goes away sends it as well, and does not end the server.
const HANGUP: &str = "SIGHUP";

/// The signals that the server listens to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for something at the server's end. SIGTERM changes nothing then: who sends it wants what is going on. SIGINT again ends the
    /// process at once.
    async fn meanwhile<T>(&mut self, awaited: impl Future<Output = T>) -> T {
        tokio::pin!(awaited);
        loop {
            tokio::select! {
                done = &mut awaited => return done,
                name = self.next() => {
                    if name == "SIGINT" {
                        log!(Warning, "You insist... exiting now.");
                        logger::flush();
                        std::process::exit(1);
                    }
                    if name != HANGUP {
                        log!(Warning, "Received {name} again; the shutdown goes on");
                    }
                }
            }
        }
    }

    /// Waits for one and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => HANGUP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::TABLE;

    #[test]
    fn the_help_names_directives_with_their_defaults() {
        let mut count = 0;
        for line in HELP.lines().filter_map(|line| line.strip_prefix("  --")) {
            let (option, _) = line.split_once("  ").expect("a column of explanations");
            let (name, value) = option.split_once(' ').expect("a value");
            let row = TABLE.iter().find(|row| row.is_named(name.as_bytes()));
            let row = row.unwrap_or_else(|| panic!("--{name} is no directive"));
            let expected = if value.starts_with(char::is_uppercase) { "" } else { value };
            assert_eq!(row.default, expected, "--{name}");
            count += 1;
        }
        assert!(count > 10, "{HELP}");
    }
}
