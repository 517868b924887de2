//! What clients call commands: the names of the table, unless the directive `rename-command` gave one another name, or none.
//!
//! Only requests that come from clients and their scripts go by these names. What is run, logged and shown has the table's: whoever
//! starts with other names reads the same log.
//!
//! Thread rule: plain values, made at the start and read by all.

use command::table::{self, Command, CommandId};
use std::borrow::Cow;
use std::collections::HashMap;
use wire::{Request, RequestBuf};

/// Names of commands.
#[derive(Debug, Default)]
pub struct Names {
    /// In lower case; those that are not here mean what the table says. None: nothing.
    changed: HashMap<Vec<u8>, Option<CommandId>>,
}

impl Names {
    /// The names behind these lines of `rename-command`: an old name, and a new one or nothing.
    ///
    /// # Errors
    /// Redis' sentence for the first line that cannot be followed.
    pub fn of(lines: &[Vec<Vec<u8>>]) -> Result<Names, String> {
        let mut names = Names::default();
        for line in lines {
            let error = |sentence: &str| {
                let words: Vec<String> = line.iter().map(|word| word.escape_ascii().to_string()).collect();
                format!("`rename-command {}`: {sentence}", words.join(" "))
            };
            let [old, new] = &line[..] else { return Err(error("wrong number of arguments")) };
            let command = names.find(old).ok_or_else(|| error("No such command in rename-command"))?;
            names.changed.insert(old.to_ascii_lowercase(), None);
            if new.is_empty() {
                continue;
            }
            if names.find(new).is_some() {
                return Err(error("Target command name already exists"));
            }
            names.changed.insert(new.to_ascii_lowercase(), Some(command.id));
        }
        Ok(names)
    }

    /// Whether any command has another name than the table's.
    #[inline]
    pub fn are_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The first of the commands that other nodes of a shard or a cluster say to this one that has not got its name here.
    pub fn unknown_to_nodes(&self) -> Option<&'static str> {
        const SAID: [&str; 7] = ["auth", "cluster", "insync", "ping", "psync", "replconf", "slotmove"];
        let is_itself = |name: &&str| {
            self.find(name.as_bytes()).is_some_and(|command| command.row.name.eq_ignore_ascii_case(name))
        };
        SAID.into_iter().find(|name| !is_itself(name))
    }

    /// The command with this name, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        if self.changed.is_empty() { table::find(name) } else { self.find_changed(name) }
    }

    #[cold]
    fn find_changed(&self, name: &[u8]) -> Option<&'static Command> {
        match self.changed.get(&name.to_ascii_lowercase()) {
            Some(changed) => changed.map(table::get),
            None => table::find(name),
        }
    }

    /// As [`table::find_for`].
    #[inline]
    pub fn find_for(&self, request: &Request<'_>) -> Option<&'static Command> {
        let command = self.find(request.arg(0))?;
        table::find_within(command, request)
    }

    /// As [`table::find_full`].
    pub fn find_full(&self, name: &[u8]) -> Option<&'static Command> {
        table::find_full_by(name, |name| self.find(name))
    }

    /// Whether a command of the top level has a name at all.
    pub fn has(&self, command: &Command) -> bool {
        let is_it = |found: &Command| found.id == command.id;
        self.find(command.row.name.as_bytes()).is_some_and(is_it)
            || self.changed.values().any(|changed| *changed == Some(command.id))
    }

    /// The request with the table's name for its command, if that has got another one.
    #[inline]
    pub fn own<'r>(&self, command: Option<&Command>, request: &Request<'r>) -> Option<RequestBuf> {
        let command = command.filter(|_| !self.changed.is_empty())?;
        let container = command.row.name.split('|').next().unwrap_or_default();
        (!request.arg(0).eq_ignore_ascii_case(container.as_bytes())).then(|| {
            let rest = request.iter().skip(1).map(Cow::Borrowed);
            RequestBuf::from_args(std::iter::once(Cow::Borrowed(container.as_bytes())).chain(rest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(lines: &[[&str; 2]]) -> Result<Names, String> {
        crate::commands::install();
        let line = |words: &[&str; 2]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Names::of(&lines.iter().map(line).collect::<Vec<_>>())
    }

    fn name_of(names: &Names, name: &str) -> Option<&'static str> {
        names.find_full(name.as_bytes()).map(|command| command.row.name)
    }

    #[test]
    fn a_command_has_its_new_name_or_none() {
        let names = names(&[["FLUSHALL", ""], ["config", "Hidden"], ["get", "put"], ["set", "GET"]]).unwrap();
        assert_eq!(name_of(&names, "flushall"), None);
        assert_eq!(name_of(&names, "config|get"), None);
        assert_eq!(name_of(&names, "HIDDEN|get"), Some("config|get"));
        assert_eq!((name_of(&names, "put"), name_of(&names, "get")), (Some("get"), Some("set")));
        assert_eq!((name_of(&names, "set"), name_of(&names, "del")), (None, Some("del")));
        let has = |name: &str| names.has(table::find(name.as_bytes()).unwrap());
        assert_eq!((has("flushall"), has("config"), has("get"), has("del")), (false, true, true, true));
    }

    #[test]
    fn what_nodes_say_must_have_its_name() {
        assert_eq!(names(&[["config", "hidden"]]).unwrap().unknown_to_nodes(), None);
        assert_eq!(names(&[["cluster", ""]]).unwrap().unknown_to_nodes(), Some("cluster"));
        assert_eq!(names(&[["PSYNC", "x"]]).unwrap().unknown_to_nodes(), Some("psync"));
    }

    #[test]
    fn a_request_is_told_by_the_tables_name() {
        let names = names(&[["config", "hidden"]]).unwrap();
        let request = RequestBuf::from_args(["hidden", "get", "port"]);
        let command = names.find_for(&request.as_request());
        let own = names.own(command, &request.as_request()).unwrap();
        assert_eq!(own, RequestBuf::from_args(["config", "get", "port"]));
        let request = RequestBuf::from_args(["PING"]);
        assert_eq!(names.own(names.find_for(&request.as_request()), &request.as_request()), None);
    }

    #[test]
    fn lines_that_cannot_be_followed_are_refused_as_redis_does() {
        let error = |lines: &[[&str; 2]]| names(lines).unwrap_err();
        assert_eq!(
            error(&[["nothing", "x"]]),
            "`rename-command nothing x`: No such command in rename-command"
        );
        assert_eq!(
            error(&[["get", ""], ["get", "x"]]),
            "`rename-command get x`: No such command in rename-command"
        );
        assert_eq!(error(&[["get", "SET"]]), "`rename-command get SET`: Target command name already exists");
    }
}
