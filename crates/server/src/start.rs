//! The story of one run of `tarn server`: read the configuration, take the
//! addresses, start the workers, wait for the end.

use crate::config::{Config, Startup};
use crate::listen::{Accepted, Listeners};
use crate::server::{Ending, Server};
use crate::{log, logger, worker};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

/// Runs `tarn server` with the arguments that follow it.
pub fn run(args: &[String]) -> ExitCode {
    match Config::from_args(args) {
        Ok(Startup::Help) => {
            println!("{}", HELP);
            ExitCode::SUCCESS
        }
        Ok(Startup::Version) => {
            println!("Tarn server v={} bits=64", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Startup::Serve { config, warnings }) => match serve(*config, &warnings) {
            Ok(status) => ExitCode::from(status),
            Err(error) => {
                log!(Warning, "{error}");
                logger::flush();
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

const HELP: &str = "\
Usage: tarn server [FILE] [--DIRECTIVE VALUE ...]

FILE has the syntax of redis.conf; `-` reads it from standard input. Every directive of redis.conf can
also be given on the command line, such as:

  --port 6379          port to listen on; 0 picks a free one and prints it
  --bind 127.0.0.1     addresses to listen on
  --edition memory     memory: all data in RAM
  --dir ./tarn-data    where files go
  --threads N          worker threads; 0 is one for each core
  --maxmemory 4gb      memory ceiling; 0 is none
  --requirepass S      password that clients must give

Examples: tarn server
          tarn server /etc/redis/redis.conf --port 7777";

fn serve(config: Config, warnings: &[String]) -> io::Result<u8> {
    let running_log = logger::start(&config)?;
    std::fs::create_dir_all(config.dir())?;
    let workers = worker_count(&config);
    let listeners = Listeners::bind(&config)?;
    let server = Arc::new(Server::new(config, workers));
    server.addresses.set(listeners.addresses()).expect("set once, here");
    announce(&server, &listeners, workers, warnings);
    let status = run_workers(&server, listeners, workers)?;
    log!(Warning, "Tarn is now ready to exit, bye bye...");
    drop(running_log);
    Ok(status)
}

fn worker_count(config: &Config) -> usize {
    match config.threads() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

fn announce(server: &Server, listeners: &Listeners, workers: usize, warnings: &[String]) {
    let version = env!("CARGO_PKG_VERSION");
    log!(Notice, "Tarn {version}, edition {}, pid {}", server.config.edition().word(), std::process::id());
    for address in listeners.addresses() {
        log!(Notice, "Listening on {address}");
    }
    if let Some(path) = listeners.unix_path() {
        log!(Notice, "Listening on {}", path.display());
    }
    log!(Notice, "{workers} worker threads, files in {}", server.dir().display());
    for warning in warnings {
        log!(Warning, "{warning}");
    }
}

type Channels = (Vec<UnboundedSender<Accepted>>, Vec<UnboundedReceiver<Accepted>>);

fn run_workers(server: &Arc<Server>, listeners: Listeners, workers: usize) -> io::Result<u8> {
    let (senders, receivers): Channels = (0..workers).map(|_| unbounded_channel()).unzip();
    let mut threads = Vec::new();
    for (index, receiver) in receivers.into_iter().enumerate() {
        let server = server.clone();
        let work = move || worker::run(server, index, receiver);
        threads.push(std::thread::Builder::new().name(format!("worker-{index}")).spawn(work)?);
    }
    let status = accept_until_end(server, listeners, &senders);
    for thread in threads {
        thread.join().expect("a worker that panics ends the process");
    }
    status
}

/// Accepts and waits for signals on the main thread, which does nothing else.
fn accept_until_end(server: &Arc<Server>, listeners: Listeners, workers: &[UnboundedSender<Accepted>]) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        listeners.spawn(server, workers)?;
        log!(Notice, "Ready to accept connections");
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut ending = server.ending();
        let status = tokio::select! {
            _ = terminate.recv() => { log!(Warning, "Received SIGTERM, scheduling shutdown..."); 0 }
            _ = interrupt.recv() => { log!(Warning, "Received SIGINT, scheduling shutdown..."); 0 }
            ended = ending.wait_for(|ending| *ending != Ending::NotYet) => match ended.as_deref() {
                Ok(Ending::Stop { status }) => *status,
                _ => 0,
            },
        };
        server.stop(status);
        Ok(status)
    })
}
