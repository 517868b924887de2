//! What is known of a script before it runs: what it says of itself, and whether it will hold the whole keyspace.

use super::{Holds, Library, Locks, Script, Scripts};
use command::table::Command;
use command::{Flags, Reach, ScriptBy};
use script::{Header, ScriptFlags, Sha, sha};
use std::sync::Arc;
use wire::Request;

/// Whether a request to run a script or function will hold the whole keyspace.
pub fn takes_all(scripts: &Scripts, is_monitored: bool, command: &Command, request: &Request<'_>) -> bool {
    let found = find(scripts, command, request);
    let reads_only = reads_only(command.row.flags, found.flags());
    let holds_all = |locks: &Locks, is_function: bool| {
        locks.holds(may_begin_again(is_monitored, reads_only, is_function)) == Holds::All
    };
    match &found {
        Found::Script(script) => holds_all(&script.locks, false),
        Found::Function(library, _) => holds_all(&library.locks, true),
        Found::Text(text) => holds_all(&Locks::of(text), false),
        Found::Nothing => false,
    }
}

/// Whether a run that has called nothing but reads can begin again, and nobody sees that it ran twice. A function cannot: what its library
/// remembers from one call to the next has changed. Nor one that somebody monitors.
pub fn may_begin_again(is_monitored: bool, reads_only: bool, is_function: bool) -> bool {
    reads_only && !is_function && !is_monitored
}

/// The flags of a command that runs a script or function, with what that says of itself.
pub fn flags_in_effect(scripts: &Scripts, command: &Command, request: &Request<'_>) -> Flags {
    let mut flags = command.row.flags;
    let of_script = find(scripts, command, request).flags();
    let reads_only = reads_only(flags, of_script);
    match of_script {
        // One that says nothing may write, unless its command says that it does not.
        None => flags.set(Flags::MAY_REPLICATE, !reads_only || flags.contains(Flags::MAY_REPLICATE)),
        Some(of_script) => {
            flags.set(Flags::WRITE, !reads_only);
            flags.set(Flags::DENYOOM, !reads_only && !of_script.contains(ScriptFlags::ALLOW_OOM));
        }
    }
    flags
}

/// Whether a script may change nothing: by what it says of itself, or else by the command that runs it.
pub fn reads_only(of_command: Flags, of_script: Option<ScriptFlags>) -> bool {
    match of_script {
        Some(flags) => flags.contains(ScriptFlags::NO_WRITES),
        None => of_command.contains(Flags::READONLY),
    }
}

/// What a request will run.
enum Found<'a> {
    Script(Arc<Script>),
    Function(Arc<Library>, usize),
    /// A script that nobody has run.
    Text(&'a [u8]),
    Nothing,
}

impl Found<'_> {
    /// What it says of itself.
    fn flags(&self) -> Option<ScriptFlags> {
        match self {
            Found::Script(script) => script.flags,
            Found::Function(library, index) => Some(library.functions[*index].flags),
            Found::Text(text) => Header::of_script(text).ok().and_then(|header| header.flags),
            Found::Nothing => None,
        }
    }
}

fn find<'a>(scripts: &Scripts, command: &Command, request: &Request<'a>) -> Found<'a> {
    let Some(word) = request.get(1) else { return Found::Nothing };
    let script = |name: &Sha| scripts.get(name).map(Found::Script);
    let Reach::Script(by) = command.row.reach else { return Found::Nothing };
    match by {
        ScriptBy::Function => {
            scripts.function(word).map_or(Found::Nothing, |(library, index)| Found::Function(library, index))
        }
        ScriptBy::Sha => Sha::try_from(&word.to_ascii_lowercase()[..])
            .ok()
            .and_then(|name| script(&name))
            .unwrap_or(Found::Nothing),
        ScriptBy::Text => script(&sha(word)).unwrap_or(Found::Text(word)),
    }
}
