//! `tarn`: picks a role and hands over to its crate.

use std::process::ExitCode;
use sys::memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const USAGE: &str = "\
Tarn, a Redis-compatible database.

Usage: tarn server [FILE] [--DIRECTIVE VALUE ...]    run a server
       tarn server --help                            its options
       tarn import FROM --dir DIR                    take over what a Redis has left in files
       tarn export --dir DIR --to FILE.rdb           write all data to a file that a Redis reads
       tarn check DIR                                look at the log in a directory
       tarn restore DIR --to TIME|LSN --into NEWDIR  copy the log in a directory as it was then
       tarn import|export|check|restore --help       their options
       tarn bench ycsb|kv|ttl|eval [OPTION ...]      measure any server that speaks the Redis protocol
       tarn whitepaper [OPTIONS]                     measure Tarn and its peers, and write a report
       tarn --version";

fn main() -> ExitCode {
    sys::pages::begin_with_small_pages();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("server") => server::run(&args[1..]),
        Some("import") => server::roles::import(&args[1..]),
        Some("export") => server::roles::export(&args[1..]),
        Some("check") => server::roles::check(&args[1..]),
        Some("restore") => server::roles::restore(&args[1..]),
        Some("bench") => bench::cli::main(&args[1..]),
        Some("whitepaper") => bench::whitepaper::main(&args[1..]),
        Some("-V" | "-v" | "--version") => {
            println!("tarn {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("-h" | "--help") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("tarn: '{other}' is not a role.\n\n{USAGE}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}
