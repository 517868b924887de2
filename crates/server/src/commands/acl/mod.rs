//! ACL: users and their rules, seen and changed while the server runs.
//!
//! The rules themselves are in `acl`; here are the commands over them.

mod log;
mod users;

pub use users::{put_out, see_to_own};

use super::{HELP_FLAGS, help, row, unknown_subcommand};
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use acl::{Denied, SaveError};
use command::table;
use command::{Categories, Error, Flags, Group, Reach, Result, Row, Secrets, Shows};
use sys::prng::fill_with_secrets;
use value::text::until_zero;
use wire::{Reply, RequestBuf};

const ANYBODY: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE);
const ADMIN: Flags = ANYBODY.union(Flags::ADMIN);
/// A proxy sends these to all nodes.
const EVERYWHERE: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

/// ACL and its subcommands.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("acl", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .since("6.0.0")
        .group(Group::Server)
        .complexity("Depends on subcommand.")
        .summary("A container for commands about users and their rights.")
        .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("acl|cat", -2, ANYBODY, cat)
        .shows(Shows::Nothing)
        .complexity("O(1) since the categories and commands are a fixed set.")
        .syntax("[category]")
        .summary("Lists the categories of commands, or the commands of one."),
    sub("acl|deluser", -3, ADMIN, users::delete)
        .shows(Shows::Nothing)
        .complexity("O(1) amortized time considering the typical user.")
        .tips(EVERYWHERE)
        .syntax("username [username ...]")
        .summary("Deletes users and closes their connections."),
    sub("acl|dryrun", -4, ADMIN, dry_run)
        .shows(Shows::Nothing)
        .secrets(Secrets::OfRequest(3))
        .since("7.0.0")
        .complexity("O(1).")
        .syntax("username command [arg [arg ...]]")
        .summary("Tells whether a user may run a command, without running it."),
    sub("acl|genpass", -2, ANYBODY, generate_password)
        .shows(Shows::Nothing)
        .syntax("[bits]")
        .summary("Makes up a password that nobody guesses."),
    sub("acl|getuser", 3, ADMIN, users::get)
        .shows(Shows::Nothing)
        .secrets(Secrets::From(2))
        .complexity("O(N). Where N is the number of password, command and pattern rules that the user has.")
        .syntax("username")
        .summary("Shows a user's rules, by kind."),
    sub("acl|help", 2, HELP_FLAGS, |_, reply| help(reply, "ACL", HELP))
        .shows(Shows::Nothing)
        .summary("Lists the subcommands."),
    sub("acl|list", 2, ADMIN, users::list)
        .shows(Shows::Nothing)
        .complexity("O(N). Where N is the number of configured users.")
        .summary("Shows all users with their rules, as in a file."),
    sub("acl|load", 2, ADMIN, load)
        .shows(Shows::Nothing)
        .complexity("O(N). Where N is the number of configured users.")
        .summary("Reads the users from their file again."),
    sub("acl|log", -2, ADMIN, log::log)
        .shows(Shows::Nothing)
        .complexity("O(N) with N being the number of entries shown.")
        .syntax("[count | RESET]")
        .summary("Shows what users were refused."),
    sub("acl|save", 2, ADMIN, save)
        .shows(Shows::Nothing)
        .complexity("O(N). Where N is the number of configured users.")
        .tips(EVERYWHERE)
        .summary("Writes the users to their file."),
    sub("acl|setuser", -3, ADMIN.union(Flags::SENSITIVE), users::set)
        .shows(Shows::Nothing)
        .secrets(Secrets::From(2))
        .complexity("O(N). Where N is the number of rules provided.")
        .tips(EVERYWHERE)
        .syntax("username [rule [rule ...]]")
        .summary("Makes a user or changes its rules."),
    sub("acl|users", 2, ADMIN, users::names)
        .shows(Shows::Nothing)
        .complexity("O(N). Where N is the number of configured users.")
        .summary("Lists the names of all users."),
    sub("acl|whoami", 2, ANYBODY, who_am_i)
        .shows(Shows::Nothing)
        .summary("Answers with the name of the connection's user."),
];

const HELP: &[&str] = &[
    "CAT [<category>]",
    "    The categories of commands, or the commands of one.",
    "DELUSER <username> [<username> ...]",
    "    Delete users and close their connections.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Whether the user may run the command; it does not run.",
    "GETUSER <username>",
    "    The user's rules, by kind.",
    "GENPASS [<bits>]",
    "    A random password of 256 bits, or as many as given, in hexadecimal.",
    "LIST",
    "    All users with their rules, as in a file.",
    "LOAD",
    "    Read the users from their file again.",
    "LOG [<count> | RESET]",
    "    What users were refused, newest first; or forget it.",
    "SAVE",
    "    Write the users to their file.",
    "SETUSER <username> <rule> [<rule> ...]",
    "    Make a user or change its rules.",
    "USERS",
    "    The names of all users.",
    "WHOAMI",
    "    The name of this connection's user.",
];

const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Around, flags, handler).since("6.0.0").group(Group::Server)
}

/// ACL WHOAMI
fn who_am_i(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.bulk(context.session.access.user().name());
    Ok(())
}

/// ACL CAT [category]
fn cat(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    match request.len() {
        2 => {
            let names: Vec<String> =
                Categories::all().iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
            reply.array(names.len());
            names.iter().for_each(|name| reply.bulk(name.as_bytes()));
        }
        3 => {
            const SHOWN_BYTES_MAX: usize = 128;
            let name = request.arg(2);
            let shown = &name[..name.len().min(SHOWN_BYTES_MAX)];
            let category =
                acl::category(name).ok_or_else(|| Error::quoting("ERR Unknown category '", shown, "'"))?;
            let belongs = |command: &&table::Command| command.row.categories().contains(category);
            let members: Vec<&table::Command> = table::all().iter().filter(belongs).collect();
            reply.array(members.len());
            members.iter().for_each(|command| reply.bulk(command.row.name.as_bytes()));
        }
        _ => return Err(wrong_arguments(request.arg(1))),
    }
    Ok(())
}

/// The error for too many arguments of a subcommand that takes few.
fn wrong_arguments(subcommand: &[u8]) -> Error {
    Error::quoting(
        "ERR unknown subcommand or wrong number of arguments for '",
        subcommand,
        "'. Try ACL HELP.",
    )
}

/// ACL GENPASS [bits]
fn generate_password(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    const BITS_USUALLY: i64 = 256;
    const BITS_MAX: i64 = 4096;
    let bits = match context.request.len() {
        2 => BITS_USUALLY,
        3 => value::number::parse_i64(context.request.arg(2)).ok_or(Error::NotInteger)?,
        _ => return Err(wrong_arguments(context.request.arg(1))),
    };
    if !(1..=BITS_MAX).contains(&bits) {
        return Err(Error::line(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {BITS_MAX}"
        )));
    }
    let mut digits = vec![0; (bits as usize).div_ceil(4)];
    fill_with_secrets(&mut digits).map_err(|error| Error::line(format!("ERR no random numbers: {error}")))?;
    digits.iter_mut().for_each(|digit| *digit = b"0123456789abcdef"[usize::from(*digit & 15)]);
    reply.bulk(&digits);
    Ok(())
}

/// ACL DRYRUN username command [arg [arg ...]]
fn dry_run(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let words: Vec<&[u8]> = context.request.iter().skip(3).collect();
    let name = context.request.arg(2);
    let user =
        context.server.acl.get(name).ok_or_else(|| Error::quoting("ERR User '", name, "' not found"))?;
    let request = RequestBuf::from_args(&words);
    let request = request.as_request();
    let command = context
        .server
        .names
        .find_for(&request)
        .filter(|command| command.subcommands.is_empty() || request.len() == 1)
        .ok_or_else(|| Error::quoting("ERR Command '", words[0], "' not found"))?;
    if !command.row.accepts(request.len()) {
        return Err(Error::arity(command.row.name));
    }
    let Err(denied) = user.check(command, &request) else {
        reply.ok();
        return Ok(());
    };
    let (what, object, kind): (&str, &[u8], &str) = match denied {
        Denied::Command => ("run", command.row.name.as_bytes(), "command"),
        Denied::Key(position) => ("access", request.arg(position), "key"),
        Denied::Channel(position) => ("access", request.arg(position), "channel"),
    };
    let mut sentence = b"User ".to_vec();
    sentence.extend_from_slice(user.name());
    sentence.extend_from_slice(format!(" has no permissions to {what} the '").as_bytes());
    sentence.extend_from_slice(until_zero(object));
    sentence.extend_from_slice(format!("' {kind}").as_bytes());
    reply.bulk(&sentence);
    Ok(())
}

/// ACL LOAD
fn load(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = context.server;
    if server.engine.config.aclfile().is_empty() {
        return Err(NO_FILE);
    }
    server.acl.load(&server.engine.config).map_err(|error| Error::line(format!("ERR {}", error.0)))?;
    users::close_connections_without_user(context);
    users::close_subscribers_without_right(context);
    reply.ok();
    Ok(())
}

/// ACL SAVE
fn save(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    match context.server.acl.save(&context.server.engine.config) {
        Ok(()) => reply.ok(),
        Err(SaveError::NoFile) => return Err(NO_FILE),
        Err(SaveError::Disk(_)) => {
            return Err(Error::text(
                "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
            ));
        }
    }
    Ok(())
}

const NO_FILE: Error = Error::text(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
     SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to \
     store users in the Redis configuration.",
);
