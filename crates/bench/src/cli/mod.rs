//! `tarn bench`: the command line in front of the generator.
//!
//! Each subcommand turns its words into plans; what follows is the same for all: run one after the other, show
//! progress on standard error and results on standard output, keep what was measured whatever happens.

mod arguments;
mod kv;
mod options;
mod print;
mod progress;
mod series;
mod ycsb;

use crate::plan::Plan;
use crate::results::Measurement;
use crate::{Failure, engine};
use options::{Output, SHARED_USAGE};
use print::Printer;
use progress::Console;
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

const USAGE: &str = "\
Usage: tarn bench ycsb load|run [OPTION ...]    YCSB's workloads
       tarn bench kv [OPTION ...]               single commands, as redis-benchmark and memtier_benchmark
       tarn bench ttl [OPTION ...]              keys that expire
       tarn bench eval [OPTION ...]             Lua scripts
       tarn bench ycsb|kv|ttl|eval --help       their options";

/// Reads a subcommand's words into plans and how to show them.
type Reader = fn(&[String]) -> Result<(Vec<Plan>, Output), Failure>;

/// Runs `tarn bench` with the words behind `bench`.
pub fn main(words: &[String]) -> ExitCode {
    let (read, usage): (Reader, &str) = match words.first().map(String::as_str) {
        Some("ycsb") => (ycsb::plans, ycsb::USAGE),
        Some("kv") => (kv::plans, kv::USAGE),
        Some("ttl") => (series::ttl_plans, series::TTL_USAGE),
        Some("eval") => (series::eval_plans, series::EVAL_USAGE),
        Some("--help" | "help") => return show(USAGE),
        Some(other) => return refuse(&format!("'{other}' is not a load.\n\n{USAGE}")),
        None => return refuse(&format!("a load is needed.\n\n{USAGE}")),
    };
    if words[1..].iter().any(|word| word == "--help") {
        return show(&format!("{usage}\n{SHARED_USAGE}"));
    }
    let (plans, output) = match read(&words[1..]) {
        Ok(read) => read,
        Err(failure) => return refuse(&failure.0),
    };
    match perform(&plans, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => refuse(&failure.0),
    }
}

fn show(text: &str) -> ExitCode {
    // A closed pipe has read enough.
    let _ = writeln!(io::stdout(), "{text}");
    ExitCode::SUCCESS
}

fn refuse(sentence: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "tarn bench: {sentence}");
    ExitCode::FAILURE
}

/// Runs all plans; the first that fails ends it, with what was measured before kept.
fn perform(plans: &[Plan], output: &Output) -> Result<(), Failure> {
    let mut json = output.json.as_deref().map(JsonFile::create).transpose()?;
    let mut printer = Printer::new(output.form);
    let mut measurements: Vec<Measurement> = Vec::new();
    let mut console = Console::new()?;
    for plan in plans {
        console.begin(plan);
        let measured = engine::run(plan, &mut console);
        console.end();
        let measurement = measured?;
        printer.print(&measurement);
        let ending = ending(&measurement);
        measurements.push(measurement);
        if let Some(json) = &mut json {
            json.write(&measurements)?;
        }
        ending?;
    }
    Ok(())
}

/// Why a measurement is not what was asked for, if so.
fn ending(measurement: &Measurement) -> Result<(), Failure> {
    if let Some(reason) = &measurement.unfinished {
        return Err(Failure(format!(
            "{reason}, after {:.1} s and {} operations",
            measurement.seconds, measurement.operations
        )));
    }
    match measurement.errors.first() {
        Some(error) if measurement.operations == 0 => {
            Err(Failure(format!("no operation succeeded: {} ({} times)", error.text, error.count)))
        }
        _ => Ok(()),
    }
}

/// The file that gets all measurements, anew after each.
struct JsonFile {
    path: String,
    file: Option<File>,
}

impl JsonFile {
    fn create(path: &str) -> Result<JsonFile, Failure> {
        let failed = |error| Failure(format!("cannot write {path}: {error}"));
        let file = if path == "-" { None } else { Some(File::create(path).map_err(failed)?) };
        Ok(JsonFile { path: path.to_owned(), file })
    }

    fn write(&mut self, measurements: &[Measurement]) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure(format!("cannot write {}: {error}", self.path));
        let mut text = serde_json::to_vec_pretty(measurements).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let Some(file) = &mut self.file else { return io::stdout().write_all(&text).map_err(failed) };
        // The text before it is the beginning of this one but for its last line, so this is never shorter.
        io::Seek::rewind(file)
            .and_then(|()| file.write_all(&text))
            .and_then(|()| file.flush())
            .map_err(failed)
    }
}
