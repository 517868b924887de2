//! The connection group's rows against COMMAND INFO of Redis 7.0.15, with the two
//! subcommands that 7.2 added.

use command::table;
use command::{Flags, Group};
use std::collections::BTreeSet;

fn flag_names(flags: Flags) -> BTreeSet<String> {
    let own = Flags::SENSITIVE
        | Flags::DANGEROUS
        | Flags::PROTECTED
        | Flags::NO_TOUCH
        | Flags::RUNS_IN_MULTI
        | Flags::AMONG_MESSAGES
        | Flags::ENDS_TRANSACTION
        | Flags::ASKS_HEALTH
        | Flags::KEEPS_CACHING
        | Flags::IN_APPEND_ONLY_FILE
        | Flags::TOUCHES
        | Flags::ON_LEAVE;
    flags.difference(own).iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

#[test]
fn rows_are_those_of_command_info() {
    let lines: Vec<&str> =
        include_str!("connection.rows").lines().filter(|line| !line.starts_with('#')).collect();
    for line in &lines {
        let columns: Vec<&str> = line.split('\t').collect();
        let &[name, arity, flags, tips, since] = &columns[..] else { panic!("{line}") };
        let row = &table::all().iter().find(|command| command.row.name == name).expect(name).row;
        assert_eq!(row.arity.to_string(), arity, "{name}");
        let names = |list: &str| -> BTreeSet<String> {
            list.split(',').filter(|word| *word != "-").map(str::to_owned).collect()
        };
        assert_eq!(flag_names(row.flags), names(flags), "{name}");
        assert_eq!(
            row.tips.iter().map(|tip| tip.to_string()).collect::<BTreeSet<_>>(),
            names(tips),
            "{name}"
        );
        assert_eq!(row.since, since, "{name}");
        assert!(row.summary.ends_with('.') && !row.complexity.is_empty(), "{name}");
    }
    let ours = table::all().iter().filter(|command| command.row.group == Group::Connection);
    assert_eq!(ours.count(), lines.len(), "every row is in the fixture");
}
