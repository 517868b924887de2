//! The cases of `tests/cases/*.resp`, byte for byte.
//!
//! `TARN_RECORD=1` writes the files anew with the replies of `redis-server`.

use crate::{root, row_names, tarn};
use std::path::PathBuf;
use testkit::cases::{self, Case, Line};
use testkit::{Program, Server};

/// The files of cases.
fn files() -> Vec<PathBuf> {
    let dir = root().join("tests/cases");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "resp"));
    files.sort();
    files
}

/// All cases of all files.
pub fn all() -> Vec<Case> {
    let parsed = files().into_iter().flat_map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        cases::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    parsed.collect()
}

/// Whether Tarn has the subcommand that a case is about and every command that it uses, but for those that it
/// expects to be unknown.
fn has_all_commands(case: &Case, names: &[String]) -> bool {
    if case.row.contains('|') && !names.contains(&case.row) {
        return false;
    }
    case.lines.iter().enumerate().all(|(at, line)| {
        let Line::Request(words, _) = line else { return true };
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        let is_unknown = matches!(case.lines.get(at + 1), Some(Line::Reply(reply)) if reply.starts_with(b"-ERR unknown command"));
        is_unknown || names.contains(&name)
    })
}

fn failures(server: &Server, cases: &[Case]) -> Vec<String> {
    cases.iter().filter_map(|case| cases::play(case, server).err()).collect()
}

#[test]
fn redis_answers_as_the_cases_say() {
    let redis = Server::start(Program::Redis, &[]).unwrap();
    if std::env::var_os("TARN_RECORD").is_some() {
        for path in files() {
            let text = std::fs::read_to_string(&path).unwrap();
            let recorded = cases::record(&text, &redis);
            std::fs::write(&path, recorded.unwrap_or_else(|error| panic!("{error}"))).unwrap();
        }
    }
    let cases: Vec<Case> = all().into_iter().filter(|case| !case.is_newer).collect();
    let failures = failures(&redis, &cases);
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn every_command_has_a_case() {
    let cases = all();
    let without: Vec<String> =
        row_names().into_iter().filter(|name| cases.iter().all(|case| case.row != *name)).collect();
    assert!(without.is_empty(), "no case in tests/cases for: {}", without.join(", "));
}

#[test]
fn tarn_answers_as_the_cases_say() {
    let tarn = Server::start(tarn(), &["--edition", "memory"]).unwrap();
    let names = row_names();
    let cases: Vec<Case> = all().into_iter().filter(|case| has_all_commands(case, &names)).collect();
    let failures = failures(&tarn, &cases);
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}
