//! COMMAND GETKEYS and GETKEYSANDFLAGS: the keys of a request given as arguments.

use super::describe::flag_names;
use crate::dispatch::Context;
use command::execute::{key_positions, positions_behind_keyword};
use command::key_use::{Begin, Find, OVERWRITES, READS};
use command::table::Command;
use command::{Error, Flags, KeyFlags, Result};
use wire::{Reply, Request, RequestBuf};

/// A request that was given as arguments, and where its keys are.
struct Given {
    request: RequestBuf,
    command: &'static Command,
    positions: Vec<usize>,
    counted: Counted,
}

/// How the number of keys was read. Redis falls back to each command's own rules where its specifications do
/// not lead to the keys; those read what begins like a number, take the keys they count first, and tell no flags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    Exactly,
    Loosely,
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
        let mut positions: Vec<usize> =
            positions_behind_keyword(&command.row, &request.as_request()).collect();
        if positions.is_empty() {
            key_positions(command.row.keys, &request.as_request(), &mut positions);
        }
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

/// Whether one of a command's words says how many keys it has.
fn counts_its_keys(command: &Command) -> bool {
    command.row.key_specs.iter().any(|spec| matches!(spec.find, Find::Numkeys { .. }))
}

/// The keys of such a command, and how they were counted; None of others.
fn counted(command: &Command, request: &Request<'_>) -> Option<(Vec<usize>, Counted)> {
    let ways = [Counted::Exactly, Counted::Loosely].into_iter();
    ways.filter(|_| counts_its_keys(command))
        .find_map(|way| Some((counted_keys(command, request, way)?, way)))
}

/// The words that a client takes for keys that knows nothing of a command but its specifications, where these say that one of its
/// words counts them: also of a request that will be refused.
pub(crate) fn named_by_count(command: &Command, request: &Request<'_>) -> Vec<usize> {
    counted(command, request).map_or(Vec::new(), |(positions, _)| positions)
}

/// The keys of such a command, found as a client finds them that knows nothing but its
/// specifications. None: the number is none, or says more than there is.
fn counted_keys(command: &Command, request: &Request<'_>, counted: Counted) -> Option<Vec<usize>> {
    let mut positions = Vec::new();
    let number_of = match counted {
        Counted::Exactly => value::number::parse_i64,
        Counted::Loosely => leading_number,
    };
    let mut specs = command.row.key_specs.to_vec();
    if counted == Counted::Loosely {
        specs.reverse();
    }
    for spec in specs {
        let Begin::Index(begin) = spec.begin else { continue };
        let begin = begin as i64;
        let (first, last, step) = match spec.find {
            Find::Range { last, step, .. } => (begin, begin + last, step),
            Find::Numkeys { number, first, step } => {
                let word = request.get(usize::try_from(begin + number).ok()?)?;
                let keys = number_of(word).filter(|keys| *keys > 0)?;
                let first = begin + first;
                (first, first.checked_add((keys - 1).checked_mul(step)?)?, step)
            }
            Find::Unknown => continue,
        };
        if last >= request.len() as i64 {
            return None;
        }
        positions.extend((first..=last).step_by(step.max(1) as usize).map(|position| position as usize));
    }
    Some(positions)
}

/// The number with which a text begins, as C's `atoi` reads it, if it has few enough digits.
fn leading_number(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&text[..digits]).ok()?;
    number.parse::<i32>().ok().map(i64::from)
}

/// What this request does with a key; for the few commands whose row cannot say
/// it, the arguments tell.
pub(crate) fn flags_of(command: &Command, request: &Request<'_>, number: usize) -> KeyFlags {
    let flags = command.row.key_flags_of(number);
    match command.row.name {
        "set" if !request.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"get")) => OVERWRITES,
        "bitfield" if only_reads_bits(request) => READS,
        _ => flags - KeyFlags::VARIABLE_FLAGS,
    }
}

/// Whether a BITFIELD consists of GET and OVERFLOW alone; what is not understood may write.
fn only_reads_bits(request: &Request<'_>) -> bool {
    let mut at = 2;
    while let Some(word) = request.get(at) {
        let behind = request.len() - at - 1;
        at += match word {
            _ if word.eq_ignore_ascii_case(b"get") && behind >= 2 => 3,
            _ if word.eq_ignore_ascii_case(b"overflow") && behind >= 1 => 2,
            _ => return false,
        };
    }
    true
}
