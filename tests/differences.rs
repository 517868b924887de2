//! `docs/differences.md` and the list in `docs/scripting.md` say where Tarn is not Redis: each of their rows is still true, and none is without
//! something that looks.
//!
//! A check belongs to the row whose first cell is its name, word for word (`differences/rows.rs`, `differences/scripts.rs`).

mod by_hand;
mod rows;
mod scripts;

use crate::security::functions;
use crate::{root, tarn};
use std::collections::{BTreeMap, BTreeSet};
use testkit::{Client, Program, Server};

/// What looks at a row.
pub enum Check {
    /// What both are asked, and answer: Tarn's memory edition, and Redis 7.0.
    Asked(&'static [Step]),
    /// The same of servers that were started with these directives, Tarn's and Redis'.
    Started(&'static [&'static str], &'static [&'static str], &'static [Step]),
    /// What needs more than requests and replies.
    By(fn()),
    /// Another test, by its name.
    Test(&'static str),
    /// Nothing, for this reason.
    Not(&'static str),
}

/// A request, and what Tarn and Redis answer.
///
/// The request's words are as in a line of redis-cli; `{x5000}` is so many `x`; with `@name` in front another connection asks, and
/// without anything behind it one more message is read. An answer is written as it comes over the wire, with a space for each line end: all of
/// it, or a part of it behind `~`, or what must not be in it behind `!`. Without an expected answer a server is not asked.
type Step = (&'static str, &'static str, &'static str);

/// A page with rows.
struct Page {
    path: &'static str,
    /// Under which they are.
    heading: &'static str,
    /// What looks at them, by the first cell of each.
    checks: &'static [(&'static str, Check)],
}

const PAGES: [Page; 2] = [
    Page { path: "docs/differences.md", heading: "## Deliberate", checks: rows::CHECKS },
    Page { path: "docs/scripting.md", heading: "## Differences", checks: scripts::CHECKS },
];

/// The first cells of all rows under a heading.
fn rows_of(page: &Page) -> BTreeSet<String> {
    let Page { path, heading, .. } = page;
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let mut rows = BTreeSet::new();
    let lines = text.lines().skip_while(|line| line != heading).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("## "));
    for line in lines.filter(|line| line.starts_with("| ") && !line.starts_with("| what ")) {
        // A bar within a cell has a backslash in front.
        let cell = line[2..].replace("\\|", "\0");
        let cell = cell.split('|').next().unwrap().trim().replace('\0', "|");
        assert!(rows.insert(cell.clone()), "two rows of {path} begin with: {cell}");
    }
    rows
}

#[test]
fn every_row_has_a_check_and_every_check_a_row() {
    let mut known = BTreeSet::new();
    functions(&root().join("crates"), &mut known);
    functions(&root().join("tests"), &mut known);
    for page in PAGES {
        let rows = rows_of(&page);
        let Page { path, checks, .. } = page;
        let mut checked = BTreeSet::new();
        for (row, check) in checks {
            assert!(rows.contains(*row), "{path} has no row that begins with: {row}");
            assert!(checked.insert(*row), "two checks for: {row}");
            match check {
                Check::Test(name) => assert!(known.contains(*name), "there is no test {name}, for: {row}"),
                Check::Not(reason) => assert!(reason.len() > 10, "no reason why nothing looks at: {row}"),
                _ => {}
            }
        }
        let unchecked: Vec<&String> = rows.iter().filter(|row| !checked.contains(row.as_str())).collect();
        assert!(unchecked.is_empty(), "rows of {path} without a check in tests/differences: {unchecked:#?}");
    }
}

#[test]
fn every_row_is_still_true() {
    let tarn = Server::start(tarn(), &["--edition", "memory", "--enable-debug-command", "yes"]).unwrap();
    let redis = Server::start(Program::Redis, &[]).unwrap();
    let mut wrong = Vec::new();
    for (row, check) in PAGES.into_iter().flat_map(|page| page.checks) {
        match check {
            Check::Asked(steps) => wrong.extend(differing(row, steps, &tarn, &redis)),
            Check::Started(ours, theirs, steps) => {
                let tarn = Server::start(crate::tarn(), ours).unwrap();
                let redis = Server::start(Program::Redis, theirs).unwrap();
                wrong.extend(differing(row, steps, &tarn, &redis));
            }
            Check::By(look) => look(),
            Check::Test(_) | Check::Not(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is not answered as a row says.
fn differing(row: &str, steps: &[Step], tarn: &Server, redis: &Server) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, server, answer) in
        [("Tarn", tarn, (|step| step.1) as fn(&Step) -> &'static str), ("Redis", redis, |step| step.2)]
    {
        let mut clients: BTreeMap<&str, Client> = BTreeMap::new();
        let mut first = server.connect().unwrap();
        first.call(&["FLUSHALL"]).unwrap();
        clients.insert("", first);
        for step in steps.iter().filter(|step| !answer(step).is_empty()) {
            let (who, request) = match step.0.strip_prefix('@') {
                Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
                None => ("", step.0),
            };
            let client = clients.entry(who).or_insert_with(|| server.connect().unwrap());
            let found = answered(client, request);
            if !fits(&found, &filled(answer(step))) {
                wrong.push(format!("{row}: {name} answered {} with: {found}", step.0));
            }
        }
    }
    wrong
}

fn answered(client: &mut Client, request: &str) -> String {
    if !request.is_empty() {
        client.send_request(&wire::split_words(filled(request).as_bytes()).unwrap()).unwrap();
    }
    let reply = client.read_reply().unwrap();
    reply.escape_ascii().to_string().replace("\\r\\n", " ").trim_end().to_owned()
}

/// A text with `{x12}` in it, at most once, written out.
fn filled(text: &str) -> String {
    let Some((before, rest)) = text.split_once("{x") else { return text.to_owned() };
    let (count, behind) = rest.split_once('}').unwrap();
    [before, &"x".repeat(count.parse().unwrap()), behind].concat()
}

fn fits(found: &str, expected: &str) -> bool {
    match expected.split_at(1) {
        ("~", part) => found.contains(part),
        ("!", part) => !found.contains(part),
        _ => found == expected,
    }
}
