//! COMMAND GETKEYS and GETKEYSANDFLAGS: the keys of a request given as arguments.

use super::describe::flag_names;
use crate::dispatch::Context;
use command::execute::{key_positions, positions_by_keywords};
use command::key_flags::{Counted, counted, counts_its_keys, flags_of};
use command::table::Command;
use command::{Error, Flags, KeyFlags, Result};
use wire::{Reply, RequestBuf};

/// A request that was given as arguments, and where its keys are.
struct Given {
    request: RequestBuf,
    command: &'static Command,
    positions: Vec<usize>,
    counted: Counted,
}

/// COMMAND GETKEYS command [arg [arg ...]]
pub(super) fn getkeys(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let given = given(context)?;
    reply.array(given.positions.len());
    given.positions.iter().for_each(|position| reply.bulk(given.request.as_request().arg(*position)));
    Ok(())
}

/// COMMAND GETKEYSANDFLAGS command [arg [arg ...]]
pub(super) fn getkeysandflags(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let given = given(context)?;
    reply.array(given.positions.len());
    for (number, position) in given.positions.iter().enumerate() {
        reply.array(2);
        reply.bulk(given.request.as_request().arg(*position));
        let flags = match given.counted {
            Counted::Exactly => flags_of(given.command, &given.request.as_request(), number),
            Counted::Loosely => KeyFlags::empty(),
        };
        flag_names(flags, reply);
    }
    Ok(())
}

fn given(context: &Context<'_, '_>) -> Result<Given> {
    let words: Vec<&[u8]> = context.request.iter().skip(2).collect();
    let request = RequestBuf::from_args(words);
    // A container without one of its subcommands is no command.
    let command = context
        .server
        .names
        .find_for(&request.as_request())
        .filter(|command| command.subcommands.is_empty() || request.as_request().len() == 1)
        .ok_or(Error::text("ERR Invalid command specified"))?;
    if !command.names_keys() {
        return Err(Error::text("ERR The command has no key arguments"));
    }
    if !command.row.accepts(request.as_request().len()) {
        return Err(Error::text("ERR Invalid number of arguments specified for command"));
    }
    let found = if counts_its_keys(command) {
        counted(command, &request.as_request())
    } else {
        let request = request.as_request();
        let positions = match positions_by_keywords(&command.row, &request) {
            Some(positions) => positions,
            None => {
                let mut positions = Vec::new();
                key_positions(command.row.keys, &request, &mut positions);
                positions
            }
        };
        Some((positions, Counted::Exactly)).filter(|(positions, _)| !positions.is_empty())
    };
    match found {
        Some((positions, counted)) => Ok(Given { request, command, positions, counted }),
        None if command.is(Flags::NO_MANDATORY_KEYS) => {
            Ok(Given { request, command, positions: Vec::new(), counted: Counted::Exactly })
        }
        None => Err(Error::text("ERR Invalid arguments specified for command")),
    }
}
