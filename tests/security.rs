//! `docs/security.md` says of everything that grows by a client's will what bounds it, and names a test: the tests are there, and no
//! row is without one.

use crate::{root, tarn};
use std::collections::BTreeSet;
use std::path::Path;
use testkit::Server;

/// The names of all functions below a folder.
pub fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            found.extend(names.map(str::to_owned));
        }
    }
}

/// The words in backquotes of a text that look like tests: three words or more.
fn tests_named(text: &str) -> Vec<&str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.matches('_').count() >= 2 && !word.contains(['/', '-']))
        .collect()
}

#[test]
fn every_bound_has_its_test() {
    let page = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let mut known = BTreeSet::new();
    functions(&root().join("crates"), &mut known);
    functions(&root().join("tests"), &mut known);
    for name in tests_named(&page) {
        assert!(known.contains(name), "there is no test {name}");
    }
    let rows: Vec<&str> =
        page.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---")).collect();
    assert!(rows.len() > 40);
    for row in rows.iter().filter(|row| !row.starts_with("| what grows")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 4, "{row}");
        assert_eq!(tests_named(cells[3]).len(), 1, "{row}");
    }
}

#[test]
fn strangers_do_not_fill_the_log() {
    let server = Server::start(tarn(), &["--edition", "memory", "--requirepass", "secret"]).unwrap();
    let mut known = server.connect().unwrap();
    known.call(&["AUTH", "secret"]).unwrap();
    let before = server.output().lines().count();
    for number in 0..200u32 {
        let mut stranger = server.connect().unwrap();
        stranger.call(&["AUTH", &number.to_string()]).unwrap();
        stranger.call(&["GET", "k"]).unwrap();
        stranger
            .send([&b"*9999\r\n"[..], b"*1\r\n$99999\r\n", b"POST / HTTP/1.1\r\n"][number as usize % 3])
            .unwrap();
        stranger.read_to_close().unwrap();
    }
    let unfinished =
        [&b"*10\r\n"[..], &[&b"$16000\r\n"[..], &[b'x'; 16000], b"\r\n"].concat().repeat(9)].concat();
    for _ in 0..20 {
        let mut stranger = server.connect().unwrap();
        // It may be closed amid this.
        let _ = stranger.send(&unfinished).and_then(|()| stranger.read_to_close());
    }
    assert_eq!(known.call(&["PING"]).unwrap(), wire::Value::Simple(b"PONG".to_vec()));
    let lines = server.output().lines().count() - before;
    assert!(lines <= 1, "{}", server.output());
}
