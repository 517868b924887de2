//! `tarn`: picks a role and hands over to its crate.

use std::process::ExitCode;
use sys::memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const USAGE: &str = "\
Tarn, a Redis-compatible database.

Usage: tarn server [FILE] [--DIRECTIVE VALUE ...]    run a server
       tarn config --store PLACE [OPTION ...]        run a config server of a cluster
       tarn cluster up|status|... [OPTION ...]       run a cluster for trials, and tend any cluster
       tarn proxy [FILE] [--DIRECTIVE VALUE ...]     put servers that share the slots behind one address
       tarn migrate --from URL --to URL [OPTION ...] take over all data of running servers, while clients go on
       tarn import FROM --dir DIR [...]              take over what a Redis has left in files
       tarn export --dir DIR --to FILE.rdb [...]     write all data to a file that a Redis reads
       tarn check DIR|FILE [...]                     look at a log, or at the files of a Redis, and change nothing
       tarn restore DIR --to TIME|LSN --into NEWDIR  copy the log in a directory as it was then
       tarn bench ycsb|kv|ttl|eval [OPTION ...]      measure any server that speaks the Redis protocol
       tarn whitepaper [OPTIONS]                     measure Tarn and its peers, and write a report
       tarn ROLE --help                              what a role does, and its options
       tarn --version                                the version; `tarn ROLE --version` says the same

Ends with 0 if all is well, else with 1.";

type Role = fn(&[String]) -> ExitCode;

const ROLES: &[(&str, Role)] = &[
    ("server", server::run),
    ("config", cluster::roles::config),
    ("cluster", cluster::roles::cluster),
    ("proxy", proxy::run),
    ("migrate", migrate::run),
    ("import", server::roles::import),
    ("export", server::roles::export),
    ("check", server::roles::check),
    ("restore", server::roles::restore),
    ("bench", bench::cli::main),
    ("whitepaper", bench::whitepaper::main),
];

fn main() -> ExitCode {
    sys::pages::begin_with_small_pages();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((first, rest)) = args.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let role = ROLES.iter().find(|(name, _)| name == first).map(|(_, role)| role);
    match (first.as_str(), role) {
        ("-h" | "--help", _) => println!("{USAGE}"),
        ("-V" | "-v" | "--version", _) => show_version(),
        // A server says it as Redis does.
        (name, Some(_))
            if name != "server" && matches!(rest, [only] if only == "--version" || only == "-V") =>
        {
            show_version();
        }
        (_, Some(role)) => return role(rest),
        (other, None) => {
            eprintln!("tarn: '{other}' is not a role.\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn show_version() {
    println!("tarn {}", env!("CARGO_PKG_VERSION"));
}
