//! The string and bitmap groups: rows as in Redis' COMMAND INFO, replies as
//! recorded from Redis, effects, and the commands that Redis 7.2 does not have.

mod run;

use command::{Flags, Keys, Outcome, Row};
use run::{Run, find_row};

#[test]
fn replies_are_those_of_redis() {
    run::cases::play("strings.cases");
}

/// A row as Redis shows it: `name arity flags first last step`.
fn line_of(row: &Row) -> String {
    let mut flags = Vec::new();
    let names = [
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::FAST, "fast"),
        (Flags::MOVABLEKEYS, "movablekeys"),
    ];
    for (flag, name) in names {
        if row.flags.contains(flag) {
            flags.push(name);
        }
    }
    let (first, last, step) = match row.keys {
        Keys::Range { first, last, step } => (first, last, step),
        _ => (0, 0, 0),
    };
    format!("{} {} {} {first} {last} {step}", row.name, row.arity, flags.join(","))
}

#[test]
fn rows_are_those_of_redis() {
    // Redis 7.2 shows the same.
    for line in include_str!("fixtures/strings.rows").lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(' ').next().expect("a line begins with a name");
        let row = find_row(name.as_bytes(), None).expect("Tarn has every command of the groups");
        assert_eq!(line_of(row), line);
    }
    let newer = ["delifeq 3 write,fast 1 1 1", "msetex -4 write,denyoom,movablekeys 0 0 0"];
    for line in newer {
        let name = line.split(' ').next().expect("a line begins with a name");
        assert_eq!(line_of(find_row(name.as_bytes(), None).expect("the row is there")), line);
    }
}

#[test]
fn rows_are_sorted_and_complete() {
    for rows in [command::string::ROWS, command::bitmap::ROWS] {
        assert!(rows.is_sorted_by_key(|row| row.name));
        for row in rows {
            assert!(!row.syntax.is_empty() && row.summary.ends_with('.'), "{}", row.name);
        }
    }
}
